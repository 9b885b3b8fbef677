"""``dialogs``: replay real dialogs, and measure what the cache still holds."""

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property

from fdkvc.conversations.replay import Replay, default_heads, transcripts_of
from fdkvc.conversations.sources import Sources, read_sources, skipped_text
from fdkvc.core.attention import SPEAKERS
from fdkvc.core.parameters import check_count
from fdkvc.core.recordings import Recording
from fdkvc.explain.notes import kinds_in, missing_value_notes, pinned_notes
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.models.numpy.language_model import AnyModel, load_language_model
from fdkvc.policies import baseline_of, with_pinned_prompts
from fdkvc.runs.console import Running, print_results, progress, running, warn_each, warn_no_effect
from fdkvc.runs.options import settings_from
from fdkvc.runs.write import write_files
from fdkvc.verdict.checked import SAMPLE_TOKENS, read_card
from fdkvc.verdict.model_shape import ModelShape, read_shape
from fdkvc.verdict.plan import TARGET, Card, ModelRead, ways_for
from fdkvc.verdict.results import ReplayRun, in_tokens


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
    """Recall that it is to reach, in percent."""
    pin: bool = False
    baseline: str | None = None
    read: int | None = None
    """Tokens of the dialogs that it reads."""
    out: str | None = None
    tables: bool = False
    """Whether to print all tables."""
    json: bool = False
    """Whether to print what a script reads."""

    def __post_init__(self) -> None:
        TARGET.check(self.target, "target")
        if self.pin:
            pinned = with_pinned_prompts(self.replay.policies)
            object.__setattr__(self, "replay", replace(self.replay, policies=pinned))
        baseline_of(self.replay.policies, self.baseline)
        if self.sources.model is not None and self.plan is None:
            raise ValueError("--model reads the ways of a plan: give --plan, too")
        if self.read is not None:
            check_count("--read", self.read)
            if self.sources.model is None:
                raise ValueError("--read is for a model: give --model, too")
        if self.tables and self.json:
            raise ValueError("--tables and --json cannot be combined: give only one")

    @cached_property
    def shape(self) -> ModelShape | None:
        """That of the plan's model."""
        return None if self.plan is None else read_shape(self.plan)


OWN_OPTIONS = [field.name for field in fields(Dialogs) if field.default is not MISSING]
"""The options that no other settings have."""


def dialogs(options: Namespace) -> None:
    """Replay dialogs or a trace file, and measure what the cache still holds."""
    given = {
        "policies": options.policies or options.pin,
        "budgets": options.budgets,
        "heads": options.heads,
    }
    command = Dialogs(
        read_sources(options),
        settings_from(Replay, options),
        Running(options.workers, options.dask),
        frozenset(filter(given.get, given)),
        **{name: getattr(options, name) for name in OWN_OPTIONS},
    )
    # 1. The model's files are read first, so that what is wrong with them is said at once.
    name = command.sources.model
    model = None if name is None else load_language_model(name)
    encoding = Encoding.of_model(name)
    recordings, digest = command.sources.read_recordings()
    recordings, skipped = in_tokens(recordings, encoding)
    warn_each([skipped_text(skipped)])
    # 2. The replay, and with a plan what the model reads of it.
    run = _replayed(command, recordings, digest)
    if run.card is not None:
        warn_each(missing_value_notes(transcripts_of(run.recordings)))
        if model is not None:
            run = replace(run, read=_read(command, run.card, model, run.recordings))
    # 3. What is printed and written.
    text = run.tables_text if command.tables else run.text
    if command.json:
        text = json.dumps(run.record, indent=2, ensure_ascii=False)
    if command.out is not None:
        write_files(command.out, run.files)
    print_results(text, command.out)


def _replayed(command: Dialogs, recordings: Sequence[Recording], digest: str) -> ReplayRun:
    """Replay recordings, with a plan at the sizes that each way needs."""
    with progress():
        first = recordings[0]  # computed on access, which takes long
    settings, shape = command.replay, command.shape
    searched = shape is not None and "budgets" not in command.named
    if shape is not None:
        policies = settings.policies if "policies" in command.named else ()
        settings = replace(settings, policies=ways_for(recordings, policies).policies)
    if "heads" not in command.named:
        settings = replace(settings, heads=(default_heads(first),))
    heads = len(first.heads)
    kinds = kinds_in(transcripts_of(recordings), calls=False)
    warn_no_effect(settings.policies, speakers=SPEAKERS, kinds=kinds, words=True, heads=heads)
    budgets = () if searched else settings.budgets
    encoding = getattr(recordings, "encoding", None)
    size = None if encoding is None else encoding.tokens.prompt_size
    warn_each(pinned_notes(transcripts_of(recordings), settings.policies, budgets, size))
    sources = command.sources
    about = {
        "name": sources.trace or sources.dialogs,
        "digest": digest,
        "seed": sources.seed,
        "baseline": baseline_of(settings.policies, command.baseline),
        "shape": shape,
        "recorded": None if shape is None else sources.read_recorded(),
        "target": int(command.target) / 100,
        "searched": searched or None,
    }
    with running(command.running) as how:
        return ReplayRun.measure(settings, recordings, about, **how)


def _read(
    command: Dialogs, card: Card, model: AnyModel, recordings: Sequence[Recording]
) -> ModelRead | None:
    """Return what a model reads of a plan; None, with a warning, if there is nothing to read."""
    warn_each([model.tokens.note])
    most = command.read or SAMPLE_TOKENS
    with running(command.running) as how:
        try:
            return read_card(card, model, transcripts_of(recordings), most=most, **how)
        except ValueError as error:
            warn_each([f"No model read it: {error}."])
            return None
