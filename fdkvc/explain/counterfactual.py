"""Counterfactuals: the smallest change of a setting that reverses the decision on an entry."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np

from fdkvc.core.attention import TRAITS, Ints
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.parameters import Field, written
from fdkvc.core.words import uncapitalized
from fdkvc.engine.simulate import initial_state, take_turn
from fdkvc.engine.trace import Trace
from fdkvc.explain.decisions import explain
from fdkvc.policies.base import Policy
from fdkvc.policies.by_row import by_row
from fdkvc.policies.wrapper import inside

FINE = 1000
"""Steps per range if the values run as rows of one batch."""

COARSE = 50
"""Steps per range if each value needs a run of its own."""

RING = 64
"""Steps up, and as many down, that run in one batch."""

INSIDE = 1e-6
"""Distance from an open end of a range, as a share of the range."""

BUDGET = "budget"

HEADS_SHARE = ("ada-heads", "together")
"""Wrappers under which the decisions on a head depend on the other heads."""

Number = int | float

_Reverses = Callable[[tuple[Number, ...]], list[bool]]
"""Returns for each value of a setting whether it reverses the decision."""


@dataclass(frozen=True)
class Change:
    """The smallest change of one hyperparameter, or of the budget, that reverses a decision.

    Values were tried in whole steps from the current one, the nearest first.
    """

    name: str
    """The field of the policy, or ``budget``."""
    label: str
    """Its name in words."""
    current_value: Number
    """Its value in the run."""
    reversing_value: Number | None
    """The value that reverses the decision; None if no tried value does."""
    low: Number
    """Lower end of the searched range."""
    high: Number
    """Upper end of the searched range."""
    step: Number
    """Distance between tried values."""
    keeps: bool = True
    """Whether the change keeps an evicted entry, or evicts a kept one."""
    is_read: bool = True
    """Whether the run uses the setting at all; if not, no value is tried."""

    @property
    def share(self) -> float | None:
        """Size of the change as a share of the range, in [0, 1]."""
        if self.reversing_value is None:
            return None
        return abs(self.reversing_value - self.current_value) / (self.high - self.low)

    @property
    def words(self) -> str:
        """The change as a sentence.

        Examples
        --------
        >>> Change("gamma", "Recency decay", 0.88, 0.921, 0.0, 1.0, 0.001).words
        'It would have been kept with recency decay at 0.921 instead of 0.88.'
        >>> Change("w_c", "Weight", 0.45, None, 0.0, 1.0, 0.001, keeps=False).words
        'No weight from 0 to 1, in steps of 0.001, would have evicted it.'
        >>> Change("beta", "Modulation", 0.25, None, 0.0, 4.0, 0.004, is_read=False).words
        'No modulation would have kept it, because this run never uses it.'
        """
        name = uncapitalized(self.label)
        would = f"would have {'kept' if self.keeps else 'evicted'} it"
        if not self.is_read:
            return f"No {name} {would}, because this run never uses it."
        if self.reversing_value is None:
            low, high, step = map(written, (self.low, self.high, self.step))
            return f"No {name} from {low} to {high}, in steps of {step}, {would}."
        values = f"{written(self.reversing_value)} instead of {written(self.current_value)}"
        outcome = "kept" if self.keeps else "evicted"
        return f"It would have been {outcome} with {name} at {values}."


class NotRepeated(Change):
    """The change that no newer entry has the entry's word, for policies that look at repetition."""

    @property
    def share(self) -> float | None:
        """0 if this keeps the entry, so that it comes before changes of settings."""
        return None if self.reversing_value is None else 0.0

    @property
    def words(self) -> str:
        """The change as a sentence."""
        outcome = (
            "still have been evicted" if self.reversing_value is None else "have been kept"
        )
        return f"If its word had not been repeated, it would {outcome}."


