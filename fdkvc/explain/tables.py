"""A trace as tidy tables, and comparisons of runs by them.

An entries table has a row for each entry and turn, a turns table one for each turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdkvc.core.cache import joined
from fdkvc.core.dialogs import DialogBatch
from fdkvc.engine.metrics import adaptation, default_metrics, metric_named
from fdkvc.engine.trace import Rule, Status, Trace
from fdkvc.explain.decisions import turn_view

_TURN_STATES = ("ownership_loss", "learning_rate")


def entries_table(
    trace: Trace, dialogs: DialogBatch, row: int = 0, words: Sequence[str] = ()
) -> pd.DataFrame:
    """Return a row for each turn and entry that took part in it; the run has recorded its entries.

    A turn has the entries cached before it, older first, then the new ones. `turn` and `born`
    count from 0; `topic` names the token's topics, joined by ``+``; `status` is kept, new, evicted
    or new_evicted; `rule` is budget or threshold for an evicted entry; `attention_…` are of the
    kept entries. Each channel and term of the policy has a column ``channel_…`` or ``term_…``, with
    the values used by eviction; an entry evicted by the threshold has no terms, score and rank.
    There is a column `word` if `words` has the text of each token.
    """
    end = min(trace.turns, int(dialogs.turn_counts[row]))
    views = [turn_view(trace, dialogs, row, turn) for turn in range(end)]

    def pick(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(view, name) for view in views])

    def named(prefix: str, group: str) -> dict[str, NDArray[Any]]:
        columns = joined([getattr(view, group) for view in views])
        return {f"{prefix}_{name}": column for name, column in columns.items()}

    token = pick("token")
    rank = pick("rank")
    topic = dialogs.topics_of(row, token)
    topic[topic == ""] = None  # missing in a file, rather than an empty text
    turns = [np.full(len(view.token), view.turn) for view in views]
    word = {"word": np.asarray(words, object)[token]} if words else {}
    return pd.DataFrame(
        {
            "turn": np.concatenate(turns),
            "token": token,
            **word,
            "born": dialogs.born[row, token],
            "topic": topic,
            "status": _names(Status)[pick("status")],
            "rule": _names(Rule)[pick("rule")],
            "attention_before": pick("attention_before"),
            "attention_after": pick("attention_after"),
            **named("channel", "channels"),
            **named("term", "terms"),
            "score": pick("score"),
            "rank": pd.array(np.where(rank > 0, rank, np.nan), dtype="Int64"),
            "protected": pick("protected"),
        }
    )


def turns_table(
    trace: Trace, dialogs: DialogBatch, row: int = 0, metrics: Iterable[str] = ()
) -> pd.DataFrame:
    """Return a row for each turn, with further `metrics` by their keys.

    `turn` counts from 0; `topic` is the current one; `cached` and `evicted` count entries.
    `ownership_loss` and `learning_rate` are NaN for a policy without them; other row states follow
    them. `latency_ms` is the turn's time divided by the rows of the batch.
    """
    turns = np.flatnonzero(dialogs.in_turns[row])
    states: dict[str, Any] = dict.fromkeys(_TURN_STATES, np.nan)
    for name, numbers in trace.state.items():
        states[name] = numbers[row, turns]
    shares_first = sorted(default_metrics(), key=lambda key: not metric_named(key).percent)
    series = {}
    for key in dict.fromkeys((*shares_first, *metrics)):
        series[key] = metric_named(key).measure(trace, dialogs)[row, turns]
    evicted = sum(trace.evicted.values(), np.zeros(trace.kept_tokens.shape[:2], np.intp))
    # −1, an unknown topic, is the last.
    topics = np.array([*dialogs.topic_names, None], object)
    cached = trace.kept_tokens[row, turns] >= 0
    return pd.DataFrame(
        {
            "turn": turns,
            "topic": topics[dialogs.current[row, turns]],
            "cached": cached.sum(axis=1),
            "evicted": evicted[row, turns],
            **states,
            **series,
            "latency_ms": 1e3 * trace.seconds[turns] / dialogs.rows,
        }
    )


def _names(codes: type[Status] | type[Rule]) -> NDArray[Any]:
    """Return the name of each code; None for 0."""
    return np.array([code.name if code else None for code in codes], object)


def topic_changes(dialogs: DialogBatch) -> pd.DataFrame:
    """Return the turns of the first row whose topic differs from that of the previous turn."""
    current = dialogs.current[0, : dialogs.turn_counts[0]]
    return pd.DataFrame({"turn": 1 + np.flatnonzero(current[1:] != current[:-1])})


# ------------------------------------------------------------------------------- comparisons


def kept_entries(entries: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of an entries table that were in the cache when their turn ended."""
    return entries[entries["status"].isin([Status.kept.name, Status.new.name])]


