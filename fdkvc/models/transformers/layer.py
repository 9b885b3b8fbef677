"""A layer's slots in a policy's cache, and which layers of a model a policy can evict from.

A `PolicyLayer` has the slots of B texts, then the tokens of the turn. With three slots and a turn
of two tokens, 8 and 9, one KV head of one text holds::

    slots | turn
    3 5 7 |             before the turn
    3 5 7 | 8 9         `update`: the model attends to all five
    3 7 9 |             `keep`: the policy evicted 5 and 8

1. `update` appends keys and values of new tokens; `add_vectors` and `add_queries` what else the
   policy looks at.
2. `mask` hides the empty slots of heads that hold fewer entries than others.
3. At the end of the turn, `vectors` and `states` give the policy what it looks at, text by text.
4. `keep` takes the entries chosen, which become the new slots (S of each KV head).

Shapes: H query heads, K KV heads, n or N tokens of the turn, h numbers of a head, d of a hidden
state. Tensors are replaced, never modified, so `copy.copy` of a layer is independent of it. Which
entries stay is known to the host, so nothing here waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.cache_utils import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionLayer,
)

from fdkvc.core.attention import Bools, Ints

KEYS_VALUES = ("keys", "values")

Where = Literal["slots", "turn", "all"]
"""Which vectors: of the slots, of the turn's tokens, or of both."""


