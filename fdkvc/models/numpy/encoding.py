"""The tokens of a dialog as a model reads it, without the model's weights: the unit of a size."""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdkvc.conversations.lexical import LexicalRecordings
from fdkvc.core.limits import MAX_TOKENS, MAX_TURN_TOKENS
from fdkvc.core.recordings import Recording, Token
from fdkvc.core.transcripts import Transcript, check_size
from fdkvc.models.numpy.gguf_file import NAMED_MODELS, find_model, is_gguf, read_metadata
from fdkvc.models.numpy.gguf_tokenizer import bpe_tokenizer
from fdkvc.models.numpy.language_model import model_name
from fdkvc.models.numpy.model_folder import (
    TOKENIZER,
    check_tokenizer,
    loading,
    parse_config,
    read_json,
)
from fdkvc.models.numpy.tokens import (
    MAX_VOCABULARY,
    Tokens,
    load_tokens,
    read_tokens,
    tokens_by_turn,
)

SHIPPED = Path(__file__).parent / "recorded" / "smollm2_tokenizer.json.gz"
"""The tokenizer and the chat template of SmolLM2, in the form that `as_tokenizer` reads."""

PART = 100_000
"""Characters of a text that are encoded at once."""

MAX_LOADED = 2
"""Tokenizers that stay in memory."""

SHORT, SHORT_TURN = MAX_TOKENS // 2, MAX_TURN_TOKENS // 2
"""Bytes of a dialog, and of a turn with all calls, that are never too long: tokens are at least a
byte each, or marks."""


@dataclass(frozen=True)
class Encoding:
    """A tokenizer with the chat template of its model.

    It has only the place of the tokenizer, so that it can be sent to any process and compared.
    """

    name: str = "SmolLM2"
    """The name of the model, for people."""
    place: str | bytes = ""
    """A model as `find_model` takes it, or the content of a ``tokenizer.json``; by default the
    shipped one of SmolLM2."""

    @classmethod
    def of_model(cls, name: str | None) -> "Encoding":
        """Return that of a folder, GGUF file or package, without a name the shipped one.

        Raises a ValueError if it cannot be read.
        """
        if not name:
            return cls()
        return cls.of_loaded(name, _tokens(name))

    @classmethod
    def of_loaded(cls, name: str, tokens: Tokens) -> "Encoding":
        """Return that of a model whose tokenizer is loaded, so that it is not loaded again."""
        _remember(name, tokens)
        return cls(cls.name if name in NAMED_MODELS else model_name(name), name)

    @classmethod
    def of_file(cls, content: bytes) -> "Encoding":
        """Return that of a ``tokenizer.json``. Raises a ValueError that says what is wrong."""
        encoding = cls("tokenizer.json", content)
        _ = encoding.tokens
        return encoding

    @property
    def tokens(self) -> Tokens:
        """The tokenizer."""
        return _tokens(self.place)

    @property
    def vocabulary(self) -> int:
        """How many tokens the tokenizer has."""
        return int(self.tokens.tokenizer.get_vocab_size())

    def check(self, transcript: Transcript) -> None:
        """Raise a ValueError if a dialog has too many tokens, or cannot be read."""
        calls = sum(len(str(call)) for call in transcript.calls)
        turns = [len(text.encode()) for text in transcript.texts]
        if calls + sum(turns) > SHORT or calls + max(turns) > SHORT_TURN:
            check_size(transcript.name, self.sizes(transcript))

    def in_tokens(
        self, recordings: Sequence[Recording]
    ) -> tuple[Sequence[Recording], list[str]]:
        """Return lexical recordings in these tokens, and why others are left out.

        Recordings of a model stay as they are. Raises a ValueError if every dialog has too many.
        """
        if not isinstance(recordings, LexicalRecordings):
            return recordings, []
        fitting = []
        skipped = []
        for transcript in recordings.transcripts:
            try:
                self.check(transcript)
                fitting.append(transcript)
            except ValueError as error:
                skipped.append(str(error))
        if not fitting:
            raise ValueError(skipped[0])
        return LexicalRecordings(fitting, recordings.seed, self), skipped

    def sizes(self, transcript: Transcript) -> list[int]:
        """Return the number of tokens of each turn, as those of `turns`, but much faster."""
        return self.tokens.count_by_turn(transcript)

    def turns(self, transcript: Transcript) -> tuple[tuple[Token, ...], ...]:
        """Return the tokens of each turn, with the marks of the chat template."""
        tokens = self.tokens
        return tokens_by_turn(transcript, tokens.encode_dialog(transcript), len(tokens.first))

    def spans(self, text: str) -> NDArray[np.int32]:
        """Return where the tokens of a text begin and end (n, 2), without marks of a template.

        A long text is read in parts, which begin where a word does: each takes 300 bytes a token.
        """
        parts = [np.empty((0, 2), np.int32)]
        start = 0
        while start < len(text):
            end = start + PART
            if end < len(text) and (space := text.rfind(" ", start + 1, end)) > 0:
                end = space
            offsets = self.tokens.encode(text[start:end])[1]
            parts.append(np.array(offsets, np.int32).reshape(-1, 2) + np.int32(start))
            start = end
        return np.concatenate(parts)


_LOADED: dict[str | bytes, Tokens] = {}
"""The last tokenizers by their places; one of a large vocabulary takes over 100 MB."""


def _remember(place: str | bytes, tokens: Tokens) -> None:
    _LOADED[place] = tokens
    for oldest in [*_LOADED][:-MAX_LOADED]:
        _LOADED.pop(oldest, None)


def _tokens(place: str | bytes) -> Tokens:
    tokens = _LOADED.get(place)
    if tokens is None:
        tokens = _load(place)
        _remember(place, tokens)
    return tokens


def _load(place: str | bytes) -> Tokens:
    if isinstance(place, bytes):
        check_tokenizer(parse_config(place, TOKENIZER))
        return read_tokens(place)
    if not place:
        compact = json.loads(gzip.decompress(SHIPPED.read_bytes()))
        content = json.dumps(as_tokenizer(compact)).encode()
        return read_tokens(content, template=compact["template"])
    with loading(f"the tokenizer of {place!r} cannot be loaded"):
        path = find_model(place)
        if is_gguf(path):
            return load_tokens(read_metadata(path), MAX_VOCABULARY)
        if (path / TOKENIZER).is_file():
            check_tokenizer(read_json(path / TOKENIZER))
        return load_tokens(path, MAX_VOCABULARY)


def as_tokenizer(compact: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``tokenizer.json`` of byte-level BPE whose digits stand alone.

    ``first`` are the tokens that no merge makes; the first ``special`` of them are special tokens.
    All others are the merges, in order.
    """
    merges = compact["merges"]
    names = [*compact["first"], *(merge.replace(" ", "") for merge in merges)]
    special = dict.fromkeys(names[: compact["special"]], True)
    return bpe_tokenizer(names, merges, special, "smollm")
