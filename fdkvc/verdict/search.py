"""The smallest cache under each policy that holds what calls need, found by bisection.

1. A few dialogs of different clusters are searched first, each policy from the middle of the sizes.
2. All dialogs are searched from there: a policy's next size is one step away, then as many as it
   is from where the search began, until it lies between one that holds enough and one that does
   not; then halfway between them.
3. The two halves of the clusters are searched as well, for ways that may be chosen: what is chosen
   on one is told of the other.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from time import perf_counter
from typing import Unpack

import numpy as np
import pandas as pd

from fdkvc.conversations.lexical import LEXICAL, LexicalRecordings
from fdkvc.conversations.replay import (
    Chunk,
    Replay,
    jobs_of,
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
from fdkvc.engine.metrics import METRICS, Metric
from fdkvc.policies import Policy, usable
from fdkvc.runs.jobs import Execution, Progress
from fdkvc.runs.workers import cores, shared_workers

LADDER = (0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, *(k / 20 for k in range(2, 18)))
"""Sizes to choose among, as shares of a dialog of the mean length: the last saves little."""

RECALL = "call_recall"
"""The metric that is to be enough."""

REFUSED = "turns_refused"
"""The metric of what services would refuse."""

LEAST = 16
"""Tokens of the smallest size: the first ones that a model needs, and some more."""

FIRST_TOKENS = 17_000
"""Tokens of the dialogs that are searched first."""

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
    def cases(self) -> Iterable[tuple[Policy, str, int]]:
        """The policies with their sizes, in the first mode of the heads."""
        for policy, sizes in zip(self.policies, self.sizes, strict=True):
            yield from ((policy, self.heads[0], size) for size in sizes)

    @property
    def measured(self) -> tuple[Metric, ...]:
        """Also whether services would take what stays, where text is read again."""
        if any(policy.reads_again for policy in self.policies):
            return (*super().measured, METRICS[REFUSED])
        return super().measured


def guessed(policy: Policy, source: str) -> bool:
    """Whether a policy scores by vectors that only a model has, and letters stand in for them."""
    return source.startswith(LEXICAL) and not VECTORS.isdisjoint(policy.looks_at)


def dialog_lengths(recordings: Sequence[Recording]) -> tuple[int, ...]:
    """Return the number of tokens of each dialog."""
    return tuple(map(sum, turn_tokens(recordings)))


def sizes_of(tokens: float) -> tuple[int, ...]:
    """Return the sizes to choose among for a dialog of so many tokens.

    Examples
    --------
    >>> sizes_of(1000)[:5], sizes_of(10)
    ((16, 20, 30, 40, 50), (16,))
    """
    sizes = (share * tokens for share in LADDER)
    whole = (round(size, -1) if size >= 1000 else round(size) for size in sizes)
    return tuple(sorted({max(LEAST, int(size)) for size in whole}))


def halves_of(table: pd.DataFrame) -> dict[str, int]:
    """Return which half each dialog with calls is in; dialogs of one cluster are together.

    Of fewer than `MIN_CLUSTERS` clusters, each dialog counts as one.
    """
    dialogs = table[["dialog", "services"]].drop_duplicates("dialog")
    unit = dialogs.services if dialogs.services.nunique() >= MIN_CLUSTERS else dialogs.dialog
    counts, halves = [0, 0], dict[str, int]()
    for _, rows in dialogs.groupby(unit, sort=False):
        half = int(counts[1] < counts[0])
        halves |= dict.fromkeys(rows.dialog, half)
        counts[half] += len(rows)
    return halves


def next_place(
    recalls: Mapping[int, float], count: int, target: float, start_place: int | None = None
) -> int | None:
    """Return which of so many sizes to try next, given the recall at some; None once it is found.

    It is looked for from the place that it is believed to be `near`, else halfway.

    Examples
    --------
    >>> [next_place({9: 0.5}, 20, 0.95, near) for near in (9, 7, None)]
    [10, 11, 14]
    >>> next_place({9: 0.5, 10: 0.99}, 20, 0.95) is None
    True
    """
    low = max((i for i, recall in recalls.items() if not reaches(recall, target)), default=-1)
    high = min((i for i in recalls if i > low), default=count)
    if high - low <= 1:
        return None
    if start_place is not None and high == count:
        return min(low + max(low - start_place, 1), count - 1)
    if start_place is not None and low < 0:
        return max(high - max(start_place - high, 1), 0)
    return (low + high) // 2


def reaches(recall: float, target: float) -> bool:
    """Whether a recall is the target or above, but for rounding."""
    return recall >= target - TOLERANCE


def find_sizes(
    settings: Replay,
    recordings: Sequence[Recording],
    target: float,
    on_first: Callable[[Tables, Sequence[Recording]], object] = lambda tables, recordings: None,
    **how: Unpack[Execution],
) -> Tables:
    """Search all dialogs, a few of them first; `on_first` gets these and their tables."""
    source = recordings[0].source
    chosen = {policy.name for policy in settings.policies if not guessed(policy, source)}
    places, first_search = first_dialogs(recordings), None
    if places and 2 * len(places) < len(recordings):
        first = selected(recordings, places)
        sizes = sizes_for(first)[::2]  # coarse, to be there soon
        # For several workers, each dialog alone.
        single_dialogs = [first[place : place + 1] for place in range(len(first))]
        tables = search(settings, single_dialogs, target, sizes, {}, (), **how)
        on_first(tables, first)
        first_search = tables, sizes
    sizes = sizes_for(recordings)
    guesses = guesses_from(first_search, sizes, target)
    jobs = [*jobs_of(replace(settings, budgets=(sizes[-1],)), recordings)]
    return search(settings, jobs, target, sizes, guesses, chosen, **how)


def start_workers(settings: Replay, recordings: Sequence[Recording]) -> None:
    """Start the workers of a search ahead of time, with some recordings that are soon replayed."""
    if cores() > 1:
        sizes = ((LEAST,),) * len(settings.policies)
        # As a search's jobs have them, so that a worker imports this module.
        cases = Cases(settings.policies, (LEAST,), settings.heads, settings.metrics, sizes=sizes)
        for submit in shared_workers(cores()):
            submit(run_job, cases, recordings)


def sizes_for(recordings: Sequence[Recording]) -> tuple[int, ...]:
    """Return the sizes to choose among for these dialogs."""
    return sizes_of(float(np.mean(dialog_lengths(recordings))))


def selected(recordings: Sequence[Recording], places: Sequence[int]) -> Sequence[Recording]:
    """Return the recordings at these places."""
    if isinstance(recordings, LexicalRecordings):
        return recordings.selected(places)
    return [recordings[place] for place in places]


def call_recalls(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of dialogs that have calls which need something."""
    return table[(table.metric == RECALL) & table.value.notna()]


