"""Expected attention: what future queries will attend to if they are like those so far."""

from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import Bools, Columns, Observation, entry_total, softmax
from fdkvc.core.cache import Cache
from fdkvc.core.parameters import parameter
from fdkvc.policies.base import EVICTION, SINKS_STAY, Policy, Step, first_tokens


@dataclass(frozen=True)
class ExpectedAttention(Policy):
    """Keep the entries with the highest expected attention, multiplied by the value's length.

    Devoto et al. 2025, *Expected Attention: KV Cache Compression by Estimating Attention from
    Future Queries Distribution*, without its rotary positions: future queries are Gaussian with
    the mean and covariance of the past ones, so that E[exp(q·k)] = exp(μ·k + k'Σk/2). The
    statistics are computed from the queries of all entries in the cache, including the turn's own,
    so that nothing else needs to be stored; the first tokens, the sinks, are left out of them and
    protected.

    The queries of synthetic dialogs, and of words, have no positions. Those of a model are used as
    they are, rotated to their positions. The original, as NVIDIA's *kvpress* 0.5.5, takes them
    before rotation and rotates their mean and covariance to the next 512 positions, so with a model
    it may keep other entries.
    """

    key = "expected-attention"
    label = "Expected attention"
    idea = (
        "Future queries are assumed to be distributed like past ones. The entries expected to "
        "contribute most to their output, attention times value norm, stay."
    )
    source = "Devoto et al. 2025, Expected Attention: KV Cache Compression"
    looks_at = ("queries", "keys", "values", "positions")
    steps = (
        Step(
            "Expected attention",
            r"\begin{gathered} s_i = \operatorname{softmax}_i(z_i)\, \lVert v_i \rVert \\ "
            r"z_i = \frac{\mu^\top k_i}{\sqrt d} + \frac{k_i^\top \Sigma\, k_i}{2 d} \\ "
            r"\mu, \Sigma: \text{ mean and covariance} \\ "
            r"\text{of the entries' queries} \end{gathered}",
            "queries are used as they are; the original rotates them to future positions",
            writes=("expected attention",),
        ),
        SINKS_STAY,
        EVICTION,
    )

    sinks: int = parameter(
        4,
        "Sinks",
        "First tokens of the dialog, left out of the statistics and never evicted.",
        low=0,
        high=64,
    )

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        """Return the expected attention times the value's length; 0 for the sinks."""
        # 1. Statistics and attention are those of all entries except the sinks.
        chosen = cache.present & (turn.position(cache.token) >= self.sinks)
        column = chosen[:, :, None]
        count = np.maximum(chosen.sum(axis=1), 1).astype(np.float32)
        k = turn.keys(cache.token)
        q = turn.queries(cache.token)
        d = np.float32(k.shape[-1])

        # 2. Mean (B, h) and covariance (B, h, h) of their queries.
        mu = entry_total(q * column) / count[:, None]
        centred = (q - mu[:, None]) * column
        # Outer products (B, C, h, h), summed so that empty slots do not change the rounding.
        products = centred[:, :, :, None] * centred[:, :, None, :]
        sigma = entry_total(products) / count[:, None, None]
        # 3. The logarithm of E[exp(q·k)]: μ·k/√d + k'Σk/(2d).
        wide = k.astype(np.float64)  # a product of four coordinates overflows single precision
        weighted = (wide[:, :, None, :] * sigma[:, None]).sum(axis=-1)
        spread = (weighted * wide).sum(axis=-1)
        logits = (k * mu[:, None]).sum(axis=-1) / np.sqrt(d) + spread / (2 * d)

        # 4. Expected attention among the entries, times the length of what is attended to.
        expected = softmax(np.where(chosen, logits, -np.inf)).astype(np.float32)
        lengths = np.linalg.norm(turn.values(cache.token), axis=-1)
        return {"expected attention": expected * lengths}

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        return first_tokens(cache, turn, min(self.sinks, budget))
