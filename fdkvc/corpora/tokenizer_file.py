"""Safe use of ``tokenizer.json``, which the library *tokenizers* does not bound.

The library is in Rust. Some files make it panic, which is no `Exception`, or end the process; a few
nested replacements exhaust memory. Such files are rejected before loading, and errors of the
library become one sentence.
"""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fdkvc.corpora.json_input import optional
from fdkvc.limits import (
    MAX_ADDED_TOKEN_CHARACTERS,
    MAX_TOKENIZER_GROWTH,
    MAX_TOKENIZER_INSERTED,
    MAX_TOKENIZER_PART_CHARACTERS,
    MAX_TOKENIZER_PARTS,
    MAX_UNIGRAM_CHARACTERS,
)
from fdkvc.parameters import check_most

FILE = "tokenizer.json"
_REFUSED = f"{FILE} cannot be read: "


@contextmanager
def as_value_error(failed: str) -> Iterator[None]:
    """Turn any error of a library, including a panic in Rust, into a ValueError with its reason."""
    try:
        yield
    except BaseException as error:
        # The panic's class cannot be imported; other BaseExceptions are not the library's.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{failed}: {error_reason(error)}") from None


@contextmanager
def stderr_silenced() -> Iterator[None]:
    """Discard stderr of this process: even a caught panic prints to it."""
    try:
        kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    except OSError:  # there is no stderr
        yield
        return
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def error_reason(error: BaseException) -> str:
    """Return the message of an error in one line."""
    message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    reason = " ".join(message.split()) or type(error).__name__
    return f"there is no {reason}"[:200] if isinstance(error, KeyError) else reason[:200]


def check_tokenizer(tokenizer: Mapping[str, Any]) -> None:
    """Check the content of a ``tokenizer.json`` before the library reads it.

    Raises a ValueError that names the file and the limit.
    """
    for step in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        parts = list(_parts(tokenizer.get(step)))
        growth = math.prod(map(_growth, parts))
        check_most(f"{_REFUSED}{step} has", len(parts), "parts", MAX_TOKENIZER_PARTS)
        if growth > MAX_TOKENIZER_GROWTH:
            _refuse(
                f"{step} makes a text up to {growth:,.0f} times as long, but at most "
                f"{MAX_TOKENIZER_GROWTH} times is allowed"
            )
        if any(
            len(str(part.get(name))) > MAX_TOKENIZER_INSERTED for part in parts for name in _ADDED
        ):
            _refuse(f"{step} inserts more than {MAX_TOKENIZER_INSERTED} characters at once")
        if any(len(str(part)) > MAX_TOKENIZER_PART_CHARACTERS for part in parts):
            _refuse(f"a part of {step} has more than {MAX_TOKENIZER_PART_CHARACTERS:,} characters")
    added = optional(tokenizer, "added_tokens", list, FILE)
    contents = [token.get("content") for token in added if isinstance(token, dict)]
    _check_letters(contents, "added tokens", MAX_ADDED_TOKEN_CHARACTERS)
    model = optional(tokenizer, "model", dict, FILE)
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, list):
        tokens = [token[0] for token in vocabulary if isinstance(token, list) and token]
        _check_letters(tokens, "the vocabulary's tokens", MAX_UNIGRAM_CHARACTERS)
    if model.get("continuing_subword_prefix") and model.get("merges"):
        _refuse("merges with a continuing_subword_prefix are not supported")


_ADDED = ("content", "prepend")
_SEQUENCES = ("normalizers", "pretokenizers", "processors", "decoders")


def _refuse(reason: str) -> None:
    raise ValueError(f"{_REFUSED}{reason}")


def _parts(step: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the parts of a step, sequences flattened."""
    if isinstance(step, dict):
        excluded = (*_SEQUENCES, "precompiled_charsmap")
        yield {name: value for name, value in step.items() if name not in excluded}
        for name in _SEQUENCES:
            for part in optional(step, name, list, FILE):
                yield from _parts(part)


def _growth(part: Mapping[str, Any]) -> float:
    """Return the factor by which a part may lengthen a text."""
    new, pattern = part.get("content"), part.get("pattern")
    if not (isinstance(new, str) and isinstance(pattern, dict)):
        return 1
    old = pattern.get("String")
    # A regular expression may match the empty string between any two characters.
    return max(1, len(new) / max(len(old), 1) if isinstance(old, str) else 1 + len(new))


def _check_letters(texts: list[Any], what: str, most: int) -> None:
    letters = sum(len(text) for text in texts if isinstance(text, str))
    check_most(f"{_REFUSED}{what} have", letters, "characters", most)
