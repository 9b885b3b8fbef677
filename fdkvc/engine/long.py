"""Runs over long dialogs, whose turns × entries would not fit in memory.

A block of turns is computed at a time. The trace stores the state before each block, and recomputes
the entries of a turn when they are requested.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from fdkvc.core.attention import Ints
from fdkvc.core.cache import join_columns, joined
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.limits import MAX_KEPT_ENTRIES
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import BY_TURN, State, Trace, TurnResult, computed_state
from fdkvc.policies.base import Policy

BLOCK = 16
"""Turns per block."""


@dataclass(frozen=True, eq=False)
class BlockResults(Sequence[TurnResult]):
    """The results of T turns, recomputed block by block."""

    turns: int
    """Number of turns T."""
    of_block: Callable[[int], Sequence[TurnResult]]
    """Computes the results of a block, by its number."""

    def __len__(self) -> int:
        """Return the number of turns."""
        return self.turns

    def __getitem__(self, turn: Any) -> Any:
        """Return the result of a turn."""
        block, index = divmod(turn, BLOCK)
        return self.of_block(block)[index]


def simulate_long(policy: Policy, dialogs: DialogBatch, budget: int) -> Trace:
    """Run a policy over one dialog without keeping the entries of every turn.

    Raises a ValueError if turns × budget exceed `MAX_KEPT_ENTRIES`.

    Examples
    --------
    >>> from fdkvc import SCENARIOS, generate, policy_named
    >>> trace = simulate_long(policy_named("fifo"), generate(SCENARIOS["complex"]), budget=4)
    >>> trace.kept_tokens[0, 19].tolist()
    [636, 637, 638, 639]
    """
    entries_in_all = dialogs.turns * policy.capacity(budget, dialogs.keys.shape[1])
    if entries_in_all > MAX_KEPT_ENTRIES:
        raise ValueError(
            f"{policy.title}: turns × budget are {entries_in_all:,}, but at most "
            f"{MAX_KEPT_ENTRIES:,} are allowed: choose a smaller budget or another policy"
        )
    starts: list[tuple[int, State] | None] = [None]

    def run_block(block: int, *, entries: bool = False) -> Trace:
        start = starts[block]
        stop = (block + 1) * BLOCK
        return simulate(policy, dialogs, budget, entries=entries, start=start, stop=stop)

    @lru_cache(maxsize=1)  # the entries of one block at a time are in memory
    def results_of(block: int) -> Sequence[TurnResult]:
        return run_block(block, entries=True).results or ()

    blocks: list[Trace] = []
    for block in range(-(-dialogs.turns // BLOCK)):  # rounded up
        trace = run_block(block)
        # Attention is computed now: a function that does so later would hold the turn's arrays.
        state = computed_state(trace.end_state.cache, trace.end_state.attended)
        starts.append(((block + 1) * BLOCK, state))
        # Half as many bytes: this is what `MAX_KEPT_ENTRIES` bounds.
        kept_tokens: Ints = trace.kept_tokens.astype(np.int32)
        blocks.append(replace(trace, kept_tokens=kept_tokens, end_state=state))

    columns = {}
    for name in BY_TURN:
        columns[name] = joined([getattr(block, name) for block in blocks], join_columns)
    return replace(
        blocks[-1],
        **columns,
        first_turn=0,
        seconds=np.concatenate([block.seconds for block in blocks]),
        results=BlockResults(dialogs.turns, results_of),
    )
