"""Replays: the dialogs of a file under policies and budgets, as tidy tables.

One row per dialog and metric; then means with intervals over clusters, paired differences,
and the mean of each cluster. Heads of a dialog are rows of one batch, and a dialog's value is their
mean. `BEST` is the upper bound of any cache of the same size.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Unpack

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdkvc.attention import BLOCK
from fdkvc.corpora.recordings import Recording, stack_recordings
from fdkvc.corpora.transcripts import TooLargeError
from fdkvc.experiments.jobs import (
    Execution,
    check_different,
    one_blas_thread,
    run_jobs,
    worker_count,
)
from fdkvc.experiments.statistics import cluster_interval, differences
from fdkvc.limits import MAX_TURN_TOKENS
from fdkvc.parameters import BUDGET, Field, check_count
from fdkvc.policies import PAPER_POLICIES, Policy, policy_named
from fdkvc.policies.together import Together
from fdkvc.run.bounds import most_evidence
from fdkvc.run.evidence import Evidence, lost_turns
from fdkvc.run.metrics import Metric, first_late_turn, late_metric, metric_named, metrics_of
from fdkvc.run.simulate import simulate
from fdkvc.words import count

BUDGETS = (32, 48, 64, 96, 128)
"""The default budgets."""

BEST = "best possible"
"""In the policy column: the exact maximum of evidence that a cache of this size could hold."""

TOO_LARGE = "not computed (too large)"

Row = tuple[str, str, str, str, int, str, float]

CHUNK = 16
"""Most dialogs that are simulated together: more are hardly faster."""

CHUNK_NUMBERS = BLOCK // 2
"""Numbers in one array of dialogs that are simulated together: 8 MB."""

HEADS = Field(
    "Heads",
    "Each head decides for itself; all heads decide together, by their mean score; or those that "
    "share keys decide together, as grouped-query attention requires.",
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


ARGUMENTS = (
    *("dialog", "services", "policy", "heads", "budget"),
    *("turn", "call", "call_number", "slot", "value", "source", "mentioned", "age", "held", "lost"),
)


@dataclass(frozen=True)
class Replay:
    """What to run on every dialog; refuses in one sentence what cannot be run."""

    policies: tuple[Policy, ...] = tuple(policy_named(key) for key in (*PAPER_POLICIES, "random"))
    """With different names."""
    budgets: tuple[int, ...] = BUDGETS
    heads: tuple[str, ...] = ("each",)
    """Whether each head decides for itself, all heads of a dialog together by their mean score, or
    those that share a KV head together."""
    metrics: tuple[str, ...] = ()
    """Keys of metrics beside those of evidence; see `fdkvc.run.metrics.metric_named`."""
    best: bool = True
    """Whether to compute the upper bound of any cache, too."""
    chunk: int | None = None
    """Longer turns are read in parts of so many tokens, with an eviction after each."""

    def __post_init__(self) -> None:
        for budget in self.budgets:
            BUDGET.check(budget, "budget")
        if self.chunk is not None:
            check_count("chunk", self.chunk, high=MAX_TURN_TOKENS)
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
        """The metrics of evidence, then the requested ones."""
        more = (metric_named(key, None) for key in self.metrics)
        return tuple(dict.fromkeys((*metrics_of("evidence", optional=False).values(), *more)))


def replay(
    settings: Replay, recordings: Sequence[Recording], **how: Unpack[Execution]
) -> pd.DataFrame:
    """Run every policy at every budget on every dialog.

    A dialog's numbers depend neither on other dialogs nor on workers. The recordings have the same
    heads and dimensions, and different names.

    Columns `REPLAYED`: a row per dialog, policy (or `BEST`), mode of the heads, budget and metric;
    NaN where a metric is undefined for a dialog. Raises a ValueError if the recordings differ in
    dimensions, or in how their heads share keys where that matters, or if `workers` is below 1.
    """
    return replay_arguments(settings, recordings, with_arguments=False, **how)[0]


def replay_arguments(
    settings: Replay,
    recordings: Sequence[Recording],
    *,
    with_arguments: bool = True,
    **how: Unpack[Execution],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Do as `replay` does, and return its table with that of every argument of every call.

    The second has columns `ARGUMENTS`: `call`, with a place among the dialog's, in `turn`, needs
    the `value` that turn `mentioned` gave last, in
    a span of the kind `source`; `held` is the share of heads that still cached it, and `lost` the
    turn that evicted it first in a head that did not, −1 if all held it. It is empty unless
    `with_arguments`.
    """
    workers = worker_count(how)
    jobs = [recordings[some] for some in _chunks(recordings, settings)]
    run = partial(_replay_chunk, settings, with_arguments)
    if how.get("executor") is None and (workers == 1 or len(jobs) == 1):
        run = partial(run, cancelled=how.get("cancelled"))  # an event stays in its process
    chunks = run_jobs(run, jobs, **how)
    tables = (
        pd.DataFrame([row for chunk in chunks if chunk for row in chunk[at]], columns=list(names))
        for at, names in enumerate((REPLAYED, ARGUMENTS))
    )
    return next(tables), next(tables)


