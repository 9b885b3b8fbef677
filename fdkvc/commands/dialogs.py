"""``dialogs`` and ``capture``: replay real dialogs, and record what a model attends to in them."""

from __future__ import annotations

import hashlib
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import Any

from fdkvc.attention import SPEAKERS
from fdkvc.commands.console import (
    finish,
    print_results,
    progress,
    running,
    skipped_text,
    warn,
    warn_no_effect,
    without_library_warnings,
)
from fdkvc.corpora import capture as recorder
from fdkvc.corpora.formats import EXAMPLES, read_bytes, read_dialogs
from fdkvc.corpora.lexical import LexicalRecordings
from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.tools import read_schema, with_tools
from fdkvc.corpora.trace_file import read_trace_file, trace_bytes, trace_size
from fdkvc.corpora.transcripts import Transcript
from fdkvc.experiments.benchmark import check_baseline, default_baseline
from fdkvc.experiments.jobs import Progress
from fdkvc.experiments.model_shape import read_shape
from fdkvc.experiments.plan import PLAN_BUDGETS, dialog_lengths, plan_sentence
from fdkvc.experiments.replay import Replay, default_heads, replay_arguments
from fdkvc.explain.notes import missing_value_notes, not_read_notes, pinned_notes
from fdkvc.files.export import replay_files, replay_tables
from fdkvc.files.options import settings_from
from fdkvc.files.text import forgotten_text, plan_text, replay_text
from fdkvc.files.write import check_folder, write_files
from fdkvc.limits import MAX_DIALOG_FILE_BYTES, MAX_TRACE_BYTES
from fdkvc.policies import with_pinned_prompts
from fdkvc.run.sinks import PROTECT, RECALL_ONLY
from fdkvc.words import count


def dialogs(options: Namespace) -> None:
    """Replay dialogs or a trace file, and measure what the cache still holds."""
    shape = None if options.plan is None else read_shape(options.plan)
    if shape is not None and options.budgets is None:
        options.budgets = PLAN_BUDGETS
    settings = settings_from(Replay, options)
    if options.pin:
        settings = replace(settings, policies=with_pinned_prompts(settings.policies))
    baseline = options.baseline
    if baseline is None:
        baseline = default_baseline(settings.policies)
    check_baseline(baseline, settings.policies)
    if options.out is not None:
        check_folder(options.out)

    recordings, transcripts, file = read_recordings(options)
    with progress():
        first = recordings[0]  # computed on access, which takes long
    heads = len(first.heads)
    if options.heads is None:
        settings = replace(settings, heads=(default_heads(first),))
    warn_no_effect(settings.policies, speakers=SPEAKERS, words=True, heads=heads)
    for sentence in pinned_notes(transcripts, settings.policies, settings.budgets):
        warn(sentence)
    began = perf_counter()
    with running(options) as arguments:
        table, calls = replay_arguments(settings, recordings, **arguments)
    parts = [first.source, replay_text(table), *missing_value_notes(transcripts)]
    more = replay_tables(settings, recordings, table, calls, shape)
    if not calls.empty:
        lost = more["replay_sources.csv"], more["replay_forgotten.csv"]
        parts.append(forgotten_text(*lost, settings))
    if shape is not None:
        tokens = dialog_lengths(recordings)
        parts.append(plan_text(more["plan_budgets.csv"], shape))
        parts.append(plan_sentence(settings, table, more["plan.csv"], tokens, shape))
        parts += [RECALL_ONLY, PROTECT]
    files = {}
    if options.out is not None:
        about: dict[str, Any] = {"source": first.source, "file": file, "seed": options.seed}
        about |= {"name": options.trace or options.dialogs, "shape": shape, "more": more}
        seconds = perf_counter() - began
        files = replay_files(settings, table, baseline, **about, seconds=seconds)
    finish(options, files, "\n\n".join(parts))


