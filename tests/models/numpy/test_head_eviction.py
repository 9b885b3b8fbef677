"""Layers decide alike together and one after the other, also with budgets of their own."""

from functools import partial
from itertools import chain
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.models.numpy import head_eviction
from fdkvc.models.numpy.head_eviction import HeadEviction, Heads
from fdkvc.policies import read_policy
from tests.worlds import turn_lengths

LAYERS, HEADS, KV_HEADS, WIDTH = 4, 4, 2, 6
NAMES = {"queries": HEADS, "keys": KV_HEADS, "values": KV_HEADS, "hidden": 1}


def of_a_layer(vectors: dict[str, Any], slots: Any, turn: slice, name: str, where: str) -> Any:
    """Return the vectors of a layer's slots or of a turn, from those of all tokens."""
    if where == "turn":
        return vectors[name][:, turn]
    if name == "hidden":
        return vectors[name][0][slots]
    slots = np.repeat(slots, len(vectors[name]) // KV_HEADS, axis=0)
    return np.take_along_axis(vectors[name], slots[..., None], axis=1)


def evicted(state: HeadEviction, vectors: list[dict[str, Any]], lengths: list[int]) -> list[Any]:
    """Return the tokens that each head of the layers holds after every turn."""
    held_by_turn, first = [], 0
    for n in filter(None, lengths):
        turn = slice(first, first + n)
        layers = [
            partial(of_a_layer, *arguments, turn)
            for arguments in zip(vectors, state.slots, strict=True)
        ]
        state, _ = state.after(n, layers, {})
        held_by_turn.append([{*head.tolist()} - {-1} for layer in state.slots for head in layer])
        first += n
    return held_by_turn


@given(
    inner=st.sampled_from(["h2o", "fd-kvc", "keydiff", "snapkv", "random", "ada-heads(h2o)"]),
    last=st.sampled_from([None, 0, 0.25, 0.5, 1, 1.7, 2]),
    lengths=turn_lengths(5, 8),
    budget=st.integers(1, 12),
    decides=st.sampled_from(["head", "layer"]),
    seed=st.integers(0, 2**32),
)
def test_a_layer_alone_decides_as_beside_the_others(
    inner: str, last: float | None, lengths: list[int], budget: int, decides: str, seed: int
) -> None:
    policy = read_policy(inner if last is None else f"pyramid({inner}, last={last})")
    draw, n = np.random.default_rng(seed).standard_normal, sum(lengths)
    vectors = [
        {name: draw((heads, n, WIDTH), np.float32) for name, heads in NAMES.items()}
        for _ in range(LAYERS)
    ]

    def begun(layers: int, first: int = 0) -> HeadEviction:
        heads = Heads(layers, HEADS, KV_HEADS, WIDTH)
        return HeadEviction(policy, budget, heads, decides, layers=LAYERS, first_layer=first)

    together = evicted(begun(LAYERS), vectors, lengths)
    alone = [
        evicted(begun(1, layer), [layer_vectors], lengths)
        for layer, layer_vectors in enumerate(vectors)
    ]
    assert together == [list(chain(*turn)) for turn in zip(*alone, strict=True)]


@given(
    name=st.sampled_from(
        [
            *("fifo", "sink", "shift keep=2", "full", "weighted-recency", "turns(fifo)"),
            *("sinks(weighted-recency, n=2)", "window(weighted-recency window=0.0)"),
        ]
    ),
    lengths=turn_lengths(5, 8),
    budget=st.integers(1, 12),
    decides=st.sampled_from(["head", "layer", "model"]),
    seed=st.integers(0, 2**32),
)
def test_one_head_decides_for_all_what_all_would(
    name: str, lengths: list[int], budget: int, decides: str, seed: int
) -> None:
    surprisal = np.random.default_rng(seed).integers(1, 6, sum(lengths)).astype(np.float32)
    vectors: list[Any] = [None] * LAYERS  # which none of these policies sees

    def steps() -> list[dict[str, Any]]:
        heads = Heads(LAYERS, HEADS, KV_HEADS, WIDTH)
        state, records = HeadEviction(read_policy(name), budget, heads, decides), []
        for n in filter(None, lengths):
            features = {"surprisal": surprisal[: state.count + n]}
            state, step = state.after(n, vectors, features)
            evicted, rule = step.find_evicted()
            parts = {"sources": step.sources, "evicted": evicted, "rule": rule}
            records.append({**parts, "slots": state.slots})
        return records

    alone = steps()
    with patch.object(head_eviction, "BY_TEXT", frozenset({None})):  # each head decides
        every = steps()
    for one, other in zip(alone, every, strict=True):
        for part in one:
            np.testing.assert_array_equal(one[part], other[part])
