"""Recall: evicted entries wait in a second tier, from which the query brings their page back."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import Bools, Ints, Observation, cosine, entry_total
from fdkvc.core.cache import Cache
from fdkvc.core.parameters import parameter, share
from fdkvc.policies.base import Look, Step
from fdkvc.policies.wrapper import Wrapper

RECALL = Step(
    "Recall",
    r"\begin{gathered} \bar k_p = \operatorname{mean}_{i \in p} k_i,\quad "
    r"m_p = \cos(\bar k_t, \bar k_p) \\ m_{\text{last page}} < \vartheta \le m_p \\ "
    r"\Rightarrow\; \text{page } p \text{ comes back} \end{gathered}",
    "a second tier, beyond the paper; a page is the entries of one turn",
    writes=("moves",),
    kind="rate",
)


@dataclass(frozen=True)
class Recall(Wrapper):
    """Give a policy a second tier, from which evicted entries are recalled by page.

    After Tang et al. 2024, *Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference*,
    whose pages have fixed sizes and other summaries.
    """

    key = "recall"
    label = "Recall"
    idea = (
        "Evicted entries wait in a second tier. When the query returns to their page, the whole "
        "page comes back as if it were new."
    )
    source = "after Tang et al. 2024, Quest"

    tier: float = parameter(
        1.0,
        "Second tier",
        "Size of the second tier as a share of the budget: evicted entries wait there until the "
        "query returns to their page; 0 turns it off.",
        low=0,
        high=4,
    )
    page_match: float = share(
        0.7,
        "Page match",
        "Minimum cosine between the mean keys of a page and of the turn for the query to match the "
        "page.",
        symbol=r"\vartheta",
    )

    def refusal(self) -> str:
        if "moves" in self.policy.initial_state():
            return f"{self.policy.name} has a second tier already"
        return ""

    @property
    def also_looks_at(self) -> tuple[Look, ...]:
        return ("positions", "keys") if self.tier else ()

    @property
    def steps(self) -> tuple[Step, ...]:
        return (RECALL, *self.policy.steps) if self.tier else self.policy.steps

    def initial_state(self) -> Mapping[str, float]:
        moves = {"moves": 0.0} if self.tier else {}
        return {**self.policy.initial_state(), **moves}

    def tier_places(self, budget: int, tokens: int) -> int:
        return int(budget * self.tier)

    def recalls(self, cache: Cache, tier: Ints, turn: Observation) -> Bools:
        """Bring back the pages that the query returns to.

        A page is the tokens of one turn. Its summary is the mean key of those that are still in the
        cache or the tier; the query's summary is the mean key of the turn's own tokens. The query
        returns to a page of the tier if it matches that page and not the newest one.
        """
        waiting = tier >= 0
        if not waiting.any():  # saves the products of all pairs of entries below
            return waiting
        tokens = np.concatenate([cache.token, tier], axis=1)  # (B, C + R)
        page = turn.born(tokens)
        same_page = page[:, :, None] == page[:, None, :]
        same_page &= (tokens >= 0)[:, None, :]
        # The sum of the keys stands for their mean, since cosine ignores length (B, C + R, h).
        summary = same_page.astype(np.float32) @ turn.keys(tokens)
        query = entry_total(turn.keys(turn.new))[:, None]
        matches = cosine(summary, query) >= self.page_match
        # A query that still matches the newest page has not left its topic: nothing comes back.
        on_newest = (matches & (page == page.max(axis=1, keepdims=True))).any(axis=1)
        return np.asarray(matches[:, -tier.shape[1] :] & waiting & ~on_newest[:, None])