@without_library_warnings()
def capture(options: Namespace) -> None:
    """Write a trace file of what a model attends to while it reads dialogs."""
    out = check_file(options.out, ".npz")
    check_folder(out.parent, [out.name])
    transcripts, _ = read_transcripts(options.dialogs, options.calls)
    model = recorder.load_capture_model(
        options.model, options.layer, options.heads, options.reads, options.surprisal
    )
    recordings, skipped = record_all(
        lambda each: [recorder.record(model, each)], transcripts, options.half
    )
    if not recordings:
        raise ValueError(skipped[0])
    write_files(out.parent, {out.name: trace_bytes(recordings, options.half)})
    first = recordings[0]
    tokens = sum(recording.starts[-1] for recording in recordings)
    text = (
        f"{first.source}: {count(len(recordings), 'dialog')}, {tokens} tokens, "
        f"{count(len(first.heads), 'head')} of {first.keys.shape[2]} dimensions"
    )
    print_results("\n\n".join(filter(None, [text, skipped_text(skipped)])), options.out)


def check_file(name: str, suffix: str) -> Path:
    """Return the path of ``--out``, after a check of how it ends."""
    path = Path(name)
    if path.suffix != suffix:
        raise ValueError(f"--out must name a file that ends in {suffix}, not {name!r}")
    return path


def read_transcripts(
    file: str | None, calls: bool = False, tools: str | None = None
) -> tuple[Sequence[Transcript], str]:
    """Return the dialogs of a file, by default the examples, and its SHA-256; warn of skipped ones.

    `tools` is the file of a schema, whose tools begin each dialog, or "" for those in the dialogs'
    file. The SHA-256 is then of both files. Tool calls are read as text if `calls`.
    """
    name = str(file or EXAMPLES / "dialogues.json")
    content = read_bytes(name, MAX_DIALOG_FILE_BYTES)
    with progress(f"Reading {Path(name).name}"):
        transcripts, skipped = read_dialogs(content, name, calls)
    if skipped:
        warn(skipped_text(skipped))
    for sentence in not_read_notes(transcripts):
        warn(sentence)
    if tools is not None:
        schema = read_bytes(tools, MAX_DIALOG_FILE_BYTES) if tools else b""
        known = read_schema(schema) if tools else None
        transcripts, too_long = with_tools(transcripts, known)
        if too_long:
            warn(skipped_text(too_long))
        if unlisted := sum(not each.tools_in_text for each in transcripts):
            warn(f"Read without tools, as their file lists none: {count(unlisted, 'dialog')}.")
        content += b"tools" + schema
    return transcripts, hashlib.sha256(content).hexdigest()


def read_recordings(options: Namespace) -> tuple[Sequence[Recording], Sequence[Transcript], str]:
    """Return the recordings to replay, their dialogs, and the SHA-256 of their file."""
    if options.trace is None:
        transcripts, file = read_transcripts(options.dialogs, options.calls, options.tools)
        return LexicalRecordings(transcripts, options.seed), transcripts, file
    if options.dialogs is not None:
        raise ValueError("--dialogs and --trace do not go together: give one of them")
    if options.calls:
        raise ValueError("--calls does not go with --trace: a trace holds what the model read")
    if options.tools is not None:
        raise ValueError("--tools does not go with --trace: a trace holds what the model read")
    content = read_bytes(options.trace, MAX_TRACE_BYTES)
    recordings = read_trace_file(BytesIO(content))
    transcripts = [each.transcript for each in recordings]
    for sentence in not_read_notes(transcripts):
        warn(sentence)
    return recordings, transcripts, hashlib.sha256(content).hexdigest()


def record_all(
    record: Callable[[Transcript], Sequence[Recording]],
    transcripts: Sequence[Transcript],
    half: bool = False,
) -> tuple[list[Recording], list[str]]:
    """Return the recordings that fit into one trace file, and why other dialogs are skipped."""
    began = perf_counter()
    recordings: list[Recording] = []
    skipped: list[str] = []
    total = None
    with progress() as on_progress:
        for done, transcript in enumerate(transcripts, start=1):
            try:
                found = record(transcript)
            except ValueError as error:
                skipped.append(str(error))
                found = []
            for each in found:
                size = trace_size(each, half)
                total = size if total is None else total + size
            try:
                if total is not None:
                    total.check()
            except ValueError as error:
                skipped.append(f"{transcript.name} and all after it: {error}")
                break
            recordings += found
            title = f"{done} of {len(transcripts)} dialogs"
            on_progress(Progress(done, len(transcripts), title, perf_counter() - began))
    return recordings, skipped
