"""FD-KVC: cumulative attention and decaying, reinforced recency, weighted into one score."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fdkvc.core.attention import (
    Columns,
    Floats,
    Observation,
    divide_by_max,
    entry_sum,
    min_max,
    normalize,
)
from fdkvc.core.cache import UNIT_SCALE, Cache
from fdkvc.core.parameters import parameter, share
from fdkvc.policies.base import Policy, Score, Step, Steps, Update


@dataclass(frozen=True)
class FDKVC(Policy):
    """Fractional Decay KV-Cache, Algorithm 1 of Ganguly, *Fractional Decay KV-Cache*.

    Equation numbers are the paper's. Where Algorithm 1 leaves a choice open, the reading whose
    results match the paper's tables is taken: steps 1 to 4 act on the entries that were cached
    before the turn; step 3 uses the learning rate that the previous turn left; a new entry starts
    with c = 1 and ρ = max(cos(e, ē), 0); ρ enters the score unnormalised.
    """

    key = "fd-kvc"
    label = "FD-KVC"
    idea = (
        "Each entry has a cumulative attention score and a recency score. Every turn keeps the "
        "share γ of its recency, so a larger γ forgets more slowly, and similarity to the current "
        "query adds to it. Their weighted sum decides."
    )
    source = "Ganguly, Fractional Decay KV-Cache, Algorithm 1"
    looks_at = ("attention", "similarity", "history")
    queries = "mean"
    channels = ("cumulative", "recency")
    ties = UNIT_SCALE
    steps: ClassVar[Steps] = (
        Step(
            "Cumulative attention",
            r"\begin{gathered} c_i \leftarrow c_i + a_i \\ a_i = \operatorname{softmax}"
            r"\!\left(\bar q_t^\top k_i / \sqrt d\right) \end{gathered}",
            "Eq. 1",
            reads=("cumulative", "attention"),
            writes=("cumulative",),
            kind="change",
        ),
        Step(
            "Recency decay",
            r"\rho_i \leftarrow \gamma\,\rho_i",
            "Eq. 2",
            reads=("recency before",),
            writes=("recency decayed",),
            kind="change",
        ),
        Step(
            "Relevance reinforcement",
            r"\begin{gathered} \rho_i \leftarrow \rho_i + \alpha_t\, r_i,\quad "
            r"s_i = \cos(e_i, \bar e_q) \\ "
            r"r_i = \frac{s_i - \min_j s_j}{\max_j s_j - \min_j s_j + \epsilon} \end{gathered}",
            "Eqs. 3 and 4",
            reads=("recency decayed", "relevance", "learning rate before"),
            writes=("recency",),
            kind="change",
        ),
        Step(
            "Adaptive learning rate",
            r"\begin{gathered} \mathcal L_t = \tfrac{1}{|\mathcal C|}\sum_i \hat h_i (1 - \hat h_i)"
            r" \\ \hat h_i = h_i / \max_j h_j,\quad "
            r"\alpha_t = \frac{\alpha_0}{1 + \mu \mathcal L_t} \end{gathered}",
            "Eqs. 5 to 7",
            reads=("hybrid score",),
            writes=("ownership_loss", "learning_rate"),
            kind="rate",
        ),
        Step(
            "Eviction and insertion",
            r"\begin{gathered} h_i = w_c\,\hat c_i + w_\rho\,\rho_i,\; \hat c_i = c_i / \max_j c_j "
            r"\\ \text{new: } c_j = 1,\; \rho_j = \max(\cos(e_j, \bar e_q),\, 0) \\ "
            r"\text{evict } h_i < \tau \max_j h_j,\quad \text{keep the top } B \end{gathered}",
            "Eqs. 5 and 8",
            reads=("hybrid score", "threshold"),
            writes=("score",),
            kind="evict",
        ),
        Step(
            "Modulated attention",
            r"\begin{gathered} \hat w_i = \frac{w_i\,(0.5 + 0.5\,\hat\rho_i)^\beta}"
            r"{\sum_j w_j\,(0.5 + 0.5\,\hat\rho_j)^\beta} \\ "
            r"\hat\rho_i = \rho_i / \max_j \rho_j \end{gathered}",
            "Eq. 9",
            reads=("attention_before",),
            writes=("attention_after",),
            kind="attention",
        ),
    )

    gamma: float = parameter(
        0.88,
        "Recency decay",
        "Share of its recency score that an entry keeps from one turn to the next: a larger γ "
        "forgets more slowly (Eq. 2).",
        symbol=r"\gamma",
        low=0,
        high=1,
        open_low=True,
        open_high=True,
        paper=(0.70, 0.95),
        by_row=True,
    )
    alpha_0: float = parameter(
        0.30,
        "Initial learning rate",
        "How strongly similarity to the query raises recency, before adaptation (Eqs. 3 and 7).",
        symbol=r"\alpha_0",
        low=0,
        high=2,
        paper=(0.10, 0.50),
        by_row=True,
    )
    mu: float = parameter(
        0.40,
        "Convergence factor",
        "How much the ownership loss lowers the learning rate (Eq. 7).",
        symbol=r"\mu",
        low=0,
        high=10,
        paper=(0.10, 1.00),
        by_row=True,
    )
    tau: float = share(
        0.02,
        "Eviction threshold",
        "Entries that score below this share of the best are evicted at once (Eq. 8).",
        symbol=r"\tau",
        paper=(0.01, 0.10),
    )
    beta: float = parameter(
        0.25,
        "Modulation exponent",
        "How strongly recency bends the attention weights (Eq. 9); 0 leaves them as they are.",
        symbol=r"\beta",
        low=0,
        high=4,
        paper=(0.10, 1.00),
        by_row=True,
    )
    w_c: float = share(
        0.45,
        "Cumulative weight",
        "Weight of cumulative attention in the score (Eq. 5); recency has the rest, 1 − w_c.",
        symbol="w_c",
        paper=(0.10, 0.90),
    )

    @property
    def w_rho(self) -> float:
        """w_ρ = 1 − w_c, the weight of recency (Eq. 5)."""
        return 1 - self.w_c

    def initial_state(self) -> Mapping[str, float]:
        return {"learning_rate": self.alpha_0, "ownership_loss": 0.0}

    def update(self, cache: Cache, turn: Observation, score: Score) -> Update:
        """Take steps 1 to 4 of Algorithm 1, and the threshold of step 5, on the old entries."""
        # 1. to 3. The rate is the one that the previous turn left: step 4 sets the next one's.
        alpha = cache.state["learning_rate"]
        a = turn.attention(cache.token)
        c = cache["cumulative"] + a  # Eq. 1
        decayed = self.gamma * cache["recency"]  # Eq. 2
        s = turn.similarity(cache.token)
        # An empty slot has the similarity 0, which must not become the minimum.
        r = min_max(s, None if cache.full else cache.present)  # Eq. 4
        rho = decayed + alpha[:, None] * r  # Eq. 3
        updated = cache.with_channels(cumulative=c, recency=rho)

        # 4. An empty slot has h = 0 and adds nothing to the loss.
        h = score(updated)  # Eq. 5
        h_hat = divide_by_max(h)
        count = np.maximum(cache.count, 1).astype(np.float32)
        loss = entry_sum(h_hat * (1 - h_hat)) / count  # Eq. 6
        adapted = self.alpha_0 / (1 + self.mu * loss)  # Eq. 7
        # 5. What ties with the threshold stays, as what ties with a cutoff may.
        threshold = np.float32(self.tau) * np.where(cache.present, h, 0).max(axis=1)
        row_threshold = threshold[:, None]

        return Update(
            updated.with_state(learning_rate=adapted, ownership_loss=loss),
            stale=cache.present
            & (h < row_threshold - self.ties.tolerance(row_threshold)),  # Eq. 8
            recorded={
                "attention": a,
                "recency before": cache["recency"],
                "recency decayed": decayed,
                "relevance": r,
                "learning rate before": alpha,
                "hybrid score": h,
                "threshold": threshold,
            },
        )

    def init_channels(self, turn: Observation) -> Columns:
        """Start a new entry with c = 1 and ρ = max(cos(e, ē), 0) (Algorithm 1, step 5)."""
        # Below 0, ρ could make the base of Eq. 9 negative, and its power not a number.
        c = np.ones_like(turn.new, np.float32)
        return {"cumulative": c, "recency": np.maximum(turn.similarity(turn.new), 0)}

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        """Return the two parts of the hybrid score h = w_c·ĉ + w_ρ·ρ (Eq. 5)."""
        return {
            "cumulative": self.w_c * divide_by_max(cache["cumulative"]),
            "recency": self.w_rho * cache["recency"],
        }

    def modulate(self, weights: Floats, cache: Cache) -> Floats:
        """Bend attention towards recent relevance (Eq. 9)."""
        rho_hat = divide_by_max(cache["recency"])
        # Without recency an entry has 0.5^β of its weight, the most recent one all of it.
        return normalize(weights * (0.5 + 0.5 * rho_hat) ** self.beta)
