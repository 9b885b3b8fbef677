"""A sweep: curves or heat maps, the trade-off between metrics, and links to the step page."""

import pandas as pd
import streamlit as st

from fdkvc.charts.sweep import curve_chart, heat_chart, tradeoff_chart
from fdkvc.charts.theme import Spec
from fdkvc.experiments.sweep import Sweep, grid_table, tradeoff_table
from fdkvc.files.shipped import papers_run
from fdkvc.paper.claims import claim
from fdkvc.paper.tables import ABLATIONS
from fdkvc.policies import POLICIES, Policy, policy_named, read_policy
from fdkvc.replication.claims import judged_claims
from fdkvc.report.claims import STYLE, claims_html
from fdkvc.run.metrics import late_metric
from fdkvc.ui.ablation import choices
from fdkvc.ui.kit.downloads import show_files, show_pickable, shown_charts
from fdkvc.ui.kit.fields import pick_two
from fdkvc.ui.kit.frame import page_theme, panel, side_by_side
from fdkvc.ui.kit.glossary import show_glossary
from fdkvc.ui.kit.markdown import Markdown, plain
from fdkvc.ui.kit.past import open_run
from fdkvc.ui.kit.sidebar import DIALOG, POLICY, with_numbers_apart
from fdkvc.words import decimal


def show(page: str) -> None:
    """Show a sweep; one of the paper's with its claims, and with the other one."""
    kind = choices.kind_of(page)
    shown = open_run(kind)
    if shown is None:
        return
    run = shown.result
    sweep, table = run.settings, run.table
    shown_charts(page).clear()
    papers = kind.shipped if shown.job is None else ()
    if papers:
        peaks = [claim(f"peak-{parameter}") for parameter in ABLATIONS]
        judged = judged_claims(papers_run().study, peaks)
        st.html(f"<style>{STYLE}</style>{claims_html(judged, opened=False)}")
    _metrics(page, sweep, table)
    for other in papers:
        if other is not run:
            (name,) = other.settings.parameters
            label = _parameter_label(other.settings, name)
            st.header(plain(f"The paper's other sweep: {label}"), anchor=False)
            _panels(page, f"other-{name}", other.settings, other.table)
    _tradeoff(page, sweep, table)
    show_glossary(sweep.metrics)
    st.header("Files", anchor=False)
    show_files(page, run, ["run.json", *run.tables], shown_charts(page), "fdkvc-sweep.zip")


# ------------------------------------------------------------------------------- each metric


@st.fragment
def _metrics(page: str, sweep: Sweep, table: pd.DataFrame) -> None:
    st.header("Each metric over the sweep", anchor=False)
    st.markdown(
        "Lines and bands: mean and 95 % interval over the dialogs. Click a point for the figures "
        "of that setting and a link to step through it."
        if len(sweep.axes) == 1
        else "Click a cell for the figures of that setting and a link to step through it."
    )
    _panels(page, "sweep", sweep, table)


def _panels(page: str, kind: str, sweep: Sweep, table: pd.DataFrame) -> None:
    with side_by_side(kind):
        for metric in table[table.swept].metric.unique():
            with panel(f"{kind}-{metric}"):
                chart = _curve if len(sweep.axes) == 1 else _heat
                _show(page, f"{kind}/{metric}", chart(sweep, table, metric), sweep, table)


def _curve(sweep: Sweep, table: pd.DataFrame, metric: str) -> Spec:
    ((name, _),) = sweep.axes
    swept, policy = table[table.swept], read_policy(sweep.policy)
    return curve_chart(
        swept.assign(value=swept[name].astype(float)),
        metric,
        late_metric(metric).title,
        _parameter_label(sweep, name),
        float(policy.settings[name].default),
        page_theme(),
        policy.title,
    )


def _heat(sweep: Sweep, table: pd.DataFrame, metric: str) -> Spec:
    cells, percent = grid_table(sweep, table, metric), late_metric(metric).percent
    label = [decimal(100 * mean, 0) if percent else decimal(mean, 2) for mean in cells["mean"]]
    (first, _), (second, _) = sweep.axes
    return heat_chart(
        cells.assign(label=label),
        late_metric(metric).heading(),
        (_parameter_label(sweep, first), _parameter_label(sweep, second)),
        page_theme(),
    )


def _show(page: str, name: str, chart: Spec, sweep: Sweep, table: pd.DataFrame) -> None:
    """Show a chart, and below the one clicked last the results of the selected setting."""
    show_pickable(page, name, chart)
    setting = st.session_state.get(f"{page}/picked", "")
    rows = table[table.setting == setting]
    if rows.empty or st.session_state.get(f"{page}/picked-on") != name:
        return
    figures = [
        f"{late_metric(metric).title.lower()} {late_metric(metric).figure(mean, low, high)}"
        for metric, mean, low, high in zip(
            rows.metric, rows["mean"], rows.ci_low, rows.ci_high, strict=True
        )
    ]
    policy, scenario = read_policy(setting), sweep.scenario
    with st.container(border=True, key="picked-setting"):
        st.markdown(plain(Markdown("**{}**: {}.").format(policy.title, ", ".join(figures))))
        st.page_link(
            "pages/step.py",
            label=plain(f"Step through a dialog of {scenario.label} with {policy.title}"),
            icon=":material/step_over:",
            query_params=link_to_step(policy, scenario.key, sweep.seed, sweep.budget),
        )


def link_to_step(policy: Policy, scenario: str, seed: int, budget: int) -> dict[str, str]:
    """Return the parameters under which the step page shows a policy on a drawn dialog."""
    view = {field.name: str(field.default) for field in DIALOG}
    view |= {"scenario": scenario, "seed": str(seed), "budget": str(budget), "turn": "0"}
    return {**view, **with_numbers_apart({POLICY.name: policy.name}), "entry": ""}


# ------------------------------------------------------------------------------- the trade-off


@st.fragment
def _tradeoff(page: str, sweep: Sweep, table: pd.DataFrame) -> None:
    st.header("One metric against another", anchor=False)
    metrics = {metric: late_metric(metric).label for metric in table.metric.unique()}
    if len(metrics) < 2:
        return
    axes = ("Horizontal axis", "late_retention"), ("Vertical axis", "late_diversity")
    x, y = pick_two(f"{page}/axis", metrics, *axes)
    points = tradeoff_table(table, x, y)
    swept = f"{read_policy(sweep.policy).title}, swept"
    groups = (*(policy.label for policy in POLICIES.values()), swept)
    group = [
        POLICIES[policy].label if setting in POLICIES else swept
        for policy, setting in zip(points.policy, points.setting, strict=True)
    ]
    titles = points.setting.map(lambda name: read_policy(name).title)
    named = points.front | points.setting.isin(POLICIES)
    points = points.assign(group=group, name=titles.where(named, ""))
    points = points.sort_values("front", ascending=False, kind="stable")
    front = points[points.front].sort_values("x").name
    chart = tradeoff_chart(
        points,
        (late_metric(x).title, late_metric(y).title),
        groups,
        (late_metric(x).lower_is_better, late_metric(y).lower_is_better),
        page_theme(),
    )
    _show(page, "tradeoff", chart, sweep, table)
    free = [policy.label for policy in map(policy_named, POLICIES) if not policy.bounded]
    st.caption(
        plain(
            f"On the Pareto front of the {len(points)} settings: {', '.join(front)}."
            + (f" Not compared, because no budget limits it: {', '.join(free)}." if free else "")
        )
    )


def _parameter_label(sweep: Sweep, name: str) -> str:
    return read_policy(sweep.policy).settings[name].title