def _chunks(recordings: Sequence[Recording], settings: Replay) -> Iterator[slice]:
    """Yield the recordings in order, as many at once as are small enough together."""
    first = tokens = turns = widest = 0
    for at, each in enumerate(recordings):
        part = settings.chunk or MAX_TURN_TOKENS
        turn_sizes = [len(turn) for turn in each.tokens]
        sizes = [min(part, size - low) for size in turn_sizes for low in range(0, size or 1, part)]
        own = sum(sizes), len(sizes), max(sizes)
        tokens, turns, widest = map(max, own, (tokens, turns, widest))
        # A token has a number per dimension and per turn, and in its turn one per cached entry.
        of_turn = widest * (widest + max(settings.budgets))
        numbers = max((tokens + 1) * max(each.embeddings.shape[1], turns), of_turn)
        count = at - first
        if count == CHUNK or (count and (count + 1) * len(each.heads) * numbers > CHUNK_NUMBERS):
            yield slice(first, at)
            first, (tokens, turns, widest) = at, own
    yield slice(first, len(recordings))


def default_heads(recording: Recording) -> str:
    """Return the default mode: heads that share keys decide together, if there are any."""
    sizes = set(recording.groups)
    return "kv" if len(sizes) == 1 < max(sizes) else HEADS.default


def deciders(mode: str, recordings: Sequence[Recording]) -> int:
    """Return how many heads decide together in a mode of `HEADS`.

    Raises a ValueError if the mode is "kv" and groups differ in size.
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
    settings: Replay,
    with_arguments: bool,
    recordings: Sequence[Recording],
    cancelled: threading.Event | None = None,
) -> tuple[list[Row], list[tuple[Any, ...]]] | None:
    """Return the rows of some dialogs; None if cancelled before they are complete."""
    one_blas_thread()  # here too, since this may be another process
    cancelled = cancelled or threading.Event()
    if cancelled.is_set():  # before the batch is built, which takes long
        return None
    recordings = list(recordings)  # which may compute them on access
    dialogs, heads = stack_recordings(recordings), len(recordings[0].heads)
    late = [metric for metric in settings.measured if metric.needs == "dialogs"]
    outputs_from = first_late_turn(dialogs) if late else dialogs.turns
    parts, last = dialogs, None
    if settings.chunk is not None:
        parts, last = dialogs.in_parts(settings.chunk)
        outputs_from = int(last[:, outputs_from].min()) if late else parts.turns
    found, arguments = [], []
    for policy, mode, budget in product(settings.policies, settings.heads, settings.budgets):
        if cancelled.is_set():
            return None
        deciding = Together(policy, deciders(mode, recordings)) if mode != "each" else policy
        trace = simulate(deciding, parts, budget, entries=False, outputs_from=outputs_from)
        if last is not None:
            trace = trace.of_whole_turns(last)
        of_rows = {metric: metric.late(trace, dialogs) for metric in late}
        for at, recording in enumerate(recordings):
            dialog, rows = recording.transcript, slice(at * heads, (at + 1) * heads)
            case = (dialog.name, dialog.services, policy.name, mode, budget)
            own = replace(trace, kept=trace.kept[rows], peak=trace.peak[rows])
            evidence = Evidence(own, recording)
            if with_arguments:
                arguments += [(*case, *row) for row in _arguments(evidence)]
            for metric in settings.measured:
                values = of_rows[metric][rows] if metric in of_rows else metric.measure(evidence)
                found.append((*case, metric.name, float(np.mean(values))))
    if settings.best:
        for row in _best(settings, recordings):
            if cancelled.is_set():
                return None
            found.append(row)
    return found, arguments


def _arguments(evidence: Evidence) -> Iterator[tuple[Any, ...]]:
    """Yield the last columns of `ARGUMENTS` for each argument of a call."""
    dialog, demands = evidence.recording.transcript, evidence.recording.evidence
    lost = lost_turns(evidence.trace, evidence.recording)
    for (demand, _), turns in zip(demands, lost, strict=True):
        if demand.kind == "call":
            turn, start, _ = demand.mentions[-1]
            what = demand.turn, demand.source, demand.call_number, demand.slot, demand.value
            held, gone = float((turns < 0).mean()), turns[turns >= 0]
            source = dialog.span_kind(turn, start)
            yield *what, source, turn, demand.age, held, int(gone.min()) if gone.size else -1


def _best(settings: Replay, recordings: Sequence[Recording]) -> Iterator[Row]:
    """Yield the upper bound of any cache, the same for each mode of the heads."""
    for recording, budget, metric in product(recordings, settings.budgets, settings.measured):
        if metric.demands is not None:
            dialog = recording.transcript
            try:
                most = most_evidence(recording, budget, metric.demands)
            except TooLargeError:
                most = float("nan")
            for mode in settings.heads:
                yield dialog.name, dialog.services, BEST, mode, budget, metric.name, most


def not_computed(replayed: pd.DataFrame) -> str:
    """Return where the best possible was too large to compute; empty if nowhere."""
    missing = replayed[_lacks_best(replayed)]
    if missing.empty:
        return ""
    budgets = ", ".join(map(str, sorted(missing.budget.unique())))
    dialogs = count(int(missing.dialog.nunique()), "dialog")
    return f"{BEST}: {TOO_LARGE} for {dialogs} at budget {budgets}; those means are left out"


def _lacks_best(replayed: pd.DataFrame) -> pd.Series[bool]:
    """Mark the rows of `BEST` that were not computed though the dialog demands evidence."""
    case = ["dialog", "budget", "metric"]
    best, defined = replayed.policy == BEST, replayed.value.notna()
    demanded = pd.MultiIndex.from_frame(replayed.loc[defined & ~best, case])
    return best & ~defined & pd.MultiIndex.from_frame(replayed[case]).isin(demanded)


def _defined(replayed: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a value, without a `BEST` that some dialogs lack."""
    missing = replayed[_lacks_best(replayed)]
    case = ["policy", "budget", "metric"]
    partial = pd.MultiIndex.from_frame(replayed[case]).isin(pd.MultiIndex.from_frame(missing[case]))
    return replayed[replayed.value.notna() & ~partial]


