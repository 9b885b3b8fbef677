"""Random replacement, reproducible by a seed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import Columns, Observation
from fdkvc.core.cache import EXACT, Cache
from fdkvc.core.parameters import parameter
from fdkvc.policies.base import EVICTION, Policy, Step

_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / φ, an odd number with well mixed bits
_SHIFT = np.uint64(29)
_MANTISSA = np.uint32(23)  # bits of a float32 behind its sign and exponent


@dataclass(frozen=True)
class Random(Policy):
    """Evict at random: the lower reference.

    Every turn each entry draws a new number, so that all are equally likely to be evicted
    (random replacement; Belady 1966, *A Study of Replacement Algorithms*). The number is a
    multiplicative hash (Knuth, *The Art of Computer Programming*, vol. 3, section 6.4) of the
    seed, the turn's last position, the entry's position, and sign and exponent of its key's
    numbers. So a dialog draws the same numbers in any batch, in a stream, and on another
    processor: rounding hardly ever moves a number past a power of two.
    """

    key = "random"
    label = "Random"
    idea = (
        "The lower reference: every turn each entry draws a random number, and the lowest are "
        "evicted."
    )
    source = "Belady 1966, A Study of Replacement Algorithms for a Virtual-Storage Computer"
    looks_at = ("chance",)
    ties = EXACT
    steps = (
        Step("Chance", r"s_i \sim U(0, 1)", "drawn anew in every turn", writes=("chance",)),
        EVICTION,
    )

    chance_seed: int = parameter(
        0, "Random seed", "Seed of the random numbers.", low=0, high=2**31, nominal=True
    )

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        """Return a number from 0 up to, not including, 1."""
        now = turn.position(turn.new).max(axis=1, initial=-1, keepdims=True) + 1
        bits_of_entries = _mixed(np.full(cache.token.shape, self.chance_seed, np.uint64), now)
        bits_of_entries = _mixed(bits_of_entries, turn.position(cache.token) + 1)
        # Sign and exponent of each coordinate of the key (B, C).
        for bits in np.moveaxis(turn.keys(cache.token).view(np.uint32), -1, 0):
            bits_of_entries = _mixed(bits_of_entries, bits >> _MANTISSA)
        # The upper 24 of 64 bits, as many as a float32 holds exactly.
        numbers = (bits_of_entries >> np.uint64(40)).astype(np.float32)
        return {"chance": numbers / np.float32(2**24)}


def _mixed(state: NDArray[np.uint64], word: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Stir a word into the state; integers of 64 bits wrap around."""
    state = (state ^ word.astype(np.uint64)) * _FACTOR
    return state ^ (state >> _SHIFT)