def search(
    settings: Replay,
    jobs: Sequence[Sequence[Recording]],
    target: float,
    sizes: Sequence[int],
    guesses: Mapping[str, int],
    halved: Collection[str],
    **how: Unpack[Execution],
) -> Tables:
    """Replay each policy at the sizes that tell its smallest one; of those `halved`, of each half.

    `guesses` have the place among the sizes at which a policy begins, the middle by default. Tables
    are as `replay_arguments` returns them, in the order of policies and sizes.
    """
    began, total = perf_counter(), sum(map(len, jobs))
    policies = {policy.name: policy for policy in usable(settings.policies)}
    tried: dict[str, dict[int, pd.Series]] = {name: {} for name in policies}
    chunks: list[Chunk | None] = []
    halves: list[list[str]] = []
    report, cancelled, rounds = how.pop("on_progress", None), how.get("cancelled"), 0

    def progress(step: Progress) -> None:
        if report is not None:
            ahead = max(int(np.ceil(np.log2(len(sizes)))), rounds + 1) * total
            work_done, seconds = rounds * total + step.finished_jobs, perf_counter() - began
            title = f"size {rounds + 1}, dialogs: {total:,}, ways: {len(policies)}"
            report(Progress(work_done, max(ahead, work_done), title, seconds))

    how["on_progress"] = progress
    while cancelled is None or not cancelled.is_set():
        next_sizes = dict[str, tuple[int, ...]]()
        for policy, recalls_by_size in tried.items():
            groups = halves if policy in halved else halves[:1]
            places = _places(recalls_by_size, len(sizes), target, guesses.get(policy), groups)
            if places:
                next_sizes[policy] = tuple(sizes[place] for place in places)
        if not next_sizes:
            break
        at_sizes = tuple(next_sizes.values())
        chosen = tuple(policies[name] for name in next_sizes)
        budgets = tuple(sorted({*chain.from_iterable(at_sizes)}))
        cases = Cases(chosen, budgets, settings.heads[:1], settings.metrics, sizes=at_sizes)
        ran = run_chunks(cases, jobs, **how)
        chunks += ran
        measured = chain.from_iterable(rows for rows, _ in filter(None, ran))
        # Of the many metrics, the one needed.
        recall_rows = [row for row in measured if RECALL in row]
        recalls = call_recalls(replay_tables([(recall_rows, [])])[0])
        if recalls.empty:
            break
        of_half = halves_of(recalls)
        both = [[name for name, half in of_half.items() if half == number] for number in (0, 1)]
        halves = [[*of_half], *both]
        for (name, size), rows in recalls.groupby(["policy", "budget"], sort=False):
            tried[str(name)][sizes.index(size)] = rows.set_index("dialog").value
        rounds += 1
    order = {name: number for number, name in enumerate(policies)}
    table, arguments = replay_tables(chunks)
    return _ordered(table, order), _ordered(arguments, order)


