"""Weighted recency: every token's worth fades, and a surprising word starts with more."""

from dataclasses import dataclass

from fdkvc.core.attention import Columns, Observation
from fdkvc.core.cache import Cache
from fdkvc.core.parameters import parameter, share
from fdkvc.policies.base import (
    EVICTION,
    RECENT_WINDOW,
    Score,
    Update,
    WindowedPolicy,
    changing,
    window_parameter,
)


@dataclass(frozen=True)
class WeightedRecency(WindowedPolicy):
    """Keep the newest, and the older entries whose recency has faded least.

    As in FD-KVC, recency fades by a constant factor per turn; here a token starts with a constant
    plus its surprisal, instead of being reinforced by similarity later. It needs neither attention
    nor vectors. The settings were tuned on training dialogs of the Schema-Guided Dialogue dataset;
    ``fdkvc/results.md`` has results on others.
    """

    key = "weighted-recency"
    label = "Weighted recency"
    idea = (
        "Every token's score decays from turn to turn, and that of a surprising word starts "
        "higher, so it stays longer. A quarter of the budget goes to the newest entries."
    )
    source = "this project; tuned on the Schema-Guided Dialogue dataset"
    looks_at = ("surprisal", "history", "positions")
    channels = ("worth",)
    steps = (
        changing(
            "Fading worth",
            "worth",
            r"u_i \leftarrow \delta\,u_i, \qquad \text{new: } u_j = c - \ln p_j",
            "p is the probability of the token when it arrived",
        ),
        RECENT_WINDOW,
        EVICTION,
    )

    window: float = window_parameter(0.25)
    decay: float = share(
        0.9,
        "Decay",
        "Share of its worth that an entry keeps from one turn to the next.",
        symbol=r"\delta",
        open_low=True,
    )
    base: float = parameter(
        24.0,
        "Base",
        "Initial score of a token with zero surprisal, in nats. The larger, the more age counts.",
        symbol="c",
        low=0,
        high=1000,
        by_row=True,
    )

    def update(self, cache: Cache, turn: Observation, score: Score) -> Update:
        # In a turn without tokens the loop drops the update, so nothing fades.
        return Update(cache.with_channels(worth=self.decay * cache["worth"]))

    def init_channels(self, turn: Observation) -> Columns:
        return {"worth": self.base + turn.surprisal(turn.new)}

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        return {"worth": cache["worth"]}