def overlap_table(entries: pd.DataFrame, other_entries: pd.DataFrame) -> pd.DataFrame:
    """Return for each turn how many entries two runs over the same dialog both keep.

    Both are from `entries_table`. Columns turn, shared, only_one, only_other, jaccard. The last is
    the number that both keep, as a share of the number that either keeps, in [0, 1]; it is 1 for
    two empty caches.

    Examples
    --------
    >>> def kept(*tokens):
    ...     return pd.DataFrame({"turn": 3, "token": tokens, "status": "kept"})
    >>> overlap_table(kept(1, 2, 3), kept(2, 3, 4)).values.tolist()
    [[3.0, 2.0, 1.0, 1.0, 0.5]]
    """
    key = ["turn", "token"]
    turns = np.union1d(entries["turn"], other_entries["turn"])
    first = kept_entries(entries)[key]
    second = kept_entries(other_entries)[key]
    # An outer join says of each entry which of the two caches hold it.
    either = first.merge(second, how="outer", on=key, indicator="holder")
    holders = ["both", "left_only", "right_only"]
    counts = pd.crosstab(either["turn"], either["holder"].astype(str))
    counts = counts.reindex(index=turns, columns=holders, fill_value=0)
    shared, only_one, only_other = counts.to_numpy(np.int64).T
    total = counts.sum(axis=1).to_numpy()
    share = np.where(total > 0, shared / np.maximum(total, 1), 1.0)
    columns = {"shared": shared, "only_one": only_one, "only_other": only_other}
    return pd.DataFrame({"turn": turns, **columns, "jaccard": share})


def first_difference(overlap: pd.DataFrame) -> int | None:
    """Return the first turn after which two caches differ, from `overlap_table`; None if never."""
    different = overlap.loc[overlap["jaccard"] < 1, "turn"]
    return None if different.empty else int(different.iloc[0])


def difference_table(entries: pd.DataFrame, other_entries: pd.DataFrame) -> pd.DataFrame:
    """Return the entries that only one of two runs keeps, for each turn.

    Both are from `entries_table`. Older entries come first. `keeper` is ``one`` or
    ``other``. Score and rank are those of this turn; in the run that does not keep the entry, those
    of the turn `evicted`.
    """
    sides = {"one": entries, "other": other_entries}
    key = ["turn", "token"]
    parts = []
    for keeper, loser in (("one", "other"), ("other", "one")):
        # 1. What the keeper keeps, without what the loser keeps.
        kept_by_loser = kept_entries(sides[loser])[key]
        kept_by_loser = kept_by_loser.assign(shared=True)
        merged = kept_entries(sides[keeper]).merge(kept_by_loser, "left", on=key)
        unshared = merged[merged["shared"].isna()]
        unshared = unshared.reset_index(drop=True)
        # 2. When the loser evicted it.
        losers = sides[loser]
        evicted = losers.loc[losers["rule"].notna(), [*key, "score", "rank"]]
        evicted = evicted.rename(columns={"turn": "evicted"})
        eviction = unshared[key].merge(evicted, "left", on="token")
        columns: dict[str, Any] = {
            "keeper": keeper,
            f"score_{keeper}": unshared["score"],
            f"rank_{keeper}": unshared["rank"],
            f"score_{loser}": eviction["score"],
            f"rank_{loser}": eviction["rank"],
            "evicted": eviction["evicted"].astype("Int64"),
        }
        parts.append(unshared[[*key, "topic", "born"]].assign(**columns))
    table = pd.concat(parts, ignore_index=True)
    return table.sort_values(key, ignore_index=True)


def figures_table(
    turns: Mapping[str, pd.DataFrame], dialogs: DialogBatch, optional: Iterable[str] = ()
) -> pd.DataFrame:
    """Return a row of figures for each run over one dialog.

    `turns` has each run's `turns_table` by its name; `optional` are keys of further metrics in
    these, such as late_retention. `adaptation` is in turns, NaN in a dialog of one topic; where
    `never`, it counts all remaining turns.
    """
    metrics = [*map(metric_named, (*default_metrics(), *optional))]
    rows = []
    for name, table in turns.items():
        adapted = adaptation(_row(table["retention"]), dialogs)
        row: dict[str, Any] = {
            "policy": name,
            "adaptation": float(adapted.turns[0]),
            "never": bool(adapted.never[0]),
        }
        for metric in metrics:
            row[metric.name] = float(metric.mean(_row(table[metric.key]), dialogs)[0])
        rows.append(row)
    return pd.DataFrame(rows)


def _row(column: pd.Series[float]) -> np.ndarray[Any, np.dtype[np.float32]]:
    return column.to_numpy(np.float32)[None]
