"""The paper's figures from measured numbers, every line with its interval."""

import tomllib
from pathlib import Path

import pandas as pd

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

TEXTS = tomllib.loads(Path(__file__).with_name("texts.toml").read_text("utf-8"))
"""Texts of the report on the paper."""


def series_chart(
    study: Study, table: pd.DataFrame, scenario: str, quantity: str, theme: Theme
) -> Spec | None:
    """Return the chart of a quantity over a scenario's turns; None if nothing was measured.

    Only the first policies are drawn, as many as fit into a chart. The y axis is at least 0 to 1
    for a metric, else the range of the lines.
    """
    policies = study.results.benchmark.policies[:MAX_DRAWN_POLICIES]
    rows = table[(table.scenario == scenario) & (table.quantity == quantity)]
    rows = rows[rows.policy.isin([policy.name for policy in policies])]
    if rows.empty:
        return None
    low, high = float(rows.ci_low.min()), float(rows.ci_high.max())
    room = 0.08 * (high - low) or 0.05
    ends = low - room, high + room
    if quantity in metrics_of():
        ends = min(0.0, low), max(1.0, high)
    measured = set(rows.policy)
    titles = {policy.name: policy.title for policy in policies if policy.name in measured}
    columns = ["policy", "turn", "topic", "mean", "ci_low", "ci_high"]
    return draw_series(
        rows[columns].replace({"policy": titles}),
        SCENARIOS[scenario].schedule,
        SCENARIOS[scenario].label,
        quantity_label(quantity),
        [*titles.values()],
        ends,
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
    rows, setting = rows.assign(value=rows[parameter].astype(float)), policy.settings[parameter]
    title, default = late_metric(metric).title, float(setting.default)
    return curve_chart(rows, metric, title, setting.title, default, theme, policy.title)


def titled_charts(study: Study, theme: Theme) -> list[tuple[str, str, dict[str, Spec]]]:
    """Return the paper's measured figures: title, what to see, and the charts by name."""
    table, figures = series_table(study.results), []
    for figure in TEXTS["figure"]:
        charts = {}
        for scenario, quantity in figure["panels"]:
            chart = series_chart(study, table, scenario, quantity, theme)
            if chart is not None:
                charts[f"{quantity}_{scenario}"] = chart
        figures.append((figure["title"], figure["words"], charts))
    curves, ablated = {}, policy_named(ABLATED_POLICY)
    for parameter, results in study.sweeps.items():
        rows = sweep_table(results, parameter)
        for metric in rows[rows.published.notna()].metric.unique():  # that the paper prints
            chart = sweep_chart(rows, ablated, parameter, metric, theme)
            curves[f"ablation_{parameter}_{metric}"] = chart
    figures.append((TEXTS["ablations"]["title"], TEXTS["ablations"]["words"], curves))
    return [figure for figure in figures if figure[2]]