class PolicyLayer(DynamicLayer):  # type: ignore[misc]
    """A layer's cache: the slots that the policy kept, followed by the tokens of the turn.

    `carried` names the vectors, besides keys and values, that are kept with the entries. If the
    layer holds latents, `expand` computes keys and values of them.
    """

    # By this the library refuses to decode with an assistant, which would take tokens back.
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
        self.turn_vectors: dict[str, list[Any]] = {}
        """Of each pass of the turn, what `add_vectors` was given (B, heads, n, ·)."""
        self.query_sum: Any = None
        """The sum of the turn's queries (B, H, 1, h), if any were added."""
        # Hidden states are the same for all heads, so they are not carried by each.
        self._carried = (*KEYS_VALUES, *(name for name in carried if name != "hidden"))
        # Vectors of the slots (B, ·, S, ·), besides their keys and values.
        self._beside: dict[str, Any] = {}
        self._sizes: list[int] = []  # slots S of each text; the others up to `held` are empty
        # Of each text: its hidden states (U, d), and the index of the one that each entry has.
        self._states: list[Any] = []
        self._state_of: list[Ints] = []  # (K, S)

    def get_seq_length(self) -> int:
        """Return the tokens seen, which is the next position."""
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of keys, and the position of the first in the mask.

        The positions are those of the last tokens seen. They are right for the turn's tokens. A
        slot stands before all of these, so each sees it, as it should.
        """
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

    def follow(self, leader: PolicyLayer) -> None:
        """Take over keys and values of a layer that has read on; both hold the whole text."""
        if not self.is_initialized:
            self.lazy_initialization(leader.keys, leader.values)
        self.seen = leader.seen
        self.keys = leader.keys
        self.values = leader.values

    def mask(self, query: Any, mask: Any, *, heads: int, flash: bool) -> Any:
        """Return the mask to use: of the slots by what they hold, of the turn as given.

        `query` has shape (B, H, n, h), and the library's `mask` (B, 1, n, S) or, of flash
        attention, (B, S). `heads` is H if heads may hold different entries, else 1.
        """
        empty = self.empty
        turn = self.turn
        if empty is None:
            # The library's mask has a column for each token seen, as long as all are here: neither
            # the policy nor the end of a turn, for padding, has removed any.
            if mask is None or self.seen == self.held + turn:
                return mask
            empty = query.new_zeros(len(query), 1, self.held, dtype=torch.bool)
            heads = 1
        if heads == 1:
            empty = empty[:, :1]
        else:
            empty = empty.repeat_interleave(heads // empty.shape[1], dim=1)
        if flash:
            new = empty.new_ones(len(query), turn)
            if mask is not None:
                new = mask[:, -turn:].bool()
            return torch.cat([~empty[:, 0], new], dim=1)
        if mask is None:  # what a token sees of the turn is masked elsewhere, if at all
            mask = query.new_zeros((len(query), 1, 1, turn))
        slots = ~empty[:, :, None]
        if mask.dtype != torch.bool:
            slots = mask.new_zeros(()).where(slots, torch.finfo(mask.dtype).min)
        shape = (len(query), heads, query.shape[2], -1)
        of_turn = mask[..., -turn:]
        return torch.cat([slots.expand(shape), of_turn.expand(shape)], dim=-1)

    def add_vectors(self, **vectors: Any) -> None:
        """Add vectors of the pass's tokens (B, heads, n, ·), besides their keys and values."""
        turn_vectors = dict(self.turn_vectors)
        for name, new in vectors.items():
            turn_vectors[name] = [*turn_vectors.get(name, ()), new]
        self.turn_vectors = turn_vectors

    def keep_last_queries(self, count: int, real: Any) -> None:
        """Of the turn's first pass, keep the last queries only; `real` (B, n) marks no padding."""
        queries = self.turn_vectors["queries"][0]
        if count >= queries.shape[2]:
            return
        if real is None:
            queries = queries[:, :, -count:].clone()  # a view would hold all of them
        else:  # padding first, then the tokens in order
            order = real.int().argsort(dim=1, stable=True)[:, None, -count:]
            queries = _gathered(queries, order.expand(len(queries), -1, -1))
        self.turn_vectors = self.turn_vectors | {"queries": [queries]}

    def add_queries(self, queries: Any, real: Any) -> None:
        """Add queries (B, H, n, h) to the sum of the turn's; `real` (B, n) leaves padding out."""
        if real is not None:
            queries = queries.masked_fill(~real[:, None, :, None], 0)
        # A long sum in half precision would no longer change with each query.
        added = queries.sum(dim=2, keepdim=True, dtype=torch.float32)
        self.query_sum = added if self.query_sum is None else self.query_sum + added

    def mean_query(self, text: int) -> Any:
        """Return the mean of the turn's queries of a text (H, 1, h)."""
        return self.query_sum[text] / self._new(text)

    def vectors(self, name: str, text: int, region: Where) -> Any:
        """Return vectors of a text as attention takes them (heads, ·, ·).

        Keys and values are computed, where the layer holds latents.
        """
        if self._expand is not None and name in KEYS_VALUES:
            latents = [self._stored(part, text, region)[None] for part in KEYS_VALUES]
            keys, values = self._expand(*latents)
            return keys[0] if name == "keys" else values[0]
        return self._stored(name, text, region)

    def _stored(self, name: str, text: int, region: Where) -> Any:
        vectors = self._all(name)[text]
        columns = self._columns(text)
        entries = len(columns) - self._new(text)  # in slots
        if name not in self._carried:  # of the turn's tokens alone
            columns = columns[entries:] - self.held
            dropped = self.turn - vectors.shape[1]
            entries = 0
            if dropped:  # of the first pass, see `keep_last_queries`
                stored = self.turn_vectors[name][0].shape[2]
                later = columns[columns >= stored + dropped] - dropped
                first_pass = min(stored, len(columns) - len(later))  # tokens of the first pass
                columns = np.append(np.arange(stored - first_pass, stored), later)
        if len(columns) < vectors.shape[1]:  # padding, or fewer slots than another text has
            vectors = vectors[:, on_device_of(vectors, columns)]
        if region == "all":
            return vectors
        return vectors[:, entries:] if region == "turn" else vectors[:, :entries]

    def states(self, text: int) -> tuple[Any, Any, Ints]:
        """Return hidden states of a text's entries (U, d), of its turn (n, d), and indices.

        An index (K, S) says which of the U states an entry of the slots has: each state is stored
        once, whichever KV heads hold its token.
        """
        turn = torch.cat([part[text, 0] for part in self.turn_vectors["hidden"]])
        if self.real is not None:
            turn = turn[on_device_of(turn, self.real[text])]
        if not self._states:
            return turn[:0], turn, np.empty((self.kv_heads, 0), np.intp)
        return self._states[text], turn, self._state_of[text]

    @property
    def other_tensors(self) -> list[Any]:
        """All tensors in use, except keys and values."""
        tensors = [*self._beside.values(), *self._states, *chain(*self.turn_vectors.values())]
        if self.query_sum is not None:
            tensors.append(self.query_sum)
        return tensors

    def keep(self, choices: Sequence[Ints]) -> None:
        """Keep entries of each text, which become its slots; the turn is over.

        They are places of its KV heads (K, S), −1 for none, which count the slots and then the
        turn's tokens.
        """
        sizes = [places.shape[1] for places in choices]
        # 1. Where the entries of each text are in `_all` (B, K, S), and which slots are empty. An
        #    empty one gets a copy of some entry, which `mask` hides.
        index = np.zeros((len(choices), self.kv_heads, max(sizes)), np.intp)
        empty = np.ones(index.shape, np.bool_)
        for text, (places, size) in enumerate(zip(choices, sizes, strict=True)):
            index[text, :, :size] = self._columns(text)[np.maximum(places, 0)]
            empty[text, :, :size] = places < 0
        # 2. One gather of each kind of vector.
        gathered = on_device_of(self.keys, index)
        entries = {name: _gathered(self._all(name), gathered) for name in self._carried}
        if "hidden" in self.turn_vectors:
            states = map(self._kept_states, range(len(choices)), choices)
            self._states, self._state_of = map(list, zip(*states, strict=True))
        # 3. The turn is over.
        self.held = max(sizes)
        self.keys, self.values = map(entries.pop, KEYS_VALUES)
        self._beside = entries
        self.empty = on_device_of(self.keys, empty) if empty.any() else None
        self._sizes = sizes
        self.turn_vectors = {}
        self.query_sum = None
        self.real = None

    def _all(self, name: str) -> Any:
        """Return vectors of the slots and the turn's tokens of all texts (B, ·, ·, ·)."""
        if name in KEYS_VALUES:
            return getattr(self, name)
        slot_parts = [self._beside[name]] if name in self._beside else []
        return torch.cat([*slot_parts, *self.turn_vectors.get(name, ())], dim=2)

    def _new(self, text: int) -> int:
        """Return the turn's tokens of a text, without padding."""
        return self.turn if self.real is None else int(self.real[text].sum())

    def _columns(self, text: int) -> Ints:
        """Return where in `_all` the entries and tokens of a text are, without padding."""
        slots = self._sizes[text] if self._sizes else 0
        turn = np.arange(self.turn)
        if self.real is not None:
            turn = np.flatnonzero(self.real[text])
        return np.concatenate([np.arange(slots), self.held + turn])

    def _kept_states(self, text: int, places: Ints) -> tuple[Any, Ints]:
        """Return the hidden states at places (K, S) that some head keeps, and their indices."""
        stored, turn, state_of = self.states(text)
        states = torch.cat([stored, turn])
        # The index of each place's state among these, of which the turn's are the last.
        new = len(stored) + np.arange(len(turn))
        new = np.broadcast_to(new, (len(state_of), len(new)))
        index = np.concatenate([state_of, new], axis=1)
        index = np.take_along_axis(index, np.maximum(places, 0), axis=1)
        is_used = np.zeros(len(states), np.bool_)
        is_used[index[places >= 0]] = True
        used_states = on_device_of(states, np.flatnonzero(is_used))
        # A state that is used becomes number so many of those used before it.
        # At least 0, as an empty slot may name a state before all that are used.
        renumbered = np.maximum(np.cumsum(is_used) - 1, 0)
        return states[used_states], renumbered[index]


