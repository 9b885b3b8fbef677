"""What ``--model`` names: a tokenizer, and the model that reads its tokens."""

from dataclasses import dataclass
from functools import cached_property

from fdkvc.models.numpy import BUNDLED
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.models.numpy.language_model import LanguageModel, load_language_model


@dataclass(frozen=True)
class NamedModel:
    """A model by its name; without one, the shipped tokenizer alone.

    Its parts are loaded when they are first looked up, and then stay; a ValueError says why one
    cannot be loaded.
    """

    name: str | None
    """See `fdkvc.models.numpy.gguf_file.find_model`."""

    @cached_property
    def model(self) -> LanguageModel | None:
        """The model that can read tokens."""
        if self.name is None:
            return None
        model = load_language_model(self.name)
        Encoding.of_loaded(self.name, model.tokens)  # then `encoding` need not load them again
        return model

    @cached_property
    def answering_model(self) -> LanguageModel:
        """The model that answers: without a name, the bundled one."""
        return self.model or load_language_model(BUNDLED)

    @cached_property
    def encoding(self) -> Encoding:
        """The tokens in which sizes are counted; the model itself need not be readable."""
        return Encoding.of_model(self.name)
