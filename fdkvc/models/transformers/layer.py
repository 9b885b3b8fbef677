"""A layer's slots in a policy's cache, and which layers of a model a policy can evict from.

A `PolicyLayer` has the slots of B texts, then the tokens of the turn:

1. `update` appends keys and values of new tokens, and `bring` other vectors of them, or a sum.
2. `mask` hides the empty slots of heads that hold fewer entries than others.
3. At the end of the turn, `vectors` and `states` give the policy what it looks at, by text.
4. `keep` takes the entries chosen: new slots, and a second tier beside them, which is not attended
   to (S and R of each KV head). The turn's tokens are gone.

Shapes: H query heads, K KV heads, n or N tokens of the turn, h numbers of a head, d of a state. No
tensor that is in use is modified, so `copy.copy` of a layer is independent of it. What is kept is
computed by NumPy, so nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer

from fdkvc.core.attention import Bools, Ints

KEYS_VALUES = ("keys", "values")

Where = Literal["slots", "turn", "all"]
"""Which vectors: of the slots and second tier, of the turn's tokens, or of both."""


class Kept(NamedTuple):
    """Which entries of a text a layer keeps."""

    places: Ints
    """Places of its KV heads (K, S + R), −1 for none: slots, second tier and the turn's tokens are
    counted one after the other. The first S become slots, the others the second tier."""
    size: int
    """The number of slots S."""


