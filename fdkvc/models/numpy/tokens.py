"""A model's tokenizer, and the marks that begin and end a passage."""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from itertools import starmap, takewhile
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
    SpecialTokens,
    ToolList,
    chat_texts,
    tool_prompts,
)
from fdkvc.models.numpy.gguf_file import GgufFile
from fdkvc.models.numpy.model_folder import (
    TOKENIZER,
    check_tokenizer,
    read_json,
    stderr_silenced,
)
from fdkvc.models.numpy.model_text import (
    CALL_TAGS,
    Kind,
    Passage,
    Writer,
    model_text,
    read_call,
)

MARKS: Mapping[Writer, str] = {"user": "<user>", "system": "<system>", "call": "<call>"}
END = "<end>"
"""Tokens for the start and end of a passage, in a vocabulary made for dialogs."""

MARK = -2
"""The kind of tokens written around calls and results: they stay when these are cleared."""

_KIND_OF: Mapping[str, SpanKind] = {
    "prompt": "system",
    "result": "result",
    "call": "call",
    "system": "assistant",
    "user": "user",
}
"""The kind of message that each mark begins."""

# The index into SPEAKERS by kind of message; calls and results count as the system's.
_SPEAKER_OF = {
    kind: SPEAKERS.index({"system": "prompt", "user": "user"}.get(kind, "system"))
    for kind in KINDS
} | {"": -1}


class _Message(NamedTuple):
    """A message in a passage, by its places in the passage's tokens."""

    start: int
    """The first token of its mark."""
    text: int
    """The first token after its mark."""
    kind: SpanKind | Literal[""]
    """Its kind, if known."""


TOKEN_FEATURES = frozenset(("surprisal", "words", "speakers", "kinds", "traits"))
"""The features that a policy may look at, of those that depend on the text of tokens."""

_TEMPLATE, _SETTINGS = "chat_template.jinja", "tokenizer_config.json"

MAX_VOCABULARY = 2**31
"""Size of the vocabulary that a tokenizer may have where its model is not known."""

