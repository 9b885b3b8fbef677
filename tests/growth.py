"""How work grows with its input: a ratio of times, which no machine's speed changes."""

import math
from collections.abc import Callable
from time import process_time
from typing import TypeVar

Input = TypeVar("Input")

TIMES = 8
"""How many times the input is compared: work that grows with its square takes 64 times as long."""

LINEAR = 24.0
"""Less than so many times as long is linear.

It is about as far from 8 as from 64, so that a busy core may make either input take twice as
long as it should.
"""

FEWEST, MOST = 2, 9
"""Rounds; after the fewest, the first by which the ratio is less than `LINEAR` is the last."""


def growth(
    work: Callable[[Input], object],
    make: Callable[[int], Input],
    size: int,
    clock: Callable[[], float] = process_time,
) -> float:
    """Return how many times as long `TIMES` the input takes: the least of several, by turns."""
    short, long = math.inf, math.inf
    small, large = make(size), make(TIMES * size)

    def seconds(given: Input) -> float:
        began = clock()
        work(given)
        return clock() - began

    for rounds in range(1, MOST + 1):
        short, long = min(short, seconds(small)), min(long, seconds(large))
        if rounds >= FEWEST and long / short < LINEAR:
            break
    return long / short
