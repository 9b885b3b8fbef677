"""Key norm: entries with short keys stay."""

from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import Columns, Observation
from fdkvc.core.cache import Cache
from fdkvc.policies.base import EVICTION, Policy, Step


@dataclass(frozen=True)
class Knorm(Policy):
    """Keep the entries whose keys are shortest.

    Devoto et al. 2024, *A Simple and Effective L2 Norm-Based Strategy for KV Cache Compression*:
    in trained models short keys receive high attention. Synthetic keys have no such property: here
    it loses as much attention as random eviction, and it keeps far fewer entries of the current
    topic, because key lengths depend on the topic and the shortest keys stay for good.
    """

    key = "knorm"
    label = "Key norm"
    idea = (
        "Entries with the shortest keys stay, because in trained models these receive "
        "attention. Synthetic keys have no such property: there it keeps less of the current "
        "topic than random eviction."
    )
    source = "Devoto et al. 2024, A Simple and Effective L2 Norm-Based Strategy"
    looks_at = ("keys",)
    steps = (
        Step(
            "Key norm",
            r"s_i = -\lVert k_i \rVert_2",
            "Devoto et al. 2024",
            writes=("negative key norm",),
        ),
        EVICTION,
    )

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        # Negative, since a higher score stays and short keys are to stay.
        return {"negative key norm": -np.linalg.norm(turn.keys(cache.token), axis=-1)}
