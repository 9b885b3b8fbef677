"""The models that pages may load: those offered when the process started, by name."""

from collections.abc import Callable

import streamlit as st

from fdkvc.core.parameters import Field
from fdkvc.core.words import sentence
from fdkvc.models.numpy.language_model import LanguageModel, offered_models, shared_language_model
from fdkvc.ui.fields import problems
from fdkvc.ui.markdown import plain

MODELS = offered_models()
"""The place of each model, by the name that links have."""

LABELS = {name: name for name in MODELS} | {
    "bundled": "Bundled, 1.1 million",
    "smollm2": "SmolLM2, 135 million",
}

MODEL = Field(
    "Model",
    "Each with its number of parameters. The bundled model was trained on service dialogs; "
    "SmolLM2 is a pretrained model from a package. To use your own, start the app with "
    "fdkvc app --model FOLDER.",
    name="model",
    default="bundled",
    choices=LABELS,
)


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
