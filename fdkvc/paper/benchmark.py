"""Scenarios × policies × dialogs, in chunks, on any `concurrent.futures.Executor`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from time import perf_counter
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.cache import joined
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.limits import MAX_CHUNK_NUMBERS, MAX_RESULT_NUMBERS
from fdkvc.core.parameters import BUDGET, DIALOGS, SEED, check_count, check_values
from fdkvc.engine.metrics import (
    PROJECTED_ALIGNMENTS,
    adaptation,
    default_metrics,
    first_late_turn,
    metric_named,
    retention,
)
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Rule
from fdkvc.policies import PAPER_POLICIES, Policy, policy_named
from fdkvc.runs.jobs import Execution, Progress, one_blas_thread, run_jobs, worker_count
from fdkvc.runs.options import HELD, RUN_METRICS, RUN_POLICIES, number, option
from fdkvc.runs.workers import shared_workers
from fdkvc.synthetic.draw import build, draw, generate
from fdkvc.synthetic.scenarios import BENCHMARK_SCENARIOS, SCENARIOS, Scenario, World

CHUNK = 100
"""Dialogs that are drawn and simulated together: enough to keep NumPy busy, small in memory."""

MIN_CHUNK = 25
"""Fewest dialogs of a chunk when a small run is split among workers."""

COMPOSITE = "composite"
ADAPTATION = "adaptation"
TIMED = "mixed"
"""The scenario on which turns are timed; the paper names none."""

LATENCY_REPEATS = 15
"""Rounds of timing that count."""

Values = NDArray[np.float32]

PAPERS_METRICS = f"{RUN_METRICS}; default: the paper's three"


@dataclass(frozen=True)
class Benchmark:
    """What to run; raises a ValueError of one sentence for what cannot be run."""

    scenarios: tuple[Scenario, ...] = option(
        "scenarios to run; default: the paper's, and adaptation",
        default=tuple(SCENARIOS[key] for key in (*BENCHMARK_SCENARIOS, ADAPTATION)),
    )
    """The adaptation run is measured in turns to adapt, the others by late metrics."""

    policies: tuple[Policy, ...] = option(
        RUN_POLICIES, default=tuple(map(policy_named, PAPER_POLICIES))
    )
    dialogs: int = number(DIALOGS, "dialogs per scenario")
    seed: int = number(SEED, "random seed")
    budget: int = number(BUDGET, HELD)
    world: World = field(default_factory=World)
    metrics: tuple[str, ...] = option(PAPERS_METRICS, default_factory=default_metrics)

    series: bool = False
    """Whether to keep the values of every turn as well."""

    def __post_init__(self) -> None:
        for setting in (DIALOGS, SEED, BUDGET):
            setting.check(getattr(self, setting.name), setting.name)
        if not self.scenarios or not self.policies:
            raise ValueError("a benchmark needs at least one scenario and one policy")
        check_values("scenario", [scenario.key for scenario in self.scenarios])
        check_values("policy", self.names)
        check_values("metric", self.metrics)
        for key in self.metrics:
            metric_named(key)
        if self.numbers_of_a_dialog > MAX_CHUNK_NUMBERS:
            raise ValueError(
                f"a dialog takes {self.numbers_of_a_dialog:,} numbers while it runs, but at most "
                f"{MAX_CHUNK_NUMBERS:,} are allowed: give it fewer turns, tokens or dimensions"
            )
        # Results for each dialog and policy: late metrics, and with `series` every turn's.
        late = len(self.scenarios) * len(self.metrics)
        turns = (
            sum(len(scenario.schedule) for scenario in self.scenarios) if self.series else 0
        )
        result_count = (
            self.dialogs
            * len(self.policies)
            * (late + turns * (len(self.metrics) + len(Rule)))
        )
        if result_count > MAX_RESULT_NUMBERS:
            raise ValueError(
                f"the run has {result_count:,} results, but at most {MAX_RESULT_NUMBERS:,} are "
                "kept: ask for fewer dialogs, policies, scenarios or metrics"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The policies' names."""
        return tuple(policy.name for policy in self.policies)

    @property
    def numbers_of_a_dialog(self) -> int:
        """Numbers in memory while a dialog of the longest scenario runs under one policy."""
        # In this order: projections; of each token its embedding, its projected vectors and its
        # products with the query of each turn; the entries of each turn.
        turns = max(len(scenario.schedule) for scenario in self.scenarios)
        d = self.world.dimension
        h = self.world.head_dimension
        tokens = turns * self.world.tokens_per_turn
        return 3 * d * h + 2 * tokens * (d + h + turns) + 3 * turns * self.budget


