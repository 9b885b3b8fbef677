"""Adapters of Hugging Face *transformers* models and caches to the checks."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from fdkvc.core.attention import Bools, Floats, Ints
from fdkvc.models.numpy.model_folder import cache_name
from tests.models.conformance.masked import Pairs, mixed
from tests.models.conformance.subject import Reading, TurnCache

INTERFACE = "fdkvc_masked"
"""The name of the reference attention in the library."""


class TransformersModel:
    """A causal model that reads a text in one pass, as a `FullModel`.

    Its attention must be a softmax of queries and keys, which may be rotated by halves as in Llama.
    The library's model is copied. `layers` are those from which the cache evicts, by default all;
    in others, the layer's own sliding window applies.
    """

    def __init__(self, model: Any, layers: tuple[int, ...] | None = None) -> None:
        # No mask by the library: `read` brings its own.
        AttentionMaskInterface.register(INTERFACE, lambda *args, **settings: None)
        self._model = copy.deepcopy(model).eval()
        config = self._model.config.get_text_config(decoder=True)
        self.vocabulary = int(config.vocab_size)
        self._layers = tuple(range(config.num_hidden_layers)) if layers is None else layers
        rotary = (module for module in self._model.modules() if hasattr(module, "inv_freq"))
        first = next(rotary, None)  # None if positions are not rotary
        self._frequencies = None if first is None else first.inv_freq.double().numpy()

    def read(self, tokens: Ints, sees: Bools, distances: Ints | None = None) -> Reading:
        """Read a text with a given attention mask; see `FullModel`."""
        noted: dict[int, tuple[Floats, Floats]] = {}

        def attend(module: Any, *vectors: Any, scaling: float | None = None, **given: Any) -> Any:
            layer = module.layer_idx
            queries, keys, values = (tensor[0].numpy() for tensor in vectors[:3])
            n, width = queries.shape[1:]
            scaling = scaling or width**-0.5
            sinks = given.get("s_aux")  # of gpt-oss
            around: dict[str, Any] = {
                "cap": given.get("softcap"),
                "sinks": None if sinks is None else sinks.numpy(),
            }
            pairs = _pairs(queries), _pairs(keys)
            if layer in self._layers:
                # Some models scale otherwise: as `Reading.queries` has it, for 1/√h.
                noted[layer] = queries * np.float32(scaling * width**0.5), keys
                row = self._layers.index(layer)
                shown = np.broadcast_to(sees[row], (len(keys), n, n))
                apart = None if distances is None else distances[row]
                mixture = mixed(*pairs, values, shown, scaling, apart, self._frequencies, **around)
            else:  # causal, within the window if there is one
                far = np.tri(n, k=-(given.get("sliding_window") or n), dtype=np.bool_)
                seen = np.broadcast_to(np.tri(n, dtype=np.bool_) & ~far, (len(keys), n, n))
                mixture = mixed(*pairs, values, seen, scaling, **around)
            return torch.from_numpy(mixture.swapaxes(0, 1)[None]), None

        AttentionInterface.register(INTERFACE, attend)
        self._model.set_attn_implementation(INTERFACE)
        with torch.inference_mode():
            output = self._model(
                input_ids=torch.from_numpy(np.asarray(tokens)[None]), use_cache=False
            )
        noted_layers = (noted[layer] for layer in self._layers)
        queries_keys = map(np.stack, zip(*noted_layers, strict=True))
        return Reading(output.logits[0].float().numpy(), *queries_keys)


def _pairs(vectors: Floats) -> Pairs:
    """Return pairs as complex numbers: in the library, dimensions i and i + h / 2 are a pair."""
    half = vectors.shape[2] // 2
    return np.asarray(vectors[..., :half].astype(np.complex128) + 1j * vectors[..., half:])


class LibraryCache(TurnCache):
    """A causal model of the library with a cache that ends the turns of what is written itself.

    `held` takes the cache and returns the tokens that each KV head holds (C, L, K, S), −1 for none;
    `end_turn` makes it evict.
    """

    def __init__(
        self, model: Any, cache: Any, held: Callable[[Any], Ints], end_turn: Callable[[Any], None]
    ) -> None:
        def read(tokens: Ints) -> Floats:
            with torch.inference_mode():
                given = torch.from_numpy(np.asarray(tokens))
                output = model(input_ids=given, use_cache=True, **{cache_name(model): cache})
            return np.asarray(output.logits.float().numpy())

        self.fork = lambda: LibraryCache(model, cache.fork(), held, end_turn)
        super().__init__(read, partial(held, cache), partial(end_turn, cache))
