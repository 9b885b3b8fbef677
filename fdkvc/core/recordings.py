"""Recordings: a tokenized transcript with the attention vectors of its tokens, per head."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from fdkvc.core.arrays import check_surprisal, check_vectors, one_dialog
from fdkvc.core.attention import Floats, Ints
from fdkvc.core.dialogs import DialogBatch, stack
from fdkvc.core.token_text import TokenText, TurnTokens
from fdkvc.core.transcripts import (
    SPAN_KINDS,
    Demand,
    Mention,
    SpanKind,
    Transcript,
    check_size,
)


class Token(NamedTuple):
    """A token, and the characters of its turn's text that it covers."""

    text: str
    """In the tokenizer's form."""
    start: int
    """Its first character."""
    end: int
    """The character after its last; `start` for a token without text, such as one that begins the
    dialog."""


@dataclass(frozen=True, eq=False)
class Recording:
    """A dialog as a model, or the lexical embedding, represents it.

    Raises a ValueError if the dialog exceeds a limit, or shapes disagree.
    """

    transcript: Transcript
    """Its text."""
    tokens: tuple[tuple[Token, ...], ...]
    """The tokens of each turn."""
    embeddings: Floats
    """Shape (N, d). Hidden states or word vectors."""
    queries: Floats
    """Shape (H, N, h). After positional rotation."""
    keys: Floats
    """Shape (H, N, h). After positional rotation: q·k/√h is the logit."""
    values: Floats
    """Shape (H, N, h)."""
    heads: tuple[int, ...]
    """Number of each head in its layer."""
    source: str
    """Where the vectors come from."""
    surprisal: Floats | None = None
    """Shape (N,). −log of the probability of each token, in nats."""

    def __post_init__(self) -> None:
        name = self.transcript.name
        check_size(name, [*map(len, self.tokens)])
        if len(self.tokens) != len(self.transcript.turns):
            raise ValueError(
                f"{name}: there are tokens of {len(self.tokens)} turns, but the dialog has "
                f"{len(self.transcript.turns)}"
            )
        if len(set(self.heads)) < len(self.heads) or min(self.heads, default=0) < 0:
            raise ValueError(
                f"{name}: the heads are {', '.join(map(str, self.heads))}, but must be different "
                "numbers from 0"
            )
        tokens = self.starts[-1]
        if len(check_vectors("embeddings", self.embeddings, 2)) != tokens:
            raise ValueError(f"{name}: embeddings are not those of {tokens} tokens")
        for kind in ("queries", "keys", "values"):
            shape = check_vectors(kind, getattr(self, kind), 3).shape
            if shape[:2] != (len(self.heads), tokens) or shape != self.keys.shape:
                raise ValueError(
                    f"{name}: {kind} have shape {shape}, but there are {len(self.heads)} heads, "
                    f"{tokens} tokens and {self.keys.shape[2]} dimensions"
                )
        if self.surprisal is not None:
            check_surprisal(self.surprisal, tokens)

    @property
    def words(self) -> tuple[str, ...]:
        """The text of each token."""
        return tuple(token.text for token in chain.from_iterable(self.tokens))

    @cached_property
    def dialogs(self) -> DialogBatch:
        """The dialog as a batch with a row for each head; rows share what heads have in common."""
        dialog = one_dialog(
            embeddings=self.embeddings,
            queries=self.queries[0],
            keys=self.keys[0],
            values=self.values[0],
            turn_lengths=[*map(len, self.tokens)],
            turn_topics=[turn.topic for turn in self.transcript.turns],
            surprisal=self.surprisal,
        )
        shared = dict(vars(dialog))
        for name in ("speakers", "words", "kinds", "tools", "traits"):
            shared[name] = getattr(self.text, name)[None]
        count = len(self.heads)
        rows: dict[str, Any] = {}
        for name, array in shared.items():
            if isinstance(array, np.ndarray):  # a view (H, …), not H copies
                rows[name] = np.broadcast_to(array, (count, *array.shape[1:]))
        for name in ("queries", "keys", "values"):
            rows[name] = np.asarray(getattr(self, name), np.float32)
        return replace(dialog, heads=count, **rows)

    @cached_property
    def text(self) -> TokenText:
        """The tokens without vectors."""
        dialog = self.transcript
        turns = []
        for number, turn in enumerate(dialog.turns):
            places = [(token.start, token.end) for token in self.tokens[number]]
            spans = np.array(places, np.intp).reshape(-1, 2)
            kind = dialog.span_kind(number, turn.call_characters)
            is_user = dialog.spoken_by[number] == "user"
            tools = dialog.tool_names[number]
            turns.append(
                TurnTokens(turn.text, spans, kind, is_user, turn.call_characters, tools)
            )
        return TokenText(tuple(turns))

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The index of each turn's first token, and of the token after the last."""
        return self.text.starts

    @cached_property
    def spans(self) -> tuple[tuple[int, SpanKind], ...]:
        """The first token of each span, and its kind."""
        names = [*SPAN_KINDS]
        starts = np.flatnonzero(np.diff(self.text.kinds, prepend=-1)).tolist()
        return tuple((start, names[self.text.kinds[start]]) for start in starts)

    @cached_property
    def evidence(self) -> tuple[tuple[Demand, tuple[tuple[int, ...], ...]], ...]:
        """Each demand that has tokens, with those of each of its mentions."""

        @cache  # demands share mentions
        def tokens_of(mention: Mention) -> tuple[int, ...]:
            return tuple(self.text.tokens_of(mention).tolist())

        evidence = []
        for demand in self.transcript.demands:
            mentions = tuple(filter(None, map(tokens_of, demand.mentions)))
            if mentions:
                evidence.append((demand, mentions))
        return tuple(evidence)

    @cached_property
    def value_of(self) -> Mapping[int, tuple[str, tuple[tuple[int, ...], ...]]]:
        """The last needed value that a token is part of, with the tokens of its mentions.

        A value that a call needs takes precedence over one of the dialog's state.
        """
        values = {}
        # Later values replace earlier ones, so calls come last.
        calls_last = sorted(self.evidence, key=lambda pair: pair[0].kind == "call")
        for demand, mentions in calls_last:
            for token in chain.from_iterable(mentions):
                values[token] = (demand.value, mentions)
        return values

    @cached_property
    def needed(self) -> tuple[Ints, list[tuple[Ints, Ints]]]:
        """The tokens of all mentions, numbered, so that a table of them has few columns.

        First the number of each token (N + 1,); a token of no mention, and the empty slot −1, has
        the number after the last. Then for each of `evidence` the numbers of its mentions' tokens,
        one mention after the other, and the index at which each mention begins.
        """
        token_lists = [[*chain.from_iterable(mentions)] for _, mentions in self.evidence]
        tokens = sorted({*chain.from_iterable(token_lists)})
        place = np.full(self.starts[-1] + 1, len(tokens))
        place[tokens] = np.arange(len(tokens))
        numbers = []
        for (_, mentions), mentioned in zip(self.evidence, token_lists, strict=True):
            starts = np.cumsum([0, *map(len, mentions[:-1])])
            numbers.append((place[mentioned], starts))
        return place, numbers

    def piece_lengths(self, turn: int) -> list[int]:
        """Return the length of each token's piece of a turn's text; gaps between them are negative.

        A character that several tokens cover belongs to the first; a token that has no other
        character has length 0.
        """
        position = 0  # the first character that is in no piece so far
        lengths = []
        for token in self.tokens[turn]:
            start = max(token.start, position)
            if position < start < token.end:
                lengths.append(position - start)
            lengths.append(max(token.end - start, 0))
            position = token.end if token.end > start else position
        remainder = len(self.transcript.turns[turn].text) - position
        if remainder:
            lengths.append(-remainder)
        return lengths


def stack_recordings(recordings: Sequence[Recording]) -> DialogBatch:
    """Stack the heads of several recordings: head j of recording i is row i·H + j.

    Topics are named by their index in each dialog. Raises a ValueError if the recordings differ in
    dimensions or in their number of heads, or only some have surprisal.
    """
    # A batch has one list of topics, but each dialog has topics of its own.
    batches = [recording.dialogs for recording in recordings]
    count = max(len(batch.topic_names) for batch in batches)
    names = tuple(f"topic {number}" for number in range(count))
    return stack([replace(batch, topic_names=names) for batch in batches])
