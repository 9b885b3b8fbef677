"""The smallest cache under each policy that holds what calls need, found by bisection.

1. Each policy begins in the middle of the sizes, and goes halfway between one that holds enough
   and one that does not.
2. The two halves of the clusters are searched as well, for ways that may be chosen, within what was
   tried for all: what is chosen on one is told of the other.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Unpack

import numpy as np
import pandas as pd

from fdkvc.conversations.arguments import CALL, CASE, MEAN
from fdkvc.conversations.replay import (
    Chunk,
    Replay,
    jobs_of,
    replay_arguments,
    replay_tables,
    run_chunks,
    run_job,
    transcripts_of,
    turn_tokens,
)
from fdkvc.core.attention import TOLERANCE
from fdkvc.core.recordings import Recording
from fdkvc.core.statistics import MIN_CLUSTERS
from fdkvc.core.transcripts import Transcript
from fdkvc.core.words import count
from fdkvc.engine.metrics import METRICS, Metric
from fdkvc.engine.summary import mean_by_cluster
from fdkvc.policies import Policy, read_policy, usable
from fdkvc.runs.jobs import Execution, Progress
from fdkvc.runs.workers import cores, shared_workers

LADDER = (0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, *(k / 20 for k in range(2, 18)))
"""Sizes to choose among, as shares of a dialog of the mean length: the last saves little."""

WITHOUT_CALLS = 0.25
"""The share of the text at which a model reads conversations whose words tell no size."""

REFUSED = "turns_refused"
"""The metric of what services would refuse."""

LEAST = 16
"""Tokens of the smallest size: the first ones that a model needs, and some more."""

VECTORS = frozenset(("keys", "values", "queries", "attention", "similarity"))
"""What a policy looks at that only a model computes."""

Tables = tuple[pd.DataFrame, pd.DataFrame]
"""As `replay_tables` returns them."""


@dataclass(frozen=True)
class Cases(Replay):
    """A replay of each policy at sizes of its own."""

    sizes: tuple[tuple[int, ...], ...] = ()
    """Those of each policy."""

    @property
    def cases(self) -> Iterable[tuple[Policy, int]]:
        """The policies with their sizes."""
        for policy, sizes in zip(self.policies, self.sizes, strict=True):
            yield from ((policy, size) for size in sizes)

    @property
    def measured(self) -> tuple[Metric, ...]:
        """Also whether services would take what stays, where text is read again."""
        if any(policy.reads_again for policy in self.policies):
            return (*super().measured, METRICS[REFUSED])
        return super().measured


def sees_vectors(policy: Policy) -> bool:
    """Whether a policy scores by vectors that only a model has: letters stand in for them."""
    return not VECTORS.isdisjoint(policy.looks_at)


def dialog_lengths(recordings: Sequence[Recording]) -> tuple[int, ...]:
    """Return the number of tokens of each dialog."""
    return tuple(map(sum, turn_tokens(recordings)))


def least_lengths(recordings: Sequence[Recording]) -> tuple[int, ...]:
    """Return the tokens of each dialog that stay where all results but the last three leave."""
    lengths = []
    for dialog, sizes in zip(transcripts_of(recordings), turn_tokens(recordings), strict=True):
        rows = zip(dialog.turns, sizes, strict=True)
        results = [size for turn, size in rows if turn.kind == "result"]
        lengths.append(sum(sizes) - sum(results[:-3]))
    return tuple(lengths)


def sizes_of(tokens: float) -> tuple[int, ...]:
    """Return the sizes to choose among for a dialog of so many tokens.

    Examples
    --------
    >>> sizes_of(1000)[:5], sizes_of(10)
    ((16, 20, 30, 40, 50), (16,))
    """
    sizes = set[int]()
    for share in LADDER:
        size = share * tokens
        rounded = round(size, -1) if size >= 1000 else round(size)
        sizes.add(max(LEAST, int(rounded)))
    return tuple(sorted(sizes))


def clusters_of(table: pd.DataFrame) -> "pd.Series[str]":
    """Return the cluster of each row; of fewer than `MIN_CLUSTERS`, each dialog counts as one."""
    return table.services if table.services.nunique() >= MIN_CLUSTERS else table.dialog


def size_without_calls(tokens: float) -> int:
    """Return the size at which a model reads dialogs without calls, of so many tokens each."""
    return max(1, round(WITHOUT_CALLS * tokens))


def halves_of(table: pd.DataFrame) -> dict[str, int]:
    """Return which half each dialog with calls is in; dialogs of one cluster are together."""
    dialogs = table[["dialog", "services"]].drop_duplicates("dialog")
    counts = [0, 0]
    halves = dict[str, int]()
    for _, rows in dialogs.groupby(clusters_of(dialogs), sort=False):
        half = int(counts[1] < counts[0])
        halves |= dict.fromkeys(rows.dialog, half)
        counts[half] += len(rows)
    return halves


def next_place(shares: Mapping[int, float], count: int, target: float) -> int | None:
    """Return which of so many sizes to try next, given what some keep; None once it is found.

    Examples
    --------
    >>> next_place({9: 0.5}, 20, 0.95), next_place({9: 0.5, 10: 0.99}, 20, 0.95)
    (14, None)
    """
    enough = smallest_enough(shares, target)
    high = count if enough is None else enough
    low = max((place for place in shares if place < high), default=-1)
    return None if high - low <= 1 else (low + high) // 2


def reaches(share: float, target: float) -> bool:
    """Whether a share is the target or above, but for rounding."""
    return share >= target - TOLERANCE


def smallest_enough(shares: Mapping[int, float], target: float) -> int | None:
    """Return the smallest size whose share is enough, as are those of all larger ones tried.

    Examples
    --------
    >>> smallest_enough({10: 0.96, 20: 0.9, 30: 0.97, 40: 1.0}, 0.95)
    30
    """
    smallest = None
    for size, share in sorted(shares.items(), reverse=True):
        if not reaches(share, target):
            break
        smallest = size
    return smallest


def find_sizes(
    settings: Replay,
    recordings: Sequence[Recording],
    target: float,
    **execution: Unpack[Execution],
) -> Tables:
    """Search the smallest size of each policy, over all dialogs; without calls, replay one size."""
    tokens = float(np.mean(dialog_lengths(recordings)))
    if not with_calls(transcripts_of(recordings)):
        size = size_without_calls(tokens)
        names = [policy.name for policy in usable(settings.policies)]
        return replay_arguments(
            cases_at(settings, dict.fromkeys(names, size)), recordings, **execution
        )
    chosen = {policy.name for policy in settings.policies if not sees_vectors(policy)}
    sizes = sizes_of(tokens)
    jobs = [*jobs_of(replace(settings, budgets=(sizes[-1],)), recordings)]
    return search(settings, jobs, target, sizes, chosen, **execution)


def start_workers(settings: Replay, recordings: Sequence[Recording]) -> None:
    """Start the workers of a search ahead of time, with some recordings that are soon replayed."""
    if cores() > 1:
        sizes = ((LEAST,),) * len(settings.policies)
        # As a search's jobs have them, so that a worker imports this module.
        cases = Cases(settings.policies, (LEAST,), settings.metrics, sizes=sizes)
        for submit in shared_workers(cores()):
            submit(run_job, cases, recordings)


def needed_values(arguments: pd.DataFrame) -> pd.DataFrame:
    """Return each value that a call needs, with whether all heads held it in the column `kept`."""
    return arguments[[*CASE, *CALL]].assign(kept=arguments.held >= 1)


def search(
    settings: Replay,
    jobs: Sequence[Sequence[Recording]],
    target: float,
    sizes: Sequence[int],
    halved: Collection[str],
    **execution: Unpack[Execution],
) -> Tables:
    """Replay each policy at the sizes that tell its smallest one; of those `halved`, of each half.

    Tables are as `replay_arguments` returns them, in the order of policies and sizes.
    """
    began = perf_counter()
    total = sum(map(len, jobs))
    policies = {policy.name: policy for policy in usable(settings.policies)}
    tried: dict[str, dict[int, pd.Series]] = {name: {} for name in policies}
    chunks: list[Chunk | None] = []
    # Known from the first round on: before it, each way has only the middle size to try.
    halves: list[list[str]] = []
    report = execution.pop("on_progress", None)
    cancelled = execution.get("cancelled")
    rounds = 0

    def progress(step: Progress) -> None:
        if report is not None:
            # Two more than all dialogs need, for what only one half of them needs.
            expected = max(len(sizes).bit_length() + 2, rounds + 1)
            work_done = rounds * step.total + step.finished_jobs
            title = (
                f"size {rounds + 1} of about {expected} for each of {len(policies)} ways to "
            )
            title += f"fit, in {count(total, 'conversation')}"
            work = expected * step.total
            report(Progress(work_done, work, title, perf_counter() - began))

    execution["on_progress"] = progress
    while cancelled is None or not cancelled.is_set():
        groups = {name: halves if name in halved else halves[:1] for name in policies}
        next_tries = next_sizes(tried, sizes, target, groups)
        if not next_tries:
            break
        ran = run_chunks(cases_at(settings, next_tries), jobs, **execution)
        chunks += ran
        values = needed_values(replay_tables(ran)[1])
        if values.empty:
            break
        halves = [[], [], []]  # all dialogs, then those of each half
        for name, half in halves_of(values).items():
            halves[0].append(name)
            halves[1 + half].append(name)
        for (policy, size), measured in values.groupby(CASE, sort=False):
            tried[str(policy)][sizes.index(size)] = measured.set_index("dialog").kept
        rounds += 1
    order = {name: number for number, name in enumerate(policies)}
    table, arguments = replay_tables(chunks)
    return _ordered(table, order), _ordered(arguments, order)


def next_sizes(
    tried: Mapping[str, Mapping[int, pd.Series]],
    sizes: Sequence[int],
    target: float,
    groups: Mapping[str, Sequence[list[str]]],
) -> dict[str, int]:
    """Return the size to try next of each policy whose smallest one is not known.

    `tried` has the values of dialogs, kept or not, by policy and place of a size. What is next for
    the first group of a policy's dialogs comes first, then what is next for another.
    """
    next_tries = {}
    for policy, values_by_place in tried.items():
        if not values_by_place:
            next_tries[policy] = sizes[len(sizes) // 2]
            continue
        for dialogs in filter(None, groups[policy]):
            shares = {}
            for tried_place, values in values_by_place.items():
                shares[tried_place] = values.loc[dialogs].mean()
            place = next_place(shares, len(sizes), target)
            if place is not None:
                next_tries[policy] = sizes[place]
                break
    return next_tries


def cases_at(settings: Replay, next_tries: Mapping[str, int]) -> Cases:
    """Return a replay of each of these policies at its size."""
    policies = tuple(map(read_policy, next_tries))
    budgets = tuple(sorted({*next_tries.values()}))
    sizes = tuple((size,) for size in next_tries.values())
    return Cases(policies, budgets, settings.metrics, sizes=sizes)


def _ordered(table: pd.DataFrame, order: Mapping[str, int]) -> pd.DataFrame:
    keys = pd.DataFrame({"policy": table.policy.map(order), "budget": table.budget})
    # Stable: dialogs stay in the order of the file.
    index = keys.sort_values(["policy", "budget"], kind="stable").index
    return table.loc[index].reset_index(drop=True)


def share_table(values: pd.DataFrame) -> pd.DataFrame:
    """Return the share that is kept by policy and budget, with its interval over clusters."""
    rows = []
    for case, of_case in values.groupby(CASE, sort=False):
        kept_values = of_case.kept.to_numpy(np.float64)
        rows.append(
            (*case, *mean_by_cluster(kept_values, of_case.services.tolist(), share=True))
        )
    return pd.DataFrame(rows, columns=[*CASE, *MEAN])


def kept_shares(values: pd.DataFrame) -> dict[int, float]:
    """Return the share of values that are kept, by size."""
    shares: Any = values.groupby("budget").kept.mean()
    return dict(shares.items())


def with_calls(texts: Sequence[Transcript]) -> list[Transcript]:
    """Return the dialogs with calls: one of each cluster, then a second of each, and so on."""
    cluster_counts = Counter[str]()
    ranked = list[tuple[int, int]]()
    for place, text in enumerate(texts):
        if any(demand.kind == "call" for demand in text.demands):
            ranked.append((cluster_counts[text.services], place))
            cluster_counts[text.services] += 1
    return [texts[place] for _, place in sorted(ranked)]
