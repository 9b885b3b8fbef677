"""Colours, and what all charts share.

The colours of charts, topics, policies and verdicts are here; other colours of a page are in
`ui/kit/page.css` and `fdkvc.report.page`. Topics have hues: those of Okabe and Ito (2008, *Color
Universal Design*), which people with colour-vision deficiencies can tell apart, and an eighth after
Tol (2021, *Colour Schemes*). A policy has one colour and one mark on every chart and page, FD-KVC a
hue that no topic has; a variant and a wrapped policy have those of the policy inside, with a dash
of their own. A letter, a dash, a shape or a pattern repeats what a colour says.
"""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from itertools import product
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar
from zlib import crc32

import altair as alt
import pandas as pd
from altair.utils.schemapi import debug_mode

Spec = dict[str, Any]
Panel = Any  # an Altair chart; its methods promise no closer type
Ends = Sequence[float]  # the lowest and the highest value of an axis
Channel = TypeVar("Channel", alt.X, alt.Y)
Arguments = ParamSpec("Arguments")

_building = threading.RLock()

TOPICS = (
    "#0072B2",  # blue
    "#E69F00",  # orange
    "#009E73",  # bluish green
    "#CC79A7",  # reddish purple
    "#56B4E9",  # sky blue
    "#D55E00",  # vermillion
    "#F0E442",  # yellow
    "#AA4499",  # purple, where Okabe and Ito have black
)
"""The hues of topics; those of further topics are the same again, with a pattern."""

DARK_TOPICS = ("#0072B2", "#AA4499")

TOPICLESS = "#999999"

MET, UNMET = "#009E73", "#D55E00"
"""What holds and what does not, each beside a sign or a word that says so."""

TINTS = {
    "neutral": f"{TOPICLESS}26",
    "good": f"{MET}26",
    "bad": f"{UNMET}33",
    "open": f"{TOPICS[1]}26",
}
"""Backgrounds of verdicts, by their tone; text shows on them on light and dark pages."""

FD_KVC = "FD-KVC"
"""The policy whose name has its hue, too, and how the titles of its variants begin."""

POLICIES = {
    "FIFO": ("#3f4652", "#d9dce4"),
    "Sink+Window": ("#8a6a1f", "#d3b46a"),
    "H2O": ("#a3293f", "#f08a9a"),
    FD_KVC: ("#5b35d5", "#a48cff"),
    "Surprisal": ("#4d7c0f", "#a3cf5b"),
    "Learned": ("#0e7490", "#5cc8e0"),
    "TOVA": ("#8f3d1c", "#e0a184"),
    "SnapKV": ("#5d7052", "#a7bd97"),
    "Random": ("#6b6e76", "#8d919b"),
    "Full cache": ("#55565c", "#b9bbc2"),
    "FD-KVC adaptive": ("#7f58e2", "#8a74ea"),
    "H2O mean": ("#b84f62", "#c56a7a"),
    "Scissorhands": ("#9a5b8f", "#cf9cc6"),
    "FastGen": ("#2f5d50", "#7fb8a4"),
    "Expected attention": ("#5f739c", "#93a8d6"),
    "KeyDiff": ("#6d6a2a", "#c2bd6b"),
    "Key norm": ("#7f6a5a", "#b8a696"),
    "Weighted recency": ("#0b61c4", "#6cb6ff"),
    "Oracle": ("#8c4a00", "#d8a15c"),
    "Context shift": ("#1f6f78", "#86cfc4"),
    "Retrieval": ("#1e3a8a", "#8fb0ff"),
    "": ("#6f7480", "#9aa0ad"),
}
"""The colour of each policy on light and dark pages; the last is that of any other name."""

SHAPES = (
    *("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right"),
    "triangle-left",
    "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z",  # a slanted cross
    "M-1,-1L1,-1L-1,1L1,1Z",  # an hourglass
)
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 1], [1, 3])

_NAMED = re.compile(
    "|".join(sorted(filter(None, POLICIES), key=len, reverse=True)).replace("+", r"\+")
)


class Look(NamedTuple):
    """How a policy looks: the place of its colour in `Theme.policies`, its shape and its dash."""

    place: int
    shape: str
    dash: Sequence[int]


