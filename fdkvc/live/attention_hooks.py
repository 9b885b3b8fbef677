"""Attention hooks: a model's queries and hidden states, passed to the cache that it uses.

A *transformers* cache sees keys and values, but no queries. These are captured through the
library's attention interface: the model keeps its *eager* or *sdpa* attention, registered under a
prefixed name. The keys identify the cache, so other caches can use the same model.
"""

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import transformers
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, eager_mask, sdpa_mask

PREFIX = "fdkvc_"
MASKS = {"eager": eager_mask, "sdpa": sdpa_mask}
"""Supported attention implementations, with their mask functions."""

FLASH = ("flash_attention_2", "flash_attention_3", "flash_attention_4")
"""Supported too, where all heads of a layer decide together; it takes no mask by head."""

HOOKED = "fdkvc_hooked"
"""The attribute of a model that has the hooks."""

NO_INTERFACE = "this model's attention does not go through the interface of the library"

Before = Callable[..., Any]
"""Takes query and mask, `scaling=` and `hidden=`, and returns the mask to use."""


class _Pass(threading.local):
    """The forward pass of this thread."""

    ids: Any = None
    """Its tokens (B, n), or those of one text of it; None if it began with embeddings."""
    hidden: Any = None
    """The hidden states (B, n, d) that enter a layer, until its attention has taken them."""
    expected: tuple[Before, Callable[[], None], Any, Any] | None = None
    """What to call around the next attention, and the keys and values that it is over."""


this_pass = _Pass()


def attach(model: Any) -> bool:
    """Wrap a model's attention, so that the callbacks that `this_pass` expects receive its inputs.

    Returns whether it is a flash attention. Raises a ValueError if it has another implementation or
    does not use the library's interface.
    """
    config = model.config.get_text_config(decoder=True)
    name = str(config._attn_implementation).removeprefix(PREFIX)
    flash = name in FLASH
    if name not in MASKS and not flash:
        raise ValueError(
            f"the model's attention is {name!r}, but must be one of {', '.join((*MASKS, *FLASH))}: "
            "load it with attn_implementation="
        )
    if flash:  # the library reads its version from the name, so the wrapper has the same
        attention = transformers.AttentionInterface()[name]
        if getattr(attention, "func", None) is not _attend:
            transformers.AttentionInterface.register(name, partial(_attend, attention))
    elif config._attn_implementation == name:
        attention = sdpa_attention_forward if name == "sdpa" else None
        transformers.AttentionInterface.register(PREFIX + name, partial(_attend, attention))
        AttentionMaskInterface.register(PREFIX + name, MASKS[name])
        model.set_attn_implementation(PREFIX + name)
        if config._attn_implementation != PREFIX + name:
            raise ValueError(NO_INTERFACE)
    if HOOKED in vars(model):
        return flash
    vars(model)[HOOKED] = True
    model.register_forward_pre_hook(_forget_ids)
    model.get_input_embeddings().register_forward_pre_hook(_enter_embeddings)
    for name in attention_modules(model):
        layer = model.get_submodule(name.rpartition(".")[0])
        layer.register_forward_pre_hook(_enter_layer, with_kwargs=True)
    return flash


def check_attached(config: Any) -> None:
    """Raise a ValueError if a model's attention implementation has been changed since."""
    name = str(config.get_text_config(decoder=True)._attn_implementation)
    if not name.startswith(PREFIX) and name not in FLASH:
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


def _forget_ids(*_: Any) -> None:
    this_pass.ids = None


def _enter_embeddings(_: Any, given: tuple[Any, ...]) -> None:
    this_pass.ids = given[0] if given else None


def _enter_layer(_: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    this_pass.hidden = given[0] if given else named["hidden_states"]


def _attend(
    attention: Callable[..., tuple[Any, Any]] | None,
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    **settings: Any,
) -> tuple[Any, Any]:
    """Attend by an implementation, by default the module's eager one, between the two calls."""
    call, this_pass.expected = this_pass.expected, None
    hidden, this_pass.hidden = this_pass.hidden, None
    attention = attention or sys.modules[type(module).__module__].eager_attention_forward
    if call is None or call[2] is not key:
        return attention(module, query, key, value, attention_mask, **settings)
    before, after, _, values = call
    if values is not value:  # the slots would hold values of other tokens than their keys
        raise ValueError(
            "this model's attention takes other values than its cache gave for the keys"
        )
    mask = before(query, attention_mask, scaling=settings.get("scaling"), hidden=hidden)
    result = attention(module, query, key, value, mask, **settings)
    after()
    return result
