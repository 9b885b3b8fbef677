"""Chats: one model under several caches, and its answers under each.

All caches read the same user messages; each continues with its own answers.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterator, Mapping, Sequence

import numpy as np

from fdkvc.attention import Floats
from fdkvc.corpora.model_text import Passage, Writer
from fdkvc.limits import MAX_CALLS, MAX_REPEATS, MAX_WRITTEN_TOKENS
from fdkvc.lm.language_model import LanguageModel
from fdkvc.lm.text_cache import ModelCache, TextCache, read
from fdkvc.lm.tokens import Tokens


def generate(
    tokens: Tokens,
    caches: Sequence[ModelCache],
    logits: Floats,
    *,
    most: int = MAX_WRITTEN_TOKENS,
    every: int | None = None,
    stop_loops: bool = False,
) -> Iterator[dict[int, int]]:
    """Continue passages by greedy decoding, from the logits (C, V) of the first token of each.

    A passage has at most `most` tokens. With `every`, a turn ends each time that this many tokens
    are written, so that policies evict during the answer; with `stop_loops`, a text that repeats
    itself ends; see `is_looping`.

    Yields the next token of each unfinished text, by the index of its cache. The cache has read it,
    except for the end of a passage, which the caller reads.
    """
    unfinished = list(range(len(caches)))
    written: list[list[int]] = [[] for _ in caches]
    for count in range(1, most + 1):
        chosen = dict(zip(unfinished, logits.argmax(axis=-1).tolist(), strict=True))
        unfinished = [at for at, token in chosen.items() if token != tokens.end]
        if unfinished:
            ids = [[chosen[at]] for at in unfinished]
            logits = read([caches[at] for at in unfinished], ids, last=1)[:, 0]
        if every is not None and count % every == 0:
            for at in unfinished:
                caches[at].end_turn()
        yield chosen
        for at in unfinished:
            written[at].append(chosen[at])
        looping = np.array([stop_loops and is_looping(written[at]) for at in unfinished], bool)
        if looping.any():
            logits = logits[~looping]
            unfinished = [at for at, loops in zip(unfinished, looping, strict=True) if not loops]
        if not unfinished:
            break


def is_looping(ids: Sequence[int]) -> bool:
    """Whether a text ends with `MAX_REPEATS` repetitions of the same one to eight tokens.

    Examples
    --------
    >>> is_looping([5, 7] + 6 * [9]), is_looping([5] + 6 * [7, 9]), is_looping(5 * [9])
    (True, True, False)
    """
    return any(
        len(ids) >= MAX_REPEATS * period
        and list(ids[-MAX_REPEATS * period :]) == MAX_REPEATS * list(ids[-period:])
        for period in range(1, 9)
    )


def generate_passages(
    tokens: Tokens,
    caches: Sequence[ModelCache],
    writer: Writer,
    *,
    most: int = MAX_WRITTEN_TOKENS,
    every: int | None = None,
    stop_loops: bool = False,
) -> list[str]:
    """Return the passage of a writer that each cache continues with; see `generate`."""
    logits = read(caches, tokens.marks[writer], last=1)[:, 0]
    passages: list[list[int]] = [[] for _ in caches]
    for step in generate(tokens, caches, logits, most=most, every=every, stop_loops=stop_loops):
        for at, token in step.items():
            passages[at].append(token)
    return [tokens.text(ids).strip() for ids in passages]


def first_writer(tokens: Tokens, logits: Floats) -> Writer:
    """Return whether a model begins its turn with a call or with words, by its logits (V,)."""
    calls = logits[tokens.marks["call"][0]] > logits[tokens.marks["system"][0]]
    return "call" if calls else "system"


class Chat:
    """A chat with a model under several new caches, by name.

    `passages` has, for each cache, the (Writer, first, end) of each passage of its text: its writer
    and its tokens, its mark and end included.
    """

    def __init__(self, model: LanguageModel, caches: Mapping[str, TextCache]) -> None:
        self.model, self.caches = model, dict(caches)
        self.passages: dict[str, list[tuple[Writer, int, int]]] = {name: [] for name in caches}
        if model.tokens.first:
            read([*self.caches.values()], model.tokens.first, last=0)
        self._logits: dict[str, Floats] = {}

    def fork(self) -> Chat:
        """Return an independent copy."""
        chat = copy.copy(self)
        chat.caches = {name: cache.fork() for name, cache in self.caches.items()}
        chat.passages = {name: [*passages] for name, passages in self.passages.items()}
        chat._logits = {**self._logits}
        return chat

    def add_message(self, text: str, writer: Writer = "user") -> None:
        """Read a message under every cache, and end the turn."""
        tokens = self.model.tokens
        first = all(cache.count == len(tokens.first) for cache in self.caches.values())
        ids = tokens.encode_passage(Passage(writer, text, 0), first=first).ids
        logits = read([*self.caches.values()], ids, last=1)[:, 0]
        self._logits = dict(zip(self.caches, logits, strict=True))
        for name, cache in self.caches.items():
            self._close(name, writer, cache.count - len(ids))

    def answer(self, most: int = MAX_WRITTEN_TOKENS) -> Generator[dict[str, tuple[Writer, int]]]:
        """Let the model answer under every cache: any calls first, then words.

        A passage ends after `most` tokens, or when it repeats itself; see `is_looping`. Closing the
        generator ends the current passages; the chat can continue. Yields the next token under each
        cache that is still writing, and the writer of its passage.
        """
        calls = dict.fromkeys(self.caches, 0)
        while calls:
            writers: dict[str, Writer] = dict.fromkeys(calls, "system")
            for name, count in calls.items():
                if count < MAX_CALLS:
                    writers[name] = first_writer(self.model.tokens, self._logits[name])
            yield from self._write(writers, most)
            calls = {name: calls[name] + 1 for name, writer in writers.items() if writer == "call"}

    def _write(
        self, writers: Mapping[str, Writer], most: int
    ) -> Iterator[dict[str, tuple[Writer, int]]]:
        tokens, names = self.model.tokens, list(writers)
        caches = [self.caches[name] for name in names]
        starts = [cache.count for cache in caches]
        logits = [
            read([self.caches[name]], tokens.marks[writer], last=1)[0, 0]
            for name, writer in writers.items()
        ]
        try:
            for chosen in generate(tokens, caches, np.stack(logits), most=most, stop_loops=True):
                yield {names[at]: (writers[names[at]], token) for at, token in chosen.items()}
        finally:
            after = read(caches, tokens.closing, last=1)[:, 0]
            for name, start, next_logits in zip(names, starts, after, strict=True):
                self._logits[name] = next_logits
                self._close(name, writers[name], start)

    def _close(self, name: str, writer: Writer, first: int) -> None:
        cache = self.caches[name]
        cache.end_turn()
        self.passages[name].append((writer, first, cache.count))

    def text(self, name: str, passage: int = -1) -> str:
        """Return the text of a passage of a cache."""
        _, first, end = self.passages[name][passage]
        return self.model.tokens.text(self.caches[name].ids[first:end]).strip()
