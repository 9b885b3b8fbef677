"""The exact bound: the least attention that any cache of this size must miss in a dialog.

Whoever knew the whole dialog could choose, for each token, the turn at whose end it is dropped. An
entry is then an interval from its birth to that turn, worth the attention that the full cache pays
to it meanwhile, and at most `budget` intervals may overlap in any turn: a packing of intervals of
the greatest weight (Carlisle and Lloyd 1995, *On the k-coloring of intervals*). As a linear
programme it is a flow of `budget` units through the turns, so its vertices are whole numbers.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fdkvc.attention import Bools, Floats
from fdkvc.dialogs.batch import DialogBatch
from fdkvc.parameters import check_count

_KNOWN: WeakKeyDictionary[DialogBatch, dict[int, Floats]] = WeakKeyDictionary()
"""Least losses by dialogs and budget, for as long as the dialogs are in use."""


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
        For a budget below 1.

    Examples
    --------
    >>> worth = np.array([[3, 2, 0], [0, 2, 1]], np.float32)
    >>> best_schedule(worth, np.array([0, 0, 1]), budget=1).astype(int).tolist()
    [[0, 1, 0], [0, 1, 0]]
    """
    from scipy.optimize import linprog  # it takes long to load, and few ask for it
    from scipy.sparse import coo_matrix, vstack

    check_count("budget", budget)
    turns, tokens = worth.shape
    alive = np.arange(turns)[:, None] >= born
    if tokens <= budget:
        return np.asarray(alive)
    # One variable for each token and turn: is it dropped after this turn?
    last, token = np.nonzero(alive)
    variable = np.arange(last.size)
    interval = (np.arange(turns)[:, None] <= last) & (np.arange(turns)[:, None] >= born[token])
    once = coo_matrix((np.ones(last.size), (token, variable)), (tokens, last.size))
    solved = linprog(  # type: ignore[call-overload]  # SciPy takes sparse matrices here
        -np.cumsum(np.where(alive, worth, 0), axis=0, dtype=np.float64)[alive],
        A_ub=vstack([coo_matrix(interval, dtype=np.float64), once]).tocsr(),
        b_ub=np.concatenate([np.full(turns, budget), np.ones(tokens)]),
        method="highs",
    )
    if solved.x is None:
        raise RuntimeError(f"the linear programme was not solved: {solved.message}")
    held = np.zeros((turns, tokens), np.bool_)
    for number in np.flatnonzero(solved.x > 0.5):
        held[born[token[number]] : last[number] + 1, token[number]] = True
    return held


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
