"""``dialogs``: replay real dialogs, and measure what the cache still holds."""

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace

from fdkvc.conversations.replay import Replay, transcripts_of
from fdkvc.conversations.sources import Sources, skipped_text
from fdkvc.core.attention import SPEAKERS
from fdkvc.core.recordings import Recording
from fdkvc.explain.notes import kinds_in, missing_value_notes, pinned_notes
from fdkvc.models.loaded import NamedModel
from fdkvc.models.numpy.gguf_file import NO_MODEL
from fdkvc.models.numpy.language_model import AnyModel
from fdkvc.policies import baseline_of, usable, with_pinned_prompts
from fdkvc.runs.console import finish, running, warn_each, warn_no_effect
from fdkvc.runs.options import settings_from
from fdkvc.verdict.card import TARGET, ways_for
from fdkvc.verdict.checked import MINUTES, installed, read_card
from fdkvc.verdict.model_shape import read_shape
from fdkvc.verdict.results import ReplayRun, prompt_size
from fdkvc.verdict.today import TODAY_WAY, Today


def dialogs(options: Namespace) -> None:
    """Replay dialogs, and measure what the cache still holds."""
    # 1. What is wrong with the options, or with a model's files, is said before dialogs are read.
    sources = settings_from(Sources, options)
    settings = _settings(options)
    shape = None if options.plan is None else read_shape(options.plan)
    way = TODAY_WAY.default if options.today is None else options.today
    today = None if shape is None else Today.read(way)
    model = NamedModel(options.model).model
    encoding = NamedModel(options.tokens or options.model).encoding
    recordings, digest = sources.read_recordings()
    recordings, skipped = encoding.in_tokens(recordings)
    warn_each([skipped_text(skipped)])
    # 2. The replay, for a card at the sizes that each way needs, and what a model reads of it.
    settings, searched = _fitted(settings, options, recordings)
    run_fields = {
        "name": sources.dialogs,
        "digest": digest,
        "seed": sources.seed,
        "baseline": baseline_of(settings.policies, options.baseline),
        "shape": shape,
        "today": today,
        "target": int(options.target or TARGET.default) / 100,
        "searched": searched or None,
    }
    with running(options.workers) as execution:
        run = ReplayRun.measure(settings, recordings, run_fields, **execution)
    if run.card is not None:
        warn_each(missing_value_notes(transcripts_of(run.recordings)))
        if model is None:
            advice = "add --model smollm2" if installed() else NO_MODEL
            warn_each([f"No model read it: {advice}."])
        else:
            run = _read(run, model, options)
    # 3. What is printed and written.
    text = run.tables_text if options.tables else None
    if options.json:
        text = json.dumps(run.record, indent=2, ensure_ascii=False)
    finish(options, run, text)


def _settings(options: Namespace) -> Replay:
    """Return what to run; raise a ValueError for options that do not go together."""
    settings = settings_from(Replay, options)
    if options.target is not None:
        TARGET.check(options.target, "target")
    if options.pin:
        settings = replace(settings, policies=with_pinned_prompts(settings.policies))
    baseline_of(settings.policies, options.baseline)
    chosen = settings.policies if options.policies else ()
    if options.plan is not None and usable(chosen) != chosen:
        raise ValueError("--plan needs policies that a real cache can use: no full, no oracle")
    for name in ("model", "target", "today"):
        if options.plan is None and getattr(options, name) is not None:
            raise ValueError(f"--{name} is for a plan: give --plan, too")
    if options.minutes is not None:
        MINUTES.check(options.minutes, "--minutes")
        if options.model is None:
            raise ValueError("--minutes are for a model: give --model, too")
    if options.tables and options.json:
        raise ValueError("--tables and --json cannot be combined: give only one")
    return settings


def _fitted(
    settings: Replay, options: Namespace, recordings: Sequence[Recording]
) -> tuple[Replay, bool]:
    """Return settings in which dialogs choose what no option does, and if sizes are searched.

    Warn of what has no effect in these dialogs.
    """
    if options.plan is not None and not (options.policies or options.pin):
        settings = replace(settings, policies=ways_for(recordings))
    texts = transcripts_of(recordings)
    kinds = kinds_in(texts, calls=False)
    warn_no_effect(settings.policies, speakers=SPEAKERS, kinds=kinds, words=True)
    searched = options.plan is not None and not options.budgets
    budgets = () if searched else settings.budgets
    warn_each(pinned_notes(texts, settings.policies, budgets, prompt_size(recordings)))
    return settings, searched


def _read(run: ReplayRun, model: AnyModel, options: Namespace) -> ReplayRun:
    """Return a run with what a model reads for its card; warn if there is nothing to read."""
    assert run.card is not None
    warn_each([model.tokens.note])
    texts = transcripts_of(run.recordings)
    minutes = options.minutes or MINUTES.default
    with running(options.workers) as execution:
        try:
            read = read_card(run.card, model, texts, minutes, **execution)
            return run.with_read(read, **execution)
        except ValueError as error:
            warn_each([f"No model read it: {error}."])
            return run
