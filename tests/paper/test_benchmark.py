"""A benchmark's numbers depend on nothing but the benchmark, wherever its chunks run."""

import pickle
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from typing import Any

import pytest

from fdkvc.paper import benchmark as benchmark_module
from fdkvc.paper.benchmark import Benchmark, run_benchmark
from fdkvc.paper.results import BenchmarkRun
from fdkvc.paper.study import Study

BENCHMARK = Benchmark(dialogs=6, seed=3)


class Elsewhere(Executor):
    """Runs what arrives as bytes and answers in bytes, as another process does.

    Parameters
    ----------
    fate : function
        Told the number of a chunk, and its future, before it runs; may put an end to it.
    """

    def __init__(self, fate: Callable[[int, Future[Any]], object]) -> None:
        self.fate = fate
        self.submitted = 0

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.submitted += 1
        self.fate(self.submitted, future)
        if not future.done():
            run, args, kwargs = pickle.loads(pickle.dumps((function, args, kwargs)))
            future.set_result(pickle.loads(pickle.dumps(run(*args, **kwargs))))
        return future


def files_of(executor: Executor | None) -> dict[str, str]:
    results = run_benchmark(BENCHMARK, executor=executor, workers=2, chunk=2)
    files = BenchmarkRun(Study(results)).files
    return {name: text for name, text in files.items() if name.endswith(".csv")}


def lose_the_second(number: int, future: Future[Any]) -> None:
    if number == 2:
        future.set_exception(RuntimeError("its worker is gone"))


@pytest.mark.long
def test_the_numbers_are_the_same_from_another_process_that_loses_a_chunk() -> None:
    elsewhere = Elsewhere(lose_the_second)

    assert files_of(elsewhere) == files_of(None)
    assert elsewhere.submitted == 3


def test_a_mistake_in_a_chunk_is_not_taken_for_a_lost_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: object) -> None:
        raise LookupError("a mistake in the chunk")

    monkeypatch.setattr(benchmark_module, "run_job", mistaken)

    with pytest.raises(LookupError, match="a mistake in the chunk"):
        files_of(Elsewhere(lambda _, future: future.set_exception(LookupError("elsewhere"))))


def test_a_run_whose_chunks_were_cancelled_has_no_results() -> None:
    with pytest.raises(CancelledError):
        files_of(Elsewhere(lambda _, future: future.set_exception(CancelledError())))


@pytest.mark.long
def test_dialogs_that_are_large_run_fewer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Elsewhere(lambda *_: None)
    monkeypatch.setattr(benchmark_module, "MAX_CHUNK_NUMBERS", BENCHMARK.numbers_of_a_dialog)

    assert files_of(elsewhere) == files_of(None)
    assert elsewhere.submitted == BENCHMARK.dialogs
