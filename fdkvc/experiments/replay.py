"""Replays: the dialogs of a file under policies and budgets, as tidy tables.

One row a dialog and number; then means with intervals over service clusters, paired differences,
and the means of each set. Heads of a dialog are rows of one batch, and a dialog's number is the
mean over them. Beside the policies stands what any cache of the same size could have reached.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdkvc.corpora.recordings import Recording, stack_recordings
from fdkvc.corpora.transcripts import TooLargeError
from fdkvc.experiments.benchmark import Progress, check_different
from fdkvc.experiments.statistics import cluster_interval, differences
from fdkvc.parameters import BUDGET, Field
from fdkvc.policies import PAPER_POLICIES, Policy, policy_named
from fdkvc.policies.together import Together
from fdkvc.run.bounds import most_evidence
from fdkvc.run.evidence import Evidence
from fdkvc.run.metrics import Metric, first_late_turn, metric_named, metrics_of
from fdkvc.run.simulate import simulate
from fdkvc.words import count

BUDGETS = (32, 48, 64, 96, 128)
"""Budgets to try when no others are asked for."""

BEST = "best possible"
"""Stands for a policy: the most evidence that a cache of this size could have held, exactly."""

TOO_LARGE = "not computed (too large)"
"""Stands for the most evidence where computing it takes too long."""

Row = tuple[str, str, str, str, int, str, float]

CHUNK_NUMBERS = 2**24
"""Numbers of one array that are simulated together: 64 MB."""

HEADS = Field(
    "Heads",
    "Each head decides for itself, or all of them together by their average score, or those that "
    "share a head of keys, as a cache of such a model must.",
    name="heads",
    default="each",
    choices={
        "each": "each decides for itself",
        "together": "all decide together",
        "kv": "those that share keys decide together",
    },
)

REPLAYED = ("dialog", "services", "policy", "heads", "budget", "metric", "value")
REPLAY_SUMMARY = (
    *("policy", "heads", "budget", "metric"),
    *("n", "services", "mean", "ci_low", "ci_high"),
)
REPLAY_PAIRED = (
    *("heads", "budget", "metric", "policy", "baseline"),
    *("n", "services", "mean_diff", "ci_low", "ci_high", "significant"),
)
REPLAY_SERVICES = ("services", "policy", "heads", "budget", "metric", "n", "mean")


@dataclass(frozen=True)
class Replay:
    """What to run on every dialog.

    Attributes
    ----------
    policies : tuple of Policy
        With different names.
    heads : tuple of {"each", "together", "kv"}
        Whether each head decides for itself, or all of a dialog once by the mean of their scores,
        or those that share a head of keys.
    metrics : tuple of str
        Keys of what is measured beside the evidence; see `fdkvc.run.metrics.metric_named`.
    best : bool
        Whether to say what any cache could have held, too.

    Raises
    ------
    ValueError
        In one sentence, for anything that cannot be run.
    """

    policies: tuple[Policy, ...] = tuple(policy_named(key) for key in (*PAPER_POLICIES, "random"))
    budgets: tuple[int, ...] = BUDGETS
    heads: tuple[str, ...] = ("each",)
    metrics: tuple[str, ...] = ()
    best: bool = True

    def __post_init__(self) -> None:
        for budget in self.budgets:
            BUDGET.check(budget, "budget")
        for mode in self.heads:
            HEADS.check(mode, "heads")
        for key in self.metrics:
            metric_named(key, None)
        if not (self.budgets and self.policies and self.heads):
            raise ValueError("a replay needs at least one policy and one budget")
        check_different("policy", [policy.name for policy in self.policies])
        check_different("budget", list(map(str, self.budgets)))
        check_different("heads", self.heads)
        check_different("metric", self.metrics)

    @property
    def measured(self) -> tuple[Metric, ...]:
        """The metrics of the evidence, then those asked for."""
        asked = (metric_named(key, None) for key in self.metrics)
        return tuple(dict.fromkeys((*metrics_of("evidence", optional=False).values(), *asked)))


def replay(
    settings: Replay,
    recordings: Sequence[Recording],
    *,
    on_progress: Callable[[Progress], None] | None = None,
    cancelled: threading.Event | None = None,
) -> pd.DataFrame:
    """Run every policy at every budget on every dialog.

    Parameters
    ----------
    recordings : sequence of Recording
        Of the same heads and dimensions, with different names.
    on_progress : function, optional
        Called after some dialogs, in the calling thread.
    cancelled : Event, optional
        Once set, nothing further begins; the dialogs that are finished are returned.

    Returns
    -------
    DataFrame
        Columns `REPLAYED`: a row for each dialog, policy, way of the heads, budget and metric, by
        its name; NaN where a metric says nothing of a dialog. The policy may be `BEST`.

    Raises
    ------
    ValueError
        If the recordings differ in dimensions, or in how their heads share keys where that matters.
    """
    began, done = perf_counter(), 0
    cancelled = cancelled or threading.Event()
    rows: list[Row] = []
    for chunk in _chunks(recordings):
        found = _replay_chunk(settings, chunk, cancelled)
        if found is None:
            break
        rows += found
        done += len(chunk)
        if on_progress is not None:
            title = f"{done} of {len(recordings)} dialogs"
            on_progress(Progress(done, len(recordings), title, perf_counter() - began))
    return pd.DataFrame(rows, columns=list(REPLAYED))


def _chunks(recordings: Sequence[Recording]) -> Iterator[list[Recording]]:
    """Yield the recordings in their order, as many at once as are small enough together."""
    chunk: list[Recording] = []
    for recording in recordings:
        together = [*chunk, recording]
        rows = sum(len(one.heads) for one in together)
        longest = max(len(one.embeddings) for one in together)
        turns = max(len(one.tokens) for one in together)
        # Beside its vectors, a token has a number for each turn.
        if chunk and rows * longest * max(recording.embeddings.shape[1], turns) > CHUNK_NUMBERS:
            yield chunk
            together = [recording]
        chunk = together
    if chunk:
        yield chunk


def default_heads(recording: Recording) -> str:
    """Return who decides where nobody has chosen: heads that share keys together, if there are."""
    sizes = set(recording.groups)
    return "kv" if len(sizes) == 1 < max(sizes) else HEADS.default


def deciders(mode: str, recordings: Sequence[Recording]) -> int:
    """Return how many heads of recordings decide at once in one of the ways of `HEADS`.

    Raises
    ------
    ValueError
        If heads are to decide with those that share their keys, and that is not the same number
        everywhere.
    """
    if mode != "kv":
        return 1 if mode == "each" else len(recordings[0].heads)
    sizes = {size for recording in recordings for size in recording.groups}
    if len(sizes) > 1:
        raise ValueError(
            "heads that share keys cannot decide together: there are groups of "
            f"{' and '.join(map(str, sorted(sizes)))} heads; record all heads of each group"
        )
    return sizes.pop()


def _replay_chunk(
    settings: Replay, recordings: Sequence[Recording], cancelled: threading.Event
) -> list[Row] | None:
    """Return the rows of some dialogs, None if it is cancelled before all are there."""
    if cancelled.is_set():  # making a batch of them takes long
        return None
    dialogs, heads = stack_recordings(recordings), len(recordings[0].heads)
    late = [metric for metric in settings.measured if metric.needs == "dialogs"]
    outputs_from = first_late_turn(dialogs) if late else dialogs.turns
    found = []
    for policy, mode, budget in product(settings.policies, settings.heads, settings.budgets):
        if cancelled.is_set():
            return None
        deciding = Together(policy, deciders(mode, recordings)) if mode != "each" else policy
        trace = simulate(deciding, dialogs, budget, entries=False, outputs_from=outputs_from)
        of_rows = {metric: metric.late(trace, dialogs) for metric in late}
        for at, recording in enumerate(recordings):
            said, rows = recording.transcript, slice(at * heads, (at + 1) * heads)
            case = (said.name, said.services, policy.name, mode, budget)
            evidence = Evidence(replace(trace, kept=trace.kept[rows]), recording)
            for metric in settings.measured:
                values = of_rows[metric][rows] if metric in of_rows else metric.measure(evidence)
                found.append((*case, metric.name, float(np.mean(values))))
    if settings.best:
        for row in _best(settings, recordings):
            if cancelled.is_set():
                return None
            found.append(row)
    return found


def _best(settings: Replay, recordings: Sequence[Recording]) -> Iterator[Row]:
    """Yield the most that any cache could have reached, the same for each way of the heads."""
    for recording, budget, metric in product(recordings, settings.budgets, settings.measured):
        if metric.demands is not None:
            said = recording.transcript
            try:
                most = most_evidence(recording, budget, metric.demands)
            except TooLargeError:
                most = float("nan")
            for mode in settings.heads:
                yield said.name, said.services, BEST, mode, budget, metric.name, most


def not_computed(replayed: pd.DataFrame) -> str:
    """Say where the best possible is missing because it takes too long; empty if nowhere."""
    lacking = replayed[_lacks_best(replayed)]
    if lacking.empty:
        return ""
    budgets = ", ".join(map(str, sorted(lacking.budget.unique())))
    dialogs = count(int(lacking.dialog.nunique()), "dialog")
    return f"{BEST}: {TOO_LARGE} for {dialogs} at budget {budgets}; those means are left out"


def _lacks_best(replayed: pd.DataFrame) -> pd.Series[bool]:
    """Whether each row is of a best possible that was not computed, though evidence is demanded."""
    case = ["dialog", "budget", "metric"]
    best, known = replayed.policy == BEST, replayed.value.notna()
    demanded = pd.MultiIndex.from_frame(replayed.loc[known & ~best, case])
    return best & ~known & pd.MultiIndex.from_frame(replayed[case]).isin(demanded)


def _known(replayed: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a value; none of a best possible that some dialogs lack."""
    lacking = replayed[_lacks_best(replayed)]
    case = ["policy", "budget", "metric"]
    partial = pd.MultiIndex.from_frame(replayed[case]).isin(pd.MultiIndex.from_frame(lacking[case]))
    return replayed[replayed.value.notna() & ~partial]


