"""What policies observe of a text in a model of torch, computed where its vectors are.

At the end of a turn:

1. A `LayerVectors` gives the vectors of one text in one layer, as tensors.
2. `TensorTokens` has those of all layers that decide at once. It computes one number for each row
   (a query head of a layer) and token: a product with the mean query, or a cosine.
3. A `TensorObservation` is what the policy sees. These numbers are copied to the host, once for all
   rows. Keys, values, and the attention of each query stay on the device (`OnDevice`), and the
   policy's own arithmetic with them runs there.

`HeadTokens` and `Observation` compute the same of arrays in NumPy; tests compare both for every
policy. Here everything is in single precision.
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
    """The query heads that are observed: whole groups that share keys and values."""

    def tensor(self, name: str, region: Where) -> Any:
        """Return queries, keys or values on their device (heads, ·, h)."""
        vectors = self.layer.vectors(name, self.text, region)
        return self._chosen(vectors).float()

    def _chosen(self, of_heads: Any) -> Any:
        """Return what the chosen heads have, of an array by query heads or by KV heads."""
        group = self.heads // len(of_heads)
        return of_heads[self.chosen.start // group : self.chosen.stop // group]

    @property
    def mean_query(self) -> Any:
        """The mean of the turn's queries (heads, 1, h)."""
        return self._chosen(self.layer.mean_query(self.text))

    @property
    def hidden(self) -> tuple[Any, Any, Ints]:
        """Hidden states of the slots and of the turn, and the index of each slot's.

        See `PolicyLayer.states`.
        """
        states, turn, state_of = self.layer.states(self.text)
        return states, turn, self._chosen(state_of)

    def __call__(self, name: str, region: Where) -> Floats:
        """Return a copy; see `fdkvc.models.numpy.head_tokens.Vectors`."""
        if name != "hidden":
            return _copied(self.tensor(name, region))
        states, turn, state_of = self.hidden
        if region == "turn":
            return _copied(turn.float()[None])
        return _copied(states.float())[state_of]