def looks(names: Sequence[str]) -> list[Look]:
    """Return how each of these policies looks, which does not depend on the others.

    Of several variants of one policy, or where a name is new, those that come later get another
    dash.

    Examples
    --------
    >>> looks(["FIFO", "Sinks (H2O)"])[1] == looks(["Sinks (H2O)"])[0]
    True
    >>> looks(["H2O", "Sinks (H2O)"])[0][:2] == looks(["Sinks (H2O)"])[0][:2]
    True
    """
    taken: list[Look] = []
    for name in names:
        match = _NAMED.search(name)
        known = match.group() if match else ""
        place = list(POLICIES).index(known)
        at = place if known else crc32(name.encode())
        first = at // len(SHAPES) % 3 + 2 * (known != name and bool(known))
        shapes = (SHAPES * 2)[at % len(SHAPES) :]
        every = [Look(place, *look) for look in product(shapes, (DASHES * 2)[first:])]
        free = (look for look in every if look not in taken)
        taken.append(next(free, every[0]))
    return taken


@dataclass(frozen=True)
class Theme:
    """Colours that depend on the page's background.

    `ink` is for text, cursors and outlines, `faint` for grid lines and evicted entries, `terms` for
    score terms and quantities, in no topic's colour. `policies` are those of `POLICIES`.
    """

    ink: str
    faint: str
    paper: str
    terms: tuple[str, ...]
    policies: tuple[str, ...]


LIGHT = Theme(
    "#262730",
    "#d5d7dd",
    "#ffffff",
    ("#5b5f6b", "#b06cc9", "#8a6d3b", "#3b8a83"),
    tuple(light for light, _ in POLICIES.values()),
)
DARK = Theme(
    "#fafafa",
    "#41444e",
    "#171614",
    ("#a9adb9", "#c98be0", "#c9a86b", "#6bc9c0"),
    tuple(dark for _, dark in POLICIES.values()),
)


VARIABLES = {
    **{name: (getattr(LIGHT, name), getattr(DARK, name)) for name in ("ink", "faint", "paper")},
    **{
        f"{kind}-{place}": colours
        for kind in ("terms", "policies")
        for place, colours in enumerate(zip(getattr(LIGHT, kind), getattr(DARK, kind), strict=True))
    },
}
"""CSS variables of pages and reports by name: a colour on light and one on dark."""

ROOT = (
    ":root {"
    + "".join(
        f"--{name}: light-dark({light}, {dark}); " for name, (light, dark) in VARIABLES.items()
    )
    + f"--met: {MET}; --unmet: {UNMET}; --attended: {TOPICS[0]};}}\n"
)
"""CSS that defines the variables."""


def hue_of(name: str) -> str:
    """Return the HTML attribute that gives a cell the hue of FD-KVC, if the cell names it."""
    return " data-policy" if name.upper().startswith(FD_KVC) else ""


def letter_ink(colour: str) -> str:
    """Return black or white, whichever is readable on a colour of a topic."""
    return "#ffffff" if colour in DARK_TOPICS else "#000000"


def policy_tints(policies: Sequence[str], theme: Theme) -> list[str]:
    """Return the colour of each of these policies."""
    return [theme.policies[place] for place, *_ in looks(policies)]


def policy_scale(policies: Sequence[str], theme: Theme) -> alt.Scale:
    """Return the scale of these policies' colours."""
    return alt.Scale(domain=list(policies), range=policy_tints(policies, theme))


def look_scale(policies: Sequence[str], part: Literal["shape", "dash"]) -> alt.Scale:
    """Return the scale of these policies' shapes or dashes."""
    return alt.Scale(domain=list(policies), range=[getattr(look, part) for look in looks(policies)])


NARROWEST = 350
"""Pixels of a chart in a window of 390."""


def policy_legend(policies: Sequence[str], **options: Any) -> alt.Legend:
    """Return the legend that `policy_lines` and their bands share, which fits a narrow window."""
    widest = 30 + 6.5 * max(map(len, policies))
    return top_legend(
        columns=max(1, min(4, int(NARROWEST / widest))),
        symbolSize=70,
        symbolStrokeWidth=0,  # a stroke would show a dash in the symbols
        symbolOpacity=1,
        labelLimit=260,
        **options,
    )


def policy_lines(
    base: Panel,
    policies: Sequence[str],
    tints: alt.Scale,
    tooltip: Sequence[str | alt.Tooltip],
    size: int,
    legend: alt.Legend | None,
    field: str = "policy",
) -> list[Panel]:
    """Return a line for each policy and, on it, points of the policy's shape with a tooltip.

    `base` has its axes, for data with a column `field`.
    """
    kind = f"{field}:N"
    base = base.encode(color=alt.Color(kind, scale=tints, legend=legend))
    dash = alt.StrokeDash(kind, scale=look_scale(policies, "dash"), legend=legend)
    shape = alt.Shape(kind, scale=look_scale(policies, "shape"), legend=legend)
    return [
        base.mark_line(strokeWidth=2, aria=False).encode(strokeDash=dash),
        base.mark_point(filled=True, size=size, opacity=1).encode(
            shape=shape, tooltip=list(tooltip)
        ),
    ]


