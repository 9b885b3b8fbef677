"""A model's tokenizer, and the marks that begin and end a passage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fdkvc.attention import SPEAKERS, Floats
from fdkvc.corpora.model_text import Passage, Writer
from fdkvc.corpora.tokenizer_file import FILE, as_value_error, stderr_silenced
from fdkvc.corpora.transcripts import word_ids
from fdkvc.corpora.word_frequencies import surprisal_in

MARKS: Mapping[Writer, str] = {"user": "<user>", "system": "<system>", "call": "<call>"}
END = "<end>"
"""Tokens that a model may have for the begin and end of a passage."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """A tokenizer, and the marks of passages.

    A model whose vocabulary has `MARKS` and `END` gets those; for another, each passage is a line
    that begins with its writer and a colon.

    Attributes
    ----------
    tokenizer : tokenizers.Tokenizer
    first : tuple of int
        The tokenizer's prefix of any text.
    marks : mapping of writer to tuple of int
    end : int
    """

    tokenizer: Any
    first: tuple[int, ...]
    marks: Mapping[Writer, tuple[int, ...]]
    end: int

    def encode(self, text: str) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
        """Return the ids of a text, none of them a mark, and the characters of each."""
        with as_value_error(f"the model's tokenizer cannot read {text[:40]!r}"):
            encoded = self.tokenizer.encode(text, add_special_tokens=False)
        return tuple(encoded.ids), tuple(encoded.offsets)

    def encode_passage(self, passage: Passage) -> EncodedPassage:
        """Return a passage in tokens."""
        ids, spans = self.encode(passage.text)
        mark = self.marks[passage.writer]
        none = ((0, 0),)
        return EncodedPassage(passage, (*mark, *ids, self.end), (*none * len(mark), *spans, *none))

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without marks."""
        with as_value_error("the model's tokenizer cannot decode the model's answer"):
            return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def words_and_speakers(self, ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return word and speaker of each token of a passage.

        Returns
        -------
        (list of int, list of int)
            The `fdkvc.attention.word_id`, 0 for none, and the index into
            `fdkvc.attention.SPEAKERS`, −1 where the passage does not begin with a mark.
        """
        ends = [len(self.text(ids[: at + 1])) for at in range(len(ids))]
        words = word_ids(self.text(ids), zip([0, *ends], ends, strict=False))
        first = len(self.first) if tuple(ids[: len(self.first)]) == self.first else 0
        writers = [
            writer
            for writer, mark in self.marks.items()
            if tuple(ids[first : first + len(mark)]) == mark
        ]
        speaker = SPEAKERS.index("user" if writers == ["user"] else "system") if writers else -1
        return words, [speaker] * len(ids)

    def rarity(self, vocabulary: int) -> Floats:
        """Return the surprisal of each token of the vocabulary without context, in nats (V,).

        It is that of the first word of its text; see `fdkvc.corpora.word_frequencies`.
        """
        texts = [self.text([token]) for token in range(vocabulary)]
        return np.array([surprisal_in(text, [(0, len(text))])[0] for text in texts], np.float32)


@dataclass(frozen=True)
class EncodedPassage:
    """A passage in tokens, with its mark and end.

    Attributes
    ----------
    passage : Passage
    ids : tuple of int
    spans : tuple of (start, end)
        Characters of the passage's text for each token; start = end where it has none.
    """

    passage: Passage
    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]

    def tokens_of(self, start: int, end: int) -> tuple[int, ...]:
        """Return the indices of the tokens that cover any of these characters."""
        return tuple(
            at for at, (low, high) in enumerate(self.spans) if max(low, start) < min(high, end)
        )


def load_tokens(folder: Path, vocabulary: int) -> Tokens:
    """Read the tokenizer of a model with a vocabulary of this size.

    Raises
    ------
    ValueError
        With a sentence that names the file and the problem.
    """
    from tokenizers import Tokenizer

    path = folder / FILE
    if not path.is_file():
        raise ValueError(f"there is no file {FILE}")
    with stderr_silenced(), as_value_error(f"{FILE} cannot be read"):
        tokenizer = Tokenizer.from_file(str(path))
        vocabulary_ids = tokenizer.get_vocab()
    highest = max(vocabulary_ids.values(), default=0)
    if highest >= vocabulary:
        raise ValueError(f"{FILE} has the token {highest}, but there are {vocabulary:,}")

    def ids(text: str) -> Any:
        return tuple(tokenizer.encode(text, add_special_tokens=False).ids)

    with stderr_silenced(), as_value_error(f"{FILE} cannot be used"):
        tokenizer.encode_special_tokens = True  # so that typed text cannot contain a mark
        tokenizer.no_padding()
        tokenizer.no_truncation()
        ids("a")
        for token in range(min(vocabulary, 1000)):
            tokenizer.decode([token])
        first = tuple(tokenizer.encode("").ids)
        if vocabulary_ids.keys() >= {*MARKS.values(), END}:
            marks = {writer: (vocabulary_ids[mark],) for writer, mark in MARKS.items()}
            end = (vocabulary_ids[END],)
        else:
            marks = {writer: ids(f"{writer.capitalize()}:") for writer in MARKS}
            end = ids("\n")[-1:]
    if not (end and all(marks.values())):
        raise ValueError("its tokenizer cannot encode a line that begins with a name")
    return Tokens(tokenizer, first, marks, *end)
