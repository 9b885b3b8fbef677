"""The metrics on dialogs small enough to work by hand."""

import dataclasses
import math
import re

import numpy as np
import pytest

from fdkvc.core.arrays import one_dialog
from fdkvc.core.dialogs import DialogBatch, stack
from fdkvc.engine.metrics import (
    METRICS,
    Adaptation,
    alignment,
    cache_bytes,
    diversity,
    late,
    metric_named,
    metrics_of,
    retention,
)
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Trace
from fdkvc.policies import POLICIES, policy_named
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS, World
from tests.worlds import EAST, NORTH, adaptation_in, plain_dialog, pointing, random_dialog

FIFO = policy_named("fifo")
NAN = math.nan


def fifo(dialogs: DialogBatch, budget: int) -> Trace:
    return simulate(FIFO, dialogs, budget, entries=False)


def alike(*lengths: int, topics: str) -> DialogBatch:
    """Make a dialog of tokens that are all alike; `-` is a turn without a topic.

    Rows of a batch share their topics' names, so they are always A, B and C.
    """
    given = [None if letter == "-" else letter for letter in topics]
    dialog = plain_dialog([[1.0] * length for length in lengths], topics=given)
    letter = np.array(["ABC".index(name) for name in dialog.topic_names] + [-1])
    current = letter[dialog.current]
    bits = np.where(current >= 0, 1 << np.maximum(current, 0), 0).astype(np.uint32)
    return dataclasses.replace(
        dialog,
        current=current,
        topic_bits=np.repeat(bits, lengths, axis=1),
        topic_names=("A", "B", "C"),
    )


def test_retention_and_diversity_by_hand() -> None:
    dialog = alike(2, 2, 3, 0, topics="ABAB")
    trace = fifo(dialog, budget=3)
    assert trace.kept_tokens[0].tolist() == [[-1, 0, 1], [1, 2, 3], [4, 5, 6], [4, 5, 6]]

    np.testing.assert_allclose(retention(trace, dialog), [[1, 2 / 3, 1, 0]])
    np.testing.assert_allclose(diversity(trace, dialog), [[1 / 2, 1, 1 / 2, 1 / 2]])


def test_a_token_may_count_for_several_topics() -> None:
    dialog = alike(2, 2, topics="AB")
    trace = fifo(dialog, budget=3)
    bits = np.array([[0b01, 0b11, 0b11, 0b00]], np.uint32)
    labelled = dataclasses.replace(dialog, topic_bits=bits)

    np.testing.assert_allclose(retention(trace, labelled), [[1, 2 / 3]])
    np.testing.assert_allclose(diversity(trace, labelled), [[1, 1]])


def test_turns_that_a_row_does_not_have_and_turns_without_topic_have_no_number() -> None:
    dialogs = stack([alike(2, 1, topics="AB"), alike(1, 2, 1, topics="A-C")])
    trace = fifo(dialogs, budget=2)

    np.testing.assert_allclose(retention(trace, dialogs), [[1, 0.5, NAN], [1, NAN, 0.5]])
    np.testing.assert_allclose(diversity(trace, dialogs), [[0.5, 1, NAN], [0.5, 0, 0.5]])
    # All values are 1, and so is the mean of those of a topic; other projections are not known.
    np.testing.assert_allclose(alignment(trace, dialogs), [[1, 1, NAN], [1, NAN, 1]])
    assert np.isnan(alignment(trace, dialogs, "key")).all()


def test_a_dialog_without_topics_has_no_retention_and_no_diversity() -> None:
    dialog = alike(2, 1, topics="--")
    trace = fifo(dialog, budget=2)

    for metric in metrics_of(optional=False).values():
        assert np.isnan(metric.measure(trace, dialog)).all()
        assert np.isnan(metric.late(trace, dialog)).all()


