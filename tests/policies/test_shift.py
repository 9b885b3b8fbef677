"""Context shift: as llama.cpp does it, token by token."""

import numpy as np
import pytest

from fdkvc.engine.online import OnlineCache
from fdkvc.policies import policy_named


def held_by_llama(lengths: list[int], context: int, keep: int) -> list[list[int]]:
    """Return the tokens in the context after each turn, by llama.cpp's rule, a token at a time."""
    held: list[int] = []
    after, token = [], 0
    for length in lengths:
        for _ in range(length):
            if len(held) == context:
                dropped = (len(held) - keep) // 2
                held = held[:keep] + held[keep + dropped :]
            held.append(token)
            token += 1
        after.append([*held])
    return after


@pytest.mark.parametrize("keep", [0, 2, 5])
@pytest.mark.parametrize("context", [8, 13])
def test_it_holds_what_llama_cpp_holds(context: int, keep: int) -> None:
    random = np.random.default_rng(keep)
    lengths = [3, *random.integers(1, 9, size=30).tolist()]
    cache = OnlineCache(policy_named("shift", keep=keep), context)

    for length, expected in zip(lengths, held_by_llama(lengths, context, keep), strict=True):
        vectors = {name: np.ones((length, 2)) for name in ("queries", "keys", "values")}
        turn = cache.feed(**vectors, embeddings=np.ones((length, 2)))
        assert turn.kept_tokens.tolist() == expected


def test_a_turn_longer_than_the_context_keeps_its_newest() -> None:
    cache = OnlineCache(policy_named("shift", keep=2), 8)
    vectors = {name: np.ones((20, 2)) for name in ("queries", "keys", "values", "embeddings")}

    assert cache.feed(**vectors).kept_tokens.tolist() == held_by_llama([20], 8, 2)[0]
