"""What would have kept an entry: the dialog run again with one setting changed."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from hashlib import sha256

from fdkvc.attention import Ints
from fdkvc.dialogs import DialogBatch
from fdkvc.explain import explain
from fdkvc.parameters import Parameter, defaults_of, parameters_of, written
from fdkvc.policies.base import Policy
from fdkvc.simulate import simulate
from fdkvc.trace import Trace
from fdkvc.words import percent

RESOLUTION = 1000
"""Into how many steps a counterfactual divides the range of a hyperparameter."""

INSIDE = 1e-6
"""How far inside an open end of a range a counterfactual goes, as a share of the range."""

COARSEST = 32
"""Into how few parts the values that are tried may divide a range."""

BUDGET = "budget"

Number = int | float


@dataclass(frozen=True)
class Change:
    """The smallest change of one hyperparameter, or of the budget, that keeps an entry.

    Attributes
    ----------
    name, label : str
        The field of the policy, or ``budget``; and its name in words.
    symbol : str
        LaTeX; may be empty.
    before : number
    after : number, optional
        None if no value that was tried keeps the entry.
    low, high : number
        The range that was searched.
    """

    name: str
    label: str
    symbol: str
    before: Number
    after: Number | None
    low: Number
    high: Number

    @property
    def share(self) -> float | None:
        """Size of the change as a share of the range, in [0, 1]."""
        if self.after is None:
            return None
        return abs(self.after - self.before) / (self.high - self.low)

    @property
    def direction(self) -> int:
        """1 for a larger value, −1 for a smaller, 0 if none was found."""
        return 0 if self.after is None else 1 if self.after > self.before else -1

    @property
    def words(self) -> str:
        """The change as a sentence.

        Examples
        --------
        >>> Change("gamma", "Recency decay", "", 0.88, 0.921, 0.0, 1.0).words
        'Recency decay at 0.921 instead of 0.88 would have kept it, a change of 4.1 % of its range.'
        >>> Change("beta", "Modulation exponent", "", 0.25, None, 0.0, 4.0).words
        'No value of modulation exponent that was tried, from 0 to 4, would have kept it.'
        """
        if self.after is None or self.share is None:
            name = f"{self.label[0].lower()}{self.label[1:]}"
            tried = f"from {written(self.low)} to {written(self.high)}"
            return f"No value of {name} that was tried, {tried}, would have kept it."
        return (
            f"{self.label} at {written(self.after)} instead of {written(self.before)} "
            f"would have kept it, a change of {percent(self.share, 1)} of its range."
        )


def counterfactual(
    trace: Trace, dialogs: DialogBatch, row: int, turn: int, token: int
) -> list[Change]:
    """Find the smallest change of each setting that would have kept an evicted entry.

    The dialog is run again from its first turn with one setting changed: each numeric
    hyperparameter of the policy, in order, and the budget. An entry that was evicted before
    `turn` counts as kept if it survives the turn that evicted it.

    Whether an entry stays may turn several times over a setting's range. Values are tried outward
    from the current one, both ways, in steps that grow from a thousandth of the range (or 1, for
    whole numbers) to a thirty-second of it; the first that keeps the entry is then refined,
    between it and the last that did not, to a thousandth (or 1). So the value found has been run
    and keeps the entry, and the one a step nearer does not; a narrow range of values that would
    do, nearer still and between two tries, can be missed. Where a policy has channels, and another
    value leaves all of them and every decision as they were, nothing is tried in between.

    Parameters
    ----------
    trace : Trace
        Recorded with its entries, from the dialog's first turn.
    dialogs : DialogBatch
        What it ran on.
    row, turn, token : int
        As in `explain`.

    Returns
    -------
    list of Change
        `after` is None where no value was found. The budget is searched up to the number of
        tokens that had come by then.

    Raises
    ------
    ValueError
        If the entry was not evicted up to this turn, or the run was forked.

    Examples
    --------
    >>> from fdkvc.dialogs import SCENARIOS, generate
    >>> from fdkvc.policies import policy_named
    >>> dialogs = generate(SCENARIOS["shift"])
    >>> trace = simulate(policy_named("sink"), dialogs, budget=56)
    >>> for change in counterfactual(trace, dialogs, row=0, turn=1, token=7):
    ...     print(change.words)
    Sinks at 8 instead of 4 would have kept it, a change of 6.2 % of its range.
    Budget at 61 instead of 56 would have kept it, a change of 7.9 % of its range.
    """
    why = explain(trace, dialogs, row, turn, token)
    if trace.first_turn > 0:
        raise ValueError(
            f"this run was forked at turn {trace.first_turn}, but only a whole dialog can be run "
            "again with another setting"
        )
    if why.left is None:
        raise ValueError(
            f"token {token} had not been evicted by turn {turn}, so no change is needed to keep it"
        )
    policy, budget, at = trace.policy, trace.budget, why.left[0]
    tokens = int(dialogs.bounds[row, at + 1])
    run = _runs(dialogs, row, at)

    def run_with(name: str, value: Number) -> _Outcome:
        if name == BUDGET:
            return run(policy, int(value))
        return run(policy.variant(**{name: value}), budget)

    def smallest(name: str, known: Parameter, scale: _Scale) -> Change:
        after = scale.nearest_value(
            keeps=lambda value: bool((run_with(name, value).kept == token).any()),
            changes_nothing=lambda value: run_with(name, value).same_as(run(policy, budget)),
        )
        low, high = scale.valid
        return Change(name, known.label, known.symbol, scale.before, after, low, high)

    settings = dict(parameters_of(policy)) | {
        BUDGET: Parameter("Budget", "Entries that it may hold.", low=1, high=max(tokens, budget))
    }
    current = {name: getattr(policy, name) for name in defaults_of(policy)} | {BUDGET: budget}
    return [
        smallest(name, known, _Scale(known, current[name]))
        for name, known in settings.items()
        if not known.choices
    ]


def nearest(changes: Sequence[Change]) -> Change | None:
    """Return the change that is the smallest share of its range, or None if none was found."""
    found = [change for change in changes if change.after is not None]
    return min(found, key=lambda change: change.share or 0, default=None)


@dataclass(frozen=True, eq=False)
class _Outcome:
    """What a run of one dialog came to.

    Attributes
    ----------
    kept : array (budget,)
        Tokens that the last turn kept.
    course : bytes, optional
        A digest of what every turn kept and of the channels that the last one left; None for a
        policy without channels.
    """

    kept: Ints
    course: bytes | None

    def same_as(self, other: _Outcome) -> bool:
        """Whether both decided alike and left the same; never known without channels."""
        return self.course is not None and self.course == other.course


@lru_cache(maxsize=2)
def _runs(dialogs: DialogBatch, row: int, at: int) -> Callable[[Policy, int], _Outcome]:
    """Return what runs a dialog up to a turn, each setting once, whichever entry is asked for."""
    dialog = dialogs.row(row).until(at)

    @cache
    def run(policy: Policy, budget: int) -> _Outcome:
        # No decision needs the attention over what was kept.
        trace = simulate(policy, dialog, budget, entries=False, outputs_from=at + 1)
        kept, channels = trace.kept, trace.last.cache.channels
        course = sha256(kept.tobytes())
        for column in channels.values():
            course.update(column.tobytes())
        return _Outcome(kept[0, at].copy(), course.digest() if channels else None)

    return run


@dataclass(frozen=True)
class _Scale:
    """A setting's range as whole steps away from its value, as far as the ends and not past them.

    A checked setting is a plain int where whole numbers are allowed, and a plain float elsewhere.
    """

    known: Parameter
    before: Number

    @cached_property
    def valid(self) -> tuple[Number, Number]:
        """The range; an end at infinity is taken ten times the value away, at least 10."""
        kind, far = type(self.before), 10 * max(1, abs(self.before))
        low, high = self.known.low, self.known.high
        return (
            kind(self.before - far if math.isinf(low) else low),
            kind(self.before + far if math.isinf(high) else high),
        )

    @cached_property
    def closed(self) -> tuple[Number, Number]:
        """The lowest and the highest value to try: just inside where an end is open."""
        low, high = self.valid
        inside = 1 if isinstance(self.before, int) else INSIDE * (high - low)
        return (
            min(low + inside, self.before) if self.known.open_low else low,
            max(high - inside, self.before) if self.known.open_high else high,
        )

    @cached_property
    def step(self) -> Number:
        """The smallest change."""
        low, high = self.valid
        return 1 if isinstance(self.before, int) else (high - low) / RESOLUTION

    @cached_property
    def reach(self) -> dict[int, int]:
        """Steps up (1) and down (−1) to the ends; the last may be a shorter one."""
        low, high = self.closed
        # Rounded, so that a rounding error does not add a step that moves nothing.
        up, down = (round(room / self.step, 6) for room in (high - self.before, self.before - low))
        return {1: math.ceil(up), -1: math.ceil(down)}

    def value(self, steps: int) -> Number:
        """Return the value that lies so many steps up, or down if negative."""
        low, high = self.closed
        return round(min(max(self.before + steps * self.step, low), high), 12)

    @cached_property
    def longest_gap(self) -> int:
        """The most steps from one value that is tried to the next."""
        low, high = self.valid
        return max(1, round((high - low) / self.step / COARSEST))

    def nearest_value(
        self, keeps: Callable[[Number], bool], changes_nothing: Callable[[Number], bool]
    ) -> Number | None:
        """Return the nearest value found that keeps, or None."""
        failed = {way: self._idle_steps(way, changes_nothing) for way in self.reach}
        tries = (self._tries(way, failed[way]) for way in self.reach)
        best: tuple[int, int] | None = None
        for steps, way in heapq.merge(*tries):  # the nearer first, whichever way
            if best and failed[way] >= best[0]:
                break
            if keeps(self.value(way * steps)):
                found = self._refine(failed[way], steps, way, keeps)
                best = min(best or (found, way), (found, way))
            failed[way] = steps
        return None if best is None else self.value(best[0] * best[1])

    def _idle_steps(self, way: int, changes_nothing: Callable[[Number], bool]) -> int:
        """Return how many steps one way change nothing."""
        end = self.reach[way]
        if not end or not changes_nothing(self.value(way)):
            return 0
        if changes_nothing(self.value(way * end)):
            return end
        return self._refine(1, end, way, lambda value: not changes_nothing(value)) - 1

    def _tries(self, way: int, steps: int) -> Iterator[tuple[int, int]]:
        """Yield growing numbers of steps one way, farther and farther apart, up to its end."""
        last_gap, gap = 1, 1
        while steps < self.reach[way]:
            steps = min(steps + gap, self.reach[way])
            yield steps, way
            last_gap, gap = gap, min(last_gap + gap, self.longest_gap)

    def _refine(self, fails: int, works: int, way: int, works_at: Callable[[Number], bool]) -> int:
        """Halve the gap between a number of steps that fails and one that works, down to one."""
        while works - fails > 1:
            middle = (fails + works) // 2
            if works_at(self.value(way * middle)):
                works = middle
            else:
                fails = middle
        return works
