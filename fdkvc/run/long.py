"""Runs over long dialogs, whose turns × entries would not fit in memory.

A block of turns is computed at a time. The trace stores the state before each block, and recomputes
the entries of a turn when they are requested.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fdkvc.dialogs import DialogBatch
from fdkvc.limits import MAX_KEPT_ENTRIES
from fdkvc.policies.base import Policy
from fdkvc.run.simulate import simulate
from fdkvc.run.trace import BY_TURN, State, Trace, TurnResult, computed_state, joined

BLOCK = 16
"""Turns per block."""


class BlockResults(Sequence[TurnResult]):
    """The results of T turns, recomputed block by block; the last block is cached.

    Parameters
    ----------
    starts : sequence of State or None
        The state before each block, None before the first turn.
    """

    def __init__(
        self, policy: Policy, dialogs: DialogBatch, budget: int, starts: Sequence[State | None]
    ) -> None:
        self._run = policy, dialogs, budget
        self._starts = starts
        self._cached: tuple[int, Sequence[TurnResult]] = (-1, ())

    def __len__(self) -> int:
        """Return T."""
        return self._run[1].turns

    def __getitem__(self, turn: Any) -> Any:
        """Return the result of a turn."""
        block, at = divmod(turn, BLOCK)
        cached = self._cached  # threads share it
        if cached[0] != block:
            trace = run_block(*self._run, block, self._starts[block], entries=True)
            self._cached = cached = block, trace.results or ()
        return cached[1][at]


def run_block(
    policy: Policy,
    dialogs: DialogBatch,
    budget: int,
    block: int,
    before: State | None,
    *,
    entries: bool = False,
) -> Trace:
    """Run a block of turns from the state before it."""
    first, end = block * BLOCK, min((block + 1) * BLOCK, dialogs.turns)
    start = None if before is None else (first, before)
    return simulate(policy, dialogs, budget, entries=entries, start=start, stop=end)


def simulate_long(policy: Policy, dialogs: DialogBatch, budget: int) -> Trace:
    """Run a policy over a dialog without keeping the entries of every turn.

    Raises a ValueError if turns × budget exceed `MAX_KEPT_ENTRIES`.

    Parameters
    ----------
    dialogs : DialogBatch
        One row.

    Examples
    --------
    >>> from fdkvc import SCENARIOS, generate, policy_named
    >>> trace = simulate_long(policy_named("fifo"), generate(SCENARIOS["complex"]), budget=4)
    >>> trace.kept[0, 19].tolist()
    [636, 637, 638, 639]
    """
    kept = dialogs.turns * policy.capacity(budget, dialogs.keys.shape[1])
    if kept > MAX_KEPT_ENTRIES:
        raise ValueError(
            f"{policy.title}: turns × budget are {kept:,}, but at most {MAX_KEPT_ENTRIES:,} are "
            "allowed: choose a smaller budget or another policy"
        )
    blocks: list[Trace] = []
    starts: list[State | None] = [None]
    for block in range(-(-dialogs.turns // BLOCK)):
        trace = run_block(policy, dialogs, budget, block, starts[-1])
        # Without the arrays that the last turn's attention would keep alive.
        state = computed_state(trace.last.cache, trace.last.attended, trace.last.tier)
        starts.append(state)
        blocks.append(replace(trace, kept=trace.kept.astype(np.int32), last=state))

    columns = [{name: getattr(block, name) for name in BY_TURN} for block in blocks]
    return replace(
        blocks[-1],
        **joined(columns, np.concatenate),
        first_turn=0,
        seconds=np.concatenate([block.seconds for block in blocks]),
        results=BlockResults(policy, dialogs, budget, starts),
    )
