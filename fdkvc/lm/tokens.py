"""A model's tokenizer, and the marks that begin and end a passage."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdkvc.attention import SPEAKERS
from fdkvc.corpora.formats import read_bytes
from fdkvc.corpora.gguf_file import GgufFile
from fdkvc.corpora.model_folder import (
    TOKENIZER,
    as_value_error,
    check_tokenizer,
    read_json,
    stderr_silenced,
)
from fdkvc.corpora.model_text import CALL_TAGS, Kind, Passage, Writer, model_text
from fdkvc.corpora.token_traits import token_traits, word_surprisal
from fdkvc.corpora.transcripts import Transcript, word_ids, word_spans
from fdkvc.limits import MAX_MODEL_JSON_BYTES
from fdkvc.lm.chat_template import chat_template, tools_prompt

MARKS: Mapping[Writer, str] = {"user": "<user>", "system": "<system>", "call": "<call>"}
END = "<end>"
"""Tokens that a model may have for the start and end of a passage."""

TOKEN_FEATURES = frozenset(("surprisal", "words", "speakers", "traits"))
"""What a policy looks at that depends on the text of tokens."""

_TEMPLATE, _SETTINGS = "chat_template.jinja", "tokenizer_config.json"

BLOCK = 256
"""Tokens of a text that are decoded at once to find where each ends."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """A tokenizer, and the marks of passages.

    A model whose vocabulary has `MARKS` and `END` gets those, and a chat model what its template
    has (`fdkvc.lm.chat_template`), with calls as JSON. For another, each passage is a line that
    begins with its writer and a colon. No text of a dialog becomes a mark.
    """

    tokenizer: Any
    first: tuple[int, ...]
    """The tokenizer's prefix of any text."""
    marks: Mapping[Writer, tuple[int, ...]]
    end: int
    """With which a written passage ends."""
    tail: tuple[int, ...] = ()
    """What follows it in the same turn."""
    prompt: tuple[int, ...] = ()
    """The model's own system prompt: before the first passage, unless that is a system prompt."""
    kinds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Marks of a system prompt (``system``) and a tool's result, if not those of the writer."""
    result_end: tuple[int, ...] = ()
    """Between the text of a tool's result and the end."""
    template: str = ""
    """The chat template, if any."""
    _surprisal: dict[int, float] = field(default_factory=dict, repr=False)

    @property
    def calls_as_json(self) -> bool:
        """Whether calls are JSON, or lines."""
        return bool(self.template)

    def encode(self, text: str) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
        """Return the ids of a text, none of them a mark, and the characters of each."""
        with as_value_error(f"the model's tokenizer cannot read {text[:40]!r}"):
            encoded = self.tokenizer.encode(text, add_special_tokens=False)
        return tuple(encoded.ids), tuple(encoded.offsets)

    def encode_dialog(self, transcript: Transcript) -> list[EncodedPassage]:
        """Return the passages of a dialog in tokens."""
        passages = model_text(transcript, as_json=self.calls_as_json)
        if transcript.tools_in_text:
            prompted = transcript.turns[1:2] and transcript.turns[1].kind == "system"
            text = tools_prompt(self.template, transcript.tools, bool(prompted))
            passages = replace(passages[0], text=text or passages[0].text), *passages[1:]
        return [self.encode_passage(passage, first=not at) for at, passage in enumerate(passages)]

    def encode_passage(self, passage: Passage, *, first: bool = False) -> EncodedPassage:
        """Return a passage in tokens; the first of a dialog after the model's own prompt."""
        ids, spans = self.encode(passage.text)
        mark = self.kinds.get(passage.kind or "", self.marks[passage.writer])
        if first and passage.kind != "system":
            mark = self.prompt + mark
        close, none = self.closing, ((0, 0),)
        if passage.kind == "result":
            close = self.result_end + close
        spans = (*none * len(mark), *spans, *none * len(close))
        return EncodedPassage(passage, (*mark, *ids, *close), spans, len(mark))

    @property
    def closing(self) -> tuple[int, ...]:
        """What ends a passage."""
        return (self.end, *self.tail)

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without marks."""
        with as_value_error("the model's tokenizer cannot decode the model's answer"):
            return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def features(
        self, ids: Sequence[int], looks_at: Collection[str], kind: Kind | None = None
    ) -> dict[str, NDArray[Any]]:
        """Return what a policy may look at of the text of a passage's tokens, of each (n, ...).

        The names are those of `TOKEN_FEATURES` that `looks_at` has; words and speakers go together.
        A word is the `fdkvc.attention.word_id`, 0 for none; a speaker the index into
        `fdkvc.attention.SPEAKERS`, −1 before the first mark; traits are `fdkvc.attention.TRAITS`.
        `kind` is that of the passage, which its mark may not tell.
        """
        features: dict[str, NDArray[Any]] = {}
        if "surprisal" in looks_at:
            features["surprisal"] = np.array(self.surprisal(ids), np.float32)
        if {"words", "speakers"} & {*looks_at}:
            features["words"] = np.array(word_ids(*self._written(ids)), np.intp)
            features["speakers"] = self._speakers(ids, kind)
        if "traits" in looks_at:
            user = self._speaker(ids) == SPEAKERS.index("user")
            features["traits"] = token_traits(*self._written(ids), user)
        return features

    def _written(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """Return the text of ids, and the characters of each."""
        ends: list[int] = []
        for first in range(0, len(ids), BLOCK):  # a long text in parts, each after a known token
            before = ids[max(first - 1, 0) : first]
            start = (ends[-1] if ends else 0) - len(self.text(before))
            end = min(first + BLOCK, len(ids))
            lengths = (len(self.text([*before, *ids[first : at + 1]])) for at in range(first, end))
            ends += [start + length for length in lengths]
        return self.text(ids), list(zip([0, *ends], ends, strict=False))

    def passage_text(self, ids: Sequence[int]) -> str:
        """Return the text of a passage without its mark, and the prompt before it."""
        return self.text(ids[self.mark_of(ids)[0] :]).strip()

    def texts_of(self, ids: Sequence[int], at: int = 0) -> Iterator[tuple[int, int]]:
        """Yield the tokens (first, end) of the prompt's text in a passage, if any, and of its own.

        They count from `at` for the passage's first token.
        """
        if self.prompt and tuple(ids[: len(self.prompt)]) == self.prompt:
            yield at + len(self.kinds.get("system", ())), at + len(self.prompt)
        yield at + self.mark_of(ids)[0], at + len(ids)

    def mark_of(self, ids: Sequence[int]) -> tuple[int, list[str]]:
        """Return how many tokens of a passage its mark takes, and whose mark it is."""
        first = 0
        for before in (self.closing, self.first, self.prompt):  # a written passage is closed later
            first += len(before) * (tuple(ids[first : first + len(before)]) == before)
        matches = [
            (first + len(mark), writer)
            for writer, mark in (*self.marks.items(), *self.kinds.items())
            if tuple(ids[first : first + len(mark)]) == mark
        ]
        return max(matches, default=(0, ""))[0], [writer for _, writer in matches]

    @property
    def speakers(self) -> tuple[str, ...]:
        """Speakers that marks distinguish: a system prompt may have the mark of its writer."""
        prompted = self.kinds.get("system", ()) not in ((), *self.marks.values())
        return SPEAKERS[: 2 + prompted] if self.marks else ()

    def _speakers(self, ids: Sequence[int], kind: Kind | None) -> NDArray[np.intp]:
        """Return the speaker of each token, that of the last mark before it.

        A passage may be several messages, if a chat template marks each, and the model's own prompt
        is one of them. What a written passage is closed with later belongs to the next.
        """
        begun = [(0, self._speaker(ids))]
        if self.template:
            marks = self._message_marks
            matches = (
                next((mark for mark in marks if tuple(ids[at : at + len(mark)]) == mark), None)
                for at in range(len(ids))
            )
            begun = [(at, marks[mark]) for at, mark in enumerate(matches) if mark] or begun
        if kind is not None:
            begun[-1] = begun[-1][0], SPEAKERS.index("prompt" if kind == "system" else "system")
        speakers = np.full(len(ids), begun[0][1] if self._speaker(ids) >= 0 else -1, np.intp)
        for at, speaker in begun:
            speakers[at:] = speaker
        return speakers

    @cached_property
    def _message_marks(self) -> dict[tuple[int, ...], int]:
        """The marks of messages in a text, the longest first, with their speakers."""
        speaking = (  # of equal marks the last one counts
            (self.kinds["system"], "prompt"),
            (self.kinds["result"], "system"),
            (self.marks["system"], "system"),
            (self.marks["user"], "user"),
        )
        marks = {self._core(mark): SPEAKERS.index(speaker) for mark, speaker in speaking}
        return {mark: marks[mark] for mark in sorted(marks, key=len, reverse=True) if mark}

    def _core(self, mark: tuple[int, ...]) -> tuple[int, ...]:
        """Return a mark without the space at its end, which may be one token with what follows."""
        decoded = [self.tokenizer.decode([token], skip_special_tokens=False) for token in mark]
        return mark[: max((at for at, text in enumerate(decoded, 1) if text.strip()), default=0)]

    def _speaker(self, ids: Sequence[int]) -> int:
        """Return the speaker of a passage by the mark that it begins with."""
        _, writers = self.mark_of(ids)
        return SPEAKERS.index("user" if writers == ["user"] else "system") if writers else -1

    def surprisal(self, ids: Sequence[int]) -> list[float]:
        """Return the surprisal of tokens without context, in nats.

        It is that of the first word of a token's text, or else 0; see `fdkvc.corpora.token_traits`.
        """
        for token in {*ids} - self._surprisal.keys():
            text = self.text([token])
            words = word_spans(text)
            self._surprisal[token] = word_surprisal(text[slice(*words[0])]) if words else 0.0
        return [self._surprisal[token] for token in ids]


@dataclass(frozen=True)
class EncodedPassage:
    """A passage in tokens, with its mark and end."""

    passage: Passage
    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    """(start, end): characters of the passage's text for each token; start = end where
    it has none."""
    start: int
    """Tokens of its mark, and of the prompt before it."""

    def tokens_of(self, start: int, end: int) -> tuple[int, ...]:
        """Return the indices of the tokens that cover any of these characters."""
        return tuple(
            at for at, (low, high) in enumerate(self.spans) if max(low, start) < min(high, end)
        )


def load_tokens(stored: Path | GgufFile, vocabulary: int) -> Tokens:
    """Read the tokenizer of a model with a vocabulary of this size, from its folder or file.

    Raises a ValueError that names the file and the problem.
    """
    from tokenizers import Tokenizer

    if isinstance(stored, Path) and not (stored / TOKENIZER).is_file():
        raise ValueError(f"there is no file {TOKENIZER}")
    with stderr_silenced(), as_value_error(f"{TOKENIZER} cannot be read"):
        if isinstance(stored, Path):
            tokenizer = Tokenizer.from_file(str(stored / TOKENIZER))
        else:
            check_tokenizer(content := stored.tokenizer)
            tokenizer = Tokenizer.from_str(json.dumps(content))
        vocabulary_ids = tokenizer.get_vocab()
    highest = max(vocabulary_ids.values(), default=0)
    if highest >= vocabulary:
        raise ValueError(f"{TOKENIZER} has the token {highest}, but there are {vocabulary:,}")
    with stderr_silenced(), as_value_error(f"{TOKENIZER} cannot be used"):
        tokenizer.encode_special_tokens = True  # so that typed text cannot contain a mark
        tokenizer.no_padding()
        tokenizer.no_truncation()
        _encoded(tokenizer, "a")
        for token in range(min(vocabulary, 1000)):
            tokenizer.decode([token])
        first = tuple(tokenizer.encode("").ids)
        if vocabulary_ids.keys() >= {*MARKS.values(), END}:
            marks = {writer: (vocabulary_ids[mark],) for writer, mark in MARKS.items()}
            return Tokens(tokenizer, first, marks, vocabulary_ids[END])
        return marked_tokens(tokenizer, first, _template(stored))


def marked_tokens(tokenizer: Any, first: tuple[int, ...], template: str) -> Tokens:
    """Return the tokens of a chat model with a template, or of another without.

    Raises a ValueError if a tokenizer cannot encode lines.
    """
    tokenizer.encode_special_tokens = False
    tokens = _template_tokens(tokenizer, first, template)
    if tokens is None:
        marks = {writer: _encoded(tokenizer, f"{writer.capitalize()}:") for writer in MARKS}
        tokens = Tokens(tokenizer, first, marks, (-1, *_encoded(tokenizer, "\n"))[-1])
    tokenizer.encode_special_tokens = True  # so that typed text cannot contain a mark
    if tokens.end < 0 or not all(tokens.marks.values()):
        raise ValueError("its tokenizer cannot encode a line that begins with a name")
    return tokens


def library_tokens(tokenizer: Any) -> Tokens:
    """Return the tokens of a *transformers* tokenizer, or of any with its `decode`.

    Those of a chat template have its marks, by which speakers are known.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    template = getattr(tokenizer, "chat_template", None)
    template = template if backend and isinstance(template, str) else ""
    return _template_tokens(backend, (), template) or Tokens(backend or tokenizer, (), {}, 0)


