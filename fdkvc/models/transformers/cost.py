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
from fdkvc.models.transformers.cache import PolicyCache, bytes_of, enough_memory
from fdkvc.models.transformers.loop import LiveModel
from fdkvc.policies import Policy

REPEATS = 3
"""Rounds of timing, each over all policies, at most."""

ENOUGH = 60.0
"""Seconds after which no further round begins."""

WRITTEN = 16
"""Tokens written after the text has been read."""

COST = (
    "policy",
    "budget",
    "bytes",
    "bytes_ratio",
    "read_per_second",
    "read_ratio",
    "written_per_second",
    "written_ratio",
)


def measure_cost(
    model: LiveModel,
    policies: Sequence[Policy],
    budgets: Sequence[int],
    turns: Sequence[Sequence[int]],
    *,
    decides: str,
    every: int | None = None,
    on_case: Callable[[int, int], None] = lambda case_count, total: None,
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
    # The first case is the library's own cache.
    cases: list[tuple[Policy, int] | None] = [None]
    for budget in budgets:
        cases += [(policy, budget) for policy in policies]
    reads = sum(map(len, turns))
    writes = min(WRITTEN, model.decoder.shape.positions - reads)
    peaks = np.zeros(len(cases), int)
    rounds = list[NDArray[np.float64]]()
    began = perf_counter()
    while len(rounds) < REPEATS and (not rounds or perf_counter() - began < ENOUGH):
        timed = np.zeros((len(cases), 2))
        for index, case in enumerate(cases):
            cache: Any = DynamicCache(config=model.decoder.model.config)
            if case is not None:
                cache = model.evicting(*case, decides).cache
            with enough_memory(f"time a text of {reads + writes:,} tokens"):
                peaks[index], *timed[index] = read_and_write(
                    model.decoder.model, cache, turns, writes, every
                )
            case_count = len(rounds) * len(cases) + index + 1
            # A round begins as long as `ENOUGH` has not passed.
            seconds_of_round = (perf_counter() - began) / case_count * len(cases)
            likely = max(len(rounds) + 1, math.ceil(ENOUGH / seconds_of_round))
            on_case(case_count, min(likely, REPEATS) * len(cases))
        rounds.append(timed)
    seconds = np.stack(rounds)  # (rounds, cases, 2), of reading and of writing
    speed = (reads, writes) / np.median(seconds, axis=0)
    ratio = np.median(seconds[:, :1] / seconds, axis=0)
    rows: list[tuple[Any, ...]] = []
    for index, case in enumerate(cases):
        # The library's own cache has a row for each budget, though it has none.
        name, row_budgets = ("full", budgets) if case is None else (case[0].name, (case[1],))
        speeds = np.stack([speed[index], ratio[index]], axis=1).ravel().tolist()
        numbers = int(peaks[index]), float(peaks[index] / peaks[0]), *speeds
        rows += [(name, budget, *numbers) for budget in row_budgets]
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
    peak = 0
    turn_ends = isinstance(cache, PolicyCache)

    def take(ids: Any, *, end: bool) -> Any:
        """Let the model read tokens (1, n); return the likeliest next one (1, 1)."""
        nonlocal peak
        options: Any = {cache_name(model): cache, "use_cache": True, "logits_to_keep": 1}
        logits = model(input_ids=ids, **options).logits
        peak = max(peak, bytes_of(cache))
        if turn_ends and end:
            cache.end_turn()
        return logits[:, -1:].argmax(dim=-1)

    def now() -> float:
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)
        return clock()

    with torch.inference_mode():
        turn_ids = [torch.tensor([ids], device=model.device) for ids in turns]
        began = now()
        for ids in turn_ids:
            token = take(ids, end=True)
        read = now()
        for number in range(1, writes + 1):
            token = take(token, end=number == writes or number % (every or writes) == 0)
        return peak, read - began, now() - read
