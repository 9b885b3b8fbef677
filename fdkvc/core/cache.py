"""The cache: columns of slots that hold token indices and their scores, and the choice by score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import Bools, Columns, Floats, Ints

EMPTY = -1

ROUNDING = 1.5e-6
"""Relative error of a score by rounding, on any processor: a dozen units in the last place of
single precision."""

_BEYOND = np.float32(1e30)  # scores are smaller: larger values mark protected entries


@dataclass(frozen=True)
class Ties:
    """Which scores count as equal to the cutoff, the lowest score that stays.

    No policy here allows more than 3e-6, or 3e-6 of a cutoff above 1. Where scores differ by less,
    double precision may decide differently: under FD-KVC in 2 % of the synthetic dialogs, 127 of
    6,000.

    Examples
    --------
    >>> Ties(relative=0.25, absolute=1.0).tolerance(np.array([[2]], np.float32)).tolist()
    [[1.5]]
    """

    relative: float = ROUNDING
    """Allowed difference as a share of the cutoff."""
    absolute: float = 0.0
    """Allowed difference in addition: for sums whose parts may be much larger than the sum."""

    def tolerance(self, cutoff: Floats) -> Floats:
        """Return how far from its row's cutoff (B, 1) a score still ties with it."""
        # A share of an infinite cutoff would be infinite, and the two subtracted not a number.
        share = np.float32(self.relative) * np.minimum(np.abs(cutoff), _BEYOND)
        return share + np.float32(self.absolute)


EXACT = Ties(0)
"""For scores without rounding errors, such as positions: only equal ones tie."""

UNIT_SCALE = Ties(absolute=ROUNDING)
"""For sums of cosines or other parts of size 1, whose sum may be much smaller."""


@dataclass(frozen=True, eq=False)
class Cache:
    """Entries of B rows in C slots, older entries first; immutable.

    An empty slot may stand anywhere; its channels are 0.
    """

    token: Ints
    """Shape (B, C). Index of each entry's token; −1 marks an empty slot."""
    channels: Columns = field(default_factory=dict)
    """Arrays of shape (B, C) by name. A policy's numbers for each entry."""
    state: Columns = field(default_factory=dict)
    """Arrays of shape (B,) by name. A policy's numbers for each row."""

    def __getitem__(self, channel: str) -> Floats:
        return self.channels[channel]

    @cached_property
    def present(self) -> Bools:
        """Whether each slot holds an entry (B, C)."""
        return np.asarray(self.token != EMPTY)

    @cached_property
    def full(self) -> bool:
        """Whether no slot of any row is empty."""
        return bool(self.present.all())

    @cached_property
    def count(self) -> Ints:
        """Entries of each row (B,)."""
        if self.full:
            return np.full(len(self.token), self.token.shape[1], np.intp)
        return np.asarray(self.present.sum(axis=1))

    def with_channels(self, **channels: Floats) -> Cache:
        """Replace the named channels."""
        columns = dict(self.channels)
        for name, column in channels.items():
            columns[name] = np.asarray(column)  # where it was computed on a device, too
        return Cache(self.token, columns, self.state)

    def with_state(self, **state: Floats) -> Cache:
        """Replace the named row states."""
        return Cache(self.token, self.channels, {**self.state, **state})

    def rows(self, rows: slice) -> Cache:
        """Return some of the rows."""
        state = {name: numbers[rows] for name, numbers in self.state.items()}
        return replace(self._each_column(lambda column: column[rows]), state=state)

    def without(self, removed: Bools) -> Cache:
        """Empty the slots that are True in `removed` (B, C)."""
        token = np.where(removed, EMPTY, self.token)
        return Cache(token, _zeroed(self.channels, removed), self.state)

    def insert(self, token: Ints, channels: Columns) -> Cache:
        """Append new entries (B, n) behind the old ones, with their initial channels."""
        empty = token == EMPTY
        if empty.any():
            channels = _zeroed(channels, empty)
        columns = joined([self.channels, channels], join_columns)
        return Cache(join_columns([self.token, token]), columns, self.state)

    def keep(self, mask: Bools, slots: int) -> Cache:
        """Keep the marked entries (B, C), at most `slots` a row; spare slots are empty."""
        if np.count_nonzero(mask) < len(mask) * slots:
            # Some rows keep fewer: fill up with emptied slots.
            filled = pad_kept(mask, slots)
            return self.without(~mask).keep(filled, slots)
        # Every row keeps exactly `slots`, so the flattened result has equal rows.
        (slot,) = mask.reshape(-1).nonzero()
        shape = len(self.token), slots
        return self._each_column(lambda column: column.reshape(-1).take(slot).reshape(shape))

    def _each_column(self, pick: Callable[[NDArray[Any]], NDArray[Any]]) -> Cache:
        """Apply a function to the tokens and to every channel (B, C)."""
        channels = {name: pick(column) for name, column in self.channels.items()}
        return Cache(pick(self.token), channels, self.state)

    def where(self, rows: Bools, alternative: Cache) -> Cache:
        """Take the rows that are True (B,) from this cache, and all others from `alternative`."""
        column = rows[:, None]
        token = np.where(column, self.token, alternative.token)
        channels = {}
        for name, numbers in self.channels.items():
            channels[name] = np.where(column, numbers, alternative[name])
        state = {}
        for name, numbers in self.state.items():
            state[name] = np.where(rows, numbers, alternative.state[name])
        return Cache(token, channels, state)