def on_device_of(tensor: Any, array: NDArray[Any]) -> Any:
    """Return an array on the device of a tensor, without waiting for what that has yet to do."""
    # Elsewhere than on CUDA, a copy that is not waited for is not known to be safe.
    return torch.from_numpy(array).to(tensor.device, non_blocking=tensor.is_cuda)


class EarlyCopy:
    """A copy on the host that is begun at once, and waited for only where it is read."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor.detach()
        cuda = tensor.is_cuda  # elsewhere, no event says when it has arrived
        # On the CPU, too: whoever gave the tensor may write to it before this is read.
        self._copy = self.tensor.to("cpu", non_blocking=cuda, copy=True)
        self._arrived = (
            torch.cuda.current_stream(tensor.device).record_event() if cuda else None
        )

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
    index = places[..., None].expand(-1, -1, -1, entries.shape[-1])
    return entries.gather(2, index)


def kind_of(layer: Any) -> str:
    """Return a short description of a layer that is left to the model."""
    if isinstance(layer, DynamicSlidingWindowLayer):
        return f"window of {layer.sliding_window} tokens"
    return "linear attention" if type(layer) is LinearAttentionLayer else type(layer).__name__


def full_layers(layers: Sequence[Any], config: Any) -> tuple[int, ...]:
    """Return the numbers of the layers with full attention."""
    if getattr(config.get_text_config(decoder=True), "num_kv_shared_layers", 0):
        raise ValueError(
            "layers of this model share keys with others, which a policy cannot evict"
        )
    # By the exact type: layers with a window are derived from it, and evict by themselves.
    full = tuple(number for number, layer in enumerate(layers) if type(layer) is DynamicLayer)
    if not full:
        kinds = ", ".join(sorted({*map(kind_of, layers)}))
        raise ValueError(
            f"no layer of this model attends to the whole text ({kinds}), so there is nothing for "
            "a policy to decide"
        )
    return full
