"""A policy's cache for the ``generate`` of any causal *transformers* model.

Every layer holds the entries that the policy kept and those of the current turn. The library
builds one mask for all layers, so all have the same number of slots: a head that keeps fewer
entries has empty slots, which are masked. Positions count the tokens seen, so entries keep theirs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.generation import BaseStreamer

from fdkvc.attention import Floats, Ints
from fdkvc.live.attention_hooks import NO_INTERFACE, attach, check_attached, expect
from fdkvc.live.rotary import RotaryPositions
from fdkvc.lm.head_eviction import DECIDES, EvictionStep, HeadEviction, Heads, check_eviction
from fdkvc.parameters import Field, Parameter, check_parameter
from fdkvc.policies import Policy
from fdkvc.policies.together import POOL

EVERY = Parameter("Every", "Tokens after which policies evict while the model writes.", low=1)
POSITIONS = Field(
    "Positions",
    "Whether kept entries keep their positions or close the gaps.",
    name="positions",
    default="kept",
    choices={"kept": "as they were", "slots": "closed up"},
)

ENTRY_VECTORS = {"queries": "queries", "similarity": "hidden"}
"""Vectors, besides keys and values, that a policy needs of cached entries, by what it looks at."""

TURN_VECTORS = {"attention": "queries", **ENTRY_VECTORS}
"""Those that it needs of the turn's tokens."""