class PolicyLayer(DynamicLayer):  # type: ignore[misc]
    """A layer's cache: the slots that the policy kept, followed by the tokens of the turn.

    `carried` names the vectors, besides keys and values, to keep with the entries; `expand` returns
    the keys and values of latents, if the layer holds these in their place.
    """

    is_croppable = False
    keys: Any
    values: Any

    def __init__(
        self, carried: Sequence[str], expand: Callable[..., tuple[Any, Any]] | None = None
    ) -> None:
        super().__init__()
        self._expand = expand
        self.seen = 0
        """Tokens so far, padding included."""
        self.held = 0
        """Slots of each head."""
        self.real: Bools | None = None
        """Which of the turn's tokens are not padding (B, N); all if None."""
        self.empty: Any = None
        """Marks empty slots (B, K, S), if there are any."""
        self._carried = (*KEYS_VALUES, *(name for name in carried if name != "hidden"))
        # Of slots and second tier (B, ·, S + R, ·), but keys and values of the tier alone.
        self._aside: dict[str, Any] = {}
        self._tier = 0  # R
        self._sizes: list[int] = []  # slots S of each text; the others up to `held` are empty
        self._brought: dict[str, list[Any]] = {}  # of each pass of the turn
        self._query_sum: Any = None  # of the turn's queries (B, H, 1, h)
        # Of each text: hidden states, each once (U, d), and which of them each entry has.
        self._states: list[Any] = []
        self._shared: list[Ints] = []  # (K, S + R)

    def get_seq_length(self) -> int:
        """Return the tokens seen, which is the next position."""
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of keys, and the position of the first in the mask."""
        present = self.held + self.turn
        return present + query_length, self.seen - present

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return int(self.keys.shape[1])

    @property
    def turn(self) -> int:
        """Tokens of this turn, padding included."""
        return self.keys.shape[2] - self.held if self.is_initialized else 0

    def update(self, key_states: Any, value_states: Any, *args: Any, **named: Any) -> Any:
        """Add the keys and values of new tokens; return all."""
        self.seen += key_states.shape[-2]
        return super().update(key_states, value_states, *args, **named)

    def follow(self, other: PolicyLayer) -> None:
        """Take over keys and values of a layer that has read on; both hold the whole text."""
        if not self.is_initialized:
            self.lazy_initialization(other.keys, other.values)
        self.seen, self.keys, self.values = other.seen, other.keys, other.values

    def mask(self, query: Any, mask: Any, *, heads: int, flash: bool) -> Any:
        """Return the mask to use: of the slots by what they hold, of the turn as given.

        `query` has shape (B, H, n, h), and the library's `mask` (B, 1, n, S) or, of flash
        attention, (B, S). `heads` is H if heads may hold different entries, else 1.
        """
        empty, turn = self.empty, self.turn
        if empty is None:
            # The library's mask has a column for each token seen, as long as all are here: neither
            # the policy nor the end of a turn, for padding, has removed any.
            if mask is None or self.seen == self.held + turn:
                return mask
            empty, heads = query.new_zeros(len(query), 1, self.held, dtype=torch.bool), 1
        empty = empty[:, :1] if heads == 1 else empty.repeat_interleave(heads // empty.shape[1], 1)
        if flash:
            new = empty.new_ones(len(query), turn) if mask is None else mask[:, -turn:].bool()
            return torch.cat([~empty[:, 0], new], dim=1)
        if mask is None:  # what a token sees of the turn is masked elsewhere, if at all
            mask = query.new_zeros((len(query), 1, 1, turn))
        slots = ~empty[:, :, None]
        if mask.dtype != torch.bool:
            slots = mask.new_zeros(()).where(slots, torch.finfo(mask.dtype).min)
        shape = (len(query), heads, query.shape[2], -1)
        return torch.cat([slots.expand(shape), mask[..., -turn:].expand(shape)], dim=-1)

    def bring(self, **vectors: Any) -> None:
        """Add further vectors of the turn's tokens (B, heads, n, ·)."""
        added = {name: [*self._brought.get(name, ()), new] for name, new in vectors.items()}
        self._brought = self._brought | added

    def add_queries(self, queries: Any, real: Any) -> None:
        """Add queries (B, H, n, h) to the sum of the turn's; `real` (B, n) leaves padding out."""
        if real is not None:
            queries = queries.masked_fill(~real[:, None, :, None], 0)
        added, before = queries.sum(dim=2, keepdim=True, dtype=torch.float32), self._query_sum
        self._query_sum = added if before is None else before + added

    @property
    def noted(self) -> set[str]:
        """What is there of the turn's tokens besides keys and values."""
        return {*self._brought} | ({"mean query"} if self._query_sum is not None else set())

    def mean_query(self, text: int) -> Any:
        """Return the mean of the turn's queries of a text (H, 1, h)."""
        return self._query_sum[text] / self._new(text)

    def vectors(self, name: str, text: int, where: Where) -> Any:
        """Return vectors of a text as attention takes them (heads, ·, ·).

        Keys and values are computed, where the layer holds latents.
        """
        if self._expand is not None and name in KEYS_VALUES:
            latents = (self._stored(part, text, where)[None] for part in KEYS_VALUES)
            return self._expand(*latents)[KEYS_VALUES.index(name)][0]
        return self._stored(name, text, where)

    def _stored(self, name: str, text: int, where: Where) -> Any:
        vectors, columns = self._all(name)[text], self._columns(text)
        before = len(columns) - self._new(text)
        if name not in self._carried:  # of the turn's tokens alone
            before, columns = 0, columns[before:] - self.held - self._tier
        if len(columns) < vectors.shape[1]:  # padding, or fewer slots than another text has
            vectors = vectors[:, on_device_of(vectors, columns)]
        return vectors[:, before if where == "turn" else 0 : before if where == "slots" else None]

    def states(self, text: int) -> tuple[Any, Any, Ints]:
        """Return hidden states of a text's entries, each once (U, d), and of the turn (n, d).

        With them come the indices of those that the slots and second tier have (K, S + R).
        """
        parts = [part[text, 0] for part in self._brought["hidden"]]
        turn = parts[0] if len(parts) == 1 else torch.cat(parts)
        if self.real is not None:
            turn = turn[on_device_of(turn, self.real[text])]
        if not self._states:
            return turn[:0], turn, np.empty((self.kv_heads, 0), np.intp)
        return self._states[text], turn, self._shared[text]

    @property
    def beside(self) -> list[Any]:
        """All tensors in use, except keys and values."""
        sums = [] if self._query_sum is None else [self._query_sum]
        return [*self._aside.values(), *self._states, *chain(*self._brought.values()), *sums]

    def keep(self, kept: Sequence[Kept]) -> None:
        """Keep entries of each text, which become its slots and second tier; the turn is over."""
        most, (places, size) = max(size for _, size in kept), kept[0]
        # 1. Where the entries are in each text, and which slots are empty.
        index = np.zeros((len(kept), len(places), most + places.shape[1] - size), np.intp)
        empty = np.ones((*index.shape[:2], most), np.bool_)
        for text, (places, size) in enumerate(kept):
            where = self._columns(text)[np.maximum(places, 0)]
            index[text, :, :size], index[text, :, most:] = where[:, :size], where[:, size:]
            empty[text, :, :size] = places[:, :size] < 0
        # 2. One gather of each kind of vector.
        gathered = on_device_of(self.keys, index)
        entries = {name: _gathered(self._all(name), gathered) for name in self._carried}
        if "hidden" in self._brought:
            states = [self._kept_states(text, places) for text, (places, _) in enumerate(kept)]
            self._states, self._shared = map(list, zip(*states, strict=True))
        self.held, self._tier = most, index.shape[2] - most
        keys, values = (entries.pop(name) for name in KEYS_VALUES)
        self.keys, self.values = keys[:, :, :most], values[:, :, :most]
        if self._tier:  # without one, nothing refers to what the next pass replaces
            entries |= {"keys": keys[:, :, most:], "values": values[:, :, most:]}
        self._aside = entries
        self.empty = on_device_of(self.keys, empty) if empty.any() else None
        self._sizes = [size for _, size in kept]
        self._brought, self._query_sum, self.real = {}, None, None

    def _all(self, name: str) -> Any:
        """Return vectors of slots, second tier and the turn's tokens of all texts (B, ·, ·, ·)."""
        if name not in KEYS_VALUES:
            before = [self._aside[name]] if name in self._aside else []
            return torch.cat([*before, *self._brought.get(name, ())], dim=2)
        stored = getattr(self, name)
        if not self._tier:
            return stored
        slots, turn = stored[:, :, : self.held], stored[:, :, self.held :]
        return torch.cat([slots, self._aside[name], turn], dim=2)

    def _new(self, text: int) -> int:
        """Return the turn's tokens of a text, without padding."""
        return self.turn if self.real is None else int(self.real[text].sum())

    def _columns(self, text: int) -> Ints:
        """Return where in `_all` the entries and tokens of a text are, without padding."""
        slots = self._sizes[text] if self._sizes else 0
        end = self.held + self._tier
        turn = np.arange(self.turn) if self.real is None else np.flatnonzero(self.real[text])
        return np.concatenate([np.arange(slots), np.arange(self.held, end), end + turn])

    def _kept_states(self, text: int, places: Ints) -> tuple[Any, Ints]:
        """Return the hidden states at places (K, S + R), each once, and the indices of these."""
        stored, turn, shared = self.states(text)
        new = np.broadcast_to(len(stored) + np.arange(len(turn)), (len(shared), len(turn)))
        states, every = torch.cat([stored, turn]), np.concatenate([shared, new], axis=1)
        index = np.take_along_axis(every, np.maximum(places, 0), axis=1)
        used = np.zeros(len(states), np.bool_)
        used[index[places >= 0]] = True
        kept = on_device_of(states, np.flatnonzero(used))
        return states[kept], np.maximum(np.cumsum(used) - 1, 0)[index]


