"""Dialogs from given arrays, and the checks of their numbers; arrays of *safetensors*."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fdkvc.core.attention import Floats, Ints
from fdkvc.core.dialogs import DialogBatch, topic_bit
from fdkvc.core.limits import MAX_TOPICS
from fdkvc.core.parameters import check_count, check_most

LARGEST = 1e15
"""Largest allowed coordinate of a vector, so that no inner product overflows float32."""


def one_dialog(
    *,
    embeddings: ArrayLike,
    queries: ArrayLike,
    keys: ArrayLike,
    values: ArrayLike,
    turn_lengths: Sequence[int],
    turn_topics: Sequence[str | None] | None = None,
    surprisal: ArrayLike | None = None,
) -> DialogBatch:
    """Make a batch of one dialog from arrays.

    Raises a ValueError if shapes differ, a number is not finite, or there are no tokens.

    Parameters
    ----------
    embeddings : array (N, d)
    queries, keys, values : array (N, h)
    turn_lengths : sequence of int
        Tokens of each turn; their sum is N. A turn may have none.
    turn_topics : sequence of str or None, optional
        The current topic of each turn and of its tokens.
    surprisal : array (N,), optional
        −log of the probability of each token, in nats.
    """
    arrays = {"embeddings": embeddings, "queries": queries, "keys": keys, "values": values}
    checked: dict[str, Any] = {}
    for name, array in arrays.items():
        checked[name] = check_vectors(name, array, 2)
    check_count("the number of turns", len(turn_lengths))
    for turn, length in enumerate(turn_lengths):
        check_count(f"the number of tokens in turn {turn}", length, low=0)
    lengths = np.array(turn_lengths, np.intp)
    tokens = int(lengths.sum())
    check_count("the number of tokens", tokens)
    for name, array in checked.items():
        if len(array) != tokens:
            raise ValueError(
                f"{name} holds {len(array)} tokens, but the turns add up to {tokens}"
            )
    for name in ("queries", "values"):
        array = checked[name]
        if array.shape != checked["keys"].shape:
            raise ValueError(
                f"{name} has shape {array.shape}, but keys have {checked['keys'].shape}"
            )
    names = tuple(dict.fromkeys(topic for topic in turn_topics or () if topic is not None))
    if turn_topics is not None and len(turn_topics) != len(lengths):
        raise ValueError(f"there are {len(turn_topics)} turn topics for {len(lengths)} turns")
    check_most("the dialog has", len(names), "topics", MAX_TOPICS)
    topics = turn_topics or [None] * len(lengths)
    numbers = [-1 if name is None else names.index(name) for name in topics]
    current = np.array(numbers, np.intp)
    return DialogBatch(
        **{name: array[None] for name, array in checked.items()},
        surprisal=None if surprisal is None else check_surprisal(surprisal, tokens)[None],
        bounds=np.concatenate([[0], np.cumsum(lengths)])[None],
        turn_counts=np.array([len(lengths)]),
        topic_bits=np.repeat(topic_bit(current), lengths)[None],
        current=current[None],
        topic_names=names,
    )


def check_vectors(name: str, array: ArrayLike, axes: int) -> Floats:
    """Return `array` as float32, or raise a ValueError that names it."""
    try:
        with np.errstate(over="ignore"):  # infinity is rejected below
            checked = np.asarray(array, dtype=np.float32)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers in an array of {axes} axes") from None
    if checked.ndim != axes:
        raise ValueError(f"{name} has {checked.ndim} axes, but must have {axes}")
    if not checked.shape[-1]:
        raise ValueError(f"{name} has no dimensions, but must have at least 1")
    if not np.isfinite(checked).all():
        raise ValueError(f"{name} holds a number that is not finite (NaN or infinity)")
    if np.abs(checked).max(initial=0) > LARGEST:
        raise ValueError(
            f"{name} holds a number beyond ±{LARGEST:.0e}, whose products overflow"
        )
    return checked


def check_surprisal(surprisal: ArrayLike, tokens: int) -> Floats:
    """Return the surprisal of the tokens (N,) as float32, or raise a ValueError."""
    checked = check_vectors("surprisal", surprisal, 1) if tokens else np.zeros(0, np.float32)
    if len(checked) != tokens:
        raise ValueError(
            f"surprisal holds {len(checked)} numbers, but there are {tokens} tokens"
        )
    if (checked < 0).any():
        raise ValueError("surprisal holds a number below 0, but no probability is above 1")
    return checked


def check_whole(name: str, column: ArrayLike, tokens: int) -> Ints:
    """Return whole numbers of the tokens (N,), or raise a ValueError that names them."""
    try:
        checked = np.asarray(column)
    except ValueError:  # of lists of different lengths
        checked = np.array(None)
    if checked.shape != (tokens,) or not np.issubdtype(checked.dtype, np.integer):
        raise ValueError(f"{name} must be {tokens} whole numbers, one for each token")
    return checked.astype(np.intp)
