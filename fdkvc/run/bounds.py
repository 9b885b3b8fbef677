"""The highest evidence recall that any cache could have, with knowledge of the whole dialog.

Evidence counts only if all tokens of a mention are cached when they are needed, so its bound is an
integer programme; it is small, because it involves only the tokens of mentions.
"""

import pickle
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.transcripts import TooLargeError
from fdkvc.limits import (
    MAX_BOUND_NODES,
    MAX_BOUND_SECONDS,
    MAX_BOUND_TERMS,
    MAX_INLINE_BOUND_TERMS,
)
from fdkvc.parameters import check_count
from fdkvc.run.evidence import Demands

LIMIT_REACHED = 1
"""SciPy's status for a programme that reached its limits."""

_SOLVER = """
import pickle, sys
from scipy.optimize import milp
pickle.dump(milp(**pickle.load(sys.stdin.buffer)), sys.stdout.buffer)
"""


def most_evidence(recording: Recording, budget: int, wanted: Demands) -> float:
    """Return the highest `recall` of a dialog that a cache of this size can reach, or NaN.

    With all demands known, a cache can choose a mention for each and keep its tokens until they are
    last needed. No cache has more unless evicted entries come back. Raises a ValueError for a
    budget below 1, a TooLargeError if it exceeds the limits of computation.

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