def counterfactual(
    trace: Trace,
    dialogs: DialogBatch,
    row: int,
    turn: int,
    token: int,
    stopped: Callable[[], bool] = lambda: False,
) -> list[Change]:
    """Find the smallest change of each setting that would have reversed the decision on an entry.

    For an entry evicted up to `turn`, the change would have kept it in the turn that evicted it;
    for a cached one, it would have evicted it by the end of `turn`. The dialog is run again from
    its first turn with one setting changed: each numeric hyperparameter with a range, in order, and
    the budget. An evicted entry asks for more room, up to that of all tokens read by then, and a
    cached one for less: the other direction might reverse the decision, but advises nobody.

    The outcome need not be monotonic in a setting, so every value is tried, outward from the
    current one in both directions: in steps of a thousandth of the range if values run as rows of
    one batch, of a fiftieth if they cannot, and of 1 for whole numbers (more if the range has more
    than a thousand). The answer is the first value that reverses the decision; a step wider than a
    thousandth, or than 1, is then bisected. Between two steps a finer grid could find a nearer
    value. A hyperparameter that the run never reads is not tried. For an evicted entry whose word
    was repeated, under a policy that looks at repetition, the first change is a `NotRepeated`.

    `stopped` is called before each setting; once true, only the settings before it are returned.
    Raises a ValueError as `explain`, if the token arrives after this turn, and if heads decide
    together, since one row is run again.

    Examples
    --------
    >>> from fdkvc import SCENARIOS, generate, policy_named, simulate
    >>> dialogs = generate(SCENARIOS["shift"])
    >>> trace = simulate(policy_named("sink"), dialogs, budget=56)
    >>> for change in counterfactual(trace, dialogs, row=0, turn=1, token=7):
    ...     print(change.words)
    It would have been kept with sinks at 8 instead of 4.
    It would have been kept with budget at 61 instead of 56.
    >>> counterfactual(trace, dialogs, row=0, turn=1, token=12)[0].words
    'It would have been evicted with sinks at 5 instead of 4.'
    """
    why = explain(trace, dialogs, row, turn, token)
    if why.born > turn:
        raise ValueError(
            f"token {token} arrives in turn {why.born}, so nothing was decided on it by turn {turn}"
        )
    policy = trace.policy
    budget = trace.budget
    if dialogs.heads > 1 and any(part.key in HEADS_SHARE for part in inside(policy)):
        raise ValueError(f"{policy.title} decides for several heads together, not for one row")
    # An evicted entry is judged in the turn that evicted it, a cached one at the end of this turn.
    evicted = why.eviction is not None
    decided = why.eviction[0] if why.eviction else turn
    tokens = int(dialogs.bounds[row, decided + 1])
    runs = _Runs(dialogs, row, decided, policy, budget)

    def smallest(name: str, setting: Field) -> Change:
        def reverses(values: tuple[Number, ...]) -> list[bool]:
            stays = [
                (tokens == token).any(axis=1) for tokens in runs.kept_tokens(name, values)
            ]
            reversals: list[bool] = (np.concatenate(stays) == evicted).tolist()
            return reversals

        is_read = runs.reads(name)
        reversing_value = _nearest(setting, reverses) if is_read else None
        trial = setting.default, reversing_value, setting.low, setting.high, _step(setting)
        return Change(name, setting.title, *trial, keeps=evicted, is_read=is_read)

    changes: list[Change] = []
    kept_unrepeated = runs.unrepeated(token) if evicted else None
    if kept_unrepeated is not None:
        reversing_value = 0 if token in kept_unrepeated else None
        changes.append(NotRepeated("repeated", "Repeated", 1, reversing_value, 0, 1, 1))
    # With a budget for all tokens read so far every entry stays, so more need not be tried. A page
    # that is not full takes the slots of a full one.
    most = max(tokens + policy.page_size - 1, tokens, budget)
    low, high = (budget, most) if evicted else (1, budget)
    places = Field("Budget", "Most entries after a turn.", default=budget, low=low, high=high)
    for name, setting in {**policy.settings, BUDGET: places}.items():
        width = setting.high - setting.low
        has_range = 0 < width < math.inf and not setting.nominal
        # A setting without an order, such as a seed, has no smallest change.
        if has_range and not stopped():
            changes.append(smallest(name, setting))
    return changes


def nearest_first(changes: Iterable[Change]) -> list[Change]:
    """Sort changes by their share of the range; settings that reverse nothing come last."""
    return sorted(
        changes, key=lambda change: math.inf if change.share is None else change.share
    )


