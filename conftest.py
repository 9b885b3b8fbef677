"""How all tests run: Hypothesis takes the same examples every time, and timing is brief.

`pytest --hypothesis-profile=explore` looks for new counterexamples. They run on all cores;
`pytest -n 0` runs them in one process. The summary says what was not run: why a test is skipped
says how to run it.
"""

import os
from collections import Counter
from collections.abc import Generator, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from fdkvc.experiments import benchmark, study

settings.register_profile("fast", max_examples=25, deadline=None, derandomize=True, database=None)
settings.register_profile("explore", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile("fast")


LONGEST = ("tests/test_readme.py", "tests/browser/")
"""What begins first, so that no core is left with it at the end."""

NEED_TRANSFORMERS = ("fdkvc/live/*.py", "fdkvc/conformance/of_transformers.py")
"""What cannot be imported without these packages, to look for examples in it."""

NO_TRANSFORMERS = "torch is not installed: get it with `pip install -r requirements-capture.txt`"
NOT_THERE = os.environ.get("FDKVC_REQUIRE_CAPTURE") != "1" and not (
    find_spec("torch") and find_spec("transformers")
)


class NotRun(pytest.File):
    """A file whose examples are skipped, as one test, so that each such file is named."""

    def collect(self) -> Iterator[pytest.Item]:
        yield Examples.from_parent(self, name="examples")


class Examples(pytest.Item):
    def runtest(self) -> NoReturn:
        pytest.skip(NO_TRANSFORMERS)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    found = yield
    if found and NOT_THERE and any(map(file_path.match, NEED_TRANSFORMERS)):
        # Not of its package, which pytest would import before the test.
        return [NotRun.from_parent(parent.session, path=file_path)]
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Hand out a file at a time, as its tests share what takes long; browser tests one by one."""
    scheduling = LoadScopeScheduling(config, log)
    scheduling._split_scope = _handed_out_with
    return scheduling


def _handed_out_with(name: str) -> str:
    return name if name.startswith("tests/browser/") else name.partition("::")[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not run, and why, however few words were asked for."""
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
    """Time every policy in one round, and few dialogs: no test looks at how long anything took."""
    one_round = partial(benchmark.measure_latency, repeats=1)
    with pytest.MonkeyPatch.context() as patch:
        for module in (benchmark, study):
            patch.setattr(module, "measure_latency", one_round)
        patch.setattr(study, "DIALOGS", 10)
        yield
