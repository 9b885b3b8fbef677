"""FD-KVC: cumulative attention and decaying, reinforced recency, weighed into one score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from fdkvc.attention import (
    EPSILON,
    Bools,
    Floats,
    Ints,
    Observation,
    divide_by_max,
    entry_sum,
    min_max,
    normalize,
)
from fdkvc.cache import OF_ONE, Cache
from fdkvc.parameters import parameter, share
from fdkvc.policies.base import (
    RECENT_WINDOW,
    Look,
    Policy,
    Step,
    Update,
    Worth,
    below_threshold,
    share_of_best,
    total,
    window,
    window_parameter,
)
from fdkvc.policies.fd_kvc_steps import (
    ADAPTIVE_RATE,
    AVERAGING_RATE,
    BY_ATTENTION,
    BY_SIMILARITY,
    CUMULATIVE,
    DECAY,
    MODULATION,
    REDUNDANCY,
    SALIENCE,
    SHIFTED_WEIGHTS,
    eviction,
)
from fdkvc.policies.recall import (
    MOVES,
    RECALL,
    page_match_parameter,
    returned_to,
    tier_parameter,
)


@dataclass(frozen=True)
class FDKVC(Policy):
    """Fractional Decay KV-Cache, Algorithm 1 of Ganguly, *Fractional Decay KV-Cache*.

    Equation numbers are the paper's. Where Algorithm 1 leaves a choice open, the reading whose
    results match the paper's tables is taken: steps 1 to 4 act on the entries that were cached
    before the turn; step 3 uses the learning rate that the previous turn left; a new entry starts
    with c = 1 and ρ = max(cos(e, ē), 0); ρ enters the score unnormalised.

    Options that are not the paper's are off by default: a protected recent window; recency as an
    average, so that new and old entries stand on one scale; relevance by attention; channel
    weights that shift as the query moves; salience, the surprisal with which an entry came;
    redundancy, by which an entry that a newer one repeats goes first; and a second tier, as
    `Recall` has it. An instance's `steps` are those that its options take.
    """

    key = "fd-kvc"
    label = "FD-KVC"
    idea = (
        "Each entry carries the attention it has gathered and a recency score that decays every "
        "turn and is reinforced by similarity to the current query; their weighted sum decides."
    )
    source = "Ganguly, Fractional Decay KV-Cache, Algorithm 1"
    ties = OF_ONE
    quantity_names = MappingProxyType(
        {
            "cumulative": "cumulative attention",
            "continuity": "continuity of the query",
            "cumulative_weight": "weight of cumulative attention",
            **MOVES,
        }
    )

    gamma: float = parameter(
        0.88,
        "Recency decay",
        "Share of its recency score that an entry keeps from one turn to the next (Eq. 2).",
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
        rule="threshold",
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
    window: float = window_parameter(0.0)
    reinforcement: str = parameter(
        "added",
        "Reinforcement",
        "How relevance enters recency: added at the learning rate (Eq. 3), or averaged at the rate "
        "1 − γ, which keeps recency from 0 to 1; α₀ and μ then do nothing.",
        choices=("added", "averaged"),
    )
    relevance: str = parameter(
        "similarity",
        "Relevance",
        "What relevance is measured by: cosine similarity to the query (Eq. 4), or attention.",
        choices=("similarity", "attention"),
    )
    kappa: float = parameter(
        0.0,
        "Weight shift",
        "How far the cumulative weight rises while the query stays with what is recent, and falls "
        "while it moves away; 0 leaves it fixed.",
        symbol=r"\kappa",
        low=0,
        high=10,
        by_row=True,
    )
    theta: float = parameter(
        0.5,
        "Neutral continuity",
        "How similar the query is to what is recent where the weights stay as they are.",
        symbol=r"\theta",
        low=-1,
        high=1,
        by_row=True,
    )
    salience: float = share(
        0.0,
        "Salience weight",
        "Share of the score that surprisal has: how improbable a token was when it came, as it "
        "fades; the paper's score has the rest. 0 asks for no surprisal.",
        symbol=r"w_\sigma",
    )
    salience_decay: float = parameter(
        0.88,
        "Salience decay",
        "Share of its salience that an entry keeps from one turn to the next.",
        symbol=r"\delta",
        low=0,
        high=1,
        open_low=True,
        by_row=True,
    )
    redundancy: float = share(
        0.0,
        "Redundancy threshold",
        "An entry goes first whose embedding has a larger cosine than this with that of a newer "
        "one, so that of what is said again the last stays; 0 asks for none of this.",
        symbol=r"\eta",
    )
    recall: float = tier_parameter(0.0)
    page_match: float = page_match_parameter()

    @property
    def channels(self) -> tuple[str, ...]:
        """The paper's two, and those of the options that are on."""
        return (
            *("cumulative", "recency"),
            *["salience"] * bool(self.salience),
            *["redundancy"] * bool(self.redundancy),
        )

    @property
    def steps(self) -> tuple[Step, ...]:
        """Algorithm 1, with what the options that are on put in its place."""
        return tuple(self._own_steps())

    @property
    def looks_at(self) -> tuple[Look, ...]:
        """What the options that are on look at."""
        return tuple(self._own_looks())

    def _own_steps(self) -> Iterator[Step]:
        if self.recall:
            yield RECALL
        yield from (CUMULATIVE, DECAY)
        yield BY_SIMILARITY if self.relevance == "similarity" else BY_ATTENTION
        if self.kappa:
            yield SHIFTED_WEIGHTS
        if self.salience:
            yield SALIENCE
        yield ADAPTIVE_RATE if self.reinforcement == "added" else AVERAGING_RATE
        if self.redundancy:
            yield REDUNDANCY
        if self.window:
            yield RECENT_WINDOW
        by_attention = self.relevance == "attention"
        yield eviction(bool(self.kappa), by_attention, bool(self.salience), bool(self.redundancy))
        yield MODULATION

    def _own_looks(self) -> Iterator[Look]:
        yield "attention"
        if self.relevance == "similarity" or self.kappa or self.redundancy:
            yield "similarity"
        if self.salience:
            yield "surprisal"
        yield "history"
        if self.window or self.recall or self.redundancy:
            yield "positions"
        if self.recall:
            yield "keys"

    @property
    def w_rho(self) -> float:
        """w_ρ = 1 − w_c, the weight of recency (Eq. 5)."""
        return 1 - self.w_c

    def initial_state(self) -> Mapping[str, float]:
        """Start the learning rate at α₀, and shifted weights where they are neutral."""
        rate = self.alpha_0 if self.reinforcement == "added" else 1 - self.gamma
        state = {"learning_rate": rate, "ownership_loss": 0.0}
        if self.kappa:
            state |= {"continuity": 0.0, "cumulative_weight": self.w_c}
        if self.recall:
            state |= dict.fromkeys(MOVES, 0.0)
        return state

    def tier_places(self, budget: int, tokens: int) -> int:
        """Return the places of the second tier."""
        return int(budget * self.recall)

    def recalls(self, cache: Cache, tier: Ints, turn: Observation) -> Bools:
        """Bring back the pages that the query returns to, where there is a second tier."""
        return returned_to(cache, tier, turn, self.page_match)

    def update(self, cache: Cache, turn: Observation, worth: Worth) -> Update:
        """Take steps 1 to 4 of Algorithm 1, and the threshold of step 5, on the old entries."""
        alpha = cache.state["learning_rate"]
        if self.reinforcement == "averaged":
            alpha = np.full_like(alpha, 1 - self.gamma)

        a = turn.attention(cache.token)
        c = cache["cumulative"] + a  # Eq. 1
        decayed = self.gamma * cache["recency"]  # Eq. 2
        s = turn.similarity(cache.token) if self.relevance == "similarity" else a
        r = min_max(s, None if cache.full else cache.present)  # Eq. 4
        rho = decayed + alpha[:, None] * r  # Eq. 3
        updated = cache.with_channels(cumulative=c, recency=rho)
        if self.salience:
            fading = self.salience_decay * cache["salience"]
            updated = updated.with_channels(salience=fading)
        if self.kappa:
            updated = updated.with_state(**self._shifted_weights(cache, turn))

        alone = {"redundancy": np.zeros_like(c)} if self.redundancy else {}
        judged = updated.with_channels(**alone)  # as if nothing were said again
        h = worth(judged)  # Eq. 5
        h_hat = divide_by_max(h)
        count = np.maximum(cache.count, 1).astype(np.float32)
        loss = entry_sum(h_hat * (1 - h_hat)) / count  # Eq. 6
        adapted = self.alpha_0 / (1 + self.mu * loss)  # Eq. 7
        threshold = share_of_best(h, cache, self.tau)

        return Update(
            updated.with_state(
                learning_rate=adapted if self.reinforcement == "added" else alpha,
                ownership_loss=loss,
            ),
            stale=below_threshold(h, cache, threshold, self.ties),  # Eq. 8
            recorded={
                "attention": a,
                "recency before": cache["recency"],
                "recency decayed": decayed,
                "relevance": r,
                "learning rate before": alpha,
                "hybrid score": h,
                "threshold": threshold,
            },
            judged=judged,
        )

    def _shifted_weights(self, cache: Cache, turn: Observation) -> Mapping[str, Floats]:
        """Return how near the query is to what is recent, and the cumulative weight that follows.

        An entry is recent by the ρ that the turns before have left it, so the mean is over what
        recent queries were about; less θ, it is positive while the query stays.
        """
        recent = cache["recency"]
        near = entry_sum(recent * (turn.similarity(cache.token) - self.theta))
        u = near / (entry_sum(recent) + EPSILON)
        return {"continuity": u, "cumulative_weight": np.clip(self.w_c + self.kappa * u, 0, 1)}

    def birth(self, turn: Observation) -> Mapping[str, Floats]:
        """Start a new entry with c = 1 and ρ = max(cos(e, ē), 0) (Algorithm 1, step 5).

        Where relevance is by attention, ρ is its share of the most attended of the new.
        """
        c = np.ones(turn.new.shape, np.float32)
        if self.relevance == "similarity" or not c.size:
            rho = np.maximum(turn.similarity(turn.new), 0)
        else:
            rho = divide_by_max(turn.attention(turn.new))
        start = {"cumulative": c, "recency": rho}
        if self.salience:
            start["salience"] = turn.surprisal(turn.new)
        if self.redundancy:
            start["redundancy"] = np.zeros_like(c)
        return start

    def absorb(self, cache: Cache, turn: Observation) -> Cache:
        """Note the largest cosine of each entry with a newer one, where redundancy counts.

        What the turn brings is compared with all that stands, budget × new cosines a turn; what
        repeated an entry and left the cache without it is not taken back.
        """
        if not self.redundancy:
            return cache
        newer = turn.position(turn.new)[:, None] > turn.position(cache.token)[:, :, None]
        cosines = np.where(newer, turn.likeness(cache.token, turn.new), 0)
        most = np.maximum(cache["redundancy"], cosines.max(axis=2, initial=0))
        return cache.with_channels(redundancy=np.where(cache.present, most, 0))

    def terms(self, cache: Cache, turn: Observation) -> Mapping[str, Floats]:
        """Return the two parts of the hybrid score h = w_c·ĉ + w_ρ·ρ (Eq. 5), and the options'."""
        w_c: float | Floats = self.w_c
        if self.kappa:
            w_c = cache.state["cumulative_weight"][:, None]
        terms = {
            "cumulative": w_c * divide_by_max(cache["cumulative"]),
            "recency": (1 - w_c) * cache["recency"],
        }
        if self.salience:
            terms = {name: (1 - self.salience) * term for name, term in terms.items()}
            terms["salience"] = self.salience * divide_by_max(cache["salience"])
        if self.redundancy:
            below_all = 1 + total(terms).max(axis=1, keepdims=True)
            terms["redundancy"] = np.where(cache["redundancy"] > self.redundancy, -below_all, 0)
        return terms

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        """Protect the newest entries, where a window is asked for."""
        if not self.window:
            return super().protects(cache, turn, budget)
        return window(cache, budget, self.window)

    def modulate(self, weights: Floats, cache: Cache) -> Floats:
        """Bend attention towards recent relevance (Eq. 9)."""
        rho_hat = divide_by_max(cache["recency"])
        return normalize(weights * (0.5 + 0.5 * rho_hat) ** self.beta)