def replay_summary(replayed: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over dialogs of each metric with its 95 % interval over clusters.

    Columns `REPLAY_SUMMARY`, over the dialogs for which a metric is defined; none, no row. The
    interval is NaN for too few clusters.
    """
    rows = [
        (*key, *mean_over_services(group.value.to_numpy(), group.services.tolist(), share=share))
        for key, group in _groups(replayed)
        for share in [late_metric(key[3]).percent]
    ]
    return pd.DataFrame(rows, columns=list(REPLAY_SUMMARY))


def replay_services(replayed: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over the dialogs of each cluster, columns `REPLAY_SERVICES`."""
    by = [name for name in REPLAY_SERVICES if name not in ("n", "mean")]
    values = _defined(replayed).groupby(by, sort=False).value
    return values.agg(["size", "mean"]).reset_index().set_axis(list(REPLAY_SERVICES), axis=1)


def replay_paired(replayed: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Return the paired differences of every policy from a baseline over the same dialogs.

    Columns `REPLAY_PAIRED`; `significant` as `fdkvc.experiments.answers.answers_paired` has it.
    """
    rows = paired_rows(
        dict(_groups(replayed)),
        baseline,
        lambda group, values: mean_over_services(values, group.services.tolist()),
    )
    return pd.DataFrame(rows, columns=list(REPLAY_PAIRED))


def paired_rows(
    groups: Mapping[tuple[Any, ...], pd.DataFrame],
    baseline: str,
    mean: Callable[[pd.DataFrame, NDArray[np.float64]], tuple[Any, ...]],
) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each policy and case that the baseline has, too.

    `groups` are the dialogs' values by policy and case; a row has the case, both policies, the
    `mean` of the differences of a group, which ends with its interval, and whether that excludes 0.
    """
    for (policy, *case), group in groups.items():
        if policy != baseline and (baseline, *case) in groups:
            other = groups[baseline, *case]
            found = mean(group, differences(group.value.to_numpy(), other.value.to_numpy()))
            yield *case, policy, baseline, *found, excludes_zero(*found[-2:])


def mean_over_services(
    values: NDArray[np.float64],
    services: Sequence[str],
    weights: NDArray[np.float64] | None = None,
    *,
    share: bool = False,
) -> tuple[int, int, float, float, float]:
    """Return dialogs, clusters, and the weighted mean with its `cluster_interval`.

    That of a share ends at 0 and 1.
    """
    interval = cluster_interval(values, services, weights)
    low, high = np.clip(interval, 0, 1).tolist() if share else interval
    mean = float(np.average(values, weights=weights))
    return len(values), len(set(services)), mean, low, high


def excludes_zero(low: float, high: float) -> bool | None:
    """Return whether an interval excludes 0; None for NaN."""
    return None if np.isnan(low) else bool(low > 0 or high < 0)


def _groups(replayed: pd.DataFrame) -> Iterator[tuple[tuple[Any, ...], pd.DataFrame]]:
    """Yield the defined rows by policy, mode, budget and metric, in the order of the run."""
    by = ["policy", "heads", "budget", "metric"]
    yield from _defined(replayed).groupby(by, sort=False)
