"""``dialogs``: replay real dialogs, and measure what the cache still holds."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from fdkvc.conversations.replay import Replay, default_heads, transcripts_of
from fdkvc.conversations.sources import Sources, read_sources
from fdkvc.core.attention import SPEAKERS
from fdkvc.core.recordings import Recording
from fdkvc.explain.notes import pinned_notes
from fdkvc.models.numpy.language_model import AnyModel, load_language_model
from fdkvc.policies import baseline_of, with_pinned_prompts
from fdkvc.runs.console import Running, finish, progress, running, warn, warn_no_effect
from fdkvc.runs.options import settings_from
from fdkvc.runs.write import check_folder
from fdkvc.verdict.checked import check_verdict
from fdkvc.verdict.model_shape import ModelShape, read_shape
from fdkvc.verdict.plan import TARGET, replay_settings
from fdkvc.verdict.results import ReplayRun


@dataclass(frozen=True)
class Dialogs:
    """The options of the command; a ValueError says what is wrong."""

    sources: Sources
    replay: Replay
    running: Running
    named: frozenset[str]
    """Options of the replay that are given: the dialogs choose the others."""
    plan: str | None = None
    """The model of a plan."""
    target: str = TARGET.default
    pin: bool = False
    baseline: str | None = None
    model: str | None = None
    """Which model checks a plan."""
    out: str | None = None

    def __post_init__(self) -> None:
        TARGET.check(self.target, "target")
        if self.pin:
            pinned = with_pinned_prompts(self.replay.policies)
            object.__setattr__(self, "replay", replace(self.replay, policies=pinned))
        baseline_of(self.replay.policies, self.baseline)
        if self.out is not None:
            check_folder(self.out)
        if self.model is not None and self.plan is None:
            raise ValueError("--model checks the verdict of a plan: give --plan, too")

    @cached_property
    def shape(self) -> ModelShape | None:
        """That of the plan's model."""
        return None if self.plan is None else read_shape(self.plan)


def dialogs(options: Namespace) -> None:
    """Replay dialogs or a trace file, and measure what the cache still holds."""
    named = {"policies": options.policies or options.pin, "budgets": options.budgets}
    named["heads"] = options.heads
    command = Dialogs(
        read_sources(options),
        settings_from(Replay, options),
        Running(options.workers, options.dask),
        frozenset(name for name, given in named.items() if given),
        plan=options.plan,
        target=options.target,
        pin=options.pin,
        baseline=options.baseline,
        model=options.model,
        out=options.out,
    )
    run_dialogs(command)


def run_dialogs(command: Dialogs) -> None:
    """Do what the command says."""
    shape = command.shape
    model = None if command.model is None else load_language_model(command.model)
    recordings, digest = command.sources.read_recordings()
    run = _replayed(command, recordings, digest)
    if shape is not None and model is not None:
        run = _checked(run, shape, model, command.running)
    finish(command.out, run)


def _replayed(command: Dialogs, recordings: Sequence[Recording], digest: str) -> ReplayRun:
    """Replay recordings, with a plan at the budgets that fit them."""
    with progress():
        first = recordings[0]  # computed on access, which takes long
    settings, shape = command.replay, command.shape
    if shape is not None:
        policies = settings.policies if "policies" in command.named else ()
        budgets = settings.budgets if "budgets" in command.named else ()
        compared = replay_settings(recordings, policies, budgets)
        settings = replace(settings, policies=compared.policies, budgets=compared.budgets)
    if "heads" not in command.named:
        settings = replace(settings, heads=(default_heads(first),))
    warn_no_effect(settings.policies, speakers=SPEAKERS, words=True, heads=len(first.heads))
    for sentence in pinned_notes(transcripts_of(recordings), settings.policies, settings.budgets):
        warn(sentence)
    sources = command.sources
    about = {
        "name": sources.trace or sources.dialogs,
        "digest": digest,
        "seed": sources.seed,
        "baseline": baseline_of(settings.policies, command.baseline),
        "shape": shape,
        "target": int(command.target) / 100,
    }
    with running(command.running) as how:
        return ReplayRun.measure(settings, recordings, about, **how)


def _checked(run: ReplayRun, shape: ModelShape, model: AnyModel, workers: Running) -> ReplayRun:
    """Return the run with what a model says of its verdict."""
    verdict, transcripts = run.verdict(shape, run.target), transcripts_of(run.recordings)
    if model.tokens.note:
        warn(model.tokens.note)
    with running(workers) as how:
        check = check_verdict(verdict, run.tokens, model, transcripts, **how)
    return replace(run, checked=check.sentence)
