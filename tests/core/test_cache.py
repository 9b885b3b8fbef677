"""The cache's columns: insertion, removal, selection."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.core.cache import (
    ROUNDING,
    UNIT_SCALE,
    Cache,
    Pages,
    Ties,
    empty_cache,
    newest,
    select,
    snap_ties,
)


def cache_of(*rows: list[int]) -> Cache:
    """Make a cache whose channel is the token times ten, 0 in empty slots."""
    token = np.array(rows, np.intp)
    value = np.where(token >= 0, token * 10, 0).astype(np.float32)
    return Cache(token, {"value": value}, {"rate": np.arange(len(rows), dtype=np.float32)})


def assert_holds(cache: Cache, *rows: list[int]) -> None:
    """Assert the tokens, and that every channel's number moved with its token."""
    expected = cache_of(*rows)
    np.testing.assert_array_equal(cache.token, expected.token)
    np.testing.assert_array_equal(cache["value"], expected["value"])
    np.testing.assert_array_equal(cache.present, expected.token >= 0)


def test_a_cache_starts_empty() -> None:
    cache = empty_cache(rows=2, budget=3, channels=("a", "b"), state={"rate": 0.3})

    assert cache.token.tolist() == [[-1] * 3] * 2
    assert not cache.present.any()
    assert set(cache.channels) == {"a", "b"}
    assert all(column.shape == (2, 3) and not column.any() for column in cache.channels.values())
    np.testing.assert_array_equal(cache.state["rate"], np.full(2, 0.3, np.float32), strict=True)


def test_new_entries_come_behind_the_old_and_empty_slots_stay_zero() -> None:
    cache = cache_of([0, -1], [0, 1])
    grown = cache.insert(
        np.array([[1, 2], [2, -1]]), {"value": np.array([[10, 20], [20, 99]], np.float32)}
    )

    assert_holds(grown, [0, -1, 1, 2], [0, 1, 2, -1])
    assert_holds(cache, [0, -1], [0, 1])
    assert grown.state is cache.state


@pytest.mark.parametrize(("old", "new", "full"), [([0, 1], 2, True), ([0, 1], -1, False)])
def test_a_full_cache_knows_whether_what_comes_fills_it(
    old: list[int], new: int, full: bool
) -> None:
    cache = cache_of(old)
    assert cache.full

    grown = cache.insert(np.array([[new]]), {"value": np.zeros((1, 1), np.float32)})

    assert grown.full == full
    assert grown.count.tolist() == [2 + full]


def test_removed_entries_leave_empty_slots() -> None:
    cache = cache_of([0, 1, 2], [3, -1, 4])

    removed = cache.without(np.array([[True, False, False], [False, True, True]]))

    assert_holds(removed, [-1, 1, 2], [3, -1, -1])
    assert_holds(cache, [0, 1, 2], [3, -1, 4])


def test_kept_slots_stay_in_their_order() -> None:
    cache = cache_of([0, 1, 2], [3, -1, 4])

    assert_holds(
        cache.keep(np.array([[True, False, True], [False, True, True]]), 2), [0, 2], [-1, 4]
    )


def test_rows_are_taken_from_one_cache_or_the_other() -> None:
    one, other = (
        cache_of([0, 1], [2, 3]),
        cache_of([4, 5], [6, 7]).with_state(rate=np.full(2, 9, np.float32)),
    )

    mixed = one.where(np.array([True, False]), other)

    assert_holds(mixed, [0, 1], [6, 7])
    assert mixed.state["rate"].tolist() == [0, 9]


@pytest.mark.parametrize(
    ("count", "expected"), [(0, []), (1, [3]), (2, [2, 3]), (3, [1, 2, 3]), (9, [0, 1, 2, 3])]
)
def test_the_newest_entries(count: int, expected: list[int]) -> None:
    cache = cache_of([0, -1, 1, 2, 3, -1], [-1, -1, -1, -1, -1, -1])

    marked = newest(cache, count)

    assert cache.token[0, marked[0]].tolist() == expected
    assert not marked[1].any()


@st.composite
def decisions(draw: st.DrawFn) -> tuple[np.ndarray, Cache, np.ndarray, int]:
    """Draw scores with many ties, some empty slots, and some protected entries."""
    rows, slots = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    budget = draw(st.integers(1, slots))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    present = random.random((rows, slots)) < draw(st.sampled_from([0.3, 0.8, 1.0]))
    score = random.integers(-3, 3, size=(rows, slots)).astype(np.float32)
    score[~present] = random.choice([0, 99, -99])  # what stands there does not matter
    protected = present & (random.random((rows, slots)) < 0.3)
    protected &= np.cumsum(protected, axis=1) <= budget
    token = np.where(present, np.arange(slots), -1)
    return score, Cache(token), protected, budget


@given(decisions())
def test_the_protected_stay_then_the_best_then_the_older(
    decision: tuple[np.ndarray, Cache, np.ndarray, int],
) -> None:
    score, cache, protected, budget = decision

    kept, _ = select(score, cache, protected, budget)

    fits = (cache.count <= budget).all()
    assert (kept == cache.present).all() if fits else (kept.sum(axis=1) == budget).all()
    for row, present in enumerate(cache.present):
        slots = np.flatnonzero(present)
        order = slots[np.lexsort((slots, -score[row, slots], ~protected[row, slots]))]
        assert set(np.flatnonzero(kept[row] & present)) == set(order[:budget])


@given(decisions(), st.sampled_from([Ties(), UNIT_SCALE]), st.integers(0, 2**32))
def test_however_equal_scores_are_rounded_the_older_stays(
    decision: tuple[np.ndarray, Cache, np.ndarray, int], ties: Ties, seed: int
) -> None:
    score, cache, protected, budget = decision
    noise = np.random.default_rng(seed).uniform(-0.4, 0.4, score.shape)
    rounded = score + ((ties.relative * abs(score) + ties.absolute) * noise).astype(np.float32)

    kept, cutoff = select(rounded, cache, protected, budget, ties=ties)

    np.testing.assert_array_equal(kept, select(score, cache, protected, budget)[0])
    level = snap_ties(rounded, protected, cutoff, ties)
    np.testing.assert_array_equal(kept, select(level, cache, protected, budget)[0])
    np.testing.assert_allclose(level, rounded, ties.relative, ties.absolute)
    # The cutoff is the lowest of these that stayed, where something had to go.
    stayed = np.where(kept & ~protected, level, np.inf).min(axis=1, keepdims=True)
    parted = cache.count > budget
    np.testing.assert_array_equal(cutoff[parted], stayed[parted])


def test_what_is_no_tie_is_decided_by_its_score() -> None:
    score = np.array([[1, 1 + 3 * ROUNDING]], np.float32)
    free = np.zeros((1, 2), bool)

    def second_stays(score: np.ndarray, ties: Ties) -> bool:
        kept, _ = select(score, cache_of([0, 1]), free, 1, ties)
        return bool(kept[0, 1])

    assert second_stays(score, Ties())
    assert second_stays(score * 0.5, Ties())
    assert not second_stays(score * 0.1, UNIT_SCALE)


@pytest.mark.parametrize("page_size", [0, 2])
def test_a_score_that_is_no_number_is_refused(page_size: int) -> None:
    cache = Cache(np.arange(4)[None])
    score = np.array([[1, np.nan, 3, 4]], np.float32)
    pages = Pages(cache.token // 2, page_size) if page_size else None
    with pytest.raises(ValueError, match="the score of an entry is not a number"):
        select(score, cache, np.zeros((1, 4), bool), 2, pages=pages)
