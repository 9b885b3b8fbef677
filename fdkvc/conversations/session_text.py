"""The text of a context as tokens without vectors, and what a policy keeps of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from fdkvc.conversations.lexical import embedded
from fdkvc.conversations.sessions import Message
from fdkvc.conversations.thing_index import Place
from fdkvc.core.attention import Bools
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.limits import MAX_SHOWN_TOKENS
from fdkvc.core.parameters import check_most
from fdkvc.core.recordings import Token
from fdkvc.core.token_text import TokenText, TurnTokens
from fdkvc.core.transcripts import SpanKind, TooLargeError, Transcript
from fdkvc.core.words import name_set
from fdkvc.engine.fit import fit
from fdkvc.policies import Policy
from fdkvc.policies.base import BY_TEXT

COLUMNS = name_set("speakers kinds tools words surprisal traits")
"""Columns of a batch that are computed only for policies that look at them."""


def span_kind(message: Message, character: int = -1) -> SpanKind:
    """Return the kind of span of a character in a message, by default of one after its calls."""
    if 0 <= character < message.turn.call_characters:
        return "call"
    if message.turn.kind is not None:
        return message.turn.kind
    return "user" if message.turn.speaker == "user" else "assistant"


def _turn_tokens(message: Message) -> TurnTokens:
    kind = span_kind(message)
    turn = message.turn
    tools = (turn.tool,) if turn.tool else tuple(call.method for call in message.calls)
    return TurnTokens(
        turn.text, message.spans, kind, kind == "user", turn.call_characters, tools
    )


def _tokens(turn: TurnTokens) -> tuple[Token, ...]:
    return tuple(Token(turn.text[start:end], start, end) for start, end in turn.spans.tolist())


@dataclass(frozen=True, eq=False)
class ContextText(TokenText):
    """The messages of a context as tokens."""

    messages: tuple[Message, ...]

    @classmethod
    def of(cls, messages: Sequence[Message]) -> ContextText:
        """Return the text of messages."""
        return cls(tuple(map(_turn_tokens, messages)), tuple(messages))

    def kept(self, policy: Policy, size: int) -> Bools:
        """Return which tokens (N,) stay when a policy fits the text to a size in one step.

        Raises a TooLargeError if the policy needs vectors or history, and the text is too long for
        that.
        """
        by_vectors = not BY_TEXT.issuperset(policy.looks_at)
        if by_vectors or "history" in policy.looks_at:
            needs = "vectors" if by_vectors else "what it stored of earlier turns"
            problem = f"it decides by {needs}, and the text has"
            check_most(problem, len(self), "tokens", MAX_SHOWN_TOKENS, TooLargeError)
        if by_vectors:  # lexical ones, as the session has none
            turns = tuple(message.turn for message in self.messages)
            tokens = tuple(map(_tokens, self.turns))
            return fit(policy, embedded(Transcript("the text", turns), tokens).dialogs, size)
        names = COLUMNS & {
            *policy.looks_at,
            *(("tools",) if "kinds" in policy.looks_at else ()),
        }
        columns = {name: getattr(self, name)[None] for name in names}
        return fit(policy, replace(self._dialogs, **columns), size)

    @cached_property
    def _dialogs(self) -> DialogBatch:
        """The text without vectors."""
        tokens = len(self)
        turns = len(self.turns)
        # Messages without tokens at the end are no turns.
        while self.starts[turns - 1] == tokens:
            turns -= 1
        nothing = np.zeros((1, tokens, 0), np.float32)
        return DialogBatch(
            embeddings=nothing,
            keys=nothing,
            values=nothing,
            bounds=np.array([self.starts[: turns + 1]], np.intp),
            turn_counts=np.array([turns]),
            topic_bits=np.zeros((1, tokens), np.uint32),
            current=np.full((1, turns), -1),
            topic_names=(),
        )


class PlaceSet:
    """Places of things in the text of a context, looked up for all of them at once."""

    def __init__(
        self, text: ContextText, context: Sequence[int], things: Sequence[Sequence[Place]]
    ) -> None:
        lengths = [len(turn.text) for turn in text.turns]
        firsts = [*accumulate(lengths, initial=0)]
        first_of = dict(zip(context, firsts, strict=False))
        self._characters = firsts[-1]
        self._number = len(things)
        rows = []
        for number, places in enumerate(things):
            for message, start, end in places:
                first = first_of[message]
                rows.append((number, first + start, first + end))
        self._owners, self._starts, self._ends = np.array(rows, np.intp).reshape(-1, 3).T
        self._spans = np.concatenate(
            [turn.spans + first for turn, first in zip(text.turns, firsts, strict=False)]
            or [np.zeros((0, 2), np.intp)]
        )

    def held(self, stays: Bools) -> list[bool]:
        """Return whether each thing has a place without any token that left (N,)."""
        # By sums over all characters, since a session has thousands of places: a character belongs
        # to a token that left where more of these have begun than ended.
        starts, ends = self._spans[~stays].T
        characters = self._characters + 1
        edges = np.bincount(starts, minlength=characters) - np.bincount(
            ends, minlength=characters
        )
        left_so_far = np.cumsum(np.cumsum(edges) > 0)
        left_before = np.concatenate([[0], left_so_far])
        held = np.zeros(self._number, np.bool_)
        held[self._owners[left_before[self._starts] == left_before[self._ends]]] = True
        return held.tolist()