def _zeroed(channels: Columns, removed: Bools) -> dict[str, Floats]:
    """Return the channels with 0 in the marked slots (B, C)."""
    return {name: np.where(removed, 0, column) for name, column in channels.items()}


def empty_cache(
    rows: int, budget: int, channels: tuple[str, ...], state: Mapping[str, float]
) -> Cache:
    """Return a cache of `budget` empty slots a row, with row states at their start values."""
    token = np.full((rows, budget), EMPTY, np.intp)
    columns = {name: np.zeros((rows, budget), np.float32) for name in channels}
    states = {name: np.full(rows, start, np.float32) for name, start in state.items()}
    return Cache(token, columns, states)


def padded(tokens: Sequence[Ints]) -> list[Ints]:
    """Pad arrays of tokens with −1 to one length of their last axis."""
    longest = max(array.shape[-1] for array in tokens)
    result = []
    for array in tokens:
        widths = [(0, 0)] * array.ndim
        widths[-1] = (0, longest - array.shape[-1])
        result.append(np.pad(array, widths, constant_values=EMPTY))
    return result


join_columns = partial(np.concatenate, axis=1)
"""Joins arrays along the axis of entries, or of turns."""


def joined(parts: Sequence[Any], join: Callable[[Any], Any] = np.concatenate) -> Any:
    """Join arrays, or mappings of arrays by name."""
    if isinstance(parts[0], Mapping):
        return {name: joined([part[name] for part in parts], join) for name in parts[0]}
    return join(parts)


def pad_kept(mask: Bools, slots: int) -> Bools:
    """Pad what each row keeps (B, C) with the first of its other slots, to `slots` in total.

    Examples
    --------
    >>> pad_kept(np.array([[False, False, True], [True, True, False]]), 2).tolist()
    [[True, False, True], [True, True, False]]
    """
    room = slots - mask.sum(axis=1, keepdims=True)
    unmarked = ~mask
    padding: Bools = unmarked & (np.cumsum(unmarked, axis=1) <= room)
    return mask | padding


def newest(cache: Cache, count: int | Ints) -> Bools:
    """Mark the newest `count` entries of every row (B, C); `count` may differ by row (B, 1)."""
    if cache.full:
        slots = cache.token.shape[1]
        marked = np.arange(slots) >= slots - count
        return np.broadcast_to(marked, cache.token.shape)
    newest_first = cache.present[:, ::-1]
    from_the_end = np.cumsum(newest_first, axis=1)[:, ::-1]
    return cache.present & (from_the_end <= count)


def ranking(score: Floats, cache: Cache) -> Ints:
    """Rank of each entry by score (B, C), 1 for the highest, ties to the older; 0 if empty.

    Examples
    --------
    >>> ranking(np.array([[2, 9, 5, 9]], np.float32), Cache(np.array([[4, -1, 6, 7]]))).tolist()
    [[3, 0, 2, 1]]
    """
    # Stable: of equal scores the older entry, which has the lower slot, comes first.
    descending = np.where(cache.present, -score, np.inf)
    order = np.argsort(descending, axis=1, kind="stable")
    ranks = np.arange(1, order.shape[1] + 1)
    rank = np.empty(order.shape, np.intp)
    np.put_along_axis(rank, order, ranks[None], axis=1)
    return np.where(cache.present, rank, 0)


