"""Listening: what goes into a model's attention, told to a cache that decides by it.

A cache of *transformers* sees keys and values, and no queries. Those go through the library's
attention interface: a model that is listened to has *eager* or *sdpa* attention as before, under a
name of ours. Whose keys they are is known by the keys themselves, so a model may be used with
other caches in turn.
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
"""The implementations of attention that can be listened to, and what makes their masks."""

ENTERING = "fdkvc_entering"
"""Where an attention module finds the hidden state that enters its layer."""

NO_INTERFACE = "this model's attention does not go through the interface of the library"

Attention = Callable[..., tuple[Any, Any]]


class Listener(Protocol):
    """What is told of a layer's attention."""

    def hear(
        self, layer: int, query: Any, mask: Any, *, scaling: float | None, entering: Any
    ) -> Any:
        """Take the queries of a layer, and return the mask that they are to have.

        Parameters
        ----------
        layer : int
        query : tensor (1, H, n, h)
        mask : tensor (1, 1, n, S) or None
        scaling : float, optional
            Of their products with keys; 1/√h by default.
        entering : tensor (1, n, d)
            The hidden states that enter the layer.
        """

    def heard(self, layer: int) -> None:
        """Learn that a layer has attended."""


class _Expected(threading.local):
    """Whose attention comes next, and to which keys."""

    said: tuple[Listener, int, Any, Any] | None = None


_expected = _Expected()


def expect(listener: Listener, layer: int, keys: Any, values: Any) -> None:
    """Let a listener hear of the attention to these keys and values, which comes next."""
    _expected.said = listener, layer, keys, values


def listen(model: Any) -> None:
    """Wrap a model's attention, so that the callbacks given to `expect` receive its inputs.

    Raises
    ------
    ValueError
        If its attention is of another implementation, or cannot be heard.
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


def check_heard(config: Any) -> None:
    """Raise a ValueError if the attention of a model that was listened to has been changed."""
    name = str(config.get_text_config(decoder=True)._attn_implementation)
    if not name.startswith(PREFIX):
        raise ValueError(
            f"the model's attention was set to {name!r} after this PolicyCache was made, which "
            "can no longer see its queries: make a new PolicyCache"
        )


def attention_modules(model: Any) -> dict[str, Any]:
    """Return the attention of each layer by its name."""
    return {
        name: module
        for name, module in model.named_modules()
        if getattr(module, "is_causal", False) and getattr(module, "layer_idx", None) is not None
    }


def _enter(attention: Any, layer: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Keep what enters a layer where its attention finds it."""
    vars(attention)[ENTERING] = given[0] if given else named["hidden_states"]


def _attend(
    name: str, module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **settings: Any
) -> tuple[Any, Any]:
    """Attend as the implementation of this name does."""
    said, _expected.said = _expected.said, None
    entering = vars(module).pop(ENTERING, None)  # or it would stay until the next pass
    own = _implementation(name, module)
    if said is None or said[2] is not key:
        return own(module, query, key, value, attention_mask, **settings)
    listener, layer, _, values = said
    if values is not value:  # whose slots would be of other tokens than those of the keys
        raise ValueError(
            "this model's attention takes other values than its cache gave for the keys"
        )
    scaling = settings.get("scaling")
    mask = listener.hear(layer, query, attention_mask, scaling=scaling, entering=entering)
    result = own(module, query, key, value, mask, **settings)
    listener.heard(layer)
    return result


def _implementation(name: str, module: Any) -> Attention:
    """Return attention as a module has it; eager attention is in the file of each model."""
    if name == "sdpa":
        return sdpa_attention_forward  # type: ignore[no-any-return]
    return sys.modules[type(module).__module__].eager_attention_forward  # type: ignore[no-any-return]
