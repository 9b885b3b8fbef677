"""Context shift: what llama.cpp does when its context is full."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fdkvc.core.attention import Bools, Ints, Observation
from fdkvc.core.cache import Cache
from fdkvc.core.parameters import parameter
from fdkvc.policies.base import EVICTION, Steps, first_tokens, protecting
from fdkvc.policies.fifo import POSITION, Fifo


@dataclass(frozen=True)
class Shift(Fifo):
    """Drop the older half at once when the next token has no room, except for the first tokens.

    As llama.cpp's *context shift* does, with its ``n_keep``. llama.cpp also moves what stays to the
    first positions, which in this project is an option of the engine.
    """

    key = "shift"
    label = "Context shift"
    idea = (
        "When the cache is full, the older half of what follows the first tokens is evicted at "
        "once, as in llama.cpp."
    )
    source = "llama.cpp, tools/server, context shift"
    steps: ClassVar[Steps] = (
        POSITION,
        protecting(r"i < n \;\Rightarrow\; \text{keep}", "the dialog's first tokens"),
        replace(
            EVICTION,
            equation=r"\begin{gathered} D = \lfloor (B - n) / 2 \rfloor, \qquad "
            r"B_t = B - D + 1 + (N_t - B - 1) \bmod D \;\text{ if } N_t > B \\ "
            r"\text{keep the newest, } B_t \text{ in all} \end{gathered}",
            source="N is the number of tokens so far; D leave whenever there is no room",
        ),
    )

    keep: int = parameter(
        0, "First tokens", "First tokens that stay, llama.cpp's n_keep.", low=0, high=4096
    )

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        return first_tokens(cache, turn, min(self.keep, budget))

    def budgets(self, budget: int, turn: Observation) -> int | Ints:
        position = np.where(turn.new >= 0, turn.position(turn.new), -1)
        # Of the newest token; without one, −1, so that nothing is dropped.
        excess = position.max(axis=1, keepdims=True, initial=-1) - budget
        dropped = max((budget - self.keep) // 2, 1)
        # The first token over the budget leaves B − D + 1 entries; D − 1 later, all B are taken.
        return np.where(excess < 0, budget, budget - dropped + 1 + excess % dropped)