def _template_tokens(tokenizer: Any, first: tuple[int, ...], template: str) -> Tokens | None:
    """Return the tokens of a chat model, None if its template cannot be read; −1 for no end."""
    texts = chat_template(template)
    if texts is None:
        return None
    ids = {name: _encoded(tokenizer, text) for name, text in texts.items()}
    call = ids["assistant"] + _encoded(tokenizer, CALL_TAGS[0])
    return Tokens(
        tokenizer,
        first,
        {"user": ids["user"], "system": ids["assistant"], "call": call},
        (*ids["end"], -1)[0],
        tail=ids["end"][1:],
        prompt=ids["prompt"],
        kinds={"system": ids["system"], "result": ids["tool"]},
        result_end=ids["result_end"],
        template=template,
    )


def _encoded(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False).ids)


def _template(stored: Path | GgufFile) -> str:
    """Return the chat template of a model, "" for none."""
    if not isinstance(stored, Path):
        return str(stored.fields.get("tokenizer.chat_template", ""))
    if (stored / _TEMPLATE).is_file():
        return read_bytes(stored / _TEMPLATE, MAX_MODEL_JSON_BYTES).decode(errors="replace")
    if not (stored / _SETTINGS).is_file():
        return ""
    template = read_json(stored / _SETTINGS).get("chat_template")
    return template if isinstance(template, str) else ""
