"""Forks share vectors, and none sees what another one writes."""

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
