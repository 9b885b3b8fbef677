"""``dialogs``: replay real dialogs, and measure what the cache still holds."""

from argparse import Namespace
from dataclasses import replace
from typing import Any

from fdkvc.conversations.replay import Replay, default_heads, transcripts_of
from fdkvc.conversations.sources import read_sources
from fdkvc.core.attention import KINDS, SPEAKERS
from fdkvc.explain.notes import pinned_notes
from fdkvc.models.numpy.language_model import load_language_model
from fdkvc.policies import baseline_of, with_pinned_prompts
from fdkvc.runs.console import finish, progress, running, warn_each, warn_no_effect
from fdkvc.runs.options import settings_from
from fdkvc.verdict.checked import check_verdict
from fdkvc.verdict.model_shape import read_shape
from fdkvc.verdict.plan import TARGET, replay_settings
from fdkvc.verdict.results import ReplayRun


def dialogs(options: Namespace) -> None:
    """Replay dialogs or a trace file, and measure what the cache still holds."""
    shape = None if options.plan is None else read_shape(options.plan)
    settings = settings_from(Replay, options)
    TARGET.check(options.target, "target")
    if options.pin:
        settings = replace(settings, policies=with_pinned_prompts(settings.policies))
    baseline = baseline_of(settings.policies, options.baseline)
    if options.model is not None and shape is None:
        raise ValueError("--model checks the verdict of a plan: give --plan, too")
    model = None if options.model is None else load_language_model(options.model)

    recordings, digest = read_sources(options).read_recordings()
    with progress():
        first = recordings[0]  # computed on access, which takes long
    if shape is not None:
        policies = settings.policies if options.policies or options.pin else ()
        compared = replay_settings(recordings, policies, options.budgets or ())
        settings = replace(settings, policies=compared.policies, budgets=compared.budgets)
        baseline = baseline_of(settings.policies, options.baseline)
    heads = len(first.heads)
    if options.heads is None:
        settings = replace(settings, heads=(default_heads(first),))
    warn_no_effect(settings.policies, speakers=SPEAKERS, kinds=KINDS, words=True, heads=heads)
    warn_each(pinned_notes(transcripts_of(recordings), settings.policies, settings.budgets))
    about: dict[str, Any] = {"name": options.trace or options.dialogs, "digest": digest}
    about |= {"seed": options.seed, "baseline": baseline, "shape": shape}
    about["target"] = int(options.target) / 100
    with running(options) as how:
        run = ReplayRun.measure(settings, recordings, about, **how)
    if shape is not None and model is not None:
        verdict, tokens = run.verdict(shape, run.target), run.tokens
        warn_each([model.tokens.note])
        with running(options) as how:
            check = check_verdict(verdict, tokens, model, transcripts_of(recordings), **how)
        run = replace(run, checked=check.sentence)
    finish(options, run)
