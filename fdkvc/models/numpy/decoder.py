"""A decoder of the Llama layout, in NumPy, with what related families add to it.

Embeddings; layers of grouped-query attention with rotary positions and of a gated feed-forward
network (SwiGLU), each after a root-mean-square norm; and logits from a separate or tied matrix.

Touvron et al. 2023, *LLaMA: Open and Efficient Foundation Language Models*; Su et al. 2021,
*RoFormer*; Ainslie et al. 2023, *GQA*; Shazeer 2020, *GLU Variants Improve Transformer*.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import Bools, Floats, Ints
from fdkvc.models.numpy.head_eviction import Heads

LARGE = 2**23
"""Numbers in the embeddings and logits from which on a model is large; the bundled one has 1 %."""


@dataclass(frozen=True, kw_only=True)
class ModelSizes(Heads):
    """The sizes that a model's callers need."""

    vocabulary: int
    """Number of tokens that the model knows."""
    positions: int
    """Longest text in tokens."""


@dataclass(frozen=True, kw_only=True)
class Shape(ModelSizes):
    """The sizes of a decoder, from ``config.json``."""

    width: int
    """Numbers in a hidden state, d."""
    inner: int
    """Width within the feed-forward network."""
    epsilon: float
    """Added to the mean square in a norm."""
    theta: float
    """The base of the rotary positions."""
    stretch: tuple[float, ...] = ()
    """By what each angle is divided, so that texts can be longer; () for 1."""
    tied: bool
    """Whether the logits use the embeddings."""

    @property
    def parameters(self) -> int:
        """The number of its weights."""
        # Of queries and output by head, of keys and values by KV head.
        attention = self.width * self.head_width * 2 * (self.heads + self.kv_heads)
        layer = attention + 3 * self.width * self.inner + 2 * self.width  # and two norms
        end_weights = self.vocabulary * self.width * (1 if self.tied else 2) + self.width
        return self.layers * layer + end_weights


class AttentionCache(Protocol):
    """The keys and values of one text, and attention to them."""

    @property
    def count(self) -> int:
        """Number of tokens read so far: the position of the next."""

    def attend(
        self, layer: int, hidden: Floats, queries: Floats, keys: Floats, values: Floats
    ) -> Floats:
        """Store a layer's vectors of the next n tokens; return its attention output (n, H·h).

        `hidden` is (n, d), queries (n, H, h), keys and values (n, K, h); queries and keys are
        rotated to their positions.
        """


@dataclass(frozen=True, eq=False)
class Layer:
    """The weights of a layer, as right factors of products.

    A norm's weights are folded into the matrix that follows it, and matrices that follow the same
    norm are concatenated.
    """

    projections: Floats
    """Shape (d, (H + 2K)·h). To queries, keys and values. In queries and keys, the two numbers that
    a rotary position rotates by the same angle are adjacent, as the parts of a complex number."""
    output: Floats
    """Shape (H·h, d)."""
    gate_up: Floats
    """Shape (d, 2m). To the gate, and to the values that it scales."""
    down: Floats
    """Shape (m, d)."""
    bias: Floats | None = None
    """Shape ((H + 2K)·h). Added to queries, keys and values; in Qwen 2."""
    head_norms: Floats | None = None
    """Shape (H + K, h). The weights of a norm of each query and key; in Qwen 3."""
    rotates: bool = True
    """Whether queries and keys are rotated by their positions; not in each layer of SmolLM 3."""