@dataclass(eq=False)
class TensorTokens(HeadTokens):
    """The tokens of some heads, whose vectors are tensors."""

    vectors: Sequence[LayerVectors]
    by_numbers: bool = False
    """Whether the policy looks at no vectors and at no query's own attention, so that memory needs
    no parts, and the numbers of all rows are copied at once."""

    def observe(self) -> Observation:
        """Return the turn, to be observed on the device."""
        return TensorObservation(0, self.new, self)

    def parts(self) -> Iterator[tuple[slice, HeadTokens]]:
        """Yield parts as `HeadTokens` does, but split a layer that is too large by KV heads."""
        if self.by_numbers:
            yield slice(None), self
            return
        # Query heads of a part: a multiple of those that share a KV head, at least these.
        sharing = max(1, self._group // self.vectors[0].layer.kv_heads)
        step = max(1, self.most_rows // sharing) * sharing
        for rows, part in super().parts():
            if len(part.vectors) > 1 or step >= self._group:
                yield rows, part
                continue
            first = rows.start or 0
            layer = self.vectors[first // self._group]
            for head in range(0, self._group, step):
                chosen = replace(layer, chosen=layer.chosen[head : head + step])
                heads = slice(first + head, first + head + len(chosen.chosen))
                yield heads, self._part([chosen], heads, part.first_layer)

    def products(self, name: Product, turn: int) -> tuple[Floats, int]:
        """Return the products with the turn's mean query or mean hidden state."""
        return self._of_means[name], 0

    @cached_property
    def _of_means(self) -> Mapping[Product, Floats]:
        """What `products` returns (R, 1, N + 1), by name; one copy of both."""

        def of_layer(states: Any, turn: Any) -> tuple[Any, Any]:
            mean = normalize(turn.mean(dim=0, keepdim=True, dtype=torch.float32))
            return _largest_cosines(states, mean), _largest_cosines(turn, mean)

        layer = self.vectors[0].layer
        rows = dict[Product, Any]()
        if layer.query_sum is not None:
            logits = [_products(layer, layer.mean_query) for layer in self.vectors]
            rows["logits"] = pad(torch.cat(logits), (0, 1), value=-np.inf)
        if "hidden" in layer.turn_vectors:
            rows["similarities"] = self._of_states(of_layer)[:, None]
        return dict(zip(rows, _copied(torch.stack([*rows.values()])), strict=True))

    @cached_property
    def repetitions(self) -> Floats:
        """The largest cosine of each token with a newer one of the turn (R, N + 1), at least 0."""

        def of_layer(states: Any, turn: Any) -> tuple[Any, Any]:
            directions = normalize(turn.float())
            # Of the turn's own tokens, only later ones are newer: above the diagonal. Zeros
            # elsewhere make the least result 0.
            newer = (directions @ directions.T).triu(1)
            return _largest_cosines(states, directions).clamp(min=0), newer.amax(dim=1)

        return _copied(self._of_states(of_layer))

    def _of_states(self, of_layer: Callable[[Any, Any], tuple[Any, Any]]) -> Any:
        """Return a number of each token by row (R, N + 1), the last one 0, on the device.

        `of_layer` computes those of a layer's hidden states, of its slots (U,) and its turn (n,).
        """
        rows = []
        for layer in self.vectors:  # only numbers stay of a layer when the next one begins
            states, turn, state_of = layer.hidden
            of_states, of_turn = of_layer(states, turn)
            of_slots = of_states[on_device_of(of_states, state_of)]  # (K, S)
            of_turn = pad(of_turn, (0, 1)).expand(len(of_slots), -1)  # (K, n + 1)
            of_tokens = torch.cat([of_slots, of_turn], dim=1)
            rows.append(of_tokens.repeat_interleave(self._group // len(of_tokens), dim=0))
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
        """Start of each row in flattened products, which have a column more than tokens."""
        return self._row_start + np.arange(len(self.new))[:, None]

    def repetition(self, token: Ints) -> Floats:
        """Largest cosine of each token with a newer one of this turn (B, C), at least 0."""
        if not np.array_equal(self.new, self.tokens.new):  # of recalled tokens as the new ones
            return super().repetition(token)
        return np.take_along_axis(self.tokens.repetitions, token, axis=1)

    def attention_of_each(self, token: Ints, last: Ints | None = None) -> Any:
        """Attention of each of the turn's queries over what it sees (B, n, C)."""
        count = self.tokens.new.shape[1]
        queries = count if last is None else int(last.max())  # the same number in all rows
        # 1. Products of the last queries with all keys (B, n, N). One layer after the other is
        #    written to one array, so that no more than that is in memory.
        logits: Any = None
        for number, layer in enumerate(self.tokens.vectors):
            products = _products(layer, layer.tensor("queries", "turn")[:, -queries:])
            if logits is None:
                logits = products.new_empty(len(token), *products.shape[1:])
            logits[number * len(products) : (number + 1) * len(products)] = products
        # 2. Those with the tokens that are asked for (B, n, C), unless these are all, in order.
        columns = on_device_of(logits, token)[:, None]  # (B, 1, C)
        all_tokens = np.arange(logits.shape[2])
        if not np.array_equal(
            token, np.broadcast_to(all_tokens, (len(token), len(all_tokens)))
        ):
            chosen = columns.clamp(min=0).expand(-1, queries, -1)
            logits = logits.gather(2, chosen)
        # 3. Attention is causal, and an empty slot gets none.
        # The columns are copied, as torch warns of arrays that cannot be written to, such as
        # broadcast ones.
        queried = on_device_of(logits, self.tokens.new[:, -queries:].copy())[:, :, None]
        unseen = (columns > queried) | (columns < 0)
        # Not −∞, with which the weights of a query that sees nothing are undefined.
        weights = logits.masked_fill_(unseen, torch.finfo(logits.dtype).min).softmax(dim=2)
        return OnDevice(weights.masked_fill_(unseen, 0))


def _products(layer: LayerVectors, queries: Any) -> Any:
    """Return scaled products of queries (H, m, h) with all keys (H, m, N)."""
    keys = layer.tensor("keys", "all")
    heads, m, h = queries.shape
    grouped = queries.reshape(len(keys), -1, h) * h**-0.5
    return (grouped @ keys.mT).reshape(heads, m, keys.shape[1])


def _largest_cosines(states: Any, directions: Any) -> Any:
    """Return the largest cosine of each state (U, d) with vectors of length 1 (m, d)."""
    largest = []
    # In parts of states, so that neither their products (·, m) nor their copies in single precision
    # (·, d) have more than so many numbers.
    for part in states.split(max(1, head_tokens.PART_NUMBERS // max(directions.shape))):
        vectors = part.float()
        # As `normalize` has it, a state of zeros has a cosine of 0.
        lengths = torch.linalg.vector_norm(vectors, dim=1).clamp(min=1e-12)
        largest.append((vectors @ directions.T).amax(dim=1) / lengths)
    return torch.cat(largest)


def _copied(tensor: Any) -> Floats:
    """Return an array of NumPy, which waits for the device."""
    copied: Floats = tensor.cpu().numpy()
    return copied