def test_a_part_of_a_run_is_measured_over_its_own_turns() -> None:
    dialogs = generate(SCENARIOS["mixed"], dialogs=2, seed=1)
    trace = simulate(FIFO, dialogs, budget=56)
    part = simulate(FIFO, dialogs, 56, start=(4, trace.result(3).end_state))

    for metric in metrics_of(optional=False).values():
        whole = metric.measure(trace, dialogs)
        np.testing.assert_array_equal(metric.measure(part, dialogs), whole[:, 4:])


def test_alignment_compares_the_output_with_the_projected_topic() -> None:
    plain = alike(1, 1, topics="AB")
    topics = np.array([[[1, 0], [0, 1], [0, 0]]], np.float32)
    w_q, w_k, w_v = [[1, 0], [0, 1]], [[0, -1], [1, 0]], [[3, 4], [4, -3]]
    dialog = dataclasses.replace(
        plain,
        embeddings=topics[:, :2],
        queries=np.zeros((1, 2, 2), np.float32),
        keys=np.zeros((1, 2, 2), np.float32),
        values=np.array([[[1, 0], [0, 2]]], np.float32),
        topics=topics,
        projections=np.array([[w_q], [w_k], [w_v]], np.float32),
    )
    trace = fifo(dialog, budget=1)
    np.testing.assert_allclose(trace.output, [[[1, 0], [0, 2]]])

    # A projects to (3, 4), (1, 0) or (0, −1); B to (4, −3), (0, 1) or (1, 0).
    np.testing.assert_allclose(alignment(trace, dialog), [[3 / 5, -3 / 5]], rtol=1e-6)
    np.testing.assert_allclose(alignment(trace, dialog, "query"), [[1, 1]], rtol=1e-6)
    np.testing.assert_allclose(alignment(trace, dialog, "key"), [[0, 0]], atol=1e-6)
    with pytest.raises(ValueError, match="'v' is unknown: choose from query, key"):
        alignment(trace, dialog, "v")


def test_a_topic_whose_direction_is_not_known_is_the_mean_of_its_tokens() -> None:
    dialog = pointing([EAST, NORTH], [[3, 4]], [[5, 0]], topics="ABA")
    trace = simulate(policy_named("fifo"), dialog, budget=1)

    # The topic A is (6, 1) / 3, B is (3, 4); the output is the newest token.
    along_a = np.hypot(6, 1)
    np.testing.assert_allclose(alignment(trace, dialog), [[1 / along_a, 1, 6 / along_a]], rtol=1e-6)


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ([0.1, 0.2, 0.3, 0.6], (0.2 + 0.3 + 0.6) / 3),
        ([0.2, 0.3, 0.6], (0.2 + 0.3 + 0.6) / 3),
        ([0.2, 0.6], 0.4),
        ([0.7], 0.7),
        ([0.9, 0.2, NAN, 0.6], 0.4),
        ([0.9, NAN, NAN, NAN], NAN),
    ],
)
def test_late_is_the_mean_over_the_last_three_turns_that_there_are(
    series: list[float], expected: float
) -> None:
    dialogs = random_dialog(0, [1] * len(series))

    np.testing.assert_allclose(late(np.array([series], np.float32), dialogs), [expected])


def test_late_turns_are_each_rows_own() -> None:
    dialogs = stack([random_dialog(row, [1] * turns) for row, turns in enumerate((2, 5, 3))])
    series = np.array([[1, 2, NAN, NAN, NAN], [9, 9, 3, 4, 5], [6, 7, 8, NAN, NAN]], np.float32)

    np.testing.assert_allclose(late(series, dialogs), [1.5, 4, 7])


def test_a_metric_knows_its_late_value() -> None:
    dialogs = generate(SCENARIOS["mixed"], dialogs=3, seed=0)
    trace = fifo(dialogs, budget=56)

    assert set(metrics_of(optional=False)) >= {"alignment", "retention", "diversity"}
    for key, metric in metrics_of(optional=False).items():
        series = metric.measure(trace, dialogs)
        assert metric.key == key
        assert series.shape == (3, 12)
        assert series.dtype == np.float32
        assert ((series >= metric.bounds[0]) & (series <= metric.bounds[1] + 1e-6)).all()
        np.testing.assert_array_equal(metric.late(trace, dialogs), late(series, dialogs))