@dataclass(frozen=True, eq=False)
class Decoder:
    """A language model."""

    counted_elsewhere: ClassVar[bool] = True
    """A page's cache does not count its bytes: all pages share one model."""

    shape: Shape
    """Its sizes."""
    embeddings: Floats
    """Shape (V, d)."""
    layers: tuple[Layer, ...]
    """Their weights, from the first on."""
    logits: Floats
    """Shape (d, V). The last norm's weights are folded in, unless `norm` has them."""
    features: Callable[..., dict[str, NDArray[Any]]] | None = None
    """See `fdkvc.models.numpy.tokens.Tokens.features`."""
    norm: Floats | None = None
    """Shape (d,). The last norm's weights, where `logits` are the embeddings."""

    def read(
        self, ids: Ints, caches: Sequence[AttentionCache], *, last: int | None = None
    ) -> Floats:
        """Read the next tokens (C, n) of several texts at once, one for each cache.

        Returns the logits of the token after each (C, n, V), or after the `last` of them only.
        The result for a text is independent of the other texts: bit for bit, or to rounding for a
        `large` model, whose weights are then read from memory once for all texts.
        """
        shape = self.shape
        n = ids.shape[1]
        # e^(iφ) of the positions (C, n, 1, h / 2); queries and keys are rotated by it, values not.
        counts = np.array([[cache.count] for cache in caches])
        rotation = self._rotation(counts + np.arange(n))
        x = self.embeddings[ids]  # the hidden states (C, n, d)
        rotated = shape.heads + shape.kv_heads  # heads of queries and keys, which come first
        for number, layer in enumerate(self.layers):
            # 1. Queries (C, n, H, h), keys and values (C, n, K, h).
            projected = self._product(self._normed(x), layer.projections)
            if layer.bias is not None:
                projected += layer.bias
            projected = projected.reshape(
                *x.shape[:2], rotated + shape.kv_heads, shape.head_width
            )
            if layer.head_norms is not None:
                normed = self._normed(projected[:, :, :rotated])
                projected[:, :, :rotated] = normed * layer.head_norms
            if layer.rotates:
                # In place: two neighbours, seen as a complex number, are rotated by one angle.
                projected[:, :, :rotated].view(np.complex64)[:] *= rotation
            queries, keys, values = np.split(projected, [shape.heads, rotated], axis=2)
            # 2. Attention (C, n, H·h). Each cache stores the vectors of its text.
            mixed = [
                cache.attend(number, x[text], queries[text], keys[text], values[text])
                for text, cache in enumerate(caches)
            ]
            x += self._product(np.stack(mixed), layer.output)
            # 3. The feed-forward network.
            inner = self._product(self._normed(x), layer.gate_up)
            gate, values_up = np.split(inner, 2, axis=-1)
            x += self._product(silu(gate, values_up), layer.down)
        # Logits only of the last tokens, if the caller needs no others: V is large.
        x = self._normed(x[:, n - last :] if last is not None else x)
        return self._product(x if self.norm is None else x * self.norm, self.logits)

    @property
    def large(self) -> bool:
        """Whether its weights exceed a processor's cache."""
        return self.embeddings.size + self.logits.size > LARGE

    def _product(self, x: Floats, weights: Floats) -> Floats:
        """Return (C, n, ·) times a matrix: text by text, or all texts at once."""
        # A product of more rows may round differently: text by text, others change no bit.
        if not self.large or len(x) == 1:
            return x @ weights
        flat: Floats = x.reshape(-1, x.shape[-1]) @ weights
        return flat.reshape(*x.shape[:-1], weights.shape[1])

    def _normed(self, x: Floats) -> Floats:
        squares = np.einsum("...d,...d->...", x, x)[..., None]
        mean_square = squares / np.float32(x.shape[-1])
        share: Floats = 1 / np.sqrt(mean_square + np.float32(self.shape.epsilon))
        return x * share

    def _rotation(self, positions: Ints) -> NDArray[np.complex64]:
        """Return e^(iφ) of each position's angles φ (C, n, 1, h / 2)."""
        half = np.arange(0, self.shape.head_width, 2) / self.shape.head_width
        angles = positions[..., None, None] * self.shape.theta**-half
        if self.shape.stretch:
            angles /= np.array(self.shape.stretch)
        rotation: NDArray[np.complex64] = np.exp(1j * angles).astype(np.complex64)
        return rotation


def silu(gate: Floats, values: Floats) -> Floats:
    """Return g / (1 + e^−g) · up."""
    result: Floats = np.negative(gate)
    with np.errstate(over="ignore"):  # where e^−g is infinite, the result is 0
        np.exp(result, out=result)
    result += 1
    np.divide(gate, result, out=result)
    result *= values
    return result


def attention(queries: Floats, keys: Floats, masked: Bools) -> Floats:
    """Return the weights of each query over the keys (K, G, n, S), which sum to 1.

    Queries (K, G, n, h) are those of the G query heads that share each head of keys (K, S, h).
    `masked` (…, n, m) says which of the last m keys a query does not see; it sees at least one key.
    """
    weights, totals = unnormalized_attention(queries, keys, masked)
    weights /= totals
    return weights


def unnormalized_attention(
    queries: Floats, keys: Floats, masked: Bools
) -> tuple[Floats, Floats]:
    """Return the weights before division by their sums, and the sums (K, G, n, 1)."""
    groups, size, n, width = queries.shape
    flat = queries.reshape(groups, size * n, width) * np.float32(1 / np.sqrt(width))
    logits = (flat @ keys.swapaxes(1, 2)).reshape(groups, size, n, -1)
    np.copyto(logits[..., -masked.shape[-1] :], np.float32(-np.inf), where=masked)
    # Like `fdkvc.core.attention.softmax`, but three times as fast: every query here sees something,
    # and trailing zeros may change the last bit.
    logits -= logits.max(axis=-1, keepdims=True)
    weights = np.exp(logits, out=logits)
    return weights, weights @ np.ones((keys.shape[1], 1), np.float32)
