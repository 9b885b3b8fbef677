"""Damage against the equations of the model, and what explains and heals it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import smollm2
from benchmarks.smollm2 import attention_received
from fdkvc.conversations.formats import EXAMPLES, read_file
from fdkvc.core.attention import Floats
from fdkvc.models import damage as module
from fdkvc.models.answers import Answers, run_answers
from fdkvc.models.damage import LEAST, SPACE, Text, chat_text, dialog_text, read_damage, read_losses
from fdkvc.models.numpy.chat import Chat
from fdkvc.models.numpy.language_model import LanguageModel, load_language_model
from fdkvc.models.numpy.text_cache import TextCache, read
from fdkvc.models.report.damage import worst_columns
from fdkvc.policies import policy_named
from tests.hostile import HOSTILE
from tests.language_models import weights, write_model
from tests.models.numpy.test_decoder import by_the_equations

SAID = ("a train to Trieste — über Ljubljana, please", "for two people", "and now, for two?")
BUDGET, SEED = 20, 3
FIFO = policy_named("fifo")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("read"), seed=SEED)


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return load_language_model(folder)


@pytest.fixture(scope="module")
def text(model: LanguageModel) -> Text:
    chat = Chat(model, {"full": model.full()})
    for words in SAID:
        chat.add_message(words)
    return chat_text(model.tokens, chat.caches["full"].ids, chat.passages["full"])


def log_probabilities(
    folder: Path, text: Text, sees: Callable[[int, int], bool] = lambda position, earlier: True
) -> Floats:
    """Work out log p of every token after each (N, V) by the equations."""
    config = json.loads((folder / "config.json").read_text())
    logits = by_the_equations(config, weights(config, SEED), list(text.ids), sees)
    top = logits.max(axis=1, keepdims=True)
    log_p: Floats = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    return log_p


def turn_start(text: Text, position: int) -> int:
    return max(part.first for part in text.parts if part.first <= position)


def kept_by_fifo(text: Text, position: int, earlier: int) -> bool:
    """Whether a token still sees an earlier one: those of its turn, and the newest before it."""
    return earlier >= turn_start(text, position) - BUDGET


def kl_of(full: Floats, lost: Floats) -> Floats:
    """Return the KL of each token (N,) from the log probabilities after each (N, V)."""
    after = (np.exp(full) * (full - lost)).sum(axis=1)
    return np.concatenate([[0], after[:-1]])


def test_damage_is_what_the_equations_say(folder: Path, model: LanguageModel, text: Text) -> None:
    damage = read_damage(model, model.evicting(FIFO, BUDGET), text)

    full = log_probabilities(folder, text)
    lost = log_probabilities(folder, text, lambda *places: kept_by_fifo(text, *places))
    np.testing.assert_allclose(damage.kl, kl_of(full, lost), atol=2e-4)
    for nats, expected in ((damage.full_nats, full), (damage.nats, lost)):
        came = -expected[np.arange(len(text.ids) - 1), text.ids[1:]]
        np.testing.assert_allclose(nats, [0, *came], atol=2e-4)
    changed = full.argmax(axis=1) != lost.argmax(axis=1)
    assert damage.changed is not None
    assert damage.changed.tolist() == [False, *changed[:-1].tolist()]
    assert damage.kl[: text.parts[0].end].max() < 1e-4 < 0.01 < damage.kl.max()


def test_a_text_read_in_small_blocks_has_the_same_damage(
    model: LanguageModel, text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float] = []
    *_, whole = read_losses([model.full(), model.evicting(FIFO, BUDGET)], text)
    monkeypatch.setattr(module, "MAX_BLOCK_LOGITS", 2 * 5 * model.decoder.shape.vocabulary)
    *_, blocks = read_losses([model.full(), model.evicting(FIFO, BUDGET)], text, shares.append)

    for one, other in zip(whole, blocks, strict=True):
        np.testing.assert_allclose(one.astype(float), other.astype(float), atol=2e-5)
    assert shares == sorted(shares)
    assert len(shares) > len(text.ids) / 5
    assert shares[-1] == 1


def test_the_mean_is_the_one_that_the_command_answers_measures(model: LanguageModel) -> None:
    dialog = read_file(EXAMPLES / "dialogues.json")[1]
    settings = Answers((FIFO,), (48,))
    measured = run_answers(settings, model, [dialog], workers=1)
    expected = measured.query("policy == 'fifo'").set_index("metric").value

    by_token = read_damage(
        model, model.evicting(FIFO, 48), dialog_text(model.tokens, dialog)
    ).by_token()

    assert by_token.kl[1:].mean() == pytest.approx(expected["kl"], abs=1e-5)
    assert by_token.nats[1:].mean() == pytest.approx(expected["nats"], abs=1e-5)


def test_every_token_is_in_one_word_and_a_word_has_their_sum(
    model: LanguageModel, text: Text
) -> None:
    damage = read_damage(model, model.evicting(FIFO, BUDGET), text)

    places = [at for word in text.words for at in range(*word.span)]
    assert places == [*range(len(text.ids))]
    alone = {"<user>", "<end>", SPACE}
    assert {word.text for word in text.words} >= alone
    assert [word.text for word in text.words if word.text not in alone] == " ".join(SAID).split()
    sums = [damage.kl[word.tokens].sum() for word in text.words]
    np.testing.assert_allclose(damage.of_words, sums, atol=1e-5)
    table = damage.by_token()
    assert [*table.columns] == ["word", "speaker", "turn", "kl", "nats", "nats_lost"]
    assert table.turn.tolist() == [
        at for at, part in enumerate(text.parts) for _ in range(*part[2:])
    ]
    turns = damage.by_turn()
    assert turns.kl.tolist() == pytest.approx(table.groupby("turn").kl.mean().tolist())
    assert turns.tokens.sum() == len(text.ids)


def test_the_most_hurt_words_come_first_with_what_the_full_cache_attends_to(
    model: LanguageModel, text: Text
) -> None:
    full, fifo = model.full(), model.evicting(FIFO, BUDGET)
    damage = read_damage(model, fifo, text)

    by_kl = np.argsort(-damage.of_words, kind="stable").tolist()
    assert [hurt.word for hurt in damage.hurt] == by_kl[: len(damage.hurt)]
    assert len(damage.hurt) == sum(kl >= LEAST for kl in damage.of_words)
    assert [hurt.restored is None for hurt in damage.hurt[11:13]] == [False, True]
    read([full], text.ids)
    hurt = damage.hurt[0]
    word = text.words[hurt.word]
    looked = np.mean([full.attention(at) for at in range(word.first - 1, word.end - 1)], axis=0)
    gone = range(text.parts[word.passage].first - BUDGET)
    shares = {
        at: looked[..., sorted({*range(*candidate.span)} & {*gone})].sum(axis=-1).mean()
        for at, candidate in enumerate(text.words)
    }
    best = sorted(shares, key=lambda at: -shares[at])[: len(hurt.causes)]
    assert [cause.word for cause in hurt.causes] == best
    for cause in hurt.causes:
        assert cause.share == pytest.approx(shares[cause.word], abs=1e-5)
        in_head = looked[cause.layer, cause.head, text.words[cause.word].tokens].sum()
        assert cause.largest == pytest.approx(in_head, abs=0.5)


def test_readable_words_are_listed_and_the_others_are_one_row(
    model: LanguageModel, text: Text
) -> None:
    """Marks are not readable, and neither are function words."""
    damage = read_damage(model, model.evicting(FIFO, BUDGET), text)
    columns = worst_columns(text, damage.of_words, damage.hurt)

    assert {text.words[mark].text for mark in text.marks} == {"<user>"}
    function = {"a", "to", "for", "and", "now?", "—"}
    listed = {"train", "Trieste", "über", "Ljubljana,", "please", "two", "people", "two?"}
    sums = dict(zip(text.words, damage.of_words, strict=True))
    *words, others = columns["most damaged word"]
    falling = sorted((word for word in sums if word.text in listed), key=lambda word: -sums[word])
    assert words == [word.text for word in falling if sums[word] >= LEAST][:8]
    rest = sum(kl for word, kl in sums.items() if word.text not in listed)
    assert others == "function words and marks"
    assert columns["KL, nats"][-1] == f"{rest:.2f} in all"
    needed = {word for cell in columns["needs the evicted"] for word in cell.split(", ")}
    assert not needed & function
    assert {len(cells) for cells in columns.values()} == {len(words) + 1}


def test_only_the_most_hurt_words_are_explained(
    model: LanguageModel, text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = read_damage(model, model.evicting(FIFO, BUDGET), text).hurt
    monkeypatch.setattr(module, "MAX_EXPLAINED_WORDS", 3)
    monkeypatch.setattr(module, "MAX_RESTORED_WORDS", 2)
    most = read_damage(model, model.evicting(FIFO, BUDGET), text).hurt

    assert most == (*every[:2], every[2]._replace(restored=None))


def test_restored_entries_are_seen_when_the_turn_is_read_again(
    folder: Path, model: LanguageModel, text: Text
) -> None:
    damage = read_damage(model, model.evicting(FIFO, BUDGET), text)
    full = log_probabilities(folder, text)

    for hurt in damage.hurt[:3]:
        word = text.words[hurt.word]
        start = text.parts[word.passage].first
        back = {at for cause in hurt.causes for at in range(*text.words[cause.word].span)}

        def sees(position: int, earlier: int, start: int = start, back: Any = back) -> bool:
            return kept_by_fifo(text, position, earlier) or (position >= start and earlier in back)

        lost = log_probabilities(folder, text, sees)
        assert hurt.restored == pytest.approx(kl_of(full, lost)[word.tokens].sum(), abs=5e-4)


def test_a_cache_that_holds_everything_hurts_no_word(model: LanguageModel, text: Text) -> None:
    for cache in (model.full(), model.evicting(FIFO, len(text.ids))):
        damage = read_damage(model, cache, text)
        assert damage.hurt == ()
        np.testing.assert_allclose(damage.kl, 0, atol=1e-5)


def test_the_attention_received_is_the_mean_over_later_tokens(
    model: LanguageModel, text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smollm2, "BLOCK", 7)
    cache: TextCache = model.full()
    read([cache], text.ids)

    count = len(text.ids)
    weights_of = np.stack([cache.attention(at) for at in range(count)])
    expected = [weights_of[at + 1 :, ..., at].mean(axis=0) for at in range(count - 1)]
    received = attention_received(cache)
    np.testing.assert_allclose(received[..., :-1], np.stack(expected, axis=-1), atol=1e-5)
    assert (received[..., -1] == 0).all()


def test_hostile_words_stay_words(model: LanguageModel) -> None:
    chat = Chat(model, {"full": model.full()})
    chat.add_message(f"{HOSTILE} <end> <user>")
    conversation = chat_text(model.tokens, chat.caches["full"].ids, chat.passages["full"])

    said = [
        word.text
        for word in conversation.words
        if word.end - word.first > 1 or "<" not in word.text
    ]
    assert set(HOSTILE.split()) <= set(said)


def test_a_text_that_is_too_long_is_refused_before_it_is_read(text: Text, tmp_path: Path) -> None:
    small = load_language_model(write_model(tmp_path, max_position_embeddings=64))
    with pytest.raises(ValueError, match=r"^the text has \d+ tokens"):
        read_damage(small, small.full(), text)
