"""A recorded run in as few bytes as the browser needs to show every turn of it.

A length of four bytes, that many of JSON, and then the columns one after the other. Of every column
the first bytes of all values stand together, then the second, and so on, and tokens are differences
from the one before: what is alike then stands side by side, and deflate makes little of it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdkvc.charts.theme import TOPICLESS, TOPICS, letter_ink, tint_places
from fdkvc.explain.course import term_courses
from fdkvc.explain.explain import turn_view
from fdkvc.explain.narrate import headline
from fdkvc.explain.tables import topic_changes
from fdkvc.run.trace import Rule, Status
from fdkvc.stage.run import Run
from fdkvc.synthetic.batch import DialogBatch

RULE_BIT, PROTECTED_BIT = 3, 5
"""Where a flag keeps the rule and the protection; the status has the bits below."""


def pack(run: Run, name: str) -> bytes:
    """Return a run for the browser: everything that any turn shows, once.

    Parameters
    ----------
    name : str
        By which the browser knows what is told of it.
    """
    return _packed(run, name, [_lane(run)], _columns(run.entries, run.terms), {})


@dataclass(frozen=True)
class LaneHead:
    """What a lane shows beside its entries.

    Attributes
    ----------
    label : str
        What it is called.
    places : int
        The height of its river, in entries.
    note : str
        What is to be known of it, if anything is.
    figures : tuple of (str, tuple of str)
        Each with its words in every turn.
    forks : (int, int), optional
        Of which lane it is a fork, and after which turn.
    """

    label: str
    places: int
    note: str
    figures: tuple[tuple[str, tuple[str, ...]], ...]
    forks: tuple[int, int] | None = None


@dataclass(frozen=True)
class Asked:
    """What a turn needed of what was said before.

    Attributes
    ----------
    turn : int
    source : str
        Who needed it, such as a service call.
    values : tuple of (str, tuple of str, int)
        Each with what is said of it in every lane, nothing where the lane held it; and the token
        that its last mention begins with.
    """

    turn: int
    source: str
    values: tuple[tuple[str, tuple[str, ...], int], ...]


@dataclass(frozen=True)
class Said:
    """What was said in a dialog, for whoever reads it.

    Attributes
    ----------
    speakers : tuple of str
        Of each turn.
    turns : tuple of tuple of (str, int)
        Each turn's text in pieces, with the token that each is of; -1 for none.
    topics : tuple of str
        What the letters of the topics stand for.
    needed : tuple of int
        Tokens that something later needs.
    needs : str
        What needs them.
    asked : tuple of Asked
    """

    speakers: tuple[str, ...]
    turns: tuple[tuple[tuple[str, int], ...], ...]
    topics: tuple[str, ...]
    needed: tuple[int, ...]
    needs: str
    asked: tuple[Asked, ...]


def pack_lanes(
    runs: Sequence[Run], heads: Sequence[LaneHead], said: Said | None, name: str
) -> bytes:
    """Return runs over one dialog for the browser: who is kept and evicted when, and by rank."""
    lanes = [
        {**_course(run), **asdict(head), "tint": tint, "terms": []}
        for run, head, tint in zip(runs, heads, tint_places([h.label for h in heads]), strict=True)
    ]
    columns = [column for run in runs for column in _columns(run.entries, ())]
    more = {} if said is None else {"said": asdict(said)}
    return _packed(runs[0], name, lanes, columns, more)


def _packed(
    run: Run,
    name: str,
    lanes: Sequence[Mapping[str, Any]],
    columns: Sequence[NDArray[Any]],
    more: Mapping[str, Any],
) -> bytes:
    head = {
        **more,
        "name": name,
        "dialog": _dialog(run.dialogs, run.choice.dialog.words),
        "lanes": lanes,
        "palette": [[colour, letter_ink(place)] for place, colour in enumerate(TOPICS)],
        "topicless": [TOPICLESS, letter_ink(-1)],
        "columns": [[column.dtype.str[1:], len(column)] for column in columns],
    }
    said = json.dumps(head, separators=(",", ":")).encode()
    parts = [len(said).to_bytes(4, "little"), said, *map(_planes, columns)]
    return zlib.compress(b"".join(parts), 9)


def _dialog(dialogs: DialogBatch, words: Sequence[str]) -> Mapping[str, Any]:
    tokens = np.arange(int(dialogs.bounds[0, -1]))
    topics, which = np.unique(dialogs.topics_of(0, tokens), return_inverse=True)
    return {
        "topics": [*dialogs.topic_names, dialogs.topic_label(-1)],
        "current": dialogs.current[0].tolist(),
        "bounds": dialogs.bounds[0].tolist(),
        "changes": topic_changes(dialogs)["turn"].tolist(),
        "names": topics.tolist(),
        "named": which.tolist() if len(topics) > len(dialogs.topic_names) else None,
        "words": list(words),
    }


def _course(run: Run) -> Mapping[str, Any]:
    traces = [run.at(turn).trace for turn in range(run.dialogs.turns)]
    return {
        "label": run.trace.policy.label,
        "budgets": [
            turn_view(trace, run.dialogs, 0, turn).places for turn, trace in enumerate(traces)
        ],
        "pages": [trace.policy.page_size for trace in traces],
        "counts": np.bincount(run.entries["turn"], minlength=run.dialogs.turns).tolist(),
        "cutoffs": list(run.cutoffs),
    }


def _lane(run: Run) -> Mapping[str, Any]:
    trace, dialogs = run.trace, run.dialogs
    name = trace.policy.quantity_name
    return {
        **_course(run),
        "terms": [
            {
                "name": name(course.term),
                "remembers": course.remembers,
                "gained": course.gained,
                "shares": [
                    {"name": step, "values": share.tolist()}
                    for step, share in course.shares.items()
                ],
            }
            for course in term_courses(trace)
        ],
        "states": [
            {
                "label": line.label,
                "low": line.low,
                "high": line.high,
                "start": line.start,
                "digits": line.digits,
                "values": [None if isnan(x) else x for x in run.turns[line.field].tolist()],
            }
            for line in run.states
        ],
        "headlines": [headline(trace, dialogs, 0, turn) for turn in range(dialogs.turns)],
    }


def _columns(entries: pd.DataFrame, terms: Sequence[str]) -> list[NDArray[Any]]:
    """Return token, flags, score and, of several terms, each: the turns one after the other."""
    status = entries["status"].map({each.name: each.value for each in Status}).to_numpy(np.uint8)
    rule = entries["rule"].map({each.name: each.value for each in Rule}).fillna(0)
    flags = (
        status
        | rule.to_numpy(np.uint8) << RULE_BIT
        | entries["protected"].to_numpy(np.uint8) << PROTECTED_BIT
    )
    token = np.diff(entries["token"].to_numpy(np.int64), prepend=0).astype(np.uint32)
    parts = terms if len(terms) > 1 else ()
    numbers = [entries[name].to_numpy(np.float32) for name in ("score", *parts)]
    return [token, flags.astype(np.uint8), *numbers]


def _planes(column: NDArray[Any]) -> bytes:
    """Return the bytes of a column, the first of every value before the second of any."""
    little = np.ascontiguousarray(column).astype(column.dtype.newbyteorder("<"))
    return little.view(np.uint8).reshape(-1, little.itemsize).T.tobytes()
