"""Recordings: a transcript cut into tokens, with the vectors by which its tokens attend.

A recording has a row for each attention head. Its tokens are the same in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fdkvc.attention import SPEAKERS, Floats
from fdkvc.corpora.transcripts import Demand, Mention, Transcript, check_size, word_ids
from fdkvc.synthetic.batch import (
    DialogBatch,
    check_surprisal,
    check_vectors,
    one_dialog,
    stack,
)


@dataclass(frozen=True)
class Token:
    """A token, and where it stands in the text of its turn.

    Attributes
    ----------
    text : str
        As the tokenizer writes it.
    start, end : int
        Characters of the turn's text, the end not included; the same number where a token stands
        for no text, such as one that begins the dialog.
    """

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Piece:
    """A piece of a turn's text: what a token stands for, or what lies between two.

    Attributes
    ----------
    token : int
        Its index in the dialog, −1 for what lies between.
    """

    text: str
    token: int


@dataclass(frozen=True, eq=False)
class Recording:
    """A dialog as a model, or a stand-in for one, saw it.

    Attributes
    ----------
    tokens : tuple of tuples of Token
        Those of each turn.
    embeddings : array (N, d)
        One vector a token: hidden states, or what stands in for them.
    queries, keys, values : array (H, N, h)
        Of each head, after positional rotation: q·k/√h is the logit.
    heads : tuple of int
        The number of each head in its layer.
    source : str
        What made the vectors.
    surprisal : array (N,), optional
        −log of the probability of each token, in nats, by what the vectors are from.

    Raises
    ------
    ValueError
        If the dialog is larger than `fdkvc.corpora.transcripts` allows, or its shapes disagree.
    """

    transcript: Transcript
    tokens: tuple[tuple[Token, ...], ...]
    embeddings: Floats
    queries: Floats
    keys: Floats
    values: Floats
    heads: tuple[int, ...]
    source: str
    surprisal: Floats | None = None

    def __post_init__(self) -> None:
        name = self.transcript.name
        check_size(name, [len(turn) for turn in self.tokens])
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
        tokens = sum(map(len, self.tokens))
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
        """What each token says."""
        return tuple(token.text for turn in self.tokens for token in turn)

    @cached_property
    def dialogs(self) -> DialogBatch:
        """The dialog as a batch with a row for each head."""
        speakers = np.array([[SPEAKERS.index(each) for each in self.transcript.spoken_by]])
        heads = stack(
            [
                one_dialog(
                    embeddings=self.embeddings,
                    queries=self.queries[head],
                    keys=self.keys[head],
                    values=self.values[head],
                    turn_lengths=[len(turn) for turn in self.tokens],
                    turn_topics=[turn.topic for turn in self.transcript.turns],
                    surprisal=self.surprisal,
                )
                for head in range(len(self.heads))
            ]
        )
        said = zip(self.transcript.turns, self.tokens, strict=True)
        numbers = (
            word_ids(turn.text, [(token.start, token.end) for token in tokens])
            for turn, tokens in said
        )
        words, count = np.array([[*chain(*numbers)]], np.intp), len(self.heads)
        return replace(
            heads,
            speakers=np.repeat(speakers, count, axis=0),
            words=np.repeat(words, count, axis=0),
            heads=count,
        )

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """How many heads in a row have the same keys, as queries that share a head of keys do."""
        found: list[int] = []
        for at, keys in enumerate(self.keys):
            if at and np.array_equal(keys, self.keys[at - 1]):
                found[-1] += 1
            else:
                found.append(1)
        return tuple(found)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The index of each turn's first token, and of the token after the last."""
        return (0, *np.cumsum([len(turn) for turn in self.tokens]).tolist())

    def with_transcript(self, transcript: Transcript) -> Recording:
        """Return the same recording with other topics."""
        return replace(self, transcript=transcript)

    def tokens_of(self, mention: Mention) -> tuple[int, ...]:
        """Return the indices of the tokens that stand for any of a mention's characters."""
        first, spans = self.starts[mention.turn], self._spans[mention.turn]
        start, end = np.maximum(spans[0], mention.start), np.minimum(spans[1], mention.end)
        return tuple((first + np.flatnonzero(start < end)).tolist())

    @cached_property
    def _spans(self) -> list[NDArray[np.intp]]:
        """Starts and ends of the tokens of each turn (2, n)."""
        return [
            np.array([[each.start for each in turn], [each.end for each in turn]], np.intp)
            for turn in self.tokens
        ]

    @cached_property
    def evidence(self) -> tuple[tuple[Demand, tuple[tuple[int, ...], ...]], ...]:
        """Each demand with the tokens of each of its mentions; those that have any."""
        found = []
        tokens_of = cache(self.tokens_of)  # demands repeat each other's mentions
        for demand in self.transcript.demands:
            mentions = tuple(filter(None, map(tokens_of, demand.mentions)))
            if mentions:
                found.append((demand, mentions))
        return tuple(found)

    @cached_property
    def needed(self) -> list[tuple[NDArray[np.int32], NDArray[np.intp]]]:
        """The tokens of all mentions of each demand, one after the other, and where each begins."""
        return [
            (
                np.fromiter(chain.from_iterable(mentions), np.int32),
                np.cumsum([0, *map(len, mentions[:-1])]),
            )
            for _, mentions in self.evidence
        ]

    def pieces(self, turn: int) -> list[Piece]:
        """Cut the text of a turn into its tokens and what lies between them.

        Of several tokens that stand for the same characters, the first has them.
        """
        text, at = self.transcript.turns[turn].text, 0
        found = []
        for index, token in enumerate(self.tokens[turn], start=self.starts[turn]):
            start = max(token.start, at)
            if token.end <= start:
                continue
            if start > at:
                found.append(Piece(text[at:start], -1))
            found.append(Piece(text[start : token.end], index))
            at = token.end
        return [*found, Piece(text[at:], -1)] if at < len(text) else found


def stack_recordings(recordings: Sequence[Recording]) -> DialogBatch:
    """Put the heads of several recordings into one batch, in their order.

    Recording i's head j is row i·H + j.

    Topics have the name of their place in each dialog, since every dialog has topics of its own.

    Raises
    ------
    ValueError
        If the recordings differ in dimensions or in their number of heads, or only some have
        surprisal.
    """
    if len({len(recording.heads) for recording in recordings}) > 1:
        raise ValueError("the recordings differ in their number of heads")
    most = max(len(recording.dialogs.topic_names) for recording in recordings)
    names = tuple(f"topic {number}" for number in range(most))
    return stack([replace(recording.dialogs, topic_names=names) for recording in recordings])


def as_rows(vectors: ArrayLike) -> Floats:
    """Return one head's vectors (N, h) as the only row (1, N, h)."""
    return np.asarray(vectors, np.float32)[None]
