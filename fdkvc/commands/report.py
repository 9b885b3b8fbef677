"""``report`` and ``repeat``: share a run, and run it again."""

import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fdkvc.commands.kinds import KINDS, read_run
from fdkvc.conversations.sources import Sources
from fdkvc.core.json_input import read_bytes
from fdkvc.core.limits import MAX_RUN_JSON_BYTES
from fdkvc.core.recordings import Recording
from fdkvc.models.report.answers import answers_report
from fdkvc.models.results import AnswersRun
from fdkvc.paper.report.document import papers_report, study_report
from fdkvc.paper.study import run_study
from fdkvc.runs.console import print_results, running
from fdkvc.runs.jobs import Execution
from fdkvc.runs.options import settings_from
from fdkvc.runs.repeat import compare, comparison_sentence
from fdkvc.runs.write import write_files
from fdkvc.verdict.report import replay_report
from fdkvc.verdict.results import ReplayRun

REPORTED = ("benchmark", "study", "replay", "answers")
"""Kinds of run that have a report."""


def report(options: Namespace) -> None:
    """Write one HTML file."""
    for name in ("model", "dialogs", "tools"):
        if options.run_file is None and getattr(options, name):
            raise ValueError(f"--{name} needs --run: it names the file that the run read")
    with running(options.workers) as execution:
        text = _html(options, execution)
    path = Path(options.out)
    write_files(path.parent, {path.name: text})
    print_results(f"{len(text.encode()) / 1e6:.1f} MB", options.out)


def _html(options: Namespace, execution: Execution) -> str:
    if options.run_file is None:
        return papers_report(_examples())
    record = read_run(read_bytes(options.run_file, MAX_RUN_JSON_BYTES), *REPORTED)
    if record.kind in ("benchmark", "study"):
        return study_report(run_study(record.benchmark, **execution), _examples())
    repeated_run = KINDS[record.kind].again(record, settings_from(Sources, options), **execution)
    if isinstance(repeated_run, AnswersRun):
        return answers_report(repeated_run)
    assert isinstance(repeated_run, ReplayRun)
    return replay_report(repeated_run)


def _examples() -> Sequence[Recording]:
    recordings, _ = Sources().read_recordings()
    return recordings


def repeat(options: Namespace) -> None:
    """Run a ``run.json`` again and compare the numbers."""
    record = read_run(read_bytes(options.file, MAX_RUN_JSON_BYTES))
    folder = Path(options.file).parent
    if not any(os.path.isfile(folder / Path(name).name) for name in record.files):
        raise ValueError("there is nothing to compare: none of the run's tables is beside run.json")
    with running(options.workers) as execution:
        run = KINDS[record.kind].again(record, settings_from(Sources, options), **execution)
    comparison = compare(record, run.files, folder)
    sentence = comparison_sentence(record, comparison)
    if comparison.differences:
        raise ValueError(sentence)
    print_results(f"Repeated: {sentence}.")
