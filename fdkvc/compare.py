"""Runs side by side: where their caches part, what only one keeps, and their figures.

Everything here is made from the tables of the runs, so that a fork, whose first turns are those of
another run, is compared like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fdkvc.dialogs import DialogBatch
from fdkvc.metrics import METRICS, adaptation_of, late
from fdkvc.trace import Status

KEPT = (Status.kept.name, Status.new.name)

OVERLAP = ("turn", "shared", "only_one", "only_other", "jaccard")
DIFFERENCE = (
    *("token", "topic", "born", "keeper", "score_one", "rank_one", "score_other", "rank_other"),
    "evicted",
)
FIGURES = (
    *("policy", *(f"late_{key}" for key in METRICS)),
    *("adaptation", "never", "evictions", "latency_ms"),
)


def kept_entries(entries: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of an entries table that were in the cache when their turn ended."""
    return entries[entries["status"].isin(KEPT)]


def overlap_table(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Return for each turn how many entries two runs over the same dialog both keep.

    Parameters
    ----------
    one, other : DataFrame
        As `fdkvc.tables.entries_table` gives them, of the same turns.

    Returns
    -------
    DataFrame
        Columns `OVERLAP`. `jaccard` is the share of what either keeps that both keep, in [0, 1];
        two empty caches overlap wholly.

    Examples
    --------
    >>> def kept(*tokens):
    ...     return pd.DataFrame({"turn": 3, "token": tokens, "status": "kept"})
    >>> overlap_table(kept(1, 2, 3), kept(2, 3, 4)).values.tolist()
    [[3.0, 2.0, 1.0, 1.0, 0.5]]
    """
    turns = np.union1d(one["turn"], other["turn"])
    first, second = (
        kept_entries(entries)[["turn", "token"]].assign(**{name: True})
        for entries, name in ((one, "one"), (other, "other"))
    )
    both = first.merge(second, how="outer", on=["turn", "token"])
    mine, theirs = both["one"].notna(), both["other"].notna()
    counted = {
        name: mask.groupby(both["turn"]).sum().reindex(turns, fill_value=0).to_numpy()
        for name, mask in (
            ("shared", mine & theirs),
            ("only_one", mine & ~theirs),
            ("only_other", theirs & ~mine),
        )
    }
    either = sum(counted.values())
    share = np.where(either > 0, counted["shared"] / np.maximum(either, 1), 1.0)
    return pd.DataFrame({"turn": turns, **counted, "jaccard": share})


def first_difference(overlap: pd.DataFrame) -> int | None:
    """Return the first turn after which two caches differ, from `overlap_table`; None if none."""
    apart = overlap.loc[overlap["jaccard"] < 1, "turn"]
    return None if apart.empty else int(apart.iloc[0])


def difference_table(one: pd.DataFrame, other: pd.DataFrame, turn: int) -> pd.DataFrame:
    """Return the entries that only one of two runs keeps after a turn.

    Parameters
    ----------
    one, other : DataFrame
        As `fdkvc.tables.entries_table` gives them, of the same turns.
    turn : int

    Returns
    -------
    DataFrame
        Columns `DIFFERENCE`, older entries first. `keeper` is ``one`` or ``other``. Score and rank
        are those of this turn; in the run that does not keep the entry, those of the turn
        `evicted`, in which it went. They are missing, as is `evicted`, for what a fork took out.
    """
    stands = {"one": _last_standing(one, turn), "other": _last_standing(other, turn)}
    kept = {name: set(_kept_at(frame, turn)) for name, frame in stands.items()}
    tokens = sorted(kept["one"] ^ kept["other"])
    keeper = ["one" if token in kept["one"] else "other" for token in tokens]
    columns: dict[str, Any] = {}
    for name, frame in stands.items():
        found = frame.reindex(tokens)
        # Without a rule it was not evicted: it is kept now, or a fork took it out later.
        known = found["rule"].notna() | (found["turn"] == turn)
        columns[f"score_{name}"] = found["score"].where(known).to_numpy()
        columns[f"rank_{name}"] = found["rank"].where(known).array
        columns[f"evicted_{name}"] = found["turn"].where(found["rule"].notna()).to_numpy()
    facts = pd.concat([stands["one"], stands["other"]]).groupby(level=0).first().reindex(tokens)
    gone = np.where(np.array(keeper) == "one", columns["evicted_other"], columns["evicted_one"])
    table = pd.DataFrame(
        {
            "token": np.array(tokens, np.intp),
            "topic": facts["topic"].to_numpy(),
            "born": facts["born"].to_numpy(),
            "keeper": np.array(keeper, object),
            **columns,
            "evicted": pd.array(gone, dtype="Int64"),
        }
    )
    return table[list(DIFFERENCE)]


def _last_standing(entries: pd.DataFrame, turn: int) -> pd.DataFrame:
    """Return the last row of every token up to a turn, by token."""
    past = entries[entries["turn"] <= turn]
    return past.drop_duplicates("token", keep="last").set_index("token")


def _kept_at(standing: pd.DataFrame, turn: int) -> list[int]:
    kept = kept_entries(standing[standing["turn"] == turn])
    return [int(token) for token in kept.index]


def figures_table(turns: Mapping[str, pd.DataFrame], dialogs: DialogBatch) -> pd.DataFrame:
    """Return a row of figures for each run over one dialog.

    Parameters
    ----------
    turns : mapping of str to DataFrame
        A name, and the run as `fdkvc.tables.turns_table` gives it.
    dialogs : DialogBatch
        Of one row.

    Returns
    -------
    DataFrame
        Columns `FIGURES`. `adaptation` is in turns, NaN in a dialog of one topic; where `never`,
        it counts all the turns that there were. `evictions` are the tokens that came and are not
        cached in the end. `latency_ms` is the median turn.
    """
    rows = []
    for name, table in turns.items():
        series = {key: _row(table[key]) for key in METRICS}
        adapted = adaptation_of(series["retention"], dialogs)
        rows.append(
            (
                name,
                *(float(late(series[key], dialogs)[0]) for key in METRICS),
                float(adapted.turns[0]),
                bool(adapted.never[0]),
                int(dialogs.bounds[0, -1]) - int(table["cached"].iloc[-1]),
                float(table["latency_ms"].median()),
            )
        )
    return pd.DataFrame(rows, columns=list(FIGURES))


def _row(column: pd.Series[float]) -> np.ndarray[Any, np.dtype[np.float32]]:
    return column.to_numpy(np.float32)[None]


def all_entries(entries: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the entries of several runs in one tidy table, which begins with a column `policy`.

    Parameters
    ----------
    entries : mapping of str to DataFrame
        A name, and the run as `fdkvc.tables.entries_table` gives it. Channels and terms that a
        policy does not have are missing in its rows.
    """
    named = [frame.assign(policy=name) for name, frame in entries.items()]
    every = pd.concat(named, ignore_index=True)
    plain = ["policy", *next(iter(entries.values())).columns]
    return every[[*plain, *(column for column in every if column not in plain)]]
