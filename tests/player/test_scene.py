"""A saved scene is one file that needs nothing else; moments of a run that are worth a look."""

import base64
import re
import zlib
from functools import cache

import pytest

from fdkvc.conversations.formats import EXAMPLES, read_transcripts
from fdkvc.conversations.lexical import lexical_recording
from fdkvc.explain.decisions import turn_view
from fdkvc.player import scene
from fdkvc.player.moments import failed_call, nearly_kept, rescued
from fdkvc.player.payload import pack
from fdkvc.player.run import DialogChoice, StageRun, build_run
from fdkvc.player.scene import scene_html, sentences_of
from fdkvc.policies import policy_named
from fdkvc.synthetic.scenarios import World, custom_scenario, scenario_named
from tests.app_pages import unpacked

FOREIGN = re.compile(r"""(?:src|href)\s*=\s*["'](?!#|data:)|@import|https?://(?!www\.w3\.org)""")
"""What would fetch something, but for the names of XML's spaces."""


@cache
def run_of(key: str = "fd-kvc") -> StageRun:
    dialog = DialogChoice(scenario_named("mixed"), 7, World())
    return build_run(dialog, policy_named(key), 56)


@pytest.fixture(autouse=True)
def few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Explain one entry, as of a large run."""
    monkeypatch.setattr(scene, "MAX_EXPLAINED_ENTRIES", 10)


def test_a_scene_holds_the_run_and_what_is_said_of_it() -> None:
    run = run_of()
    turn, entry = nearly_kept(run)
    packed = pack(run, "scene")
    told = sentences_of([run], entry)
    text = scene_html("<FD-KVC>", packed, turn, entry, told)
    assert "<title>&lt;FD-KVC&gt;</title>" in text
    assert not FOREIGN.search(text)
    assert "default-src 'none'" in text
    (data,) = re.findall(r'const data = bytes\("([^"]+)"\)', text)
    assert unpacked(base64.b64decode(data)) is not None
    assert base64.b64decode(data) == packed
    (said,) = re.findall(r'await opened\("([^"]+)"\)', text)
    assert b"evicted in turn" in zlib.decompress(base64.b64decode(said))
    assert f'"turn": {turn}, "entry": {entry}' in text
    assert set(told) >= {f"{at} {entry}" for at in range(run.dialogs.turns)}
    assert len(text) < 300_000


def test_of_a_large_run_only_the_held_entry_is_told_and_of_a_small_one_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tiny = DialogChoice(custom_scenario("AAB"), 1, World(tokens_per_turn=4))
    small = build_run(tiny, policy_named("fifo"), 8)
    run = run_of()
    assert set(sentences_of([run], 3)) == {f"{turn} 3" for turn in range(run.dialogs.turns)}
    assert sentences_of([run], None) == {}
    monkeypatch.setattr(scene, "MAX_EXPLAINED_ENTRIES", 2000)
    pairs = zip(small.entries["turn"], small.entries["token"], strict=True)
    assert set(sentences_of([small], None)) == {f"{turn} {token}" for turn, token in pairs}
    monkeypatch.setattr(scene, "MAX_EXPLAINED_ENTRIES", 10)
    both = sentences_of([run, run_of("h2o")], 3, lanes=True)
    assert {len(sentences) for sentences in both.values()} == {2}


def test_a_rescue_is_of_a_topic_that_returns_and_lifts_what_stays() -> None:
    run = run_of()
    turn, token = rescued(run)
    current = run.dialogs.current[0]
    assert token is not None
    assert current[turn] in current[: turn - 1]
    assert current[turn] != current[turn - 1]
    assert current[run.dialogs.born[0, token]] == current[turn]
    made = turn_view(run.trace, run.dialogs, 0, turn)
    assert token in made.token[made.kept]


def test_a_failed_call_is_of_what_was_held_once_and_is_needed_later() -> None:
    path = EXAMPLES / "dialogues.json"
    recordings = [*map(lexical_recording, read_transcripts(path.read_bytes(), path.name))]
    failure = failed_call(recordings, policy_named("fd-kvc"), 56)
    assert failure is not None
    kept = failure.run.trace.kept_tokens[0]
    assert failure.token in kept[failure.turn - 1]
    assert failure.token not in kept[failure.turn]
    assert failure.turn < failure.demand.turn
    assert failed_call(recordings, policy_named("full"), 56) is None
