"""``dialogs`` and ``capture``: replay real dialogs, and record what a model attends to in them."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from fdkvc.attention import SPEAKERS
from fdkvc.commands.console import (
    finish,
    print_results,
    progress,
    running,
    warn,
    warn_no_effect,
    without_library_warnings,
)
from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.trace_file import trace_bytes, trace_size
from fdkvc.experiments.benchmark import baseline_of
from fdkvc.experiments.checked import check_verdict
from fdkvc.experiments.jobs import Progress
from fdkvc.experiments.model_shape import read_shape
from fdkvc.experiments.plan import TARGET, judged_replay
from fdkvc.experiments.replay import Replay, default_heads, transcripts_of
from fdkvc.explain.notes import pinned_notes
from fdkvc.files.options import settings_from
from fdkvc.files.write import check_folder, write_files
from fdkvc.kinds.replay import ReplayRun
from fdkvc.kinds.sources import Sources, skipped_text
from fdkvc.lm.language_model import load_language_model
from fdkvc.policies import with_pinned_prompts
from fdkvc.words import count

NO_TRANSFORMERS = "install requirements-capture.txt, or the extra transformers"


def dialogs(options: Namespace) -> None:
    """Replay dialogs or a trace file, and measure what the cache still holds."""
    shape = None if options.plan is None else read_shape(options.plan)
    settings = settings_from(Replay, options)
    TARGET.check(options.target, "target")
    if options.pin:
        settings = replace(settings, policies=with_pinned_prompts(settings.policies))
    baseline = baseline_of(settings.policies, options.baseline)
    if options.out is not None:
        check_folder(options.out)
    if options.model is not None and shape is None:
        raise ValueError("--model checks the verdict of a plan: give --plan, too")
    model = None if options.model is None else load_language_model(options.model)

    recordings, digest = read_sources(options).read_recordings()
    with progress():
        first = recordings[0]  # computed on access, which takes long
    if shape is not None:
        policies = settings.policies if options.policies or options.pin else ()
        asked = judged_replay(recordings, policies, options.budgets or ())
        settings = replace(settings, policies=asked.policies, budgets=asked.budgets)
        baseline = baseline_of(settings.policies, options.baseline)
    heads = len(first.heads)
    if options.heads is None:
        settings = replace(settings, heads=(default_heads(first),))
    warn_no_effect(settings.policies, speakers=SPEAKERS, words=True, heads=heads)
    for sentence in pinned_notes(transcripts_of(recordings), settings.policies, settings.budgets):
        warn(sentence)
    about: dict[str, Any] = {"name": options.trace or options.dialogs, "digest": digest}
    about |= {"seed": options.seed, "baseline": baseline, "shape": shape}
    about["target"] = int(options.target) / 100
    with running(options) as how:
        run = ReplayRun.measure(settings, recordings, about, **how)
    if shape is not None and model is not None:
        judged, tokens = run.verdict(shape, run.target), run.tokens
        if model.tokens.note:
            warn(model.tokens.note)
        with running(options) as how:
            check = check_verdict(judged, tokens, model, transcripts_of(recordings), **how)
        run = replace(run, checked=check.sentence)
    finish(options, run)


@without_library_warnings()
def capture(options: Namespace) -> None:
    """Write a trace file of what a model attends to while it reads dialogs."""
    out = check_file(options.out, ".npz")
    try:
        from fdkvc.live.loop import load_live
        from fdkvc.live.recorded import record_layer
    except ImportError as error:
        raise ValueError(f"capture needs {error.name}: {NO_TRANSFORMERS}") from None
    transcripts, _ = read_sources(options).read_transcripts()
    model = load_live(options.model)
    if model.tokens.note:
        warn(model.tokens.note)
    began = perf_counter()
    recordings: list[Recording] = []
    skipped: list[str] = []
    total = None
    with progress() as on_progress:
        for done, transcript in enumerate(transcripts, start=1):
            try:
                recording = record_layer(model, transcript, options.layer, options.heads)
            except ValueError as error:
                skipped.append(str(error))
            else:
                size = trace_size(recording)
                total = size if total is None else total + size
                try:
                    total.check()
                except ValueError as error:
                    skipped.append(f"{transcript.name} and all after it: {error}")
                    break
                recordings.append(recording)
            title = f"{done} of {len(transcripts)} dialogs"
            on_progress(Progress(done, len(transcripts), title, perf_counter() - began))
    if not recordings:
        raise ValueError(skipped[0])
    write_files(out.parent, {out.name: trace_bytes(recordings)})
    first = recordings[0]
    tokens = sum(recording.starts[-1] for recording in recordings)
    text = (
        f"{first.source}: {count(len(recordings), 'dialog')}, {tokens} tokens, "
        f"{count(len(first.heads), 'head')} of {first.keys.shape[2]} dimensions"
    )
    print_results("\n\n".join(filter(None, [text, skipped_text(skipped)])), options.out)


def check_file(name: str, suffix: str) -> Path:
    """Return the path of ``--out``, after a check of how it ends and that it can be written."""
    path = Path(name)
    if path.suffix != suffix:
        raise ValueError(f"--out must name a file that ends in {suffix}, not {name!r}")
    check_folder(path.parent, [path.name])
    return path


def read_sources(options: Namespace) -> Sources:
    """Return what a command reads, with warnings on stderr."""
    return Sources.of(options, warn=warn, reading=progress)
