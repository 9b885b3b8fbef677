"""Whitelist: turns, a speaker or words never leave, and take their places of the budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fdkvc.attention import SPEAKERS, Bools, Observation
from fdkvc.cache import Cache
from fdkvc.parameters import parameter, share
from fdkvc.policies.base import Available, Look, Step, within
from fdkvc.policies.wrapper import Wrapper, before_eviction

NOBODY = "nobody"

LISTED = Step(
    "Whitelist",
    r"\begin{gathered} t_i < n \;\text{ or }\; t_i = t_0 \;\text{ or }\; "
    r"\text{speaker}_i = p \;\text{ or }\; \text{word}_i \in M \;\Rightarrow\; i \in W \\ "
    r"\text{the oldest } \lfloor m B \rfloor \text{ of } W \;\Rightarrow\; \text{keep} "
    r"\end{gathered}",
    "the first n turns and turn t₀, the words of one speaker, and the words M that are marked",
    writes=("protected",),
    kind="protect",
)


@dataclass(frozen=True)
class Whitelist(Wrapper):
    """Never evict the dialog's first turns or another, one speaker's words, or marked words.

    After Chen et al. 2025, *The Pitfalls of KV Cache Compression*, who find that eviction drops
    instructions, and mend it by a whitelist. What is on it takes its places of the budget, at most
    a share of them, so that the dialog goes on; the older go first, as instructions come first.
    """

    key = "whitelist"
    label = "Whitelist"
    idea = (
        "The dialog's first turns or another, one speaker's words, or words that are marked never "
        "leave, up to a share of the budget; on the rest of it the policy inside decides."
    )
    source = "after Chen et al. 2025, The Pitfalls of KV Cache Compression"

    first: int = parameter(
        1, "First turns", "So many of the dialog's first turns never leave.", low=0, high=512
    )
    at_turn: int = parameter(
        -1,
        "One turn",
        "A turn that never leaves, counted from 0; -1 is none.",
        symbol="t_0",
        low=-1,
        high=511,
        nominal=True,
    )
    speaker: str = parameter(
        NOBODY,
        "Speaker",
        "Whose words never leave, in dialogs that people said; drawn ones have no speakers.",
        choices=(NOBODY, *SPEAKERS),
    )
    most: float = share(
        0.5, "Most", "Share of the budget that the whitelist takes at most.", symbol="m"
    )
    words: str = parameter(
        "",
        "Marked words",
        "Words that never leave, whoever says them, such as san+jose; drawn tokens say nothing.",
        symbol="M",
        pattern=r"(?=.{0,300}$)(\w+(\+\w+)*)?",
        form="words of letters and digits with + between them, of 300 characters at most",
        nominal=True,
    )

    @property
    def looks_at(self) -> tuple[Look, ...]:
        """Look at when it was said, by whom, and what."""
        also: tuple[Look, ...] = ("positions",)
        if self.speaker != NOBODY:
            also = (*also, "speakers")
        if self.words:
            also = (*also, "words")
        return tuple(dict.fromkeys((*self.policy.looks_at, *also)))

    @property
    def steps(self) -> tuple[Step, ...]:
        """Say that what is listed is protected."""
        return before_eviction(self.policy.steps, LISTED)

    def without_effect(self, available: Available) -> tuple[str, ...]:
        """List nobody's words where nobody is known to speak, and no words where none is known."""
        own = []
        if self.speaker != NOBODY and not available.speakers:
            own.append(
                f"Nobody is known to speak here, so that whitelist lists no word of the "
                f"{self.speaker}."
            )
        if self.words and not available.words:
            own.append("No token is known to be a word here, so that whitelist marks none.")
        return (*super().without_effect(available), *own)

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        """Protect what is listed, and what the policy inside protects beside it."""
        born = turn.born(cache.token)
        listed = cache.present & ((born < self.first) | (born == self.at_turn))
        if self.speaker != NOBODY:
            listed |= turn.spoken_by(cache.token, self.speaker)
        if self.words:
            listed |= turn.is_word(cache.token, self.words.split("+"))
        places = np.asarray(budget * self.most).astype(np.intp).reshape(-1, 1)
        listed &= np.cumsum(listed, axis=1) <= places
        return within(budget, lambda rest: listed | self.policy.protects(cache, turn, rest))
