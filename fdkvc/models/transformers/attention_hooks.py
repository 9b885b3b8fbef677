"""Attention hooks: a model's queries, hidden states and tokens, passed to the cache that it uses.

A *transformers* cache is given keys and values only, but a policy may look at more. Hooks collect
the rest, through the library's attention interface.

Once, when the first `PolicyCache` of a model is made, or its shape is asked for:

1. `attach` registers the model's *eager* or *sdpa* attention again under a prefixed name, wrapped
   in `_attend`, and makes the model use it. Flash attention is wrapped under its own name.
2. A `Probe` reads single tokens, to see which module attends in each layer, and to what. A single
   token attends to itself alone, so only its keys can depend on its position.
3. `_register` hooks the modules that were found, and what prepares the inputs of ``generate``: of
   a text that is shorter than what a cache has read, this would pass on nothing or wrong tokens.

Then, in each forward pass, for each layer (what is noted is in `this_pass`, one for each thread)::

    hooks note              the tokens that enter the embeddings     ids
                            the states that enter the layer          hidden
                            the module that attends                  module
    module calls            cache.update(keys, values)
      a `PolicyCache`       returns all that is attended to, and     expected
                            leaves an `Expected` with that
    module attends          `_attend` takes hidden and expected,
                            calls expected.before(AttentionInputs),
                            attends with the mask that this returns,
                            and calls expected.after()

The library's interface has no argument through which a cache could reach the attention; so this
state is of the pass, not passed. An `Expected` is for the attention that follows at once, to the
very tensors that the cache returned; a model of latents computes others of them first. Other caches
leave none, so they can use the same model.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial, wraps
from types import MethodType
from typing import Any, TypeVar

import torch
import transformers
from transformers.cache_utils import DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, eager_mask, sdpa_mask

from fdkvc.core.words import as_value_error
from fdkvc.models.numpy.model_folder import cache_name

PREFIX = "fdkvc_"
MASKS = {"eager": eager_mask, "sdpa": sdpa_mask}
"""Supported attention implementations, with their mask functions."""

FLASH = ("flash_attention_2", "flash_attention_3", "flash_attention_4")
"""Supported too, where all heads of a layer decide together; it takes no mask by head."""

HOOKED = "fdkvc_hooked"
"""The attribute of a model that has the hooks, with its `Attention`."""

# Why a model is refused; see `_probed`.
NO_INTERFACE = "this model's attention does not go through the interface of the library"
OTHER_KEYS = "this model's attention takes other keys or values than its cache holds"

EXPAND = "expand_kv"
"""The method of a module of latent attention that returns keys and values of cached latents."""

Method = TypeVar("Method", bound=Callable[..., Any])

NOT_COMPILED = (
    "a PolicyCache and its hooks are not compiled: compile the model without fullgraph=True"
)


def eager(function: Method) -> Method:
    """Keep a function out of what `torch.compile` compiles around it."""
    uncompiled: Method = torch.compiler.disable(function, reason=NOT_COMPILED)
    return uncompiled


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """What the attention of a layer takes besides keys and values: n new tokens of B texts."""

    queries: Any
    """Shape (B, H, n, h)."""
    mask: Any
    """The library's: shape (B, 1, n, S), (1, 1, n, S) for all texts, or (B, S) of flash attention.
    None if a token sees everything before it."""
    scaling: float | None
    """The factor of the logits, by default 1/√h."""
    hidden: Any
    """Shape (B, n, d). The states that enter the layer."""
    ids: Any
    """Shape (B, n). The tokens; None if the pass began with embeddings."""
    positions: Any
    """Shape (…, B, n). Those that rotary angles were last computed of; None if the model has not
    been hooked for ``positions="slots"``."""

    def of_text(self, text: int, tokens: int) -> AttentionInputs:
        """Return the first new tokens of one text, without a mask."""
        row = slice(text, text + 1)
        return replace(
            self,
            queries=self.queries[row, :, :tokens],
            mask=None,
            hidden=self.hidden[row, :tokens],
            ids=None if self.ids is None else self.ids[row, :tokens],
            positions=None if self.positions is None else self.positions[..., row, :tokens],
        )


@dataclass(frozen=True, eq=False)
class Expected:
    """The attention that a cache expects next, and what to call around it."""

    keys: Any
    """What the cache returned to the attention."""
    values: Any
    """What the cache returned to the attention."""
    before: Callable[[AttentionInputs], Any]
    """Returns the mask to use."""
    after: Callable[[], None]

    def attends(self, module: Any, key: Any, value: Any) -> bool:
        """Whether a module attends to these keys and values, or computes its own of them."""
        return (key is self.keys and value is self.values) or hasattr(module, EXPAND)


class _Pass(threading.local):
    """The forward pass of this thread: what hooks note for the attention that follows."""

    ids: Any = None
    """Its tokens (B, n); None if it began with embeddings."""
    hidden: Any = None
    """The hidden states (B, n, d) that entered the layer, until its attention takes them."""
    module: Any = None
    """The attention module that is running."""
    positions: Any = None
    """Those that rotary angles were last computed of (…, n), where they are captured."""
    expected: Expected | None = None
    """From the `update` of a cache to the attention that follows."""
    probe: Probe | None = None
    """While a model is probed: what `_attend` tells of each attention."""


this_pass = _Pass()


@dataclass(frozen=True, eq=False)
class Attention:
    """How a model attends: in each layer with heads of these sizes."""

    heads: int
    """Heads of queries."""
    kv_heads: int
    """Heads of keys and values that a cache holds."""
    head_width: int
    """Numbers of a key that queries are multiplied with."""
    latent: bool
    """Whether a cache holds latents, of which keys and values are computed with `EXPAND`."""
    implementation: str
    """One of `MASKS` or `FLASH`."""
    modules: Mapping[int, Any]
    """The module of each layer."""


def attach(model: Any, layers: tuple[int, ...]) -> Attention:
    """Wrap a model's attention, so that caches can expect it; once for each model.

    Returns how these layers attend. Raises a ValueError if it has another implementation, or one
    of the layers does not use the library's interface with what its cache gave.
    """
    # 1. Wrap the implementation that the model was loaded with.
    config = model.config.get_text_config(decoder=True)
    name = str(config._attn_implementation).removeprefix(PREFIX)
    # The library reads its version from the name, so the wrapper has the same.
    if name in FLASH:
        attention = transformers.AttentionInterface()[name]
        # Once for all models, as it is found by the same name from then on.
        if getattr(attention, "func", None) is not _attend:
            transformers.AttentionInterface.register(name, partial(_attend, attention))
    elif name not in MASKS:
        raise ValueError(
            f"the model's attention is {name!r}, but must be one of {', '.join((*MASKS, *FLASH))}: "
            "load it with attn_implementation="
        )
    elif config._attn_implementation == name:
        attention = sdpa_attention_forward if name == "sdpa" else None
        transformers.AttentionInterface.register(PREFIX + name, partial(_attend, attention))
        AttentionMaskInterface.register(PREFIX + name, MASKS[name])
        model.set_attn_implementation(PREFIX + name)
        if config._attn_implementation != PREFIX + name:
            raise ValueError(NO_INTERFACE)
    # 2. Hook its modules, unless this has been done. After a change of the implementation it is
    #    only probed again.
    hooked: Attention | None = vars(model).get(HOOKED)
    if hooked is not None and hooked.implementation == name:
        return hooked
    probed = _probed(model, name, layers)
    if hooked is None:
        _register(model, probed)
    vars(model)[HOOKED] = probed
    return probed


def check_attached(config: Any) -> None:
    """Raise a ValueError if a model's attention implementation has been changed since."""
    name = str(config.get_text_config(decoder=True)._attn_implementation)
    if not name.startswith(PREFIX) and name not in FLASH:
        raise ValueError(
            f"the model's attention was set to {name!r} after this PolicyCache was made, which "
            "can no longer see its queries: make a new PolicyCache"
        )


