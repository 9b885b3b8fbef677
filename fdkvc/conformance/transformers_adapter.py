"""Adapters of Hugging Face *transformers* models and caches to the checks.

Needs the packages of ``requirements-capture.txt``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from fdkvc.attention import Bools, Floats, Ints
from fdkvc.conformance.masked import Pairs, further, mixed
from fdkvc.conformance.subject import Reading, Restored, TurnCache

INTERFACE = "fdkvc_masked"
"""The name of the reference attention in the library."""


class TransformersModel:
    """A causal model that reads a text in one pass; implements `fdkvc.conformance.FullModel`.

    Its attention must be a plain softmax of queries and keys, which may be rotated by halves as in
    Llama. In layers that the cache does not evict from, the layer's own window applies.

    Parameters
    ----------
    model : the library's
        It is copied.
    layers : sequence of int, optional
        Those that the cache evicts from; all by default.
    """

    def __init__(self, model: Any, layers: tuple[int, ...] | None = None) -> None:
        AttentionMaskInterface.register(INTERFACE, lambda *args, **settings: None)
        self._model = copy.deepcopy(model).eval()
        config = self._model.config.get_text_config(decoder=True)
        self.vocabulary = int(config.vocab_size)
        self._layers = tuple(range(config.num_hidden_layers)) if layers is None else layers
        frequencies = [
            module.inv_freq for module in self._model.modules() if hasattr(module, "inv_freq")
        ]
        self._frequencies = frequencies[0].double().numpy() if frequencies else None
        self._sees: Bools = np.empty(0, np.bool_)
        self._distances: Ints | None = None
        self._stored: tuple[Restored, Bools] | None = None
        self._read: dict[str, dict[int, Floats]] = {}

    def read(
        self,
        tokens: Ints,
        sees: Bools,
        distances: Ints | None = None,
        stored: tuple[Restored, Bools] | None = None,
    ) -> Reading:
        """Read a text with a given attention mask.

        Parameters
        ----------
        tokens, sees, distances
            As for `fdkvc.conformance.FullModel`.
        stored : tuple of (Restored, array (N, N) of bool), optional
            What comes back of stored keys and values, and which tokens each token sees so.
        """
        AttentionInterface.register(INTERFACE, self._attend)
        self._model.set_attn_implementation(INTERFACE)
        self._sees, self._distances, self._stored = sees, distances, stored
        self._read = {"queries": {}, "keys": {}}
        with torch.inference_mode():
            output = self._model(input_ids=torch.from_numpy(np.asarray(tokens)[None]))
        queries, keys = (
            np.stack([found[layer] for layer in self._layers]) for found in self._read.values()
        )
        return Reading(output.logits[0].float().numpy(), queries, keys)

    def _attend(
        self, module: Any, query: Any, key: Any, value: Any, *args: Any, **settings: Any
    ) -> Any:
        layer = module.layer_idx
        queries, keys, values = (each[0].numpy() for each in (query, key, value))
        scaling = settings.get("scaling") or queries.shape[2] ** -0.5
        self._read["queries"][layer] = queries * np.float32(scaling * queries.shape[2] ** 0.5)
        self._read["keys"][layer] = keys
        turned = stored = None
        if layer in self._layers:
            at = self._layers.index(layer)
            sees = self._sees[at]
            if self._stored is not None:
                restored, so = self._stored
                stored = _pairs(restored(keys)), restored(values), so
            if self._distances is not None:
                turned = self._turned(self._distances[at])
        else:
            sees = _window(len(keys), keys.shape[1], settings.get("sliding_window"))
        found = mixed(_pairs(queries), _pairs(keys), values, sees, scaling, turned, stored)
        return torch.from_numpy(found.swapaxes(0, 1)[None]), None

    def _turned(self, distances: Ints) -> NDArray[np.float64] | None:
        """Return the angles that distances add to those in the text, if they differ."""
        places = np.arange(distances.shape[-1])
        if (distances == places[:, None] - places).all():
            return None
        if self._frequencies is None:
            raise ValueError("this model's positions are not rotary, so they cannot be changed")
        return further(distances, self._frequencies)


def _window(heads: int, tokens: int, window: int | None) -> Bools:
    """Return the mask of a layer that is left to the model."""
    seen = np.tri(tokens, dtype=np.bool_)
    if window is not None:
        seen &= ~np.tri(tokens, k=-window, dtype=np.bool_)
    return np.broadcast_to(seen, (heads, tokens, tokens))


def _pairs(vectors: Floats) -> Pairs:
    half = vectors.shape[2] // 2
    found: Pairs = vectors[..., :half].astype(np.complex128) + 1j * vectors[..., half:]
    return found


class LibraryCache(TurnCache):
    """A causal model of the library with one of its caches.

    Parameters
    ----------
    model, cache : the library's
    held : function
        Takes the cache; returns the tokens that each KV head holds (C, L, K, S), −1 for none.
    end_turn : function, optional
        Makes the cache evict at the end of a turn; None where it does so itself.
    """

    def __init__(
        self,
        model: Any,
        cache: Any,
        held: Callable[[Any], Ints],
        end_turn: Callable[[Any], None] | None = None,
    ) -> None:
        def read(tokens: Ints) -> Floats:
            with torch.inference_mode():
                given = torch.from_numpy(np.asarray(tokens))
                output = model(input_ids=given, past_key_values=cache, use_cache=True)
            logits: Floats = output.logits.float().numpy()
            return logits

        ended = partial(end_turn or (lambda _: None), cache)
        super().__init__(read, partial(held, cache), ended)
