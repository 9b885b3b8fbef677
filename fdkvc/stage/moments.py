"""Where a run is worth looking at, and what is said of an entry there."""

from __future__ import annotations

import numpy as np

from fdkvc.run.trace import Rule, Status
from fdkvc.stage.run import Run
from fdkvc.told.explain import decision, explain, sentences


def nearly_kept(run: Run) -> tuple[int, int | None]:
    """Return the turn after the first change of topic, and the best entry that it evicted.

    The entry is one that had been there before, if any of those went. Where that turn evicts
    nothing, it is the next one that does, or the last turn and no entry.
    """
    changes = np.flatnonzero(np.diff(run.dialogs.current[0])) + 1
    last = run.dialogs.turns - 1
    first = min(int(changes[0]) + 1, last) if len(changes) else 0
    for turn in range(first, last + 1):
        made = decision(run.trace, run.dialogs, 0, turn)
        gone = np.flatnonzero(made.rule == Rule.budget)
        if len(gone):
            gone = gone[~made.new[gone]] if not made.new[gone].all() else gone
            return turn, int(made.token[gone[np.argmax(made.score[gone])]])
    return last, None


def told(run: Run, turn: int, token: int) -> list[str]:
    """Say why an entry is where it is in a turn; of what has gone before, why it went."""
    own = run.at(turn)
    why = explain(own.trace, own.dialogs, 0, turn, token)
    if why.left is not None and why.left[0] < turn:
        return told(run, why.left[0], token)
    if own.trunk is not None and why.status == Status.empty and why.born < own.trace.first_turn:
        fork = own.trace.first_turn - 1
        if token in own.trunk.at(fork).trace.state_after(fork).cache.token:
            return [f"Token {token} was taken out by the fork, after turn {fork}."]
        return told(own.trunk, fork, token)
    return sentences(why)
