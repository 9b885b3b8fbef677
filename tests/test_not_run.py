"""The summary lists skipped tests and how to run them."""

from types import SimpleNamespace
from typing import Any

from conftest import pytest_terminal_summary


def summary(*skipped: tuple[str, str]) -> list[str]:
    """Return the summary for tests skipped for these reasons."""
    said: list[str] = []
    reports = [
        SimpleNamespace(nodeid=name, longrepr=("file.py", 1, f"Skipped: {reason}"))
        for name, reason in skipped
    ]
    reporter: Any = SimpleNamespace(
        getreports=lambda outcome: reports if outcome == "skipped" else [],
        section=said.append,
        line=said.append,
    )
    pytest_terminal_summary(reporter)
    return said


def test_each_reason_is_told_once_with_how_many_and_where() -> None:
    both = ("tests/test_a.py", "no torch"), ("tests/browser/test_b.py::test_1", "no Chromium")
    again = ("tests/test_a.py", "no torch"), ("tests/browser/test_b.py::test_2", "no Chromium")

    assert summary(*both, *again) == [  # of a file, every worker reports
        "not run",
        "2 of tests/browser/test_b.py: no Chromium",
        "1 of tests/test_a.py: no torch",
    ]


def test_where_all_was_run_nothing_is_said() -> None:
    assert summary() == []