class Probe(DynamicCache):  # type: ignore[misc]
    """The cache of up to four texts of one token each, whose position is `start`.

    Making it runs the model. It notes the keys and values that each layer gives to it, and which
    module attends to what. `update` and `attended` alternate, as one layer runs after the other.
    """

    def __init__(self, model: Any, start: int = 0) -> None:
        super().__init__(config=model.config)
        self.start = start
        self.given: dict[int, tuple[Any, Any]] = {}  # keys and values of each layer
        self.called: set[int] = set()  # layers whose attention goes through the interface
        # Of those that also attend to what the cache returned:
        self.modules: dict[int, Any] = {}
        self.sizes: dict[
            int, tuple[int, int, int, bool]
        ] = {}  # the first fields of `Attention`
        self._last: tuple[int, Any, Any] | None = (
            None  # the layer, and what was returned to it
        )
        # A model in training draws random numbers, for dropout; its next ones must not change.
        devices = [model.device] if model.device.type == "cuda" else []
        with torch.no_grad(), torch.random.fork_rng(devices):
            this_pass.probe = self
            try:
                vocabulary = model.config.get_text_config(decoder=True).vocab_size
                # Not one token: that of padding may be 0 in all numbers, which no rotation changes.
                ids = torch.arange(min(4, vocabulary), device=model.device)[:, None]
                with as_value_error(
                    "the model cannot read a token with a cache of the library"
                ):
                    model(input_ids=ids, use_cache=True, **{cache_name(model): self})
            finally:
                this_pass.probe = None

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the next position."""
        return self.start

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Return the number of keys, and the position of the first."""
        return query_length, self.start

    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, *_: Any, **__: Any
    ) -> Any:
        """Note keys and values, and return copies of them."""
        self.given[layer_idx] = key_states, value_states
        # Copies, to tell attention to what a cache returns from attention to the model's own
        # tensors.
        returned = key_states.clone(), value_states.clone()
        self._last = layer_idx, *returned
        return returned

    def attended(self, module: Any, query: Any, key: Any, value: Any) -> None:
        """Note the attention of a layer, if it is to what the cache returned."""
        last = self._last
        self._last = None
        if last is None:  # attention without a cache, as in an encoder
            return
        layer, keys, values = last
        self.called.add(layer)
        latent = hasattr(module, EXPAND) and keys is not key
        if latent:
            expanded = getattr(module, EXPAND)(keys, values)
            if not all(map(torch.equal, expanded, (key, value))):
                return
        elif keys is not key or values is not value:
            return
        self.modules[layer] = module
        self.sizes[layer] = query.shape[1], keys.shape[1], key.shape[3], latent