BLOCK = 256
"""Tokens of a text that are decoded together to find where each ends."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """A tokenizer, and the marks of passages.

    A passage is a mark, a text, and what closes it. The marks are `MARKS` and `END` if the
    vocabulary has them, as the bundled model's does, and those of the chat template for a chat
    model (`TemplateTokens`). For any other model, each passage is a line that begins with its
    writer and a colon. Text of a dialog never becomes a mark, even if it looks like one.
    """

    tokenizer: Any
    """A tokenizer of the library *tokenizers*, or an object with its `encode` and `decode`."""
    first: tuple[int, ...]
    """What the tokenizer writes before any text, such as a BOS token."""
    marks: Mapping[Writer, tuple[int, ...]]
    """The mark of each writer: what a model is given to make it write a passage, and what begins a
    user's message after an answer."""
    end: int
    """The token with which a model ends a passage that it writes."""
    closing: tuple[int, ...] = ()
    """What closes a written passage, from its end on; () where the end begins the next passage."""
    openings: Sequence[tuple[str, tuple[int, ...]]] = ()
    """All marks that may begin a passage, each with the writer or the kind of passage."""
    prompt: tuple[int, ...] = ()
    """The model's own system prompt: before the first passage, unless that is a system prompt."""
    note: str = ""
    """How dialogs are not read as by a chat model, in a sentence; "" if they are."""
    calls_as_json: ClassVar[bool] = False
    """Whether calls are JSON, or lines."""

    def encode(self, text: str) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
        """Return the ids of a text, without marks, and the characters (start, end) of each."""
        with as_value_error(f"the model's tokenizer cannot read {text[:40]!r}"):
            encoded = self.tokenizer.encode(text, add_special_tokens=False)
        return tuple(encoded.ids), tuple(encoded.offsets)

    def prepare(self, transcripts: Iterable[Transcript]) -> None:
        """Do what all dialogs need at once, before they are encoded one by one."""

    def encode_dialog(self, transcript: Transcript) -> list[EncodedPassage]:
        """Return the passages of a dialog in tokens, without those that the template leaves out.

        Raises a ValueError if it accepts no messages in this order.
        """
        return [*map(self._encoded, self._written_passages(transcript))]

    def count_by_turn(self, transcript: Transcript) -> list[int]:
        """Return the number of tokens of each turn of a dialog: fast, and beside other threads."""
        counts = [0] * len(transcript.turns)
        counts[0] = len(self.first)
        passages = self._written_passages(transcript)
        texts = [passage.text for passage in passages]
        with as_value_error(f"the model's tokenizer cannot read {transcript.name}"):
            # Without offsets of tokens, which a count does not need.
            encoded = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        for row, tokens in zip(passages, encoded, strict=True):
            counts[row.passage.turn] += len(row.mark) + len(tokens) + len(row.close)
        return counts

    def passages(self, transcript: Transcript) -> tuple[Passage, ...]:
        """Return the passages of a dialog; its tools are as the chat template lists them."""
        return model_text(transcript, as_json=self.calls_as_json)

    def _written_passages(self, transcript: Transcript) -> list[WrittenPassage]:
        """Return the passages of a dialog as the model reads them."""
        return [*map(self._written_passage, self.passages(transcript))]

    def _written_passage(self, passage: Passage) -> WrittenPassage:
        return WrittenPassage(passage, self.marks[passage.writer], passage.text, (self.end,))

    def encode_passage(
        self, passage: Passage, *, earlier_roles: Sequence[str] | None = None
    ) -> EncodedPassage:
        """Return a passage in tokens, as it is read after messages of the roles `earlier_roles`.

        By default an answer follows a user's message, and any other passage follows an answer.
        """
        return self._encoded(self._written_passage(passage))

    def _encoded(self, written: WrittenPassage) -> EncodedPassage:
        """Return a passage in tokens, from what is written."""
        ids, spans = self.encode(written.text)
        if written.places is not None:
            spans = tuple(starmap(written.own_characters, spans))
        start = len(written.mark)
        stop = start + len(ids)
        ids = (*written.mark, *ids, *written.close)
        empty_span = ((0, 0),)
        spans = empty_span * start + spans + empty_span * (len(ids) - stop)
        return EncodedPassage(written.passage, ids, spans, start, stop)

    def in_history(self, ids: Sequence[int], earlier_roles: Sequence[str]) -> tuple[int, ...]:
        """Return the tokens of an answer once another message follows; () if they are the same.

        Some templates write earlier answers differently, for example without thinking. `ids` are
        the tokens as they were written, from the mark on; the roles are those before the answer.
        """
        return ()

    def prompt_size(self, transcript: Transcript) -> int:
        """Return the number of tokens of a dialog's system prompt, or else of the model's own."""
        size = 0
        for encoded in self.encode_dialog(transcript):
            if encoded.passage.kind == "system":
                size += len(encoded.ids)
        return size or len(self.prompt)

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without marks."""
        with as_value_error("the model's tokenizer cannot decode its tokens"):
            return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def features(
        self, ids: Sequence[int], looks_at: Collection[str], kind: Kind | None = None
    ) -> dict[str, NDArray[Any]]:
        """Return the features of a passage's tokens that a policy looks at, of each token (n, ...).

        The names are those of `TOKEN_FEATURES` that `looks_at` has; words come with speakers, and
        kinds with tools:

        - words: `fdkvc.core.attention.word_id`, 0 for none
        - speakers: indices into `fdkvc.core.attention.SPEAKERS`, −1 before the first mark
        - kinds: indices into `fdkvc.core.attention.KINDS`, −1 before the first mark, or `MARK`
        - tools: the `word_id` of a call's method, 0 elsewhere
        - traits: `fdkvc.core.attention.TRAITS`

        `kind` is the kind of the passage, which its mark may not tell.
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
            features["traits"] = token_traits(
                *self._written(ids), self.mark_of(ids)[1] == "user"
            )
        return features

    def _written(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """Return the text of ids, and the characters (start, end) of each."""
        # A token's text ends where the text decoded up to it ends. Decoded alone, a token may lose
        # a space at its start, or be a part of a character. That is quadratic in the tokens, so a
        # long text is decoded in blocks, each after the token before it.
        token_ends: list[int] = []
        start = 0
        for index in range(len(ids)):
            if index % BLOCK == 0:
                decoded_ids = [*ids[max(index - 1, 0) : index]]
                start = (token_ends[-1] if token_ends else 0) - len(self.text(decoded_ids))
            decoded_ids.append(ids[index])
            token_ends.append(start + len(self.text(decoded_ids)))
        return self.text(ids), list(zip([0, *token_ends], token_ends, strict=False))

    def passage_text(self, ids: Sequence[int]) -> str:
        """Return the text of a passage without its mark and the prompt before that."""
        return self.text(ids[self.mark_of(ids)[0] :]).strip()

    def texts_of(self, ids: Sequence[int], offset: int = 0) -> Iterator[tuple[int, int]]:
        """Yield where a passage's text is in its tokens (first, end), after that of the prompt.

        The model's own prompt may be in the first passage. Tokens are counted from `offset`.
        """
        if self.prompt and tuple(ids[: len(self.prompt)]) == self.prompt:
            length = 0
            for kind, mark in self.openings:
                if kind == "prompt" and self.prompt[: len(mark)] == mark:
                    length = max(length, len(mark))
            yield offset + length, offset + len(self.prompt)
        yield offset + self.mark_of(ids)[0], offset + len(ids)

    def mark_of(self, ids: Sequence[int]) -> tuple[int, SpanKind | Literal[""]]:
        """Return how many tokens at a passage's start are up to the end of its mark, and its kind.

        The kind is "" without a mark.
        """

        def has(first: int, part: tuple[int, ...]) -> bool:
            return tuple(ids[first : first + len(part)]) == part

        # 1. Where the mark may begin. Before it, each optional and in this order: what closes the
        #    answer before, the tokenizer's prefix, the model's own prompt.
        starts = {0}
        for prefix in (self.closing, self.first, self.prompt):
            starts |= {first + len(prefix) for first in starts if has(first, prefix)}
        # 2. Of the marks there, the one that ends last counts: one mark may begin another.
        mark_ends: dict[int, set[SpanKind]] = {0: set()}
        for first in starts:
            for kind, mark in [*self.marks.items(), *self.openings]:
                if has(first, mark):
                    mark_ends.setdefault(first + len(mark), set()).add(_KIND_OF[kind])
        length = max(mark_ends)
        # A model may begin calls and words with the same mark.
        ambiguous = len(mark_ends[length]) > 1
        return length, "assistant" if ambiguous else next(iter(mark_ends[length]), "")

    @property
    def speakers(self) -> tuple[str, ...]:
        """Speakers that marks distinguish; see `fdkvc.core.attention.SPEAKERS`."""
        if not self.marks:
            return ()
        # A system prompt may be given as the user's words, and then has the user's mark.
        return SPEAKERS if "system" in self.kinds else SPEAKERS[:2]

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

        A passage may hold several messages with marks, such as the model's own prompt. Tokens that
        close an answer, once the next message follows, belong to that message.
        """
        messages = self._messages(ids, kind)
        first = messages[0].kind if self.mark_of(ids)[1] else ""
        speakers = np.full(len(ids), _SPEAKER_OF[first], np.intp)
        for message in messages:
            speakers[message.start :] = _SPEAKER_OF[message.kind]
        return speakers

    def _kinds(
        self, ids: Sequence[int], kind: Kind | None
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the kind of each token, and the tool of those of calls."""
        messages = self._messages(ids, kind)
        kinds = np.full(len(ids), -1, np.intp)
        tools = np.zeros(len(ids), np.intp)
        message_ends = [*(message.start for message in messages[1:]), len(ids)]
        for message, end in zip(messages, message_ends, strict=True):
            start = 0 if message is messages[0] else message.start
            if message.kind in ("call", "result"):
                # Clearing a call or result removes its text, and leaves what is around that.
                kinds[start:end] = MARK
                start = message.text
                end = end - self._closed(ids[message.text : end])
            if message.kind:
                kinds[start:end] = KINDS.index(message.kind)
            if message.kind == "call":
                tools[start:end] = word_id(read_call(self.text(ids[start:end]))[0])
        return kinds, tools

    def _closed(self, ids: Sequence[int]) -> int:
        """Return how many tokens at the end of a message close it."""
        for close in (self.closing, (self.end,)):
            if close and tuple(ids[-len(close) :]) == close:
                return len(close)
        return 0

    def _messages(self, ids: Sequence[int], kind: Kind | None) -> list[_Message]:
        """Return the messages of a passage, at least one."""
        messages = []
        for start in range(len(ids)):
            for core, (message_kind, mark) in self._message_marks.items():
                if tuple(ids[start : start + len(core)]) == core:
                    complete = tuple(ids[start : start + len(mark)]) == mark
                    text = start + len(mark if complete else core)
                    messages.append(_Message(start, text, message_kind))
                    break  # the longest mark, which comes first
        if not messages:  # a plain model, or the rest of a message that was read in parts
            messages = [_Message(0, *self.mark_of(ids))]
        if kind is not None:  # the passage is the last message: the prompt comes before it
            messages[-1] = messages[-1]._replace(kind=kind)
        return messages

    @cached_property
    def _message_marks(self) -> dict[tuple[int, ...], tuple[SpanKind, tuple[int, ...]]]:
        """The marks of a chat's messages by their cores, the longest first: kind and whole mark."""
        if not self.openings:
            return {}
        marks: dict[tuple[int, ...], tuple[SpanKind, tuple[int, ...]]] = {}
        # Two kinds may have the same mark: the later one of `_KIND_OF` counts.
        order = [*_KIND_OF]
        opening_marks = [*self.openings, *self.marks.items()]
        for name, mark in sorted(opening_marks, key=lambda opening: order.index(opening[0])):
            marks[self._core(mark)] = _KIND_OF[name], mark
        marks.pop((), None)
        return dict(sorted(marks.items(), key=lambda row: len(row[0]), reverse=True))

    def _core(self, mark: tuple[int, ...]) -> tuple[int, ...]:
        """Return a mark without its last spaces, which may merge with the text into one token."""
        decoded = [self.tokenizer.decode([token], skip_special_tokens=False) for token in mark]
        while decoded and not decoded[-1].strip():
            decoded.pop()
        return mark[: len(decoded)]

    def surprisal(self, ids: Sequence[int]) -> list[float]:
        """Return the surprisal of tokens without context, in nats.

        It is the surprisal of the first word in a token's text, 0 if there is none; see
        `fdkvc.core.token_traits`.
        """
        by_token = {token: text_surprisal(self.text([token])) for token in {*ids}}
        return [by_token[token] for token in ids]


@dataclass(frozen=True)
class WrittenPassage:
    """A passage as a model reads it, before its text is encoded."""

    passage: Passage
    mark: tuple[int, ...]
    """The tokens before its text, with the prompt before the first mark."""
    text: str
    """What is encoded, which may begin with a space that belongs to the mark."""
    close: tuple[int, ...]
    """The tokens after its text."""
    places: Sequence[int] | None = None
    """For each character of the text after that space, the index of the one of the passage's text
    that it stands for; None where that is the same text."""
    space: int = 0
    """How many characters that space has."""

    def own_characters(self, low: int, high: int) -> tuple[int, int]:
        """Return the characters (start, end) of the passage's text for those of what is encoded."""
        assert self.places is not None
        first = max(low - self.space, 0)
        end = high - self.space
        return (self.places[first], self.places[end - 1] + 1) if first < end else (0, 0)


@dataclass(frozen=True)
class EncodedPassage:
    """A passage in tokens, with its mark and end."""

    passage: Passage
    """What it encodes."""
    ids: tuple[int, ...]
    """Its tokens."""
    spans: tuple[tuple[int, int], ...]
    """The characters (start, end) of the passage's text in each token; start = end for none."""
    start: int
    """Its text begins at this token, after the mark and the prompt before that."""
    stop: int
    """Its text ends before this token."""

    def tokens_of(self, start: int, end: int) -> tuple[int, ...]:
        """Return the indices of the tokens that cover any of these characters."""
        tokens = []
        for index, (low, high) in enumerate(self.spans):
            if max(low, start) < min(high, end):
                tokens.append(index)
        return tuple(tokens)


def tokens_by_turn(
    transcript: Transcript, passages: Sequence[EncodedPassage], prefix: int
) -> tuple[tuple[Token, ...], ...]:
    """Return the tokens of each turn of a dialog; the first turn begins with `prefix` others.

    Tokens of a call belong to the turn that makes it, but to no characters of that turn's text. The
    same holds for a list of tools that a chat template writes in its own way.
    """
    turns: list[list[Token]] = [[] for _ in transcript.turns]
    turns[0] += [Token("", 0, 0)] * prefix
    for encoded in passages:
        passage = encoded.passage
        # Characters count only where the passage is the turn's own text.
        worded = not passage.call and passage.text == transcript.turns[passage.turn].text
        for low, high in encoded.spans:
            token = Token(passage.text[low:high], low, high) if worded else Token("", 0, 0)
            turns[passage.turn].append(token)
    return tuple(map(tuple, turns))


@dataclass(frozen=True, eq=False)
class TemplateTokens(Tokens):
    """The tokens of a chat model: dialogs as its template writes them, with calls as JSON."""

    _: KW_ONLY

    chat: ChatTexts
    """What the template writes around messages."""
    written: dict[str, tuple[int, ...]]
    """The tokens of each text that the template has written so far."""
    closings: Mapping[str, tuple[int, ...]]
    """By role, what closes a message whatever message follows."""
    _tools: dict[ToolList, str | None] = field(default_factory=dict, repr=False)
    """The text in which it lists tools, None if it does not; see `tool_prompts`."""

    calls_as_json: ClassVar[bool] = True

    def prepare(self, transcripts: Iterable[Transcript]) -> None:
        """Render how the template lists the tools of dialogs, in one process for all of them."""
        lists = dict.fromkeys(filter(None, map(_tools, transcripts)))
        new = [tools for tools in lists if tools not in self._tools]
        if new:
            prompts = tool_prompts(self.chat, new)
            self._tools.update(zip(new, prompts, strict=True))

    def passages(self, transcript: Transcript) -> tuple[Passage, ...]:
        """Return the passages of a dialog; its tools are as the chat template lists them."""
        passages = super().passages(transcript)
        text = self._tools_text(transcript)
        return (replace(passages[0], text=text), *passages[1:]) if text else passages

    def _tools_text(self, transcript: Transcript) -> str | None:
        """Return the text in which the template lists a dialog's tools, None if it does not."""
        tools = _tools(transcript)
        self.prepare([transcript])
        return self._tools[tools] if tools else None

    def _written_passages(self, transcript: Transcript) -> list[WrittenPassage]:
        listed = bool(self._tools_text(transcript))
        return self._in_order(self.passages(transcript), listed=listed)

    def encode_passage(
        self, passage: Passage, *, earlier_roles: Sequence[str] | None = None
    ) -> EncodedPassage:
        """Return a passage in tokens; see `Tokens.encode_passage`."""
        if earlier_roles is None:
            answer = self._role(passage) == "assistant"
            earlier_roles = ("user",) if answer else ("user", "assistant")
        read = self._in_order([passage], earlier_roles)
        return self._encoded(read[0]) if read else EncodedPassage(passage, (), (), 0, 0)

    def in_history(self, ids: Sequence[int], earlier_roles: Sequence[str]) -> tuple[int, ...]:
        """Return an answer as the template writes it before another message; see `Tokens`."""
        text = self.text(ids[len(self.marks["system"]) :])
        passage = Passage("system", text, 0)
        role = self._role(passage)
        # What is before the answer as it is written, and before it once a user's message follows:
        # the third text from the end, as one is after each of the two last messages.
        mark_text = self.chat.render(earlier_roles, BEGUN).texts[-1]
        read = self.chat.render([*earlier_roles, role, "user"]).texts[-3]
        if role != "thinking" and mark_text == read:
            return ()
        return self._encoded(self._in_order([passage], earlier_roles, ["user"])[0]).ids

    def _role(self, passage: Passage) -> str:
        role = role_of(passage)
        return role if passage.writer == "call" else self.chat.role_of(role, passage.text)

    def _in_order(
        self,
        passages: Sequence[Passage],
        after: Sequence[str] = (),
        follows: Sequence[str] = (),
        *,
        listed: bool = False,
    ) -> list[WrittenPassage]:
        """Return passages that stand after messages of the roles `after`, and before `follows`.

        With `listed`, the text of the first is already as the template writes it.
        """
        roles = [*after, *map(self._role, passages)]
        if roles[-1:] == ["system"]:
            follows = "user", *follows  # templates may refuse a conversation without a user
        # 1. What the template writes around all these messages.
        read, texts = self.chat.render([*roles, *follows])
        passages_written = list[WrittenPassage]()
        closed = 0
        for number, reading in enumerate(read[: len(read) - len(follows)]):
            # 2. Share each text between two messages: its start closes the message before it, as
            #    `closed` tokens of the text before did, and the rest is the mark of the next. All
            #    that follows the last message closes it.
            text_before = texts[number]
            following = self._ids(texts[number + 1])
            closing = self.closings[reading.role]
            end = len(following) if number + 1 == len(read) else len(closing)
            close = following[:end] if following[: len(closing)] == closing else ()
            # 3. Write the passage, unless it is one of the messages `after`.
            if reading.number >= len(after):
                passage = passages[reading.number - len(after)]
                # Tokenizers merge a space with the word after it, so it goes with the text.
                space = " " if passage.writer != "call" and text_before.endswith(" ") else ""
                mark = self._ids(text_before.removesuffix(space))[closed:]
                if passage.writer == "call":
                    mark += self.written[CALL_TAGS[0]]
                text = passage.text
                places = None
                if not listed or passages_written:
                    text, places = reading.content(passage.text)
                row = WrittenPassage(passage, mark, space + text, close, places, len(space))
                passages_written.append(row)
            closed = len(close)
        return passages_written

    def _ids(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text that the template writes."""
        if text not in self.written:
            self.written[text] = _encoded(self._mark_tokenizer, text)
        return self.written[text]

    @cached_property
    def _mark_tokenizer(self) -> Any:
        """A copy that encodes marks: typed text must never, in any thread."""
        tokenizer = copy.copy(self.tokenizer)
        tokenizer.encode_special_tokens = False
        return tokenizer


def role_of(passage: Passage) -> str:
    """Return the role of a passage in a chat template."""
    if passage.kind is not None:
        return "tool" if passage.kind == "result" else passage.kind
    return "user" if passage.writer == "user" else "assistant"


def _tools(transcript: Transcript) -> ToolList | None:
    """Return the tools in a dialog's first turn, and whether a system prompt follows, or None."""
    if not transcript.tools_in_text:
        return None
    prompted = len(transcript.turns) > 1 and transcript.turns[1].kind == "system"
    return transcript.tools, prompted


def load_tokens(stored: Path | GgufFile, vocabulary: int) -> Tokens:
    """Read the tokenizer of a checked model with a vocabulary of this size.

    Raises a ValueError that names the file and the problem.
    """
    if isinstance(stored, Path):
        if not (stored / TOKENIZER).is_file():
            raise ValueError(f"there is no file {TOKENIZER}")
        content = (stored / TOKENIZER).read_bytes()
    else:
        with as_value_error(f"{TOKENIZER} cannot be read"):
            check_tokenizer(stored.tokenizer)
        content = json.dumps(stored.tokenizer).encode()
    return read_tokens(content, vocabulary, *_template(stored))


def read_tokens(
    content: bytes,
    vocabulary: int = MAX_VOCABULARY,
    template: str = "",
    special: SpecialTokens = (),
) -> Tokens:
    """Read the content of a checked ``tokenizer.json``, for a model with a chat template or none.

    Raises a ValueError that names the problem.
    """
    from tokenizers import Tokenizer

    with stderr_silenced(), as_value_error(f"{TOKENIZER} cannot be read"):
        tokenizer: Any = Tokenizer.from_buffer(content)
    ids = tokenizer.get_vocab()
    highest = max(ids.values(), default=0)
    if highest >= vocabulary:
        raise ValueError(f"{TOKENIZER} has the token {highest}, but there are {vocabulary:,}")
    with stderr_silenced(), as_value_error(f"{TOKENIZER} cannot be used"):
        tokenizer.encode_special_tokens = True  # so that typed text cannot contain a mark
        tokenizer.no_padding()
        tokenizer.no_truncation()
        if getattr(tokenizer.model, "dropout", None):
            tokenizer.model.dropout = None  # it leaves out merges by chance, for training
        # A tokenizer may load and yet fail on use: better now, with one sentence, than in a run.
        _encoded(tokenizer, "a")
        # Some tokens only: decoding a whole vocabulary takes long.
        for token in range(min(highest + 1, 1000)):
            tokenizer.decode([token])
        first = tuple(tokenizer.encode("").ids)
        if ids.keys() >= {*MARKS.values(), END}:
            marks = {writer: (ids[mark],) for writer, mark in MARKS.items()}
            return Tokens(tokenizer, first, marks, ids[END], (ids[END],))
        return marked_tokens(tokenizer, first, template, special)


def marked_tokens(
    tokenizer: Any, first: tuple[int, ...], template: str, special: SpecialTokens
) -> Tokens:
    """Return the tokens of a model by its chat template, or without one by lines.

    Raises a ValueError if the tokenizer cannot encode lines.
    """
    tokenizer.encode_special_tokens = False  # marks become the model's special tokens
    chat = chat_texts(template, special)
    if isinstance(chat, ChatTexts):
        tokens: Tokens = _template_tokens(tokenizer, chat)
    else:
        marks = {writer: _encoded(tokenizer, f"{writer.capitalize()}:") for writer in MARKS}
        newline = _encoded(tokenizer, "\n")  # some tokenizers write a space before it
        end = newline[-1] if newline else -1
        note = f"This model reads dialogs as lines that begin with `User:`, because {chat}."
        tokens = Tokens(tokenizer, first, marks, end, (end,), note=note)
    tokenizer.encode_special_tokens = True  # so that typed text cannot contain a mark
    if tokens.end < 0 or not all(tokens.marks.values()):
        raise ValueError("its tokenizer cannot encode a line that begins with a name")
    return tokens


def library_tokens(tokenizer: Any) -> Tokens:
    """Return the tokens of a *transformers* tokenizer, or of any object with its `decode`.

    With a chat template, they have its marks, which tell the speakers.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    template = getattr(tokenizer, "chat_template", None)
    special = getattr(tokenizer, "special_tokens_map", None) or {}
    names = tuple((name, text) for name, text in special.items() if isinstance(text, str))
    if backend and isinstance(template, str):
        chat = chat_texts(template, names)
        if isinstance(chat, ChatTexts):
            return _template_tokens(backend, chat)
    return Tokens(backend or tokenizer, (), {}, 0)


def _template_tokens(tokenizer: Any, chat: ChatTexts) -> TemplateTokens:
    """Return the tokens of a chat model; the end is −1 if its passages have none."""
    # 1. Encode what the template writes, also without a space at its end: that may merge with the
    #    word after it.
    encoded_texts = dict[str, tuple[int, ...]]()
    for text in (JOIN, CALL_TAGS[0], *(text for *_, text in chat.gaps)):
        for part in {text, text.removesuffix(" ")}:
            encoded_texts[part] = _encoded(tokenizer, part)
    # 2. What closes a message of a role: the start that all gaps after it share.
    following: dict[str, list[tuple[int, ...]]] = {}
    for role, _, text in chat.gaps:
        following.setdefault(role, []).append(encoded_texts[text])
    closings = {role: _common_start(gaps) for role, gaps in following.items()} | {START: ()}
    for role, next_role, text in chat.gaps:
        # Nothing would be left for the mark of an answer, without which no model writes one.
        if next_role == BEGUN and encoded_texts[text] == closings[role]:
            closings[role] = ()

    def mark(roles: Sequence[str], number: int, end: str = "") -> tuple[int, ...]:
        """Return what is before a message, without what closes the one before it."""
        text = chat.render(roles, end).texts[number]
        closing = closings[roles[number - 1] if number else START]
        return (encoded_texts.get(text) or _encoded(tokenizer, text))[len(closing) :]

    # 3. The marks.
    turns = ["user", "assistant", "user"]
    user = mark(turns, 2)
    start = mark(turns, 0)
    call = mark(turns, 1) + encoded_texts[CALL_TAGS[0]]
    # The model's own prompt: what is before a first message of the user and not before a later one.
    size = len(start) - len(user) if user and start[-len(user) :] == user else 0
    openings = set[tuple[str, tuple[int, ...]]]()
    for role, next_role, text in chat.gaps:
        if next_role in _MARK_OF and not (size and (role, next_role) == (START, "user")):
            openings.add((_MARK_OF[next_role], encoded_texts[text][len(closings[role]) :]))
    # 4. An answer ends with the first token after it, be it of its close or of the next mark.
    after_answer = closings["assistant"] + user
    return TemplateTokens(
        tokenizer,
        first=(),  # the template writes it, if any
        marks={"user": user, "system": mark(["user"], 1, BEGUN), "call": call},
        end=after_answer[0] if after_answer else -1,
        closing=closings["assistant"],
        openings=sorted(opening for opening in openings if opening[1]),
        prompt=start[:size],
        note=f"By this model's chat template, {'; '.join(chat.notes)}." if chat.notes else "",
        chat=chat,
        written=encoded_texts,
        closings=closings,
    )


def _common_start(texts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the tokens with which all texts begin."""
    alike = takewhile(lambda column: len({*column}) == 1, zip(*texts, strict=False))
    return tuple(column[0] for column in alike)


_MARK_OF = {"user": "user", "tool": "result", "system": "prompt"} | dict.fromkeys(
    ("assistant", "thinking", BEGUN), "system"
)
"""The writer or kind of passage for each role in a chat template."""


def _encoded(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False).ids)


def _template(stored: Path | GgufFile) -> tuple[str, SpecialTokens]:
    """Return the chat template of a model, "" for none, and the special tokens that it may name."""
    if not isinstance(stored, Path):
        template = stored.fields.get("tokenizer.chat_template")
        settings = stored.special_tokens
    else:
        tokenizer_settings = (
            read_json(stored / _SETTINGS) if (stored / _SETTINGS).is_file() else {}
        )
        template = tokenizer_settings.get("chat_template")
        # The file comes before the setting, as in *transformers*.
        if (stored / _TEMPLATE).is_file():
            content = read_bytes(stored / _TEMPLATE, MAX_MODEL_JSON_BYTES)
            template = content.decode(errors="replace")
        elif isinstance(template, list):  # several by name
            named_templates = template
            template = None
            for entry in named_templates:
                if isinstance(entry, dict) and entry.get("name") == "default":
                    template = entry.get("template")
        settings = {}
        for name, value in tokenizer_settings.items():
            text = value.get("content") if isinstance(value, dict) else value
            if name.endswith("_token") and isinstance(text, str):
                settings[name] = text
    return template if isinstance(template, str) else "", tuple(settings.items())
