"""One turn's cache: its entries, their scores, and the plane of their score terms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import altair as alt
import numpy as np
import pandas as pd

from fdkvc.charts.theme import (
    Panel,
    Spec,
    Theme,
    column,
    inside_axis,
    letter_scale,
    panel_title,
    topic_scale,
)

PICK = "pick"
"""Name of the selection by which a person picks an entry."""

GAP = 0.9  # cell rows between what stays and what goes

STATUS_WORDS = {"kept": "kept", "new": "new", "evicted": "evicted", "new_evicted": "new, evicted"}
SHAPES = {"kept": "circle", "new": "triangle-up", "evicted": "cross", "new, evicted": "square"}


def cell_columns(budget: int) -> int:
    """Return how many cells stand in a row of the cache grid."""
    return int(np.clip(np.ceil(np.sqrt(budget * 3.5)), min(budget, 8), 40))


def _rows(entries: int, columns: int) -> int:
    return -(-entries // columns)


@lru_cache(maxsize=64)
def turn_spec(
    budget: int,
    incoming: int,
    topics: tuple[str, ...],
    terms: tuple[str, ...],
    fields: tuple[str, ...],
    top: float,
    spans: tuple[tuple[float, float], ...],
    theme: Theme,
) -> Spec:
    """Build the spec of a turn's cache.

    Parameters
    ----------
    budget, incoming : int
        Entries that may stay, and the most that a turn brings.
    topics : tuple of str
    terms : tuple of str
        Columns of the score terms.
    fields : tuple of str
        Columns that a hover shows.
    top : float
        The highest score of the run, which fixes the axis.
    spans : tuple of (low, high)
        The least and greatest value of each term, then of age.
    theme : Theme

    Returns
    -------
    Spec
        For data ``cells``, ``bars``, ``cutoff`` and ``edge``.
    """
    tooltip = [_tooltip(field) for field in fields]
    return column(
        [
            _cells(budget, incoming, topics, tooltip, theme),
            _bars(budget + incoming, terms, top, tooltip, theme),
            _plane(topics, terms, spans, tooltip, theme),
        ],
        theme,
        spacing=18,
    )


def _tooltip(field: str) -> alt.Tooltip:
    title = field.replace("channel_", "").replace("term_", "score from ").replace("_", " ")
    exact = ("channel_", "term_", "attention_", "score")
    number = alt.Undefined if not field.startswith(exact) else ".4f"
    words = ("topic", "status", "rule", "protected")
    kind: Literal["nominal", "quantitative"] = "nominal" if field in words else "quantitative"
    return alt.Tooltip(field=field, type=kind, title=title, format=number)


def _pick(view: str) -> alt.Parameter:
    return alt.selection_point(name=f"{PICK}_{view}", fields=["token"], toggle="true")


def _cells(
    budget: int, incoming: int, topics: Sequence[str], tooltip: list[alt.Tooltip], theme: Theme
) -> Panel:
    columns = cell_columns(budget)
    rows = _rows(budget, columns) + GAP + _rows(incoming, columns)
    hidden = alt.Axis(labels=False, ticks=False, domain=False, grid=False, title=None)
    base = alt.Chart(alt.NamedData("cells"))
    blocks = base.mark_rect(cornerRadius=3).encode(
        x=alt.X("left:Q", scale=alt.Scale(domain=[0, columns], nice=False), axis=hidden),
        x2="right:Q",
        y=alt.Y("top:Q", scale=alt.Scale(domain=[rows, 0], nice=False), axis=hidden),
        y2="bottom:Q",
        color=alt.Color("hue:N", scale=topic_scale(topics), legend=None),
        stroke=alt.condition(alt.datum.outlined, alt.value(theme.ink), alt.value(theme.paper)),
        strokeWidth=alt.condition(alt.datum.picked, alt.value(4), alt.value(2)),
        opacity=alt.condition(alt.datum.gone, alt.value(0.4), alt.value(1)),
        tooltip=tooltip,
    )
    letters = base.mark_text(fontSize=12, aria=False).encode(
        x=alt.X("middle:Q"),
        y=alt.Y("centre:Q"),
        text="sign:N",
        color=alt.condition(
            alt.datum.gone,
            alt.value(theme.ink),
            alt.Color("hue:N", scale=letter_scale(topics), legend=None),
        ),
    )
    return (
        alt.layer(blocks.add_params(_pick("cells")), letters)
        .resolve_scale(color="independent")
        .properties(
            height=int(24 * rows),
            title=panel_title(
                "Cache now", "+ new · below: − evicted in this turn · ± new and evicted at once"
            ),
        )
    )


def _bars(
    entries: int, terms: Sequence[str], top: float, tooltip: list[alt.Tooltip], theme: Theme
) -> Panel:
    names = [term.removeprefix("term_") for term in terms]
    stack = (
        alt.Chart(alt.NamedData("bars"))
        .mark_rect()
        .encode(
            x=alt.X(
                "left:Q",
                scale=alt.Scale(domain=[-0.075 * entries, entries], nice=False),
                axis=alt.Axis(title=None, labels=False, ticks=False, grid=False, domain=False),
            ),
            x2="right:Q",
            y=alt.Y(
                "low:Q",
                scale=alt.Scale(domain=[0, top], nice=False),
                axis=inside_axis(format="~g"),
            ),
            y2="high:Q",
            color=alt.Color(
                "term:N",
                scale=alt.Scale(domain=names, range=list(theme.terms[: len(names)])),
                legend=alt.Legend(orient="top", title=None, padding=0, offset=0)
                if len(names) > 1
                else None,
            ),
            opacity=alt.condition(alt.datum.gone, alt.value(0.35), alt.value(1)),
            stroke=alt.condition(
                "datum.picked || datum.protected", alt.value(theme.ink), alt.value(None)
            ),
            strokeWidth=alt.condition(alt.datum.picked, alt.value(2.5), alt.value(0.8)),
            tooltip=tooltip,
        )
        .add_params(_pick("bars"))
    )
    line = (
        alt.Chart(alt.NamedData("cutoff"))
        .mark_rule(stroke=theme.ink, strokeDash=[5, 3], strokeWidth=1.5)
        .encode(y=alt.Y("cutoff:Q"), tooltip=[alt.Tooltip("cutoff:Q", format=".4f")])
    )
    words = (
        alt.Chart(alt.NamedData("cutoff"))
        .mark_text(align="right", baseline="bottom", dy=-3, fontSize=11, fill=theme.ink)
        .encode(x=alt.value("width"), y=alt.Y("cutoff:Q"), text="words:N")
    )
    return alt.layer(stack, line, words).properties(
        height=150,
        title=panel_title("Score", "highest first · pale: evicted · outlined: protected"),
    )


def _plane(
    topics: Sequence[str],
    terms: Sequence[str],
    spans: Sequence[tuple[float, float]],
    tooltip: list[alt.Tooltip],
    theme: Theme,
) -> Panel:
    """Draw the first two terms against each other; with one term, age takes the other axis."""
    names = [term.removeprefix("term_") for term in terms]
    two = len(terms) > 1
    y_field, y_name, (y_low, y_high) = terms[0], names[0], spans[0]
    x_field, x_name = (terms[1], names[1]) if two else ("age", "age in turns")
    x_low, x_high = spans[1] if two else spans[-1]
    x_room, y_room = (x_high - x_low) or 1, (y_high - y_low) or 1
    statuses = list(SHAPES)
    points = (
        alt.Chart(alt.NamedData("cells"))
        .mark_point(filled=True, size=60, strokeWidth=1)
        .encode(
            x=alt.X(
                f"{x_field}:Q",
                scale=alt.Scale(domain=[x_low - 0.12 * x_room, x_high + 0.04 * x_room], nice=False),
                axis=alt.Axis(title=None, grid=False, tickCount=5),
            ),
            y=alt.Y(
                f"{y_field}:Q",
                scale=alt.Scale(domain=[y_low - 0.1 * y_room, y_high + 0.1 * y_room], nice=False),
                axis=inside_axis(format="~g"),
            ),
            color=alt.Color("hue:N", scale=topic_scale(topics), legend=None),
            shape=alt.Shape(
                "state:N",
                scale=alt.Scale(domain=statuses, range=list(SHAPES.values())),
                legend=alt.Legend(
                    orient="top",
                    title=None,
                    padding=0,
                    offset=0,
                    symbolFillColor=theme.ink,
                    symbolStrokeWidth=0,
                ),
            ),
            stroke=alt.condition(alt.datum.picked, alt.value(theme.ink), alt.value(theme.paper)),
            size=alt.condition(alt.datum.picked, alt.value(180), alt.value(60)),
            opacity=alt.condition(alt.datum.gone, alt.value(0.55), alt.value(1)),
            tooltip=tooltip,
        )
        .add_params(_pick("plane"))
    )
    edge = (
        alt.Chart(alt.NamedData("edge"))
        .mark_line(stroke=theme.ink, strokeDash=[5, 3], strokeWidth=1.5, clip=True)
        .encode(x=alt.X("x:Q"), y=alt.Y("y:Q"))
    )
    title = "The two terms" if two else "Score and age"
    return alt.layer(points, edge).properties(
        height=210,
        title=panel_title(title, f"{y_name} ↑ · {x_name} → · dashed: the cutoff"),
    )


# ------------------------------------------------------------------------------------ data


def cells_data(entries: pd.DataFrame, budget: int, order: str, picked: int | None) -> pd.DataFrame:
    """Place the entries of one turn in the grid: what stays above, what goes below.

    Parameters
    ----------
    entries : DataFrame
        Rows of one turn, as `fdkvc.tables.entries_table` gives them, and `hue`, the topic that
        gives the colour.
    budget : int
    order : {"age", "score"}
        Oldest first, or highest score first.
    picked : int, optional
        Token to point out.
    """
    frame = entries.sort_values(
        "token" if order == "age" else "score", ascending=order == "age", kind="stable"
    )
    gone = frame["status"].str.endswith("evicted").to_numpy()
    columns = cell_columns(budget)
    place = np.where(gone, np.cumsum(gone), np.cumsum(~gone)) - 1
    left = (place % columns) + 0.06
    top = place // columns + np.where(gone, _rows(budget, columns) + GAP, 0) + 0.08
    new = frame["status"].str.startswith("new").to_numpy()
    chosen = (frame["token"] == picked).to_numpy()
    sign = np.where(new, "+", "")
    sign = np.where(gone, np.where(new, "±", "−"), sign).astype(object) + frame["hue"].str[:1]
    return frame.assign(
        left=left,
        middle=left + 0.44,
        right=left + 0.88,
        top=top,
        centre=top + 0.42,
        bottom=top + 0.84,
        gone=gone,
        picked=chosen,
        outlined=(new & ~gone) | chosen,
        sign=sign,
        age=frame["turn"] - frame["born"],
        state=frame["status"].map(STATUS_WORDS),
    )


def bars_data(cells: pd.DataFrame, terms: Sequence[str]) -> pd.DataFrame:
    """Stack the terms of each entry into bars, the highest score first."""
    frame = cells.sort_values("score", ascending=False, kind="stable", na_position="last")
    values = frame[list(terms)].fillna(0).to_numpy(np.float64)
    high = np.cumsum(values, axis=1)
    place = np.arange(len(frame), dtype=np.float64)
    parts = [
        frame.assign(
            term=term.removeprefix("term_"),
            low=high[:, number] - values[:, number],
            high=high[:, number],
            left=place + 0.06,
            right=place + 0.94,
        )
        for number, term in enumerate(terms)
    ]
    return pd.concat(parts, ignore_index=True)


def cutoff_data(cutoff: float | None) -> pd.DataFrame:
    """Return the cutoff and its words; nothing where none applied."""
    if cutoff is None:
        return pd.DataFrame({"cutoff": np.array([], np.float64), "words": np.array([], object)})
    return pd.DataFrame({"cutoff": [cutoff], "words": [f"cutoff {cutoff:.3g}"]})


def edge_data(
    cutoff: float | None, spans: Sequence[tuple[float, float]], terms: int
) -> pd.DataFrame:
    """Return the cutoff as a line in the plane: where the two terms add up to it."""
    if cutoff is None:
        return pd.DataFrame({"x": np.array([], np.float64), "y": np.array([], np.float64)})
    if terms > 1:
        low, high = spans[1]
        return pd.DataFrame({"x": [low, high], "y": [cutoff - low, cutoff - high]})
    return pd.DataFrame({"x": list(spans[-1]), "y": [cutoff, cutoff]})
