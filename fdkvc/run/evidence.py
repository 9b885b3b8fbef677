"""Evidence: what a turn needs of what was said before, and whether the cache still holds it.

A demand is asked of what the turn before it left in the cache: a service call at turn t is met by
an argument if every token of at least one of its mentions is cached at the end of turn t − 1. Of a
policy whose turns choose what they read by their own queries, it is asked of what turn t reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fdkvc.attention import Bools, Floats, Ints
from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.transcripts import Demand
from fdkvc.limits import MAX_TURNS
from fdkvc.run.trace import Trace

RECENT = 2
"""Evidence is recent when its last mention is at most this many turns before the demand."""

OLD = 6
"""Evidence is old when its last mention is more than this many turns before the demand."""


@dataclass(frozen=True)
class Demands:
    """Which demands a recall is of.

    Attributes
    ----------
    kind : {"call", "state"}
    older_than, up_to : int
        Only what was last mentioned more turns ago than the one and no more than the other.
    """

    kind: str
    older_than: int = 0
    up_to: int = MAX_TURNS

    def weights(self, demands: Sequence[Demand]) -> NDArray[np.float64]:
        """Return what part of the recall each demand is (n,): they add up to 1, or all are 0.

        Every call counts alike, and in a call every argument.
        """
        calls: dict[tuple[int, str], list[int]] = {}
        for at, demand in enumerate(demands):
            if demand.kind == self.kind and self.older_than < demand.age <= self.up_to:
                calls.setdefault((demand.turn, demand.source), []).append(at)
        weights = np.zeros(len(demands))
        for some in calls.values():
            weights[some] = 1 / (len(calls) * len(some))
        return weights


@dataclass(frozen=True, eq=False)
class DemandResult:
    """Whether a demand was met.

    Attributes
    ----------
    met : array (H,) of bool
        For each head, whether its cache held all of at least one mention.
    """

    demand: Demand
    met: Bools


def demand_results(trace: Trace, recording: Recording) -> list[DemandResult]:
    """Ask every demand of a dialog of the caches of its heads, recorded from the first turn on."""
    held = _held(trace, recording)
    found = []
    for (demand, _), (needed, starts) in zip(recording.evidence, recording.needed, strict=True):
        whole = np.logical_and.reduceat(held[:, demand.turn - 1, needed], starts, axis=1)
        found.append(DemandResult(demand, np.asarray(whole.any(axis=1))))
    return found


def lost_turns(trace: Trace, recording: Recording) -> list[Ints]:
    """Return for each demand the turn that broke the last of its mentions (H,), −1 if it is met.

    They are in the order of `answers`. It is the turn of the last mention itself, where not even
    that turn left it whole.
    """
    held = _held(trace, recording)
    found = []
    for demand, mentions in recording.evidence:
        whole = np.logical_or.reduce(
            [held[:, : demand.turn, list(mention)].all(axis=2) for mention in mentions]
        )
        last_whole = np.where(whole, np.arange(demand.turn), -1).max(axis=1)
        lost = np.maximum(last_whole + 1, demand.mentions[-1].turn)
        found.append(np.where(whole[:, -1], -1, lost))
    return found


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a policy kept of a recording, from the first turn on; every demand is asked once."""

    trace: Trace
    recording: Recording

    @cached_property
    def results(self) -> list[DemandResult]:
        """Every demand with its answer."""
        return demand_results(self.trace, self.recording)

    def recall(self, asked: Demands) -> float:
        """Return `recall` in the mean over heads."""
        return float(recall(self.results, asked).mean())

    def token_age(self) -> float:
        """Return the mean age in turns of what is cached when a turn ends, every token alike.

        A turn's own tokens are of age zero.
        """
        turns = len(self.recording.tokens)
        kept = self.trace.kept[:, :turns]
        born = np.repeat(np.arange(turns), [len(turn) for turn in self.recording.tokens])
        age = np.where(kept >= 0, np.arange(turns)[:, None] - born[kept], 0)
        return float(age.sum() / max(int((kept >= 0).sum()), 1))


def _held(trace: Trace, recording: Recording) -> Bools:
    """Whether each head held each token for the turn after each turn (H, T, N + 1)."""
    held = np.zeros((*trace.kept.shape[:2], recording.starts[-1] + 1), np.bool_)
    np.put_along_axis(held, trace.kept, True, axis=2)  # an empty slot's −1 is the column beyond
    if trace.policy.reads_afresh:  # what the next turn reads is its own to choose
        held[:, :-1] = held[:, 1:]
    return held


def recall(found: list[DemandResult], asked: Demands) -> Floats:
    """Share of each call's arguments that are met, in the mean over calls (H,), in [0, 1].

    The values of a dialogue state at one turn count as one call. NaN where there is none.
    """
    weights = asked.weights([answer.demand for answer in found])
    if not weights.any():
        heads = len(found[0].met) if found else 1
        return np.full(heads, np.nan, np.float32)
    met = np.array([answer.met for answer in found])
    return np.asarray(weights @ met, np.float32)