@dataclass(frozen=True, eq=False)
class PolicyScores:
    """One policy's values on one scenario, one per dialog."""

    values: Mapping[str, Values]
    """Arrays of shape (n,) by name. ``late_…`` metrics, or for the adaptation run ``adaptation``
    (turns) and ``never`` (0, 1)."""
    series: Mapping[str, Values]
    """Arrays of shape (n, T) by name. If requested, for every turn: metrics other than
    `PROJECTED_ALIGNMENTS`, row states, and entries evicted by each rule (``evicted_…``)."""


@dataclass(frozen=True, eq=False)
class Results:
    """The results of a benchmark."""

    benchmark: Benchmark
    """What was to run."""
    measured: Mapping[str, Mapping[str, PolicyScores]]
    """By scenario key and policy name: of finished dialogs, in the order of their numbers."""
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether every dialog of every scenario was run."""
        finished = {self.dialogs(scenario.key) for scenario in self.benchmark.scenarios}
        return finished == {self.benchmark.dialogs}

    def dialogs(self, scenario: str) -> int:
        """Count the finished dialogs of a scenario."""
        for scores in self.measured.get(scenario, {}).values():
            for values in scores.values.values():
                return len(values)  # every policy and metric has as many
        return 0

    def values(self, scenario: str, policy: str, metric: str) -> Values | None:
        """Return one value per dialog (n,), or None where there is none.

        The scenario ``composite`` is the mean over the five benchmark scenarios of the dialogs of
        equal number, once all are complete.
        """
        return self._values.get((scenario, policy, metric))

    def pair(
        self, scenario: str, metric: str, policy: str, baseline: str
    ) -> tuple[Values, Values] | None:
        """Return the `values` of two policies, or None where one has none."""
        values = self.values(scenario, policy, metric)
        reference = self.values(scenario, baseline, metric)
        return None if values is None or reference is None else (values, reference)

    @cached_property
    def _values(self) -> dict[tuple[str, str, str], Values]:
        """All that `values` can return."""
        arrays = {}
        for scenario, by_policy in self.measured.items():
            for policy, scores in by_policy.items():
                for metric, values in scores.values.items():
                    # A metric may be undefined in a scenario, as recall is where no topic returns.
                    if not np.isnan(values).any():
                        arrays[scenario, policy, metric] = values
        # The composite: a mean over scenarios of the dialogs of equal number. A dictionary, not a
        # set, keeps the order.
        for policy, metric in {place[1:]: None for place in arrays}:
            rows = [arrays.get((key, policy, metric), ()) for key in BENCHMARK_SCENARIOS]
            if all(len(row) == self.benchmark.dialogs for row in rows):
                mean = np.mean(rows, axis=0, dtype=np.float64)
                arrays[COMPOSITE, policy, metric] = np.asarray(mean, np.float32)
        return arrays

    @cached_property
    def reported(self) -> tuple[str, ...]:
        """Keys of the scenarios with late metrics, and ``composite`` where available."""
        scenarios = tuple(key for key in self.measured if key != ADAPTATION)
        first = self.benchmark.policies[0].name
        late = late_metrics(self.benchmark)
        has_composite = any(self.values(COMPOSITE, first, name) is not None for name in late)
        return (*scenarios, COMPOSITE) if has_composite else scenarios


Chunk = dict[str, dict[str, PolicyScores]]
"""The scores of some dialogs: scenario key to policy name to PolicyScores."""


def run_job(benchmark: Benchmark, chunk: range) -> Chunk:
    """Run every policy on some dialogs of every scenario.

    A dialog's random numbers are the same in every scenario, so they are drawn once. Its results
    depend neither on its chunk nor on the number of cores.
    """
    one_blas_thread()  # also here: this may be a worker process
    draws = draw(benchmark.scenarios, chunk, benchmark.seed, benchmark.world)
    scores = {}
    for scenario in benchmark.scenarios:
        dialogs = build(scenario, draws, benchmark.world)
        scores[scenario.key] = _run_scenario(benchmark, scenario, dialogs)
    return scores


def _run_scenario(
    benchmark: Benchmark, scenario: Scenario, dialogs: DialogBatch
) -> dict[str, PolicyScores]:
    measured = {}
    metrics = [*map(metric_named, benchmark.metrics)]
    # Late metrics need the outputs of the late turns alone.
    outputs_from = 0 if benchmark.series else first_late_turn(dialogs)
    for policy in benchmark.policies:
        # Without the entries of each turn, which take far more memory than all metrics.
        trace = simulate(
            policy, dialogs, benchmark.budget, entries=False, outputs_from=outputs_from
        )
        if scenario.key == ADAPTATION:
            speed = adaptation(retention(trace, dialogs), dialogs)
            values = {"adaptation": speed.turns, "never": speed.never.astype(np.float32)}
        else:
            values = {metric.name: metric.late(trace, dialogs) for metric in metrics}
        series: dict[str, Values] = {}
        if benchmark.series:
            for metric in metrics:
                if metric.key not in PROJECTED_ALIGNMENTS:
                    series[metric.key] = metric.measure(trace, dialogs)
            series |= trace.state
            for rule, entries in trace.evicted.items():
                series[f"evicted_{rule}"] = entries.astype(np.float32)
        measured[policy.name] = PolicyScores(values, series)
    return measured


def start_workers(benchmark: Benchmark, workers: int | None = None) -> None:
    """Start the workers of `run_benchmark` ahead of time, if it will need any."""
    workers = worker_count({"workers": workers})
    if workers > 1 and len(jobs_of(benchmark, workers)) > 1:
        for submit in shared_workers(workers):
            submit(one_blas_thread)  # any call does: the worker imports this module for it


def jobs_of(benchmark: Benchmark, workers: int, chunk: int | None = None) -> list[range]:
    """Return the dialog numbers of each job, at most `chunk` of them if it is given."""
    if chunk is None:
        # Small runs are split so that every worker has work.
        chunk = min(CHUNK, max(MIN_CHUNK, -(-benchmark.dialogs // workers)))
    check_count("chunk", chunk)
    # Memory bounds it, too: a chunk's dialogs run together.
    chunk = min(chunk, max(1, MAX_CHUNK_NUMBERS // benchmark.numbers_of_a_dialog))
    numbers = range(benchmark.dialogs)
    return [numbers[first : first + chunk] for first in numbers[::chunk]]


def run_benchmark(
    benchmark: Benchmark, *, chunk: int | None = None, **execution: Unpack[Execution]
) -> Results:
    """Run a benchmark; the results depend only on its settings.

    A chunk has at most `chunk` dialogs, fewer where they are large or slow. Raises a ValueError if
    `workers` or `chunk` is below 1.
    """
    jobs = jobs_of(benchmark, worker_count(execution), chunk)
    began = perf_counter()
    chunks = run_jobs(partial(run_job, benchmark), jobs, **execution)
    measured = {}
    for scenario in benchmark.scenarios:
        # `pop` releases the parts of a scenario once they are joined: little is in memory twice.
        parts = [part.pop(scenario.key) for part in chunks]
        measured[scenario.key] = _join(parts)
    return Results(benchmark, measured, perf_counter() - began)


def _join(parts: Sequence[Mapping[str, PolicyScores]]) -> dict[str, PolicyScores]:
    scores = {}
    for policy in parts[0] if parts else ():
        values = joined([part[policy].values for part in parts])
        series = joined([part[policy].series for part in parts])
        scores[policy] = PolicyScores(values, series)
    return scores


def measure_latency(
    policies: Sequence[Policy],
    budget: int,
    seed: int,
    on_progress: Callable[[Progress], None] | None = None,
) -> dict[str, float]:
    """Return the milliseconds of a turn by policy name, the median over turns of one dialog.

    A turn is scores, eviction and output.
    Drawing, metrics, and the query-key products, which are computed once per dialog, are excluded.
    Policies alternate, so that a busy machine slows all alike; the first round is a warm-up.
    """
    dialog = generate(SCENARIOS[TIMED], 1, seed)
    began = perf_counter()
    times: dict[str, list[float]] = {}
    total = LATENCY_REPEATS + 1
    for finished_rounds in range(1, total + 1):
        for policy in policies:
            seconds = simulate(policy, dialog, budget, entries=False).seconds
            if finished_rounds > 1:  # the first is a warm-up
                times.setdefault(policy.name, []).extend(seconds)
        if on_progress is not None:
            title = f"{finished_rounds} of {total} rounds"
            on_progress(Progress(finished_rounds, total, title, perf_counter() - began))
    return {name: 1e3 * float(np.median(turns)) for name, turns in times.items()}


def matches_paper(benchmark: Benchmark) -> bool:
    """Return whether budget and world are the paper's."""
    return benchmark.budget == Benchmark.budget and benchmark.world == World()


def late_metrics(benchmark: Benchmark) -> list[str]:
    """Return the names of a benchmark's late metrics, such as late_retention."""
    return [metric_named(key).name for key in benchmark.metrics]
