"""Policies in llama.cpp: a chat of any length in a fixed context.

A `llama_cpp.Llama` holds the same tokens in all layers and heads, so a policy decides for the whole
model, and by text alone: llama.cpp gives out no attention, keys or hidden states.

The life of a `LlamaText`:

1. `read` brings the text into the context, if another text is there, which is stored as bytes.
2. It closes gaps between positions, if it must, and decodes the tokens. They follow those held.
3. `end_turn` lets the policy decide from what the text says, and removes what it evicts. What a
   context has no room for is read in parts, each of which ends a turn.
4. `fork` copies a text as bytes. `go_back` forgets tokens of the turn; `follow` takes over what
   another text has read.

A text is in its context, or its state is in `_state`, or another text that it followed has it.

Closing gaps between positions is as in Xiao et al. 2024, *Efficient Streaming Language Models with
Attention Sinks*.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self
from weakref import WeakKeyDictionary, ref

import llama_cpp
import numpy as np

from fdkvc.core.arrays import one_dialog
from fdkvc.core.attention import KINDS, SPEAKERS, Floats, Ints
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.limits import MAX_WRITTEN_TOKENS
from fdkvc.core.parameters import Field, check_count
from fdkvc.engine.online import OnlineCache
from fdkvc.engine.sinks import FirstTokensWarning, sinks_notes
from fdkvc.models.llama_cpp.context import (
    check_model,
    llama_tokens,
    read_batch,
    set_state,
    state_of,
    vocabulary_of,
)
from fdkvc.models.numpy.features import with_new
from fdkvc.models.numpy.head_eviction import POSITIONS, check_keeps, check_no_future
from fdkvc.models.numpy.losses import losses
from fdkvc.models.numpy.model_text import Kind, Passage, Writer
from fdkvc.models.numpy.tokens import role_of
from fdkvc.policies import POLICIES, Policy
from fdkvc.policies.base import BY_TEXT, Available

GIVEN = BY_TEXT | {"chance", "similarity"}
"""What a policy may look at here. Two tokens are similar if they are the same."""

SURPRISAL = Field("Surprisal", name="surprisal", default="words", choices=("words", "model"))
"""Whether surprisal is that of a token's word, or of the model's own predictions."""

_IDENTITY_WIDTH = 128  # random vectors of different tokens then have a cosine below 0.6

_IN_CONTEXT: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # the text in each context


class LlamaText:
    """A text in the context of a `llama_cpp.Llama`, from which a policy evicts between turns.

    Several texts may share a `Llama`: one is in its context, and the others are kept as bytes. Use
    the `Llama` for nothing else meanwhile.

    Parameters
    ----------
    llama : llama_cpp.Llama
        A model whose layers all attend to all tokens, with options of your choice (flash attention,
        ``type_k``, ``type_v``, ``n_ubatch``, …).
    policy : Policy
        One that decides by text.
    budget : int
        Tokens to hold at the end of a turn, fewer than the context has.
    positions : {"kept", "slots"}
        See `POSITIONS`. Kept positions are closed up once they reach the model's last one.
    surprisal : {"words", "model"}
        See `SURPRISAL`.

    Attributes
    ----------
    ids : list of int
        All tokens of the text.
    turn_kind : {"system", "result"}, optional
        What this turn is, if its mark does not tell it.
    held : array
        Places in the text of the tokens that the context holds.
    ends : list of int
        Tokens read at the end of each turn.

    Raises
    ------
    ValueError
        For an unsupported policy, option or model; when reading, if llama.cpp cannot. Then the text
        is as it was.

    Warns
    -----
    FirstTokensWarning
        If the policy can evict the first tokens of a text, which pretrained models attend to.
    UserWarning
        If a setting of the policy changes nothing here.
    """

    _tells_kinds = False  # whether `turn_kind` is set for a system prompt

    def __init__(
        self,
        llama: Any,
        policy: Policy,
        budget: int,
        *,
        positions: str = POSITIONS.default,
        surprisal: str = SURPRISAL.default,
    ) -> None:
        check_by_text(policy)
        check_keeps(policy)
        POSITIONS.check(positions, "positions")
        SURPRISAL.check(surprisal, "surprisal")
        check_count("budget", budget, high=llama.n_ctx() - 1)
        self._memory = llama_cpp.llama_get_memory(llama.ctx)
        self._can_shift = bool(llama_cpp.llama_memory_can_shift(self._memory))
        check_model(llama.model)
        if positions == "slots" and not self._can_shift:
            raise ValueError("the positions of this model cannot be shifted: keep them")
        for sentence in sinks_notes([policy], [budget]):
            warnings.warn(sentence, FirstTokensWarning, stacklevel=2)
        self.llama, self.policy, self.budget = llama, policy, budget
        self.positions, self.surprisal = positions, surprisal
        self.tokens = llama_tokens(llama)
        speakers = SPEAKERS if self._tells_kinds else self.tokens.speakers
        kinds = KINDS if self._tells_kinds else self.tokens.kinds
        for note in policy.without_effect(Available(speakers, words=True, kinds=kinds)):
            warnings.warn(f"{policy.title}: {note}", stacklevel=2)
        self.turn_kind: Kind | None = None
        self.ids: list[int] = []
        self.ends: list[int] = []
        self.held: Ints = np.empty(0, np.intp)
        self._context_positions: Ints = np.empty(0, np.intp)  # of tokens held
        self._cache = OnlineCache(policy, budget)
        self._features: dict[str, Any] = {}  # of ended turns, and of a passage read in parts
        self._nats: list[float] = []  # surprisal of the turn's tokens, by the model
        self._logits: Floats | None = None  # after the last token, for the surprisal of the next
        self._state: bytes | None = None  # of a text that is not in the context
        self._followed: LlamaText | None = None  # which has read the same in its place

    def __repr__(self) -> str:
        held = f"{len(self.held):,} of {len(self.ids):,} tokens"
        return f"{type(self).__name__}({self.policy.name}, budget {self.budget}, holds {held})"

    # ------------------------------------------------------------------------------ reading

    def read(self, ids: Sequence[int], *, last: int | None = 1) -> Floats:
        """Read the next tokens of the turn; return the logits after the `last` of them (n, V).

        `last` is None for all. Tokens for which the context has no room are read in parts, each of
        which ends a turn.
        """
        skipped = 0 if last is None else max(len(ids) - last, 0)
        if len(ids) > self._room:
            self._note(self._turn_start, [*self.ids[self._turn_start :], *ids])
        else:  # drop what was noted of tokens that could not be read, or were forgotten
            self._features = self._features_of(0, len(self.ids))
        logits, done = [np.empty((0, self.llama.n_vocab()), np.float32)], 0
        while done < len(ids):
            if not self._room:
                self.end_turn()
            part = ids[done : done + self._room]
            logits.append(self._decode(part, min(max(skipped - done, 0), len(part))))
            done += len(part)
        return np.concatenate(logits)

    @property
    def _turn_start(self) -> int:
        return self.ends[-1] if self.ends else 0

    @property
    def _next(self) -> int:
        """The next position: llama.cpp takes no other than that after the last."""
        return int(self._context_positions.max(initial=-1)) + 1

    @property
    def _room(self) -> int:
        return int(self.llama.n_ctx()) - len(self.held)

    def _decode(self, ids: Sequence[int], skipped: int) -> Floats:
        """Read tokens for which there is room; return the logits after all but the `skipped`."""
        self._bring()
        longest = llama_cpp.llama_model_n_ctx_train(self.llama.model)
        # llama.cpp shifts keys as it next decodes: a state stored before that lacks the shift.
        if self.positions == "slots" or self._next + len(ids) > longest:
            self._close_gaps()
        start = self._next
        rows, nats, before = [], list[float](), self._logits
        predicts = self.surprisal == "model" and "surprisal" in self.policy.looks_at
        try:
            for first in range(0, len(ids), self.llama.n_batch):
                part = ids[first : first + self.llama.n_batch]
                skip = min(max(skipped - first, 0), len(part))
                logits = read_batch(self.llama, part, start + first, 0 if predicts else skip)
                if predicts:
                    nats += _surprisal(before, logits, part)
                    before, logits = logits[-1], logits[skip:]
                rows.append(logits)
        except ValueError:  # the text stays as it was, without the parts that were read
            llama_cpp.llama_memory_seq_rm(self._memory, 0, start, -1)
            raise
        self._logits = before
        self._nats += nats
        self.held = np.append(self.held, len(self.ids) + np.arange(len(ids)))
        self._context_positions = np.append(self._context_positions, start + np.arange(len(ids)))
        self.ids += ids
        return np.concatenate(rows)

    # ------------------------------------------------------------------------------ eviction

    def end_turn(self) -> list[int]:
        """End the turn: the policy evicts. Return the places of the evicted tokens in the text."""
        start, end = self._turn_start, len(self.ids)
        if start == end:
            return []
        if (noted := len(next(iter(self._features.values()), ()))) < end:
            self._note(noted, self.ids[noted:])
        if self._nats:
            surprisal = self._features["surprisal"].copy()  # which a fork may share
            surprisal[start:end] = self._nats
            self._features = {**self._features, "surprisal": surprisal}
        cache = copy.copy(self._cache)  # so that a policy that fails changes nothing
        vectors = _vectors(self.policy, self.ids[start:])
        kept = cache.feed(**vectors, **self._features_of(start, end)).kept
        evicted = ~np.isin(self.held, kept)
        if evicted.any():
            self._bring()
        for low, high in _runs(self._context_positions[evicted]):
            if not llama_cpp.llama_memory_seq_rm(self._memory, 0, low, high):
                raise ValueError("llama.cpp could not remove tokens from its context")
        places: list[int] = self.held[evicted].tolist()
        self.held, self._context_positions = self.held[~evicted], self._context_positions[~evicted]
        self._cache, self._nats = cache, []
        self.ends.append(end)
        return places

    def _note(self, first: int, ids: Sequence[int]) -> None:
        """Note what the policy may see of the tokens' text; `first` is the place of the first."""
        new = self.tokens.features(ids, self.policy.looks_at, self.turn_kind)
        self._features = with_new(self._features_of(0, first), new)

    def _features_of(self, first: int, end: int) -> dict[str, Any]:
        return {name: column[first:end] for name, column in self._features.items()}

    def _close_gaps(self) -> None:
        """Shift what is held to consecutive positions from 0."""
        if not self._can_shift:
            raise ValueError(
                "the text has reached the last position of this model, whose positions cannot be "
                "shifted"
            )
        for low, high in _runs(self._context_positions):
            closed = int(np.searchsorted(self._context_positions, low))
            if closed < low:
                llama_cpp.llama_memory_seq_add(self._memory, 0, low, high, closed - low)
        self._context_positions = np.arange(len(self._context_positions))

    # ------------------------------------------------------------------------------ looking

    def text(self, places: Sequence[int] | None = None) -> str:
        """Return the text of tokens without marks, by default of all that are held."""
        chosen = self.held.tolist() if places is None else places
        return self.tokens.text([self.ids[place] for place in chosen])

    def dialog(self) -> DialogBatch:
        """Return the turns as the policy saw them, a batch of one dialog.

        ``simulate(chat.policy, chat.dialog(), chat.budget)`` decides again about all of them, and
        `fdkvc.explain.decisions` says why.
        """
        columns = self._features_of(0, self._turn_start)
        speakers = columns.pop("speakers", None)
        vectors = _vectors(self.policy, self.ids[: self._turn_start])
        lengths: list[int] = np.diff([0, *self.ends]).tolist()
        dialog = one_dialog(turn_lengths=lengths, **vectors)
        if speakers is not None:
            columns["speakers"] = speakers[np.array(self.ends) - 1]
        dialog = replace(dialog, **{name: column[None] for name, column in columns.items()})
        if speakers is not None:  # the first turn may hold the model's own prompt as well
            vars(dialog)["spoken_by"] = speakers[None]
        return dialog

    # ------------------------------------------------------------------------------ copies

    def fork(self) -> Self:
        """Return an independent copy, which may continue differently."""
        self._bring()
        other = copy.copy(self)
        other.ids, other.ends, other._nats = [*self.ids], [*self.ends], [*self._nats]
        other._state = state_of(self.llama)
        return other

    def follow(self, other: LlamaText) -> None:
        """Take over what another text has read since; both have evicted nothing.

        The other reads no more until this text has followed again, or has read or evicted.
        """
        self.ids, self.held = [*other.ids], other.held
        self._context_positions = other._context_positions
        self._state, self._followed = None, other

    def go_back(self, count: int) -> None:
        """Forget the tokens of this turn from a place on, as if they had not been read."""
        check_count("the place", count, low=self._turn_start, high=len(self.ids))
        if count == len(self.ids):
            return
        self._bring()
        kept = self.held < count
        positions = self._context_positions
        llama_cpp.llama_memory_seq_rm(self._memory, 0, int(positions[~kept][0]), -1)
        self.held, self._context_positions = self.held[kept], positions[kept]
        self.ids = self.ids[:count]
        self._nats, self._logits = self._nats[: count - self._turn_start], None

    def _bring(self) -> None:
        """Put this text into the context, and store the one that was there."""
        if self._followed is not None:
            self._state, self._followed = self._followed.fork()._state, None
        reference = _IN_CONTEXT.get(self.llama)
        current = reference() if reference else None
        if current is self:
            return
        if current is not None:
            current._state = state_of(self.llama)
        if self._state is None:
            llama_cpp.llama_memory_clear(self._memory, False)
        else:
            set_state(self.llama, self._state)
            self._state = None
        _IN_CONTEXT[self.llama] = ref(self)


