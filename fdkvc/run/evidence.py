"""Evidence: what a turn needs of what was said before, and whether the cache still holds it.

A demand is asked of what the turn before it left in the cache: a service call at turn t is met by
an argument if every token of at least one of its mentions is cached at the end of turn t − 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fdkvc.attention import Bools, Floats, Ints
from fdkvc.run.trace import Trace
from fdkvc.said.recordings import Recording
from fdkvc.said.transcripts import Demand

OLD = 6
"""Evidence is old when its last mention is more than this many turns before the demand."""


@dataclass(frozen=True, eq=False)
class Answer:
    """Whether a demand was met.

    Attributes
    ----------
    demand : Demand
    met : array (H,) of bool
        For each head, whether its cache held all of at least one mention.
    """

    demand: Demand
    met: Bools


def answers(trace: Trace, recording: Recording, first_row: int = 0) -> list[Answer]:
    """Ask every demand of a dialog of the caches of its heads.

    Parameters
    ----------
    trace : Trace
        From the first turn on.
    recording : Recording
    first_row : int
        The row of the trace that is the recording's first head.
    """
    held = _held(trace, recording, first_row)
    return [
        Answer(
            demand,
            np.logical_or.reduce(
                [held[:, demand.turn - 1, list(mention)].all(axis=1) for mention in mentions]
            ),
        )
        for demand, mentions in recording.evidence
    ]


def lost_in(trace: Trace, recording: Recording, first_row: int = 0) -> list[Ints]:
    """Return for each demand the turn that broke the last of its mentions (H,), −1 if it is met.

    Parameters
    ----------
    trace : Trace
        From the first turn on.
    recording : Recording
    first_row : int
        The row of the trace that is the recording's first head.

    Returns
    -------
    list of array (H,)
        In the order of `answers`. The turn of the last mention itself, where not even that turn
        left it whole.
    """
    held = _held(trace, recording, first_row)
    found = []
    for demand, mentions in recording.evidence:
        whole = np.logical_or.reduce(
            [held[:, : demand.turn, list(mention)].all(axis=2) for mention in mentions]
        )
        last_whole = np.where(whole, np.arange(demand.turn), -1).max(axis=1)
        lost = np.maximum(last_whole + 1, demand.mentions[-1].turn)
        found.append(np.where(whole[:, -1], -1, lost))
    return found


def _held(trace: Trace, recording: Recording, first_row: int) -> Bools:
    """Whether each head's cache held each token at the end of each turn (H, T, N + 1)."""
    kept = trace.kept[first_row : first_row + len(recording.heads)]
    held = np.zeros((*kept.shape[:2], recording.starts[-1] + 1), np.bool_)
    np.put_along_axis(held, kept, True, axis=2)  # an empty slot's −1 is the column beyond
    return held


def recall(found: list[Answer], kind: str, older_than: int = 0) -> Floats:
    """Share of each call's arguments that are met, in the mean over calls (H,), in [0, 1].

    The values of a dialogue state at one turn count as one call. NaN where there is none.

    Parameters
    ----------
    found : list of Answer
    kind : {"call", "state"}
    older_than : int
        Only what was last mentioned more turns ago than this.
    """
    calls: dict[tuple[int, str], list[Bools]] = {}
    for answer in found:
        demand = answer.demand
        if demand.kind == kind and demand.age > older_than:
            calls.setdefault((demand.turn, demand.source), []).append(answer.met)
    if not calls:
        heads = len(found[0].met) if found else 1
        return np.full(heads, np.nan, np.float32)
    shares = [np.mean(met, axis=0) for met in calls.values()]
    return np.asarray(np.mean(shares, axis=0), np.float32)


def token_age(trace: Trace, recording: Recording, first_row: int = 0) -> Floats:
    """Mean age in turns of what is cached at the end of each turn (H, T), every token alike.

    Zero for a turn's own tokens; NaN for an empty cache.
    """
    turns = len(recording.tokens)
    kept = trace.kept[first_row : first_row + len(recording.heads), :turns]
    born = np.repeat(np.arange(turns), [len(turn) for turn in recording.tokens])
    age = np.where(kept >= 0, np.arange(turns)[:, None] - born[kept], 0)
    cached = (kept >= 0).sum(axis=2)
    return np.asarray(age.sum(axis=2) / np.where(cached > 0, cached, np.nan), np.float32)


@dataclass(frozen=True)
class EvidenceMetric:
    """A number a dialog that is measured from its evidence.

    Attributes
    ----------
    key, label, help : str
    percent : bool
        Whether people read it as a percentage.
    """

    key: str
    label: str
    help: str
    percent: bool = True


EVIDENCE_METRICS: Mapping[str, EvidenceMetric] = {
    metric.key: metric
    for metric in (
        EvidenceMetric(
            "call_recall",
            "Call-argument recall",
            "Share of the arguments of a service call of which a complete mention is cached when "
            "the call is made, in the mean over calls.",
        ),
        EvidenceMetric(
            "old_call_recall",
            f"Call-argument recall, older than {OLD} turns",
            f"The same, of arguments that were last mentioned more than {OLD} turns before.",
        ),
        EvidenceMetric(
            "state_recall",
            "State-value recall",
            "Share of the values of the dialogue state of which a complete mention is cached after "
            "the turn.",
        ),
        EvidenceMetric(
            "old_state_recall",
            f"State-value recall, older than {OLD} turns",
            f"The same, of values that were last mentioned more than {OLD} turns before.",
        ),
        EvidenceMetric(
            "token_age",
            "Token-weighted age",
            "Mean age in turns of a cached token, over all tokens and turns.",
            percent=False,
        ),
    )
}
"""What is measured of every dialog, in the order in which people see it."""


def measure(trace: Trace, recording: Recording, first_row: int = 0) -> dict[str, float]:
    """Return every metric of `EVIDENCE_METRICS`, in the mean over heads; NaN where there is none.

    Parameters
    ----------
    trace : Trace
        From the first turn on.
    recording : Recording
    first_row : int
        The row of the trace that is the recording's first head.
    """
    found = answers(trace, recording, first_row)
    return {
        "call_recall": float(recall(found, "call").mean()),
        "old_call_recall": float(recall(found, "call", OLD).mean()),
        "state_recall": float(recall(found, "state").mean()),
        "old_state_recall": float(recall(found, "state", OLD).mean()),
        "token_age": _mean_age(trace, recording, first_row),
    }


def _mean_age(trace: Trace, recording: Recording, first_row: int) -> float:
    turns = len(recording.tokens)
    kept = trace.kept[first_row : first_row + len(recording.heads), :turns]
    cached = (kept >= 0).sum(axis=2)
    ages = np.nan_to_num(token_age(trace, recording, first_row))
    return float((ages * cached).sum() / max(int(cached.sum()), 1))