def contains(token: Ints, targets: Ints) -> Bools:
    """Mark the slots (B, C) whose token is one of its row's targets (B, P), −1 for none.

    Examples
    --------
    >>> contains(np.array([[7, -1, 9]]), np.array([[9, -1]])).tolist()
    [[False, False, True]]
    """
    equal = token[:, :, None] == targets[:, None, :]
    return np.asarray(equal.any(axis=2) & (token != EMPTY))


def select(
    score: Floats,
    cache: Cache,
    protected: Bools,
    budget: int | Ints,
    ties: Ties = EXACT,
    pages: Pages | None = None,
) -> tuple[Bools, Floats]:
    """Choose what stays: the protected, then the best by score; a tie goes to the older entry.

    The cutoff of a row is the lowest score for which its budget has a place, once the protected
    entries have theirs. Entries clearly above it stay, those clearly below go, and of those that
    tie with it the older stay; so equal scores are split by age, however they were rounded.

    The score (B, C) is finite where a slot holds an entry. The budget may differ by row (B, 1); C
    is at least the budget, and the `protected` entries (B, C) are at most as many. With `pages`,
    entries leave only by whole pages, whose entries have equal scores.

    Returns
    -------
    stays : array (B, C) of bool
        At most `budget` a row; exactly that for one budget without pages that some row exceeds,
        filled up with empty slots.
    cutoff : array (B, 1)
        −inf if all entries fit, inf if all that stay are protected.

    Raises
    ------
    ValueError
        If a score is NaN, as that of a policy that is not registered may be.

    Examples
    --------
    >>> cache = Cache(np.arange(4)[None])
    >>> score = np.array([[2, 1, 2, 2.000001]], np.float32)
    >>> stays, cutoff = select(score, cache, np.zeros((1, 4), bool), 2)
    >>> stays.tolist(), cutoff.tolist()
    ([[True, False, False, True]], [[2.0]])
    >>> select(score, cache, np.zeros((1, 4), bool), 2, ties=Ties())[0].tolist()
    [[True, False, True, False]]
    """
    # Pages of a fixed size count whole, even if they are not full.
    if (cache.count[:, None] <= budget).all() and not (pages and pages.size):
        return cache.present, np.full((len(score), 1), -np.inf, np.float32)
    # 1. Empty slots come last, protected entries first.
    priority = score if cache.full else np.where(cache.present, score, -np.inf)
    # It compares with nothing, so its entry would neither stay nor leave by a rule.
    if np.isnan(priority).any():
        raise ValueError("the score of an entry is not a number")
    if pages is not None:
        return _select_pages(score, cache, protected, budget, ties, pages)
    if protected.any():
        priority = np.where(protected, np.inf, priority)
    # 2. The cutoff is the budget-th largest; all that ties with it is kept for now.
    cutoff = _nth_largest(priority, budget)
    tolerance = ties.tolerance(cutoff)
    stays = priority >= cutoff - tolerance
    # 3. If that is too many, the newer of the tied entries go.
    if not isinstance(budget, int) or np.count_nonzero(stays) > len(stays) * budget:
        clear = priority > cutoff + tolerance
        tied = stays & ~clear
        room = budget - clear.sum(axis=1, keepdims=True)
        stays = clear | (tied & (np.cumsum(tied, axis=1) <= room))
    if isinstance(budget, int):
        return stays, cutoff
    return stays & cache.present, cutoff


def _nth_largest(priority: Floats, count: int | Ints) -> Floats:
    """Return the priority of the `count`-th highest entry of each row (B, 1)."""
    if isinstance(count, int):
        # Copied: a view would keep all priorities in memory for as long as the cutoff is recorded.
        return np.partition(priority, -count, axis=1)[:, -count, None].copy()
    # A full sort, since the place differs by row.
    slots = priority.shape[1]
    descending = -np.sort(-priority, axis=1)
    place = np.clip(count, 1, slots) - 1
    lowest = np.take_along_axis(descending, place, axis=1)
    return np.where(count >= slots, -np.inf, lowest)


