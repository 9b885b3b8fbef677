"""Where a score came from: what each turn did to all entries alike, and what one gained itself.

A term that is a channel on one common scale has a past: from turn to turn the scale may move, a
decay may take its share of every entry, and the rest of the change is what the turn gave to this
one. Any other term is made anew in every turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fdkvc.attention import Floats
from fdkvc.policies.base import Policy, Step
from fdkvc.run.trace import Trace, TurnResult

RESCALED = "Change of the common scale"
"""What moves all values of a term alike though their channel stands still."""

ALIKE = 1e-4
"""How far the shares of two entries may differ and still count as one share for all."""


@dataclass(frozen=True, eq=False)
class TermCourse:
    """How one term of the score comes from its past.

    Attributes
    ----------
    term : str
    remembers : bool
        Whether it goes on from where the turn before has left it.
    shares : mapping of str to array (T,)
        What happens to all entries alike before they gain anything, in order: the name of the step
        and, for each recorded turn, the share that it leaves.
    gained : str
        The name of the step that gives each entry what is its own.
    """

    term: str
    remembers: bool
    shares: Mapping[str, NDArray[np.float64]]
    gained: str


def term_courses(trace: Trace, row: int = 0) -> list[TermCourse]:
    """Say for each term of a score how it comes from its past.

    An entry's term in a turn is what it was in the turn before, times every share, plus what the
    entry gained.

    Raises
    ------
    ValueError
        If the run was recorded without its entries.

    Examples
    --------
    >>> from fdkvc.synthetic.draw import generate
    >>> from fdkvc.synthetic.scenarios import SCENARIOS
    >>> from fdkvc.policies import policy_named
    >>> from fdkvc.run.simulate import simulate
    >>> trace = simulate(policy_named("fd-kvc"), generate(SCENARIOS["shift"]), budget=56)
    >>> cumulative, recency = term_courses(trace)
    >>> recency.gained, {name: share[1:4].tolist() for name, share in recency.shares.items()}
    ('Relevance reinforcement', {'Recency decay': [0.88, 0.88, 0.88]})
    >>> [f"{share:.2f}" for share in cumulative.shares[RESCALED][1:4]]
    ['0.97', '0.98', '0.98']
    """
    first = trace.first_turn
    results = [trace.result(turn) for turn in range(first, first + trace.turns)]
    return [_course(trace.policy, term, results, row) for term in results[0].terms]


def _course(policy: Policy, term: str, results: list[TurnResult], row: int) -> TermCourse:
    steps = [step for step in policy.steps if _channel_of(policy, step) == term]
    scale = _carried([_scale(result, term, row) for result in results])
    if scale is None or not steps:
        remembers = "history" in policy.looks_at
        return TermCourse(term, remembers, {}, policy.quantity_name(term))
    shares = {RESCALED: np.concatenate([[1.0], scale[1:] / scale[:-1]])}
    for step in steps:
        taken = [_share(result, step, row) for result in results]
        if step.writes[0] != term and None not in taken:
            shares[step.name] = np.array([share for share in taken if share is not None])
    moved = {name: share for name, share in shares.items() if np.abs(share - 1).max() > ALIKE}
    return TermCourse(term, True, moved, steps[-1].name)


def _channel_of(policy: Policy, step: Step) -> str | None:
    """Return the channel that a step changes: the one whose name begins that of what it writes."""
    if step.kind != "change":
        return None
    return next((name for name in policy.channels if step.writes[0].startswith(name)), None)


def _scale(result: TurnResult, term: str, row: int) -> float | None:
    """Return how much of a channel its term is, where that is the same for all; NaN if unknown."""
    if term not in result.entries.channels:
        return None
    here = result.entries.present[row]
    return _common(result.entries[term][row, here], result.terms[term][row, here])


def _share(result: TurnResult, step: Step, row: int) -> float | None:
    """Return the share that a step leaves of what it reads, where that is the same for all."""
    before, after = (result.update.recorded.get(name) for name in (step.reads[0], step.writes[0]))
    if before is None or after is None:
        return None
    here = result.old.present[row]
    share = _common(before[row, here], after[row, here])
    return 1.0 if share is not None and np.isnan(share) else share


def _common(before: Floats, after: Floats) -> float | None:
    """Return after / before if it is the same for all, NaN if nothing tells, None if it is not."""
    known = before > ALIKE
    if not known.any():
        return float("nan")
    share = after[known].astype(float) / before[known]
    middle = float(np.median(share))
    if np.abs(share - middle).max() > ALIKE * max(abs(middle), ALIKE):
        return None
    return round(middle, 6)


def _carried(scales: list[float | None]) -> NDArray[np.float64] | None:
    """Let a turn that tells no scale keep the last; None if one has none in common, or it is 0."""
    if None in scales or 0 in scales:
        return None
    return np.fromiter(_last_known(scales), float)


def _last_known(scales: list[float | None]) -> Iterator[float]:
    known = next((scale for scale in scales if scale is not None and not np.isnan(scale)), 1.0)
    for scale in scales:
        known = known if scale is None or np.isnan(scale) else scale
        yield known