def test_a_label_is_words_and_not_an_identifier() -> None:
    for metric in METRICS.values():
        assert not re.search(r"[a-z][A-Z]|_", metric.label), metric.label


def adapted(*lengths: int, topics: str, budget: int = 10) -> Adaptation:
    dialog = alike(*lengths, topics=topics)
    return adaptation_in(fifo(dialog, budget), dialog)


@pytest.mark.parametrize(
    ("lengths", "topics", "turns", "never"),
    [
        # Two tokens a turn into a cache of ten: retention 20, 40, 60, 80 % of B.
        ((10, 2, 2, 2, 2, 2), "ABBBBB", 4, False),
        ((10, 2, 2, 2, 2), "ABBBB", 4, False),
        ((10, 10), "AB", 1, False),
        ((10, 10, 9, 1), "AABB", 1, False),
        # Never: as many turns as there were.
        ((10, 2, 2, 2), "ABBB", 3, True),
        ((10, 1), "AB", 1, True),
        # The first change counts, and the run of the new topic ends where it changes again.
        ((10, 8, 10), "ABC", 1, False),
        ((10, 2, 2, 10), "ABBA", 2, True),
        ((10, 2, 10, 10), "ABAB", 1, True),
        ((10, 2, 2, 2, 2, 9), "ABBBBC", 4, False),
        # Turns without a topic are not a topic.
        ((10, 10, 2, 2, 9), "-AABB", 2, False),
        ((10, 0, 2, 9), "A-BB", 2, False),
    ],
)
def test_adaptation_counts_turns_of_the_new_topic(
    lengths: tuple[int, ...], topics: str, turns: int, never: bool
) -> None:
    result = adapted(*lengths, topics=topics)

    assert result.turns.tolist() == [turns]
    assert result.never.tolist() == [never]


@pytest.mark.parametrize("topics", ["AAA", "-AA", "---", "A--"])
def test_without_a_change_of_topic_there_is_nothing_to_adapt_to(topics: str) -> None:
    result = adapted(4, 4, 4, topics=topics)

    assert np.isnan(result.turns).all()
    assert not result.never.any()


def test_adaptation_of_ragged_rows_is_that_of_each_alone() -> None:
    rows = [
        alike(10, 2, 2, topics="ABB"),
        alike(10, 2, 2, 2, 2, 2, topics="ABBBBB"),
        alike(3, 3, topics="AA"),
        alike(10, 2, 2, 10, topics="ACCA"),
    ]
    batch = stack(rows)

    together = adaptation_in(fifo(batch, 10), batch)

    alone = [adaptation_in(fifo(row, 10), row) for row in rows]
    np.testing.assert_array_equal(together.turns, [2, 4, NAN, 2])
    np.testing.assert_array_equal(together.turns, [one.turns[0] for one in alone])
    assert together.never.tolist() == [True, False, False, True]


@pytest.mark.parametrize("first", range(6))
def test_adaptation_is_known_where_the_record_begins_by_the_change_of_topic(first: int) -> None:
    batch = stack(
        [
            alike(10, 2, 2, 2, 2, 2, topics="ABBBBB"),
            alike(10, 2, 2, 2, 2, 2, topics="AAABBB"),
            alike(10, 2, 2, 2, 2, 2, topics="AAAAAA"),
        ]
    )
    trace = fifo(batch, 10)
    whole = adaptation_in(trace, batch)
    assert whole.turns[:2].tolist() == [4, 3]
    assert whole.never.tolist() == [False, True, False]

    late = adaptation_in(trace.since(first), batch)

    is_known = np.array([first <= 1, first <= 3, True])
    np.testing.assert_array_equal(late.turns, np.where(is_known, whole.turns, NAN))
    np.testing.assert_array_equal(late.never, whole.never & is_known)


