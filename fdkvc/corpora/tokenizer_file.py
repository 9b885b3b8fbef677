"""Tokenizer files: what the library that reads ``tokenizer.json`` does not bound itself.

It is in Rust. Some files make it panic, which ends in no `Exception`, or end the process; a few
replacements, each in what the one before has written, fill any memory. What would do so is refused
before it is loaded, and what the library raises is said in a sentence.
"""

from __future__ import annotations

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

FILE = "tokenizer.json"


@contextmanager
def as_value_error(failed: str) -> Iterator[None]:
    """Turn what a library raises, a panic in Rust included, into a sentence with its reason."""
    try:
        yield
    except BaseException as error:
        # Nobody can import the panic's class; what else is no Exception is not the library's.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{failed}: {error_reason(error)}") from None


@contextmanager
def stderr_silenced() -> Iterator[None]:
    """Drop what this process prints to stderr: a panic does by itself, also where it is caught."""
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
    """Return what an error says, in one line."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    reason = " ".join(said.split()) or type(error).__name__
    return f"there is no {reason}"[:200] if isinstance(error, KeyError) else reason[:200]


def check_tokenizer(tokenizer: Mapping[str, Any]) -> None:
    """Check the content of a ``tokenizer.json`` before the library reads it.

    Raises
    ------
    ValueError
        In a sentence that names the file and what is too much.
    """
    for step in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        parts = list(_parts(tokenizer.get(step)))
        growth = math.prod(map(_growth, parts))
        if len(parts) > MAX_TOKENIZER_PARTS:
            _refuse(f"{step} has {len(parts)} parts, but may have {MAX_TOKENIZER_PARTS} at most")
        if growth > MAX_TOKENIZER_GROWTH:
            _refuse(
                f"{step} makes a text up to {growth:,.0f} times as long, but may make it "
                f"{MAX_TOKENIZER_GROWTH} times as long at most"
            )
        if any(
            len(str(part.get(name))) > MAX_TOKENIZER_INSERTED for part in parts for name in _PUT
        ):
            _refuse(
                f"{step} puts more than {MAX_TOKENIZER_INSERTED} characters into a text at once"
            )
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


_PUT = ("content", "prepend")
_SEQUENCES = ("normalizers", "pretokenizers", "processors", "decoders")


def _refuse(reason: str) -> None:
    raise ValueError(f"{FILE} cannot be read: {reason}")


def _parts(step: Any) -> Iterator[Mapping[str, Any]]:
    """Yield each part of a step, those of a sequence one by one."""
    if isinstance(step, dict):
        apart = (*_SEQUENCES, "precompiled_charsmap")
        yield {name: value for name, value in step.items() if name not in apart}
        for name in _SEQUENCES:
            for part in optional(step, name, list, FILE):
                yield from _parts(part)


def _growth(part: Mapping[str, Any]) -> float:
    """Return how many times as long a part may make a text."""
    new, pattern = part.get("content"), part.get("pattern")
    if not (isinstance(new, str) and isinstance(pattern, dict)):
        return 1
    old = pattern.get("String")
    # A regular expression may match what is empty, between any two characters.
    return max(1, len(new) / max(len(old), 1) if isinstance(old, str) else 1 + len(new))


def _check_letters(texts: list[Any], what: str, most: int) -> None:
    letters = sum(len(text) for text in texts if isinstance(text, str))
    if letters > most:
        _refuse(f"{what} have {letters:,} characters, but may have {most:,} at most")