def tips(form: str, **titles: str) -> list[str | alt.Tooltip]:
    """Return the lines of a tooltip for these numbers, by their fields."""
    return [alt.Tooltip(f"{field}:Q", title=title, format=form) for field, title in titles.items()]


def mean_tips(form: str, interval: bool = True) -> list[str | alt.Tooltip]:
    """Return the lines of a tooltip that have a mean and its interval."""
    ends = {"ci_low": "interval from", "ci_high": "to"} if interval else {}
    return [alt.Tooltip("mean:Q", format=form), *tips(form, **ends)]


def mean_band(base: Panel, ends: Ends, **looks: Any) -> Panel:
    """Return the intervals of means as an area on a y axis with these ends."""
    y = alt.Y("ci_low:Q", scale=between(ends))
    return base.mark_area(aria=False, **looks).encode(y=y, y2="ci_high")


def between(ends: Ends) -> alt.Scale:
    """Return a scale with exactly these ends."""
    return alt.Scale(domain=list(ends), nice=False)


def axis_between(kind: type[Channel], field: str, ends: Ends, **axis: Any) -> Channel:
    """Return the x or y channel of a number, on an axis with exactly these ends."""
    return kind(f"{field}:Q", scale=between(ends), axis=alt.Axis(**{"title": None, **axis}))


def dashed_rule(value: float, ends: Ends, theme: Theme) -> Panel:
    """Return a dashed rule at a value of an x axis with these ends."""
    # Altair gathers other kinds of inline data under names, which a page's own data would replace.
    chart = alt.Chart(alt.Data(values=[{"place": value}]))  # type: ignore[no-untyped-call]
    rule = chart.mark_rule(color=theme.ink, strokeDash=[4, 3], opacity=0.6, aria=False)
    return rule.encode(x=alt.X("place:Q", scale=between(ends)))


top_legend = partial(alt.Legend, orient="top", title=None, columns=4, offset=4, padding=0)
"""Returns a legend above the plot, in as many rows as its entries need."""


def panel_title(text: str, subtitle: str = "") -> alt.TitleParams:
    """Return a panel's title, above it and to the left."""
    return alt.TitleParams(
        text,
        anchor="start",
        fontSize=13,
        fontWeight=600,
        offset=6,
        subtitle=subtitle or alt.Undefined,
        subtitleFontSize=11,
    )


def unchecked(build: Callable[Arguments, Spec]) -> Callable[Arguments, Spec]:
    """Let a function build its charts without Altair's checks, which take as long as all the rest.

    Tests check a spec of every kind instead. Whether Altair checks holds for all threads, so one
    spec is built at a time.
    """

    @wraps(build)
    def quick(*arguments: Arguments.args, **options: Arguments.kwargs) -> Spec:
        with _building, debug_mode(False):
            return build(*arguments, **options)

    return quick


def layered(*layers: Panel, **options: Any) -> Panel:
    """Layer marks, the first at the bottom; options are those of `alt.layer`.

    `alt.layer` itself copies every layer several times. For what is built `unchecked` only:
    Altair's check would take each layer for a whole chart.
    """
    return alt.LayerSpec(layer=list(layers), **options)


def column(panels: Sequence[Panel], theme: Theme) -> Spec:
    """Stack panels into one chart of the full width: it updates faster than many charts."""
    return {
        "vconcat": [_part(panel) for panel in panels],
        "spacing": 14,
        "resolve": {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")},
        "autosize": {"type": "pad", "contains": "padding"},
        "padding": {"left": 1, "right": 4, "top": 2, "bottom": 2},
        # Without these, a chart of many marks would be drawn so that no mark can be read out.
        "config": {**_inked(theme), "aria": True},
        "usermeta": {"embedOptions": {"renderer": "svg"}},
    }


def single(theme: Theme, data: Mapping[str, pd.DataFrame], *layers: Panel, **options: Any) -> Spec:
    """Layer marks into one chart of the full width with its data; options as of `alt.layer`."""
    return {
        **_part(layered(*layers, **options)),
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": _inked(theme),
        "datasets": dict(data),
    }


def _part(panel: Panel) -> Spec:
    spec: Spec = panel.to_dict(validate=False, context={"top_level": False})
    return spec


def _inked(theme: Theme) -> Spec:
    """Return the colours of words: on a light page, Streamlit's own have too little contrast."""
    words = {"labelColor": theme.ink, "titleColor": theme.ink}
    return {"axis": words, "legend": words, "title": {"subtitleColor": theme.ink}}
