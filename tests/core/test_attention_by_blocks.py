"""Attention worked out block by block, as FlashAttention does, is the attention of the lab."""

from __future__ import annotations

import numpy as np
import pytest

from fdkvc.core.attention import Floats
from fdkvc.engine.simulate import simulate
from fdkvc.policies import policy_named
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS


def by_blocks(logits: Floats, values: Floats, size: int) -> Floats:
    """Attend to a block after the other, with what is known of the largest logit so far.

    Dao et al. 2022, *FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness*,
    Algorithm 1, for one query: logits (C,) and values (C, h).
    """
    top, total = np.float32(-np.inf), np.float32(0)
    output = np.zeros(values.shape[1], np.float32)
    for first in range(0, len(logits), size):
        block = slice(first, first + size)
        higher = max(top, logits[block].max())
        if higher == -np.inf:
            continue  # no entry yet
        weights, faded = np.exp(logits[block] - higher), np.exp(top - higher)
        total = total * faded + weights.sum()
        output = output * faded + weights @ values[block]
        top = higher
    return output / total


@pytest.mark.parametrize("size", [1, 3, 8, 16, 55, 56, 128])
def test_it_is_the_same_over_what_any_policy_kept(size: int) -> None:
    dialogs = generate(SCENARIOS["mixed"], seed=3)
    for key in ("fifo", "h2o", "snapkv", "full"):
        trace = simulate(policy_named(key), dialogs, 56)
        for number in range(dialogs.turns):
            turn, kept = dialogs.observe(number), trace.kept_tokens[:, number]
            output = by_blocks(turn.logits(kept)[0], turn.values(kept)[0], size)
            np.testing.assert_allclose(output, trace.output[0, number], rtol=0, atol=1e-6)
