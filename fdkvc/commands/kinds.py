"""The kinds of run; each is a `Run` in the ``results.py`` of its capability."""

from collections.abc import Mapping

from fdkvc.models.results import AnswersRun
from fdkvc.paper.results import BenchmarkRun, StudyRun, SweepRun
from fdkvc.runs.base import Run, read_record
from fdkvc.runs.record import Record
from fdkvc.verdict.results import ReplayRun

KINDS: Mapping[str, type[Run]] = {
    run.kind: run for run in (BenchmarkRun, StudyRun, SweepRun, AnswersRun, ReplayRun)
}


def read_run(content: bytes | str, *kinds: str) -> Record:
    """Read a ``run.json`` of the given kinds, by default of any of `KINDS`.

    Raises a ValueError that names what is wrong and where.
    """
    return read_record(content, KINDS.values(), kinds)
