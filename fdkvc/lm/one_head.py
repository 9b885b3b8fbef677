"""Apart: a cache in which one head alone forgets."""

from __future__ import annotations

import numpy as np

from fdkvc.attention import Ints
from fdkvc.cache import EMPTY
from fdkvc.lm.decoder import Decoder
from fdkvc.lm.head_eviction import DECIDES
from fdkvc.lm.text_cache import EvictingCache
from fdkvc.policies import Policy


class OneHead(EvictingCache):
    """A cache whose policy decides for every KV head, and one head alone forgets by it.

    Parameters
    ----------
    decoder, policy, budget, decides
        As for `fdkvc.lm.text_cache.EvictingCache`.
    layer, head : int
        The head that holds no more than the policy leaves it; all others hold the whole text.
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

    def _hold(self, near: Ints | None) -> None:
        if near is not None:
            own = near[self.layer, self.head]
            near = np.tile(np.arange(self.count), (*near.shape[:2], 1))
            near[self.layer, self.head] = EMPTY
            near[self.layer, self.head, : len(own)] = own
        super()._hold(near)
