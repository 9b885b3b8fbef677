"""How work grows with its input: a ratio of times, which no machine's speed changes."""

import math
from collections.abc import Callable
from time import process_time
from typing import TypeVar

Input = TypeVar("Input")

LINEAR = 3.0
"""Twice the input takes less than so many times as long, unless work grows with its square."""

ROUNDS = 25


def growth(work: Callable[[Input], object], make: Callable[[int], Input], size: int) -> float:
    """Return how many times as long twice the input takes: the best of several, by turns.

    The first rounds by which it is less than `LINEAR` are enough.
    """
    once, twice = math.inf, math.inf
    small, large = make(size), make(2 * size)
    for _ in range(ROUNDS):
        once, twice = min(once, _seconds(work, small)), min(twice, _seconds(work, large))
        if twice / once < LINEAR:
            break
    return twice / once


def _seconds(work: Callable[[Input], object], given: Input) -> float:
    began = process_time()
    work(given)
    return process_time() - began
