"""Comparison of runs: where their caches diverge, what only one keeps, and their metrics.

It is computed from the runs' tables, so a fork compares like any other run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fdkvc.attention import Floats
from fdkvc.dialogs import DialogBatch
from fdkvc.run.metrics import adaptation_of, default_metrics, metric_named
from fdkvc.run.trace import Status, Trace

DIFFERENCE = (
    *("turn", "token", "topic", "born", "keeper"),
    *("score_one", "rank_one", "score_other", "rank_other", "evicted"),
)
FIGURES = ("policy", "adaptation", "never", "evictions", "latency_ms")


def kept_entries(entries: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of an entries table that were in the cache when their turn ended."""
    return entries[entries["status"].isin([Status.kept.name, Status.new.name])]


def overlap_table(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Return for each turn how many entries two runs over the same dialog both keep.

    Of two `fdkvc.explain.tables.entries_table`; columns turn, shared, only_one, only_other,
    jaccard. The last is the share of what either keeps that both keep, in [0, 1]; it is 1 for two
    empty caches.

    Examples
    --------
    >>> def kept(*tokens):
    ...     return pd.DataFrame({"turn": 3, "token": tokens, "status": "kept"})
    >>> overlap_table(kept(1, 2, 3), kept(2, 3, 4)).values.tolist()
    [[3.0, 2.0, 1.0, 1.0, 0.5]]
    """
    turns = np.union1d(one["turn"], other["turn"])
    first, second = (kept_entries(entries)[["turn", "token"]] for entries in (one, other))
    either = first.merge(second, how="outer", on=["turn", "token"], indicator="holder")
    counts = pd.crosstab(either["turn"], either["holder"].astype(str)).reindex(
        index=turns, columns=["both", "left_only", "right_only"], fill_value=0
    )
    shared, only_one, only_other = counts.to_numpy(np.int64).T
    total = counts.sum(axis=1).to_numpy()
    share = np.where(total > 0, shared / np.maximum(total, 1), 1.0)
    columns = {"shared": shared, "only_one": only_one, "only_other": only_other}
    return pd.DataFrame({"turn": turns, **columns, "jaccard": share})


def share_of_differences(one: Trace, other: Trace) -> Floats:
    """Return the share of what either of two runs keeps that only one does (B, T), in [0, 1].

    It is 1 − the `jaccard` of `overlap_table`.
    """
    tokens = 1 + max(int(one.kept.max()), int(other.kept.max()))
    held = np.zeros((2, *one.kept.shape[:2], tokens + 1), np.bool_)
    for at, trace in enumerate((one, other)):
        np.put_along_axis(held[at], trace.kept, True, axis=2)  # −1 is the column beyond
    mine, theirs = held[..., :tokens]
    either = (mine | theirs).sum(axis=2)
    return np.asarray((mine ^ theirs).sum(axis=2) / np.maximum(either, 1), np.float32)


def first_difference(overlap: pd.DataFrame) -> int | None:
    """Return the first turn after which two caches differ, from `overlap_table`; None if none."""
    different = overlap.loc[overlap["jaccard"] < 1, "turn"]
    return None if different.empty else int(different.iloc[0])


def difference_table(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Return the entries that only one of two runs keeps, for each turn.

    Of two `fdkvc.explain.tables.entries_table`; columns `DIFFERENCE`, older entries first. `keeper`
    is ``one`` or ``other``. Score and rank are those of this turn; in the run that does not keep
    the entry, those of the turn `evicted`. They are missing, as is `evicted`, for an entry that a
    fork dropped.
    """
    sides, place = {"one": one, "other": other}, ["turn", "token"]
    parts = []
    for keeper, loser in (("one", "other"), ("other", "one")):
        both = kept_entries(sides[loser])[place].assign(shared=True)
        alone = kept_entries(sides[keeper]).merge(both, "left", on=place)
        alone = alone[alone["shared"].isna()].reset_index(drop=True)
        gone = sides[loser].loc[sides[loser]["rule"].notna(), [*place, "score", "rank"]]
        # An entry can be evicted again if a policy recalls it in between: the last time counts.
        gone = gone.assign(evicted=gone["turn"]).sort_values("turn", kind="stable")
        last = pd.merge_asof(alone[place], gone, on="turn", by="token")
        part = {
            **{name: alone[name] for name in (*place, "topic", "born")},
            "keeper": keeper,
            f"score_{keeper}": alone["score"],
            f"rank_{keeper}": alone["rank"],
            f"score_{loser}": last["score"],
            f"rank_{loser}": last["rank"],
            "evicted": last["evicted"].astype("Int64"),
        }
        parts.append(pd.DataFrame(part))
    table = pd.concat(parts, ignore_index=True).sort_values(["turn", "token"], ignore_index=True)
    return table[list(DIFFERENCE)]


def figures_table(
    turns: Mapping[str, pd.DataFrame], dialogs: DialogBatch, more: Iterable[str] = ()
) -> pd.DataFrame:
    """Return a row of figures for each run over one dialog.

    Of each run's `fdkvc.explain.tables.turns_table` by its name, and keys of further metrics in
    them. Columns `FIGURES`, then one for each metric, such as late_retention. `adaptation` is in
    turns, NaN in a dialog of one topic; where `never`, it counts all remaining turns. `evictions`
    counts the tokens that are not cached at the end. `latency_ms` is the median over turns.
    """
    metrics = [metric_named(key) for key in (*default_metrics(), *more)]
    rows = []
    for name, table in turns.items():
        adapted = adaptation_of(_row(table["retention"]), dialogs)
        rows.append(
            (
                name,
                float(adapted.turns[0]),
                bool(adapted.never[0]),
                int(dialogs.bounds[0, -1]) - int(table["cached"].iloc[-1]),
                float(table["latency_ms"].median()),
                *(float(metric.mean(_row(table[metric.key]), dialogs)[0]) for metric in metrics),
            )
        )
    return pd.DataFrame(rows, columns=[*FIGURES, *(metric.name for metric in metrics)])


def _row(column: pd.Series[float]) -> np.ndarray[Any, np.dtype[np.float32]]:
    return column.to_numpy(np.float32)[None]


def all_entries(entries: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the entries of several runs in one tidy table, which begins with a column `policy`.

    Channels and terms that a policy does not have are missing in its rows.
    """
    return pd.concat(entries, names=["policy"]).reset_index("policy").reset_index(drop=True)
