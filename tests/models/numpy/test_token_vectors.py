"""Forks share vectors, and none sees what another one writes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.models.numpy.token_vectors import TokenVectors

SIZES = {"keys": (1, 1, 1), "queries": (1, 2, 1)}


def write(store: TokenVectors, start: int, numbers: list[int]) -> None:
    new = np.array(numbers, np.float32)[:, None, None]
    store.extend(start, start + len(numbers))
    store.write(0, start, {"keys": new, "queries": np.repeat(new, 2, axis=1), "values": new})


def keys(store: TokenVectors, end: int) -> Any:
    return store.before("keys", end)[0, 0, :, 0].tolist()


def test_the_life_of_a_store_is_as_drawn() -> None:
    a = TokenVectors(SIZES)
    write(a, 0, [0, 1, 2, 3, 4, 5])
    b = a.fork(a.names)
    write(a, 6, [6])
    assert np.shares_memory(a.before("keys", 7), b.before("keys", 6))
    write(b, 6, [66])
    assert not np.shares_memory(a.before("keys", 7), b.before("keys", 7))
    assert (keys(a, 7), keys(b, 7)) == ([*range(7)], [*range(6), 66])

    write(c := a.fork(["keys"]), 2, [22, 33])  # tokens that another one sees
    assert (keys(a, 7), keys(c, 4)) == ([*range(7)], [0, 1, 22, 33])
    assert [*c.names] == ["keys"]


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["write", "fork", "delete"]), st.integers(0, 9), st.integers(1, 40)
        ),
        max_size=30,
    )
)
def test_every_fork_has_what_it_would_have_alone(steps: list[tuple[str, int, int]]) -> None:
    stores: list[tuple[TokenVectors, list[int]]] = [(TokenVectors(SIZES), [])]
    for number, (step, index, size) in enumerate(steps):
        store, numbers = stores[index % len(stores)]
        if step == "write":
            write(store, len(numbers), [number] * size)
            numbers += [number] * size
        elif step == "fork":
            end = max(len(numbers) - size // 2, 0)
            stores.append((store.fork(store.names), numbers[:end]))
        elif len(stores) > 1:
            del stores[index % len(stores)]
        del store
        for other, expected in stores:
            assert keys(other, len(expected)) == expected
            assert other.before("queries", len(expected))[0, 1, :, 0].tolist() == expected