class PolicyChat(LlamaText):
    """A chat in the template of the model; parameters are those of `LlamaText`."""

    _roles: tuple[str, ...] = ()  # of all messages
    _tells_kinds = True

    def say(
        self,
        text: str,
        writer: Writer = "user",
        *,
        most: int = MAX_WRITTEN_TOKENS,
        choose: Callable[[Floats], int] = lambda logits: int(logits.argmax()),
    ) -> Generator[str]:
        """Read a message, and yield the answer as it is written.

        An answer has at most so many tokens; each is chosen by the logits (V,), by default the
        likeliest. Closing the generator ends the answer. The message and the answer are a turn
        each; an answer for which the context has no room is several.
        """
        self.add(text, writer)
        self.turn_kind = None
        begin, roles = len(self.ids), self._roles
        logits = self.read(self.tokens.marks["system"])[-1]
        first, said = len(self.ids), ""
        try:
            for _ in range(most):
                token = choose(logits)
                if llama_cpp.llama_vocab_is_eog(vocabulary_of(self.llama), token):
                    break
                logits = self.read([token])[-1]
                written = self.text(range(first, len(self.ids)))
                if not written.endswith("\ufffd"):  # part of a character
                    yield written[len(said) :]
                    said = written
        finally:
            # Some templates write an earlier answer differently: then it is read again so.
            in_history: tuple[int, ...] = ()
            if self._turn_start <= begin:  # nothing of the answer was evicted
                in_history = self.tokens.in_history(self.ids[begin:], roles)
            if in_history:
                self.go_back(begin)
            self.read(in_history or self.tokens.closing)
            self.end_turn()
            self._roles = *roles, "assistant"

    def add(self, text: str, writer: Writer = "user", kind: Kind | None = None) -> None:
        """Read a message without an answer to it, such as a system prompt, and end the turn."""
        start = () if self.ids else self.tokens.first
        self.turn_kind, passage = kind, Passage(writer, text, 0, kind=kind)
        self.read([*start, *self.tokens.encode_passage(passage, after=self._roles).ids])
        self._roles += (role_of(passage),)
        self.end_turn()


