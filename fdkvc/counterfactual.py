"""What would have kept an entry: the dialog run again with one setting changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fdkvc.dialogs import DialogBatch
from fdkvc.explain import explain
from fdkvc.parameters import Parameter, defaults_of, parameters_of
from fdkvc.policies.base import Policy
from fdkvc.simulate import simulate
from fdkvc.trace import Trace
from fdkvc.words import percent

RESOLUTION = 1000
"""Into how many steps a counterfactual divides the range of a hyperparameter."""

INSIDE = 1e-6
"""How far inside an open end of a range a counterfactual goes, as a share of the range."""

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
        'No value of modulation exponent from 0 to 4 would have kept it.'
        """
        if self.after is None or self.share is None:
            name = f"{self.label[0].lower()}{self.label[1:]}"
            return f"No value of {name} from {self.low:g} to {self.high:g} would have kept it."
        return (
            f"{self.label} at {self.after:g} instead of {self.before:g} would have kept it, "
            f"a change of {percent(self.share, 1)} of its range."
        )


def counterfactual(
    trace: Trace, dialogs: DialogBatch, row: int, turn: int, token: int
) -> list[Change]:
    """Find the smallest change of each setting that would have kept an evicted entry.

    The dialog is run again from its first turn with one setting changed: each numeric
    hyperparameter of the policy, in order, and the budget. An entry that was evicted before
    `turn` counts as kept if it survives the turn that evicted it.

    Whether an entry stays need not turn only once over a setting's range. Values are tried
    outward from the current one, both ways, in steps that grow by half, from a thousandth of the
    range (or 1, for whole numbers) to its ends; the first that keeps the entry is then refined,
    between it and the last that did not, to a thousandth (or 1). So the value found has been run
    and keeps the entry, and the one a step nearer does not; a narrow range of values that would
    do, nearer still and between two tries, can be missed.

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
    dialog = dialogs.row(row).until(at)

    def stays(policy: Policy, budget: int) -> bool:
        rerun = simulate(policy, dialog, budget, entries=False)
        return bool((rerun.kept[0, at] == token).any())

    def stays_with(name: str) -> Callable[[Number], bool]:
        return lambda value: stays(policy.variant(**{name: value}), budget)

    defaults, tokens = defaults_of(policy), int(dialog.bounds[0, -1])
    sizes = Parameter("Budget", "Entries that the cache may hold.", low=1, high=max(tokens, budget))
    return [
        *(
            _smallest_change(
                name, known, getattr(policy, name), type(defaults[name]), stays_with(name)
            )
            for name, known in parameters_of(policy).items()
            if not known.choices
        ),
        _smallest_change("budget", sizes, budget, int, lambda size: stays(policy, int(size))),
    ]


def nearest(changes: Sequence[Change]) -> Change | None:
    """Return the change that is the smallest share of its range, or None if none was found."""
    found = [change for change in changes if change.after is not None]
    return min(found, key=lambda change: change.share or 0, default=None)


def _smallest_change(
    name: str, known: Parameter, before: Number, kind: type, stays: Callable[[Number], bool]
) -> Change:
    """Search the range of one setting outward from its value."""
    whole = kind is int
    low, high = _finite_range(known, before)
    step = 1 if whole else (high - low) / RESOLUTION
    lowest = min(low + INSIDE * (high - low), before) if known.open_low else low
    highest = max(high - INSIDE * (high - low), before) if known.open_high else high

    def value(steps: int) -> Number:
        moved = min(max(before + steps * step, lowest), highest)
        return int(moved) if whole else round(moved, 12)

    room = {1: (highest - before) / step, -1: (before - lowest) / step}
    # A rounding error must not add a step that moves nothing.
    failed = dict.fromkeys(room, 0)
    ends = {way: math.ceil(round(length, 6)) for way, length in room.items()}
    found: list[int] = []
    for distance in _growing_distances(max(ends.values())):
        for way, end in ends.items():
            if failed[way] < end:
                steps = min(distance, end)
                if stays(value(way * steps)):
                    found.append(way * _refine(failed[way], steps, way, value, stays))
                else:
                    failed[way] = steps
        if found:
            break
    after = min((value(steps) for steps in found), key=lambda x: abs(x - before), default=None)
    return Change(
        name=name,
        label=known.label,
        symbol=known.symbol,
        before=before,
        after=after,
        low=int(low) if whole else low,
        high=int(high) if whole else high,
    )


def _refine(
    fails: int,
    keeps: int,
    way: int,
    value: Callable[[int], Number],
    stays: Callable[[Number], bool],
) -> int:
    """Halve the gap between a number of steps that fails and one that keeps, down to one."""
    while keeps - fails > 1:
        middle = (fails + keeps) // 2
        if stays(value(way * middle)):
            keeps = middle
        else:
            fails = middle
    return keeps


def _growing_distances(end: int) -> Iterator[int]:
    """Yield 1, 2, 3, 4, 6, 9, 13, … up to `end` and once as far or farther."""
    distance = 0
    while distance < end:
        distance = max(distance + 1, distance * 3 // 2)
        yield distance


def _finite_range(known: Parameter, value: Number) -> tuple[float, float]:
    """Return the valid range; an end at infinity is taken ten times the value away, at least 10."""
    far = 10 * max(1, abs(value))
    low = value - far if math.isinf(known.low) else known.low
    high = value + far if math.isinf(known.high) else known.high
    return low, high
