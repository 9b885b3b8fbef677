"""A model's tokenizer, and the marks that begin and end a passage."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import date
from functools import cached_property
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import KINDS, SPEAKERS, word_id
from fdkvc.core.json_input import read_bytes
from fdkvc.core.limits import MAX_MODEL_JSON_BYTES
from fdkvc.core.recordings import Token
from fdkvc.core.token_traits import text_surprisal, token_traits
from fdkvc.core.transcripts import SpanKind, Transcript, word_ids
from fdkvc.core.words import as_value_error
from fdkvc.models.numpy.chat_template import (
    BEGUN,
    JOIN,
    START,
    ChatTexts,
    ReadPassage,
    SpecialTokens,
    ToolList,
    chat_texts,
    tool_prompts,
)
from fdkvc.models.numpy.gguf_file import GgufFile
from fdkvc.models.numpy.model_folder import TOKENIZER, check_tokenizer, read_json, stderr_silenced
from fdkvc.models.numpy.model_text import CALL_TAGS, Kind, Passage, Writer, model_text, read_call

MARKS: Mapping[Writer, str] = {"user": "<user>", "system": "<system>", "call": "<call>"}
END = "<end>"
"""Tokens that a model may have for the start and end of a passage."""

MARK = -2
"""The kind of what is written around calls and results, which stays where they are cleared."""

_KIND_OF: Mapping[str, SpanKind] = {
    "prompt": "system",
    "result": "result",
    "call": "call",
    "system": "assistant",
    "user": "user",
}
"""The kind of message that each mark begins."""

_SPEAKER_OF = {
    kind: SPEAKERS.index({"system": "prompt", "user": "user"}.get(kind, "system")) for kind in KINDS
} | {"": -1}


class _Message(NamedTuple):
    """A message in a passage."""

    start: int
    """Its first token."""
    text: int
    """The first after its mark."""
    kind: SpanKind | Literal[""]
    """Its kind, if known."""


TOKEN_FEATURES = frozenset(("surprisal", "words", "speakers", "kinds", "traits"))
"""What a policy looks at that depends on the text of tokens."""

_TEMPLATE, _SETTINGS = "chat_template.jinja", "tokenizer_config.json"

MAX_VOCABULARY = 2**31
"""Of a tokenizer whose model is not known."""

BLOCK = 256
"""Tokens of a text that are decoded at once to find where each ends."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """A tokenizer, and the marks of passages.

    A model whose vocabulary has `MARKS` and `END` gets those, and a chat model what its template
    has (`TemplateTokens`). For another, each passage is a line that begins with its writer and a
    colon. No text of a dialog becomes a mark.
    """

    tokenizer: Any
    """One of the library *tokenizers*."""
    first: tuple[int, ...]
    """The tokenizer's prefix of any text."""
    marks: Mapping[Writer, tuple[int, ...]]
    """With which a model begins to write, and a user's message after an answer begins."""
    end: int
    """With which a written passage ends."""
    closing: tuple[int, ...] = ()
    """What ends a written passage; nothing where its end begins the next one."""
    openings: Sequence[tuple[str, tuple[int, ...]]] = ()
    """All marks with which passages begin, each with the writer or the kind of passage."""
    prompt: tuple[int, ...] = ()
    """The model's own system prompt: before the first passage, unless that is a system prompt."""
    note: str = ""
    """What of a dialog is not read as a chat model reads it, in a sentence."""
    _surprisal: dict[int, float] = field(default_factory=dict, repr=False)
    """That of tokens seen so far."""

    calls_as_json: ClassVar[bool] = False
    """Whether calls are JSON, or lines."""

    def encode(self, text: str) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
        """Return the ids of a text, none of them a mark, and the characters of each."""
        with as_value_error(f"the model's tokenizer cannot read {text[:40]!r}"):
            encoded = self.tokenizer.encode(text, add_special_tokens=False)
        return tuple(encoded.ids), tuple(encoded.offsets)

    def prepare(self, transcripts: Iterable[Transcript]) -> None:
        """Do at once what all dialogs need, before they are encoded."""

    def encode_dialog(self, transcript: Transcript) -> list[EncodedPassage]:
        """Return the passages of a dialog in tokens."""
        passages = model_text(transcript, as_json=self.calls_as_json)
        return [self.encode_passage(passage) for passage in passages]

    def encode_passage(
        self, passage: Passage, *, after: Sequence[str] | None = None
    ) -> EncodedPassage:
        """Return a passage in tokens, as it is read after messages of some roles.

        These are by default a user's message, and an answer if the passage is no part of that.
        """
        mark, close = self.marks[passage.writer], (self.end,)
        return EncodedPassage.of(passage, mark, self.encode(passage.text), close)

    def in_history(self, ids: Sequence[int], after: Sequence[str]) -> tuple[int, ...]:
        """Return how an answer to messages is read once another follows; () if as it was written.

        `ids` are its tokens from its mark on.
        """
        return ()

    def prompt_size(self, transcript: Transcript) -> int:
        """Return the tokens of a dialog's system prompt, or of the model's own without one."""
        passages = self.encode_dialog(transcript)
        sizes = (len(part.ids) for part in passages if part.passage.kind == "system")
        return sum(sizes) or len(self.prompt)

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without marks."""
        with as_value_error("the model's tokenizer cannot decode the model's answer"):
            return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def features(
        self, ids: Sequence[int], looks_at: Collection[str], kind: Kind | None = None
    ) -> dict[str, NDArray[Any]]:
        """Return what a policy may look at of the text of a passage's tokens, of each (n, ...).

        The names are those of `TOKEN_FEATURES` that `looks_at` has; words and speakers go together,
        and so do kinds and tools. A word is the `fdkvc.core.attention.word_id`, 0 for none; a
        speaker the index into `fdkvc.core.attention.SPEAKERS`, and a kind that into
        `fdkvc.core.attention.KINDS`, −1 before the first mark, or `MARK`; a tool is that of a call;
        traits are `fdkvc.core.attention.TRAITS`. `kind` is that of the passage, which its mark may
        not tell.
        """
        features: dict[str, NDArray[Any]] = {}
        if "surprisal" in looks_at:
            features["surprisal"] = np.array(self.surprisal(ids), np.float32)
        if {"words", "speakers"} & {*looks_at}:
            features["words"] = np.array(word_ids(*self._written(ids)), np.intp)
            features["speakers"] = self._speakers(ids, kind)
        if "kinds" in looks_at:
            features["kinds"], features["tools"] = self._kinds(ids, kind)
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
            texts = (self.text([*before, *ids[first:last]]) for last in range(first + 1, end + 1))
            ends += [start + len(text) for text in texts]
        return self.text(ids), list(zip([0, *ends], ends, strict=False))

    def passage_text(self, ids: Sequence[int]) -> str:
        """Return the text of a passage without its mark, and the prompt before it."""
        return self.text(ids[self.mark_of(ids)[0] :]).strip()

    def texts_of(self, ids: Sequence[int], offset: int = 0) -> Iterator[tuple[int, int]]:
        """Yield the tokens (first, end) of the prompt's text in a passage, if any, and of its own.

        The first token of the passage has the number `offset`.
        """
        if self.prompt and tuple(ids[: len(self.prompt)]) == self.prompt:
            marks = (mark for kind, mark in self.openings if kind == "prompt")
            begun = (len(mark) for mark in marks if self.prompt[: len(mark)] == mark)
            yield offset + max(begun, default=0), offset + len(self.prompt)
        yield offset + self.mark_of(ids)[0], offset + len(ids)

    def mark_of(self, ids: Sequence[int]) -> tuple[int, list[str]]:
        """Return how many tokens of a passage its mark takes, and whose mark it is.

        These are the writers, or the kinds ``prompt`` and ``result``.
        """

        def has(first: int, part: tuple[int, ...]) -> bool:
            return tuple(ids[first : first + len(part)]) == part

        # 1. Where the mark may begin: a passage that the model wrote is closed by the next one.
        starts = {0}
        for before in (self.closing, self.first, self.prompt):
            starts |= {first + len(before) for first in starts if has(first, before)}
        # 2. The marks there, of which the one that ends last counts.
        ends: dict[int, list[str]] = {0: []}
        for first in starts:
            for kind, mark in [*self.marks.items(), *self.openings]:
                if has(first, mark):
                    ends.setdefault(first + len(mark), []).append(kind)
        length = max(ends)
        return length, ends[length]

    @property
    def speakers(self) -> tuple[str, ...]:
        """Speakers that marks distinguish: a system prompt may have the mark of its writer."""
        prompts = {mark for kind, mark in self.openings if kind == "prompt"}
        prompted = bool(prompts - {(), *self.marks.values()})
        return SPEAKERS[: 2 + prompted] if self.marks else ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of messages that marks distinguish; see `fdkvc.core.attention.KINDS`."""
        if not self.marks:
            return ()
        spoken = {(), self.marks.get("user"), self.marks.get("system")}
        marked = {"user", "assistant"}
        for name, mark in [*self.openings, *self.marks.items()]:
            if mark not in spoken:
                marked.add(_KIND_OF[name])
        return tuple(kind for kind in KINDS if kind in marked)

    def _speakers(self, ids: Sequence[int], kind: Kind | None) -> NDArray[np.intp]:
        """Return the speaker of each token, that of the last mark before it.

        A passage may be several messages, if a chat template marks each, and the model's own prompt
        is one of them. What a written passage is closed with later belongs to the next.
        """
        begun = self._messages(ids, kind)
        marked = self._speaker(ids) >= 0
        speakers = np.full(len(ids), _SPEAKER_OF[begun[0].kind] if marked else -1, np.intp)
        for message in begun:
            speakers[message.start :] = _SPEAKER_OF[message.kind]
        return speakers

    def _kinds(
        self, ids: Sequence[int], kind: Kind | None
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the kind of each token, and the tool of those of calls."""
        begun = self._messages(ids, kind)
        kinds, tools = np.full(len(ids), -1, np.intp), np.zeros(len(ids), np.intp)
        ends = [*(message.start for message in begun[1:]), len(ids)]
        for message, end in zip(begun, ends, strict=True):
            start = 0 if message is begun[0] else message.start
            if message.kind in ("call", "result"):
                # What the template writes around it stays if it is cleared.
                kinds[start:end] = MARK
                start, end = message.text, end - self._closed(ids[message.text : end])
            if message.kind:
                kinds[start:end] = KINDS.index(message.kind)
            if message.kind == "call":
                tools[start:end] = word_id(read_call(self.text(ids[start:end]))[0])
        return kinds, tools

    def _closed(self, ids: Sequence[int]) -> int:
        """Return how many tokens at the end of a message close it."""
        closing = self.closing if self.closing != (self.end,) else ()
        for close in (closing, (self.end,)):
            if close and tuple(ids[-len(close) :]) == close:
                return len(close)
        return 0

    def _messages(self, ids: Sequence[int], kind: Kind | None) -> list[_Message]:
        """Return the messages of a passage, at least one."""
        begun: list[_Message] = []
        for start in range(len(ids)):
            for core, (kind_of, mark) in self._message_marks.items():
                if tuple(ids[start : start + len(core)]) == core:
                    whole = tuple(ids[start : start + len(mark)]) == mark
                    text = start + len(mark if whole else core)
                    begun.append(_Message(start, text, kind_of))
                    break  # the longest mark counts
        length, _ = self.mark_of(ids)
        begun = begun or [_Message(0, length, self._kind(ids))]
        if kind is not None:
            begun[-1] = begun[-1]._replace(kind=kind)
        return begun

    @cached_property
    def _message_marks(self) -> dict[tuple[int, ...], tuple[SpanKind, tuple[int, ...]]]:
        """The cores of marks of messages in a chat, the longest first, with their kind and mark."""
        if not self.openings:
            return {}
        marks: dict[tuple[int, ...], tuple[SpanKind, tuple[int, ...]]] = {}
        for name, kind in _KIND_OF.items():  # of equal marks the last one counts
            for key, mark in [*self.openings, *self.marks.items()]:
                if key == name:
                    marks[self._core(mark)] = kind, mark
        return {mark: marks[mark] for mark in sorted(marks, key=len, reverse=True) if mark}

    def _core(self, mark: tuple[int, ...]) -> tuple[int, ...]:
        """Return a mark without the space at its end, which may be one token with what follows."""
        decoded = [self.tokenizer.decode([token], skip_special_tokens=False) for token in mark]
        while decoded and not decoded[-1].strip():
            decoded.pop()
        return mark[: len(decoded)]

    def _speaker(self, ids: Sequence[int]) -> int:
        """Return the speaker of a passage by the mark that it begins with."""
        kind = self._kind(ids)
        return SPEAKERS.index("user" if kind == "user" else "system") if kind else -1

    def _kind(self, ids: Sequence[int]) -> SpanKind | Literal[""]:
        """Return the kind of a passage by the mark that it begins with, "" without one."""
        _, names = self.mark_of(ids)
        return _KIND_OF[names[0]] if len({*names}) == 1 else "assistant" if names else ""

    def surprisal(self, ids: Sequence[int]) -> list[float]:
        """Return the surprisal of tokens without context, in nats.

        It is that of the first word of a token's text, or else 0; see `fdkvc.core.token_traits`.
        """
        for token in {*ids} - self._surprisal.keys():
            self._surprisal[token] = text_surprisal(self.text([token]))
        return [self._surprisal[token] for token in ids]


@dataclass(frozen=True)
class EncodedPassage:
    """A passage in tokens, with its mark and end."""

    passage: Passage
    """What it encodes."""
    ids: tuple[int, ...]
    """Its tokens."""
    spans: tuple[tuple[int, int], ...]
    """(start, end): the characters of the passage's text in each token; start = end for none."""
    start: int
    """Tokens of its mark, and of the prompt before it."""
    stop: int
    """Tokens up to the end of its text."""

    @classmethod
    def of(
        cls,
        passage: Passage,
        mark: tuple[int, ...],
        text: tuple[tuple[int, ...], tuple[tuple[int, int], ...]],
        close: tuple[int, ...],
    ) -> EncodedPassage:
        """Return a passage with the ids and characters of its text between a mark and its end."""
        ids, spans = text
        spans = (*((0, 0),) * len(mark), *spans, *((0, 0),) * len(close))
        return cls(passage, (*mark, *ids, *close), spans, len(mark), len(mark) + len(ids))

    def tokens_of(self, start: int, end: int) -> tuple[int, ...]:
        """Return the indices of the tokens that cover any of these characters."""
        shared = [min(high, end) - max(low, start) for low, high in self.spans]
        return tuple(index for index, length in enumerate(shared) if length > 0)


def tokens_by_turn(
    transcript: Transcript, passages: Sequence[EncodedPassage], prefix: int = 0
) -> tuple[tuple[Token, ...], ...]:
    """Return the tokens of each turn of a dialog, whose first turn begins with a prefix of tokens.

    The tokens of a call belong to the turn that makes it, and to no words of that turn, as do those
    of tools that a chat template lists in its own way.
    """
    turns: list[list[Token]] = [[] for _ in transcript.turns]
    turns[0] += [Token("", 0, 0)] * prefix
    for encoded in passages:
        passage = encoded.passage
        worded = not passage.call and passage.text == transcript.turns[passage.turn].text
        spans = encoded.spans if worded else [(0, 0)] * len(encoded.spans)
        turns[passage.turn] += [Token(passage.text[low:high], low, high) for low, high in spans]
    return tuple(map(tuple, turns))


@dataclass(frozen=True, eq=False)
class TemplateTokens(Tokens):
    """The tokens of a chat model: dialogs as its template writes them, with calls as JSON."""

    _: KW_ONLY

    chat: ChatTexts
    """What the template writes around messages."""
    written: Mapping[str, tuple[int, ...]]
    """The tokens of all that it writes."""
    closings: Mapping[str, tuple[int, ...]]
    """By role, what ends a message whatever follows."""
    template: str
    """The program itself."""
    special: SpecialTokens
    """Those that it may name."""
    _tools: dict[ToolList, str | None] = field(default_factory=dict, repr=False)
    """How it lists tools, None if it does not; see `tool_prompts`."""

    calls_as_json: ClassVar[bool] = True

    def prepare(self, transcripts: Iterable[Transcript]) -> None:
        """Note how the template lists the tools of dialogs, in one rendering for all."""
        lists = dict.fromkeys(filter(None, map(_tools, transcripts)))
        new = [tools for tools in lists if tools not in self._tools]
        if new:
            prompts = tool_prompts(self.template, self.special, new)
            self._tools.update(zip(new, prompts, strict=True))

    def encode_dialog(self, transcript: Transcript) -> list[EncodedPassage]:
        """Return the passages of a dialog in tokens, without those that the template leaves out.

        Raises a ValueError if it accepts no messages in this order.
        """
        passages, listed = model_text(transcript, as_json=True), False
        if tools := _tools(transcript):
            self.prepare([transcript])
            if text := self._tools[tools]:
                passages, listed = (replace(passages[0], text=text), *passages[1:]), True
        return self._encoded(passages, listed=listed)

    def encode_passage(
        self, passage: Passage, *, after: Sequence[str] | None = None
    ) -> EncodedPassage:
        """Return a passage in tokens; see `Tokens.encode_passage`."""
        if after is None:
            after = ("user", "assistant")[: 1 if self._role(passage) == "assistant" else 2]
        encoded = self._encoded([passage], after)
        return encoded[0] if encoded else EncodedPassage(passage, (), (), 0, 0)

    def in_history(self, ids: Sequence[int], after: Sequence[str]) -> tuple[int, ...]:
        """Return an answer as the template has it before another message; see `Tokens`."""
        text = self.text(ids[len(self.marks["system"]) :])
        passage = Passage("system", text, 0)
        roles = [*after, role := self._role(passage), "user"]
        written = "".join(self.chat.around(after, BEGUN)[1][-1])
        read = "".join(self.chat.around(roles)[1][-3])
        if role != "thinking" and written == read:
            return ()
        return self._encoded([passage], after, ["user"])[0].ids

    def _role(self, passage: Passage) -> str:
        role = role_of(passage)
        return role if passage.call else self.chat.role_of(role, passage.text)

    def _encoded(
        self,
        passages: Sequence[Passage],
        after: Sequence[str] = (),
        follows: Sequence[str] = (),
        *,
        listed: bool = False,
    ) -> list[EncodedPassage]:
        """Return passages between messages of some roles.

        With `listed`, the text of the first is already as the template writes it.
        """
        roles = [*after, *map(self._role, passages)]
        if roles[-1:] == ["system"]:
            follows = "user", *follows  # without which no conversation is complete
        read, texts = self.chat.around([*roles, *follows])
        encoded, closed = list[EncodedPassage](), 0
        for number, reading in enumerate(read[: len(read) - len(follows)]):
            before, rest = texts[number], self._ids(texts[number + 1])
            closing = self.closings[reading.role]
            end = len(rest) if number + 1 == len(read) else len(closing)
            close = rest[:end] if rest[: len(closing)] == closing else ()
            if reading.passage >= len(after):
                passage = passages[reading.passage - len(after)]
                mark = self._ids(before)[closed:]
                text = self._text(passage, reading, listed and not encoded)
                if passage.call:
                    mark += self.written[CALL_TAGS[0]]
                elif before[-1].endswith(" "):  # and may be one token with the first word
                    mark = self._ids([*before[:-1], before[-1][:-1]])[closed:]
                    text = self._text(passage, reading, listed and not encoded, " ")
                encoded.append(EncodedPassage.of(passage, mark, text, close))
            closed = len(close)
        return encoded

    def _ids(self, texts: Sequence[str]) -> tuple[int, ...]:
        """Return the ids of parts that the template writes."""
        return tuple(chain.from_iterable(map(self.written.__getitem__, texts)))

    def _text(
        self, passage: Passage, reading: ReadPassage, listed: bool, space: str = ""
    ) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
        """Return the ids of a passage's text as it is written, and its own characters of each."""
        if listed:
            return self.encode(space + passage.text)
        text, places = self.chat.content(passage.text, reading)
        ids, spans = self.encode(space + text)
        characters = []
        for low, high in spans:  # of the space and the written text
            first, end = max(low - len(space), 0), high - len(space)
            characters.append((places[first], places[end - 1] + 1) if first < end else (0, 0))
        return ids, tuple(characters)


def role_of(passage: Passage) -> str:
    """Return the role of a passage in a chat template."""
    if passage.kind is not None:
        return "tool" if passage.kind == "result" else passage.kind
    return "user" if passage.writer == "user" else "assistant"


def _tools(transcript: Transcript) -> ToolList | None:
    """Return the tools that a dialog begins with, and whether a system prompt follows."""
    if not transcript.tools_in_text:
        return None
    return transcript.tools, [turn.kind for turn in transcript.turns[1:2]] == ["system"]


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
    return _tokens_of(tokenizer, vocabulary, *_template(stored))


def read_tokens(content: str, template: str = "", special: SpecialTokens = ()) -> Tokens:
    """Read the content of a checked ``tokenizer.json``, for a model with a chat template or none.

    Raises a ValueError that names the problem.
    """
    from tokenizers import Tokenizer

    with stderr_silenced(), as_value_error(f"{TOKENIZER} cannot be read"):
        tokenizer = Tokenizer.from_str(content)
    return _tokens_of(tokenizer, MAX_VOCABULARY, template, special)


def _tokens_of(
    tokenizer: Any, vocabulary: int, template: str, special: SpecialTokens = ()
) -> Tokens:
    vocabulary_ids = tokenizer.get_vocab()
    highest = max(vocabulary_ids.values(), default=0)
    if highest >= vocabulary:
        raise ValueError(f"{TOKENIZER} has the token {highest}, but there are {vocabulary:,}")
    with stderr_silenced(), as_value_error(f"{TOKENIZER} cannot be used"):
        tokenizer.encode_special_tokens = True  # so that typed text cannot contain a mark
        tokenizer.no_padding()
        tokenizer.no_truncation()
        _encoded(tokenizer, "a")
        for token in range(min(highest + 1, 1000)):
            tokenizer.decode([token])
        first = tuple(tokenizer.encode("").ids)
        if vocabulary_ids.keys() >= {*MARKS.values(), END}:
            marks = {writer: (vocabulary_ids[mark],) for writer, mark in MARKS.items()}
            return Tokens(tokenizer, first, marks, vocabulary_ids[END], (vocabulary_ids[END],))
        return marked_tokens(tokenizer, first, template, special)


def marked_tokens(
    tokenizer: Any, first: tuple[int, ...], template: str, special: SpecialTokens = ()
) -> Tokens:
    """Return the tokens of a chat model with a template, or of another without.

    Raises a ValueError if a tokenizer cannot encode lines.
    """
    tokenizer.encode_special_tokens = False
    chat = chat_texts(template, special)
    if isinstance(chat, ChatTexts):
        tokens: Tokens = _template_tokens(tokenizer, chat, template, special)
    else:
        marks = {writer: _encoded(tokenizer, f"{writer.capitalize()}:") for writer in MARKS}
        end = (-1, *_encoded(tokenizer, "\n"))[-1]
        note = f"This model reads dialogs as lines that begin with `User:`, because {chat}."
        tokens = Tokens(tokenizer, first, marks, end, (end,), note=note)
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
    special = getattr(tokenizer, "special_tokens_map", None) or {}
    names = tuple((name, text) for name, text in special.items() if isinstance(text, str))
    if backend and isinstance(template, str):
        chat = chat_texts(template, names)
        if isinstance(chat, ChatTexts):
            return _template_tokens(backend, chat, template, names)
    return Tokens(backend or tokenizer, (), {}, 0)


def _template_tokens(
    tokenizer: Any, chat: ChatTexts, template: str, special: SpecialTokens
) -> TemplateTokens:
    """Return the tokens of a chat model; the end is −1 if its passages have none."""
    texts = {JOIN, CALL_TAGS[0], *(gap.text for gap in chat.gaps.values())}
    texts |= {text[:-1] for text in texts if text.endswith(" ")}
    written = {text: _encoded(tokenizer, text) for text in texts}
    gaps = [(key, written[gap.text]) for key, gap in chat.gaps.items()]
    closings: dict[str, tuple[int, ...]] = {START: ()}
    for role in {before for before, _ in chat.pairs} - {START}:
        columns = zip(*(ids for (before, *_), ids in gaps if before == role), strict=False)
        closing = takewhile(lambda tokens: len({*tokens}) == 1, columns)
        closings[role] = tuple(token for token, *_ in closing)
    for (before, after, *_), ids in gaps:
        if after == BEGUN and ids == closings[before]:
            closings[before] = ()  # since a model writes after a mark

    def mark(roles: Sequence[str], number: int, *end: str) -> tuple[int, ...]:
        texts = chat.around(roles, *end)[1][number]
        before = closings[roles[number - 1] if number else START]
        return tuple(chain.from_iterable(map(written.__getitem__, texts)))[len(before) :]

    turns = ["user", "assistant", "user"]
    user, start = mark(turns, 2), mark(turns, 0)
    # The model's own prompt: what is before a first message of the user and not before a later one.
    size = len(start) - len(user) if user and start[-len(user) :] == user else 0
    call = mark(turns, 1) + written[CALL_TAGS[0]]
    openings = set[tuple[str, tuple[int, ...]]]()
    for (before, after, *_), ids in gaps:
        if after in _MARK_OF and not (size and (before, after) == (START, "user")):
            openings.add((_MARK_OF[after], ids[len(closings[before]) :]))
    return TemplateTokens(
        tokenizer,
        (),
        {"user": user, "system": mark(["user"], 1, BEGUN), "call": call},
        (*closings["assistant"], *user, -1)[0],
        closings["assistant"],
        sorted(opening for opening in openings if opening[1]),
        start[:size],
        _note(chat),
        chat=chat,
        written=written,
        closings=closings,
        template=template,
        special=special,
    )


_MARK_OF = {"user": "user", "tool": "result", "system": "prompt"} | dict.fromkeys(
    ("assistant", "thinking", BEGUN), "system"
)
"""The writer or kind of passage for each role in a chat template."""


def _note(chat: ChatTexts) -> str:
    """Return what a chat template does to dialogs, in a sentence, "" for nothing."""
    notes = [*chat.notes]
    if chat.dated:
        notes.append(f"the date of today is written ({date.today()})")
    return f"By this model's chat template, {'; '.join(notes)}." if notes else ""


def _encoded(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False).ids)


def _template(stored: Path | GgufFile) -> tuple[str, SpecialTokens]:
    """Return the chat template of a model, "" for none, and the special tokens that it may name."""
    if not isinstance(stored, Path):
        template, settings = stored.fields.get("tokenizer.chat_template"), stored.special_tokens
    else:
        about = read_json(stored / _SETTINGS) if (stored / _SETTINGS).is_file() else {}
        template = about.get("chat_template")
        if (stored / _TEMPLATE).is_file():
            content = read_bytes(stored / _TEMPLATE, MAX_MODEL_JSON_BYTES)
            template = content.decode(errors="replace")
        elif isinstance(template, list):  # several by name
            named = (entry for entry in template if isinstance(entry, dict))
            template = {entry.get("name"): entry.get("template") for entry in named}.get("default")
        settings = {}
        for name, value in about.items():
            text = value.get("content") if isinstance(value, dict) else value
            if name.endswith("_token") and isinstance(text, str):
                settings[name] = text
    return template if isinstance(template, str) else "", tuple(settings.items())
