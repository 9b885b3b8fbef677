"""TOVA: the entries that the last query attends to stay."""

from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import Columns, Observation
from fdkvc.core.cache import Cache
from fdkvc.policies.base import EVICTION, Policy, Step


@dataclass(frozen=True)
class Tova(Policy):
    """Keep the entries that the last query of the turn attends to most; nothing is stored.

    Oren et al. 2024, *Transformers are Multi-State RNNs* (Token Omission Via Attention): the
    state with the lowest attention of the last query is dropped, and no state is protected. The
    original drops one state per token; here the entries over the budget are dropped after each
    turn. The original averages over the heads of a layer, which keep the same tokens; here heads do
    so if they decide together. NVIDIA's *kvpress* 0.5.5 averages too, and always keeps the last
    token.
    """

    key = "tova"
    label = "TOVA"
    idea = (
        "The entries that the turn's last query attends to most stay; earlier attention does "
        "not count."
    )
    source = "Oren et al. 2024, Transformers are Multi-State RNNs"
    looks_at = ("attention",)
    steps = (
        Step(
            "Attention of the last query",
            r"s_i = \operatorname{softmax}\!\left(q_n^\top k_i / \sqrt d\right)",
            "the turn's last token's query; the original takes the mean over a layer's heads",
            writes=("last attention",),
        ),
        EVICTION,
    )

    def last_queries(self, count: int) -> int:
        return min(count, 1)

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        last = np.minimum(turn.query_count, 1)[:, None]  # none in a turn without tokens
        return {"last attention": turn.attention_of_each(cache.token, last).sum(axis=1)}
