"""One turn's cache: its entries, their scores, and the plane of their score terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdkvc.charts.theme import (
    Panel,
    Spec,
    Theme,
    built_once,
    colour_of,
    column,
    inside_axis,
    layered,
    letter_ink,
    panel_title,
)
from fdkvc.words import decimal

GRID = (
    *("mark", "token", "left", "middle", "right", "top", "centre", "bottom", "colour", "ink"),
    *("outline", "weight", "opacity", "sign", "hover"),
)
"""Columns of `cells_data` that the grid of cells needs; the others are for plane and bars."""

OUTLINED_BARS = 150
"""Bars that have a whole outline; those of more entries have a finer one."""

GAP = 0.9  # cell rows between what stays and what goes

CELLS_TITLE = panel_title(
    "Cache now", "+ new · below: − evicted in this turn · ± new and evicted at once"
)

STATUS_WORDS = {"kept": "kept", "new": "new", "evicted": "evicted", "new_evicted": "new, evicted"}
SHAPES = {"kept": "circle", "new": "triangle-up", "evicted": "cross", "new, evicted": "square"}


def cell_columns(budget: int) -> int:
    """Return how many cells stand in a row of the cache grid."""
    return int(np.clip(np.ceil(np.sqrt(budget * 3.5)), min(budget, 8), 40))


def _rows(entries: int, columns: int) -> int:
    return -(-entries // columns)


@built_once
def turn_spec(
    budget: int,
    incoming: int,
    terms: tuple[str, ...],
    scores: tuple[float, float],
    spans: tuple[tuple[float, float], ...],
    theme: Theme,
) -> Spec:
    """Build the spec of a turn's cache.

    For data ``cells``, ``bars``, ``cutoff`` and ``edge``.

    Colours, outlines and hover texts come with the data: an expression for each of hundreds of
    marks costs more, at every step, than all the rest.

    Parameters
    ----------
    budget, incoming : int
        Entries that may stay, and the most that a turn brings.
    terms : tuple of str
        Columns of the score terms.
    scores : (low, high)
        The least and greatest score of the run, zero between them, which fix the axis.
    spans : tuple of (low, high)
        The least and greatest value of each term, then of age.
    """
    return column(
        [
            cells_panel(budget, incoming, theme),
            _bars(budget + incoming, terms, scores, theme),
            _plane(terms, spans, theme),
        ],
        theme,
        spacing=18,
    )


def _given(channel: str) -> Any:
    """Take a channel's value from the data as it stands."""
    return {"field": channel, "type": "nominal", "scale": None, "legend": None}


def _given_number(channel: str) -> Any:
    return {"field": channel, "type": "quantitative", "scale": None, "legend": None}


_SAME_MARK = alt.Key("mark:Q")  # a step changes a mark in place, and makes none anew

_HOVER: Any = {"field": "hover", "type": "nominal"}


