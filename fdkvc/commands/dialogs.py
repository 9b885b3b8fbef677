"""``dialogs`` and ``capture``: replay real dialogs, and record what a model attends to in them."""

from __future__ import annotations

import hashlib
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from time import perf_counter

from fdkvc.commands.console import (
    finish,
    print_results,
    progress,
    skipped_text,
    warn,
    warn_no_effect,
)
from fdkvc.corpora import capture as recorder
from fdkvc.corpora.formats import EXAMPLES, read_bytes, read_dialogs
from fdkvc.corpora.lexical import LexicalRecordings
from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.trace_file import read_trace_file, trace_bytes, trace_size
from fdkvc.corpora.transcripts import Transcript
from fdkvc.experiments.benchmark import Progress, check_baseline, default_baseline
from fdkvc.experiments.replay import Replay, default_heads, replay
from fdkvc.explain.unsaid import unread, unsaid
from fdkvc.files.export import replay_files
from fdkvc.files.options import settings_from
from fdkvc.files.text import replay_text
from fdkvc.files.write import check_folder, write_files
from fdkvc.limits import MAX_DIALOG_FILE_BYTES, MAX_TRACE_BYTES
from fdkvc.words import count


def dialogs(options: Namespace) -> None:
    """Replay dialogs or a trace file, and measure what the cache still holds."""
    settings = settings_from(Replay, options)
    baseline = options.baseline
    if baseline is None:
        baseline = default_baseline(settings.policies)
    check_baseline(baseline, settings.policies)
    if options.out is not None:
        check_folder(options.out)

    recordings, transcripts, file = _recordings(options)
    source, heads = recordings[0].source, len(recordings[0].heads)
    if options.heads is None:
        settings = replace(settings, heads=(default_heads(recordings[0]),))
    warn_no_effect(settings.policies, speakers=True, words=True, heads=heads)
    began = perf_counter()
    with progress() as on_progress:
        table = replay(settings, recordings, on_progress=on_progress)
    about = {"source": source, "file": file, "seed": options.seed}
    files = {}
    if options.out is not None:
        seconds = perf_counter() - began
        files = replay_files(settings, table, baseline, **about, seconds=seconds)
    text = "\n\n".join([source, replay_text(table), *unsaid(transcripts)])
    finish(options, files, text)


def capture(options: Namespace) -> None:
    """Write a trace file of what a model attends to while it reads dialogs."""
    out = check_file(options.out, ".npz")
    recorder.READS.check(options.reads, "reads")
    recorder.SURPRISAL.check(options.surprisal, "surprisal")
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


def read_transcripts(file: str | None, calls: bool = False) -> tuple[Sequence[Transcript], str]:
    """Return the dialogs of a file, by default the examples, and its SHA-256; warn of skipped ones.

    Parameters
    ----------
    file : str, optional
    calls : bool
        Whether tool calls are read as text.
    """
    name = str(file or EXAMPLES / "dialogues.json")
    content = read_bytes(name, MAX_DIALOG_FILE_BYTES)
    transcripts, skipped = read_dialogs(content, name, calls)
    if skipped:
        warn(skipped_text(skipped))
    for sentence in unread(transcripts):
        warn(sentence)
    return transcripts, hashlib.sha256(content).hexdigest()


def _recordings(options: Namespace) -> tuple[Sequence[Recording], Sequence[Transcript], str]:
    """Return the recordings to replay, their dialogs, and the SHA-256 of their file."""
    if options.trace is None:
        transcripts, file = read_transcripts(options.dialogs, options.calls)
        return LexicalRecordings(transcripts, options.seed), transcripts, file
    if options.dialogs is not None:
        raise ValueError("--dialogs and --trace do not go together: give one of them")
    if options.calls:
        raise ValueError("--calls does not go with --trace: a trace holds what the model read")
    content = read_bytes(options.trace, MAX_TRACE_BYTES)
    recordings = read_trace_file(BytesIO(content))
    return recordings, [each.transcript for each in recordings], hashlib.sha256(content).hexdigest()


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
            if found and total is not None and total.refusal:
                skipped.append(f"{transcript.name} and all after it: {total.refusal}")
                break
            recordings += found
            title = f"{done} of {len(transcripts)} dialogs"
            on_progress(Progress(done, len(transcripts), title, perf_counter() - began))
    return recordings, skipped


COMMANDS = {"dialogs": dialogs, "capture": capture}
