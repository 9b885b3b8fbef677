"""The batch's speed, next to drawing its random numbers and the plain-Python oracle.

    python -m benchmarks.speed [--repetitions 5]

Measurements alternate in one run and medians are printed: on a shared machine, compare numbers of
one run only.
"""

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from time import perf_counter

import numpy as np
from numpy.random import SFC64, Generator

from benchmarks import ROOT, medians, options, run_alone
from fdkvc.paper.benchmark import Benchmark, measure_latency, run_benchmark
from fdkvc.runs.workers import cores
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import BENCHMARK_SCENARIOS, SCENARIOS

SAMPLE = 2  # dialogs of each scenario that the oracle runs

PAPER = Benchmark(scenarios=tuple(SCENARIOS[key] for key in BENCHMARK_SCENARIOS))


def normals(benchmark: Benchmark) -> int:
    """Count the standard normals that the dialogs of all scenarios contain."""
    world = benchmark.world
    token, matrices = world.dimension, 3 * world.dimension * world.head_dimension
    per_dialog = sum(
        len(scenario.schedule) * world.tokens_per_turn * token
        + len(scenario.topic_names) * token
        + matrices
        for scenario in benchmark.scenarios
    )
    return per_dialog * benchmark.dialogs


def draw_floor(benchmark: Benchmark, workers: int) -> None:
    """Draw as many normals on all threads, in reused memory."""
    share = normals(benchmark) // workers

    def work(seed: int) -> None:
        generator, block = Generator(SFC64(seed)), np.empty(2**20, np.float32)
        for _ in range(share // block.size):
            generator.standard_normal(out=block, dtype=np.float32)
        generator.standard_normal(out=block[: share % block.size], dtype=np.float32)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))


def oracle(benchmark: Benchmark, dialogs: int) -> None:
    """Run the plain-Python oracle of the tests on the first dialogs of every scenario."""
    from tests import reference

    for scenario in benchmark.scenarios:
        batch = generate(scenario, dialogs, benchmark.seed, benchmark.world)
        queries = batch.embeddings @ batch.projection("query")
        for row in range(dialogs):
            turns = [batch.new_tokens(turn)[row].tolist() for turn in range(batch.turns)]
            vectors = [
                array[row].tolist()
                for array in (batch.embeddings, queries, batch.keys, batch.values)
            ]
            for policy in benchmark.policies:
                defaults = reference.DEFAULTS[policy.key]
                settings = {
                    name: value for name, value in asdict(policy).items() if name in defaults
                }
                dialog = reference.Dialog(turns, *vectors)  # nothing is shared between policies
                reference.run(policy.key, settings, benchmark.budget, dialog)


def peak_memory(dialogs: int) -> float:
    """Return the peak memory in MB of a benchmark with these dialogs, of all its processes."""
    code = (
        "from dataclasses import replace; from benchmarks import peak_with_workers;"
        "from benchmarks.speed import PAPER, run_benchmark;"
        f"run_benchmark(replace(PAPER, dialogs={dialogs})); print(peak_with_workers())"
    )
    return float(run_alone(code))


def command() -> None:
    """Run the README's benchmark command, from the start of its process to its end."""
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "fdkvc", "benchmark", "--dialogs", "600", "--out", folder]
        subprocess.run(line, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


def main() -> None:
    """Measure and print."""
    repetitions = options(__doc__, repetitions=5).repetitions
    workers = cores()

    began = perf_counter()
    run_benchmark(PAPER)
    cold = perf_counter() - began
    calls = {
        "whole": lambda: run_benchmark(PAPER),
        "floor": lambda: draw_floor(PAPER, workers),
        "plain": lambda: oracle(PAPER, SAMPLE),
        "command": command,
    }
    measured, floor, sample, all_of_it = medians(calls, repetitions).values()
    slow = sample * PAPER.dialogs / SAMPLE
    print(
        f"1. whole benchmark, {workers} workers: {measured:.2f} s; {cold:.2f} s where they have "
        f"to be started first; the command, with its tables and latencies, {all_of_it:.2f} s"
    )
    print(
        f"2. drawing its normals, {workers} threads: {floor:.2f} s; (1) is {measured / floor:.2f} x"
    )
    print(f"3. plain-Python oracle, scaled up: {slow:.0f} s; (1) is {slow / measured:.0f} x faster")
    print("4. one turn: scores, eviction, output")
    latencies = measure_latency(PAPER.policies, PAPER.budget, PAPER.seed)
    fifo = next(iter(latencies.values()))
    for policy, milliseconds in latencies.items():
        ratio = milliseconds / fifo
        print(f"  {policy:8s} single {1e3 * milliseconds:6.1f} us, {ratio:.2f} x FIFO")
    small, large = peak_memory(PAPER.dialogs), peak_memory(10 * PAPER.dialogs)
    print(f"5. peak memory: {small:.0f} MB, with ten times the dialogs {large:.0f} MB")


if __name__ == "__main__":
    main()
