"""``answers`` and ``live``: what a model's answers lose when policies evict from its cache."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from fdkvc.commands.console import (
    finish,
    progress,
    running,
    skipped_text,
    warn,
    warn_no_effect,
    without_library_warnings,
)
from fdkvc.commands.dialogs import read_transcripts, record_all
from fdkvc.corpora.trace_file import trace_bytes
from fdkvc.corpora.transcripts import Transcript
from fdkvc.experiments.answers import CUT_TEXT, FULL, Answers, encode_dialog, readable, run_answers
from fdkvc.experiments.jobs import Progress
from fdkvc.experiments.proxies import AnswersTables, answers_tables
from fdkvc.files.export import answers_files, csv_text
from fdkvc.files.options import settings_from
from fdkvc.files.text import answers_text, cost_text
from fdkvc.files.write import check_folder
from fdkvc.lm import BUNDLED, BUNDLED_SERVICES
from fdkvc.lm.language_model import load_language_model
from fdkvc.lm.tokens import MARKED
from fdkvc.policies import read_policy
from fdkvc.run.sinks import sinks_notes

if TYPE_CHECKING:
    from fdkvc.lm.language_model import AnyModel, LanguageModel

Dialogs = tuple[Sequence[Transcript], str]
"""Dialogs, and the SHA-256 of their file."""


def answers(options: Namespace) -> None:
    """Measure the answers of a small language model."""
    settings, baseline = _settings(options)
    model, trained_on = language_model(options.model)
    dialogs = readable_dialogs(model, options.dialogs, options.tools)
    shape = model.decoder.shape
    available = {"heads": shape.heads, "layers": shape.layers}
    warn_no_effect(settings.policies, speakers=MARKED, words=True, **available)
    with running(options) as arguments:
        tables, files = measure(settings, baseline, model, dialogs, arguments, trained_on)
    if options.model is not None:  # the bundled one has no sinks
        _warn_of_sinks(settings)
    finish(options, files, f"{model.name}\n\n{answers_text(tables)}")


@without_library_warnings()
def live(options: Namespace) -> None:
    """Measure the answers of any model that transformers runs, and what its caches cost."""
    settings, baseline = _settings(options)
    if not settings.policies:
        raise ValueError("live needs at least one policy besides cut-text")
    if options.trace and settings.every is not None:
        raise ValueError("--trace and --every do not go together: a trace holds whole turns")
    try:
        from fdkvc.live.cache import check_within_a_cache
        from fdkvc.live.cost import measure_cost
        from fdkvc.live.loop import load_live
        from fdkvc.live.recorded import record_dialog
    except ImportError as error:
        raise ValueError(
            f"live needs {error.name}: install requirements-capture.txt, or the extra transformers"
        ) from None
    for policy in settings.policies:
        check_within_a_cache(policy, with_text=True)
    with progress() as on_progress:
        model = load_live(options.model, pool=options.pool, positions=options.positions)
        _warn_of_sinks(settings)
        available = {"heads": 2, "layers": 2}  # several, whatever their number
        warn_no_effect(settings.policies, speakers=MARKED, words=True, **available)
        dialogs = readable_dialogs(model, options.dialogs, options.tools)
        arguments = {"workers": 1, "on_progress": on_progress}
        tables, csv = measure(settings, baseline, model, dialogs, arguments, more=model.about)
        transcripts, _ = dialogs
        turns = [[turn.ids for turn in encode_dialog(model, each)] for each in transcripts]
        longest = max(turns, key=lambda dialog: sum(map(len, dialog)))
        began = perf_counter()
        cost = measure_cost(
            model,
            settings.policies,
            settings.budgets,
            longest,
            decides=settings.decides,
            every=settings.every,
            on_case=lambda done, total: on_progress(
                Progress(done, total, "of the timing", perf_counter() - began)
            ),
        )
    files: dict[str, str | bytes] = {**csv, "live_cost.csv": csv_text(cost)}
    skipped: list[str] = []
    if options.trace:
        first = settings.policies[0], settings.budgets[0], settings.decides
        recorded, skipped = record_all(
            lambda each: record_dialog(model, *first, each, encode_dialog(model, each)), transcripts
        )
        if recorded:
            files["trace.npz"] = trace_bytes(recorded)
    title = "\n".join(filter(None, [model.name, model.full().cache.left]))
    text = f"{title}\n\n{answers_text(tables)}\n\n\n{cost_text(cost)}"
    finish(options, files, "\n\n".join(filter(None, [text, skipped_text(skipped)])))


def _settings(options: Namespace) -> tuple[Answers, str]:
    chosen: dict[str, Any] = {}
    if options.policies is not None:
        policies = [key for key in options.policies if key != CUT_TEXT]
        chosen = {"policies": tuple(map(read_policy, policies))}
        chosen["cut_text"] = CUT_TEXT in options.policies
    settings = settings_from(Answers, options, **chosen)
    baseline = FULL if options.baseline is None else options.baseline
    if baseline not in settings.names:
        names = ", ".join(settings.names)
        raise ValueError(f"baseline {baseline!r} is not among the policies: choose from {names}")
    check_folder(options.out)
    return settings, baseline


def _warn_of_sinks(settings: Answers) -> None:
    for sentence in sinks_notes(settings.policies, settings.budgets):
        warn(sentence)


def language_model(folder: str | None) -> tuple[LanguageModel, frozenset[str]]:
    """Return a small language model, by default the bundled one, and its training services."""
    if folder is None:
        return load_language_model(BUNDLED), BUNDLED_SERVICES
    return load_language_model(folder), frozenset()


def readable_dialogs(model: AnyModel, file: str | None, tools: str | None = None) -> Dialogs:
    """Return the dialogs of a file that a model can read; see `read_transcripts`."""
    transcripts, digest = read_transcripts(file, tools=tools)
    found, skipped = readable(model, transcripts)
    if skipped:
        warn(skipped_text(skipped))
    return found, digest


def measure(
    settings: Answers,
    baseline: str,
    model: AnyModel,
    dialogs: Dialogs,
    arguments: Mapping[str, Any],
    trained_on: frozenset[str] = frozenset(),
    more: Mapping[str, object] | None = None,
) -> tuple[AnswersTables, dict[str, str]]:
    """Let a model answer dialogs, and return the tables and their files.

    `arguments` are those of `fdkvc.commands.console.running`, and `more` as in `answers_files`.
    """
    began = perf_counter()
    measured = run_answers(settings, model, dialogs[0], **arguments)
    tables = answers_tables(measured, baseline, trained_on)
    about: Any = {"model": model, "file": dialogs[1], "more": more}
    seconds = perf_counter() - began
    return tables, answers_files(settings, measured, tables, **about, seconds=seconds)