@lru_cache(maxsize=2)  # the entries of a turn share its runs
class _Runs:
    """Cached runs of one dialog up to a turn with one setting changed."""

    def __init__(
        self,
        dialogs: DialogBatch,
        row: int,
        turn: int,
        policy: Policy,
        budget: int,
    ) -> None:
        self.dialog = dialogs.row(row)
        self.turn = turn
        self.policy = policy
        self.budget = budget
        self.settings = policy.settings
        # Not as decorators of the methods, which would keep each dialog in memory.
        self.kept_tokens = cache(self._kept_tokens)
        self.reads = cache(self._reads)

    def _kept_tokens(self, name: str, values: tuple[Number, ...]) -> list[Ints]:
        """Return the tokens that the last turn keeps for V values of a setting (V, C)."""
        if name == BUDGET:
            return [self._run(self.policy, int(value)) for value in values]
        if not self.settings[name].by_row:
            variants = [self.policy.variant(**{name: value}) for value in values]
            return [self._run(variant, self.budget) for variant in variants]
        # The same dialog once per value, as rows of one batch.
        varied = by_row(self.policy, name, values)
        return [self._run(varied, self.budget, len(values))]

    def _reads(self, name: str) -> bool:
        """Whether a run reads a hyperparameter; true for those that cannot run by row."""
        if name == BUDGET or not self.settings[name].by_row:
            return True
        # A `ByRow` notes whether anything computed with it.
        watched = by_row(self.policy, name, [self.settings[name].default])
        self._run(watched, self.budget)
        return bool(watched.settings[name].default.was_read)

    def unrepeated(self, token: int) -> Ints | None:
        """Return the tokens kept without this token's word (1, C); None if it is not repeated."""
        if "repeated" not in self.policy.channels or self.dialog.traits is None:
            return None
        traits = self.dialog.traits.copy()
        word = traits[0, : self.dialog.bounds[0, self.turn + 1], TRAITS.index("word")]
        if not word[token] or not (word[token + 1 :] == word[token]).any():
            return None
        word[token] = 0  # the id of no word, which nothing repeats
        return self._run(self.policy, self.budget, dialog=replace(self.dialog, traits=traits))

    def _run(
        self,
        policy: Policy,
        budget: int,
        rows: int = 1,
        dialog: DialogBatch | None = None,
    ) -> Ints:
        """Run the dialog as B rows; return the tokens that each keeps after the turn (B, C)."""
        dialog = dialog or self.dialog
        tokens = int(dialog.bounds[0, self.turn + 1])
        head_dimension = dialog.keys.shape[2]
        capacity = policy.capacity(budget, tokens)
        state = initial_state(policy, rows, capacity, head_dimension)
        for number in range(self.turn + 1):
            turn = dialog.observe(number)
            if turn.active.all():  # one without tokens changes nothing
                same_for_all = turn.with_new(np.repeat(turn.new, rows, axis=0))
                state = take_turn(policy, state, same_for_all, capacity).end_state
        return state.cache.token


def _step(setting: Field) -> Number:
    """Return the distance between the values that are tried first."""
    width = setting.high - setting.low
    if isinstance(setting.default, int):
        return max(1, math.ceil(width / FINE))
    return width / (FINE if setting.by_row else COARSE)


def _nearest(setting: Field, reverses: _Reverses) -> Number | None:
    """Return the nearest value in either direction that reverses the decision, or None."""
    # 1. The range in units: 1 for whole numbers, otherwise a thousandth of the range.
    start: Number = setting.default
    is_whole = isinstance(start, int)
    step = _step(setting)
    low, high = map(type(start), (setting.low, setting.high))
    unit = 1 if is_whole else (high - low) / FINE
    room = 1 if is_whole else INSIDE * (high - low)
    if setting.open_low:
        low = min(low + room, start)
    if setting.open_high:
        high = max(high - room, start)

    def value(units: int) -> Number:
        moved = min(max(start + units * unit, low), high)
        return round(moved, 12)  # 0.3, not 0.30000000000000004

    # 2. The values to try, in units from the current one: alternately up and down, nearest first.
    # Rounded, so that a rounding error does not add a step that moves nothing.
    steps_up = round((high - start) / step, 6)
    steps_down = round((start - low) / step, 6)
    units = round(step / unit)
    distances = []
    for number in range(1, math.ceil(max(steps_up, steps_down)) + 1):
        if number < steps_up + 1:
            distances.append(number * units)
        if number < steps_down + 1:
            distances.append(-number * units)
    # 3. Try them ring by ring, until one reverses the decision.
    batch = 2 * RING if setting.by_row else 2
    for first in range(0, len(distances), batch):
        ring = distances[first : first + batch]
        outcome = reverses(tuple(map(value, ring)))
        if any(outcome):
            break
    else:
        return None
    # 4. Bisect the last step: its far end reverses the decision, its near end does not.
    works = ring[outcome.index(True)]
    fails = works - int(math.copysign(units, works))
    while abs(works - fails) > 1:
        middle = int((fails + works) / 2)
        if reverses((value(middle),))[0]:
            works = middle
        else:
            fails = middle
    return value(works)
