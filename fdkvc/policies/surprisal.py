"""Surprisal: surprising tokens that are not repeated later stay beside the newest."""

from dataclasses import dataclass, replace

import numpy as np

from fdkvc.core.attention import Columns, Observation, divide_by_max
from fdkvc.core.cache import UNIT_SCALE, Cache
from fdkvc.core.parameters import share
from fdkvc.policies.base import (
    EVICTION,
    RECENT_WINDOW,
    Score,
    Update,
    WindowedPolicy,
    changing,
)


@dataclass(frozen=True)
class Surprisal(WindowedPolicy):
    """Keep the newest, and the tokens that were surprising unless a newer entry repeats them.

    Neither attention nor similarity to the query decides. The settings were tuned on training
    dialogs of the Schema-Guided Dialogue dataset; ``fdkvc/results.md`` has results on others, and
    with each part left out.
    """

    key = "surprisal"
    label = "Surprisal"
    idea = (
        "Half of the budget goes to the newest entries, the rest to tokens that were surprising "
        "when they arrived. Surprisal decays turn by turn, and entries that a newer one "
        "repeats are evicted first."
    )
    source = "this project; tuned on the Schema-Guided Dialogue dataset"
    looks_at = ("surprisal", "similarity", "history", "positions")
    channels = ("surprisal", "redundancy")
    ties = UNIT_SCALE
    steps = (
        changing(
            "Fading surprisal",
            "surprisal",
            r"\sigma_i \leftarrow \delta\,\sigma_i, \qquad \text{new: } \sigma_j = -\ln p_j",
            "p is the probability of the token when it arrived",
        ),
        changing(
            "Redundancy",
            "redundancy",
            r"d_i \leftarrow \max\!\Big(d_i,\; \max_{j \text{ new},\, j > i} \cos(e_i, e_j)\Big)",
            "a new entry starts at 0; later tokens of its own turn also count",
        ),
        RECENT_WINDOW,
        replace(
            EVICTION,
            equation=r"\begin{gathered} s_i = \sigma_i / \max_j \sigma_j - 2\,[d_i > \eta] \\ "
            r"\text{keep the top } B \text{ by } s_i,\text{ ties to the older} \end{gathered}",
            source="repeated entries go first",
        ),
    )

    decay: float = share(
        0.8,
        "Surprisal decay",
        "Share of its surprisal that an entry keeps from one turn to the next.",
        symbol=r"\delta",
        open_low=True,
    )
    redundancy: float = share(
        0.75,
        "Redundancy threshold",
        "Entries whose embedding has a higher cosine than this with that of a newer entry are "
        "evicted first; 1 turns this off.",
        symbol=r"\eta",
    )

    def update(self, cache: Cache, turn: Observation, score: Score) -> Update:
        return Update(cache.with_channels(surprisal=self.decay * cache["surprisal"]))

    def init_channels(self, turn: Observation) -> Columns:
        """Start with the token's surprisal, repeated by nothing."""
        return {**super().init_channels(turn), "surprisal": turn.surprisal(turn.new)}

    def after_insert(self, cache: Cache, turn: Observation) -> Cache:
        """Store the largest cosine of each entry with a newer one.

        This costs budget × new cosines a turn. A repeated entry stays marked after the entry that
        repeats it is evicted.
        """
        largest = np.minimum(turn.repetition(cache.token), 1)  # rounding may exceed 1
        redundancy = np.maximum(cache["redundancy"], largest)
        return cache.with_channels(redundancy=np.where(cache.present, redundancy, 0))

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        """Return surprisal as a share of the largest, and −2 for repeated entries."""
        # Shares reach from 0 to 1, so −2 puts every repeated entry below all others.
        repeated = cache["redundancy"] > self.redundancy
        return {
            "surprisal": divide_by_max(cache["surprisal"]),
            "redundancy": np.where(repeated, np.float32(-2), np.float32(0)),
        }