class PolicyLayer(DynamicLayer):  # type: ignore[misc]
    """A layer's cache: the slots that the policy kept, followed by the tokens of the turn.

    Parameters
    ----------
    carried : sequence of str
        Names of the vectors, besides keys and values, to keep with the entries.

    Attributes
    ----------
    seen, held : int
        Tokens so far, and slots.
    empty : tensor (K, S) of bool, optional
        Marks empty slots.
    """

    is_croppable = False

    def __init__(self, carried: Sequence[str]) -> None:
        super().__init__()
        self.seen = self.held = 0
        self.empty: Any = None
        self._carried = carried
        self._aside: dict[str, Any] = {}  # of slots and second tier; keys, values of that alone
        self._shared: Any = None  # which of the hidden states aside is each slot's (K, S + R)
        self._brought: dict[str, list[Any]] = {}

    def get_seq_length(self) -> int:
        """Return the tokens seen, which is the next position."""
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of keys, and the position of the first in the mask."""
        there = self.keys.shape[-2] if self.is_initialized else 0
        return there + query_length, self.seen - there

    def update(self, key_states: Any, value_states: Any, *args: Any, **named: Any) -> Any:
        """Add the keys and values of new tokens; return all."""
        self.seen += key_states.shape[-2]
        return super().update(key_states, value_states, *args, **named)

    def bring(self, **vectors: Any) -> None:
        """Add further vectors of the turn's tokens (heads, n, ·)."""
        more = {name: [*self._brought.get(name, ()), each] for name, each in vectors.items()}
        self._brought = self._brought | more

    def slots(self, name: str) -> Any:
        """Return the vectors of the slots and of the second tier (heads, S + R, ·)."""
        if name not in self._aside:
            return self.new(name)[:, :0]
        if name in ("keys", "values"):
            held = getattr(self, name)[0, :, : self.held]
            return torch.cat([held, self._aside[name]], dim=1)
        if name == "hidden":
            return self._aside[name][0, self._shared]
        return self._aside[name]

    def new(self, name: str) -> Any:
        """Return the vectors of the turn's tokens (heads, n, ·)."""
        if name in ("keys", "values"):
            return getattr(self, name)[0, :, self.held :]
        return torch.cat(self._brought[name], dim=1)

    @property
    def beside(self) -> list[Any]:
        """All tensors but keys and values that are in use."""
        return [*self._aside.values(), *chain(*self._brought.values())]

    def keep(self, places: Any, held: int) -> None:
        """Keep the entries at these places of each KV head (K, S + R), −1 for none; S as slots."""
        there, found = places >= 0, {}
        for name in ("keys", "values", *self._carried):
            if name == "hidden":
                found[name], self._shared = self._hidden(places.clamp(min=0))
                continue
            both = torch.cat([self.slots(name), self.new(name)], dim=1)
            where = places.clamp(min=0).repeat_interleave(len(both) // len(places), dim=0)
            found[name] = both.gather(1, where[..., None].expand(-1, -1, both.shape[-1]))
        self.keys, self.values = (found[name][None, :, :held] for name in ("keys", "values"))
        self._aside = {
            name: each[:, held:] if name in ("keys", "values") else each
            for name, each in found.items()
        }
        self._brought, self.held = {}, held
        self.empty = None if there[:, :held].all() else ~there[:, :held]

    def _hidden(self, places: Any) -> tuple[Any, Any]:
        """Return the hidden states at these places, each once (1, U, d), and their indices.

        The heads of a layer share them, since they are large.
        """
        new = self.new("hidden")
        known = self._aside.get("hidden", new[:, :0])
        own = torch.arange(new.shape[1], device=new.device).expand(len(places), -1)
        own = own + known.shape[1]
        before = own[:, :0] if self._shared is None else self._shared
        used, which = torch.cat([before, own], dim=1).gather(1, places).unique(return_inverse=True)
        return torch.cat([known, new], dim=1)[:, used], which


class PolicyCache(DynamicCache):  # type: ignore[misc]
    """A cache that a policy evicts from between turns.

    A prompt's turn ends with its forward pass; that of the model's own tokens with the next prompt,
    or at once with `end_turn` or `streamer`.

    Parameters
    ----------
    policy : Policy
        Any that evicts and does not look at the future.
    budget : int
        Entries that each KV head may hold at the end of a turn.
    model : the library's
        A causal model, whose attention is *eager* or *sdpa*.
    every : int, optional
        Also end a turn every so many tokens while the model writes.
    decides : {"head", "layer", "model"}
        Whether each KV head decides for itself, or all heads of a layer or of the model together.
    pool : {"mean", "max"}
        How to combine the scores of query heads that decide together.
    positions : {"kept", "slots"}
        Whether entries keep their rotary positions or close the gaps, as in StreamingLLM: rotated
        once, from keys stored without positions.
    by_itself : bool
        Whether turns end automatically; otherwise only `end_turn` ends one.
    record : bool
        Whether to store all vectors and decisions for `fdkvc.live.recorded`.

    Attributes
    ----------
    decided : tuple of int
        Layers that the policy evicts from; those with a sliding window are left to the model.
    deciding : HeadEviction, optional
        The policy's state; None before the first turn has ended.
    ends : list of int
        The tokens seen at the end of each turn.
    decisions : list of EvictionStep
        Of each turn, if recorded.

    Raises
    ------
    ValueError
        For an unsupported policy, option or model; in use, for more than one text at once.

    Notes
    -----
    A policy sees logits as q·k/√h with the model's scaling, but without logit caps or attention
    sinks that are not tokens.

    Examples
    --------
    ``model.generate(**turn, past_key_values=PolicyCache(policy, budget=256, model=model))``
    """

    def __init__(
        self,
        policy: Policy,
        budget: int,
        model: Any,
        *,
        every: int | None = None,
        decides: str = DECIDES.default,
        pool: str = POOL.default,
        positions: str = POSITIONS.default,
        by_itself: bool = True,
        record: bool = False,
    ) -> None:
        check_eviction(policy, budget, decides, pool)
        check_within_a_cache(policy)
        POSITIONS.check(positions, "positions")
        if every is not None:
            check_parameter("every", EVERY, every, int)
        super().__init__(config=model.config)
        self.policy, self.budget, self.every, self.by_itself = policy, budget, every, by_itself
        self._choice = decides, pool
        self.decided = _full_layers(self.layers)
        attach(model)
        self._config = model.config
        self._rotary = RotaryPositions(model) if positions == "slots" else None
        self._needed = {TURN_VECTORS[look] for look in policy.looks_at if look in TURN_VECTORS}
        self._captured = {"queries", "hidden"} if record else self._needed
        carried = [ENTRY_VECTORS[look] for look in policy.looks_at if look in ENTRY_VECTORS]
        if self._rotary is not None:
            carried.append("unturned")
        for number in self.decided:
            self.layers[number] = PolicyLayer(carried)
        self.deciding: HeadEviction | None = None
        self.ends: list[int] = []
        self.decisions: list[EvictionStep] = []
        self._recorded: dict[tuple[str, int], list[Floats]] | None = {} if record else None
        self._heads: int | None = None  # of queries, known from the hooks
        self._read = 0  # tokens of this forward pass

    # --------------------------------------------------------------------------- library interface

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Return the mask's sizes; a prompt first ends the turn of the tokens written before."""
        if self.by_itself and query_length > 1:
            self.end_turn()
        sizes: tuple[int, int] = super().get_mask_sizes(query_length, layer_idx)
        return sizes

    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **named: Any
    ) -> Any:
        """Add the keys and values of new tokens; return all of the layer."""
        check_attached(self._config)
        if len(key_states) != 1:
            raise ValueError(
                f"a PolicyCache is for one text, but there are {len(key_states)} at once: "
                "generate one after the other, each with a cache of its own"
            )
        keys, values = super().update(key_states, value_states, layer_idx, *args, **named)
        if layer_idx in self.decided:
            expect(self, layer_idx, keys, values)
        return keys, values

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse: evicted entries are gone."""
        raise ValueError("a PolicyCache cannot go back: make a fork of it before")

    def reset(self) -> None:
        """Refuse."""
        raise ValueError("a PolicyCache is for one text: make a new one for another")

    def reorder_cache(self, beam_idx: Any) -> None:
        """Refuse."""
        raise ValueError("a PolicyCache is for one text, and cannot serve several beams")

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Refuse."""
        raise ValueError("a PolicyCache is for one text: make a fork of it for each continuation")

    def batch_select_indices(self, indices: Any) -> None:
        """Refuse."""
        raise ValueError("a PolicyCache is for one text, of which none can be selected")

    def __repr__(self) -> str:
        left = f"; {self.left}" if self.left else ""
        return f"PolicyCache({self.policy.name}, budget {self.budget}{left})"

    # --------------------------------------------------------------------------- attention hooks

    def before_attention(
        self, layer: int, query: Any, mask: Any, *, scaling: float | None, hidden: Any
    ) -> Any:
        """See `fdkvc.live.attention_hooks.Listener`."""
        held, (_, self._heads, self._read, h) = self.layers[layer], query.shape
        if layer == self.decided[0]:
            _check_whole(mask)
        captured = {}
        if "queries" in self._captured:
            scale = 1.0 if scaling is None else float(scaling) * math.sqrt(h)
            captured["queries"] = query[0].detach() * scale
        if "hidden" in self._captured:
            captured["hidden"] = hidden.detach()
        held.bring(**{name: captured[name] for name in self._needed})
        if self._recorded is not None:
            own = {name: getattr(held, name)[0, :, -self._read :] for name in ("keys", "values")}
            for name, vectors in (captured | own).items():
                self._recorded.setdefault((name, layer), []).append(_numpy(vectors))
        if held.empty is None:
            return mask
        unseen = held.empty.repeat_interleave(self._heads // len(held.empty), dim=0)
        unseen = pad(unseen, (0, held.keys.shape[2] - held.held))[None, :, None]
        if mask is None:  # a single token sees everything
            mask = query.new_zeros(())
        if mask.dtype == torch.bool:
            return mask & ~unseen
        return mask.where(~unseen, torch.finfo(mask.dtype).min)

    def after_attention(self, layer: int) -> None:
        """See `fdkvc.live.attention_hooks.Listener`."""
        if not self.by_itself or layer != self.decided[-1]:
            return
        a_prompt = self._read > 1
        if a_prompt or (self.every is not None and self._new >= self.every):
            self.end_turn()

    # --------------------------------------------------------------------------- eviction

    @property
    def seen(self) -> int:
        """Tokens so far."""
        return int(self.layers[self.decided[0]].seen)

    @property
    def _new(self) -> int:
        """Tokens since the last turn ended."""
        return self.seen - (0 if self.deciding is None else self.deciding.count)

    @property
    def held(self) -> Ints:
        """The tokens that each head holds (L, K, S) in the decided layers, −1 for none."""
        layers = [self.layers[number] for number in self.decided]
        if not layers[0].is_initialized:
            return np.empty((len(layers), 0, 0), np.intp)
        new = np.arange(self.seen - self._new, self.seen)
        shape = len(layers), layers[0].keys.shape[1]
        left = np.empty((*shape, 0), np.intp) if self.deciding is None else self.deciding.held
        return np.concatenate([left, np.broadcast_to(new, (*shape, len(new)))], axis=2)

    @property
    def left(self) -> str:
        """A note on the layers that are left to the model; empty without any."""
        numbers = [str(at) for at in range(len(self.layers)) if at not in self.decided]
        if not numbers:
            return ""
        return f"left to the model, with windows of their own: layers {', '.join(numbers)}"

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors in all layers."""
        return bytes_of(self)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def end_turn(self) -> None:
        """End the turn: the policy evicts. Without new tokens nothing happens."""
        layers, new = [self.layers[number] for number in self.decided], self._new
        if not new:
            return
        before = self.deciding or self._beginning(layers)
        turned = self._rotary
        if turned is not None:
            began = torch.arange(self.seen - new, self.seen).expand(before.heads.kv_heads, -1)
            for number, layer in zip(self.decided, layers, strict=True):
                keys = layer.new("keys").float()
                layer.bring(unturned=turned(keys, began.to(keys.device), number, back=True))
        self.deciding, decision = before.after(new, _LayerVectors(layers))
        held = decision.held
        for layer, places in zip(layers, torch.from_numpy(decision.sources), strict=True):
            layer.keep(places.to(layer.keys.device), held.shape[2])
        if turned is not None:
            behind = np.cumsum((held >= 0)[:, :, ::-1], axis=2)[:, :, ::-1]
            where = torch.from_numpy(self.seen - behind)
            for number, layer, own in zip(self.decided, layers, where, strict=True):
                keys = layer.slots("unturned")[:, : held.shape[2]]
                keys = turned(keys, own.to(keys.device), number)
                layer.keys = keys[None].to(layer.keys.dtype)
        self.ends = [*self.ends, self.seen]
        if self._recorded is not None:
            self.decisions = [*self.decisions, decision]

    def _beginning(self, layers: Sequence[PolicyLayer]) -> HeadEviction:
        if self._heads is None:
            raise ValueError(NO_INTERFACE)
        ((kv_heads, width), *others) = {
            (layer.keys.shape[1], layer.keys.shape[3]) for layer in layers
        }
        if others:
            raise ValueError("the layers of this model differ in their heads of keys")
        heads = Heads(len(layers), self._heads, kv_heads, width)
        return HeadEviction(self.policy, self.budget, heads, *self._choice)

    def streamer(self, more: Any = None) -> Any:
        """Return a streamer for ``generate`` that ends the turn when generation ends.

        Parameters
        ----------
        more : the library's, optional
            A streamer to forward to.

        Examples
        --------
        ``model.generate(**turn, past_key_values=cache, streamer=cache.streamer())``
        """
        return _TurnEnd(self, more)

    def fork(self) -> PolicyCache:
        """Return an independent copy; both share the tensors that they hold now."""
        other = copy.copy(self)
        other.layers = [copy.copy(layer) for layer in self.layers]  # tensors are never modified
        if self._recorded is not None:
            other._recorded = {name: [*parts] for name, parts in self._recorded.items()}
        return other

    def recorded(self, name: str) -> Floats:
        """Return the queries, keys, values or hidden states of all tokens (L, heads, N, ·).

        Raises
        ------
        LookupError
            If they were not recorded.
        """
        if self._recorded is None:
            raise LookupError("this cache records nothing: make one with record=True")
        parts = [self._recorded[name, layer] for layer in self.decided]
        return np.stack([np.concatenate(part, axis=1) for part in parts])


class _TurnEnd(BaseStreamer):  # type: ignore[misc]
    """Ends the turn when ``generate`` ends."""

    def __init__(self, cache: PolicyCache, more: Any) -> None:
        self._cache, self._more = cache, more

    def put(self, value: Any) -> None:
        if self._more is not None:
            self._more.put(value)

    def end(self) -> None:
        self._cache.end_turn()
        if self._more is not None:
            self._more.end()


class _LayerVectors:
    """The vectors of the entries held before a turn, and of the turn."""

    def __init__(self, layers: Sequence[PolicyLayer]) -> None:
        self._layers = layers

    def held(self, name: str) -> Floats:
        return np.stack([_numpy(layer.slots(name)) for layer in self._layers])

    def new(self, name: str) -> Floats:
        return np.stack([_numpy(layer.new(name)) for layer in self._layers])


def _full_layers(layers: Sequence[Any]) -> tuple[int, ...]:
    """Return the numbers of the layers with full attention."""
    for layer in layers:
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            kind = type(layer).__name__
            raise ValueError(
                f"a layer of this model uses a {kind}, from which nothing can be evicted"
            )
    full = tuple(at for at, layer in enumerate(layers) if type(layer) is DynamicLayer)
    if not full:
        raise ValueError(
            f"all layers of this model see a window of {layers[0].sliding_window} tokens, so there "
            "is nothing for a policy to decide"
        )
    return full


def _check_whole(mask: Any) -> None:
    """Raise a ValueError if the last token does not see everything, as with padding."""
    if mask is None:
        return
    last = mask[..., -1, :]
    if not bool((last if last.dtype == torch.bool else last >= 0).all()):
        raise ValueError("a PolicyCache is for one text without padding")


def check_within_a_cache(policy: Policy) -> None:
    """Raise a ValueError for a policy that needs what a *transformers* cache cannot provide."""
    refusal = None
    if "surprisal" in policy.looks_at:
        refusal = "weighs how surprising tokens are, which a PolicyCache does not see"
    elif policy.reads_afresh:
        refusal = (
            "stores everything and chooses afresh what each turn reads, but a PolicyCache evicts"
        )
    if refusal:
        raise ValueError(f"{policy.label} {refusal}")


def _numpy(vectors: Any) -> Floats:
    array: Floats = vectors.detach().float().cpu().numpy()
    return array


def bytes_of(cache: Any) -> int:
    """Return the bytes of all tensors of a *transformers* cache."""
    tensors = (
        tensor
        for layer in cache.layers
        for tensor in (layer.keys, layer.values, *getattr(layer, "beside", ()))
        if tensor is not None
    )
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
