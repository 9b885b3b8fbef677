"""Exact bounds: the least attention that a cache must miss, the most evidence that it could hold.

Whoever knew the whole dialog could choose, for each token, the turn at whose end it is dropped. An
entry is then an interval from its birth to that turn, worth the attention that the full cache pays
to it meanwhile, and at most `budget` intervals may overlap in any turn: a packing of intervals of
the greatest weight (Carlisle and Lloyd 1995, *On the k-coloring of intervals*). It is a flow of
`budget` units through the turns, found one unit after the other along the path that gains most
(Ahuja, Magnanti and Orlin 1993, *Network Flows*, Section 9.7).

Evidence is worth something only where all tokens of a mention are there when they are needed, so
its bound is an integer programme; it is small, because no other tokens need be held.
"""

from __future__ import annotations

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
from fdkvc.limits import (
    MAX_BOUND_NODES,
    MAX_BOUND_SECONDS,
    MAX_BOUND_TERMS,
    MAX_INLINE_BOUND_TERMS,
    MAX_REGRET_STEPS,
)
from fdkvc.parameters import check_count
from fdkvc.run.evidence import Demands
from fdkvc.synthetic.batch import DialogBatch

_KNOWN: WeakKeyDictionary[DialogBatch, dict[int, Floats]] = WeakKeyDictionary()
"""Least losses by dialogs and budget, for as long as the dialogs are in use."""

BITS = 40
"""Binary digits of the greatest worth: with 512 turns, sums along a path stay below 2**60."""

NEVER = np.int64(-(2**60))
"""What a token gains by what it cannot do."""

LIMIT_REACHED = 1
"""SciPy's status of a programme that was not solved within its limits."""

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
            f"regret takes {steps:,} steps here, but at most {MAX_REGRET_STEPS:,} are allowed: "
            "choose fewer turns or tokens, or a smaller budget"
        )


def best_schedule(worth: Floats, born: NDArray[np.intp], budget: int) -> Bools:
    """Choose what a cache holds at the end of each turn, for the greatest worth in all.

    Parameters
    ----------
    worth : array (T, N)
        What it is worth to hold each token at the end of each turn, at least 0.
    born : array (N,)
        The turn that brings each token; once dropped, it does not come back.

    Returns
    -------
    array (T, N) of bool

    Raises
    ------
    ValueError
        For a budget below 1, or more than `MAX_REGRET_STEPS`.

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
    ends = np.array(born, np.intp)  # the turn before which each token is dropped; at first, at once
    taken = np.zeros(turns, np.intp)
    moves = np.full((turns + 1, turns + 1), NEVER)  # most gained by a token's end moved to another
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
        if path is None:  # nothing is worth another place
            break
        found = []
        for end, to in pairwise(path):
            if steps[end, to] == moves[end, to]:
                some = np.flatnonzero(ends == end)
                found.append((some[np.argmax(gains[some, to] - gains[some, end])], end, to))
        for token, end, to in found:
            ends[token] = to
            taken[min(end, to) : max(end, to)] += 1 if to > end else -1
        changed = path
    turn = np.arange(turns)[:, None]
    return np.asarray((born <= turn) & (turn < ends))


def _gains(worth: Floats, born: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return what each token is worth if it is dropped before each turn, or after all (N, T + 1).

    In whole numbers, in which sums are exact and no path around a circle gains anything.
    """
    turns, tokens = worth.shape
    _, exponent = np.frexp(worth.max(initial=0))
    scaled = np.ldexp(worth.T.astype(np.float64), BITS - exponent)
    gains = np.zeros((tokens, turns + 1), np.int64)
    gains[:, 1:] = np.rint(scaled)
    turn = np.arange(turns + 1)
    gains[:, 1:][turn[:-1] < born[:, None]] = 0
    np.cumsum(gains, axis=1, out=gains)
    gains[turn < born[:, None]] = NEVER
    return gains


