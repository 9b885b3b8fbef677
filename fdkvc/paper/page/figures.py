"""The paper's figures from measured numbers, every line with its interval."""

import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pandas as pd
import streamlit as st

from fdkvc.charts.results import curve_chart
from fdkvc.charts.results import series_chart as draw_series
from fdkvc.charts.theme import Spec, Theme
from fdkvc.core.limits import MAX_DRAWN_POLICIES
from fdkvc.engine.metrics import late_metric, metric_named, metrics_of
from fdkvc.paper.published import ABLATED_POLICY
from fdkvc.paper.replication.tables import series_table, sweep_table
from fdkvc.paper.study import Study
from fdkvc.policies import Policy, policy_named
from fdkvc.synthetic.scenarios import SCENARIOS
from fdkvc.ui.downloads import show_chart
from fdkvc.ui.fields import segments
from fdkvc.ui.frame import page_theme, panel, side_by_side
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import plain

TEXTS = tomllib.loads(Path(__file__).with_name("figures.toml").read_text("utf-8"))
"""What the paper's figures show."""


Charts = Callable[[Theme], dict[str, Spec]]
"""Draws the charts of a figure, by name."""


def series_rows(
    study: Study, table: pd.DataFrame, scenario: str, quantity: str
) -> pd.DataFrame:
    """Return the rows of `series_table` of a quantity in a scenario, if it was measured.

    Only of the first policies, as many as fit into a chart.
    """
    policies = study.results.benchmark.policies
    rows = table[(table.scenario == scenario) & (table.quantity == quantity)]
    return rows[rows.policy.isin([policy.name for policy in policies[:MAX_DRAWN_POLICIES]])]


def series_chart(
    study: Study, rows: pd.DataFrame, scenario: str, quantity: str, theme: Theme
) -> Spec:
    """Return the chart of a quantity over a scenario's turns, from `series_rows`.

    The y axis is at least 0 to 1 for a metric, else the range of the lines.
    """
    low = float(rows.ci_low.min())
    high = float(rows.ci_high.max())
    room = 0.08 * (high - low) or 0.05
    limits = low - room, high + room
    if quantity in metrics_of():
        limits = min(0.0, low), max(1.0, high)
    measured = set(rows.policy)
    policies = study.results.benchmark.policies
    titles = {policy.name: policy.title for policy in policies if policy.name in measured}
    columns = ["policy", "turn", "topic", "mean", "ci_low", "ci_high"]
    return draw_series(
        rows[columns].replace({"policy": titles}),
        SCENARIOS[scenario].schedule,
        SCENARIOS[scenario].label,
        quantity_label(quantity),
        [*titles.values()],
        limits,
        theme,
    )


def quantity_label(quantity: str) -> str:
    """Return the label of a quantity per turn."""
    if quantity in metrics_of():
        return metric_named(quantity).label
    if quantity.startswith("evicted_"):
        return f"Entries evicted by {quantity.removeprefix('evicted_')}"
    return quantity.replace("_", " ").capitalize()


def sweep_chart(
    rows: pd.DataFrame, policy: Policy, parameter: str, metric: str, theme: Theme
) -> Spec:
    """Return the chart of a metric over a hyperparameter of a policy, from a sweep's table."""
    rows = rows.assign(value=rows[parameter].astype(float))
    setting = policy.settings[parameter]
    shown_metric = late_metric(metric)
    names = shown_metric.title, setting.title
    default = float(setting.default)
    percent = shown_metric.percent
    return curve_chart(rows, metric, *names, default, theme, policy.title, percent=percent)


def measured_figures(study: Study) -> dict[str, tuple[str, Charts]]:
    """Return the paper's measured figures by title: what to see, and what draws the charts."""
    figures = dict[str, tuple[str, Charts]]()
    table = series_table(study.results)
    for figure in TEXTS["figure"]:
        measured = {}
        for scenario, quantity in figure["panels"]:
            rows = series_rows(study, table, scenario, quantity)
            if not rows.empty:
                measured[scenario, quantity] = rows
        if measured:
            figures[figure["title"]] = figure["words"], partial(_series, study, measured)
    if study.sweeps:
        texts = TEXTS["ablations"]
        figures[texts["title"]] = texts["words"], partial(_curves, study)
    return figures


def _series(
    study: Study, measured: Mapping[tuple[str, str], pd.DataFrame], theme: Theme
) -> dict[str, Spec]:
    charts = {}
    for (scenario, quantity), rows in measured.items():
        chart = series_chart(study, rows, scenario, quantity, theme)
        charts[f"{quantity}_{scenario}"] = chart
    return charts


def _curves(study: Study, theme: Theme) -> dict[str, Spec]:
    """Return the curves that the paper prints."""
    curves = {}
    ablated = policy_named(ABLATED_POLICY)
    for parameter, results in study.sweeps.items():
        rows = sweep_table(results, parameter)
        for metric in rows[rows.published.notna()].metric.unique():
            chart = sweep_chart(rows, ablated, parameter, metric, theme)
            curves[f"ablation_{parameter}_{metric}"] = chart
    return curves


# ------------------------------------------------------------------------------- the page


figures_of = cached(measured_figures)


@cached
def _charts(study: Study, title: str, theme: Theme) -> dict[str, Spec]:
    """Draw one of the paper's figures."""
    _, draw = figures_of(study)[title]
    return draw(theme)


@st.fragment
def show_figures(page: str, study: Study) -> None:
    """Show one of the paper's figures."""
    figures = figures_of(study)
    title = segments(f"{page}/shown-figure", "Figure", {title: title for title in figures})
    measured = len(study.results.benchmark.policies)
    if measured > MAX_DRAWN_POLICIES:
        st.caption(
            plain(
                f"The first {MAX_DRAWN_POLICIES} of {measured} policies; series.csv has all."
            )
        )
    words, _ = figures[title]
    st.markdown(plain(words))
    with side_by_side("figure"):
        for key, chart in _charts(study, title, page_theme()).items():
            with panel(f"figure-{key}"):
                show_chart(page, f"figure/{key}", chart)
