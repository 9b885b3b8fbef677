"""A sweep: what is swept, on which dialogs; curves or heat maps; one metric against another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.charts.sweep import curve_chart, heat_chart, tradeoff_chart
from fdkvc.charts.theme import Spec
from fdkvc.experiments.sweep import (
    Number,
    Sweep,
    grid_table,
    read_values,
    suggested_values,
    sweepable,
    tradeoff_table,
)
from fdkvc.files.options import options_of
from fdkvc.files.shipped import papers_run
from fdkvc.kinds.sweep import SweepRun
from fdkvc.limits import MAX_SWEEP_VALUES
from fdkvc.paper.claims import claim
from fdkvc.paper.tables import ABLATED_POLICY, ABLATED_SCENARIO, ABLATIONS
from fdkvc.parameters import DIALOGS, SEED, Field
from fdkvc.policies import POLICIES, Policy, policy_named, read_policy, synthetic_policies
from fdkvc.replication.claims import judged_claims
from fdkvc.report.claims import STYLE, claims_html
from fdkvc.run.metrics import late_metric
from fdkvc.synthetic.scenarios import SCENARIOS
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.downloads import show_files, show_pickable, shown_charts
from fdkvc.ui.kit.fields import held, pick_two
from fdkvc.ui.kit.frame import page_theme, panel, side_by_side
from fdkvc.ui.kit.glossary import show_glossary
from fdkvc.ui.kit.markdown import Markdown, plain
from fdkvc.ui.kit.past import Kind, open_run
from fdkvc.ui.kit.run_panel import show_command
from fdkvc.ui.kit.sidebar import (
    BUDGET_HERE,
    DIALOG,
    MEASURED,
    POLICY,
    SCENARIO,
    around_of,
    choose_around,
    held_policy,
    with_numbers_apart,
)
from fdkvc.words import command_line, count, decimal

NONE = "–"
CHUNK = 20
"""Dialogs that go through all settings together: a step of the progress."""


def read_swept(text: str) -> str:
    """Read the name of a policy with a hyperparameter to sweep, possibly wrapped."""
    name = read_policy(text).name
    if not sweepable(name):
        raise ValueError(f"{name} has no hyperparameter to sweep: choose from {', '.join(ABLE)}")
    return name


ABLE = {key: policy for key, policy in synthetic_policies().items() if sweepable(key)}
SWEPT_POLICY = replace(POLICY, default=ABLATED_POLICY, choices=ABLE, read=read_swept)
SWEPT_SCENARIO = replace(
    SCENARIO,
    follows=False,
    default=ABLATED_SCENARIO,
    choices={key: label for key, label in SCENARIOS.items() if key != "adaptation"},
)
DIALOGS_HERE = replace(DIALOGS, default=200, high=600)
"""The dialogs of a sweep on the page."""

NUMBERS = (DIALOGS_HERE, SEED, replace(BUDGET_HERE, follows=False))


def _swept(name: str) -> Field:
    """Return the choice of the policy, with one given as text among them."""
    return replace(SWEPT_POLICY, choices={**ABLE, name: read_policy(name).title})


def first_of(policy: str) -> Field:
    """Return the choice of a policy's hyperparameter."""
    settings = read_policy(policy).settings
    labels = {name: settings[name].title for name in sweepable(policy)}
    start = "gamma" if "gamma" in labels else next(iter(labels))
    return Field("Hyperparameter", "", name="first", default=start, choices=labels, of=policy)


def second_of(policy: str, first: str) -> Field:
    """Return the choice of a second hyperparameter."""
    labels = first_of(policy).labels
    others = {NONE: "none", **{name: label for name, label in labels.items() if name != first}}
    label, help = "Second hyperparameter", "Two are drawn as a heat map."
    of = f"{policy}/{first}"
    return Field(label, help, name="second", default=NONE, choices=others, of=of)


def values_of(policy: str, name: str, which: str = "values") -> Field:
    """Return the field of a hyperparameter's values; `which` is its name in a link."""
    setting = read_policy(policy).settings[name]
    return Field(
        f"Values of {setting.title.lower()}",
        f"Each {setting.allowed(setting.kind)}.",
        name=which,
        default=" ".join(f"{value:g}" for value in suggested_values(policy, name)),
        of=f"{policy}/{name}",
    )


def adopt(page: str, link: Mapping[str, str]) -> list[str]:
    """Apply a link; return a sentence for each error.

    Earlier versions named the section.
    """
    link = {name: value for name, value in link.items() if name != "section"}
    return fields.adopt_link(page, link_fields(page, link), link)


def link_fields(page: str, link: Mapping[str, str]) -> list[Field]:
    """Return the fields of the address, for a link or else the session's values."""

    def requested(field: Field) -> Any:
        value = link.get(field.name, field.default) if link else held(page, field)
        return value if value in field.choices else field.default

    inside, whole = held_policy(page, link)
    if not sweepable(inside.name):
        inside = whole = read_policy(SWEPT_POLICY.default)
    policy = whole.name
    first = first_of(policy)
    second = second_of(policy, requested(first))
    values = values_of(policy, requested(first))
    shown = [_swept(inside.name), around_of(inside), first, values, second]
    if requested(second) != NONE:
        shown.append(values_of(policy, requested(second), "second_values"))
    return [*shown, SWEPT_SCENARIO, MEASURED, *NUMBERS]


