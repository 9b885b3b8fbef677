"""``capture``: record what a model attends to while it reads dialogs."""

from argparse import Namespace
from pathlib import Path
from time import perf_counter

from fdkvc.conversations.sources import Sources, skipped_text
from fdkvc.conversations.trace_file import stored_bytes, trace_bytes
from fdkvc.core.limits import MAX_TRACE_BYTES
from fdkvc.core.parameters import check_most
from fdkvc.core.recordings import Recording
from fdkvc.core.words import count
from fdkvc.runs.console import print_results, progress, warn_each, without_library_warnings
from fdkvc.runs.jobs import Progress
from fdkvc.runs.options import settings_from
from fdkvc.runs.write import write_files

NO_TRANSFORMERS = "install requirements-capture.txt, or the extra transformers"


@without_library_warnings()
def capture(options: Namespace) -> None:
    """Write a trace file of what a model attends to while it reads dialogs."""
    try:
        from fdkvc.models.transformers.loop import load_live
        from fdkvc.models.transformers.recorded import record_layer
    except ImportError as error:
        raise ValueError(f"capture needs {error.name}: {NO_TRANSFORMERS}") from None
    transcripts, _ = settings_from(Sources, options).read_transcripts()
    model = load_live(options.model)
    warn_each([model.tokens.note])
    began = perf_counter()
    recordings: list[Recording] = []
    skipped: list[str] = []
    size = 0
    with progress() as on_progress:
        for passages_read, transcript in enumerate(transcripts, start=1):
            try:
                recording = record_layer(model, transcript, options.layer, options.heads)
            except ValueError as error:
                skipped.append(str(error))
            else:
                # Stop when the file would be too large: what fits is written.
                try:
                    size += stored_bytes(recording)
                    check_most("the trace has", size, "bytes", MAX_TRACE_BYTES)
                except ValueError as error:
                    skipped.append(f"{transcript.name} and all after it: {error}")
                    break
                recordings.append(recording)
            title = f"{passages_read} of {len(transcripts)} dialogs"
            on_progress(Progress(passages_read, len(transcripts), title, perf_counter() - began))
    if not recordings:
        raise ValueError(skipped[0])
    out_file = Path(options.out)
    write_files(out_file.parent, {out_file.name: trace_bytes(recordings)})
    first = recordings[0]
    tokens = sum(recording.starts[-1] for recording in recordings)
    text = (
        f"{first.source}: {count(len(recordings), 'dialog')}, {tokens:,} tokens, "
        f"{count(len(first.heads), 'head')} of {first.keys.shape[2]} dimensions"
    )
    print_results("\n\n".join(filter(None, [text, skipped_text(skipped)])), options.out)
