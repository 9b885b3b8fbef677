"""A sweep: its controls, and its results: curves of one hyperparameter, or tables of two."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.core.limits import MAX_SWEEP_VALUES
from fdkvc.core.parameters import DIALOGS, SEED, Field
from fdkvc.core.words import command_line, count
from fdkvc.engine.metrics import late_metric
from fdkvc.paper.page.figures import sweep_chart
from fdkvc.paper.page.past import Kind, Past
from fdkvc.paper.published import ABLATED_POLICY, ABLATED_SCENARIO, published_sweep
from fdkvc.paper.results import SweepRun
from fdkvc.paper.shipped import papers_run
from fdkvc.paper.sweep import Number, Sweep, read_values, suggested_values, sweepable
from fdkvc.policies import read_policy, synthetic_policies
from fdkvc.runs.grid import figures, pivot
from fdkvc.runs.options import options_of
from fdkvc.synthetic.scenarios import SCENARIOS
from fdkvc.ui import fields
from fdkvc.ui.downloads import show_chart
from fdkvc.ui.fields import held
from fdkvc.ui.frame import page_theme, panel, show_grid, side_by_side
from fdkvc.ui.glossary import show_glossary
from fdkvc.ui.markdown import plain
from fdkvc.ui.sidebar import (
    BUDGET_HERE,
    MEASURED,
    POLICY,
    SCENARIO,
    around_of,
    choose_around,
    held_policy,
    with_policy,
)

NONE = "–"
CHUNK = 20
"""Dialogs of a chunk: they run under all settings before the progress is shown."""


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
# Their owner gives them other keys in the session than those of a benchmark.
DIALOGS_HERE = replace(DIALOGS, default=200, high=600, owner="ablation")
NUMBERS = (DIALOGS_HERE, replace(SEED, owner="ablation"))
BUDGET = replace(BUDGET_HERE, follows=False, owner="ablation")
SWEPT_METRICS = replace(MEASURED, owner="ablation")
COUNTED = (SWEPT_METRICS, *NUMBERS, BUDGET)


def first_of(policy: str) -> Field:
    """Return the choice of a policy's hyperparameter."""
    settings = read_policy(policy).settings
    labels = {name: settings[name].title for name in sweepable(policy)}
    start = "gamma" if "gamma" in labels else next(iter(labels))
    return Field("Hyperparameter", name="first", default=start, choices=labels, owner=policy)


def second_of(policy: str, first_parameter: str) -> Field:
    """Return the choice of a second hyperparameter."""
    labels = first_of(policy).labels
    choices = {
        NONE: "none",
        **{name: label for name, label in labels.items() if name != first_parameter},
    }
    label, help = "Second hyperparameter", "The results of two are tables."
    return Field(
        label,
        help,
        name="second",
        default=NONE,
        choices=choices,
        owner=f"{policy}/{first_parameter}",
    )


def values_of(policy: str, name: str, field_name: str = "values") -> Field:
    """Return the field of a hyperparameter's values; `which` is its name in a link."""
    setting = read_policy(policy).settings[name]
    return Field(
        f"Values of {setting.title.lower()}",
        f"Each {setting.allowed(setting.kind)}.",
        name=field_name,
        default=" ".join(f"{value:g}" for value in suggested_values(policy, name)),
        owner=f"{policy}/{name}",
    )


def link_fields(page: str, link: Mapping[str, str]) -> list[Field]:
    """Return the fields of the address, for a link or else the session's values."""

    def requested(field: Field) -> Any:
        value = link.get(field.name, field.default) if link else held(page, field)
        return value if value in field.choices else field.default

    # A link or the session may hold a policy that cannot be swept, for which the default stands in.
    inside, outer_policy = held_policy(page, link)
    if not sweepable(inside.name):
        inside = outer_policy = read_policy(SWEPT_POLICY.default)
    policy = outer_policy.name
    first = first_of(policy)
    second = second_of(policy, requested(first))
    values = values_of(policy, requested(first))
    link_fields = [with_policy(SWEPT_POLICY, inside.name), around_of(inside), first, values, second]
    if requested(second) != NONE:
        link_fields.append(values_of(policy, requested(second), "second_values"))
    return [*link_fields, SWEPT_SCENARIO, *COUNTED]


def choose_sweep(page: str) -> Sweep:
    """Show the controls and return the sweep."""
    scenario = SCENARIOS[fields.choice(page, SWEPT_SCENARIO)]
    numbers = fields.numbers(page, NUMBERS)
    swept, options = st.container(), st.expander("More", icon=":material/tune:")
    with options:
        inside = fields.choice(page, with_policy(SWEPT_POLICY, held(page, SWEPT_POLICY)))
        policy = choose_around(page, read_policy(inside)).name
    with swept:
        first = fields.choice(page, first_of(policy))
        axes = [(first, _values(page, policy, first))]
    with options:
        further = second_of(policy, first)
        second = fields.choice(page, further, len(further.choices) > 1)
        if second != NONE:
            axes.append((second, _values(page, policy, second, "second_values")))
        numbers |= fields.numbers(page, [BUDGET])
        metrics = fields.several(page, SWEPT_METRICS)
    return Sweep(policy=policy, axes=tuple(axes), scenario=scenario, **numbers, metrics=metrics)


def _values(page: str, policy: str, name: str, field_name: str = "values") -> tuple[Number, ...]:
    """Show the values of a hyperparameter; return the last valid ones."""
    return fields.text(
        page,
        values_of(policy, name, field_name),
        lambda typed: read_values(typed, policy, name, MAX_SWEEP_VALUES),
    )


