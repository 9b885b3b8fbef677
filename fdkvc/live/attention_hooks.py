"""Attention hooks: a model's queries and hidden states, passed to the cache that it uses.

A *transformers* cache sees keys and values, but no queries. These are captured through the
library's attention interface: the model keeps its *eager* or *sdpa* attention, registered under a
prefixed name. The keys identify the cache, so other caches can use the same model.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import transformers
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, eager_mask, sdpa_mask

PREFIX = "fdkvc_"
MASKS = {"eager": eager_mask, "sdpa": sdpa_mask}
"""The supported attention implementations, with their mask functions."""

HIDDEN = "fdkvc_hidden"
"""The attribute of an attention module with the hidden states that enter its layer."""

NO_INTERFACE = "this model's attention does not go through the interface of the library"

Attention = Callable[..., tuple[Any, Any]]


class Listener(Protocol):
    """Receives the inputs of a layer's attention."""

    def before_attention(
        self, layer: int, query: Any, mask: Any, *, scaling: float | None, hidden: Any
    ) -> Any:
        """Take the queries of a layer and return the mask to use.

        Parameters
        ----------
        layer : int
        query : tensor (1, H, n, h)
        mask : tensor (1, 1, n, S) or None
        scaling : float, optional
            Of the query-key products; 1/√h by default.
        hidden : tensor (1, n, d)
            The hidden states that enter the layer.
        """

    def after_attention(self, layer: int) -> None:
        """Note that a layer's attention is complete."""


class _Expected(threading.local):
    """The attention call that is expected next in this thread."""

    call: tuple[Listener, int, Any, Any] | None = None


_expected = _Expected()


def expect(listener: Listener, layer: int, keys: Any, values: Any) -> None:
    """Pass the next attention call, which is over these keys and values, to a listener."""
    _expected.call = listener, layer, keys, values


def attach(model: Any) -> None:
    """Wrap a model's attention, so that the callbacks given to `expect` receive its inputs.

    Raises
    ------
    ValueError
        If its attention has another implementation or does not use the library's interface.
    """
    config = model.config.get_text_config(decoder=True)
    name = str(config._attn_implementation)
    if name.removeprefix(PREFIX) in MASKS and name not in MASKS:
        return
    if name not in MASKS:
        raise ValueError(
            f"the model's attention is {name!r}, but must be one of {', '.join(MASKS)}: load it "
            "with attn_implementation="
        )
    transformers.AttentionInterface.register(PREFIX + name, partial(_attend, name))
    AttentionMaskInterface.register(PREFIX + name, MASKS[name])
    model.set_attn_implementation(PREFIX + name)
    if config._attn_implementation != PREFIX + name:
        raise ValueError(NO_INTERFACE)
    for name, module in attention_modules(model).items():
        layer = model.get_submodule(name.rpartition(".")[0])
        layer.register_forward_pre_hook(partial(_enter, module), with_kwargs=True)


def check_attached(config: Any) -> None:
    """Raise a ValueError if a model's attention implementation has been changed since."""
    name = str(config.get_text_config(decoder=True)._attn_implementation)
    if not name.startswith(PREFIX):
        raise ValueError(
            f"the model's attention was set to {name!r} after this PolicyCache was made, which "
            "can no longer see its queries: make a new PolicyCache"
        )


def attention_modules(model: Any) -> dict[str, Any]:
    """Return the attention modules by name."""
    return {
        name: module
        for name, module in model.named_modules()
        if getattr(module, "is_causal", False) and getattr(module, "layer_idx", None) is not None
    }


def _enter(attention: Any, layer: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Store a layer's input on its attention module."""
    vars(attention)[HIDDEN] = given[0] if given else named["hidden_states"]


def _attend(
    name: str, module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **settings: Any
) -> tuple[Any, Any]:
    """Attend by the named implementation, between the listener's two calls."""
    call, _expected.call = _expected.call, None
    hidden = vars(module).pop(HIDDEN, None)  # so that it is not kept until the next pass
    own = _implementation(name, module)
    if call is None or call[2] is not key:
        return own(module, query, key, value, attention_mask, **settings)
    listener, layer, _, values = call
    if values is not value:  # the slots would hold values of other tokens than their keys
        raise ValueError(
            "this model's attention takes other values than its cache gave for the keys"
        )
    scaling = settings.get("scaling")
    mask = listener.before_attention(layer, query, attention_mask, scaling=scaling, hidden=hidden)
    result = own(module, query, key, value, mask, **settings)
    listener.after_attention(layer)
    return result


def _implementation(name: str, module: Any) -> Attention:
    """Return a module's own attention; eager attention is in each model's file."""
    if name == "sdpa":
        return sdpa_attention_forward  # type: ignore[no-any-return]
    return sys.modules[type(module).__module__].eager_attention_forward  # type: ignore[no-any-return]
