"""A decoder of the Llama layout, in NumPy.

Embeddings; layers of grouped-query attention with rotary positions and of a gated feed-forward
network (SwiGLU), each after a root-mean-square norm; and logits from a separate or tied matrix.

Touvron et al. 2023, *LLaMA: Open and Efficient Foundation Language Models*; Su et al. 2021,
*RoFormer*; Ainslie et al. 2023, *GQA*; Shazeer 2020, *GLU Variants Improve Transformer*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fdkvc.attention import Bools, Floats, Ints
from fdkvc.lm.head_eviction import Heads


@dataclass(frozen=True, kw_only=True)
class ModelSizes(Heads):
    """The sizes that a model's callers need.

    Attributes
    ----------
    vocabulary : int
    positions : int
        Longest text in tokens.
    """

    vocabulary: int
    positions: int


@dataclass(frozen=True, kw_only=True)
class Shape(ModelSizes):
    """The sizes of a decoder, from ``config.json``.

    Attributes
    ----------
    width, inner : int
        Width of the hidden states, and within the feed-forward network.
    epsilon, theta : float
        Of the norms, and the base of the rotary positions.
    tied : bool
        Whether the logits use the embeddings.
    """

    width: int
    inner: int
    epsilon: float
    theta: float
    tied: bool


class AttentionCache(Protocol):
    """The keys and values of one text, and attention to them."""

    @property
    def count(self) -> int:
        """Number of tokens read so far: the position of the next."""

    def attend(
        self, layer: int, hidden: Floats, queries: Floats, keys: Floats, values: Floats
    ) -> Floats:
        """Store a layer's vectors of the next n tokens; return its attention output (n, H·h).

        Parameters
        ----------
        layer : int
        hidden : array (n, d)
        queries : array (n, H, h)
        keys, values : array (n, K, h)
            Queries and keys after positional rotation.
        """


@dataclass(frozen=True, eq=False)
class Layer:
    """The weights of a layer, as right factors of products.

    A norm's weights are folded into the matrix that follows it, and matrices that follow the same
    norm are concatenated.

    Attributes
    ----------
    projections : array (d, (H + 2K)·h)
        To queries, keys and values. In queries and keys, the two numbers that a rotary position
        rotates by the same angle are adjacent, as the parts of a complex number.
    output : array (H·h, d)
    gate_up : array (d, 2m)
        To the gate, and to the values that it scales.
    down : array (m, d)
    """

    projections: Floats
    output: Floats
    gate_up: Floats
    down: Floats


@dataclass(frozen=True, eq=False)
class Decoder:
    """A language model.

    Attributes
    ----------
    shape : Shape
    embeddings : array (V, d)
    layers : tuple of Layer
    logits : array (d, V)
        With the last norm's weights.
    rarity : array (V,), optional
        Surprisal of each token without context, in nats; see `fdkvc.lm.tokens.Tokens.rarity`.
    words_and_speakers : function of ids to (words, speakers), optional
        See `fdkvc.lm.tokens.Tokens.words_and_speakers`.
    """

    shape: Shape
    embeddings: Floats
    layers: tuple[Layer, ...]
    logits: Floats
    rarity: Floats | None = None
    words_and_speakers: Callable[[Sequence[int]], tuple[list[int], list[int]]] | None = None

    def read(
        self, ids: Ints, caches: Sequence[AttentionCache], *, last: int | None = None
    ) -> Floats:
        """Read the next tokens of several texts at once.

        The result for a text is bit for bit independent of the other texts.

        Parameters
        ----------
        ids : array (C, n)
        caches : sequence of AttentionCache
            One for each text.
        last : int, optional
            Return logits after the last so many tokens only; all by default.

        Returns
        -------
        array (C, n or last, V)
            Logits of the token after each.
        """
        shape, n = self.shape, ids.shape[1]
        rotation = self._rotation(np.array([[each.count] for each in caches]) + np.arange(n))
        x = self.embeddings[ids]
        rotated = shape.heads + shape.kv_heads
        for number, layer in enumerate(self.layers):
            projected = self._normed(x) @ layer.projections
            projected = projected.reshape(*x.shape[:2], rotated + shape.kv_heads, shape.head_width)
            projected[:, :, :rotated].view(np.complex64)[:] *= rotation
            queries, keys, values = np.split(projected, [shape.heads, rotated], axis=2)
            mixed = [
                cache.attend(number, x[at], queries[at], keys[at], values[at])
                for at, cache in enumerate(caches)
            ]
            x += np.stack(mixed) @ layer.output
            gate, up = np.split(self._normed(x) @ layer.gate_up, 2, axis=-1)
            x += silu(gate, up) @ layer.down
        return self._normed(x[:, n - last :] if last is not None else x) @ self.logits

    def _normed(self, x: Floats) -> Floats:
        """Divide each vector by its root mean square."""
        squares = np.einsum("...d,...d->...", x, x)[..., None] / np.float32(x.shape[-1])
        share: Floats = 1 / np.sqrt(squares + np.float32(self.shape.epsilon))
        return x * share

    def _rotation(self, positions: Ints) -> NDArray[np.complex64]:
        """Return e^(iφ) of each position's angles φ (C, n, 1, h / 2)."""
        half = np.arange(0, self.shape.head_width, 2) / self.shape.head_width
        angles = positions[..., None, None] * self.shape.theta**-half
        rotation: NDArray[np.complex64] = np.exp(1j * angles).astype(np.complex64)
        return rotation


def silu(gate: Floats, up: Floats) -> Floats:
    """Return g / (1 + e^−g) · up."""
    result: Floats = np.negative(gate)
    with np.errstate(over="ignore"):  # where e^−g is infinite, the result is 0
        np.exp(result, out=result)
    result += 1
    np.divide(gate, result, out=result)
    result *= up
    return result


def attention(queries: Floats, keys: Floats, masked: Bools) -> Floats:
    """Return the weights of each query over the keys (K, G, n, S), which sum to 1.

    Parameters
    ----------
    queries : array (K, G, n, h)
        Of the G query heads that share each head of keys.
    keys : array (K, S, h)
    masked : array (…, n, m) of bool
        Which of the last m keys a query does not see; it sees at least one key.
    """
    weights, totals = unnormalized_attention(queries, keys, masked)
    weights /= totals
    return weights


def unnormalized_attention(queries: Floats, keys: Floats, masked: Bools) -> tuple[Floats, Floats]:
    """Return the weights before division by their sums, and the sums (K, G, n, 1)."""
    groups, size, n, width = queries.shape
    flat = queries.reshape(groups, size * n, width) * np.float32(1 / np.sqrt(width))
    logits = (flat @ keys.swapaxes(1, 2)).reshape(groups, size, n, -1)
    np.copyto(logits[..., -masked.shape[-1] :], np.float32(-np.inf), where=masked)
    # Like `fdkvc.attention.softmax`, but three times as fast: every query here sees something, and
    # trailing zeros may change the last bit.
    logits -= logits.max(axis=-1, keepdims=True)
    weights = np.exp(logits, out=logits)
    return weights, weights @ np.ones((keys.shape[1], 1), np.float32)
