"""Exact bounds with knowledge of the whole dialog: least attention loss, highest evidence recall.

An offline optimum chooses for each token the turn after which it is evicted. An entry is then an
interval of turns whose weight is the attention that the full cache pays to it, and at most `budget`
intervals may overlap: a maximum-weight k-colorable set of intervals (Carlisle and Lloyd 1995, *On
the k-coloring of intervals*). It is a flow of `budget` units through the turns, found by successive
longest paths (Ahuja, Magnanti and Orlin 1993, *Network Flows*, Section 9.7).

Evidence counts only if all tokens of a mention are cached when they are needed, so its bound is an
integer programme; it is small, because it involves only the tokens of mentions.
"""

import pickle
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fdkvc.attention import Bools, Floats
from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.transcripts import TooLargeError
from fdkvc.dialogs import DialogBatch
from fdkvc.limits import (
    MAX_BOUND_NODES,
    MAX_BOUND_SECONDS,
    MAX_BOUND_TERMS,
    MAX_INLINE_BOUND_TERMS,
    MAX_REGRET_STEPS,
)
from fdkvc.parameters import check_count
from fdkvc.run.evidence import Demands

_KNOWN: WeakKeyDictionary[DialogBatch, dict[int, Floats]] = WeakKeyDictionary()
"""Least losses by dialogs and budget, cached while the dialogs are in use."""

BITS = 40
"""Binary digits of the largest weight, fewer above 512 turns: sums along a path stay below 2**60.
"""

NEVER = np.int64(-(2**60))
"""The gain of an impossible move."""

LIMIT_REACHED = 1
"""SciPy's status for a programme that reached its limits."""

_SOLVER = """
import pickle, sys
from scipy.optimize import milp
pickle.dump(milp(**pickle.load(sys.stdin.buffer)), sys.stdout.buffer)
"""


def check_schedule(turns: int, tokens: int, budget: int) -> None:
    """Raise a ValueError if the best schedule of such a dialog would take too many steps."""
    check_count("budget", budget)
    steps = 0 if tokens <= budget else turns * max(tokens, turns * budget)
    if steps > MAX_REGRET_STEPS:
        raise ValueError(
            f"regret would take {steps:,} steps here, but at most {MAX_REGRET_STEPS:,} are "
            "allowed: choose fewer turns or tokens, or a smaller budget"
        )


def best_schedule(worth: Floats, born: NDArray[np.intp], budget: int) -> Bools:
    """Choose what a cache holds at the end of each turn, for the greatest total weight.

    Raises a ValueError for a budget below 1, or more than `MAX_REGRET_STEPS`.

    Parameters
    ----------
    worth : array (T, N)
        Weight of holding each token at the end of each turn, at least 0.
    born : array (N,)
        The turn of each token; once evicted, it does not come back.

    Returns
    -------
    array (T, N) of bool

    Examples
    --------
    >>> worth = np.array([[3, 2, 0], [0, 2, 1]], np.float32)
    >>> best_schedule(worth, np.array([0, 0, 1]), budget=1).astype(int).tolist()
    [[0, 1, 0], [0, 1, 0]]
    """
    turns, tokens = worth.shape
    check_schedule(turns, tokens, budget)
    if tokens <= budget:
        return np.asarray(np.arange(turns)[:, None] >= born)
    gains = _gains(worth, born)
    ends = np.array(born, np.intp)  # each token is evicted before this turn; at first, at once
    taken = np.zeros(turns, np.intp)
    moves = np.full((turns + 1, turns + 1), NEVER)  # largest gain of moving a token's end
    changed: Iterable[int] = range(turns + 1)
    for places in range(budget):
        for end in changed:
            some = gains[ends == end]
            moves[end] = (some - some[:, end, None]).max(axis=0, initial=NEVER)
        steps = moves.copy()
        turn = np.arange(turns)
        steps[turn, turn + 1] = np.maximum(steps[turn, turn + 1], 0)  # a place stays empty
        turn = np.flatnonzero(taken < places)
        steps[turn + 1, turn] = np.maximum(steps[turn + 1, turn], 0)
        path = _longest_path(steps)
        if path is None:  # no gain from another place
            break
        moved = []
        for end, to in pairwise(path):
            if steps[end, to] == moves[end, to]:
                some = np.flatnonzero(ends == end)
                moved.append((some[np.argmax(gains[some, to] - gains[some, end])], end, to))
        for token, end, to in moved:
            ends[token] = to
            taken[min(end, to) : max(end, to)] += 1 if to > end else -1
        changed = path
    turn = np.arange(turns)[:, None]
    return np.asarray((born <= turn) & (turn < ends))