def replay_summary(replayed: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over dialogs of each number with its 95 % interval over service clusters.

    Parameters
    ----------
    replayed : DataFrame
        As `replay` returns it.

    Returns
    -------
    DataFrame
        Columns `REPLAY_SUMMARY`; dialogs that a metric says nothing of do not count, and a metric
        that says nothing of any has no row. The interval is NaN for too few service clusters.
    """
    rows = [
        (*key, *over_services(group.value.to_numpy(), group.services.tolist()))
        for key, group in _groups(replayed)
    ]
    return pd.DataFrame(rows, columns=list(REPLAY_SUMMARY))


def replay_services(replayed: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over the dialogs of each service cluster.

    Parameters
    ----------
    replayed : DataFrame
        As `replay` returns it.

    Returns
    -------
    DataFrame
        Columns `REPLAY_SERVICES`.
    """
    by = [name for name in REPLAY_SERVICES if name not in ("n", "mean")]
    known = _known(replayed).groupby(by, sort=False).value
    return known.agg(["size", "mean"]).reset_index().set_axis(list(REPLAY_SERVICES), axis=1)


def replay_paired(replayed: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Return the paired differences of every policy from a baseline over the same dialogs.

    Parameters
    ----------
    replayed : DataFrame
        As `replay` returns it.
    baseline : str
        The name of a policy that ran.

    Returns
    -------
    DataFrame
        Columns `REPLAY_PAIRED`; `significant` as `fdkvc.experiments.answers.answers_paired` has it.
    """
    groups = dict(_groups(replayed))
    rows = []
    for (policy, *case), group in groups.items():
        if policy != baseline and (baseline, *case) in groups:
            other = groups[baseline, *case]
            difference = differences(group.value.to_numpy(), other.value.to_numpy())
            told = over_services(difference, group.services.tolist())
            rows.append((*case, policy, baseline, *told, significant(*told[-2:])))
    return pd.DataFrame(rows, columns=list(REPLAY_PAIRED))


def over_services(
    values: NDArray[np.float64],
    services: Sequence[str],
    weights: NDArray[np.float64] | None = None,
) -> tuple[int, int, float, float, float]:
    """Return dialogs, service clusters, and the weighted mean with the ends of its interval.

    Parameters
    ----------
    values, services, weights
        As `fdkvc.experiments.statistics.cluster_interval` takes them.
    """
    interval = cluster_interval(values, services, weights)
    return len(values), len(set(services)), float(np.average(values, weights=weights)), *interval


def significant(low: float, high: float) -> bool | None:
    """Return whether an interval of a difference leaves 0 out; None where there is none."""
    return None if np.isnan(low) else bool(low > 0 or high < 0)


def _groups(replayed: pd.DataFrame) -> Iterator[tuple[tuple[Any, ...], pd.DataFrame]]:
    """Yield the known rows of each policy, way, budget and metric, in the order of the run.

    Whether a metric says something of a dialog does not depend on the policy.
    """
    by = ["policy", "heads", "budget", "metric"]
    yield from _known(replayed).groupby(by, sort=False)
