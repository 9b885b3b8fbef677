"""One run as tables for the eye: schedule, cache river, and the path of an entry."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fdkvc.run.trace import Trace
from fdkvc.synthetic.batch import DialogBatch


def schedule_table(dialogs: DialogBatch, row: int = 0) -> pd.DataFrame:
    """Return a row for each turn: its topic, and how many tokens it brought."""
    turns = np.arange(dialogs.turn_counts[row])
    return pd.DataFrame(
        {
            "turn": turns,
            "topic": [dialogs.topic_label(topic) for topic in dialogs.current[row, turns]],
            "tokens": np.diff(dialogs.bounds[row])[turns],
        }
    )


def topic_changes(dialogs: DialogBatch, row: int = 0) -> pd.DataFrame:
    """Return the turns at which the topic is another than the turn before."""
    current = dialogs.current[row, : dialogs.turn_counts[row]]
    return pd.DataFrame({"turn": 1 + np.flatnonzero(current[1:] != current[:-1])})


def river_table(trace: Trace, dialogs: DialogBatch, row: int = 0) -> pd.DataFrame:
    """Return the runs of neighbouring entries of one topic in the cache, for each turn.

    Returns
    -------
    DataFrame
        `low` and `high` bound a run's slots by age, from 0 for the oldest; `centre` is between
        them; `oldest` and `newest` are the turns that brought its first and last entry.
    """
    rows = []
    for at in range(trace.turns):
        token = trace.kept[row, at]
        born = dialogs.born[row, token[token >= 0]]
        topic = dialogs.current[row, born]
        starts = np.flatnonzero(np.diff(topic, prepend=-2))
        ends = np.append(starts, len(topic))[1:]  # none for an empty cache
        rows += [
            (trace.first_turn + at, low, high, topic[low], born[low], born[high - 1])
            for low, high in zip(starts, ends, strict=True)
        ]
    frame = pd.DataFrame(rows, columns=["turn", "low", "high", "topic", "oldest", "newest"])
    frame["topic"] = [dialogs.topic_label(topic) for topic in frame["topic"]]
    frame["entries"] = frame["high"] - frame["low"]
    frame["centre"] = (frame["high"] + frame["low"]) / 2
    return frame


def path_table(trace: Trace, token: int | None, row: int = 0) -> pd.DataFrame:
    """Return the middle of one token's slot by age, for each turn that ends with it cached."""
    at, slot = np.nonzero(trace.kept[row] == (-2 if token is None else token))
    older = [
        float((trace.kept[row, turn, :place] >= 0).sum())
        for turn, place in zip(at, slot, strict=True)
    ]
    return pd.DataFrame({"turn": trace.first_turn + at, "slot": np.array(older, np.float64) + 0.5})
