"""What would have decided otherwise on an entry: the dialog run again with one setting changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import numpy as np

from fdkvc.attention import Ints
from fdkvc.explain.explain import explain
from fdkvc.parameters import Field, Parameter, written
from fdkvc.policies.base import Policy
from fdkvc.policies.by_row import by_row
from fdkvc.run.simulate import initial_state, take_turn
from fdkvc.run.trace import Trace
from fdkvc.synthetic.batch import DialogBatch
from fdkvc.words import percent

FINE, COARSE = 1000, 50
"""Into how many steps a range is divided: where values run as rows of a batch, and where not."""

RING = 64
"""How many steps, up and down, are run in one batch."""

INSIDE = 1e-6
"""How far inside an open end of a range a counterfactual goes, as a share of the range."""

BUDGET = "budget"

Number = int | float

_TurnsIt = Callable[[tuple[Number, ...]], list[bool]]
"""Says of each value of a setting whether it turns the decision."""


@dataclass(frozen=True)
class Change:
    """The smallest change of one hyperparameter, or of the budget, that turns a decision.

    Every value so many whole steps from the present one was run, the nearest first, and none that
    is nearer turns it.

    Attributes
    ----------
    name, label : str
        The field of the policy, or ``budget``; and its name in words.
    symbol : str
        LaTeX; may be empty.
    after : number, optional
        None if no value that was tried turns the decision.
    low, high : number
        The range that was searched.
    step : number
        How far apart the values lie that were tried.
    keeps : bool
        Whether the change keeps what was evicted, or evicts what was kept.
    is_read : bool
        Whether the run asks for the setting at all; if not, it needs no tries.
    """

    name: str
    label: str
    symbol: str
    before: Number
    after: Number | None
    low: Number
    high: Number
    step: Number
    keeps: bool = True
    is_read: bool = True

    @property
    def share(self) -> float | None:
        """Size of the change as a share of the range, in [0, 1]."""
        if self.after is None:
            return None
        return abs(self.after - self.before) / (self.high - self.low)

    @property
    def tried(self) -> str:
        """Which values were tried, in words.

        Examples
        --------
        >>> Change("gamma", "Recency decay", "", 0.88, None, 0.0, 1.0, 0.001).tried
        'from 0 to 1 in steps of 0.001'
        """
        if not self.is_read:
            return "none: this run never uses it"
        return f"from {written(self.low)} to {written(self.high)} in steps of {written(self.step)}"

    @property
    def words(self) -> str:
        """The change as a sentence.

        Examples
        --------
        >>> Change("gamma", "Recency decay", "", 0.88, 0.921, 0.0, 1.0, 0.001).words
        'Recency decay at 0.921 instead of 0.88 would have kept it, a change of 4.1 % of its range.'
        >>> Change("w_c", "Weight", "", 0.45, None, 0.0, 1.0, 0.001, keeps=False).words
        'No weight from 0 to 1 in steps of 0.001 would have evicted it.'
        >>> Change("beta", "Modulation", "", 0.25, None, 0.0, 4.0, 0.004, is_read=False).words
        'No modulation would have kept it, because this run never uses it.'
        """
        name = f"{self.label[0].lower()}{self.label[1:]}"
        would = f"would have {'kept' if self.keeps else 'evicted'} it"
        if not self.is_read:
            return f"No {name} {would}, because this run never uses it."
        if self.after is None or self.share is None:
            return f"No {name} {self.tried} {would}."
        return (
            f"{self.label} at {written(self.after)} instead of {written(self.before)} "
            f"{would}, a change of {percent(self.share, 1)} of its range."
        )


def counterfactual(
    trace: Trace,
    dialogs: DialogBatch,
    row: int,
    turn: int,
    token: int,
    stopped: Callable[[], bool] = lambda: False,
) -> list[Change]:
    """Find the smallest change of each setting that would have decided otherwise on an entry.

    For an entry that was evicted up to `turn`, it is what would have kept it in the turn that
    evicted it; for one in the cache, what would have evicted it by the end of `turn`. The dialog
    is run again from its first turn with one setting changed: each hyperparameter of the policy
    of which one value can be nearer than another, in order, and the budget.

    An entry may stay and go several times over a setting's range, so every value is run, outward
    from the present one and both ways, in steps of a thousandth of the range where values can run
    as rows of one batch, of a fiftieth where they cannot, and of 1 for whole numbers (more where
    the range has more than a thousand). The first that turns the decision is the answer, and no
    nearer one of these does; where the step is wider than a thousandth, or 1, the last of them is
    halved down to that. What lies between two other steps is not known: there two entries may swap
    at the cutoff and swap back, so that a finer grid finds a nearer value. A hyperparameter that
    the run never reads has no answer, and is not tried.

    Parameters
    ----------
    trace : Trace
        Recorded with its entries, from the dialog's first turn.
    dialogs : DialogBatch
        What it ran on.
    row, turn, token : int
        As in `explain`.
    stopped : function, optional
        Asked before each setting; once it says so, only those before it are returned.

    Returns
    -------
    list of Change
        `after` is None where no value was found. The budget is searched up to the number of
        tokens that had come by then.

    Raises
    ------
    ValueError
        If the entry had not come by this turn, or the run was forked.

    Examples
    --------
    >>> from fdkvc.synthetic.draw import generate
    >>> from fdkvc.synthetic.scenarios import SCENARIOS
    >>> from fdkvc.policies import policy_named
    >>> from fdkvc.run.simulate import simulate
    >>> dialogs = generate(SCENARIOS["shift"])
    >>> trace = simulate(policy_named("sink"), dialogs, budget=56)
    >>> for change in counterfactual(trace, dialogs, row=0, turn=1, token=7):
    ...     print(change.words)
    Sinks at 8 instead of 4 would have kept it, a change of 6.2 % of its range.
    Budget at 61 instead of 56 would have kept it, a change of 7.9 % of its range.
    >>> counterfactual(trace, dialogs, row=0, turn=1, token=12)[0].words
    'Sinks at 5 instead of 4 would have evicted it, a change of 1.6 % of its range.'
    """
    why = explain(trace, dialogs, row, turn, token)
    if trace.first_turn > 0:
        raise ValueError(
            f"this run was forked at turn {trace.first_turn}, but only a whole dialog can be run "
            "again with another setting"
        )
    if why.born > turn:
        raise ValueError(
            f"token {token} arrives in turn {why.born}, so nothing was decided on it by turn {turn}"
        )
    policy, budget = trace.policy, trace.budget
    evicted, at = why.left is not None, why.left[0] if why.left else turn
    tokens = int(dialogs.bounds[row, at + 1])
    runs = _runs(dialogs, row, at, policy, budget)

    def smallest(name: str, known: Parameter, scale: _Scale) -> Change:
        def turns_it(values: tuple[Number, ...]) -> list[bool]:
            held = ((kept == token).any(axis=1).tolist() for kept in runs.kept(name, values))
            return [stays == evicted for some in held for stays in some]

        is_read, (low, high) = runs.reads(name), scale.valid
        return Change(
            name=name,
            label=known.label,
            symbol=known.symbol,
            before=scale.before,
            after=scale.nearest_value(turns_it) if is_read else None,
            low=low,
            high=high,
            step=scale.step,
            keeps=evicted,
            is_read=is_read,
        )

    places = Field(
        "Budget", "Entries that it may hold.", default=budget, low=1, high=max(tokens, budget)
    )
    return [
        smallest(name, known, _Scale(known, known.default))
        for name, known in {**policy.settings, BUDGET: places}.items()
        if not known.choices and not known.nominal and not stopped()
    ]


def nearest_first(changes: Iterable[Change]) -> list[Change]:
    """Return changes by their share of their range; those of which none was found come last."""
    return sorted(changes, key=lambda each: math.inf if each.share is None else each.share)


class _Runs:
    """Runs of one dialog up to a turn with one setting changed; each is made once."""

    def __init__(self, dialog: DialogBatch, policy: Policy, budget: int) -> None:
        self.dialog, self.policy, self.budget = dialog, policy, budget
        self.settings = policy.settings
        self.kept = cache(self._kept)
        self.reads = cache(self._reads)

    def _kept(self, name: str, values: tuple[Number, ...]) -> list[Ints]:
        """Return the tokens that the last turn keeps, (V, C) for so many values of a setting."""
        if name == BUDGET:
            return [self._run(self.policy, int(value), 1) for value in values]
        if not self.settings[name].by_row:
            variants = [self.policy.variant(**{name: value}) for value in values]
            return [self._run(variant, self.budget, 1) for variant in variants]
        return [self._run(by_row(self.policy, name, values), self.budget, len(values))]

    def _reads(self, name: str) -> bool:
        """Whether a run reads a hyperparameter at all; only known of those by row."""
        if name == BUDGET or not self.settings[name].by_row:
            return True
        watched = by_row(self.policy, name, [self.settings[name].default])
        self._run(watched, self.budget, 1)
        return bool(watched.settings[name].default.was_read)

    def _run(self, policy: Policy, budget: int, rows: int) -> Ints:
        """Run the dialog in so many rows of a batch; return what each keeps at the end (B, C).

        The rows share the dialog, and no decision needs the attention over what was kept.
        """
        capacity = policy.capacity(budget, self.dialog.keys.shape[1])
        tokens, head_dimension = self.dialog.keys.shape[1:]
        state = initial_state(policy, rows, capacity, head_dimension, tokens)
        for number in range(self.dialog.turns):
            turn = self.dialog.observe(number)
            if turn.all_active:  # one without tokens changes nothing
                alike = turn.with_new(np.repeat(turn.new, rows, axis=0))
                state = take_turn(policy, state, alike, capacity).after
        return state.cache.token


@lru_cache(maxsize=2)
def _runs(dialogs: DialogBatch, row: int, at: int, policy: Policy, budget: int) -> _Runs:
    """Return the runs for a turn, which serve whichever entry is asked for."""
    return _Runs(dialogs.row(row).until(at), policy, budget)


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
    def finest(self) -> Number:
        """The smallest change."""
        low, high = self.valid
        return 1 if isinstance(self.before, int) else (high - low) / FINE

    @cached_property
    def step(self) -> Number:
        """The smallest change that is tried before anything is found."""
        low, high = self.valid
        if isinstance(self.before, int):
            return max(1, math.ceil((high - low) / FINE))
        return self.finest if self.known.by_row else (high - low) / COARSE

    @cached_property
    def reach(self) -> dict[int, int]:
        """Steps up (1) and down (−1) to the ends; the last may be a shorter one."""
        low, high = self.closed
        # Rounded, so that a rounding error does not add a step that moves nothing.
        up, down = (round(room / self.step, 6) for room in (high - self.before, self.before - low))
        return {1: math.ceil(up), -1: math.ceil(down)}

    def value(self, change: Number) -> Number:
        """Return the value that lies so far up, or down if negative."""
        low, high = self.closed
        return round(min(max(self.before + change, low), high), 12)

    def nearest_value(self, turns_it: _TurnsIt) -> Number | None:
        """Return the nearest value that turns the decision, whichever way it lies, or None."""
        for ring in self._rings(RING if self.known.by_row else 1):
            turned = turns_it(tuple(self.value(steps * self.step) for steps in ring))
            if any(turned):
                return self._refined(ring[turned.index(True)], turns_it)
        return None

    def _rings(self, width: int) -> Iterator[list[int]]:
        """Yield numbers of steps up and down, the nearest first, so many of each at once."""
        furthest = max(self.reach.values())
        for first in range(1, furthest + 1, width):
            yield [
                way * steps
                for steps in range(first, min(first + width, furthest + 1))
                for way, end in self.reach.items()
                if steps <= end
            ]

    def _refined(self, steps: int, turns_it: _TurnsIt) -> Number:
        """Halve the last step, of which only the far end turns the decision, down to the finest."""
        way = int(math.copysign(1, steps))
        pieces = round(self.step / self.finest)
        fails, works = (abs(steps) - 1) * pieces, abs(steps) * pieces
        while works - fails > 1:
            middle = (fails + works) // 2
            if turns_it((self.value(way * middle * self.finest),))[0]:
                works = middle
            else:
                fails = middle
        return self.value(way * works * self.finest)
