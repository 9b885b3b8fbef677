"""What policies observe of a text in a model of torch, computed where its vectors are.

These are the observations of `HeadTokens` and `Observation`, which compute the same of copies: the
tests compare both for every policy. What a policy decides by, a number for each head and entry, is
copied once for each group of heads; keys, values and the attention of each query stay `OnDevice`.
Everything is computed in single precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize, pad

from fdkvc.core.attention import Floats, Ints, Observation, Product
from fdkvc.models.numpy import head_tokens
from fdkvc.models.numpy.head_tokens import HeadTokens
from fdkvc.models.transformers.layer import PolicyLayer, Where, on_device_of
from fdkvc.models.transformers.on_device import OnDevice


@dataclass(frozen=True, eq=False)
class LayerVectors:
    """The vectors of a text in some query heads of a layer, and in the KV heads they share."""

    layer: PolicyLayer
    text: int
    heads: int
    """Query heads of the layer."""
    chosen: range
    """Those that are observed: whole groups that share keys and values."""

    def tensor(self, name: str, where: Where) -> Any:
        """Return queries, keys or values on their device (heads, ·, h)."""
        vectors = self.layer.vectors(name, self.text, where)
        return self._chosen(vectors).float()

    def _chosen(self, of_heads: Any) -> Any:
        group = self.heads // len(of_heads)
        return of_heads[self.chosen.start // group : self.chosen.stop // group]

    @property
    def mean_query(self) -> Any:
        """The mean of the turn's queries (heads, 1, h)."""
        return self._chosen(self.layer.mean_query(self.text))

    @property
    def hidden(self) -> tuple[Any, Any, Ints]:
        """Hidden states of the slots, each once (U, d), those of the turn (n, d), and indices.

        The indices are those of the states that each slot has (K, S).
        """
        states, turn, shared = self.layer.states(self.text)
        return states, turn, self._chosen(shared)

    def __call__(self, name: str, where: Where) -> Floats:
        """Return a copy; see `fdkvc.models.numpy.head_tokens.Vectors`."""
        if name != "hidden":
            return _copied(self.tensor(name, where))
        states, turn, shared = self.hidden
        return _copied(turn.float()[None]) if where == "turn" else _copied(states.float())[shared]


