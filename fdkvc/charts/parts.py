"""What all charts share: scales, lines of policies, axes, titles, and panels joined to a chart."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

import altair as alt
import numpy as np
import pandas as pd

from fdkvc.charts.theme import Spec, Theme, looks, policy_tints

Panel = Any  # an Altair chart; its methods promise no closer type
Domain = Sequence[float]  # the lowest and the highest value of an axis
Channel = TypeVar("Channel", alt.X, alt.Y)


def policy_scale(policies: Collection[str], theme: Theme) -> alt.Scale:
    """Return the scale of these policies' colours."""
    return alt.Scale(domain=list(policies), range=policy_tints(policies, theme))


def look_scale(policies: Collection[str], part: Literal["shape", "dash"]) -> alt.Scale:
    """Return the scale of these policies' shapes or dashes."""
    marks = [getattr(look, part) for look in looks(policies)]
    return alt.Scale(domain=list(policies), range=marks)


NARROWEST = 350
"""Width in pixels of a chart in a window of 390 pixels, that of a phone."""


def policy_legend(policies: Collection[str]) -> alt.Legend:
    """Return the legend of lines and points of policies, which fits a narrow window."""
    # Pixels of a symbol, and about 6.5 per letter.
    widest = 30 + 6.5 * max(map(len, policies), default=0)
    return top_legend(
        columns=max(1, min(4, int(NARROWEST / widest))),
        symbolSize=70,
        symbolStrokeWidth=0,  # a stroke would show a dash in the symbols
        symbolOpacity=1,
        labelLimit=260,
    )


def tips(form: str, **titles: str) -> list[str | alt.Tooltip]:
    """Return the lines of a tooltip for these numbers: a title for each field."""
    return [
        alt.Tooltip(f"{field}:Q", title=title, format=form) for field, title in titles.items()
    ]


def mean_tips(form: str, interval: bool = True) -> list[str | alt.Tooltip]:
    """Return the lines of a tooltip for a mean and its interval."""
    titles = {"ci_low": "interval from", "ci_high": "to"} if interval else {}
    return [alt.Tooltip("mean:Q", format=form), *tips(form, **titles)]


def mean_band(base: Panel, domain: Domain, **looks: Any) -> Panel:
    """Return the intervals of means as an area on a y axis with this domain."""
    y = alt.Y("ci_low:Q", scale=between(domain))
    return base.mark_area(aria=False, **looks).encode(y=y, y2="ci_high")


def between(domain: Domain) -> alt.Scale:
    """Return a scale with exactly this domain."""
    return alt.Scale(domain=list(domain), nice=False)


def ends_of(values: pd.Series | pd.DataFrame, *levels: float) -> tuple[float, float]:
    """Return the lowest and the highest of some values and levels; 0 and 1 if there are none."""
    numbers = np.append(values.to_numpy(float).ravel(), levels)
    numbers = numbers[~np.isnan(numbers)]
    return (float(numbers.min()), float(numbers.max())) if numbers.size else (0.0, 1.0)


def axis_between(kind: type[Channel], field: str, domain: Domain, **axis: Any) -> Channel:
    """Return the x or y channel of a number, on an axis with exactly this domain."""
    return kind(f"{field}:Q", scale=between(domain), axis=alt.Axis(**{"title": None, **axis}))


def dashed_rule(value: float, domain: Domain, theme: Theme) -> Panel:
    """Return a dashed rule at a value of an x axis with this domain."""
    # Altair gathers other kinds of inline data under names, which a page's own data would replace.
    chart = alt.Chart(alt.Data(values=[{"place": value}]))  # type: ignore[no-untyped-call]
    rule = chart.mark_rule(color=theme.ink, strokeDash=[4, 3], opacity=0.6, aria=False)
    return rule.encode(x=alt.X("place:Q", scale=between(domain)))


top_legend = partial(alt.Legend, orient="top", title=None, columns=4, offset=4, padding=0)
"""Makes a legend above the plot, in as many rows as its entries need."""


def panel_title(text: str, subtitle: str) -> alt.TitleParams:
    """Return a panel's title, above it and to the left; a subtitle may have several lines."""
    return alt.TitleParams(
        text,
        anchor="start",
        fontSize=13,
        fontWeight=600,
        offset=6,
        subtitle=subtitle.splitlines() or alt.Undefined,
        subtitleFontSize=11,
    )


def single(
    theme: Theme, data: Mapping[str, pd.DataFrame], *layers: Panel, **options: Any
) -> Spec:
    """Layer marks into one chart of the full width with its data; options as of `alt.layer`."""
    return {
        # Not as the top level, which would add a configuration and gather inline data.
        **alt.layer(*layers, **options).to_dict(context={"top_level": False}),
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": _inked(theme),
        "datasets": dict(data),
    }


def _inked(theme: Theme) -> Spec:
    """Return the colours of words, and how numbers are written.

    Streamlit's own colours have too little contrast on a light page.
    """
    words = {"labelColor": theme.ink, "titleColor": theme.ink}
    inked: Spec = {"axis": words, "legend": words, "title": {"subtitleColor": theme.ink}}
    numbers = {"decimal": ".", "thousands": ",", "grouping": [3], "currency": ["", ""]}
    return {**inked, "locale": {"number": numbers | {"percent": " %"}}}  # as on the page
