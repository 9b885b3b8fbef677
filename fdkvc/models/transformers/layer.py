"""A layer's slots in a policy's cache, and which layers of a model a policy can evict from.

A `PolicyLayer` has the slots of B texts, then the tokens of the turn:

1. `update` appends keys and values of new tokens, and `bring` other vectors of them.
2. `mask` hides the empty slots of heads that hold fewer entries than others.
3. At the end of the turn, `vectors` gives the policy what it looks at, by text.
4. `keep` takes the entries chosen: new slots, and a second tier beside them, which is not attended
   to (S and R of each KV head). The turn's tokens are gone.

Shapes: H query heads, K KV heads, n or N tokens of the turn, h numbers of a head, d of a state. No
tensor that is in use is modified, so `copy.copy` of a layer is independent of it.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer

KEYS_VALUES = ("keys", "values")


class Kept(NamedTuple):
    """Which entries of a text a layer keeps."""

    places: Any
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

    def __init__(
        self, carried: Sequence[str], expand: Callable[..., tuple[Any, Any]] | None = None
    ) -> None:
        super().__init__()
        self._expand = expand
        self.seen = 0
        """Tokens so far, padding included."""
        self.held = 0
        """Slots of each head."""
        self.real: Any = None
        """Which of the turn's tokens are not padding (B, n); all if None."""
        self.empty: Any = None
        """Marks empty slots (B, K, S), if there are any."""
        self._carried = carried
        # Of each text: keys and values of the second tier (K, R, h), others of slots and tier
        # (heads, S + R, ·), but each hidden state once (1, U, d).
        self._aside: list[dict[str, Any]] = []
        self._shared: list[Any] = []  # which of the hidden states aside each entry has (K, S + R)
        self._sizes: list[int] = []  # slots S of each text; the others up to `held` are empty
        self._brought: dict[str, list[Any]] = {}  # of each pass of the turn

    def get_seq_length(self) -> int:
        """Return the tokens seen, which is the next position."""
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of keys, and the position of the first in the mask."""
        present = self.held + self.turn
        return present + query_length, self.seen - present

    @property
    def turn(self) -> int:
        """Tokens of this turn, padding included."""
        return self.keys.shape[2] - self.held if self.is_initialized else 0

    def update(self, key_states: Any, value_states: Any, *args: Any, **named: Any) -> Any:
        """Add the keys and values of new tokens; return all."""
        self.seen += key_states.shape[-2]
        return super().update(key_states, value_states, *args, **named)

    def mask(self, query: Any, mask: Any, *, heads: int, flash: bool, padded: bool) -> Any:
        """Return the mask to use: of the slots by what they hold, of the turn as given.

        `query` has shape (B, H, n, h), and the library's `mask` (B, 1, n, S) or, of flash
        attention, (B, S). `heads` is H if heads may hold different entries, else 1; `padded` says
        whether a text has padding.
        """
        empty, turn = self.empty, self.turn
        whole = mask is None or (not padded and mask.shape[-1] == self.held + turn)
        if empty is None:
            if whole:
                return mask
            empty, heads = query.new_zeros(len(query), 1, self.held, dtype=torch.bool), 1
        empty = empty[:, :1] if heads == 1 else empty.repeat_interleave(heads // empty.shape[1], 1)
        if flash:
            new = empty.new_ones(len(query), turn) if mask is None else mask[:, -turn:].bool()
            return torch.cat([~empty[:, 0], new], dim=1)
        if mask is None:  # a single token sees everything
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

    def slots(self, name: str, text: int = 0) -> Any:
        """Return the vectors of a text's slots and of its second tier (heads, S + R, ·)."""
        if not self._aside:
            return self.new(name, text)[:, :0]
        aside = self._aside[text][name]
        if name in KEYS_VALUES:
            held = getattr(self, name)[text, :, : self._sizes[text]]
            return torch.cat([held, aside], dim=1)
        return aside[0, self._shared[text]] if name == "hidden" else aside

    def new(self, name: str, text: int = 0) -> Any:
        """Return the vectors of the turn's tokens of a text (heads, n, ·)."""
        if name in KEYS_VALUES:
            vectors = getattr(self, name)[text, :, self.held :]
        else:
            vectors = torch.cat([part[text] for part in self._brought[name]], dim=1)
        return vectors if self.real is None else vectors[:, self.real[text]]

    def vectors(self, name: str, where: str, text: int = 0) -> Any:
        """Return vectors as attention takes them: of the ``slots`` of a text or of its ``turn``.

        Keys and values are computed, where the layer holds latents.
        """
        if where == "slots" and not self._aside:
            return self.vectors(name, "turn", text)[:, :0]
        stored = self.slots if where == "slots" else self.new
        if self._expand is None or name not in KEYS_VALUES:
            return stored(name, text)
        latents = (stored(part, text)[None] for part in KEYS_VALUES)
        return self._expand(*latents)[KEYS_VALUES.index(name)][0]

    @property
    def beside(self) -> list[Any]:
        """All tensors in use, except keys and values."""
        aside = chain.from_iterable(text.values() for text in self._aside)
        return [*aside, *chain(*self._brought.values())]

    def keep(self, kept: Sequence[Kept]) -> None:
        """Keep entries of each text, which become its slots and second tier; the turn is over."""
        most = max(size for _, size in kept)
        shared = [*self._shared] or [None] * len(kept)
        aside: list[dict[str, Any]] = []
        columns: dict[str, list[Any]] = {name: [] for name in KEYS_VALUES}
        empty = []
        for text, (places, size) in enumerate(kept):
            where, beyond = places.clamp(min=0), {}
            for name in (*KEYS_VALUES, *self._carried):
                if name == "hidden":
                    beyond[name], shared[text] = self._hidden(where, text)
                    continue
                entries = torch.cat([self.slots(name, text), self.new(name, text)], dim=1)
                beyond[name] = _gathered(entries, where[:, size if name in KEYS_VALUES else 0 :])
                if name in KEYS_VALUES:
                    slots = _gathered(entries, where[:, :size])
                    columns[name].append(pad(slots, (0, 0, 0, most - size)))
            aside.append(beyond)
            empty.append(pad(places[:, :size] < 0, (0, most - size), value=True))
        self.keys, self.values = map(torch.stack, columns.values())
        self.empty = marks if (marks := torch.stack(empty)).any() else None
        self._aside, self._shared, self.held = aside, shared, most
        self._sizes = [size for _, size in kept]
        self._brought, self.real = {}, None

    def _hidden(self, places: Any, text: int) -> tuple[Any, Any]:
        """Return the hidden states at these places, each once (1, U, d), and their indices.

        The heads of a layer share them, since they are large.
        """
        # 1. All states: those aside, then the turn's.
        new = self.new("hidden", text)
        stored = self._aside[text]["hidden"] if self._aside else new[:, :0]
        states = torch.cat([stored, new], dim=1)
        # 2. Which of them each place has (K, S + R + N).
        turn = torch.arange(stored.shape[1], states.shape[1], device=new.device)
        turn = turn.expand(len(places), -1)
        before = self._shared[text] if self._aside else turn[:, :0]
        # 3. Those at the places kept, each once.
        index = torch.cat([before, turn], dim=1).gather(1, places)
        used, inverse = index.unique(return_inverse=True)
        return states[:, used], inverse


def _gathered(entries: Any, places: Any) -> Any:
    """Return the entries (heads, N, ·) at the places of each KV head (K, S)."""
    where = places.repeat_interleave(len(entries) // len(places), dim=0)  # heads of a group alike
    return entries.gather(1, where[..., None].expand(-1, -1, entries.shape[-1]))


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
