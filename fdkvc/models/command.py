"""``answers`` and ``live``: what a model's answers lose when policies evict from its cache."""

from argparse import Namespace
from typing import Any

from fdkvc.conversations.sources import Sources
from fdkvc.core.attention import SPEAKERS
from fdkvc.engine.sinks import sinks_notes
from fdkvc.explain.notes import kinds_in, pinned_notes
from fdkvc.models.answers import FULL, Answers
from fdkvc.models.loaded import NamedModel
from fdkvc.models.numpy.head_eviction import deciding
from fdkvc.models.numpy.language_model import AnyModel
from fdkvc.models.results import AnswersRun, answers_key, readable_dialogs
from fdkvc.policies import baseline_of, policy_named, read_policy
from fdkvc.runs.console import (
    finish,
    progress,
    running,
    warn,
    warn_each,
    warn_no_effect,
    without_library_warnings,
)
from fdkvc.runs.jobs import Execution
from fdkvc.runs.options import settings_from

NO_TRANSFORMERS = "install requirements-capture.txt, or the extra transformers"


def answers(options: Namespace) -> None:
    """Measure the answers of a small language model."""
    settings, baseline = _settings(options)
    model = NamedModel(options.model).answering_model
    with running(options.workers) as execution:
        run = _measured(options, settings, baseline, model, execution)
    if options.model is not None:  # the bundled one has no sinks
        warn_each(sinks_notes(settings.policies, settings.budgets))
    finish(options, run)


@without_library_warnings()
def live(options: Namespace) -> None:
    """Measure the answers of any model that transformers or llama.cpp runs."""
    settings, baseline = _settings(options)
    loaders = {"transformers": _in_transformers, "llama.cpp": _in_llama}
    if options.engine not in loaders:
        raise ValueError(f"engine {options.engine!r} must be {' or '.join(loaders)}")
    with progress() as on_progress:
        model, note = loaders[options.engine](options, settings)
        warn_each(sinks_notes(settings.policies, settings.budgets))
        # One worker: torch and llama.cpp compute in threads of their own.
        execution: Execution = {"workers": 1, "on_progress": on_progress}
        run_fields = {"also_depends": model.about, "note": note}
        run = _measured(options, settings, baseline, model, execution, **run_fields)
    finish(options, run)


def _in_transformers(options: Namespace, _: Answers) -> tuple[Any, str]:
    """Return a model, and what is to be said of its layers."""
    try:
        from fdkvc.models.transformers.loop import load_live
    except ImportError as error:
        raise ValueError(f"live needs {error.name}: {NO_TRANSFORMERS}") from None
    model = load_live(options.model, positions=options.positions)
    return model, model.full().cache.left


def _in_llama(options: Namespace, settings: Answers) -> tuple[Any, str]:
    """Return a model in llama.cpp, of whose layers nothing is to be said."""
    try:
        from fdkvc.models.llama_cpp.chat import check_by_text
        from fdkvc.models.llama_cpp.model import load_llama
    except ImportError as error:
        raise ValueError(
            f"--engine llama.cpp needs {error.name}: install requirements-llama.txt"
        ) from None
    for policy in settings.policies:
        check_by_text(policy)
    model = load_llama(options.model, positions=options.positions)
    model.evicting(policy_named("full"), 1, settings.decides)  # fail now if it cannot
    return model, ""


def _measured(
    options: Namespace,
    settings: Answers,
    baseline: str,
    model: AnyModel,
    execution: Execution,
    **run_fields: Any,
) -> AnswersRun:
    """Measure a model's answers."""
    warn_each([model.tokens.note])
    dialogs, digest = readable_dialogs(model, settings_from(Sources, options))
    shape = model.decoder.shape
    size = model.tokens.prompt_size
    heads = deciding(settings.decides, shape.kv_heads, shape.layers)
    kinds = kinds_in(dialogs, calls=True)
    warn_no_effect(settings.policies, speakers=SPEAKERS, words=True, kinds=kinds, **heads)
    warn_each(pinned_notes(dialogs, settings.policies, settings.budgets, size))
    run_fields |= {"digest": digest, "baseline": baseline}
    execution["finished"] = finished = options.finished
    finished.take_over(answers_key(settings, model, dialogs, run_fields))
    if finished.results:
        warn("Going on where an earlier run of the same command ended.")
    return AnswersRun.measure(settings, model, dialogs, run_fields, **execution)


def _settings(options: Namespace) -> tuple[Answers, str]:
    settings = settings_from(Answers, options)
    baseline = FULL if options.baseline is None else options.baseline
    return settings, baseline_of([*map(read_policy, settings.names)], baseline)
