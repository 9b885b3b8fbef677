"""Caches of several texts, side by side in one forward pass of the model.

The texts are the rows of one batch, and each has its own `PolicyCache`, with its own slots and next
tokens. Rows with fewer of these end in padding, which no cache sees. For each layer of the pass:

1. The layer brings keys and values of the new tokens. `SideBySide.update` gives each cache its row,
   and each returns what its text attends to.
2. These differ in length. They are padded in front to the longest, and returned as one tensor. The
   attention will get that tensor, so what is expected next (`attention_hooks.Expected`) is
   replaced: each cache expected the row that it returned.
3. Before the layer attends, `SideBySide` shows each cache its own inputs. Each returns its mask,
   which is padded like its keys; the padding is masked.

A `SideBySide` stores nothing and is dropped after the pass. Each text's turn is then ended by its
own cache, with `PolicyCache.end_turn`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.nn.functional import pad
from transformers.cache_utils import DynamicCache

from fdkvc.models.transformers.attention_hooks import AttentionInputs, Expected, this_pass
from fdkvc.models.transformers.cache import PolicyCache


class SideBySide(DynamicCache):  # type: ignore[misc]
    """What a model reads the next tokens of several texts with, for one forward pass.

    Of each text it reads as many as `new` says. Raises a ValueError for caches that cannot be read
    together; see `can_join`.
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
        keys, values = (
            torch.cat([pad(part, (0, 0, max(sizes) - part.shape[2], 0)) for part in parts])
            for parts in zip(*rows, strict=True)
        )
        before = partial(self._before_attention, layer_idx, sizes)
        this_pass.expected = Expected(keys, values, before, after=_end_no_turn)
        return keys, values

    def _before_attention(
        self, layer: int, sizes: Sequence[int], inputs: AttentionInputs
    ) -> torch.Tensor | None:
        """Show each cache its own inputs; return the mask of all (B, 1 or H, n, S), or None."""
        n, masks = inputs.queries.shape[2], []
        for text, (cache, new, size) in enumerate(zip(self._caches, self._new, sizes, strict=True)):
            mask = None  # a single token sees everything
            if n > 1:
                ones = inputs.queries.new_ones(1, 1, new, size, dtype=torch.bool)
                mask = ones.tril(size - new)
            masks.append(cache.before_attention(layer, inputs.of_text(text, new, mask)))
        if all(mask is None for mask in masks) and len({*sizes}) == 1:
            return None
        heads = max(1 if mask is None else mask.shape[1] for mask in masks)
        never = torch.finfo(inputs.queries.dtype).min
        rows = []
        for mask, new, size in zip(masks, self._new, sizes, strict=True):
            seen = inputs.queries.new_zeros(1, 1, new, size)
            if mask is not None:
                seen = seen.masked_fill(~mask, never) if mask.dtype == torch.bool else seen + mask
            seen = pad(seen.expand(-1, heads, -1, -1), (max(sizes) - size, 0), value=never)
            rows.append(pad(seen, (0, 0, 0, n - new)))
        return torch.cat(rows)


def _end_no_turn() -> None:
    """After an attention: turns end by `PolicyCache.end_turn` only."""


def _joins(cache: PolicyCache, first: PolicyCache) -> bool:
    """Whether a cache can be read beside the first."""
    same_model = cache.attention.modules == first.attention.modules
    return can_join(cache) and not cache.by_itself and same_model and cache.texts <= 1


def can_join(cache: PolicyCache) -> bool:
    """Whether caches like this one can be side by side: the policy decides for all layers."""
    return len(cache.decided) == len(cache.layers) and not cache.flash