@dataclass(frozen=True, eq=False)
class Pages:
    """Which entries share a page, so that they leave together."""

    page: Ints
    """Shape (B, C). The page of each entry, older ones first."""
    size: int
    """Slots of a page, all of which count in the budget even if some are empty. 0: a page counts
    as many slots as it has entries."""

    def first(self, cache: Cache) -> Bools:
        """Mark the first entry of each page (B, C): its page comes after those of older entries."""
        page = np.where(cache.present, self.page, -1)
        newest_page = np.maximum.accumulate(page, axis=1)
        first = cache.present.copy()
        first[:, 1:] &= self.page[:, 1:] > newest_page[:, :-1]
        return first

    def over(
        self,
        cache: Cache,
        combine: np.ufunc,
        column: NDArray[Any],
        start: Any,
    ) -> NDArray[Any]:
        """Reduce a column (B, C) over each page and return the result for each entry."""
        number = self.number(cache)
        rows = np.arange(len(column))[:, None]
        values = np.where(cache.present, column, start)
        reduced = np.full_like(values, start)  # (B, pages), with room for a page per slot
        combine.at(reduced, (rows, number), values)
        return reduced[rows, number]

    def sum(self, cache: Cache, column: NDArray[Any]) -> NDArray[np.float64]:
        """Return the sum of a column (B, C) over the page of each entry, in double precision."""
        row_start = np.arange(len(column))[:, None] * column.shape[1]
        place = self.number(cache) + row_start
        values = np.where(cache.present, column, 0)
        sums = np.bincount(place.ravel(), values.ravel(), minlength=place.size)
        return np.asarray(sums[place])

    def mean(self, cache: Cache, columns: Columns) -> dict[str, Floats]:
        """Return the mean of each column (B, C) over the page of each entry; 0 in empty slots."""
        size = np.maximum(self.sum(cache, cache.present), 1).astype(np.float32)
        means = {}
        for name, column in columns.items():
            # `sum` is faster, but would make scores of single precision double.
            double = column.dtype == np.float64
            total = self.sum(cache, column) if double else self.over(cache, np.add, column, 0)
            means[name] = np.where(cache.present, total / size, 0)
        return means

    def of_whole(self, marked: Bools, cache: Cache) -> Bools:
        """Mark all entries of every page with a marked one (B, C)."""
        if not marked.any():
            return marked
        return (self.sum(cache, marked) > 0) & cache.present

    def number(self, cache: Cache) -> Ints:
        """Return the number of each entry's page (B, C), from 0; stored for the last cache."""
        stored: tuple[Cache, Ints] | None = vars(self).get("_stored")
        if stored is None or stored[0] is not cache:
            number = np.cumsum(self.first(cache), axis=1) - 1
            # Empty slots before the first page would have the number −1.
            stored = cache, np.maximum(number, 0)
            vars(self)["_stored"] = stored
        return stored[1]


def runs(cache: Cache, label: Ints) -> Ints:
    """Return the number of each entry's run of neighbours with the same label (B, C), older first.

    Examples
    --------
    >>> runs(Cache(np.array([[4, -1, 5, 6, 8]])), np.array([[7, 0, 7, 9, 7]])).tolist()
    [[1, 1, 1, 2, 3]]
    """
    if not cache.full:  # an empty slot has the label of the entry before it
        slot = np.where(cache.present, np.arange(label.shape[1]), 0)
        source = np.maximum.accumulate(slot, axis=1)
        label = np.take_along_axis(label, source, axis=1)
    begins = np.ones(label.shape, np.bool_)
    begins[:, 1:] = label[:, 1:] != label[:, :-1]
    return np.cumsum(begins, axis=1)


