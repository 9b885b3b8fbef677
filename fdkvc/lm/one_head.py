"""A cache in which only one head evicts."""

from __future__ import annotations

import numpy as np

from fdkvc.attention import Ints
from fdkvc.cache import EMPTY
from fdkvc.lm.decoder import Decoder
from fdkvc.lm.head_eviction import DECIDES
from fdkvc.lm.text_cache import EvictingCache
from fdkvc.policies import Policy


class OneHead(EvictingCache):
    """A cache whose policy decides for every KV head, but evicts from one head only.

    All other heads keep the whole text.
    """

    def __init__(
        self,
        decoder: Decoder,
        policy: Policy,
        budget: int,
        layer: int,
        head: int,
        decides: str = DECIDES.default,
    ) -> None:
        super().__init__(decoder, policy, budget, decides)
        self.layer, self.head = layer, head

    def _set_attended(self, attended: Ints | None) -> None:
        if attended is not None:
            own = attended[self.layer, self.head]
            attended = np.tile(np.arange(self.count), (*attended.shape[:2], 1))
            attended[self.layer, self.head] = EMPTY
            attended[self.layer, self.head, : len(own)] = own
        super()._set_attended(attended)