def _probed(model: Any, implementation: str, layers: tuple[int, ...]) -> Attention:
    """Return how layers attend; raise a ValueError if that is not to what a cache returned."""
    probe = Probe(model)
    for layer in layers:
        if layer not in probe.modules:
            raise ValueError(OTHER_KEYS if layer in probe.called else NO_INTERFACE)
    sizes, *other_sizes = {probe.sizes[layer] for layer in layers}
    if other_sizes:
        raise ValueError("the layers of this model differ in their heads of keys")
    modules = {layer: probe.modules[layer] for layer in layers}
    return Attention(*sizes, implementation, modules)


def _register(model: Any, attention: Attention) -> None:
    """Register the hooks of a model."""
    names = {module: name for name, module in model.named_modules()}
    if hasattr(model, "prepare_inputs_for_generation"):
        model.prepare_inputs_for_generation = _with_checked_text(model)
    # A pass that begins with embeddings must not find the tokens of the pass before.
    model.register_forward_pre_hook(_forget_ids)
    model.get_input_embeddings().register_forward_pre_hook(_enter_embeddings)
    for module in {*attention.modules.values()}:
        # The parent of an attention module is the layer, which the hidden states enter.
        layer = model.get_submodule(names[module].rpartition(".")[0])
        layer.register_forward_pre_hook(_enter_layer, with_kwargs=True)
        module.register_forward_pre_hook(_enter_attention)
        module.register_forward_hook(_leave_attention, always_call=True)


def _with_checked_text(model: Any) -> Any:
    """Return the method that prepares the inputs of ``generate``, which first asks a cache."""
    prepare = type(model).prepare_inputs_for_generation
    argument = cache_name(model)

    @wraps(prepare)
    def checked(
        model: Any, ids: Any, next_sequence_length: int | None = None, **options: Any
    ) -> Any:
        if next_sequence_length is not None and next_sequence_length <= 0:
            refuse = getattr(options.get(argument), "refuse_text", None)
            if refuse is not None:
                refuse(ids.shape[1])
        return prepare(model, ids, next_sequence_length=next_sequence_length, **options)

    return MethodType(checked, model)


@eager
def _forget_ids(*_: Any) -> None:
    this_pass.ids = None


@eager
def _enter_embeddings(_: Any, inputs: tuple[Any, ...]) -> None:
    this_pass.ids = inputs[0] if inputs else None


@eager
def _enter_layer(_: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
    this_pass.hidden = inputs[0] if inputs else named["hidden_states"]


@eager
def _enter_attention(module: Any, _: Any) -> None:
    this_pass.module = module


@eager
def _leave_attention(*_: Any) -> None:
    this_pass.module = None


@eager
def _attend(
    attention: Callable[..., tuple[Any, Any]] | None,
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    **settings: Any,
) -> tuple[Any, Any]:
    """Attend by an implementation, by default the module's own eager one."""
    # 1. Take what was noted for this attention, so that no later one finds it.
    expected = this_pass.expected
    this_pass.expected = None
    hidden = this_pass.hidden
    this_pass.hidden = None
    attention = attention or sys.modules[type(module).__module__].eager_attention_forward
    if this_pass.probe is not None:
        this_pass.probe.attended(module, query, key, value)
    # 2. Without a cache that expects this attention, it is the model's own.
    if expected is None or not expected.attends(module, key, value):
        return attention(module, query, key, value, attention_mask, **settings)
    # 3. Otherwise the cache sees the inputs, chooses the mask, and may evict afterwards.
    inputs = AttentionInputs(
        queries=query,
        mask=attention_mask,
        scaling=settings.get("scaling"),
        hidden=hidden,
        ids=this_pass.ids,
        positions=this_pass.positions,
    )
    result = attention(module, query, key, value, expected.before(inputs), **settings)
    expected.after()
    return result