def cells_panel(
    budget: int,
    incoming: int,
    theme: Theme,
    title: alt.TitleParams | None = None,
    width: int = 560,
) -> Panel:
    """Draw the entries of a turn as a grid of cells, from data ``cells``.

    Its letters fit where it is `width` pixels wide.
    """
    columns = cell_columns(budget)
    rows = _rows(budget, columns) + GAP + _rows(incoming, columns)
    hidden = alt.Axis(labels=False, ticks=False, domain=False, grid=False, title=None)
    base = alt.Chart(alt.NamedData("cells"))
    blocks = base.mark_rect(cornerRadius=3, strokeWidth=2).encode(
        x=alt.X("left:Q", scale=alt.Scale(domain=[0, columns], nice=False), axis=hidden),
        x2=alt.X2("right:Q"),
        y=alt.Y("top:Q", scale=alt.Scale(domain=[rows, 0], nice=False), axis=hidden),
        y2=alt.Y2("bottom:Q"),
        fill=alt.Fill(**_given("colour")),
        stroke=alt.Stroke(**_given("outline")),
        strokeWidth=alt.StrokeWidth(**_given_number("weight")),
        fillOpacity=alt.FillOpacity(**_given_number("opacity")),
        tooltip=alt.Tooltip(**_HOVER),
        description=alt.Description(**_HOVER),
        key=_SAME_MARK,
    )
    letters = base.mark_text(fontSize=min(12, width // columns), aria=False, tooltip=None).encode(
        x=alt.X("middle:Q"),
        y=alt.Y("centre:Q"),
        text=alt.Text("sign:N"),
        fill=alt.Fill(**_given("ink")),
        key=_SAME_MARK,
    )
    return layered(
        blocks,
        letters,
        height=int(24 * rows),
        title=title or CELLS_TITLE,
    )


def _bars(entries: int, terms: Sequence[str], scores: tuple[float, float], theme: Theme) -> Panel:
    names = [term.removeprefix("term_") for term in terms]
    legend = alt.Legend(orient="top", title=None, padding=0, offset=12) if len(names) > 1 else None
    stack = (
        alt.Chart(alt.NamedData("bars"))
        .mark_rect(aria=False, strokeWidth=min(1.0, OUTLINED_BARS / entries))
        .encode(
            x=alt.X(
                "left:Q",
                scale=alt.Scale(domain=[-0.075 * entries, entries], nice=False),
                axis=alt.Axis(title=None, labels=False, ticks=False, grid=False, domain=False),
            ),
            x2=alt.X2("right:Q"),
            y=alt.Y(
                "low:Q",
                scale=alt.Scale(domain=list(scores), nice=False),
                axis=inside_axis(format="~g"),
            ),
            y2=alt.Y2("high:Q"),
            fill=alt.Fill(
                "term:N",
                scale=alt.Scale(domain=names, range=list(theme.terms[: len(names)])),
                legend=legend,
            ),
            fillOpacity=alt.FillOpacity(**_given_number("opacity")),
            stroke=alt.Stroke(**_given("edge")),
            key=_SAME_MARK,
            tooltip=alt.Tooltip(**_HOVER),
        )
    )
    line = (
        alt.Chart(alt.NamedData("cutoff"))
        .mark_rule(stroke=theme.ink, strokeDash=[5, 3], strokeWidth=1.5, aria=False)
        .encode(y=alt.Y("cutoff:Q"), tooltip=[alt.Tooltip("cutoff:Q", format=".4f")])
    )
    words = (
        alt.Chart(alt.NamedData("cutoff"))
        .mark_text(align="right", baseline="bottom", dy=-3, fontSize=11, fill=theme.ink)
        .encode(x=alt.value("width"), y=alt.Y("cutoff:Q"), text=alt.Text("words:N"))
    )
    return layered(
        stack,
        line,
        words,
        height=150,
        title=panel_title("Score", "highest first · pale: evicted · outlined: protected"),
    )


def _plane(terms: Sequence[str], spans: Sequence[tuple[float, float]], theme: Theme) -> Panel:
    """Draw the first two terms against each other; with one term, age takes the other axis."""
    names = [term.removeprefix("term_") for term in terms]
    two = len(terms) > 1
    y_field, y_name, (y_low, y_high) = terms[0], names[0], spans[0]
    x_field, x_name = (terms[1], names[1]) if two else ("age", "age in turns")
    x_low, x_high = spans[1] if two else spans[-1]
    x_room, y_room = (x_high - x_low) or 1, (y_high - y_low) or 1
    points = (
        alt.Chart(alt.NamedData("cells"))
        .mark_point(filled=True, strokeWidth=1, aria=False)
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
            fill=alt.Fill(**_given("colour")),
            stroke=alt.Stroke(**_given("outline")),
            shape=alt.Shape(
                "state:N",
                scale=alt.Scale(domain=list(SHAPES), range=list(SHAPES.values())),
                legend=alt.Legend(
                    orient="top",
                    title=None,
                    padding=0,
                    offset=12,
                    symbolFillColor=theme.ink,
                    symbolStrokeWidth=0,
                ),
            ),
            size=alt.Size(**_given_number("size")),
            opacity=alt.Opacity(**_given_number("opacity")),
            key=_SAME_MARK,
            tooltip=alt.Tooltip(**_HOVER),
        )
    )
    edge = (
        alt.Chart(alt.NamedData("edge"))
        .mark_line(stroke=theme.ink, strokeDash=[5, 3], strokeWidth=1.5, clip=True, aria=False)
        .encode(x=alt.X("x:Q"), y=alt.Y("y:Q"))
    )
    title = "The two terms" if two else "Score and age"
    return layered(
        points,
        edge,
        height=210,
        title=panel_title(title, f"{y_name} ↑ · {x_name} → · dashed: the cutoff"),
    )


# ------------------------------------------------------------------------------------ data


