"""The kinds of run, a file for each: how it runs, also again, and its tables, files and words."""

from collections.abc import Mapping

from fdkvc.files.record import Record
from fdkvc.kinds.answers import AnswersRun
from fdkvc.kinds.base import Run, read_record
from fdkvc.kinds.benchmark import BenchmarkRun, StudyRun
from fdkvc.kinds.replay import ReplayRun
from fdkvc.kinds.sweep import SweepRun

KINDS: Mapping[str, type[Run]] = {
    run.kind: run for run in (BenchmarkRun, StudyRun, SweepRun, AnswersRun, ReplayRun)
}


def read_run(content: bytes | str, *kinds: str) -> Record:
    """Read a ``run.json`` of the given kinds, by default of any of `KINDS`.

    Raises a ValueError that names what is wrong and where.
    """
    return read_record(content, KINDS.values(), kinds)