def _places(
    tried: Mapping[int, pd.Series],
    count: int,
    target: float,
    start_place: int | None,
    halves: Sequence[list[str]],
) -> list[int]:
    """Return the next places for all dialogs, the first of the `halves`, or else for a half."""
    if not tried:
        return [count // 2 if start_place is None else start_place]
    for dialogs in filter(None, halves):
        means = {place: values.loc[dialogs].mean() for place, values in tried.items()}
        place = next_place(means, count, target, start_place)
        if place is not None:
            return [place]
        if dialogs is halves[0]:  # a half needs about as much
            start_place = min(
                (i for i, mean in means.items() if reaches(mean, target)), default=count - 1
            )
    return []


def _ordered(table: pd.DataFrame, order: Mapping[str, int]) -> pd.DataFrame:
    keys = pd.DataFrame({"policy": table.policy.map(order), "budget": table.budget})
    index = keys.sort_values(["policy", "budget"], kind="stable").index
    return table.loc[index].reset_index(drop=True)


def mean_recalls(rows: pd.DataFrame) -> dict[int, float]:
    """Return the mean over dialogs by size."""
    means = rows.groupby("budget").value.mean()
    return dict(zip(means.index.tolist(), means.tolist(), strict=True))


def with_calls(texts: Sequence[Transcript]) -> list[int]:
    """Return the places of dialogs with calls: one of each cluster, then a second, and so on."""
    cluster_counts, ranked = Counter[str](), list[tuple[int, int]]()
    for place, text in enumerate(texts):
        if any(demand.kind == "call" for demand in text.demands):
            ranked.append((cluster_counts[text.services], place))
            cluster_counts[text.services] += 1
    return [place for _, place in sorted(ranked)]


def first_dialogs(recordings: Sequence[Recording]) -> list[int]:
    """Return the places of a few dialogs with calls, of different clusters first; all if few."""
    texts = transcripts_of(recordings)
    room, chosen = FIRST_TOKENS, list[int]()
    for place in with_calls(texts):
        room -= sum(dialog_lengths(selected(recordings, [place])))
        if chosen and room < 0:
            break
        chosen.append(place)
    return sorted(chosen)


def guesses_from(
    first_search: tuple[Tables, Sequence[int]] | None, sizes: Sequence[int], target: float
) -> dict[str, int]:
    """Return at which size each policy begins, by what was found at other sizes, if anything."""
    guesses = dict[str, int]()
    if first_search is not None:
        (table, _), first_sizes = first_search
        for name, rows in call_recalls(table).groupby("policy", sort=False):
            sufficient = [
                size for size, mean in mean_recalls(rows).items() if reaches(mean, target)
            ]
            size = sizes[-1] / first_sizes[-1] * min(sufficient, default=first_sizes[-1])
            guesses[str(name)] = int(np.abs(np.log(np.array(sizes) / size)).argmin())
    return guesses
