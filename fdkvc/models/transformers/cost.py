"""The cost of a policy's cache in bytes and time, relative to one that evicts nothing."""

import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from transformers.cache_utils import DynamicCache

from fdkvc.models.numpy.model_folder import cache_name
from fdkvc.models.transformers.cache import PolicyCache, bytes_of
from fdkvc.models.transformers.loop import LiveModel
from fdkvc.policies import Policy

REPEATS = 3
"""Rounds of timing, each over all policies, at most."""

ENOUGH = 60.0
"""Seconds after which no further round begins."""

WRITTEN = 16
"""Tokens written after the text has been read."""

COST = (
    *("policy", "budget", "bytes", "bytes_ratio"),
    *("read_per_second", "read_ratio", "written_per_second", "written_ratio"),
)


def measure_cost(
    model: LiveModel,
    policies: Sequence[Policy],
    budgets: Sequence[int],
    turns: Sequence[Sequence[int]],
    *,
    decides: str,
    every: int | None = None,
    on_case: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame:
    """Let a model read a text turn by turn and continue it, under each policy and budget.

    `turns` has the tokens of each turn; `decides` and `every` are as for
    `fdkvc.models.answers.Answers`. `on_case` gets the number of timings done, and of all that
    are likely.

    Returns
    -------
    DataFrame
        Columns `COST`: peak bytes of all layers; tokens per second of reading and of writing,
        eviction included, by the median time. Ratios are to the library's own cache, which evicts
        nothing; of speeds, in the same round.
    """
    cases: list[tuple[Policy, int] | None] = [None, *((p, b) for b in budgets for p in policies)]
    reads = sum(map(len, turns))
    writes = min(WRITTEN, model.decoder.shape.positions - reads)
    held, rounds, began = np.zeros(len(cases), int), list[NDArray[np.float64]](), perf_counter()
    while len(rounds) < REPEATS and (not rounds or perf_counter() - began < ENOUGH):
        timed = np.zeros((len(cases), 2))
        for at, case in enumerate(cases):
            cache: Any = DynamicCache(config=model.model.config)
            if case is not None:
                cache = model.evicting(*case, decides).cache
            held[at], *timed[at] = read_and_write(model.model, cache, turns, writes, every)
            done = len(rounds) * len(cases) + at + 1
            of_round = (perf_counter() - began) / done * len(cases)
            likely = max(len(rounds) + 1, math.ceil(ENOUGH / of_round))
            on_case(done, min(likely, REPEATS) * len(cases))
        rounds.append(timed)
    seconds = np.stack(rounds)
    speed = (reads, writes) / np.median(seconds, axis=0)
    ratio = np.median(seconds[:, :1] / seconds, axis=0)
    rows: list[tuple[Any, ...]] = []
    for at, case in enumerate(cases):
        name, of = ("full", budgets) if case is None else (case[0].name, (case[1],))
        both = np.stack([speed[at], ratio[at]], axis=1).ravel().tolist()
        numbers = int(held[at]), float(held[at] / held[0]), *both
        rows += [(name, budget, *numbers) for budget in of]
    return pd.DataFrame(rows, columns=list(COST))


def read_and_write(
    model: Any,
    cache: Any,
    turns: Sequence[Sequence[int]],
    writes: int,
    every: int | None = None,
    clock: Callable[[], float] = perf_counter,
) -> tuple[int, float, float]:
    """Let a model of the library read the turns of a text with a cache, then write tokens.

    A `PolicyCache` is one with ``by_itself=False``; `every` is as for it. The clock's unit is the
    second. Returns the cache's peak bytes, and the seconds of reading and of writing, evictions
    included.
    """
    most, ends = 0, isinstance(cache, PolicyCache)

    def took(ids: Any, *, end: bool) -> Any:
        nonlocal most
        given: Any = {cache_name(model): cache, "use_cache": True, "logits_to_keep": 1}
        logits = model(input_ids=ids, **given).logits
        most = max(most, bytes_of(cache))
        if ends and end:
            cache.end_turn()
        return logits[:, -1:].argmax(dim=-1)

    def now() -> float:
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)
        return clock()

    with torch.inference_mode():
        given = [torch.tensor([ids], device=model.device) for ids in turns]
        began = now()
        for ids in given:
            token = took(ids, end=True)
        read = now()
        for number in range(1, writes + 1):
            token = took(token, end=number == writes or number % (every or writes) == 0)
        return most, read - began, now() - read
