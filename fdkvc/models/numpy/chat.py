"""Chats: one model under several caches, and its answers under each.

All caches read the same user messages; each continues with its own answers.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import Floats
from fdkvc.core.limits import MAX_CALLS, MAX_REPEATED, MAX_REPEATS, MAX_WRITTEN_TOKENS
from fdkvc.models.numpy.language_model import LanguageModel
from fdkvc.models.numpy.model_text import Kind, Passage, Writer
from fdkvc.models.numpy.text_cache import ModelCache, TextCache, read
from fdkvc.models.numpy.tokens import Tokens, role_of


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

    Yields the next token of each unfinished text, by the index of its cache. The cache has read it
    by then, except for the end of a passage, which is left to the caller. `logits` is overwritten
    with those after the last token that was read.
    """
    unfinished = list(range(len(caches)))
    for count in range(1, most + 1):
        likeliest = logits[unfinished].argmax(axis=-1).tolist()
        chosen = dict(zip(unfinished, likeliest, strict=True))
        unfinished = [index for index, token in chosen.items() if token != tokens.end]
        if unfinished:
            ids = np.array([chosen[index] for index in unfinished])[:, None]
            writing_caches = [caches[index] for index in unfinished]
            logits[unfinished] = read(writing_caches, ids, last=1)[:, 0]
        if every is not None and count % every == 0:
            for index in unfinished:
                caches[index].end_turn()
        yield chosen
        if stop_loops:
            unfinished = [index for index in unfinished if not is_looping(caches[index].ids)]
        if not unfinished:
            break


def is_looping(ids: Sequence[int]) -> bool:
    """Whether a text ends with `MAX_REPEATS` repetitions, or with three if they are long.

    Long is together at least `MAX_REPEATED` tokens.

    Examples
    --------
    >>> is_looping([5, 7] + 6 * [9]), is_looping([5] + 6 * [7, 9]), is_looping(5 * [9])
    (True, True, False)
    >>> is_looping(3 * [*range(30)]), is_looping(2 * [*range(40)]), is_looping(3 * [*range(9)])
    (True, False, False)
    """
    return len(without_loop(ids)) < len(ids)