def sweep_command(sweep: Sweep) -> str:
    """Return the command that runs this sweep with 2,000 dialogs."""
    options = {"policy": sweep.policy, **_axes(sweep, "parameter")}
    return command_line("sweep", options | options_of(replace(sweep, dialogs=2000)))


def _axes(sweep: Sweep, first_parameter: str) -> dict[str, Any]:
    """Return the swept hyperparameters and their values by option; `first` names the first one."""
    options: dict[str, Any] = {}
    axes = zip((first_parameter, "second"), ("values", "second_values"), sweep.axes, strict=False)
    for parameter, values, (name, tried) in axes:
        options |= {parameter: name, values: [f"{value:g}" for value in tried]}
    return options


def _link(sweep: Sweep) -> Mapping[str, str]:
    axes = {"second": NONE, **_axes(sweep, "first")}
    return {
        SWEPT_POLICY.name: sweep.policy,
        SWEPT_SCENARIO.name: sweep.scenario.key,
        **{name: text if isinstance(text, str) else " ".join(text) for name, text in axes.items()},
        **{field.name: field.written(getattr(sweep, field.name)) for field in COUNTED},
    }


def _described(sweep: Sweep) -> str:
    return (
        f"{' and '.join(_parameter_label(sweep, name).lower() for name in sweep.parameters)} of "
        f"{read_policy(sweep.policy).title} on {sweep.scenario.label}, "
        f"{count(sweep.dialogs, 'dialog')}, seed {sweep.seed}, budget {sweep.budget:,}"
    )


@cache
def kind() -> Kind:
    """Return what the page runs."""
    return Kind(
        "ablation",
        Sweep,
        partial(SweepRun.measure, chunk=CHUNK),
        choose_sweep,
        sweep_command,
        f"At most {MAX_SWEEP_VALUES} values of a hyperparameter and {DIALOGS_HERE.high} dialogs",
        _link,
        link_fields,
        _described,
        shipped=[
            SweepRun(Sweep(axes=((parameter, published_sweep(parameter)),)), results)
            for parameter, results in papers_run().study.sweeps.items()
        ],
    )


# ------------------------------------------------------------------------------- results


def show(page: str, run_view: Past, answer: DeltaGenerator) -> None:
    """Show a sweep; one of the paper's together with its other one."""
    run, shipped = run_view.result, kind().shipped
    sweep = run.settings
    papers = (
        [run]
        if run_view.job
        else [run, *(paper_run for paper_run in shipped if paper_run is not run)]
    )
    answer.markdown(plain(effects_sentence(papers)))
    content = "Lines and bands" if len(sweep.axes) == 1 else "Figures"
    st.caption(plain(f"{content}: mean and 95 % interval over the dialogs."))
    _panels(page, "sweep", run)
    for paper_run in papers[1:]:
        (name,) = paper_run.settings.parameters
        label = _parameter_label(paper_run.settings, name)
        st.header(plain(f"The paper's other sweep: {label}"), anchor=False)
        _panels(page, f"other-{name}", paper_run)
    show_glossary(sweep.metrics)


def effects_sentence(runs: Sequence[SweepRun]) -> str:
    """Say which swept setting matters most, and how far each moves a metric."""
    effects = []
    for run in runs:
        sweep, rows = run.settings, run.table
        for name in sweep.parameters:
            # The mean of each metric at each value, over the other hyperparameter if there is one.
            means = rows.groupby(["metric", name])["mean"].mean().unstack(0)
            moved = str((means.max() - means.min()).idxmax())
            extremes, metric = (means[moved].min(), means[moved].max()), late_metric(moved)
            range_words = " and ".join(map(metric.with_unit, extremes))
            reach = f"moves {metric.title.lower()} between {range_words}"
            effects.append((extremes[1] - extremes[0], _parameter_label(sweep, name), reach))
    ranked = sorted(effects, reverse=True)  # by how far each moves a metric
    _, strongest, effect = ranked[0]
    head = f"{strongest} matters most: it" if len(ranked) > 1 else strongest
    further_effects = "".join(f" {label} {reach}." for _, label, reach in ranked[1:])
    return f"{head} {effect}.{further_effects}"


def _panels(page: str, kind: str, run: SweepRun) -> None:
    sweep, swept = run.settings, run.table
    with side_by_side(kind) if len(sweep.axes) == 1 else st.container():
        for metric, rows in swept.groupby("metric", sort=False):
            with panel(f"{kind}-{metric}"):
                if len(sweep.axes) == 1:
                    (name,), policy = sweep.parameters, read_policy(sweep.policy)
                    chart = sweep_chart(swept, policy, name, str(metric), page_theme())
                    show_chart(page, f"{kind}/{metric}", chart)
                else:
                    _show_both(sweep, rows)


def _show_both(sweep: Sweep, rows: pd.DataFrame) -> None:
    """Show one metric over two hyperparameters as a table."""
    first, second = (_parameter_label(sweep, name) for name in sweep.parameters)
    named = rows.rename(columns=dict(zip(sweep.parameters, (first, second), strict=True)))
    heading = late_metric(rows.metric.iloc[0]).heading()
    title = f"{heading}: a row for each {first.lower()}, a column for each {second.lower()}"
    st.markdown(plain(title))
    show_grid(pivot(named, figures(rows), [first], second), title)


def _parameter_label(sweep: Sweep, name: str) -> str:
    return read_policy(sweep.policy).settings[name].title
