"""Sessions of coding agents: the messages of a log, and which of them the model had in context.

A compaction replaces what the model has in context by a summary and some messages that stay. So a
session is a sequence of contexts, and a message that stays is in several of them::

    messages      0  1  2  3  4  5  6  7     4 is the summary of 0 to 2
    context 0     0  1  2  3
    compaction 0     stayed: 4, 3
    context 1              3  4  5  6  7     in the order 4, 3, 5, 6, 7
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fdkvc.conversations.lexical import Encoder
from fdkvc.core.limits import MAX_SESSION_TOKENS
from fdkvc.core.parameters import check_most
from fdkvc.core.scripts import word_spans
from fdkvc.core.transcripts import Turn


class MadeCall(NamedTuple):
    """A call as it is in a session."""

    method: str
    """The called tool."""
    arguments: Any
    """The parsed JSON object, or the text if it cannot be parsed."""
    result: int = -1
    """The message with its result, −1 if there is none."""


@dataclass(frozen=True)
class Message:
    """A message, or the result of a call."""

    turn: Turn
    """Its text, with that of its calls first."""
    place: str
    """Where it begins in the file, such as "line 12"."""
    calls: tuple[MadeCall, ...] = ()
    time: float = 0.0
    """When it was written, in seconds; 0 if the file does not say."""
    failed: bool = False
    """Whether it is the result of a call that failed, as the file says."""
    encoded: NDArray[Any] | None = field(default=None, compare=False, repr=False)
    """Its `spans` in the tokens of a model, after `Session.in_tokens`."""

    @cached_property
    def spans(self) -> NDArray[Any]:
        """Where its tokens begin and end (n, 2); by default, its words and punctuation marks."""
        if self.encoded is not None:
            return self.encoded
        return np.array(word_spans(self.turn.text), np.intp).reshape(-1, 2)

    @property
    def tokens(self) -> int:
        """The number of its tokens."""
        return len(self.spans)


Sizes = tuple[int | None, int | None]
"""Tokens before and after a compaction, None where they are not known."""

NO_SIZES: Sizes = (None, None)


@dataclass(frozen=True)
class Compaction:
    """The boundary between two contexts."""

    place: str
    """Where it is in the file."""
    context: tuple[int, ...]
    """The messages that the model had in context before it."""
    stayed: tuple[int, ...]
    """The messages that it had right after: the summary, and what stayed."""
    summary: tuple[int, ...] = ()
    """The messages among `stayed` that were written in place of what left."""
    trigger: str = ""
    """The cause that the file names, such as "auto" or "manual"; "" if it names none."""
    recorded: Sizes = NO_SIZES
    """Tokens before and after that the file names, counted by the agent's own model."""
    note: str = ""
    """A sentence on what is missing."""
    kind: str = "summary"
    """How the context became shorter: by a ``summary``, or because results were ``cleared``;
    ``imagined`` where the session has no compaction."""
    size: int = 0
    """For an imagined one, the tokens that are to stay."""


@dataclass(frozen=True)
class Session:
    """The conversation of an agent, or of one of its subagents."""

    name: str
    """Different from that of any other conversation of the file."""
    messages: tuple[Message, ...]
    """In the order of the file, each once; summaries are among them."""
    contexts: tuple[tuple[int, ...], ...]
    """The messages in each context, in order; at least one context."""
    compactions: tuple[Compaction, ...] = ()
    """Compaction i ends context i."""
    unread: tuple[tuple[str, int], ...] = ()
    """(description, number) of what else the file has, such as lines that nobody wrote."""
    notes: tuple[str, ...] = ()
    """Sentences on what is unusual in it."""
    unit: str = "words and punctuation marks"
    """What its tokens are; `in_tokens` changes it."""
    folder: str = ""
    """The working folder, "" if the file names none."""
    resumed: bool = False
    """Whether it was compacted before the file begins."""

    def in_tokens(self, encoding: Encoder) -> "Session":
        """Return the session in the tokens of a model. Raises a ValueError if it has too many."""
        texts = (replace(row, encoded=encoding.spans(row.turn.text)) for row in self.messages)
        return replace(self, messages=self.checked(texts), unit=f"tokens of {encoding.name}")

    def checked(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        """Return messages, or raise a ValueError at the first one with which they are too many."""
        so_far = []
        tokens = 0
        for message in messages:
            so_far.append(message)
            tokens += message.tokens
            problem = f"{self.name}: up to {message.place}, it has"
            check_most(problem, tokens, "tokens", MAX_SESSION_TOKENS)
        return tuple(so_far)

    @cached_property
    def summaries(self) -> frozenset[int]:
        """The messages that are summaries."""
        return frozenset(chain.from_iterable(row.summary for row in self.compactions))

    def in_context(self, message: int) -> frozenset[int]:
        """Return the messages that the model had in context at a message, which is among them.

        If the message stayed in several contexts, they are those of the first.
        """
        for context in self.contexts:
            if message in context:
                return frozenset(context[: context.index(message) + 1])
        return frozenset((message,))

    def tokens_of(self, messages: tuple[int, ...]) -> int:
        """Return the number of tokens of some messages."""
        return sum(self.messages[index].tokens for index in messages)

    def imagined(self, size: int) -> "Session":
        """Return a session without compactions as if one had fitted its first half to a size.

        No summary replaces what left; `fdkvc.conversations.forgot` says what each way keeps. Raises
        a ValueError if the first half is not larger than that.
        """
        (context,) = self.contexts
        half = self.tokens_of(context) / 2
        so_far = 0
        cut = 0
        while cut < len(context) and so_far < half:
            so_far += self.messages[context[cut]].tokens
            cut += 1
        earlier = context[:cut]
        later = context[cut:]
        if so_far <= size:
            raise ValueError(
                f"{self.name}: its first half has {so_far:,} tokens, so a size of {size:,} leaves "
                "nothing out: choose a smaller one"
            )
        place = f"after {self.messages[earlier[-1]].place}"
        compaction = Compaction(place, earlier, (), kind="imagined", size=size)
        return replace(self, contexts=(earlier, later), compactions=(compaction,))

    @cached_property
    def bounds(self) -> tuple[int, ...]:
        """The first new message of each context, and then the number of messages."""
        firsts = [0]
        for compaction, (_, context) in zip(
            self.compactions, pairwise(self.contexts), strict=True
        ):
            new = [index for index in context if index not in compaction.context]
            firsts.append(new[0] if new else firsts[-1])
        return (*firsts, len(self.messages))
