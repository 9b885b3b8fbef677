"""Which kinds of values left most, as a chart: a bar for each project or compaction."""

from collections.abc import Mapping
from pathlib import Path

import altair as alt
import pandas as pd

from fdkvc.charts.parts import panel_title, single, tips, top_legend
from fdkvc.charts.picture import picture
from fdkvc.charts.theme import LIGHT, TOPICS, Spec, Theme
from fdkvc.conversations.forgot_report import KIND_PLURALS
from fdkvc.runs.write import write_files

TITLE = "Values that had left at a compaction, by kind"

MAX_BARS = 20
"""Most bars; the first are shown."""

LEGEND_COLUMNS = 3
"""Kinds in a row of the legend: as many as a phone has room for."""

WIDTH = 640
"""Of a picture, in pixels."""


def losses_chart(losses: Mapping[str, Mapping[str, int]], theme: Theme) -> Spec:
    """Return a chart of how many values had left, by name and then by the name of their kind."""
    names = [name for name, kinds in losses.items() if sum(kinds.values())]
    rows = []
    for name in names[:MAX_BARS]:
        for order, (kind, plural) in enumerate(KIND_PLURALS.items()):
            if lost := losses[name].get(kind):
                rows.append((name, plural, order, lost))
    table = pd.DataFrame(rows, columns=["name", "kind", "order", "lost"])
    hues = dict(zip(KIND_PLURALS.values(), TOPICS, strict=False))
    present = [kind for kind in hues if kind in {*table.kind}]
    scale = alt.Scale(domain=present, range=[hues[kind] for kind in present])
    bars = (
        alt.Chart(alt.NamedData("losses"))
        .mark_bar(size=14)
        .encode(
            x=alt.X("lost:Q", axis=alt.Axis(title=None, format="d", tickMinStep=1)),
            y=alt.Y(
                "name:N", sort=None, axis=alt.Axis(title=None, ticks=False, labelLimit=190)
            ),
            color=alt.Color("kind:N", scale=scale, legend=top_legend(columns=LEGEND_COLUMNS)),
            order="order:Q",
            tooltip=["name:N", "kind:N", *tips("d", lost="values that had left")],
        )
    )
    hidden = len(names) - MAX_BARS
    first = f"; the first {MAX_BARS} of {len(names):,}" if hidden > 0 else ""
    subtitle = f"Also those that came back before use{first}"
    height = 26 * max(len(names[:MAX_BARS]), 1)
    return single(
        theme, {"losses": table}, bars, height=height, title=panel_title(TITLE, subtitle)
    )


def write_picture(path: Path, losses: Mapping[str, Mapping[str, int]]) -> None:
    """Write the chart of losses as SVG. Raises a ValueError if the file cannot be written."""
    svg = picture(losses_chart(losses, LIGHT), LIGHT, WIDTH)
    write_files(path.parent, {path.name: svg})
