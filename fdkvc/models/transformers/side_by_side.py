"""Caches of several texts, side by side in one forward pass of the model.

The texts are the rows of one batch, and each has its own `PolicyCache`, with its own slots and next
tokens. Here text 0 holds five tokens and reads three, text 1 holds two and reads one::

              keys that are attended to    next tokens
    text 0    a b c d e  f g h             f g h
    text 1    - - - - -  i j k             k - -      (- is padding)

The next tokens are padded behind, and no cache sees that; the keys are padded in front, so that
the last of each text stand together. For each layer of the pass:

1. The layer calls `SideBySide.update` with keys and values of the next tokens. Each cache is given
   its row, and returns all that its text attends to.
2. These are padded to the longest and returned as one tensor. Each cache now expects attention to
   the row that it returned (`attention_hooks.Expected`). What will come is attention to the one
   tensor, so that expectation replaces theirs.
3. Before the layer attends, each cache sees its own inputs, without padding. It returns a mask of
   its empty slots, if it has any. Padding and later tokens are masked for all texts at once.

A `SideBySide` stores nothing and is dropped after the pass. Its `layers` are those of its longest
cache, since the library asks them for sizes. Each text's turn is ended by its own cache, with
`PolicyCache.end_turn`.
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
    """The cache of one forward pass over several texts, each with its own cache.

    `new` is how many tokens each text reads. Raises a ValueError, which lists what is needed, for
    caches that cannot be read together.
    """

    def __init__(self, caches: Sequence[PolicyCache], new: Sequence[int]) -> None:
        if not all(_joins(cache, caches[0]) for cache in caches):
            raise ValueError(
                "caches are read side by side if they are of the same model, decide for all its "
                "layers without flash attention, have by_itself=False and one text each"
            )
        super().__init__()
        self._caches = caches
        self._new = new
        # The library makes its mask for as many keys as the longest cache has.
        self.layers = max(caches, key=lambda cache: cache.get_mask_sizes(0, 0)[0]).layers

    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **named: Any
    ) -> Any:
        """Add keys and values (B, K, n, h), a row to each cache; return all (B, K, S, h)."""
        rows = []
        for text, (cache, new) in enumerate(zip(self._caches, self._new, strict=True)):
            row = slice(text, text + 1), slice(None), slice(new)
            rows.append(cache.update(key_states[row], value_states[row], layer_idx))
        sizes = [keys.shape[2] for keys, _ in rows]
        keys, values = map(_padded, zip(*rows, strict=True))
        prepare = partial(self._before_attention, layer_idx, sizes)
        # Turns end by `PolicyCache.end_turn` only.
        this_pass.expected = Expected(keys, values, prepare, after=lambda: None)
        return keys, values

    def _before_attention(
        self, layer: int, sizes: Sequence[int], inputs: AttentionInputs
    ) -> torch.Tensor:
        """Show each cache its own inputs; return the mask of all (B, 1 or H, n, S)."""
        # 1. Each cache's own mask (1, 1 or H, ·, ·), None if it has no empty slots.
        empty = []
        for text, (cache, new) in enumerate(zip(self._caches, self._new, strict=True)):
            empty.append(cache.before_attention(layer, inputs.of_text(text, new)))
        # 2. What each token may see: the places of its text (B, 1, S) up to its own (B, n, 1).
        queries = inputs.queries
        longest = max(sizes)
        heads = max(1 if mask is None else mask.shape[1] for mask in empty)
        size, new = on_device_of(queries, np.array([sizes, self._new]))[..., None, None]
        places = torch.arange(longest, device=queries.device)
        place = places - (longest - size)
        next_places = torch.arange(queries.shape[2], device=queries.device)
        token = next_places[:, None] + (size - new)
        unseen = ((place < 0) | (place > token))[:, None]
        lowest = torch.finfo(queries.dtype).min
        masks = queries.new_zeros(unseen.shape)
        masks.masked_fill_(unseen, lowest)
        # Repeated in memory, since heads are written to one by one below.
        masks = masks.repeat(1, heads, 1, 1)
        # 3. Of these, not the empty slots. A text's own mask covers its last places.
        for row, mask in zip(masks, empty, strict=True):
            if mask is not None:
                part = row[:, : mask.shape[2], -mask.shape[3] :]
                torch.minimum(part, mask[0], out=part)
        return masks


def _padded(vectors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return vectors (1, K, ·, h) of texts, padded in front to the longest (B, K, S, h)."""
    longest = max(vectors, key=lambda of_text: of_text.shape[2])
    padded = longest.new_zeros(len(vectors), *longest.shape[1:])
    for row, of_text in enumerate(vectors):
        padded[row, :, padded.shape[2] - of_text.shape[2] :] = of_text
    return padded


def _joins(cache: PolicyCache, reference: PolicyCache) -> bool:
    """Whether a cache can be read beside the first."""
    same_model = cache.attention.modules == reference.attention.modules
    return can_join(cache) and not cache.by_itself and same_model and cache.texts <= 1


def can_join(cache: PolicyCache) -> bool:
    """Whether caches like this one can be side by side: the policy decides for all layers."""
    return len(cache.decided) == len(cache.layers) and not cache.flash
