"""Caches of several texts, side by side in one forward pass of the model.

Each keeps its own slots. Keys and values are padded in front to the longest, and masked there.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.nn.functional import pad
from transformers.cache_utils import DynamicCache

from fdkvc.models.transformers.attention_hooks import this_pass
from fdkvc.models.transformers.cache import PolicyCache


class SideBySide(DynamicCache):  # type: ignore[misc]
    """What a model reads the next tokens of several texts with, for one forward pass.

    The caches have ``by_itself=False``, are of the same model and have seen equally many tokens of
    one text each; see `can_join`.
    """

    def __init__(self, caches: Sequence[PolicyCache]) -> None:
        super().__init__()
        self._caches = caches
        # The library makes its mask for as many keys as the longest cache has.
        self.layers = max(caches, key=lambda cache: cache.get_mask_sizes(0, 0)[0]).layers

    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **named: Any
    ) -> Any:
        """Add the keys and values of new tokens to each cache; return all, padded in front."""
        pairs = [
            cache.update(key_states[text : text + 1], value_states[text : text + 1], layer_idx)
            for text, cache in enumerate(self._caches)
        ]
        sizes = [keys.shape[2] for keys, _ in pairs]
        keys, values = (
            torch.cat([pad(part, (0, 0, max(sizes) - part.shape[2], 0)) for part in parts])
            for parts in zip(*pairs, strict=True)
        )
        before = partial(self._before, layer_idx, sizes)
        this_pass.expected = before, lambda: None, keys, values
        return keys, values

    def _before(
        self, layer: int, sizes: Sequence[int], query: Any, mask: Any, *, scaling: Any, hidden: Any
    ) -> Any:
        """Show each cache its own queries and hidden states; return the mask of all."""
        ids, masks = this_pass.ids, []
        for text, cache in enumerate(self._caches):
            row = slice(text, text + 1)
            this_pass.ids = None if ids is None else ids[row]
            of_text = None if mask is None else mask[row if len(mask) > 1 else slice(None)]
            given = {"scaling": scaling, "hidden": hidden[row]}
            masks.append(cache.before_attention(layer, query[row], of_text, **given))
        this_pass.ids = ids
        if all(of_text is None for of_text in masks) and len({*sizes}) == 1:
            return None
        heads = max(1 if of_text is None else of_text.shape[1] for of_text in masks)
        never = torch.finfo(query.dtype).min
        rows = []
        for of_text, size in zip(masks, sizes, strict=True):
            if of_text is None:  # a single token sees everything
                of_text = query.new_zeros(1, 1, query.shape[2], size)
            elif of_text.dtype == torch.bool:
                of_text = query.new_zeros(()).where(of_text, never)
            of_text = of_text.expand(-1, heads, -1, -1)
            rows.append(pad(of_text, (max(sizes) - size, 0), value=never))
        return torch.cat(rows)


def can_join(cache: PolicyCache) -> bool:
    """Whether caches like this one can be side by side: the policy decides for all layers."""
    return len(cache.decided) == len(cache.layers) and not cache.flash
