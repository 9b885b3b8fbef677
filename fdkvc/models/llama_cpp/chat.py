"""Policies in llama.cpp: a chat of any length in a fixed context.

A `llama_cpp.Llama` holds the same tokens in all layers and heads, so a policy decides for the whole
model, and by text alone: llama.cpp does not expose attention, keys or hidden states.

A *place* is a token's index in the text, a *position* is where the context has it. They differ once
gaps are closed. A text with a budget of 3::

    1. read(4 tokens)    places     0 1 2 3        the context has room for more than the budget
                         positions  0 1 2 3
    2. end_turn()        places     0   2 3        the policy evicts 1; llama.cpp removes its cell
                         positions  0   2 3        and keeps the positions of the others
    3. read(1 token)     places     0   2 3 4      positions "kept": the next is the last one + 1
                         positions  0   2 3 4
       or                positions  0   1 2 3      positions "slots": first close the gaps

What the context has no room for is read in parts, each of which ends a turn. Closing gaps is as in
Xiao et al. 2024, *Efficient Streaming Language Models with Attention Sinks*.

A `Llama` has one context, and texts take turns in it: `_bring` puts a text there, and stores the
keys and values of the one that it replaces as bytes. So a text is in exactly one of three states:

- in the context (`_IN_CONTEXT` names it);
- as bytes, in its `_state`; None for a text without tokens;
- in another text that it `follow`ed, and which has read the same (`_followed`).
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
"""What a policy may look at here. Only equal tokens count as similar."""

SURPRISAL = Field("Surprisal", name="surprisal", default="words", choices=("words", "model"))
"""Whether surprisal is that of a token's word in English, or by the model's own predictions."""

_IDENTITY_WIDTH = (
    128  # wide enough for random vectors of two tokens to have a cosine below 0.6
)

# The text in the context of each `Llama`, as a weak reference: its owner may delete it.
_IN_CONTEXT: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


class LlamaText:
    """A text in the context of a `llama_cpp.Llama`, from which a policy evicts between turns.

    Several texts may share a `Llama`: one is in its context, and the others are stored as bytes.
    Do not use the `Llama` for anything else meanwhile.

    Parameters
    ----------
    llama : llama_cpp.Llama
        A model whose layers all attend to all tokens, with options of your choice (flash attention,
        ``type_k``, ``type_v``, ``n_ubatch``, …).
    policy : Policy
        A policy that decides by text.
    budget : int
        Tokens to hold at the end of a turn, fewer than the context has.
    positions : {"kept", "slots"}
        See `POSITIONS`. With "kept", gaps are closed only once the model's last one is reached.
    surprisal : {"words", "model"}
        See `SURPRISAL`.

    Attributes
    ----------
    ids : list of int
        All tokens of the text.
    turn_kind : {"system", "result"}, optional
        The kind of this turn, if its mark does not tell.
    held : array
        Places in the text of the tokens that the context holds.
    ends : list of int
        Number of tokens read by the end of each turn.

    Raises
    ------
    ValueError
        For an unsupported policy, option or model; when reading, if llama.cpp fails. The text is
        then unchanged.

    Warns
    -----
    FirstTokensWarning
        If the policy can evict the first tokens of a text, which pretrained models attend to.
    UserWarning
        If a setting of the policy has no effect here.
    """

    _tells_kinds = False  # whether `turn_kind` is set where marks do not tell

    def __init__(
        self,
        llama: Any,
        policy: Policy,
        budget: int,
        *,
        positions: str = POSITIONS.default,
        surprisal: str = SURPRISAL.default,
    ) -> None:
        check_keeps(policy)
        check_by_text(policy)
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
        self.llama = llama
        self.policy = policy
        self.budget = budget
        self.positions = positions
        self.surprisal = surprisal
        self.tokens = llama_tokens(llama)
        speakers = SPEAKERS if self._tells_kinds else self.tokens.speakers
        kinds = KINDS if self._tells_kinds else self.tokens.kinds
        for note in policy.without_effect(Available(speakers, words=True, kinds=kinds)):
            warnings.warn(f"{policy.title}: {note}", stacklevel=2)
        self.turn_kind: Kind | None = None
        self.ids: list[int] = []
        self.ends: list[int] = []
        self.held: Ints = np.empty(0, np.intp)
        self._context_positions: Ints = np.empty(0, np.intp)  # of `held`, in the same order
        self._cache = OnlineCache(policy, budget)  # the policy's own account of what is held
        self._features: dict[str, Any] = {}  # of ended turns, and of a passage read in parts
        self._nats: list[float] = []  # surprisal of the turn's tokens, by the model
        self._logits: Floats | None = (
            None  # after the last token, for the surprisal of the next
        )
        self._state: bytes | None = (
            None  # keys and values, while the text is not in the context
        )
        self._followed: LlamaText | None = None  # a text that has them instead

    def __repr__(self) -> str:
        entries = f"{len(self.held):,} of {len(self.ids):,} tokens"
        return (
            f"{type(self).__name__}({self.policy.name}, budget {self.budget}, holds {entries})"
        )

    # ------------------------------------------------------------------------------ reading

    def read(self, ids: Sequence[int], *, last: int | None = 1) -> Floats:
        """Read the next tokens of the turn; return the logits after the `last` of them (n, V).

        `last` is None for all. Tokens for which the context has no room are read in parts, each of
        which ends a turn.
        """
        skipped = 0 if last is None else max(len(ids) - last, 0)  # tokens without logits
        # 1. A passage that must be read in parts is noted whole: by its parts, a word or a mark at
        #    a boundary would be cut.
        if len(ids) > self._room:
            self._note(self._turn_start, [*self.ids[self._turn_start :], *ids])
        else:  # drop features of tokens that could not be read, or were forgotten
            self._features = self._features_of(0, len(self.ids))
        # 2. Read what there is room for, evict, and go on.
        logits = [np.empty((0, self.llama.n_vocab()), np.float32)]
        read_count = 0
        while read_count < len(ids):
            if not self._room:
                self.end_turn()
            part = ids[read_count : read_count + self._room]
            logits.append(self._decode(part, min(max(skipped - read_count, 0), len(part))))
            read_count += len(part)
        return np.concatenate(logits)

    @property
    def _turn_start(self) -> int:
        return self.ends[-1] if self.ends else 0

    @property
    def _next(self) -> int:
        """The next position: llama.cpp accepts only the one after the last."""
        return int(self._context_positions.max(initial=-1)) + 1

    @property
    def _room(self) -> int:
        """How many more tokens the context can hold."""
        return int(self.llama.n_ctx()) - len(self.held)

    def _decode(self, ids: Sequence[int], skipped: int) -> Floats:
        """Read tokens for which there is room; return the logits after all but the `skipped`."""
        # 1. Put the text into the context, and find the positions of its new tokens. Gaps are
        #    closed just before tokens are decoded: llama.cpp shifts keys only then, and a state
        #    that is stored in between would lack the shift.
        self._bring()
        longest = llama_cpp.llama_model_n_ctx_train(self.llama.model)
        if self.positions == "slots" or self._next + len(ids) > longest:
            self._close_gaps()
        start = self._next
        # 2. Decode in batches. For surprisal, the logits after every token are needed.
        rows = []
        nats = []
        previous_logits = self._logits
        predicts = self.surprisal == "model" and "surprisal" in self.policy.looks_at
        try:
            for first in range(0, len(ids), self.llama.n_batch):
                part = ids[first : first + self.llama.n_batch]
                skip = min(max(skipped - first, 0), len(part))
                logits = read_batch(self.llama, part, start + first, 0 if predicts else skip)
                if predicts:
                    nats += _surprisal(previous_logits, logits, part)
                    previous_logits = logits[-1]
                    logits = logits[skip:]
                rows.append(logits)
        except ValueError:  # undo the batches that were read
            llama_cpp.llama_memory_seq_rm(self._memory, 0, start, -1)
            raise
        # 3. Only now does the text change.
        self._logits = previous_logits
        self._nats += nats
        self.held = np.append(self.held, len(self.ids) + np.arange(len(ids)))
        self._context_positions = np.append(
            self._context_positions, start + np.arange(len(ids))
        )
        self.ids += ids
        return np.concatenate(rows)

    # ------------------------------------------------------------------------------ eviction

    def end_turn(self) -> list[int]:
        """End the turn: the policy evicts. Return the places of the evicted tokens in the text."""
        start = self._turn_start
        end = len(self.ids)
        if start == end:
            return []
        # 1. Features of the turn's tokens. Those of a passage read in parts are there already.
        noted = len(next(iter(self._features.values()), ()))
        if noted < end:
            self._note(noted, self.ids[noted:])
        if self._nats:
            surprisal = self._features["surprisal"].copy()  # a fork may share the original
            surprisal[start:end] = self._nats
            self._features = {**self._features, "surprisal": surprisal}
        # 2. Let the policy decide, on a copy: if it fails, nothing has changed.
        cache = copy.copy(self._cache)
        vectors = _vectors(self.policy, self.ids[start:])
        kept_tokens = cache.feed(**vectors, **self._features_of(start, end)).kept_tokens
        evicted = ~np.isin(self.held, kept_tokens)
        # 3. Remove what it evicted from the context.
        if evicted.any():
            self._bring()
        for low, high in _runs(self._context_positions[evicted]):
            if not llama_cpp.llama_memory_seq_rm(self._memory, 0, low, high):
                raise ValueError("llama.cpp could not remove tokens from its context")
        places: list[int] = self.held[evicted].tolist()
        self.held = self.held[~evicted]
        self._context_positions = self._context_positions[~evicted]
        self._cache = cache
        self._nats = []
        self.ends.append(end)
        return places

    def _note(self, first: int, ids: Sequence[int]) -> None:
        """Add the features of tokens that the policy looks at, from the place `first` on."""
        new = self.tokens.features(ids, self.policy.looks_at, self.turn_kind)
        self._features = with_new(self._features_of(0, first), new)

    def _features_of(self, first: int, end: int) -> dict[str, Any]:
        return {name: column[first:end] for name, column in self._features.items()}

    def _close_gaps(self) -> None:
        """Shift the tokens held to consecutive positions from 0."""
        if not self._can_shift:
            raise ValueError(
                "the text has reached the last position of this model, whose positions cannot be "
                "shifted"
            )
        for low, high in _runs(self._context_positions):
            # Tokens held before it.
            target = int(np.searchsorted(self._context_positions, low))
            if target < low:
                llama_cpp.llama_memory_seq_add(self._memory, 0, low, high, target - low)
        self._context_positions = np.arange(len(self._context_positions))

    # ------------------------------------------------------------------------------ looking

    def text(self, places: Sequence[int] | None = None) -> str:
        """Return the text of the tokens at some places, by default of those held, without marks."""
        chosen = self.held.tolist() if places is None else places
        return self.tokens.text([self.ids[place] for place in chosen])

    def dialog(self) -> DialogBatch:
        """Return the turns as the policy saw them, as a batch of one dialog.

        ``simulate(chat.policy, chat.dialog(), chat.budget)`` repeats all decisions, and
        `fdkvc.explain.decisions` explains them.
        """
        columns = self._features_of(0, self._turn_start)
        vectors = _vectors(self.policy, self.ids[: self._turn_start])
        lengths: list[int] = np.diff([0, *self.ends]).tolist()
        dialog = one_dialog(turn_lengths=lengths, **vectors)
        return replace(dialog, **{name: column[None] for name, column in columns.items()})

    # ------------------------------------------------------------------------------ copies

    def fork(self, count: int | None = None) -> Self:
        """Return an independent copy, as of now or of `count` tokens, in this turn."""
        self._bring()
        copied_text = copy.copy(self)
        # Copies of what grows in place; everything else is replaced.
        copied_text.ids = [*self.ids]
        copied_text.ends = [*self.ends]
        copied_text._nats = [*self._nats]
        # llama.cpp gives only the state of what is in the context, so the text was put there first.
        copied_text._state = state_of(self.llama)
        copied_text.go_back(len(self.ids) if count is None else count)
        return copied_text

    def follow(self, leader: LlamaText) -> None:
        """Take over what another text has read since, where neither has evicted anything.

        Nothing is copied until this text reads or evicts, so the other must read nothing before
        that, unless this one then follows again.
        """
        self.ids = [*leader.ids]
        self.held = leader.held
        self._context_positions = leader._context_positions
        self._state = None
        self._followed = leader

    def go_back(self, count: int) -> None:
        """Forget the tokens of this turn from a place on, as if they had not been read."""
        check_count("the place", count, low=self._turn_start, high=len(self.ids))
        if count == len(self.ids):
            return
        self._bring()
        is_earlier = self.held < count
        positions = self._context_positions
        llama_cpp.llama_memory_seq_rm(self._memory, 0, int(positions[~is_earlier][0]), -1)
        self.held = self.held[is_earlier]
        self._context_positions = positions[is_earlier]
        self.ids = self.ids[:count]
        self._nats = self._nats[: count - self._turn_start]
        # The logits before that place are gone, so the next token's surprisal is as at a text's
        # start.
        self._logits = None

    def _bring(self) -> None:
        """Put this text into the context, and store the one that is there."""
        if self._followed is not None:  # copy what the followed text has read
            self._state = self._followed.fork()._state
            self._followed = None
        reference = _IN_CONTEXT.get(self.llama)
        current = reference() if reference else None
        if current is self:
            return
        if current is not None:  # and not deleted
            current._state = state_of(self.llama)
        if self._state is None:  # a text without tokens
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

        An answer has at most `most` tokens; `choose` takes each by the logits (V,), by default the
        likeliest. Closing the generator ends the answer. The message and the answer are one turn
        each; an answer for which the context has no room is several.
        """
        self.add(text, writer)
        self.turn_kind = None
        begin = len(self.ids)  # of the answer's mark
        roles = self._roles  # before the answer
        logits = self.read(self.tokens.marks["system"])[-1]
        first = len(self.ids)
        spoken_text = ""
        try:
            for _ in range(most):
                token = choose(logits)
                if llama_cpp.llama_vocab_is_eog(vocabulary_of(self.llama), token):
                    break
                logits = self.read([token])[-1]
                answer = self.text(range(first, len(self.ids)))
                if not answer.endswith("\ufffd"):  # a character may need more tokens
                    yield answer[len(spoken_text) :]
                    spoken_text = answer
        finally:
            # Some templates write an earlier answer differently, for example without thinking: then
            # it is read again as the model will see it. Not if a part of it was evicted already.
            in_history: tuple[int, ...] = ()
            if self._turn_start <= begin:
                in_history = self.tokens.in_history(self.ids[begin:], roles)
            if in_history:
                self.go_back(begin)
            self.read(in_history or self.tokens.closing)
            self.end_turn()
            self._roles = *roles, "assistant"

    def add(self, text: str, writer: Writer = "user", kind: Kind | None = None) -> None:
        """Read a message without an answer to it, such as a system prompt, and end the turn."""
        start = () if self.ids else self.tokens.first
        self.turn_kind = kind
        passage = Passage(writer, text, 0, kind=kind)
        self.read(
            [*start, *self.tokens.encode_passage(passage, earlier_roles=self._roles).ids]
        )
        self._roles += (role_of(passage),)
        self.end_turn()


