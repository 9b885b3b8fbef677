"""Where a score came from: changes that affect all entries equally, and an entry's own gains.

A term that is a channel times a common scale has a history: from turn to turn the scale may change,
decay may reduce every entry, and the rest is the entry's own gain. Any other term is recomputed in
every turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdkvc.core.attention import Floats
from fdkvc.engine.trace import Trace, TurnResult
from fdkvc.policies.base import Policy, Step

RESCALED = "Rescaling by the largest score"
"""The name of a change that all values of a term have in common while the channel is the same."""

SAME_FACTOR = 1e-4
"""Relative tolerance within which factors of entries count as equal: float32 rounding."""


@dataclass(frozen=True, eq=False)
class TermCourse:
    """How one term of the score follows from the previous turn."""

    term: str
    """Its name."""
    remembers: bool
    """Whether it continues from its value in the previous turn."""
    shares: Mapping[str, NDArray[np.float64]]
    """Arrays of shape (T,) by the name of a step, in order: the factor that the step applies to all
    entries in each recorded turn."""
    gained: str
    """The name of the step that adds each entry's own gain."""


def term_courses(trace: Trace) -> list[TermCourse]:
    """Return the course of each term of the first row's score; the run has recorded its entries.

    An entry's term in a turn is its value in the previous turn, times every factor, plus its gain.

    Examples
    --------
    >>> from fdkvc import SCENARIOS, generate, policy_named, simulate
    >>> trace = simulate(policy_named("fd-kvc"), generate(SCENARIOS["shift"]), budget=56)
    >>> cumulative, recency = term_courses(trace)
    >>> recency.gained, {name: share[1:4].tolist() for name, share in recency.shares.items()}
    ('Relevance reinforcement', {'Recency decay': [0.88, 0.88, 0.88]})
    >>> [f"{share:.2f}" for share in cumulative.shares[RESCALED][1:4]]
    ['0.97', '0.98', '0.98']
    """
    results = [*map(trace.result, range(trace.turns))]
    return [_course(trace.policy, term, results) for term in results[0].terms]


def no_history(trace: Trace, courses: Sequence[TermCourse]) -> str:
    """Say that no term continues from the turn before; an empty text if one does."""
    if any(course.remembers for course in courses):
        return ""
    label = trace.policy.label
    return f"{label} keeps no state between turns: it computes each score from scratch."


def _course(policy: Policy, term: str, results: list[TurnResult]) -> TermCourse:
    """Return the course of one term over the turns of these results."""
    # 1. The steps that change the term's channel, and the term's scale in each turn.
    changes = [step for step in policy.steps if step.kind == "change"]
    steps = [step for step in changes if step.channel(policy.channels) == term]
    scale = _carried([_scale(result, term) for result in results])
    if scale is None or not steps:  # recomputed in every turn, at least in part
        return TermCourse(term, "history" in policy.looks_at, {}, policy.quantity_name(term))
    # 2. The factors common to all entries. The rest is each entry's own gain, by the last step.
    shares = {RESCALED: np.concatenate([[1.0], scale[1:] / scale[:-1]])}
    for step in steps:
        factors = [_share(result, step) for result in results]
        if step.writes[0] != term and None not in factors:
            shares[step.name] = np.nan_to_num(np.array(factors, np.float64), nan=1.0)
    # A factor of 1 in every turn is not worth a name.
    for name, share in [*shares.items()]:
        if np.abs(share - 1).max() <= SAME_FACTOR:
            del shares[name]
    return TermCourse(term, True, shares, steps[-1].name)


def _scale(result: TurnResult, term: str) -> float | None:
    """Return the factor from the term's channel to the term, as `common_factor`."""
    if term not in result.entries.channels:
        return None
    present = result.entries.present[0]
    return common_factor(result.entries[term][0, present], result.terms[term][0, present])


def _share(result: TurnResult, step: Step) -> float | None:
    """Return the factor of a step, as `common_factor`."""
    recorded = result.update.recorded
    present = result.old_entries.present[0]
    read_values = recorded.get(step.reads[0])
    written_values = recorded.get(step.writes[0])
    if read_values is None or written_values is None:
        return None
    return common_factor(read_values[0, present], written_values[0, present])


def common_factor(values: Floats, products: Floats) -> float | None:
    """Return the factor from the values to the products, if it is the same for all; else None.

    It is NaN if all values are 0.
    """
    positive = values > SAME_FACTOR
    if not positive.any():
        return float("nan")
    share = products[positive].astype(float) / values[positive]
    middle = float(np.median(share))
    if np.abs(share - middle).max() > SAME_FACTOR * max(abs(middle), SAME_FACTOR):
        return None
    # In single precision 0.88 is 0.87999999….
    return round(middle, 6)


def _carried(scales: list[float | None]) -> NDArray[np.float64] | None:
    """Fill unknown scales with the last known one; None if a turn has no common scale, or 0."""
    # 0, as the next turn's scale is divided by it.
    if None in scales or 0 in scales:
        return None
    filled = pd.Series(scales, dtype=float).ffill().bfill().fillna(1.0)
    return np.asarray(filled, np.float64)
