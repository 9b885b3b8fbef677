"""A trace as tidy tables: a row for each entry and turn, and one for each turn."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdkvc.dialogs import DialogBatch
from fdkvc.explain.explain import turn_view
from fdkvc.run.metrics import default_metrics, metric_named
from fdkvc.run.trace import Rule, Status, Trace

_TURN_STATES = ("ownership_loss", "learning_rate")


def entries_table(
    trace: Trace, dialogs: DialogBatch, row: int = 0, words: Sequence[str] = ()
) -> pd.DataFrame:
    """Return a row for each turn and entry that took part in it; the run has recorded its entries.

    In each turn the entries cached before it, older first, then the new ones. `turn` and `born`
    count from 0; `topic` names the token's topics, joined by ``+``; `status` is kept, new, evicted
    or new_evicted; `rule` is budget or threshold for an evicted entry; `attention_…` are of the
    kept entries. Each channel and term of the policy has a column ``channel_…`` or ``term_…``, with
    the values used by eviction; an entry evicted by the threshold has no terms, score and rank.
    There is a column `word` if `words` has the text of each token.
    """
    end = min(trace.first_turn + trace.turns, int(dialogs.turn_counts[row]))
    views = [turn_view(trace, dialogs, row, turn) for turn in range(trace.first_turn, end)]

    def pick(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(view, name) for view in views])

    def named(prefix: str, columns: str) -> dict[str, NDArray[Any]]:
        parts = [getattr(view, columns) for view in views]
        return {f"{prefix}_{name}": np.concatenate([x[name] for x in parts]) for name in parts[0]}

    token, rank = pick("token"), pick("rank")
    topic = dialogs.topics_of(row, token)
    topic[topic == ""] = None
    return pd.DataFrame(
        {
            "turn": np.repeat([view.turn for view in views], [len(view.token) for view in views]),
            "token": token,
            **({"word": np.asarray(words, object)[token]} if words else {}),
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
    at = np.flatnonzero(dialogs.in_turns[row, trace.first_turn :])
    turns = at + trace.first_turn
    states = {
        name: trace.state[name][row, at] if name in trace.state else np.nan
        for name in dict.fromkeys((*_TURN_STATES, *trace.state))
    }
    usual = sorted(default_metrics(), key=lambda key: not metric_named(key).percent)  # shares first
    metrics = {
        key: metric_named(key).measure(trace, dialogs)[row, at]
        for key in dict.fromkeys((*usual, *metrics))
    }
    evicted = sum(trace.evicted.values(), np.zeros(trace.kept.shape[:2], np.intp))
    return pd.DataFrame(
        {
            "turn": turns,
            # −1, an unknown topic, is the last: None.
            "topic": np.array([*dialogs.topic_names, None], object)[dialogs.current[row, turns]],
            "cached": (trace.kept[row, at] >= 0).sum(axis=1),
            "evicted": evicted[row, at],
            **states,
            **metrics,
            "latency_ms": 1e3 * trace.seconds[at] / dialogs.rows,
        }
    )


def _names(codes: type[Status] | type[Rule]) -> NDArray[Any]:
    """Return the name of each code; None for 0."""
    return np.array([code.name if code else None for code in codes], object)


def topic_changes(dialogs: DialogBatch, row: int = 0) -> pd.DataFrame:
    """Return the turns whose topic differs from that of the previous turn."""
    current = dialogs.current[row, : dialogs.turn_counts[row]]
    return pd.DataFrame({"turn": 1 + np.flatnonzero(current[1:] != current[:-1])})
