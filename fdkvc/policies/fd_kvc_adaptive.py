"""FD-KVC with adaptive channel weights, which the paper names as future work."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fdkvc.core.attention import (
    EPSILON,
    Columns,
    Floats,
    Observation,
    divide_by_max,
    entry_sum,
)
from fdkvc.core.cache import Cache
from fdkvc.core.parameters import parameter
from fdkvc.policies.base import Score, Step, Update
from fdkvc.policies.fd_kvc import FDKVC


@dataclass(frozen=True)
class FDKVCAdaptive(FDKVC):
    """FD-KVC whose channel weights follow the query.

    The cumulative weight rises while the query stays with what is recent and falls while it moves
    away: w_c,t = w_c + κ·u_t, clipped to [0, 1], where u_t is the mean cosine of the query with the
    entries, weighted by the recency that earlier turns left them, minus θ.
    """

    key = "fd-kvc-adaptive"
    label = "FD-KVC adaptive"
    idea = (
        "FD-KVC whose weights follow the query: cumulative attention counts more while the query "
        "stays with recent entries, and recency counts more while it moves away."
    )
    source = "this project, after the future work of Ganguly, Fractional Decay KV-Cache"
    steps = (
        *FDKVC.steps[:3],
        Step(
            "Adaptive channel weights",
            r"\begin{gathered} u_t = \frac{\sum_i \rho_i \left(\cos(e_i, \bar e_q) - \theta\right)}"
            r"{\sum_i \rho_i + \epsilon} \\ w_{c,t} = \min(\max(w_c + \kappa\,u_t,\, 0),\, 1) \\ "
            r"w_{\rho,t} = 1 - w_{c,t} \end{gathered}",
            "this project; ρ before this turn",
            reads=("recency before",),
            writes=("continuity", "cumulative_weight"),
            kind="rate",
        ),
        FDKVC.steps[3],
        replace(
            FDKVC.steps[4],
            equation=FDKVC.steps[4]
            .equation.replace("w_c", "w_{c,t}")
            .replace(r"w_\rho", r"w_{\rho,t}"),
        ),
        FDKVC.steps[5],
    )
    quantity_names: ClassVar[Mapping[str, str]] = {
        "continuity": "continuity of the query",
        "cumulative_weight": "weight of cumulative attention",
    }

    kappa: float = parameter(
        0.5,
        "Weight shift",
        "How far the cumulative weight rises while the query stays near recent entries, and falls "
        "while it moves away; 0 keeps it fixed.",
        symbol=r"\kappa",
        low=0,
        high=10,
        by_row=True,
    )
    theta: float = parameter(
        0.5,
        "Neutral continuity",
        "Similarity of the query to recent entries at which the weights do not change.",
        symbol=r"\theta",
        low=-1,
        high=1,
        by_row=True,
    )

    def initial_state(self) -> Mapping[str, float]:
        """Start where the weights are FD-KVC's."""
        return {**super().initial_state(), "continuity": 0.0, "cumulative_weight": self.w_c}

    def update(self, cache: Cache, turn: Observation, score: Score) -> Update:
        """Shift the weights, then take FD-KVC's steps."""
        # First, since FD-KVC's learning rate and threshold use the score of this turn's weights.
        recent = cache["recency"]
        closeness = entry_sum(recent * (turn.similarity(cache.token) - self.theta))
        u = closeness / (entry_sum(recent) + EPSILON)
        w_c: Floats = np.clip(self.w_c + self.kappa * u, 0, 1)
        return super().update(
            cache.with_state(continuity=u, cumulative_weight=w_c), turn, score
        )

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        w_c = cache.state["cumulative_weight"][:, None]
        return {
            "cumulative": w_c * divide_by_max(cache["cumulative"]),
            "recency": (1 - w_c) * cache["recency"],
        }
