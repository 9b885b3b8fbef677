"""``report`` and ``repeat``: share a run, and run it again."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fdkvc.commands.console import print_results, progress, running, warn
from fdkvc.commands.dialogs import check_file, read_sources
from fdkvc.corpora.formats import read_bytes
from fdkvc.corpora.recordings import Recording
from fdkvc.experiments.answers import Answers
from fdkvc.experiments.jobs import Execution
from fdkvc.experiments.replay import Replay
from fdkvc.experiments.study import run_study
from fdkvc.files.repeat import NOTHING_COMPARED, compare, comparison_sentence
from fdkvc.files.write import check_folder, write_files
from fdkvc.kinds import KINDS, read_run
from fdkvc.kinds.answers import AnswersRun, readable_dialogs, small_model
from fdkvc.kinds.replay import ReplayRun
from fdkvc.kinds.sources import Sources
from fdkvc.limits import MAX_RUN_JSON_BYTES
from fdkvc.report.document import (
    dialogs_report,
    papers_report,
    run_parts,
    study_report,
)
from fdkvc.report.gallery import gallery_files

REPORTED = ("benchmark", "study", "replay", "answers")
"""Kinds of run that have a report."""


def report(options: Namespace) -> None:
    """Write one HTML file, or the folder of a gallery."""
    if options.gallery is not None:
        _gallery(options)
        return
    if options.out is None:
        raise ValueError("report needs --out FILE or --gallery DIR")
    out = check_file(options.out, ".html")
    check_folder(out.parent, [out.name])
    with running(options) as how:
        text = _html(options, how)
    write_files(out.parent, {out.name: text})
    print_results(f"{len(text.encode()) / 1e6:.1f} MB", options.out)


def _gallery(options: Namespace) -> None:
    others = (options.out, options.run_file, options.dialogs, options.answers)
    if any(option is not None for option in others) or options.calls:
        raise ValueError("--gallery shows the shipped results: it takes no other options")
    check_folder(options.gallery)
    files = gallery_files(_lexical_recordings(None)[0])
    write_files(options.gallery, files)
    size = sum(len(text.encode()) for text in files.values())
    print_results(f"{len(files)} pages, {size / 1e6:.1f} MB", options.gallery)


def _html(options: Namespace, how: Execution) -> str:
    if options.dialogs is not None or options.answers is not None:
        if options.run_file is not None:
            raise ValueError("--run does not go with --dialogs or --answers: give one of them")
        if options.calls and options.dialogs is None:
            raise ValueError("--calls goes with --dialogs: a model that answers always reads calls")
        parts = []
        if options.dialogs is not None:
            recordings, digest = _lexical_recordings(options.dialogs, options.calls)
            parts = run_parts(ReplayRun.measure(Replay(), recordings, {"digest": digest}, **how))
        if options.answers is not None:
            settings = Answers(write_calls=True, proxies=True)
            model = small_model(None)
            dialogs, digest = readable_dialogs(model, _sources(options.answers))
            run = AnswersRun.measure(settings, model, dialogs, {"digest": digest}, **how)
            parts += run_parts(run)
        return dialogs_report(parts)
    if options.calls:
        raise ValueError("--calls goes with --dialogs: synthetic dialogs have no calls")
    recordings, _ = _lexical_recordings(None)
    if options.run_file is None:
        return papers_report(recordings)
    record = read_run(read_bytes(options.run_file, MAX_RUN_JSON_BYTES), *REPORTED)
    if record.kind in ("benchmark", "study"):
        return study_report(run_study(record.benchmark, **how), recordings)
    again = KINDS[record.kind].again(record, _sources(None), **how)
    return dialogs_report(run_parts(again))


def _sources(file: str | None, calls: bool = False) -> Sources:
    return Sources(file or None, calls=calls, warn=warn, reading=progress)


def _lexical_recordings(file: str | None, calls: bool = False) -> tuple[Sequence[Recording], str]:
    return _sources(file, calls).read_recordings()


def repeat(options: Namespace) -> None:
    """Run a ``run.json`` again and compare the numbers."""
    record = read_run(read_bytes(options.file, MAX_RUN_JSON_BYTES))
    if not record.digests:
        raise ValueError(NOTHING_COMPARED)
    with running(options) as how:
        run = KINDS[record.kind].again(record, read_sources(options), **how)
    record = record.with_folder(Path(options.file).parent)
    comparison = compare(record, run.files)
    sentence = comparison_sentence(record, comparison)
    if not comparison.repeated:
        raise ValueError(sentence)
    print_results(f"Repeated: {sentence}.")
