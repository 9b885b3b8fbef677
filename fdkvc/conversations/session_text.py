"""The text of a context as tokens without vectors, and what a policy keeps of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from fdkvc.conversations.lexical import lexical_recording
from fdkvc.conversations.sessions import Message
from fdkvc.core.attention import KINDS, SPEAKERS, Bools, Floats, Ints, word_id
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.limits import MAX_TOKENS
from fdkvc.core.parameters import check_most
from fdkvc.core.scripts import word_spans
from fdkvc.core.token_traits import token_traits, word_surprisal
from fdkvc.core.transcripts import Mention, SpanKind, TooLargeError, Transcript
from fdkvc.engine.fit import fit
from fdkvc.policies import Policy
from fdkvc.policies.base import BY_TEXT


def span_kind(message: Message, character: int = -1) -> SpanKind:
    """Return who or what wrote a character of a message, by default one after its calls."""
    if 0 <= character < message.turn.call_characters:
        return "call"
    if message.turn.kind is not None:
        return message.turn.kind
    return "user" if message.turn.speaker == "user" else "assistant"


@dataclass(frozen=True, eq=False)
class Text:
    """The messages of a context as tokens: words and punctuation marks."""

    turns: tuple[Message, ...]
    bounds: tuple[int, ...]
    """The first token of each message, and the number of tokens."""

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Text:
        """Return the text of messages."""
        counts = [message.tokens for message in messages]
        return cls(tuple(messages), (0, *np.cumsum(counts, dtype=np.intp).tolist()))

    def __len__(self) -> int:
        """Return the number of tokens."""
        return self.bounds[-1]

    def of_turn(self, turn: int) -> slice:
        """Return the tokens of a message."""
        return slice(self.bounds[turn], self.bounds[turn + 1])

    def tokens_of(self, mention: Mention) -> slice:
        """Return the tokens that a mention's characters belong to."""
        starts, ends = self._spans(mention.turn)
        first = self.bounds[mention.turn]
        low = int(np.searchsorted(ends, mention.start, "right"))
        return slice(first + low, first + int(np.searchsorted(starts, mention.end)))

    def kept(self, policy: Policy, size: int) -> Bools:
        """Return which tokens (N,) stay when a policy fits the text into a size at once.

        Raises a TooLargeError if the policy needs vectors or remembers earlier turns, and the text
        is too long for that.
        """
        by_vectors = not BY_TEXT.issuperset(policy.looks_at)
        if by_vectors or "history" in policy.looks_at:
            needs = "vectors" if by_vectors else "what it stored of earlier turns"
            has = f"it decides by {needs}, and the text has"
            check_most(has, len(self), "tokens", MAX_TOKENS, TooLargeError)
        if by_vectors:
            turns = tuple(message.turn for message in self.turns)
            return fit(policy, lexical_recording(Transcript("the text", turns)).dialogs, size)
        wanted = COLUMNS & {*policy.looks_at, *(("tools",) if "kinds" in policy.looks_at else ())}
        columns = {name: getattr(self, name)[None] for name in wanted}
        return fit(policy, replace(self._dialogs, **columns), size)

    @cached_property
    def _dialogs(self) -> DialogBatch:
        """The text without vectors."""
        tokens, turns = len(self), len(self.turns)
        while self.bounds[turns - 1] == tokens:  # what ends without a token has no last turn
            turns -= 1
        nothing = np.zeros((1, tokens, 0), np.float32)
        return DialogBatch(
            embeddings=nothing,
            keys=nothing,
            values=nothing,
            bounds=np.array([self.bounds[: turns + 1]], np.intp),
            turn_counts=np.array([turns]),
            topic_bits=np.zeros((1, tokens), np.uint32),
            current=np.full((1, turns), -1),
            topic_names=(),
            speakers=np.array([[*map(_speaker, self.turns[:turns])]]),
        )

    @cached_property
    def _spans_of(self) -> dict[int, NDArray[np.intp]]:
        return {}

    def _spans(self, turn: int) -> NDArray[np.intp]:
        """Return where the tokens of a message begin and end (2, n)."""
        if turn not in self._spans_of:
            spans = word_spans(self.turns[turn].turn.text)
            self._spans_of[turn] = np.array(spans, np.intp).reshape(-1, 2).T
        return self._spans_of[turn]

    @cached_property
    def kinds(self) -> Ints:
        """Kind of each token (N,), as an index into `KINDS`."""
        kinds = np.empty(len(self), np.intp)
        for turn, message in enumerate(self.turns):
            of_turn = kinds[self.of_turn(turn)]
            of_turn[:] = KINDS.index(span_kind(message))
            of_turn[: self._called(turn)] = KINDS.index("call")
        return kinds

    @cached_property
    def born(self) -> Ints:
        """The message of each token (N,)."""
        return np.repeat(np.arange(len(self.turns)), np.diff(self.bounds))

    @cached_property
    def tools(self) -> Ints:
        """`word_id` of the tool of each call and result (N,), 0 for none."""
        tools = np.zeros(len(self), np.intp)
        for turn, message in enumerate(self.turns):
            of_turn = tools[self.of_turn(turn)]
            if message.tool:
                of_turn[:] = word_id(message.tool)
            elif called := self._called(turn):  # each call is a line
                ends = [*accumulate(len(line) + 1 for line in message.turn.text.split("\n"))]
                names = np.array([word_id(call.method) for call in message.calls], np.intp)
                lines = np.searchsorted(ends, self._spans(turn)[0, :called], "right")
                of_turn[:called] = names[np.minimum(lines, len(names) - 1)]
        return tools

    def _called(self, turn: int) -> int:
        """Return how many of a message's tokens are calls."""
        called = self.turns[turn].turn.call_characters
        return int(np.searchsorted(self._spans(turn)[0], called)) if called else 0

    @cached_property
    def words(self) -> Ints:
        """`word_id` of each token (N,)."""
        return np.fromiter(map(word_id, self._words()), np.intp, len(self))

    @cached_property
    def surprisal(self) -> Floats:
        """Surprisal of each token (N,)."""
        return np.fromiter(map(word_surprisal, self._words()), np.float32, len(self))

    @cached_property
    def traits(self) -> Floats:
        """Traits of each token (N, F)."""
        traits = []
        for turn, message in enumerate(self.turns):
            spans = [(int(start), int(end)) for start, end in self._spans(turn).T]
            traits.append(token_traits(message.turn.text, spans, span_kind(message) == "user"))
        return np.concatenate(traits)

    def _words(self) -> Iterator[str]:
        for turn, message in enumerate(self.turns):
            for start, end in self._spans(turn).T:
                yield message.turn.text[start:end]


COLUMNS = frozenset(("kinds", "tools", "words", "surprisal", "traits"))
"""Columns of a batch that are computed only for policies that look at them."""


def _speaker(message: Message) -> int:
    speaker = {"system": "prompt", "user": "user"}.get(span_kind(message), "system")
    return SPEAKERS.index(speaker)