@pytest.mark.parametrize("key", ["fifo", "fd-kvc"])
def test_a_cache_that_is_not_full_takes_what_it_holds(key: str) -> None:
    """Else it would be larger than the full cache, which has no more tokens to hold."""
    dialogs = generate(SCENARIOS["shift"])
    trace = simulate(policy_named(key), dialogs, 56)

    sizes = [cache_bytes(trace, dialogs, turn) for turn in range(3)]
    assert [(now.keys, now.full_cache) for now in sizes] == [
        (64 * held, 128 * said) for held, said in ((32, 32), (56, 64), (56, 96))
    ]
    assert [now.keys + now.values <= now.full_cache for now in sizes] == [True] * 3


def test_the_largest_cache_is_no_larger_than_the_dialog() -> None:
    dialogs = generate(SCENARIOS["shift"])
    size = cache_bytes(simulate(policy_named("fd-kvc"), dialogs, 1000), dialogs)
    assert size.keys + size.values == size.full_cache
    assert size.scores == 8 * 320


@pytest.mark.parametrize("key", POLICIES)
def test_scores_take_four_bytes_a_channel(key: str) -> None:
    dialogs = generate(SCENARIOS["shift"], world=World(head_dimension=8))
    policy = policy_named(key)
    result = cache_bytes(simulate(policy, dialogs, 10), dialogs, turn=2)

    entries = 10 if policy.bounded else 3 * 32
    if key == "shift":  # which holds less after some turns
        entries = 6
    assert result.scores == entries * 4 * len(policy.channels)
    assert result.keys == entries * 8 * 4
    assert result.full_cache == 2 * 3 * 32 * 8 * 4


def test_attention_loss_is_what_the_kept_entries_miss() -> None:
    keys = np.log([1.0, 3.0, 4.0])
    dialog = plain_dialog([[1, 1], [], [1]], keys=keys.tolist())
    series = metric_named("attention_loss").measure(
        simulate(policy_named("fifo"), dialog, 1), dialog
    )

    np.testing.assert_allclose(series[0], [1 / 4, np.nan, 4 / 8], rtol=1e-5)


def test_output_error_is_the_distance_from_the_full_caches_output() -> None:
    dialog = one_dialog(
        embeddings=[[1.0]] * 2,
        queries=[[1.0, 0.0]] * 2,
        keys=[[0.0, 0.0]] * 2,
        values=[[0.0, 4.0], [6.0, 4.0]],
        turn_lengths=[1, 1],
    )
    series = metric_named("output_error").measure(simulate(policy_named("fifo"), dialog, 1), dialog)

    np.testing.assert_allclose(series[0], [0, 3 / 5], rtol=1e-5)  # (6, 4) instead of (3, 4)


def test_the_full_cache_loses_nothing() -> None:
    dialogs = generate(SCENARIOS["mixed"], 2, 3)
    trace = simulate(policy_named("full"), dialogs, 56)

    np.testing.assert_allclose(metric_named("attention_loss").late(trace, dialogs), 0, atol=1e-6)
    np.testing.assert_allclose(metric_named("output_error").late(trace, dialogs), 0, atol=1e-5)
    np.testing.assert_array_equal(metric_named("return_recall").late(trace, dialogs), 1)


def test_return_recall_counts_the_topics_earlier_tokens() -> None:
    dialog = plain_dialog([[1, 1], [1], [1, 1], [1], [1]], topics=["A", "B", "A", "A", "B"])
    trace = simulate(policy_named("sink", sinks=1), dialog, budget=4)
    series = metric_named("return_recall").measure(trace, dialog)

    # Turn 2 holds tokens 0, 2, 3, 4: of A's earlier two one is left. Turn 4 holds 0, 4, 5, 6.
    np.testing.assert_array_equal(series[0], [np.nan, np.nan, 0.5, np.nan, 0])
    assert metric_named("return_recall").late(trace, dialog) == pytest.approx([0.25])