def without_loop(ids: Sequence[int]) -> Sequence[int]:
    """Return a text with the first alone of the repetitions with which it ends; see `is_looping`.

    Examples
    --------
    >>> without_loop([5, 7] + 6 * [8, 9]), without_loop([5, 7, 9, 9])
    ([5, 7, 8, 9], [5, 7, 9, 9])
    """
    for period in range(1, len(ids) // 3 + 1):
        last = min(MAX_REPEATS * period, max(MAX_REPEATED, 3 * period))  # tokens to compare
        # One comparison rules out most periods, before slices are copied.
        if last > len(ids) or ids[-1 - period] != ids[-1]:
            continue
        # A text repeats with a period if it equals itself shifted by it.
        if ids[-last:-period] == ids[period - last :]:
            return ids[: len(ids) - last + period]
    return ids


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
    for step in generate(
        tokens, caches, logits, most=most, every=every, stop_loops=stop_loops
    ):
        for index, token in step.items():
            passages[index].append(token)
    return [tokens.text(ids).strip() for ids in passages]


def first_writer(tokens: Tokens, logits: Floats) -> Writer:
    """Return whether a model begins its turn with a call or with words, by its logits (V,).

    In a chat template both begin with the same mark, so this says words; a passage becomes a call
    once it has the whole mark of one (`Chat._write`).
    """
    call, *_ = tokens.marks["call"]
    words, *_ = tokens.marks["system"]
    return "call" if logits[call] > logits[words] else "system"


@dataclass(frozen=True)
class ChatText:
    """The text of a chat under each cache: new caches can read it again."""

    ids: Mapping[str, tuple[int, ...]]
    """All tokens under each cache."""
    passages: Mapping[str, tuple[tuple[Writer, int, int], ...]]
    """See `Chat`."""
    open: tuple[str, ...]
    """The caches whose last passage can go on."""
    steps: int
    """See `Chat`."""
    roles: tuple[str, ...]
    """The roles of all messages."""


class Chat:
    """A chat with a model under several new caches, by name.

    `passages` has, for each cache, the (writer, first, end) of each passage of its text: its writer
    and its tokens, from its mark to its end. The last passage of an answer stays open, so that the
    model can go on with it; before the next message its end is read, and policies evict. `steps`
    counts the tokens that the model has written since the last message, once for all caches;
    `roles` has the role of each message.
    """

    def __init__(self, model: LanguageModel, caches: Mapping[str, TextCache]) -> None:
        self.model = model
        self.caches = dict(caches)
        self.steps = 0
        self.passages: dict[str, list[tuple[Writer, int, int]]] = {name: [] for name in caches}
        if model.tokens.first:
            read([*self.caches.values()], model.tokens.first, last=0)
        self._logits: dict[str, Floats] = {}
        self._open: tuple[str, ...] = ()
        self.roles: tuple[str, ...] = ()

    @property
    def longest(self) -> int:
        """Tokens of the longest text."""
        return max(cache.count for cache in self.caches.values())

    def fork(self) -> Chat:
        """Return an independent copy."""
        chat = copy.copy(self)
        chat.caches = {name: cache.fork() for name, cache in self.caches.items()}
        chat.passages = {name: [*passages] for name, passages in self.passages.items()}
        # Copies, as `generate` writes to them.
        chat._logits = {name: logits.copy() for name, logits in self._logits.items()}
        return chat

    def add_message(
        self, text: str, writer: Writer = "user", kind: Kind | None = None
    ) -> None:
        """Read a message under every cache, and end the turn."""
        passage = Passage(writer, text, 0, kind=kind)
        names = [*self.caches]
        self._close_answers()
        ids = self.model.tokens.encode_passage(passage, earlier_roles=self.roles).ids
        self.roles += (role_of(passage),)
        self._begin(names, writer, ids, kind)
        self._close(names, ())
        for cache in self.caches.values():
            cache.forget_queries()
        self.steps = 0

    @property
    def written(self) -> ChatText:
        """The text of the chat so far."""
        ids = {name: tuple(cache.ids) for name, cache in self.caches.items()}
        passages = {name: tuple(passages) for name, passages in self.passages.items()}
        return ChatText(ids, passages, self._open, self.steps, self.roles)

    def read_on(self, text: ChatText) -> Iterator[int]:
        """Read the rest of a text that begins as this chat does.

        Yields the number of tokens read so far, under all caches.
        """
        self._close_answers()
        for name, cache in self.caches.items():
            passages = text.passages[name]
            for number in range(len(self.passages[name]), len(passages)):
                writer, first, end = passages[number]
                self._begin([name], writer, text.ids[name][first:end])
                if number + 1 < len(passages) or name not in text.open:
                    self._close([name], ())
                if not text.steps:  # a message, and no answer
                    cache.forget_queries()
                yield sum(cache.count for cache in self.caches.values())
        self.steps = text.steps
        self.roles = text.roles

    def answer(self, most: int = MAX_WRITTEN_TOKENS) -> Generator[dict[str, int]]:
        """Let the model answer under every cache, or go on with its answers: calls, then words.

        A passage ends after `most` tokens, or when it repeats itself; see `is_looping`. Yields the
        next token under each cache that is still writing.
        """
        names = self._open or (*self.caches,)
        if self.roles[-1:] != ("assistant",):
            self.roles += ("assistant",)
        # A cache that wrote a call writes another passage, as the dialogs have words after calls.
        while names:
            self._begin_answers([name for name in names if name not in self._open])
            yield from self._write(names, most)
            names = tuple(name for name in names if 0 < self._calls(name) <= MAX_CALLS)
            self._close(names, self.model.tokens.closing)

    def unfinished(self) -> list[str]:
        """Return the caches whose answer was cut off, so that the model can go on with it."""
        unfinished = []
        for name in self._open:
            ended_by_model = self._logits[name].argmax() == self.model.tokens.end
            if not ended_by_model and not is_looping(self.caches[name].ids):
                unfinished.append(name)
        return unfinished

    def _calls(self, name: str) -> int:
        """Return the number of calls at the end of a text."""
        calls = 0
        for writer, _, _ in self.passages[name]:
            calls = calls + 1 if writer == "call" else 0
        return calls

    def _begin_answers(self, names: Sequence[str]) -> None:
        """Read the mark with which the model begins its next passage under each cache."""
        tokens = self.model.tokens
        by_writer: dict[Writer, list[str]] = {"call": [], "system": []}
        for name in names:
            may_call = self._calls(name) < MAX_CALLS
            writer = first_writer(tokens, self._logits[name]) if may_call else "system"
            by_writer[writer].append(name)
        for writer, beginning in by_writer.items():
            self._begin(beginning, writer, tokens.marks[writer])

    def _write(self, names: Sequence[str], most: int) -> Iterator[dict[str, int]]:
        tokens = self.model.tokens
        caches = [self.caches[name] for name in names]
        logits = np.stack([self._logits[name] for name in names])
        # Rows of the array that `generate` writes to, so that each stays that of the last token.
        self._logits |= zip(names, logits, strict=True)
        call = tokens.marks["call"]
        for step in generate(tokens, caches, logits, most=most, stop_loops=True):
            self.steps += 1
            for index in step:
                passages = self.passages[names[index]]
                ids = caches[index].ids
                writer, first, _ = passages[-1]
                opening = tuple(ids[first : first + len(call)])
                passages[-1] = "call" if opening == call else writer, first, len(ids)
            yield {names[index]: token for index, token in step.items()}

    def _begin(
        self,
        names: Sequence[str],
        writer: Writer,
        ids: Sequence[int],
        kind: Kind | None = None,
    ) -> None:
        """Read the first tokens of a passage."""
        self._read(names, ids)
        for name in names:
            self.caches[name].turn_kind = kind
            count = self.caches[name].count
            self.passages[name].append((writer, count - len(ids), count))
        opened = {*self._open, *names}
        self._open = tuple(name for name in self.caches if name in opened)

    def _close_answers(self) -> None:
        """Read the end of open answers, which are no longer the last message."""
        tokens = self.model.tokens
        for name in self._open:
            cache = self.caches[name]
            writer, first, _ = self.passages[name][-1]
            # The last role is that of the answer itself.
            ids = tokens.in_history(cache.ids[first:], self.roles[:-1])
            if ids:  # the template writes an earlier answer differently: read that instead
                self.caches[name] = cache.fork(first)  # the turn began there
                self.passages[name].pop()
                self._begin([name], writer, ids)
                self._close([name], ())
        self._close(self._open, tokens.closing)

    def _close(self, names: Sequence[str], closing: Sequence[int]) -> None:
        """Read the last tokens of open passages, and end the turn."""
        self._read(names, closing)
        for name in names:
            self.caches[name].end_turn()
            writer, first, _ = self.passages[name][-1]
            self.passages[name][-1] = writer, first, self.caches[name].count
        self._open = tuple(name for name in self._open if name not in names)

    def _read(self, names: Sequence[str], ids: Sequence[int]) -> None:
        """Read tokens under some caches, and store the logits after the last."""
        if names and ids:
            caches = [self.caches[name] for name in names]
            logits = read(caches, ids, last=1)[:, 0]
            self._logits |= zip(names, logits, strict=True)

    def text(self, name: str, passage: int = -1) -> str:
        """Return the text of a passage of a cache."""
        _, first, end = self.passages[name][passage]
        return self.model.tokens.passage_text(self.caches[name].ids[first:end])
