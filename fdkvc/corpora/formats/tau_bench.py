"""Results of τ-bench: a list of trials, each with its chat messages in ``traj``.

Yao et al. 2024, *τ-bench: A Benchmark for Tool-Agent-User Interaction in Real-World Domains*
(``sierra-research/tau-bench``). Trials of a task form a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fdkvc.corpora.formats.base import Format
from fdkvc.corpora.formats.chat import transcript_of
from fdkvc.corpora.json_input import require
from fdkvc.corpora.transcripts import Transcript, clean_name


def read_trial(value: Mapping[str, Any], number: int, calls: bool = False) -> Iterator[Transcript]:
    """Read one trial of a task."""
    place = f"dialog {number}"
    task, name = task_and_name(value)
    yield transcript_of(require(value, "traj", list, place), name or None, place, calls, task)


def task_and_name(value: Mapping[str, Any]) -> tuple[str, str]:
    """Return the cluster and the name of a trial, empty if it has no task.

    Examples
    --------
    >>> task_and_name({"task_id": 3, "trial": 0})
    ('task 3', 'task 3, trial 0')
    """
    task, trial = value.get("task_id"), value.get("trial")
    if not isinstance(task, str | int):
        return "", ""
    cluster = clean_name(f"task {task}")
    return cluster, f"{cluster}, trial {trial}" if isinstance(trial, int) else cluster


FORMAT = Format(
    "tau-bench",
    "τ-bench results",
    ("json", "jsonl"),
    "traj",
    read_trial,
    "results of τ-bench (`sierra-research/tau-bench`, MIT)",
    demands="arguments of `tool_calls`",
)
