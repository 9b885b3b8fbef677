"""The card read by a model: which ways, which dialogs, and at which sizes."""

from dataclasses import replace

import pytest

from fdkvc.conversations.formats import EXAMPLES, read_file
from fdkvc.models.answers import Answers, run_answers
from fdkvc.models.numpy import BUNDLED
from fdkvc.models.numpy.head_recordings import count_tokens
from fdkvc.models.numpy.language_model import shared_language_model
from fdkvc.policies import read_policy
from fdkvc.verdict import checked
from fdkvc.verdict.card import Card, ModelRead, Way
from fdkvc.verdict.checked import read_card, readings_of, sample_of, ways_to_read
from fdkvc.verdict.model_shape import read_shape

DIALOGS = read_file(EXAMPLES / "dialogues.json")
MODEL = shared_language_model(BUNDLED)
TOKENS = [count_tokens(MODEL, dialog) for dialog in DIALOGS]


def test_a_sample_has_dialogs_with_calls_of_different_clusters_first() -> None:
    one, other = DIALOGS
    again = one.with_name("again")
    silent = one.with_topics([None] * len(one.turns)).with_name("silent")
    object.__setattr__(silent, "demands", ())
    read = sample_of(MODEL, [silent, one, again, other], most=sum(TOKENS))
    assert [dialog.name for dialog in read] == [one.name, other.name]
    assert len(sample_of(MODEL, [one, again], most=2 * TOKENS[0])) == 2


def test_a_dialog_that_is_too_long_is_read_from_its_beginning() -> None:
    (begun,) = sample_of(MODEL, DIALOGS[:1], most=TOKENS[0] - 1)
    assert count_tokens(MODEL, begun) < TOKENS[0]
    assert begun.turns == DIALOGS[0].turns[:-1]
    assert {call.turn for call in begun.calls} < {*range(len(begun.turns))}
    assert begun.demands == tuple(
        demand for demand in DIALOGS[0].demands if demand.turn < len(begun.turns)
    )
    (little,) = sample_of(MODEL, DIALOGS[1:], most=TOKENS[1] // 2)
    room = TOKENS[0] - 1 + count_tokens(MODEL, little)
    assert sample_of(MODEL, [little, DIALOGS[0]], most=room) == [little, begun]
    read = read_card(card_of(("sink", 80)), MODEL, [little, DIALOGS[0]], most=room, workers=1)
    assert (read.dialogs, read.begun) == (2, 1)
    with pytest.raises(ValueError, match="no dialog is short enough"):
        sample_of(MODEL, DIALOGS, most=1)


def test_a_sample_is_smaller_where_ways_read_much_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "SAMPLE_TOKENS", 400)
    monkeypatch.setattr(checked, "MOST_WORK", 450)
    whole, less = (
        read_card(card_of((name, 80)), MODEL, DIALOGS, most=sum(TOKENS), workers=1)
        for name in ("sink", "reread(messages(fifo))")
    )
    assert whole.complete
    assert less.complete
    assert (whole.dialogs, whole.tokens) == (2, sum(TOKENS))
    assert 0 < less.tokens < sum(TOKENS)


def card_of(*sizes: tuple[str, int | None], tokens: float = 800) -> Card:
    letters = {"sinks(h2o)", "h2o"}
    ways = tuple(
        Way(name, size, 0.96, size or 0, "", guessed=name in letters) for name, size in sizes
    )
    shape = read_shape("4x2x64x16")
    return Card(ways, ways[0], ways[0], tokens, 0.95, 2, 2, shape, "SmolLM2")


def test_without_a_way_nothing_is_read() -> None:
    card = replace(card_of(("sink", 80)), ways=(), best=None, by_words=None)
    assert ways_to_read(card) == [[], []]


def test_what_matters_is_read_first() -> None:
    card = card_of(
        ("sinks(weighted-recency)", 100),
        ("sinks(learned)", 110),
        ("sinks(h2o)", 120),
        ("h2o", 130),
        ("sinks(surprisal)", 140),
        ("sinks(random)", 150),
        ("shift", 160),
        ("sink", 170),
        ("fifo", None),
    )
    first, rest = ([way.policy for way in group] for group in ways_to_read(card))
    assert first == ["sinks(weighted-recency)", "shift"]
    assert rest == ["sinks(learned)", "sinks(surprisal)", "sinks(h2o)", "sink"]


def test_a_model_reads_each_way_at_its_share_of_the_text() -> None:
    card = card_of(
        ("fifo", 160), ("sink", 80), ("reread(messages(fifo))", 200), ("sinks(h2o)", 800)
    )
    seen: list[ModelRead] = []
    read = read_card(card, MODEL, DIALOGS, seen.append, workers=1)
    assert (read.dialogs, read.tokens, read.complete) == (2, sum(TOKENS), True)
    names = {"fifo", "sink", "reread(messages(fifo))"}
    assert read.scores.keys() == names, "one that keeps all is not read"
    assert [row.complete for row in seen] == [False] * (len(seen) - 1) + [True]
    mean = sum(TOKENS) / 2
    for name, share in (("fifo", 0.2), ("sink", 0.1), ("reread(messages(fifo))", 0.25)):
        settings = Answers((read_policy(name),), (round(share * mean),))
        alone = readings_of(run_answers(settings, MODEL, DIALOGS, workers=1))
        assert alone == {name: read.scores[name]}
    assert read.scores["fifo"].values > 0
    first = replace(read, names=read.names[:1], tokens=TOKENS[0])
    joined = read_card(card, MODEL, DIALOGS, seen.append, first, workers=1)
    assert joined.names == (DIALOGS[0].name, DIALOGS[1].name), "only what it has not read"
    assert (seen[-1], joined.tokens) == (first, sum(TOKENS)), "until all is read, what it was"
    fewer = read_card(card, MODEL, DIALOGS, most=max(TOKENS), workers=1)
    assert (fewer.dialogs, fewer.tokens) == (1, TOKENS[0])
    with pytest.raises(ValueError, match="there is nothing to check"):
        read_card(card_of(("fifo", None)), MODEL, DIALOGS)
