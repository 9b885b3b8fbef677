"""The decoder: a language model of the Llama layout, in NumPy.

Embeddings; layers of attention with rotary positions and grouped queries, and of a gated
feed-forward network (SwiGLU), each after a root-mean-square norm; and the logits of the next token,
by a matrix of their own or by the embeddings again.

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
    """The sizes of a model that those who let it read must know.

    Attributes
    ----------
    vocabulary : int
    positions : int
        Tokens that the model was made for.
    """

    vocabulary: int
    positions: int


@dataclass(frozen=True, kw_only=True)
class Shape(ModelSizes):
    """The sizes of a decoder, as ``config.json`` says them.

    Attributes
    ----------
    width, inner : int
        `inner` is the width within the feed-forward network.
    epsilon, theta : float
        Of the norms, and the base of the rotary positions.
    tied : bool
        Whether the logits are by the embeddings.
    """

    width: int
    inner: int
    epsilon: float
    theta: float
    tied: bool


class AttentionCache(Protocol):
    """What keeps the keys and values of one text, and attends to them."""

    @property
    def count(self) -> int:
        """Tokens read so far, which is the position of the next."""

    def attend(
        self, layer: int, hidden: Floats, queries: Floats, keys: Floats, values: Floats
    ) -> Floats:
        """Take what the next n tokens bring to a layer, and return what its attention gives.

        Parameters
        ----------
        layer : int
        hidden : array (n, d)
        queries : array (n, H, h)
        keys, values : array (n, K, h)
            After positional rotation.

        Returns
        -------
        array (n, H·h)
        """


@dataclass(frozen=True, eq=False)
class Layer:
    """The weights of a layer, each as what stands on the right of a product.

    A norm's own weights are multiplied into the matrix that follows it, and matrices that follow
    the same norm are one.

    Attributes
    ----------
    projections : array (d, (H + 2K)·h)
        To queries, keys and values. Of queries and keys, the two numbers that rotary positions
        turn by one angle stand beside each other, as the parts of a complex number.
    mixing : array (H·h, d)
    gates : array (d, 2m)
        To the gate, and to what it lets through.
    narrowing : array (m, d)
    """

    projections: Floats
    mixing: Floats
    gates: Floats
    narrowing: Floats


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
        How surprising each token is by itself, in nats; see `fdkvc.lm.tokens.Tokens.rarity`.
    said : function of ids to (words, speakers), optional
        What the tokens of a passage say, and who; see `fdkvc.lm.tokens.Tokens.said`.
    """

    shape: Shape
    embeddings: Floats
    layers: tuple[Layer, ...]
    logits: Floats
    rarity: Floats | None = None
    said: Callable[[Sequence[int]], tuple[list[int], list[int]]] | None = None

    def read(
        self, ids: Ints, caches: Sequence[AttentionCache], *, last: int | None = None
    ) -> Floats:
        """Read the next tokens of several texts at once.

        What one text comes to does not depend, to the last bit, on those beside it.

        Parameters
        ----------
        ids : array (C, n)
        caches : sequence of AttentionCache
            One for each text.
        last : int, optional
            Return the logits of the last so many tokens only; of all by default.

        Returns
        -------
        array (C, n or last, V)
            Logits of the token after each.
        """
        shape, n = self.shape, ids.shape[1]
        turning = self._turning(np.array([[each.count] for each in caches]) + np.arange(n))
        x = self.embeddings[ids]
        rotated = shape.heads + shape.kv_heads
        for number, layer in enumerate(self.layers):
            made = self._normed(x) @ layer.projections
            made = made.reshape(*x.shape[:2], rotated + shape.kv_heads, shape.head_width)
            made[:, :, :rotated].view(np.complex64)[:] *= turning
            queries, keys, values = np.split(made, [shape.heads, rotated], axis=2)
            mixed = [
                cache.attend(number, x[at], queries[at], keys[at], values[at])
                for at, cache in enumerate(caches)
            ]
            x += np.stack(mixed) @ layer.mixing
            gate, passed = np.split(self._normed(x) @ layer.gates, 2, axis=-1)
            x += silu(gate, passed) @ layer.narrowing
        return self._normed(x[:, n - last :] if last is not None else x) @ self.logits

    def _normed(self, x: Floats) -> Floats:
        """Divide each vector by its root mean square."""
        squares = np.einsum("...d,...d->...", x, x)[..., None] / np.float32(x.shape[-1])
        share: Floats = 1 / np.sqrt(squares + np.float32(self.shape.epsilon))
        return x * share

    def _turning(self, positions: Ints) -> NDArray[np.complex64]:
        """Return e^(iφ) of each position's angles φ (C, n, 1, h / 2)."""
        half = np.arange(0, self.shape.head_width, 2) / self.shape.head_width
        angles = positions[..., None, None] * self.shape.theta**-half
        turning: NDArray[np.complex64] = np.exp(1j * angles).astype(np.complex64)
        return turning


def silu(gate: Floats, passed: Floats) -> Floats:
    """Let numbers through by the SiLU of their gate, g / (1 + e^−g)."""
    opened: Floats = np.negative(gate)
    with np.errstate(over="ignore"):  # e^−g may be infinite, and the gate is then shut
        np.exp(opened, out=opened)
    opened += 1
    np.divide(gate, opened, out=opened)
    opened *= passed
    return opened


def attention(queries: Floats, keys: Floats, unseen: Bools) -> Floats:
    """Return the weights of each query over the keys (K, G, n, S), which sum to 1.

    Parameters
    ----------
    queries : array (K, G, n, h)
        Of the G query heads that share each head of keys.
    keys : array (K, S, h)
    unseen : array (…, n, m) of bool
        Which of the last m keys a query does not see; it sees one at least, and all others.
    """
    weights, totals = unnormalized_attention(queries, keys, unseen)
    weights /= totals
    return weights


def unnormalized_attention(queries: Floats, keys: Floats, unseen: Bools) -> tuple[Floats, Floats]:
    """Return the weights before they are divided by their totals, and those (K, G, n, 1)."""
    groups, size, n, width = queries.shape
    flat = queries.reshape(groups, size * n, width) * np.float32(1 / np.sqrt(width))
    logits = (flat @ keys.swapaxes(1, 2)).reshape(groups, size, n, -1)
    np.copyto(logits[..., -unseen.shape[-1] :], np.float32(-np.inf), where=unseen)
    # As in `fdkvc.attention.softmax`, which takes care that zeros behind a row change no bit of it
    # and is three times as slow for it; every query here sees something.
    logits -= logits.max(axis=-1, keepdims=True)
    weights = np.exp(logits, out=logits)
    return weights, weights @ np.ones((keys.shape[1], 1), np.float32)
