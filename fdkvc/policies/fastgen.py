"""FastGen: the cheapest structure that keeps enough of the attention."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fdkvc.core.attention import Columns, Observation, divide_by_max, entry_sum
from fdkvc.core.cache import Cache, newest, top_k
from fdkvc.core.parameters import parameter, share
from fdkvc.policies.base import (
    EVICTION,
    SUMMED_ATTENTION,
    Policy,
    Step,
    first_tokens,
    observed_attention,
    part,
    queries_parameter,
)


@dataclass(frozen=True)
class FastGen(Policy):
    """Choose, turn by turn, the first structure that holds enough of the attention.

    Ge et al. 2024, *Model Tells You What to Discard: Adaptive KV Cache Compression for LLMs*:
    special tokens; these and the most frequently attended ones, the heavy hitters; these and a
    local window; or everything. Each row, a head or a dialog, takes the first that recovers the
    required share of this turn's attention.

    Differences from the original: synthetic tokens have no punctuation, so that structure is left
    out, and the special tokens are the dialog's first ones. The original profiles a prompt once,
    here each turn is profiled. The original's cache may have any size; here the budget limits it,
    and a smaller structure is filled up with the most frequent of the rest.
    ``fdkvc/results.md`` has what it retains in heads whose attention is concentrated, as in the
    upper layers of the bundled model, and in synthetic dialogs.
    """

    key = "fastgen"
    label = "FastGen"
    idea = (
        "Each turn selects the smallest structure that holds enough of the attention: special "
        "tokens, plus heavy hitters, plus a local window, or everything, within the budget. "
        "Synthetic attention is so even that every turn selects everything, so there it keeps "
        "what H2O without a window keeps. Heads of a real model differ, and so do their "
        "structures."
    )
    source = "Ge et al. 2024, Model Tells You What to Discard: Adaptive KV Cache Compression"
    looks_at = ("attention", "history", "positions")
    channels = ("cumulative", "chosen")
    steps = (
        replace(
            SUMMED_ATTENTION,
            equation=r"\begin{gathered} c_i \leftarrow c_i + a_i \\ "
            r"a_i = \sum_q \operatorname{softmax}(q^\top k_i / \sqrt d) \\ "
            r"q = \bar q_t \text{ or each query} \end{gathered}",
        ),
        Step(
            "Structure",
            r"\begin{gathered} \text{the first } \mathcal S \text{ of special, + frequent,} \\ "
            r"\text{+ local, all with } \sum_{i \in \mathcal S} a_i \ge T \sum_i a_i "
            r"\end{gathered}",
            "Algorithm 1, profiling",
            writes=("structure", "recovered"),
            kind="rate",
        ),
        Step(
            "Score",
            r"s_i = \mathbb 1[i \in \mathcal S] + \tfrac12\, c_i / \max_j c_j",
            "members of the structure first, then by frequency",
            reads=("cumulative",),
            writes=("in the structure", "frequency"),
        ),
        EVICTION,
    )
    quantity_names: ClassVar[Mapping[str, str]] = {
        "in the structure": "membership",
        "structure": "number of the structure (0 special, 1 frequent, 2 local, 3 all)",
        "recovered": "share of attention recovered",
    }

    recovery: float = share(
        0.9,
        "Recovery",
        "Share of the attention that a structure must hold to be selected.",
        symbol="T",
    )
    sinks: int = parameter(
        4,
        "Special tokens",
        "First tokens of the dialog, which count as special.",
        low=0,
        high=64,
        by_row=True,
    )
    frequent: float = share(
        0.3, "Frequent", "Share of the entries that are heavy hitters.", symbol="r_f"
    )
    local: float = share(
        0.3, "Local", "Share of the entries in the local window.", symbol="r_l"
    )
    queries: str = queries_parameter()

    def initial_state(self) -> Mapping[str, float]:
        """Start with the smallest structure."""
        return {"structure": 0.0, "recovered": 1.0}

    def after_insert(self, cache: Cache, turn: Observation) -> Cache:
        """Add this turn's attention, and take the first structure that holds enough of it."""
        a = np.asarray(observed_attention(turn, cache.token, self.queries).sum(axis=1))
        c = cache["cumulative"] + a
        count = cache.present.sum(axis=1, keepdims=True)
        heavy = part(count, self.frequent)
        recent = part(count, self.local)

        # Each structure contains the one before.
        special = first_tokens(cache, turn, self.sinks)
        frequent = special | top_k(c, cache, heavy, self.ties)
        local = frequent | newest(cache, recent)
        structures = np.stack([special, frequent, local, cache.present])  # (4, B, C)

        # The share of this turn's attention that each structure holds (4, B).
        everything = entry_sum(a)
        recovered = entry_sum(np.where(structures, a, 0)) / np.where(
            everything > 0, everything, 1
        )
        recovery = np.asarray(self.recovery, np.float32)
        recovers = recovered >= recovery - self.ties.tolerance(recovery)
        recovers[-1] = True  # everything is always enough, whatever the rounding
        # `argmax` of truth values is the first true one: the smallest structure.
        number = recovers.argmax(axis=0)
        rows = np.arange(len(a))
        return cache.with_channels(
            cumulative=c, chosen=structures[number, rows].astype(np.float32)
        ).with_state(structure=number.astype(np.float32), recovered=recovered[number, rows])

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        """Return membership of the structure, and frequency to order its members."""
        return {
            "in the structure": cache["chosen"],
            # At most 0.5, so that no frequency outweighs membership.
            "frequency": 0.5 * divide_by_max(cache["cumulative"]),
        }
