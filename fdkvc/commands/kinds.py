"""The kinds of run; each is a `Run` in the ``results.py`` of its capability."""

from collections.abc import Mapping

from fdkvc.models.results import AnswersRun
from fdkvc.paper.results import BenchmarkRun, StudyRun, SweepRun
from fdkvc.runs.base import Run
from fdkvc.runs.record import Record, parse_run
from fdkvc.verdict.results import ReplayRun

KINDS: Mapping[str, type[Run]] = {
    run.kind: run for run in (BenchmarkRun, StudyRun, SweepRun, AnswersRun, ReplayRun)
}


def read_run(content: bytes | str) -> Record:
    """Read a ``run.json``; a ValueError names what is wrong and where."""
    types = {name: (run.settings_type, run.depends) for name, run in KINDS.items()}
    return parse_run(content, types)