def choose_sweep(page: str) -> Sweep:
    """Show the controls and return the sweep."""
    inside = fields.choice(page, _swept(held(page, SWEPT_POLICY)))
    policy = choose_around(page, read_policy(inside)).name
    first = fields.choice(page, first_of(policy))
    axes = [(first, _values(page, policy, first))]
    further = second_of(policy, first)
    if len(further.choices) > 1:
        second = fields.choice(page, further)
        if second != NONE:
            axes.append((second, _values(page, policy, second, "second_values")))
    sweep = Sweep(
        policy=policy,
        axes=tuple(axes),
        scenario=SCENARIOS[fields.choice(page, SWEPT_SCENARIO)],
        **fields.numbers(page, NUMBERS),
        metrics=fields.several(page, MEASURED),
    )
    most = f"At most {MAX_SWEEP_VALUES} values of a hyperparameter and {DIALOGS_HERE.high} dialogs"
    show_command(most, sweep_command(sweep))
    return sweep


def _values(page: str, policy: str, name: str, which: str = "values") -> tuple[Number, ...]:
    """Show the values of a hyperparameter; return the last valid ones."""
    return fields.text(
        page,
        values_of(policy, name, which),
        lambda typed: read_values(typed, policy, name, MAX_SWEEP_VALUES),
    )


def sweep_command(sweep: Sweep) -> str:
    """Return the command that runs this sweep with 2,000 dialogs."""
    options = {"policy": sweep.policy, **_axes(sweep, "parameter")}
    return command_line("sweep", options | options_of(replace(sweep, dialogs=2000)))


def _axes(sweep: Sweep, first: str) -> dict[str, Any]:
    """Return the swept hyperparameters and their values by name; `first` is that of the first."""
    options: dict[str, Any] = {}
    axes = zip((first, "second"), ("values", "second_values"), sweep.axes, strict=False)
    for parameter, values, (name, tried) in axes:
        options |= {parameter: name, values: [f"{value:g}" for value in tried]}
    return options


def _link(sweep: Sweep) -> Mapping[str, str]:
    axes = {"second": NONE, **_axes(sweep, "first")}
    return {
        SWEPT_POLICY.name: sweep.policy,
        SWEPT_SCENARIO.name: sweep.scenario.key,
        **{name: text if isinstance(text, str) else " ".join(text) for name, text in axes.items()},
        **{field.name: field.written(getattr(sweep, field.name)) for field in (MEASURED, *NUMBERS)},
    }


def _described(sweep: Sweep) -> str:
    labels = first_of(sweep.policy).labels
    return (
        f"{' and '.join(labels[name].lower() for name in sweep.parameters)} of "
        f"{read_policy(sweep.policy).title} on {sweep.scenario.label}, "
        f"{count(sweep.dialogs, 'dialog')}, seed {sweep.seed}, budget {sweep.budget}"
    )


@cache
def kind_of(page: str) -> Kind:
    """Return what the page runs."""
    return Kind(
        page,
        Sweep,
        partial(SweepRun.measure, chunk=CHUNK),
        choose_sweep,
        _link,
        link_fields,
        _described,
        shipped=[SweepRun(sweep, results) for sweep, results in papers_run().sweeps.items()],
    )


# ------------------------------------------------------------------------------- results


def show(page: str, place: DeltaGenerator) -> None:
    """Show a sweep; one of the paper's with its claims, and with the other one.

    The runs and their files are at a place.
    """
    kind, answer = kind_of(page), st.container(key="page-answer")
    shown = open_run(kind, place)
    if shown is None:
        return
    run = shown.result
    sweep, table = run.settings, run.table
    shown_charts(page).clear()
    papers = [run] if shown.job else [run, *(other for other in kind.shipped if other is not run)]
    answer.markdown(plain(effects_sentence(papers)))
    _metrics(page, sweep, table)
    for other in papers[1:]:
        (name,) = other.settings.parameters
        label = _parameter_label(other.settings, name)
        st.header(plain(f"The paper's other sweep: {label}"), anchor=False)
        _panels(page, f"other-{name}", other.settings, other.table)
    if shown.job is None:
        peaks = [claim(f"peak-{parameter}") for parameter in ABLATIONS]
        judged = judged_claims(papers_run().study, peaks)
        st.html(f"<style>{STYLE}</style>{claims_html(judged, opened=False)}")
    _tradeoff(page, sweep, table)
    show_glossary(sweep.metrics)
    with place, st.popover("Download", icon=":material/download:"):
        show_files(page, run, ["run.json", *run.tables], shown_charts(page), "fdkvc-sweep.zip")


def effects_sentence(runs: Sequence[SweepRun]) -> str:
    """Say which swept setting matters most, and how far each moves a metric."""
    effects = []
    for run in runs:
        sweep, rows = run.settings, run.table[run.table.swept]
        for name in sweep.parameters:
            means = rows.groupby(["metric", name])["mean"].mean().unstack(0)
            metric = (means.max() - means.min()).idxmax()
            ends = means[metric].min(), means[metric].max()
            reach = _reach(str(metric), ends)
            effects.append((ends[1] - ends[0], _parameter_label(sweep, name), reach))
    (_, most, first), *others = sorted(effects, reverse=True)
    head = f"{most} matters most: it" if others else most
    more = [f" {label} {reach}." for _, label, reach in others]
    return f"{head} {first}.{''.join(more)}"


def _reach(name: str, ends: tuple[float, float]) -> str:
    metric = late_metric(name)
    return f"moves {metric.title.lower()} between {' and '.join(map(metric.with_unit, ends))}"


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