def check_by_text(policy: Policy) -> None:
    """Raise a ValueError for a policy that llama.cpp cannot serve, naming those that it can."""
    check_no_future(policy)
    missing = [look for look in policy.looks_at if look not in GIVEN]
    tier = policy.tier_places(64, 1024) > 0
    if missing or tier or policy.reads_afresh:
        needs = "a second tier" if tier else "all tokens" if policy.reads_afresh else missing[0]
        supported = [key for key, policy in POLICIES.items() if {*policy().looks_at} <= GIVEN]
        raise ValueError(
            f"{policy.label} needs {needs}, which llama.cpp does not give: choose one of "
            f"{', '.join(supported)}"
        )


def _vectors(policy: Policy, ids: Sequence[int]) -> dict[str, Any]:
    """Return vectors of tokens (n, ·): random ones of each id, where the policy compares them."""
    embeddings = none = np.zeros((len(ids), 1), np.float32)
    if "similarity" in policy.looks_at:
        of_token = {
            token: np.random.default_rng(token).standard_normal(_IDENTITY_WIDTH, np.float32)
            for token in {*ids}
        }
        embeddings = np.stack([of_token[token] for token in ids])
    return {"queries": none, "keys": none, "values": none, "embeddings": embeddings}


def _runs(positions: Ints) -> Iterator[tuple[int, int]]:
    """Yield the first and the end of each run of consecutive positions."""
    for run in np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1):
        if len(run):
            yield int(run[0]), int(run[-1]) + 1


def _surprisal(before: Floats | None, logits: Floats, ids: Sequence[int]) -> list[float]:
    """Return −log p of tokens, by the logits before the first (V,) and after each (n, V)."""
    if before is None:  # nothing predicts the first token of a text: all are equally likely
        before = np.zeros(logits.shape[1], np.float32)
    predictions = np.concatenate([before[None], logits[:-1]])
    (nats,), _, _ = losses(predictions[None], np.asarray(ids))
    return [*map(float, nats)]