def on_device_of(tensor: Any, array: NDArray[Any]) -> Any:
    """Return an array on the device of a tensor; what is yet to be done there is not waited for."""
    device = tensor.device  # elsewhere than on CUDA, this is not known to be safe
    return torch.from_numpy(array).to(device, non_blocking=device.type == "cuda")


class EarlyCopy:
    """A copy on the host that is begun at once, and waited for only where it is read."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor.detach()
        cuda = tensor.is_cuda  # elsewhere, no event says when it has arrived
        self._copy = self.tensor.to("cpu", non_blocking=cuda, copy=True)
        self._arrived = torch.cuda.current_stream(tensor.device).record_event() if cuda else None

    def numpy(self) -> NDArray[Any]:
        """Return the copy; the device need not have done what it was given after it."""
        if self._arrived is not None:
            self._arrived.synchronize()
        array: NDArray[Any] = self._copy.numpy()
        return array


def _gathered(entries: Any, places: Any) -> Any:
    """Return the entries (B, heads, N, ·) at the places of each KV head (B, K, S)."""
    group = entries.shape[1] // places.shape[1]  # heads of a group keep the same
    if group > 1:
        places = places.repeat_interleave(group, dim=1)
    return entries.gather(2, places[..., None].expand(-1, -1, -1, entries.shape[-1]))


def kind_of(layer: Any) -> str:
    """Return a short description of a layer that is left to the model."""
    if isinstance(layer, DynamicSlidingWindowLayer):
        return f"window of {layer.sliding_window} tokens"
    return "linear attention" if type(layer) is LinearAttentionLayer else type(layer).__name__


def full_layers(layers: Sequence[Any], config: Any) -> tuple[int, ...]:
    """Return the numbers of the layers with full attention."""
    if getattr(config.get_text_config(decoder=True), "num_kv_shared_layers", 0):
        raise ValueError("layers of this model share keys with others, which a policy cannot evict")
    full = tuple(number for number, layer in enumerate(layers) if type(layer) is DynamicLayer)
    if not full:
        kinds = ", ".join(sorted({kind_of(layer) for layer in layers}))
        raise ValueError(
            f"no layer of this model attends to the whole text ({kinds}), so there is nothing for "
            "a policy to decide"
        )
    return full
