"""What a model loses right after a compaction, beside caches that read the same texts by hand."""

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from fdkvc.commands.main import main
from fdkvc.conversations.forgot import RIGHT_AND_LIKELY, Forgot, forgot
from fdkvc.conversations.formats.agents import transcript_of
from fdkvc.core.unread import Unread
from fdkvc.models.after_compaction import read_on
from fdkvc.models.numpy.language_model import LanguageModel, load_language_model
from fdkvc.models.numpy.text_cache import EvictingCache, ModelCache, read
from fdkvc.policies import read_policy
from tests.conversations.test_forgot import worked
from tests.models.numpy.test_speakers import write_chat_model
from tests.session_lines import ClaudeCode

WAYS = ("sink", "reread(messages(fifo))")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chat_model(tmp_path_factory.mktemp("chat"), max_position_embeddings=1024)


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return load_language_model(folder)


def result_of(made: ClaudeCode) -> Forgot:
    (session,) = made.read()
    (result,) = forgot(session, [read_policy(name) for name in WAYS])
    return result


def ids_of(model: LanguageModel, result: Forgot, messages: Sequence[int]) -> list[int]:
    session = result.session
    dialog = transcript_of(session, messages, session.name, False, Unread())
    return [*chain.from_iterable(row.ids for row in model.tokens.encode_dialog(dialog))]


def probabilities(cache: ModelCache, ids: Sequence[int]) -> np.ndarray:
    """Return what a cache predicts after each of some tokens but the last."""
    logits = read([cache], ids)[0, :-1].astype(float)
    logits -= logits.max(axis=1, keepdims=True)
    return np.asarray(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))


def test_each_way_reads_on_from_what_it_keeps(model: LanguageModel) -> None:
    result = result_of(worked())
    ways = read_on(model, result).ways
    readings = {way.policy: way.reading for way in ways if way.reading is not None}

    context, stayed = result.compaction.context, result.compaction.stayed
    before, kept = ids_of(model, result, context), ids_of(model, result, stayed)
    following = result.session.contexts[1][len(stayed) :]
    after = ids_of(model, result, [*context, *following])[len(before) :]
    newest = (ids_of(model, result, context[first:]) for first in range(len(context)))
    fits = next(ids for ids in newest if len(ids) <= len(kept))
    begun: dict[str, tuple[ModelCache, list[int]]] = {
        "": (model.full(), kept),
        "sink": (EvictingCache(model.decoder, read_policy("sink"), len(kept)), before),
        "reread(messages(fifo))": (model.full(), fits),
    }
    whole = model.full()
    read([whole], before, last=0)
    whole.end_turn()
    full = probabilities(whole, after)
    assert readings.keys() == begun.keys()
    for name, (cache, ids) in begun.items():
        read([cache], ids, last=0)
        cache.end_turn()
        other, reading = probabilities(cache, after), readings[name]
        kl = (full * np.log(full / other)).sum(axis=1).mean()
        assert reading.kl == pytest.approx(kl, abs=1e-5)
        assert reading.values == readings[""].values
    assert len({reading.kl for reading in readings.values()}) == len(begun)


def test_what_is_too_long_for_the_model_is_said_and_read_no_further(model: LanguageModel) -> None:
    made = ClaudeCode()
    made.user("seat " * 1100)
    made.boundary()
    made.summary("Seats.")
    made.say("Then I book.")
    result = result_of(made)
    assert result.before > model.decoder.shape.positions
    told = read_on(model, result)
    assert all(way.reading is None for way in told.ways)
    assert told.notes[-1].endswith("its context 1,024.")


def test_what_follows_is_needed(model: LanguageModel) -> None:
    made = worked()
    made.rows = made.rows[:6]
    assert "follows" in read_on(model, result_of(made)).notes[-1]


def test_the_command_prints_what_the_model_read(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(worked().content)
    assert main(["forgot", str(path), "--model", str(folder), "--json"]) == 0
    (compaction,) = json.loads(capsys.readouterr().out)["compactions"]
    assert all(way["reading"]["kl"] > 0 for way in compaction["ways"])
    assert main(["forgot", str(path), "--model", str(folder)]) == 0
    text = capsys.readouterr().out
    assert f"{RIGHT_AND_LIKELY.capitalize()}: " in text, "the column is named as it is headed"
    assert " nats " not in text
    lines = text.splitlines()
    assert sum(RIGHT_AND_LIKELY in line for line in lines) == 1
    assert max(map(len, lines)) <= 100
