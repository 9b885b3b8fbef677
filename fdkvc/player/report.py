"""A shareable report as one HTML file: its frame, drawings, moments of a run, and provenance."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape

from fdkvc.charts.picture import picture
from fdkvc.charts.theme import LIGHT, VARIABLES, Spec
from fdkvc.core.words import count
from fdkvc.player.moments import Failure
from fdkvc.player.run import StageRun
from fdkvc.player.scene import moment_html
from fdkvc.runs.grid import Grid
from fdkvc.runs.page import css, page
from fdkvc.runs.record import versions

PICTURE_WIDTH = 560

FILE = "FILE"
"""A placeholder for the user's file in a command."""

REPORT = "python -m fdkvc report --run results/run.json --out report.html"
"""The command for the report on a run."""


def report_html(
    title: str,
    scope: Sequence[str],
    parts: Mapping[str, str],
    measured: str = "",
    style: str = "",
) -> str:
    """Return a report as a whole page, on `scope`, one string per paragraph.

    `parts` are HTML by title; `measured` is when, by default today; `style` is further CSS that
    the parts need.
    """
    day = measured or datetime.now(UTC).date().isoformat()
    contents = sections = ""
    for words, inside in parts.items():
        name = re.sub(r"\W+", "-", words.lower()).strip("-")
        heading = escape(words)
        contents += f'<li><a href="#{name}">{heading}</a></li>'
        sections += f'<section id="{name}"><h2>{heading}</h2>{inside}</section>'
    paragraphs = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in scope)
    version = versions()["fdkvc-lab"]
    body = (
        f"<main><header><h1>{escape(title)}</h1>"
        f"<p>Measured on {escape(day)}; written by FD-KVC Lab {escape(version)}.</p>"
        f"{paragraphs}<nav><ol>{contents}</ol></nav></header>{sections}</main>"
    )
    return page(title, body, f"{css('document')}{style}")


def provenance(
    commands: Sequence[str], seed: int | None, packages: Mapping[str, str] | None = None
) -> str:
    """Return how to repeat a run: commands, the seed, and by default the current versions."""
    lines = "\n".join(commands)
    items = {} if seed is None else {"seed": str(seed)}
    items |= packages or versions()
    grid = Grid(["item", "value"], [*items.items()])
    return (
        f"<p>The commands:</p><pre>{escape(lines)}</pre>"
        f"{grid.html('Seeds and versions', 'grid words')}"
    )


def listing(points: Iterable[str]) -> str:
    """Return points, in which ``**`` marks bold words, as a list in HTML."""
    items = ""
    for point in points:
        item = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(point))
        items += f"<li>{item}</li>"
    return f"<ul>{items}</ul>"


def drawing(chart: Spec, name: str) -> str:
    """Return a chart in the colours of `LIGHT` as an SVG that uses the colours of the page.

    `name` is unique in the page.
    """
    svg = picture(chart, LIGHT, PICTURE_WIDTH)
    svg = svg[svg.index("<svg") :]
    # Ids are unique within a picture only, and a page may hold many.
    svg = re.sub(r'\bid="', f'id="{name}-', svg).replace("url(#", f"url(#{name}-")
    # As variables, the colours follow the page into dark mode.
    for variable, (colour, _) in VARIABLES.items():
        svg = re.sub(rf'"{colour}"', f'"var(--{variable})"', svg, flags=re.IGNORECASE)
    return f"<figure>{svg}</figure>"


def failed_scene(failure: Failure) -> str:
    """Return the turn in which a call lost an argument that it needs, in an iframe."""
    run = failure.run
    demand = failure.demand
    title = f"A failed call: {run.trace.policy.title} loses “{demand.value}” in turn {failure.turn}"
    words = (
        f"{demand.source} in turn {demand.turn} needs {demand.slot}, which "
        f"was last mentioned in turn {demand.mentions[-1].turn}; the cache holds "
        f"{count(run.trace.budget, 'entry', 'entries')}."
    )
    return framed_moment(run, title, failure.turn, failure.token, words)


def framed_moment(
    run: StageRun,
    title: str,
    turn: int,
    token: int | None,
    words: str = "",
) -> str:
    """Return a turn of a run in an iframe, which isolates its keys and names."""
    named = escape(title)
    inside = escape(moment_html(run, title, turn, token, words))
    return (
        f'<iframe class="scene" title="{named}" srcdoc="{inside}" sandbox="allow-scripts"></iframe>'
    )