def check_by_text(policy: Policy) -> None:
    """Raise a ValueError for a policy that llama.cpp cannot serve; it names those that it can."""
    check_no_future(policy)
    needs: list[str] = [name for name in policy.looks_at if name not in GIVEN]
    if needs:
        supported = [key for key, policy in POLICIES.items() if {*policy().looks_at} <= GIVEN]
        raise ValueError(
            f"{policy.label} needs {needs[0]}, which llama.cpp does not give: choose one of "
            f"{', '.join(supported)}"
        )


def _vectors(policy: Policy, ids: Sequence[int]) -> dict[str, Any]:
    """Return vectors of tokens (n, ·) for the simulation, which llama.cpp does not expose."""
    embeddings = nothing = np.zeros((len(ids), 1), np.float32)
    # A policy that compares tokens gets a random vector for each id, the same every time: equal
    # tokens have a cosine of 1, and others are far apart.
    if "similarity" in policy.looks_at:
        of_token = dict.fromkeys(ids, nothing)
        for token in of_token:
            random = np.random.default_rng(token)
            of_token[token] = random.standard_normal(_IDENTITY_WIDTH, np.float32)
        embeddings = np.stack([of_token[token] for token in ids])
    return {"queries": nothing, "keys": nothing, "values": nothing, "embeddings": embeddings}


def _runs(positions: Ints) -> Iterator[tuple[int, int]]:
    """Yield the first and the end of each run of consecutive positions."""
    for run in np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1):
        if len(run):
            yield int(run[0]), int(run[-1]) + 1


def _surprisal(
    previous_logits: Floats | None, logits: Floats, ids: Sequence[int]
) -> list[float]:
    """Return −log p of tokens, by the logits before the first (V,) and after each (n, V)."""
    # Nothing predicts the first token of a text: all tokens are equally likely.
    if previous_logits is None:
        previous_logits = np.zeros(logits.shape[1], np.float32)
    predictions = np.concatenate([previous_logits[None], logits[:-1]])
    (nats,), _, _ = losses(predictions[None], np.asarray(ids))
    return [*map(float, nats)]
