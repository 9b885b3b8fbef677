"""Replays: the dialogs of a file under policies and budgets, as tidy tables.

Heads of a dialog are rows of one batch, and a dialog's value of a metric is the mean over them.
`jobs_of` groups dialogs into jobs, `run_job` simulates every case of a job, and `replay_tables`
makes the tables.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from fdkvc.conversations.lexical import LexicalRecordings
from fdkvc.core.attention import BLOCK
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.limits import MAX_KEPT_ENTRIES, MAX_TOKENS
from fdkvc.core.parameters import BUDGET, check_values
from fdkvc.core.recordings import Recording, stack_recordings
from fdkvc.core.transcripts import Transcript
from fdkvc.core.words import name_list
from fdkvc.engine.evidence import Evidence
from fdkvc.engine.metrics import METRICS, Metric, first_late_turn, metric_named, metrics_of
from fdkvc.engine.simulate import simulate, simulate_blocks
from fdkvc.policies import PAPER_POLICIES, Policy, policy_named
from fdkvc.runs.jobs import Execution, one_blas_thread, run_jobs, worker_count
from fdkvc.runs.options import RUN_METRICS, RUN_POLICIES, option

if TYPE_CHECKING:  # a help takes the settings alone
    import pandas as pd

BUDGETS = (32, 48, 64, 96, 128)
"""The default budgets."""

SIZE = replace(BUDGET, high=MAX_TOKENS)
"""A budget of a replay, up to the length of the longest dialog."""

Row = tuple[str, str, str, int, str, float]
Chunk = tuple[list[Row], list[tuple[Any, ...]]]
"""The rows of some dialogs in both tables of `replay_arguments`."""

CHUNK = 16
"""Most dialogs that are simulated together: with more it is hardly faster."""

CHUNK_NUMBERS = 2 * BLOCK
"""Most numbers in one array of dialogs that are simulated together: 32 MB."""

CASE = name_list("dialog services policy budget")
NEED = name_list("turn call call_number slot value source mentioned age")
REPLAYED = (*CASE, "metric", "value")
ARGUMENTS = (*CASE, *NEED, "held", "lost")


@dataclass(frozen=True)
class Replay:
    """What to run on every dialog; raises a ValueError for settings that cannot be run."""

    policies: tuple[Policy, ...] = option(
        f"{RUN_POLICIES} and random",
        default=tuple(map(policy_named, (*PAPER_POLICIES, "random"))),
    )
    budgets: tuple[int, ...] = option(
        f"budgets to run, each {SIZE.allowed(int)}", "N", default=BUDGETS
    )
    metrics: tuple[str, ...] = option(
        f"{RUN_METRICS}; added to the metrics of evidence", default=()
    )

    def __post_init__(self) -> None:
        check_values("budget", self.budgets, SIZE)
        for key in self.metrics:
            metric_named(key, "dialogs", "evidence")
        if not (self.budgets and self.policies):
            raise ValueError("a replay needs at least one policy and one budget")
        check_values("policy", [policy.name for policy in self.policies])
        check_values("metric", self.metrics)

    @property
    def cases(self) -> Iterable[tuple[Policy, int]]:
        """Every policy with every budget."""
        return product(self.policies, self.budgets)

    @property
    def measured(self) -> tuple[Metric, ...]:
        """The metrics of evidence, of text that is read again if any is, and the requested ones."""
        evidence = metrics_of("evidence", optional=False).values()
        extra_metrics = (
            ("tokens_reread",) if any(policy.reads_again for policy in self.policies) else ()
        )
        chosen = (METRICS[key] for key in (*extra_metrics, *self.metrics))
        return tuple(dict.fromkeys((*evidence, *chosen)))


def replay(
    settings: Replay, recordings: Sequence[Recording], **how: Unpack[Execution]
) -> pd.DataFrame:
    """Run every policy at every budget on every dialog.

    A dialog's numbers depend neither on other dialogs nor on workers. The recordings must have the
    same heads and dimensions, and different names.

    The table has columns `REPLAYED` and a row for each dialog, policy, budget and metric, the mean
    over heads, each of which evicts by itself unless the policy is of `Together`; NaN where a
    metric is undefined for a dialog. Raises a ValueError if the recordings differ in dimensions, or
    if `workers` is below 1.
    """
    return replay_arguments(settings, recordings, **how)[0]


def replay_arguments(
    settings: Replay, recordings: Sequence[Recording], **how: Unpack[Execution]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the table of `replay`, and one with every argument of every call.

    The second has columns `ARGUMENTS`: in `turn`, `call` needs the `value` that the turn
    `mentioned` gave last, in a span of the kind `source`. `call_number` is the index of the call in
    the dialog. `held` is the share of heads that still cached the value, and `lost` the first turn
    in which a head evicted it, −1 if all held it.
    """
    return replay_tables(run_chunks(settings, [*jobs_of(settings, recordings)], **how))


def run_chunks(
    settings: Replay, jobs: Sequence[Sequence[Recording]], **how: Unpack[Execution]
) -> list[Chunk | None]:
    """Run the jobs of `jobs_of`; a job in this process ends early if it is cancelled."""
    run = partial(run_job, settings)
    workers = worker_count(how)
    # An event cannot be sent to another process.
    if how.get("executor") is None and (workers == 1 or len(jobs) == 1):
        run = partial(run, cancelled=how.get("cancelled"))
    return run_jobs(run, jobs, **how)