def _select_pages(
    score: Floats,
    cache: Cache,
    protected: Bools,
    budget: int | Ints,
    ties: Ties,
    pages: Pages,
) -> tuple[Bools, Floats]:
    """Select whole pages; one with a protected entry stays. A budget below a page keeps a part."""
    budgets = np.broadcast_to(np.asarray(budget), (len(score), 1))
    # 1. A page is decided by its first entry, since its entries have equal scores.
    first = pages.first(cache)
    protected_pages = pages.of_whole(protected, cache)
    if pages.size:
        frames = np.maximum(budgets // pages.size, 1)
        leaders = Cache(np.where(first, cache.token, EMPTY))
        chosen, cutoff = select(score, leaders, protected_pages & first, frames, ties)
        stays = pages.of_whole(chosen, cache)
    else:
        # Messages differ in size: a column for each stands for all of its entries.
        number = pages.number(cache)
        leader = first.nonzero()
        place = leader[0], number[leader]

        def by_page(column: NDArray[Any], empty: int) -> NDArray[Any]:
            shape = len(score), int(number.max()) + 1
            pages_of_rows = np.full(shape, empty, column.dtype)
            pages_of_rows[place] = column[leader]
            return pages_of_rows

        size = pages.sum(cache, cache.present)
        chosen, cutoff = _select_by_size(
            by_page(score, 0),
            Cache(by_page(cache.token, EMPTY)),
            by_page(protected_pages, 0),
            budgets,
            ties,
            by_page(size, 0),
        )
        stays = np.take_along_axis(chosen, number, axis=1) & cache.present
    # 2. Even one page may exceed the budget: then entries of it leave singly.
    too_many = stays.sum(axis=1, keepdims=True) > budget
    if too_many.any():
        part, cutoff_within = select(
            score, cache.without(~stays), protected & stays, budget, ties
        )
        stays &= part
        cutoff = np.where(too_many, cutoff_within, cutoff)
    return stays, cutoff


def _select_by_size(
    score: Floats,
    leaders: Cache,
    protected: Bools,
    budget: Ints,
    ties: Ties,
    size: Ints,
) -> tuple[Bools, Floats]:
    """Choose pages as `select` does, as long as their `size` (B, P) fits the budget (B, 1).

    Protected pages are chosen even if they do not fit, and so is the best page if no other is.
    """
    priority = np.where(leaders.present, score, -np.inf)
    priority = np.where(protected, np.inf, priority)
    # 1. As many of the best pages as fit; the score of the last of them is the cutoff.
    order = np.argsort(-priority, axis=1, kind="stable")
    ordered_size = np.take_along_axis(size, order, axis=1)
    fits = np.cumsum(ordered_size, axis=1) <= budget
    fits &= np.take_along_axis(leaders.present, order, axis=1)
    number = fits.sum(axis=1, keepdims=True)
    place = np.maximum(number, 1) - 1
    last_page = np.take_along_axis(order, place, axis=1)
    cutoff = np.take_along_axis(priority, last_page, axis=1)
    cutoff = np.where(number == leaders.count[:, None], -np.inf, cutoff)
    # 2. Of the pages that tie with it, the older ones.
    tolerance = ties.tolerance(cutoff)
    clear = leaders.present & (priority > cutoff + tolerance)
    tied = leaders.present & (priority >= cutoff - tolerance) & ~clear
    room = budget - np.where(clear, size, 0).sum(axis=1, keepdims=True)
    tied_size = np.where(tied, size, 0)
    chosen = clear | protected | (tied & (np.cumsum(tied_size, axis=1) <= room))
    # Never nothing: if no page fits, the oldest of the best.
    oldest = tied & (np.cumsum(tied, axis=1) == 1)
    chosen |= oldest & ~chosen.any(axis=1, keepdims=True)
    return chosen, cutoff


def top_k(score: Floats, cache: Cache, count: Ints, ties: Ties) -> Bools:
    """Mark the `count` (B, 1) highest scores of each row (B, C), with ties as in `select`.

    Examples
    --------
    >>> score = np.array([[1, 3, 3.000001]], np.float32)
    >>> top_k(score, Cache(np.arange(3)[None]), np.array([[1]]), Ties()).tolist()
    [[False, True, False]]
    """
    unprotected = np.zeros_like(cache.present)
    chosen, _ = select(score, cache, unprotected, count, ties)
    return chosen


def snap_ties(score: Floats, protected: Bools, cutoff: Floats, ties: Ties) -> Floats:
    """Set scores (B, C) that tie with a finite cutoff (B, 1) to the cutoff, as `select` sees them.

    Examples
    --------
    >>> score = np.array([[1.999999, 1, 2, 3]], np.float32)
    >>> _, cutoff = select(score, Cache(np.arange(4)[None]), score > 5, 2, Ties())
    >>> snap_ties(score, score > 5, cutoff, Ties()).tolist()
    [[2.0, 1.0, 2.0, 3.0]]
    """
    tolerance = ties.tolerance(cutoff)
    tied = (score >= cutoff - tolerance) & (score <= cutoff + tolerance) & ~protected
    return np.where(tied, cutoff, score)
