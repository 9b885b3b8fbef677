"""No test asserts how long something takes: a slower machine is no less right."""

from __future__ import annotations

from pathlib import Path
from random import Random
from textwrap import dedent

import pytest

from tests.clocks import asserting_clocks, modules_of
from tests.growth import LINEAR, growth

ROOT = Path(__file__).parents[1]


def test_no_test_asserts_what_a_clock_says() -> None:
    """Count the work or measure its `growth`; times are for ``benchmarks``."""
    sources = modules_of(ROOT, ("conftest.py", "tests/**/*.py"))
    assert len(sources) > 100
    assert asserting_clocks(sources) == []


ASSERTING = [
    """
    import time
    def test():
        began = time.process_time()
        work()
        assert time.process_time() - began < 8
    """,
    """
    from time import perf_counter as clock
    def test():
        began = clock()
        work()
        seconds = clock() - began
        if seconds > 5:
            raise AssertionError("slow")
    """,
    """
    import time as t
    def test():
        deadline = t.monotonic() + 5
        work()
        assert t.monotonic() < deadline
    """,
    """
    from time import perf_counter
    def elapsed(work):
        began = perf_counter()
        work()
        return perf_counter() - began
    def test():
        times = [elapsed(work) for _ in range(3)]
        assert min(times) <= 0.5
    """,
    """
    import time
    import pytest
    @pytest.fixture
    def seconds():
        began = time.time()
        return lambda: time.time() - began
    def test(seconds):
        work()
        assert seconds() < 2
    """,
    """
    from datetime import datetime, timedelta
    def test():
        began = datetime.now()
        work()
        assert datetime.now() - began < timedelta(seconds=5)
    """,
    """
    import time
    class Stopwatch:
        def __enter__(self):
            self.began = time.perf_counter()
            return self
        def __exit__(self, *_):
            self.seconds = time.perf_counter() - self.began
    def test():
        with Stopwatch() as watch:
            work()
        assert watch.seconds < 1
    """,
    """
    import time
    def check(seconds, most):
        assert seconds < most
    def test():
        began = time.perf_counter()
        work()
        check(time.perf_counter() - began, 3)
    """,
    """
    import time
    import numpy as np
    def test():
        times = []
        for _ in range(5):
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        np.testing.assert_array_less(np.median(times), 0.1)
    """,
    """
    import timeit
    import pytest
    def test():
        fast = timeit.timeit(work, number=9) < 1
        fast or pytest.fail("slow")
    """,
    """
    import math
    import time
    def test():
        began = time.perf_counter()
        work()
        late = (took := time.perf_counter() - began) > 5
        assert math.isclose(took, 3) and not late
    """,
    """
    import time
    async def test():
        for size in sizes:
            began = time.monotonic_ns()
            await work(size)
            self.assertLess((time.monotonic_ns() - began) / 1e9, 2)
    """,
    """
    import resource
    def test():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        work()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        assert after - before < 4
    """,
]
FINE = [
    """
    import time
    def test():
        deadline = time.monotonic() + 60
        while not ready() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert ready()
    """,
    """
    import time
    def test():
        deadline = time.monotonic() + 60
        while not ready():
            assert time.monotonic() < deadline, "it never came"
            time.sleep(0.1)
    """,
    """
    import time
    def test():
        once, twice = [], []
        for times, size in ((once, 1), (twice, 2)):
            began = time.process_time()
            work(size)
            times.append(time.process_time() - began)
        assert min(twice) / min(once) < 3
        assert min(twice) < 3 * min(once)
    """,
    """
    import time
    def test(monkeypatch):
        seconds = iter(range(9))
        monkeypatch.setattr(module, "perf_counter", lambda: next(seconds))
        monkeypatch.setattr(module, "clock", time.monotonic)
        assert module.elapsed() == 1
    """,
    """
    from datetime import date
    def test(frame):
        assert frame.is_monotonic
        assert record["date"] == date(2024, 5, 1).isoformat()
        assert row.time < 5
    """,
    """
    import time
    def test():
        began = time.perf_counter()
        result = work()
        print(time.perf_counter() - began)
        assert result == 3
    """,
    """
    import time
    def first():
        seconds = time.perf_counter()
        return work(seconds)
    def test():
        seconds = 3
        assert work(seconds) == seconds
    """,
    """
    import time
    def test():
        times = {}
        for name in names:
            began = time.perf_counter()
            work(name)
            times[name] = time.perf_counter() - began
        assert times
        assert len(times) == 2
        for at, (name, seconds) in enumerate(times.items()):
            assert at < 2
            log(seconds)
        for name, seconds in zip(names, times.values()):
            assert name in names
    """,
    """
    import resource
    def test():
        assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 10**6
    """,
    """
    import time
    def test(tmp_path):
        file = tmp_path / f"{time.time_ns()}.json"
        write(file)
        assert file.exists()
        assert gate.wait(time.monotonic() + 60)
    """,
]


@pytest.mark.parametrize("source", ASSERTING)
def test_a_clock_that_a_test_asserts_is_found(source: str) -> None:
    assert asserting_clocks({"tests.a": dedent(source)})


def test_it_is_found_behind_a_function_of_another_module() -> None:
    helper, test = dedent(ASSERTING[3]).split("def test")
    test = f"from tests.helper import elapsed\ndef test{test}"
    assert asserting_clocks({"tests.a": test, "tests.helper": helper}) == ["tests.a:4"]


@pytest.mark.parametrize("source", FINE)
def test_a_clock_that_is_read_for_something_else_is_none(source: str) -> None:
    assert asserting_clocks({"tests.a": dedent(source)}) == []


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize(("power", "linear"), [(1, True), (2, False)])
def test_work_that_grows_with_the_square_is_told_from_work_that_does_not(
    power: int, linear: bool, seed: int
) -> None:
    """Also where a busy core makes any run take up to twice as long."""
    busy, now = Random(seed), [0.0]

    def work(count: int) -> None:
        now[0] += count**power * busy.uniform(1, 2)

    assert (growth(work, int, 100, lambda: now[0]) < LINEAR) is linear