def replay_tables(chunks: Iterable[Chunk | None]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables of `replay_arguments`, without chunks that were cancelled."""
    import pandas as pd

    finished_chunks = [*filter(None, chunks)]
    rows = [*chain.from_iterable(rows for rows, _ in finished_chunks)]
    arguments = [*chain.from_iterable(arguments for _, arguments in finished_chunks)]
    return pd.DataFrame(rows, columns=[*REPLAYED]), pd.DataFrame(
        arguments, columns=[*ARGUMENTS]
    )


def transcripts_of(recordings: Sequence[Recording]) -> Sequence[Transcript]:
    """Return the dialogs of recordings."""
    if isinstance(recordings, LexicalRecordings):  # which are computed on access
        return recordings.transcripts
    return [recording.transcript for recording in recordings]


def turn_tokens(recordings: Sequence[Recording]) -> Iterator[Sequence[int]]:
    """Yield the number of tokens of each turn of each dialog, without computing vectors."""
    if isinstance(recordings, LexicalRecordings):
        yield from recordings.sizes
    else:
        yield from ([*map(len, recording.tokens)] for recording in recordings)


def jobs_of(
    settings: Replay, recordings: Sequence[Recording]
) -> Iterator[Sequence[Recording]]:
    """Yield the recordings in order, each time as many as are small enough together.

    Dialogs of a batch are padded to the longest, the one with most turns, and the longest turn.
    """
    first = tokens = turns = widest = 0
    heads = len(recordings[0].heads)
    width = recordings[0].embeddings.shape[1]
    for index, turn_sizes in enumerate(turn_tokens(recordings)):
        needs = sum(turn_sizes), len(turn_sizes), max(turn_sizes)
        tokens, turns, widest = map(max, needs, (tokens, turns, widest))
        # The largest array: a number for each token and dimension or turn; or in one turn, for each
        # new token and entry.
        of_turn = widest * (widest + max(settings.budgets))
        numbers = max((tokens + 1) * max(width, turns), of_turn)
        count = index - first
        if count == CHUNK or (count and (count + 1) * heads * numbers > CHUNK_NUMBERS):
            yield recordings[first:index]
            first = index
            tokens, turns, widest = needs
    yield recordings[first:]


def run_job(
    settings: Replay, recordings: Sequence[Recording], cancelled: threading.Event | None = None
) -> Chunk | None:
    """Return the rows of some dialogs; None if cancelled before they are complete."""
    one_blas_thread()  # here too, since this may be another process
    cancelled = cancelled or threading.Event()
    if cancelled.is_set():  # before the batch is built, which takes long
        return None
    recordings = list(recordings)  # `LexicalRecordings` would compute them on each access
    dialogs = stack_recordings(recordings)
    heads = len(recordings[0].heads)
    # Outputs are computed only for metrics that need them, and only of late turns.
    late = [metric for metric in settings.measured if metric.needs == "dialogs"]
    outputs_from = first_late_turn(dialogs) if late else dialogs.turns
    results = []
    arguments = []
    needs = [*map(_calls_need, recordings)]
    for policy, budget in settings.cases:
        if cancelled.is_set():
            return None
        # A dialog too long for one array is alone in its job; metrics of outputs need the whole
        # run.
        turns = None if late or recordings[1:] else turns_at_once(policy, dialogs, budget)
        blocks = turns and partial(simulate_blocks, policy, dialogs, budget, turns)
        trace = simulate(
            policy,
            dialogs,
            budget,
            entries=False,
            outputs_from=outputs_from,
            stop=1 if blocks else None,
        )
        of_rows = {metric: metric.late(trace, dialogs) for metric in late}
        for index, recording in enumerate(recordings):
            dialog = recording.transcript
            rows = slice(index * heads, (index + 1) * heads)
            case = dialog.name, dialog.services, policy.name, budget
            of_dialog = replace(
                trace, kept_tokens=trace.kept_tokens[rows], peak=trace.peak[rows]
            )
            evidence = Evidence(of_dialog, recording, blocks or None)
            arguments += [(*case, *row) for row in _arguments(evidence, needs[index])]
            for metric in settings.measured:
                values = (
                    of_rows[metric][rows] if metric in of_rows else metric.measure(evidence)
                )
                results.append((*case, metric.name, float(np.mean(values))))
    return results, arguments


def turns_at_once(policy: Policy, dialogs: DialogBatch, budget: int) -> int | None:
    """Return how many turns of dialogs may be recorded at once, None for all."""
    entries: int = dialogs.rows * policy.capacity(budget, dialogs.keys.shape[1])
    if entries * dialogs.turns <= MAX_KEPT_ENTRIES:
        return None
    return max(1, MAX_KEPT_ENTRIES // entries)


def _arguments(
    evidence: Evidence, needs: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[Any, ...]]:
    """Yield the last columns of `ARGUMENTS` for each argument of a call."""
    for need, turns in zip(needs, evidence.lost, strict=True):
        if need:
            kept_share = float((turns < 0).mean())
            evicted = turns[turns >= 0]
            yield *need, kept_share, int(evicted.min()) if evicted.size else -1


def _calls_need(recording: Recording) -> list[tuple[Any, ...]]:
    """Return the columns `NEED` of each demand of a call, () for a demand of a dialog's state."""
    dialog = recording.transcript
    needs = []
    for demand, _ in recording.evidence:
        turn, start, _ = demand.mentions[-1]
        argument = demand.turn, demand.source, demand.call_number, demand.slot, demand.value
        mentioned = dialog.span_kind(turn, start), turn, demand.age
        needs.append((*argument, *mentioned) if demand.kind == "call" else ())
    return needs
