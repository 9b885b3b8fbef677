"""What ``--model`` names, loaded once: a tokenizer, and the model that reads its tokens."""

from collections.abc import Callable
from dataclasses import dataclass

from fdkvc.models.numpy.encoding import Encoding
from fdkvc.models.numpy.language_model import LanguageModel, load_language_model


@dataclass(frozen=True, eq=False)
class Loaded:
    """A tokenizer and, unless no model was named or it cannot be read, the model."""

    encoding: Encoding
    """The tokens in which sizes are counted."""
    model: LanguageModel | None = None
    """The model that can read them."""


def load_named(
    name: str | None, on_failure: Callable[[ValueError], object] | None = None
) -> Loaded:
    """Return what a name means; without one, the shipped tokenizer alone.

    Raises a ValueError if it cannot be loaded. With `on_failure` only if its tokenizer cannot, and
    the error of the model goes there.
    """
    if not name:
        return Loaded(Encoding())
    try:
        model = load_language_model(name)
    except ValueError as error:
        if on_failure is None:
            raise
        encoding = Encoding.of_model(name)
        on_failure(error)
        return Loaded(encoding)
    return Loaded(Encoding.of_loaded(name, model.tokens), model)
