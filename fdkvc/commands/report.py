"""``report`` and ``repeat``: share a run, and run it again."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from fdkvc.commands.answers import language_model, measure, readable_dialogs
from fdkvc.commands.console import print_results, running
from fdkvc.commands.dialogs import check_file, read_recordings, read_transcripts
from fdkvc.corpora.formats import read_bytes
from fdkvc.corpora.lexical import LEXICAL, LexicalRecordings
from fdkvc.corpora.transcripts import CALLS_NOTE
from fdkvc.experiments.answers import FULL, Answers
from fdkvc.experiments.benchmark import default_baseline, run_benchmark
from fdkvc.experiments.replay import Replay, replay, replay_arguments
from fdkvc.experiments.study import run_study
from fdkvc.files.export import benchmark_files, replay_files, replay_tables
from fdkvc.files.record import Record, read_run
from fdkvc.files.repeat import NOTHING_COMPARED, compare, comparison_sentence
from fdkvc.files.studies import study_files, sweep_files
from fdkvc.files.write import check_folder, write_files
from fdkvc.limits import MAX_RUN_JSON_BYTES
from fdkvc.parameters import SEED
from fdkvc.report.document import (
    Part,
    answers_parts,
    dialogs_report,
    papers_report,
    replay_parts,
    study_report,
)
from fdkvc.report.gallery import gallery_files

OTHER_FILE = {
    "dialogs": "another file of dialogs: name it with --dialogs, or its tools with --tools",
    "trace": "another trace file: name it with --trace",
}


def report(options: Namespace) -> None:
    """Write one HTML file, or the folder of a gallery."""
    if options.gallery is not None:
        _gallery(options)
        return
    if options.out is None:
        raise ValueError("report needs --out FILE or --gallery DIR")
    out = check_file(options.out, ".html")
    check_folder(out.parent, [out.name])
    with running(options) as arguments:
        text = _html(options, arguments)
    write_files(out.parent, {out.name: text})
    print_results(f"{len(text.encode()) / 1e6:.1f} MB", options.out)


def _gallery(options: Namespace) -> None:
    others = (options.out, options.run_file, options.dialogs, options.answers)
    if any(each is not None for each in others) or options.calls:
        raise ValueError("--gallery shows the shipped results: it takes no other options")
    check_folder(options.gallery)
    files = gallery_files(_lexical_recordings(None)[0])
    write_files(options.gallery, files)
    size = sum(len(text.encode()) for text in files.values())
    print_results(f"{len(files)} pages, {size / 1e6:.1f} MB", options.gallery)


def _html(options: Namespace, arguments: Mapping[str, Any]) -> str:
    if options.dialogs is not None or options.answers is not None:
        if options.run_file is not None:
            raise ValueError("--run does not go with --dialogs or --answers: give one of them")
        if options.calls and options.dialogs is None:
            raise ValueError("--calls goes with --dialogs: a model that answers always reads calls")
        parts = []
        if options.dialogs is not None:
            parts = _replay_parts(options.dialogs, options.calls, arguments)
        if options.answers is not None:
            parts += _answers_parts(options.answers, arguments)
        return dialogs_report(parts)
    if options.calls:
        raise ValueError("--calls goes with --dialogs: synthetic dialogs have no calls")
    recordings, _ = _lexical_recordings(None)
    if options.run_file is None:
        return papers_report(recordings)
    record = read_run(read_bytes(options.run_file, MAX_RUN_JSON_BYTES), "benchmark", "study")
    return study_report(run_study(record.benchmark, **arguments), recordings)


def _replay_parts(file: str, calls: bool, arguments: Mapping[str, Any]) -> list[Part]:
    recordings, digest = _lexical_recordings(file, calls)
    settings, seed, began = Replay(), SEED.default, perf_counter()
    baseline = default_baseline(settings.policies)
    table = replay(settings, recordings, **arguments)
    about = {"source": recordings[0].source, "file": digest, "seed": seed}
    seconds = perf_counter() - began
    files = replay_files(settings, table, baseline, **about, seconds=seconds)
    return replay_parts(settings, table, recordings, baseline, seed, files)


def _lexical_recordings(file: str | None, calls: bool = False) -> tuple[LexicalRecordings, str]:
    transcripts, digest = read_transcripts(file, calls)
    return LexicalRecordings(transcripts, SEED.default), digest


def _answers_parts(file: str, arguments: Mapping[str, Any]) -> list[Part]:
    settings = Answers(write_calls=True, proxies=True)
    model, trained_on = language_model(None)
    dialogs = readable_dialogs(model, file)
    tables, files = measure(settings, FULL, model, dialogs, arguments, trained_on)
    return answers_parts(settings, tables, model.name, files)


def repeat(options: Namespace) -> None:
    """Run a ``run.json`` again and compare the numbers."""
    record = read_run(read_bytes(options.file, MAX_RUN_JSON_BYTES))
    if not record.digests:
        raise ValueError(NOTHING_COMPARED)
    with running(options) as arguments:
        files = _run_again(options, record, arguments)
    record = record.with_folder(Path(options.file).parent)
    comparison = compare(record, files)
    sentence = comparison_sentence(record, comparison)
    if not comparison.repeated:
        raise ValueError(sentence)
    print_results(f"Repeated: {sentence}.")


def _run_again(
    options: Namespace, record: Record, arguments: Mapping[str, Any]
) -> Mapping[str, str]:
    settings = record.settings
    match record.kind:
        case "answers":
            return _answer_again(options, record, arguments)
        case "replay":
            return _replay_again(options, record, arguments)
        case "study":
            return study_files(run_study(settings, **arguments))
        case "sweep":
            return sweep_files(settings, run_benchmark(settings.benchmark, **arguments))
        case _:
            return benchmark_files(run_benchmark(settings, **arguments), [], record.baseline)


def _replay_again(
    options: Namespace, record: Record, arguments: Mapping[str, Any]
) -> Mapping[str, str]:
    about, settings = record.about, record.settings
    source, name, shape = about["source"], about.get("name"), about.get("shape")
    traced = options.trace or not source.startswith(LEXICAL) or Path(name or "").suffix == ".npz"
    kind = "trace" if traced else "dialogs"
    if getattr(options, kind) is None and name is not None:
        if not Path(name).is_file():
            raise ValueError(
                f"the run read the file {name!r}, which is missing here: name it with --{kind}"
            )
        setattr(options, kind, name)
    options.seed, options.calls = about["seed"], not traced and CALLS_NOTE in source
    recordings, _, file = read_recordings(options)
    if file != about["file"]:
        raise ValueError(f"the run read {OTHER_FILE[kind]}")
    recordings = recordings[: max(1, about["dialogs"])]
    table, calls = replay_arguments(settings, recordings, **arguments)
    again: dict[str, Any] = {key: about.get(key) for key in ("name", "file", "seed", "shape")}
    again["source"] = recordings[0].source
    more = replay_tables(settings, recordings, table, calls, shape)
    return replay_files(settings, table, record.baseline, **again, seconds=0.0, more=more)


def _answer_again(
    options: Namespace, record: Record, arguments: Mapping[str, Any]
) -> Mapping[str, str]:
    model, trained_on = language_model(options.model)
    if model.digest != record.about["model"].get("digest"):
        raise ValueError("the run used another model: name its folder with --model")
    dialogs = readable_dialogs(model, options.dialogs, options.tools)
    if dialogs[1] != record.about["file"]:
        raise ValueError(f"the run read {OTHER_FILE['dialogs']}")
    return measure(record.settings, record.baseline, model, dialogs, arguments, trained_on)[1]
