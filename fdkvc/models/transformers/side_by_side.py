"""Caches of several texts, side by side in one forward pass of the model.

The texts are the rows of one batch, and each has its own `PolicyCache`, with its own slots and next
tokens. Rows with fewer of these end in padding, which no cache sees. For each layer of the pass:

1. The layer brings keys and values of the new tokens. `SideBySide.update` gives each cache its row,
   and each returns what its text attends to.
2. These differ in length. They are padded in front to the longest, and returned as one tensor. The
   attention will get that tensor, so what is expected next (`attention_hooks.Expected`) is
   replaced: each cache expected the row that it returned.
3. Before the layer attends, `SideBySide` shows each cache its own inputs. Each returns a mask of
   its empty slots, if it has any; padding and later tokens are masked for all texts at once.

A `SideBySide` stores nothing (its `layers` are those of its longest cache, which the library asks
for sizes) and is dropped after the pass. Each text's turn is then ended by its
own cache, with `PolicyCache.end_turn`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import DynamicCache

from fdkvc.models.transformers.attention_hooks import AttentionInputs, Expected, this_pass
from fdkvc.models.transformers.cache import PolicyCache
from fdkvc.models.transformers.layer import on_device_of


class SideBySide(DynamicCache):  # type: ignore[misc]
    """What a model reads the next tokens of several texts with, for one forward pass.

    Of each text it reads as many as `new` says. Raises a ValueError, which lists what is needed,
    for caches that cannot be read together.
    """

    def __init__(self, caches: Sequence[PolicyCache], new: Sequence[int]) -> None:
        if not all(_joins(cache, caches[0]) for cache in caches):
            raise ValueError(
                "caches are read side by side if they are of the same model, decide for all its "
                "layers without flash attention, have by_itself=False and one text each"
            )
        super().__init__()
        self._caches, self._new = caches, new
        # The library makes its mask for as many keys as the longest cache has.
        self.layers = max(caches, key=lambda cache: cache.get_mask_sizes(0, 0)[0]).layers

    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **named: Any
    ) -> Any:
        """Add keys and values (B, K, n, h) of new tokens, a row to each cache; return all.

        Those of each text are padded in front to the longest (B, K, S, h).
        """
        rows = []
        for text, (cache, new) in enumerate(zip(self._caches, self._new, strict=True)):
            row = slice(text, text + 1), slice(None), slice(new)
            rows.append(cache.update(key_states[row], value_states[row], layer_idx))
        sizes = [keys.shape[2] for keys, _ in rows]
        keys, values = map(_padded, zip(*rows, strict=True))
        before = partial(self._before_attention, layer_idx, sizes)
        # Turns end by `PolicyCache.end_turn` only.
        this_pass.expected = Expected(keys, values, before, after=lambda: None)
        return keys, values

    def _before_attention(
        self, layer: int, sizes: Sequence[int], inputs: AttentionInputs
    ) -> torch.Tensor:
        """Show each cache its own inputs; return the mask of all (B, 1 or H, n, S)."""
        empty = [  # masks of empty slots alone
            cache.before_attention(layer, inputs.of_text(text, new))
            for text, (cache, new) in enumerate(zip(self._caches, self._new, strict=True))
        ]
        queries, most = inputs.queries, max(sizes)
        heads = max(1 if mask is None else mask.shape[1] for mask in empty)
        size, new = on_device_of(queries, np.array([sizes, self._new]))[..., None, None]
        place = torch.arange(most, device=queries.device) - (most - size)  # in its text (B, 1, S)
        token = torch.arange(queries.shape[2], device=queries.device)[:, None] + (size - new)
        hidden = ((place < 0) | (place > token))[:, None]
        seen = queries.new_zeros(hidden.shape).masked_fill_(hidden, torch.finfo(queries.dtype).min)
        seen = seen.repeat(1, heads, 1, 1)
        for row, mask in zip(seen, empty, strict=True):
            if mask is not None:
                part = row[:, : mask.shape[2], -mask.shape[3] :]
                torch.minimum(part, mask[0], out=part)
        return seen


def _padded(vectors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return vectors (1, K, ·, h) of texts, padded in front to the longest (B, K, S, h)."""
    longest = max(vectors, key=lambda of_text: of_text.shape[2])
    padded = longest.new_zeros(len(vectors), *longest.shape[1:])
    for row, of_text in enumerate(vectors):
        padded[row, :, padded.shape[2] - of_text.shape[2] :] = of_text
    return padded


def _joins(cache: PolicyCache, first: PolicyCache) -> bool:
    """Whether a cache can be read beside the first."""
    same_model = cache.attention.modules == first.attention.modules
    return can_join(cache) and not cache.by_itself and same_model and cache.texts <= 1


def can_join(cache: PolicyCache) -> bool:
    """Whether caches like this one can be side by side: the policy decides for all layers."""
    return len(cache.decided) == len(cache.layers) and not cache.flash
