"""The models that pages may load: those offered when the process started, by name."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import streamlit as st

from fdkvc.core.parameters import Field
from fdkvc.core.words import sentence
from fdkvc.models.local_models import local_models
from fdkvc.models.numpy.gguf_file import find_model
from fdkvc.models.numpy.language_model import (
    LanguageModel,
    memory_needed,
    offered_models,
    shared_language_model,
)
from fdkvc.ui.fields import problems
from fdkvc.ui.markdown import plain

STORED = local_models()
"""The models that other programs have stored on this machine."""

MODELS = offered_models(STORED)
"""The place of each model, by the name that links have."""

LABELS = {name: name for name in MODELS} | {
    "bundled": "Bundled, 1.1 million",
    "smollm2": "SmolLM2, 135 million",
    **{name: f"{name}, {model.size / 1e9:.1f} GB" for name, model in STORED.items()},
}

MODEL = Field(
    "Model",
    "Each with its number of parameters. The bundled model was trained on service dialogs; "
    "SmolLM2 is a pretrained model from a package. Models that Ollama, Hugging Face or LM Studio "
    "have stored on this machine are offered, too. To use another, start the app with "
    "fdkvc app --model FOLDER.",
    name="model",
    default="bundled",
    choices=LABELS,
)


@cache
def _stored_memory(names: tuple[str, ...]) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """Return the bytes of memory that stored models take, and why others cannot be loaded."""
    memory = {}
    problems = {}
    for name in names:
        try:
            memory[name] = memory_needed(name)
        except (ValueError, OSError) as error:
            problems[name] = str(error)
    return memory, problems


def usable_models() -> tuple[Field, Mapping[str, str]]:
    """Return the field with all models that can be loaded, and why stored ones cannot, by name."""
    memory, problems = _stored_memory(tuple(STORED))
    labels = {name: label for name, label in LABELS.items() if name not in problems}
    for name, size in memory.items():
        labels[name] += f" ({size / 1e9:.1f} in memory)"
    return replace(MODEL, choices=labels), problems


def why_missing(name: str) -> str:
    """Return how to get a model that is not installed, "" if it is."""
    try:
        find_model(str(MODELS[name]))
    except ValueError as error:
        return f"It cannot run here: {error}."
    return ""


def load_model(name: str, otherwise: Callable[[], None]) -> LanguageModel:
    """Load a model with a progress bar on the page.

    If it cannot be loaded, the page ends with the reason, and what `otherwise` shows below it.
    """
    bar = st.empty()
    try:
        model = shared_language_model(
            MODELS[name], lambda share: bar.progress(share, plain(f"Loading {LABELS[name]}"))
        )
    except ValueError as error:
        bar.empty()
        problems(sentence(str(error)))
        otherwise()
        st.stop()
    bar.empty()
    return model