def _longest_path(steps: NDArray[np.int64]) -> list[int] | None:
    """Return the best way from the first node to the last, or None if it gains nothing.

    Parameters
    ----------
    steps : array (n, n)
        What a step from each node to each other gains: to the next one, at least 0; and around no
        circle anything.
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
    """Return the attention loss of the best schedule (B, T); no mean over a dialog is lower.

    Returns
    -------
    array (B, T)
        Share of the full cache's attention that the best schedule misses at the end of each
        turn; NaN in turns without tokens. A policy may miss less in one turn, by missing more in
        others.
    """
    known = _KNOWN.setdefault(dialogs, {})
    if budget not in known:
        loss = np.full((dialogs.rows, dialogs.turns), np.nan, np.float32)
        for row in range(dialogs.rows):
            turns = int(dialogs.turn_counts[row])
            tokens = int(dialogs.bounds[row, turns])
            worth = dialogs.full_attention[row, :turns, :tokens]
            held = best_schedule(worth, dialogs.born[row, :tokens], budget)
            kept = np.where(held, worth, 0).sum(axis=1, dtype=np.float64)
            asked = np.diff(dialogs.bounds[row, : turns + 1]) > 0
            loss[row, :turns] = np.where(asked, np.maximum(1 - kept, 0), np.nan)
        known[budget] = loss
    return known[budget]


def most_evidence(recording: Recording, budget: int, asked: Demands) -> float:
    """Return the greatest recall of a dialog that any cache of this size could have had.

    Who knew all demands could choose a mention for each, and keep its tokens from their turn until
    they are last needed. No cache into which evicted entries do not come back has more.

    Returns
    -------
    float
        In [0, 1], as `fdkvc.run.evidence.recall`; NaN where nothing is demanded.

    Raises
    ------
    ValueError
        For a budget below 1.
    TooLargeError
        If it cannot be computed within the limits.

    Examples
    --------
    >>> from fdkvc.corpora.formats import EXAMPLES, read_file
    >>> from fdkvc.corpora.lexical import lexical_recording
    >>> recording = lexical_recording(read_file(EXAMPLES / "dialogues.json")[0])
    >>> [round(most_evidence(recording, budget, Demands("call")), 2) for budget in (1, 4, 16)]
    [0.18, 0.55, 0.97]
    """
    check_count("budget", budget)
    demands = [demand for demand, _ in recording.evidence]
    weights = asked.weights(demands)
    wanted = [
        (weight, demand.turn - 1, mentions)
        for weight, (demand, mentions) in zip(weights, recording.evidence, strict=True)
        if weight
    ]
    if not wanted:
        return float("nan")
    born = np.repeat(np.arange(len(recording.tokens)), [len(turn) for turn in recording.tokens])
    last = np.full(len(born), -1)
    for weight, (demand, _), (needed, starts) in zip(
        weights, recording.evidence, recording.needed, strict=True
    ):
        if weight:
            newest = needed[starts[-1] :]
            last[newest] = np.maximum(last[newest], demand.turn - 1)
    if _places(born, last).max() <= budget:  # the last mentions of all fit in together
        return 1.0
    if 2 * sum(len(mention) for *_, mentions in wanted for mention in mentions) > MAX_BOUND_TERMS:
        raise TooLargeError(f"{recording.transcript.name}: its best cache is not computed")
    return _most_met(wanted, born, budget)


def _places(born: NDArray[np.intp], last: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return how many tokens are held at the end of each turn, if each is until its last, or −1."""
    change = np.zeros(born[-1] + 2, np.intp)
    np.add.at(change, born[last >= 0], 1)
    np.add.at(change, last[last >= 0] + 1, -1)
    return np.cumsum(change)


def _most_met(
    wanted: Sequence[tuple[float, int, Sequence[Sequence[int]]]],
    born: NDArray[np.intp],
    budget: int,
) -> float:
    """Solve the integer programme.

    Parameters
    ----------
    wanted : sequence of (weight, turn, mentions)
        What each demand is worth, the turn at whose end it is asked, and the tokens of each of its
        mentions.
    born : array (N,)
    budget : int
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_matrix

    # Of each token, whether it is held until each turn that asks for it; of each demand and
    # mention, whether it is met by that.
    asked_at = sorted({(t, turn) for _, turn, some in wanted for each in some for t in each})
    held = {each: number for number, each in enumerate(asked_at)}
    met = [(at, mention) for at, (*_, some) in enumerate(wanted) for mention in some]
    rows: list[tuple[dict[int, int], int]] = []  # sums of variables, and the most they may be
    for number, (at, mention) in enumerate(met, start=len(held)):
        rows += [({number: 1, held[token, wanted[at][1]]: -1}, 0) for token in mention]
    for at in range(len(wanted)):
        rows.append(({n: 1 for n, each in enumerate(met, start=len(held)) if each[0] == at}, 1))
    for (token, turn), (other, later) in pairwise(asked_at):
        if token == other:
            rows.append(({held[token, later]: 1, held[token, turn]: -1}, 0))
    for turn in range(int(born[-1]) + 1):
        next_asked: dict[int, int] = {}
        for token, until in reversed(asked_at):
            if born[token] <= turn <= until:
                next_asked[token] = held[token, until]
        rows.append((dict.fromkeys(next_asked.values(), 1), budget))
    row = np.repeat(np.arange(len(rows)), [len(sums) for sums, _ in rows])
    column = np.array([number for sums, _ in rows for number in sums], np.intp)
    numbers = np.array([number for sums, _ in rows for number in sums.values()])
    matrix = coo_matrix((numbers, (row, column)), (len(rows), len(held) + len(met)))
    worth = np.concatenate([np.zeros(len(held)), [wanted[at][0] for at, _ in met]])
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
    """Solve an integer programme in a child process, which is killed if it overruns its limit."""
    command = [sys.executable, "-c", _SOLVER]
    with Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL) as child:
        try:
            solution, _ = child.communicate(pickle.dumps(programme), 3 * MAX_BOUND_SECONDS)
        except TimeoutExpired as overrun:
            raise TooLargeError("the search for the best cache takes too long") from overrun
        finally:
            child.kill()  # also when this process is interrupted
    return pickle.loads(solution)
