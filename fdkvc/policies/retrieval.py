"""Retrieval: everything is stored, and a turn reads what is nearest to its queries."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import Bools, Floats, Ints, Observation, masked_products
from fdkvc.core.cache import Cache, Pages
from fdkvc.core.parameters import parameter
from fdkvc.policies.base import EVICTION, Policy, Step


@dataclass(frozen=True)
class Retrieval(Policy):
    """Store every entry, and read those nearest to a turn's queries, within the budget.

    With pages of one entry the search is exact, as in Bertsch et al. 2023, *Unlimiformer:
    Long-Range Transformers with Unlimited Length Input*; larger pages are found by an upper bound
    of their keys' products, as in Tang et al. 2024, *Quest: Query-Aware Sparsity for Efficient
    Long-Context LLM Inference*. Every stored entry waits in a second tier and is a candidate in
    every turn; "evicted" means not read in this turn. So its reads stay within the budget, but its
    memory grows: an upper reference for eviction that knows the queries to come.
    """

    key = "retrieval"
    label = "Retrieval"
    idea = (
        "Everything is stored, and each turn reads the entries nearest to its queries, up to "
        "the budget: reads are bounded, memory is not."
    )
    source = "after Bertsch et al. 2023, Unlimiformer, and Tang et al. 2024, Quest"
    looks_at = ("positions", "keys", "queries")
    reads_afresh = True
    steps = (
        Step(
            "Everything comes back",
            r"\text{cache} \leftarrow \text{cache} \cup \text{all that is stored}",
            "entries that were not read are still stored",
            writes=("moves",),
            kind="rate",
        ),
        Step(
            "Nearness",
            r"s_i = \max_{q} \sum_d \max\bigl(q_d \min_{j \in p(i)} k_{j,d},\; "
            r"q_d \max_{j \in p(i)} k_{j,d}\bigr) / \sqrt h",
            "Quest's bound of a page; of a page of one entry it is q·k / √h, as in Unlimiformer",
            writes=("nearness",),
        ),
        EVICTION,
    )

    size: int = parameter(
        1, "Page size", "Neighbouring positions read together; 1 is exact.", low=1, high=256
    )

    @property
    def page_size(self) -> int:
        return self.size

    def initial_state(self) -> Mapping[str, float]:
        return {"moves": 0.0}

    def tier_places(self, budget: int, tokens: int) -> int:
        return tokens

    def recalls(self, cache: Cache, tier: Ints, turn: Observation) -> Bools:
        return tier >= 0

    def terms(self, cache: Cache, turn: Observation) -> Mapping[str, Floats]:
        """Return an upper bound of the products of the turn's queries with keys of the page."""
        pages = Pages(turn.position(cache.token) // self.size, self.size)
        keys = turn.keys(cache.token)
        low = keys
        high = keys
        if self.size > 1:
            low = _of_pages(pages, cache, np.minimum, keys, np.inf)
            high = _of_pages(pages, cache, np.maximum, keys, -np.inf)
        # Quest's bound (B, n, C): a positive coordinate of a query is multiplied by the page's
        # largest, a negative one by its smallest.
        is_token = turn.new >= 0
        queries = turn.queries(turn.new)
        bounds = masked_products(np.maximum(queries, 0), high, is_token, cache.present)
        bounds += masked_products(np.minimum(queries, 0), low, is_token, cache.present)
        of_tokens = np.where(is_token[:, :, None], bounds, -np.inf)
        nearest = of_tokens.max(axis=1, initial=-np.inf)
        # In a row without queries nothing is near.
        nearest = np.where(np.isfinite(nearest), nearest, np.float32(0))
        return {"nearness": np.divide(nearest, np.sqrt(keys.shape[2]), dtype=np.float32)}


def _of_pages(pages: Pages, cache: Cache, combine: np.ufunc, keys: Floats, start: float) -> Floats:
    """Combine each coordinate of the keys over an entry's page (B, C, h); 0 in empty slots."""
    columns = np.moveaxis(keys, 2, 0)
    bound = np.stack([pages.over(cache, combine, column, start) for column in columns], axis=2)
    return np.where(cache.present[:, :, None], bound, 0)
