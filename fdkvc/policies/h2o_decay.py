"""H2O with a forgetting factor."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fdkvc.attention import Observation
from fdkvc.cache import Cache
from fdkvc.parameters import share
from fdkvc.policies.base import SUMMED_ATTENTION, observed_attention
from fdkvc.policies.h2o import H2O


@dataclass(frozen=True)
class H2ODecay(H2O):
    """H2O whose sums fade: the honest rival of a policy that decays.

    Jo and Shin 2024, *A2SF: Accumulative Attention Scoring with Forgetting Factor for Token
    Pruning in Transformer Decoder*: before a query's attention is added, the sum so far is
    multiplied by a forgetting factor. 1 is H2O. The original searches the factor for each model;
    the default here is the decay of FD-KVC, so that the two differ in what they decay and not in
    how fast.
    """

    key = "h2o-decay"
    label = "H2O with decay"
    idea = (
        "H2O whose sums of attention fade from query to query, so that heavy hitters of the past "
        "give way; half of the budget goes to the newest entries. Where attention is nearly even, "
        "as in drawn dialogs, it keeps what H2O keeps."
    )
    source = "Jo and Shin 2024, A2SF: Accumulative Attention Scoring with Forgetting Factor"
    steps = (
        replace(
            SUMMED_ATTENTION,
            name="Cumulative attention with forgetting",
            equation=r"\begin{gathered} c_i \leftarrow \lambda\, c_i + \operatorname{softmax}"
            r"(q^\top k_i / \sqrt d) \\ q = \bar q_t \text{ or each query in turn} \end{gathered}",
        ),
        *H2O.steps[1:],
    )

    forgetting: float = share(
        0.88,
        "Forgetting factor",
        "Share of its sum that an entry keeps from one query to the next.",
        symbol=r"\lambda",
    )

    def absorb(self, cache: Cache, turn: Observation) -> Cache:
        """Let the sums fade, and add this turn's attention, query by query."""
        c = cache["cumulative"]
        a = observed_attention(turn, cache.token, self.queries)
        asks = turn.query_count if self.queries == "each" else np.ones(len(c), np.intp)
        for m in range(a.shape[1]):
            faded = self.forgetting * c + a[:, m]
            c = np.where((m < asks)[:, None], faded, c)
        return cache.with_channels(cumulative=c)
