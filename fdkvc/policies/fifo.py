"""First in, first out: the newest entries stay."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fdkvc.core.attention import Columns, Observation
from fdkvc.core.cache import EXACT, Cache
from fdkvc.policies.base import EVICTION, Looks, Policy, Step, Steps

POSITION = Step(
    "Position", r"s_i = i", "the token's place in the dialog", writes=("position",)
)


@dataclass(frozen=True)
class Fifo(Policy):
    """Keep the newest entries ("Standard (FIFO)", the paper's Section 4.2).

    The score of an entry is its position in the dialog, in double precision: single precision has
    no different numbers for neighbours beyond position 2²⁴, which a stream may reach.
    """

    key = "fifo"
    label = "FIFO"
    idea = "The newest entries stay; the oldest are evicted first."
    source = "Ganguly, Fractional Decay KV-Cache, Section 4.2"
    looks_at: ClassVar[Looks] = ("positions",)
    ties = EXACT
    steps: ClassVar[Steps] = (POSITION, EVICTION)

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        return {"position": turn.position(cache.token).astype(np.float64)}