def _gains(worth: Floats, born: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return each token's integer weight if it is evicted before each turn, or never (N, T + 1)."""
    # Sums of integers are exact, so that no cycle has a gain.
    turns, tokens = worth.shape
    _, exponent = np.frexp(worth.max(initial=0))
    digits = min(BITS, 58 - 2 * (turns - 1).bit_length())
    scaled = np.ldexp(worth.T.astype(np.float64), digits - exponent)
    gains = np.zeros((tokens, turns + 1), np.int64)
    gains[:, 1:] = np.rint(scaled)
    turn = np.arange(turns + 1)
    gains[:, 1:][turn[:-1] < born[:, None]] = 0
    np.cumsum(gains, axis=1, out=gains)
    gains[turn < born[:, None]] = NEVER
    return gains


def _longest_path(steps: NDArray[np.int64]) -> list[int] | None:
    """Return the longest path from the first node to the last, or None if its gain is 0.

    `steps` (n, n) holds the gain of each step: at least 0 to the next node, and no positive cycle.
    """
    gained = np.zeros(len(steps), np.int64)
    before = np.arange(len(steps)) - 1
    pending = np.ones(len(steps), np.bool_)
    while pending.any():
        for node in range(len(steps)):
            if pending[node]:
                pending[node] = False
                through = gained[node] + steps[node]
                better = through > gained
                gained[better] = through[better]
                before[better] = node
                pending |= better
    if not gained[-1]:
        return None
    path = [len(steps) - 1]
    while path[-1]:
        path.append(int(before[path[-1]]))
    return path[::-1]


def least_attention_loss(dialogs: DialogBatch, budget: int) -> Floats:
    """Return the attention loss of the best schedule at the end of each turn (B, T).

    NaN in turns without tokens. No policy has a lower mean over a dialog; it may have a lower loss
    in a single turn.
    """
    losses = _KNOWN.setdefault(dialogs, {})
    if budget not in losses:
        loss = np.full((dialogs.rows, dialogs.turns), np.nan, np.float32)
        for row in range(dialogs.rows):
            turns = int(dialogs.turn_counts[row])
            tokens = int(dialogs.bounds[row, turns])
            worth = dialogs.full_attention[row, :turns, :tokens]
            held = best_schedule(worth, dialogs.born[row, :tokens], budget)
            kept = np.where(held, worth, 0).sum(axis=1, dtype=np.float64)
            has_tokens = np.diff(dialogs.bounds[row, : turns + 1]) > 0
            loss[row, :turns] = np.where(has_tokens, np.maximum(1 - kept, 0), np.nan)
        losses[budget] = loss
    return losses[budget]


def most_evidence(recording: Recording, budget: int, wanted: Demands) -> float:
    """Return the highest recall of a dialog that a cache of this size can reach.

    With all demands known, a cache can choose a mention for each and keep its tokens until they are
    last needed. No cache has more unless evicted entries come back. Raises a ValueError for a
    budget below 1, a TooLargeError if it exceeds the limits of computation.

    Returns
    -------
    float
        In [0, 1], as `fdkvc.run.evidence.recall`; NaN without demands.

    Examples
    --------
    >>> from fdkvc.corpora.formats import EXAMPLES, read_file
    >>> from fdkvc.corpora.lexical import lexical_recording
    >>> recording = lexical_recording(read_file(EXAMPLES / "dialogues.json")[0])
    >>> [round(most_evidence(recording, budget, Demands("call")), 2) for budget in (1, 4, 16)]
    [0.18, 0.55, 0.97]
    """
    check_count("budget", budget)
    weights = wanted.weights([demand for demand, _ in recording.evidence])
    born = np.repeat(np.arange(len(recording.tokens)), [len(turn) for turn in recording.tokens])
    last = np.full(len(born), -1)  # when each token of a last mention is needed last
    needs = []
    for weight, (demand, mentions) in zip(weights, recording.evidence, strict=True):
        if weight:
            needs.append((float(weight), demand.turn - 1, mentions))
            newest = list(mentions[-1])
            last[newest] = np.maximum(last[newest], demand.turn - 1)
    if not needs:
        return float("nan")
    if _places(born, last).max() <= budget:  # all last mentions fit
        return 1.0
    if 2 * sum(len(mention) for *_, mentions in needs for mention in mentions) > MAX_BOUND_TERMS:
        raise TooLargeError(f"{recording.transcript.name} is too large to compute the best cache")
    return _most_met(needs, born, budget)


def _places(born: NDArray[np.intp], last: NDArray[np.intp]) -> NDArray[np.intp]:
    """Count the tokens held after each turn, if each is held until `last` (−1: never)."""
    change = np.zeros(born[-1] + 2, np.intp)
    np.add.at(change, born[last >= 0], 1)
    np.add.at(change, last[last >= 0] + 1, -1)
    return np.cumsum(change)


def _most_met(
    needs: Sequence[tuple[float, int, Sequence[Sequence[int]]]],
    born: NDArray[np.intp],
    budget: int,
) -> float:
    """Solve the integer programme: weight, turn checked and tokens of the mentions of each need."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_matrix

    # Variables: each token is held until each turn that needs it; each demand is met by a mention.
    needed_at = sorted(
        {(token, turn) for _, turn, some in needs for mention in some for token in mention}
    )
    held = {token_and_turn: number for number, token_and_turn in enumerate(needed_at)}
    met = [(at, mention) for at, (*_, some) in enumerate(needs) for mention in some]
    rows: list[tuple[dict[int, int], int]] = []  # sums of variables and their upper bounds
    for number, (at, mention) in enumerate(met, start=len(held)):
        rows += [({number: 1, held[token, needs[at][1]]: -1}, 0) for token in mention]
    for at in range(len(needs)):
        mentions = {n: 1 for n, (demand, _) in enumerate(met, start=len(held)) if demand == at}
        rows.append((mentions, 1))
    for (token, turn), (next_token, later) in pairwise(needed_at):
        if token == next_token:
            rows.append(({held[token, later]: 1, held[token, turn]: -1}, 0))
    for turn in range(int(born[-1]) + 1):
        next_needed: dict[int, int] = {}
        for token, until in reversed(needed_at):
            if born[token] <= turn <= until:
                next_needed[token] = held[token, until]
        rows.append((dict.fromkeys(next_needed.values(), 1), budget))
    row = np.repeat(np.arange(len(rows)), [len(sums) for sums, _ in rows])
    column = np.array([number for sums, _ in rows for number in sums], np.intp)
    numbers = np.array([number for sums, _ in rows for number in sums.values()])
    matrix = coo_matrix((numbers, (row, column)), (len(rows), len(held) + len(met)))
    worth = np.concatenate([np.zeros(len(held)), [needs[at][0] for at, _ in met]])
    programme: dict[str, Any] = {
        "c": -worth,
        "integrality": np.ones(len(worth), np.intp),
        "bounds": Bounds(0, 1),
        "constraints": LinearConstraint(matrix.tocsr(), ub=[most for _, most in rows]),
        "options": {
            "mip_rel_gap": 0.0,
            "node_limit": MAX_BOUND_NODES,
            "time_limit": MAX_BOUND_SECONDS,
        },
    }
    small = len(numbers) <= MAX_INLINE_BOUND_TERMS
    solved = milp(**programme) if small else _solve_in_process(programme)
    if solved.status == LIMIT_REACHED:
        raise TooLargeError(f"the search for the best cache takes too long: {solved.message}")
    if solved.x is None:
        raise RuntimeError(f"the integer programme was not solved: {solved.message}")
    return float(worth @ np.round(solved.x))


def _solve_in_process(programme: Mapping[str, Any]) -> Any:
    """Solve an integer programme in a child process, which is killed at its time limit."""
    command = [sys.executable, "-c", _SOLVER]
    with Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL) as child:
        try:
            solution, _ = child.communicate(pickle.dumps(programme), 3 * MAX_BOUND_SECONDS)
        except TimeoutExpired as overrun:
            raise TooLargeError("the search for the best cache takes too long") from overrun
        finally:
            child.kill()  # also when this process is interrupted
    return pickle.loads(solution)
