"""Talks: one model, several caches, and what it answers under each.

All read the same words of the user; each goes on with its own answers.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterator, Mapping, Sequence

import numpy as np

from fdkvc.attention import Floats
from fdkvc.corpora.model_text import Passage, Writer
from fdkvc.limits import MAX_CALLS, MAX_WRITTEN_TOKENS
from fdkvc.lm.language_model import LanguageModel
from fdkvc.lm.text_cache import ModelCache, TextCache, read
from fdkvc.lm.tokens import Tokens


def write(
    tokens: Tokens,
    caches: Sequence[ModelCache],
    logits: Floats,
    *,
    most: int = MAX_WRITTEN_TOKENS,
    every: int | None = None,
) -> Iterator[dict[int, int]]:
    """Let a model write on after the mark of a passage, the likeliest token each time.

    Parameters
    ----------
    tokens : Tokens
    caches : sequence of ModelCache
    logits : array (C, V)
        Of the first token that each is to write.
    most : int
        Tokens of each passage at most.
    every : int, optional
        Let a turn end after so many tokens of the passage, so that the policies evict while the
        model writes.

    Yields
    ------
    dict of int to int
        The next token of each text that still goes on, by its place among the caches. It has
        been read, but for the end of a passage, which is left to who asked.
    """
    going = list(range(len(caches)))
    for count in range(1, most + 1):
        chosen = dict(zip(going, logits.argmax(axis=-1).tolist(), strict=True))
        going = [at for at, token in chosen.items() if token != tokens.end]
        if going:
            ids = [[chosen[at]] for at in going]
            logits = read([caches[at] for at in going], ids, last=1)[:, 0]
        if every is not None and count % every == 0:
            for at in going:
                caches[at].end_turn()
        yield chosen
        if not going:
            break


def generate_passages(
    tokens: Tokens,
    caches: Sequence[ModelCache],
    writer: Writer,
    *,
    most: int = MAX_WRITTEN_TOKENS,
    every: int | None = None,
) -> list[str]:
    """Return what each cache writes after the mark of a passage; `most` and `every` as `write`."""
    logits = read(caches, tokens.marks[writer], last=1)[:, 0]
    said: list[list[int]] = [[] for _ in caches]
    for step in write(tokens, caches, logits, most=most, every=every):
        for at, token in step.items():
            said[at].append(token)
    return [tokens.text(ids).strip() for ids in said]


def first_writer(tokens: Tokens, logits: Floats) -> Writer:
    """Return whether a model begins its turn with a call or with words, by its logits (V,)."""
    calls = logits[tokens.marks["call"][0]] > logits[tokens.marks["system"][0]]
    return "call" if calls else "system"


class Chat:
    """A conversation with a model under several caches.

    Parameters
    ----------
    model : LanguageModel
    caches : mapping of name to TextCache
        New ones; each is read and written under its name.

    Attributes
    ----------
    passages : mapping of name to list of (Writer, first, end)
        Who wrote which tokens of each cache's text, the mark and the end included.
    """

    def __init__(self, model: LanguageModel, caches: Mapping[str, TextCache]) -> None:
        self.model, self.caches = model, dict(caches)
        self.passages: dict[str, list[tuple[Writer, int, int]]] = {name: [] for name in caches}
        if model.tokens.first:
            read([*self.caches.values()], model.tokens.first, last=0)
        self._logits: dict[str, Floats] = {}

    def fork(self) -> Chat:
        """Return a conversation that goes on from here by itself."""
        other = copy.copy(self)
        other.caches = {name: cache.fork() for name, cache in self.caches.items()}
        other.passages = {name: [*passages] for name, passages in self.passages.items()}
        other._logits = {**self._logits}
        return other

    def add_message(self, text: str, writer: Writer = "user") -> None:
        """Let every cache read the words of the user, or of another; their turn ends with them."""
        ids = self.model.tokens.encode_passage(Passage(writer, text, 0)).ids
        logits = read([*self.caches.values()], ids, last=1)[:, 0]
        self._logits = dict(zip(self.caches, logits, strict=True))
        for name, cache in self.caches.items():
            self._close(name, writer, cache.count - len(ids))

    def answer(
        self, *, most: int = MAX_WRITTEN_TOKENS, every: int | None = None
    ) -> Generator[dict[str, tuple[Writer, int]]]:
        """Let the model answer under every cache: calls, if it makes any, and then its words.

        Closing the generator ends what is being written there, and the conversation can go on.

        Parameters
        ----------
        most, every : int
            As for `write`, of each passage.

        Yields
        ------
        dict of name to (Writer, int)
            The next token under each cache that still writes, and of what kind of passage.
        """
        silent = dict.fromkeys(self.caches, 0)
        while silent:
            writers = {
                name: self._next_writer(name, calls < MAX_CALLS) for name, calls in silent.items()
            }
            yield from self._write(writers, most, every)
            silent = {
                name: silent[name] + 1 for name, writer in writers.items() if writer == "call"
            }

    def _next_writer(self, name: str, may_call: bool) -> Writer:
        return first_writer(self.model.tokens, self._logits[name]) if may_call else "system"

    def _write(
        self, writers: Mapping[str, Writer], most: int, every: int | None
    ) -> Iterator[dict[str, tuple[Writer, int]]]:
        """Let each cache of these write a passage."""
        tokens, names = self.model.tokens, list(writers)
        caches = [self.caches[name] for name in names]
        began = {name: cache.count for name, cache in zip(names, caches, strict=True)}
        logits = [
            read([self.caches[name]], tokens.marks[writer], last=1)[0, 0]
            for name, writer in writers.items()
        ]
        try:
            for chosen in write(tokens, caches, np.stack(logits), most=most, every=every):
                yield {names[at]: (writers[names[at]], token) for at, token in chosen.items()}
        finally:
            ended = read(caches, (tokens.end,), last=1)[:, 0]
            for name, logits_after in zip(names, ended, strict=True):
                self._logits[name] = logits_after
                self._close(name, writers[name], began[name])

    def _close(self, name: str, writer: Writer, first: int) -> None:
        cache = self.caches[name]
        cache.end_turn()
        self.passages[name].append((writer, first, cache.count))

    def text(self, name: str, passage: int = -1) -> str:
        """Return what a passage of a cache's text says."""
        _, first, end = self.passages[name][passage]
        return self.model.tokens.text(self.caches[name].ids[first:end]).strip()
