"""Reading again: a cache of any engine whose text is shortened after a turn and read anew.

No entry is kept. The policy decides by text alone; what stays, with a placeholder for each cleared
result, is read into a new cache of the engine, at positions from 0, as in a fresh run. It is what
most agents do when they drop old messages or clear results of tools.
"""

from __future__ import annotations

import copy
from typing import Any, NoReturn, Self

import numpy as np

from fdkvc.core.attention import Ints
from fdkvc.models.numpy.features import with_new
from fdkvc.models.numpy.head_eviction import HeadEviction, Heads
from fdkvc.models.numpy.language_model import AnyModel
from fdkvc.models.numpy.text_cache import ModelCache, Reader, read
from fdkvc.policies import Policy
from fdkvc.policies.reread import standing_placeholders


class RereadCache(ModelCache):
    """The cache of a text under a policy that `reads_again`."""

    whole = True

    def __init__(self, model: AnyModel, policy: Policy, budget: int) -> None:
        self.policy = policy
        self.tokens_reread = 0
        self._model = model
        self._engine = model.full()
        # One head: text is the same for all.
        self._eviction = HeadEviction(policy, budget, Heads(1, 1, 1, 1), "model")
        self._placeholder: tuple[int, ...] = ()
        if policy.clears_results:
            self._placeholder, _ = model.tokens.encode(policy.settings["placeholder"].default)
        self.whole = self._engine.whole  # until something leaves
        # 1. By token of the text of all turns that have ended, with what left it.
        self._text: tuple[int, ...] = ()
        self._features: dict[str, Any] = {}
        self._born: Ints = np.empty(0, np.intp)  # the turn
        # 2. By token of the shortened text, which the engine has read.
        self._places: list[int] = []  # its place in the text; −1 − p for the placeholder of p
        self._turn_start = 0  # the first token of this turn

    @property
    def engine(self) -> ModelCache:
        """The cache that has read the shortened text."""
        return self._engine

    @property
    def decoder(self) -> Reader:  # type: ignore[override]
        """The model that reads the text."""
        return self._engine.decoder

    @property
    def ids(self) -> list[int]:  # type: ignore[override]
        """The tokens of the shortened text."""
        return self._engine.ids

    def follow(self, other: Any) -> None:
        """Take over what another `whole` cache of the same text has read since."""
        engine: Any = self._engine
        engine.follow(other)

    def resize(self, budget: int) -> None:
        """Let at most `budget` tokens stay from the end of this turn on."""
        self._eviction = self._eviction.resized(budget)

    def end_turn(self) -> None:
        """End the turn: the policy decides, and the text is read again if something leaves."""
        new = self.ids[self._turn_start :]
        if new:
            self._evict(new)
        self._engine.end_turn()
        self._turn_start = len(self.ids)

    def _evict(self, new_ids: list[int]) -> None:
        features = self._model.tokens.features(new_ids, self.policy.looks_at, self.turn_kind)
        self._features = with_new(self._features, features)
        turn = self._born.max(initial=-1) + 1
        self._born = np.append(self._born, np.full(len(new_ids), turn))
        first = len(self._text)
        self._text = (*self._text, *new_ids)
        self._eviction, _ = self._eviction.after(len(new_ids), [_no_vectors], self._features)
        # 1. What was there, and what stays.
        previous_places = [*self._places, *range(first, len(self._text))]
        self._places = self._staying()
        if self._places == previous_places:
            return
        # 2. Count what must be read again: all from the first change on. An engine could keep the
        #    entries before that, which would be computed the same.
        changed = 0
        for place, place_before in zip(self._places, previous_places, strict=False):
            if place != place_before:
                break
            changed += 1
        ids = list[int]()
        for number, place in enumerate(self._places):
            piece = (self._text[place],) if place >= 0 else self._placeholder
            ids += piece
            if number >= changed:
                self.tokens_reread += len(piece)
        # 3. Read it.
        self.whole = False
        self._engine = self._model.full()
        read([self._engine], ids, last=0)

    def _staying(self) -> list[int]:
        """Return the places of what stays, and −1 − p for a placeholder at the place p."""
        stays = np.isin(np.arange(len(self._text)), self._eviction.slots)
        # The tokenizer's prefix always stays, beside the budget: any text of the model has it.
        prefix = self._model.tokens.first
        stays[: len(prefix)] |= self._text[: len(prefix)] == prefix
        places: list[int] = np.flatnonzero(stays).tolist()
        if self._placeholder:
            replaced = standing_placeholders(stays, self._born, self._features["kinds"])
            places += [-1 - place for place in replaced]
        # A placeholder stands where its result was.
        return sorted(places, key=lambda place: place if place >= 0 else -1 - place)

    def fork(self, count: int | None = None) -> Self:
        """Return an independent copy, as of now or of an earlier point of this turn."""
        copied = copy.copy(self)
        copied._engine = self._engine.fork(count)
        return copied


def _no_vectors(name: str, part: str) -> NoReturn:
    raise ValueError(f"a policy that decides by text asked for {name}")
