"""The card read by a model: which ways, which dialogs, and at which sizes."""

from dataclasses import replace
from threading import Event
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fdkvc.core.statistics import share_interval
from fdkvc.core.transcripts import Demand, Mention, Transcript, Turn
from fdkvc.models.answers import MEASURED, Answers, run_answers
from fdkvc.models.numpy import BUNDLED
from fdkvc.models.numpy.language_model import shared_language_model
from fdkvc.policies import read_policy
from fdkvc.runs.jobs import Progress
from fdkvc.verdict import checked
from fdkvc.verdict.card import Card, Reading, Way
from fdkvc.verdict.checked import (
    ALL,
    MINUTE_TOKENS,
    Sized,
    Sizing,
    check_language,
    check_loss,
    read_card,
    readings_of,
    sample_of,
    ways_to_read,
)
from fdkvc.verdict.model_shape import read_shape
from fdkvc.verdict.search import sizes_of
from fdkvc.verdict.today import Today, TodayLoss, ValueCount
from tests.examples import dialogs_of

DIALOGS = dialogs_of("dialogues")
MODEL = shared_language_model(BUNDLED)
SIZES = {dialog.name: MODEL.tokens.count_by_turn(dialog) for dialog in DIALOGS}
TOTALS = [*map(sum, SIZES.values())]
MEAN = sum(TOTALS) / 2


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let no time go by but what a test adds."""
    now = [0.0]
    monkeypatch.setattr(checked, "perf_counter", lambda: now[0])
    return now


def long_dialogs(*turns: int) -> tuple[list[Transcript], dict[str, list[int]]]:
    """Return dialogs of so many turns of ten tokens, whose last turn needs a value."""
    dialogs = []
    for number, count in enumerate(turns):
        said = tuple(Turn("user", "a table") for _ in range(count))
        needs = Demand("call", count - 1, "book", "what", "table", (Mention(0, 2, 7),))
        dialogs.append(Transcript(f"d{number}", said, demands=(needs,), cluster=f"c{number % 3}"))
    return dialogs, {dialog.name: [10] * len(dialog.turns) for dialog in dialogs}


def test_a_sample_has_dialogs_with_calls_of_different_clusters_first() -> None:
    one, other = DIALOGS
    again = one.with_name("again")
    silent = one.with_topics([None] * len(one.turns)).with_name("silent")
    object.__setattr__(silent, "demands", ())
    dialogs = [silent, one, again, other]
    sizes = {dialog.name: MODEL.tokens.count_by_turn(dialog) for dialog in dialogs}
    read = sample_of(dialogs, sizes, 80, limit=sum(TOTALS))
    assert {dialog.name for dialog in read} == {one.name, other.name}
    assert len(sample_of([one, again], sizes, 80, limit=2 * TOTALS[0])) == 2


def test_a_sample_is_drawn_over_all_lengths_of_what_is_evicted_from() -> None:
    dialogs, sizes = long_dialogs(*range(5, 85))
    sample = sample_of(dialogs, sizes, 400, limit=3_000)
    lengths = [len(dialog.turns) * 10 for dialog in sample]
    assert min(lengths[:-1]) > 400
    assert sum(lengths) <= 3_000
    whole = [len(dialog.turns) for dialog in sample if dialog in dialogs]
    assert min(whole) < 55
    assert max(whole) > 70, "not only the shortest, which fit best"
    assert not sample_of(dialogs, sizes, 900, limit=30_000), "nothing is evicted"


def test_a_dialog_that_is_too_long_is_read_from_its_beginning() -> None:
    (begun,) = sample_of(DIALOGS[:1], SIZES, 80, limit=TOTALS[0] - 1)
    assert begun.turns == DIALOGS[0].turns[:-1]
    assert {call.turn for call in begun.calls} < {*range(len(begun.turns))}
    assert begun.demands == tuple(
        demand for demand in DIALOGS[0].demands if demand.turn < len(begun.turns)
    )
    read = read_card(
        card_of(("sink", 80)), MODEL, DIALOGS, (sum(TOTALS) - 1) / MINUTE_TOKENS, workers=1
    )
    assert (read.dialogs, read.partly_read, read.unread) == (2, 1, 0)


def test_what_cannot_be_read_in_time_is_said() -> None:
    with pytest.raises(ValueError, match="up to 1 min to read on to a value needed after 500"):
        read_card(card_of(("sink", 500)), MODEL, DIALOGS, 400 / MINUTE_TOKENS)
    with pytest.raises(ValueError, match="no conversation needs a value after"):
        read_card(card_of(("sink", 600)), MODEL, DIALOGS[1:])


def test_no_more_is_read_than_the_context_of_a_model_holds() -> None:
    shape = replace(MODEL.decoder.shape, positions=TOTALS[0] - 1)
    small = replace(MODEL, decoder=replace(MODEL.decoder, shape=shape))
    read = read_card(card_of(("sink", 80)), small, DIALOGS[:1], workers=1)
    assert (read.dialogs, read.partly_read) == (1, 1)
    assert read.tokens < TOTALS[0]


def test_a_sample_is_smaller_where_ways_read_much_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "MINUTE_TOKENS", sum(TOTALS))
    monkeypatch.setattr(checked, "MINUTE_WORK", 1_500)
    whole, less = (
        read_card(card_of((name, 80)), MODEL, DIALOGS, workers=1)
        for name in ("sink", "reread(messages(fifo))")
    )
    assert (whole.dialogs, whole.tokens) == (2, sum(TOTALS))
    assert 0 < less.tokens < sum(TOTALS)


def card_of(*sizes: tuple[str, int | None], tokens: float = MEAN) -> Card:
    letters = {"sinks(h2o)", "h2o"}
    ways = tuple(
        Way(name, size, 0.96, size or 0, size or 0, guessed=name in letters) for name, size in sizes
    )
    shape = read_shape("4x2x64x16")
    return Card(ways, ways[0], ways[0], tokens, 0.95, 2, 2, shape, "SmolLM2")


def test_without_a_way_nothing_is_read() -> None:
    card = replace(card_of(("sink", 80)), ways=(), best=None, by_words=None)
    assert ways_to_read(card) == []


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
    counted = ValueCount(1, 2, 1, 1)
    loss = TodayLoss(Today.read("llama.cpp-shift"), counted, 1, 1, 9, pd.DataFrame())
    names = [way.policy for way in ways_to_read(replace(card, today=loss))]
    assert names[:2] == ["sinks(weighted-recency)", "shift"], "the best and today's"
    assert names[2:] == ["sinks(learned)", "sinks(h2o)"]


def test_a_model_does_not_check_a_language_that_it_hardly_reads() -> None:
    check_language(MODEL, [Transcript("one", (Turn("user", "a table"),))])
    with pytest.raises(ValueError, match="bundled hardly reads this language: by words only"):
        check_language(MODEL, [Transcript("one", (Turn("user", "两个人的桌子"),))])


@pytest.mark.long
def test_a_model_finds_the_size_by_values_that_stay_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "MINUTE_WORK", 10**6)
    card = card_of(("fifo", 100), ("sink", 80), ("sinks(h2o)", 99))
    one_way = card_of(("fifo", 100))
    assert read_card(one_way, MODEL, DIALOGS, workers=1).sizes == {}, "it gets four values right"
    monkeypatch.setattr(checked, "SIZING_VALUES", 1)
    monkeypatch.setattr(checked, "MEASURED_VALUES", 1)
    read = read_card(card, MODEL, DIALOGS, workers=1)
    ladder = sorted({*sizes_of(card.tokens), 100, 80, 99})
    found = {name: size for name, size in read.sizes.items() if size is not None}
    assert found
    below = {name: ladder[ladder.index(size) - 1] for name, size in found.items()}
    (full, losses), (_, losses_below) = map(read_at, (found, below))
    for name in found:
        assert losses[name] <= max(1, 0.05 * full)
        assert losses_below[name] > max(1, 0.05 * full), (
            "of two neighbours the larger is the smallest"
        )
        reading = read.scores[name]
        assert reading.values - reading.right == losses[name]


@pytest.mark.parametrize(("by_words", "values", "size"), [(80, 19, 80), (80, 20, 40), (20, 19, 40)])
def test_few_values_lower_no_size(by_words: int, values: int, size: int) -> None:
    """Nineteen of twenty are 95 %: fewer values cannot show that share, but can show less."""
    sizing = Sizing(card_of(("sink", by_words)), MODEL, DIALOGS, {}, 1.0, 60.0, {"sink": by_words})
    sizing.sizes = (20, 40, 80)
    sizing.rounds = 2
    shares = [pd.Series({ALL: share}) for share in (0.5, 1.0, 1.0)]
    sizing.shares = {"sink": dict(enumerate(shares))}
    reading = Reading(values, values, 0.1, 5)
    sizing.readings = {"sink": {80: reading, 40: reading}}
    assert sizing.found_sizes == {"sink": size}
    sizing.readings = {"sink": {40: reading}}
    read = size == 40
    assert (sizing.found_sizes, {*sizing.final_readings}) == (
        ({"sink": 40}, {"sink"}) if read else ({}, set())
    ), "nothing is evicted at 80: a reading at 40 is none of that"


def test_the_interval_of_a_reading_is_over_conversations() -> None:
    """Values of one conversation stay or go together, so ten of them are not ten times the news."""

    def interval_of(*shares: float, services: str = "own") -> tuple[float, float]:
        rows = []
        for number, share in enumerate(shares):
            name = f"d{number}"
            cluster = name if services == "own" else services
            rows.append((name, cluster, "sink", 40, "kl", 0.1, 9))
            rows.append((name, cluster, "sink", 40, "values_right_of_full", share, 10))
        table = pd.DataFrame(rows, columns=list(MEASURED))
        tokens = {f"d{number}": 100 for number in range(len(shares))}
        reading = readings_of(table, tokens)["sink"]
        assert reading.values == 10 * len(shares)
        return reading.low, reading.high

    uneven = interval_of(0, 1, 1, 1, 1)
    assert uneven[0] < share_interval(40, 50)[0] - 0.3
    assert uneven[1] == 1
    assert interval_of(0, 1, 1, 1, 1, services="hotel") == uneven, "each is a cluster of its own"
    assert interval_of(1, 1, 1, 1, 1) == share_interval(50, 50)
    assert np.isnan(interval_of(0, 1, 1)).all()


def read_at(sizes: dict[str, int]) -> tuple[float, dict[str, int]]:
    """Return the values right with the full cache, and those lost by each policy at its size."""
    policies = tuple(map(read_policy, sizes))
    settings = Sized(policies, tuple({*sizes.values()}), sizes=tuple(sizes.values()))
    table = run_answers(settings, MODEL, DIALOGS, workers=1)
    whole = table[(table.policy == "full") & (table.metric == "values_right")]
    of_full = table[table.metric == "values_right_of_full"]
    losses = {}
    for name in sizes:
        right = of_full[of_full.policy == name]
        losses[name] = round((right["count"] * (1 - right.value)).sum())
    return (whole.value * whole["count"]).sum(), losses


@pytest.mark.long
@pytest.mark.parametrize(
    ("seconds", "values", "dialogs", "rounds"),
    [
        (20, 1, 1, 3),
        (70, 1, 1, 1),
        (5, 1, 2, 8),
        (20, 1_000, 2, 1),
    ],
)
def test_reading_ends_with_its_minutes(
    seconds: int,
    values: int,
    dialogs: int,
    rounds: int,
    clock: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read_slowly(*arguments: Any, **execution: Any) -> pd.DataFrame:
        clock[0] += seconds
        sizes.append(arguments[0].sizes)
        return run_answers(*arguments, **execution)

    sizes = list[Any]()
    monkeypatch.setattr(checked, "run_answers", read_slowly)
    monkeypatch.setattr(checked, "CHUNK", 1)
    monkeypatch.setattr(checked, "SIZING_VALUES", values)
    monkeypatch.setattr(checked, "MEASURED_VALUES", 1)
    seen = list[Progress]()
    card = card_of(("sink", 80), ("fifo", 100))
    read = read_card(card, MODEL, DIALOGS, 1, workers=1, on_progress=seen.append)
    assert read.dialogs == dialogs
    assert len(sizes) - dialogs + 1 <= rounds
    assert clock[0] <= max(60, seconds * dialogs), "no round is begun that would end too late"
    assert bool(read.sizes) == (rounds > 1), "one round finds no size"
    assert all(step.total == 100 for step in seen)


def test_what_is_stopped_at_once_has_read_nothing() -> None:
    cancelled = Event()
    cancelled.set()
    with pytest.raises(ValueError, match="stopped before it had read"):
        read_card(card_of(("sink", 80)), MODEL, DIALOGS, workers=1, cancelled=cancelled)


def test_a_language_is_strange_by_the_loss_of_the_full_cache() -> None:
    words, few_words = (Transcript("one", (Turn("user", "abcd" * n),)) for n in (50, 5))
    rows = [("one", "", "full", 8, "nats", nats, 100) for nats in (4.0, 4.1)]
    readable, strange = (pd.DataFrame([row], columns=[*MEASURED]) for row in rows)
    check_loss("SmolLM2", [words], readable)
    with pytest.raises(ValueError, match="SmolLM2 hardly reads this language"):
        check_loss("SmolLM2", [words], strange)
    check_loss("SmolLM2", [few_words], strange)
    check_loss("qwen-0.5b", [words], strange)


@pytest.mark.long
def test_a_model_reads_each_way_at_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "BY_TEXT", 3)
    few, many = min(TOTALS), max(TOTALS)
    ways = ("fifo", 160), ("sink", 80), ("reread(messages(fifo))", 200), ("sinks(h2o)", many)
    card = card_of(*ways)
    read = read_card(card, MODEL, DIALOGS, workers=1)
    assert (read.dialogs, read.tokens) == (2, sum(TOTALS))
    names = {"fifo", "sink", "reread(messages(fifo))"}
    assert read.scores.keys() == names, "one that keeps all is not read"
    for name, size in ways[:3]:
        table = run_answers(Answers((read_policy(name),), (size,)), MODEL, DIALOGS, workers=1)
        of_way = table[table.policy == name]
        assert read.scores[name].kl == of_way[of_way.metric == "kl"].value.mean()
        right = of_way[of_way.metric == "values_right_of_full"]
        assert 0 < read.scores[name].values <= right["count"].sum()
        wrong = right["count"].sum() - (right.value * right["count"]).sum()
        assert read.scores[name].values - read.scores[name].right == round(wrong), (
            "what is needed before anything is evicted is not counted, and always right"
        )
    halved = read_card(replace(card, tokens=2 * card.tokens), MODEL, DIALOGS, workers=1)
    assert halved.scores != read.scores, "a card may count tokens of another model"
    with pytest.raises(ValueError, match="no way saves anything, so there is nothing to check"):
        read_card(card_of(("fifo", None)), MODEL, DIALOGS)
    alone = read_card(card_of(("sink", few), ("fifo", few - 1)), MODEL, DIALOGS, workers=1)
    assert (alone.dialogs, alone.scores["sink"].dialogs) == (1, 1)