def hover_texts(entries: pd.DataFrame) -> list[str]:
    """Say everything that is known of each entry, a line each.

    Parameters
    ----------
    entries : DataFrame
        As `fdkvc.explain.tables.entries_table` gives them.
    """
    numbers = [
        name
        for name in entries.columns
        if name.startswith(("channel_", "term_", "attention_")) or name == "score"
    ]
    titles = [
        name.replace("channel_", "").replace("term_", "score from ").replace("_", " ")
        for name in numbers
    ]
    plain = ("token", "topic", "born", "status", "rule", "rank", "protected")
    words = zip(*(entries[name].tolist() for name in plain), strict=True)
    values = zip(*(entries[name].tolist() for name in numbers), strict=True)
    texts = []
    for (token, topic, born, status, rule, rank, protected), row in zip(words, values, strict=True):
        lines = [f"token {token} · topic {topic or '–'} · from turn {born}"]
        by = f" by the {rule}" if isinstance(rule, str) else ""
        lines.append(f"{STATUS_WORDS[status]}{by}{' · protected' if protected else ''}")
        lines += [
            f"{title}: {decimal(value, 4)}"
            for title, value in zip(titles, row, strict=True)
            if value == value
        ]
        if not pd.isna(rank):
            lines.append(f"rank: {rank}")
        texts.append("\n".join(lines))
    return texts


def cells_data(
    entries: pd.DataFrame,
    budget: int,
    terms: Sequence[str],
    topics: Sequence[str],
    order: str,
    picked: int | None,
    theme: Theme,
) -> pd.DataFrame:
    """Place the entries of each turn in the grid: what stays above, what goes below.

    Parameters
    ----------
    entries : DataFrame
        As `fdkvc.explain.tables.entries_table` gives them, of one turn or several, with `hue`, the
        topic that gives the colour, and `hover`, from `hover_texts`.
    terms : sequence of str
        Columns of the score terms.
    order : {"age", "score"}
        Oldest first, or highest score first.
    picked : int, optional
        Token to point out.
    """
    by_age = order == "age"
    frame = entries.sort_values(
        ["turn", "token" if by_age else "score"], ascending=[True, by_age], kind="stable"
    )
    gone = frame["status"].str.endswith("evicted").to_numpy()
    new = frame["status"].str.startswith("new").to_numpy()
    chosen = (frame["token"] == picked).to_numpy()
    columns = cell_columns(budget)
    turn = frame["turn"].to_numpy()
    place = np.where(gone, _places(gone, turn), _places(~gone, turn))
    left = (place % columns) + 0.06
    top = place // columns + np.where(gone, _rows(budget, columns) + GAP, 0) + 0.08
    sign = np.where(gone, np.where(new, "±", "−"), np.where(new, "+", "")).astype(object)
    position = {topic: number for number, topic in enumerate(topics)}
    hue = [position.get(topic, -1) for topic in frame["hue"]]
    return pd.DataFrame(
        {
            "turn": turn,
            "mark": _places(np.ones(len(frame), np.bool_), turn),
            "token": frame["token"].to_numpy(),
            "left": left,
            "middle": left + 0.44,
            "right": left + 0.88,
            "top": top,
            "centre": top + 0.42,
            "bottom": top + 0.84,
            "colour": [colour_of(number) for number in hue],
            "ink": [
                theme.ink if out else letter_ink(number)
                for number, out in zip(hue, gone, strict=True)
            ],
            "outline": np.where((new & ~gone) | chosen, theme.ink, theme.paper),
            "weight": np.where(chosen, 4, 2),
            "size": np.where(chosen, 190, 60),
            "opacity": np.where(gone, 0.4, 1.0),
            "edge": np.where(frame["protected"] | chosen, theme.ink, theme.paper),
            "sign": sign + frame["hue"].str[:1].to_numpy(),
            "state": frame["status"].map(STATUS_WORDS).to_numpy(),
            "age": turn - frame["born"].to_numpy(),
            "score": frame["score"].to_numpy(),
            **{term: frame[term].to_numpy() for term in terms},
            "hover": frame["hover"].to_numpy(),
        }
    )


def _places(among: NDArray[np.bool_], turn: NDArray[np.intp]) -> NDArray[np.intp]:
    """Count from 0 in every turn among those that are True; turns are in order."""
    running = np.cumsum(among)
    before: NDArray[np.intp] = (running - among)[np.searchsorted(turn, turn)]
    return np.asarray(running - before - 1, np.intp)


def bars_data(cells: pd.DataFrame, terms: Sequence[str]) -> pd.DataFrame:
    """Stack the terms of each entry into bars, the highest score of each turn first."""
    frame = cells.sort_values(
        ["turn", "score"], ascending=[True, False], kind="stable", na_position="last"
    )
    turn = frame["turn"].to_numpy()
    place = _places(np.ones(len(frame), np.bool_), turn).astype(np.float64)
    values = frame[list(terms)].fillna(0).to_numpy(np.float64)
    high = np.cumsum(values, axis=1)
    parts: list[pd.DataFrame] = [
        frame[["turn", "token", "opacity", "edge", "hover"]].assign(
            term=term.removeprefix("term_"),
            low=high[:, number] - values[:, number],
            high=high[:, number],
            left=place + 0.06,
            right=place + 0.94,
            mark=place * len(terms) + number,
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