@dataclass(eq=False)
class TensorTokens(HeadTokens):
    """The tokens of some heads, whose vectors are tensors."""

    vectors: Sequence[LayerVectors]
    by_numbers: bool = False
    """Whether only numbers are observed, one for each row and token, so that no parts are needed
    and all rows are copied at once."""

    def observe(self) -> Observation:
        """Return the turn, to be observed on the device."""
        return TensorObservation(0, self.new, self)

    def parts(self) -> Iterator[tuple[slice, HeadTokens]]:
        """Yield parts as `HeadTokens` does; of a layer that is too large for one, some heads."""
        if self.by_numbers:
            yield slice(None), self
            return
        group = max(1, self._group // self.vectors[0].layer.kv_heads)
        step = max(1, self.most_rows // group) * group
        for rows, part in super().parts():
            if len(part.vectors) > 1 or step >= self._group:
                yield rows, part
                continue
            layer, first = self.vectors[(rows.start or 0) // self._group], rows.start or 0
            for head in range(0, self._group, step):
                chosen = replace(layer, chosen=layer.chosen[head : head + step])
                some = slice(first + head, first + head + len(chosen.chosen))
                yield some, self._part([chosen], some, part.first_layer)

    def products(self, name: Product, turn: int) -> tuple[Floats, int]:
        """Return those of the turn's means, the only ones."""
        return self._of_means[name], 0

    @cached_property
    def _of_means(self) -> Mapping[Product, Floats]:
        """What `products` returns (R, 1, N + 1), as far as the turn is noted; one copy of all."""

        def of_layer(states: Any, turn: Any) -> tuple[Any, Any]:
            mean = normalize(turn.mean(dim=0, keepdim=True, dtype=torch.float32))
            return _largest_cosines(states, mean), _largest_cosines(turn, mean)

        noted, rows = self.vectors[0].layer.noted, dict[Product, Any]()
        if "mean query" in noted:
            logits = [_products(layer, layer.mean_query) for layer in self.vectors]
            rows["logits"] = pad(torch.cat(logits), (0, 1), value=-np.inf)
        if "hidden" in noted:
            rows["similarities"] = self._of_states(of_layer)[:, None]
        return dict(zip(rows, _copied(torch.stack([*rows.values()])), strict=True))

    @cached_property
    def repetitions(self) -> Floats:
        """The largest cosine of each token with a newer one of the turn (R, N + 1), at least 0."""

        def of_layer(states: Any, turn: Any) -> tuple[Any, Any]:
            directions = normalize(turn.float())
            newer = (directions @ directions.T).triu(1)  # zeros elsewhere
            return _largest_cosines(states, directions).clamp(min=0), newer.amax(dim=1)

        return _copied(self._of_states(of_layer))

    def _of_states(self, of_layer: Callable[[Any, Any], tuple[Any, Any]]) -> Any:
        """Return a number of each token by row (R, N + 1), then 0, on the device.

        Those of a layer come for the hidden states of its slots, each once, and of the turn.
        """
        rows = []
        for layer in self.vectors:  # only numbers stay of one when the next begins
            *vectors, shared = layer.hidden
            states, turn = of_layer(*vectors)
            of_slots = states[on_device_of(states, shared)]  # (K, S)
            every = torch.cat([of_slots, pad(turn, (0, 1)).expand(len(of_slots), -1)], dim=1)
            rows.append(every.repeat_interleave(self._group // len(every), dim=0))
        return torch.cat(rows)

    @property
    def keys(self) -> Any:
        """Keys (L·K, N, h), once for rows that share them."""
        return self._on_device("keys")

    @property
    def values(self) -> Any:
        """Values (L·K, N, h), once for rows that share them."""
        return self._on_device("values")

    @property
    def token_queries(self) -> Any:
        """Each token's own query (R, N, h)."""
        return self._on_device("queries")

    def _on_device(self, name: str) -> OnDevice:
        return OnDevice(torch.cat([layer.tensor(name, "all") for layer in self.vectors]))


@dataclass(frozen=True, eq=False)
class TensorObservation(Observation):
    """A turn of `TensorTokens`."""

    tokens: TensorTokens

    @cached_property
    def _turn_start(self) -> Ints:
        """Start of each row in flattened products, whichever of them are observed."""
        return self._row_start + np.arange(len(self.new))[:, None]

    def repetition(self, token: Ints) -> Floats:
        """Largest cosine of each token with a newer one of this turn (B, C), at least 0."""
        if not np.array_equal(self.new, self.tokens.new):  # tokens recalled from a second tier
            return super().repetition(token)
        return np.take_along_axis(self.tokens.repetitions, token, axis=1)

    def attention_of_each(self, token: Ints, last: Ints | None = None) -> Any:
        """Attention of each of the turn's queries over what it sees (B, n, C)."""
        count = self.tokens.new.shape[1]
        most = count if last is None else int(last.max(initial=0))
        if not most or (last is not None and (last != most).any()):
            return super().attention_of_each(token, last)
        logits: Any = None
        for number, layer in enumerate(self.tokens.vectors):
            products = _products(layer, layer.tensor("queries", "turn")[:, -most:])
            if logits is None:
                logits = products.new_empty(len(token), *products.shape[1:])
            logits[number * len(products) : (number + 1) * len(products)] = products
        columns = on_device_of(logits, token)[:, None]  # (B, 1, C)
        every = token.shape[1] == logits.shape[2] and (token == np.arange(token.shape[1])).all()
        if not every:
            logits = logits.gather(2, columns.clamp(min=0).expand(-1, most, -1))
        queried = on_device_of(logits, self.tokens.new[:, -most:].copy())[:, :, None]
        hidden = (columns > queried) | (columns < 0)
        weights = logits.masked_fill_(hidden, torch.finfo(logits.dtype).min).softmax(dim=2)
        return OnDevice(weights.masked_fill_(hidden, 0))


def _products(layer: LayerVectors, queries: Any) -> Any:
    """Return scaled products of queries (H, m, h) with all keys (H, m, N)."""
    keys, (heads, m, h) = layer.tensor("keys", "all"), queries.shape
    grouped = queries.reshape(len(keys), -1, h) * h**-0.5
    return (grouped @ keys.mT).reshape(heads, m, keys.shape[1])


def _largest_cosines(states: Any, directions: Any) -> Any:
    """Return the largest cosine of each state (U, d) with vectors of length 1 (m, d)."""
    largest = []
    for part in states.split(max(1, head_tokens.PART_NUMBERS // max(directions.shape))):
        vectors = part.float()
        lengths = torch.linalg.vector_norm(vectors, dim=1).clamp(min=1e-12)
        largest.append((vectors @ directions.T).amax(dim=1) / lengths)
    return torch.cat(largest)


def _copied(tensor: Any) -> Floats:
    """Return an array of NumPy, which waits for the device."""
    copied: Floats = tensor.cpu().numpy()
    return copied
