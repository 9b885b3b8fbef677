"""A sweep: its controls, and its results as curves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import starmap

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.core.limits import MAX_SWEEP_VALUES
from fdkvc.core.parameters import DIALOGS, SEED, Field
from fdkvc.core.words import command_line, count, listed, uncapitalized
from fdkvc.engine.metrics import late_metric
from fdkvc.paper.benchmark import Results
from fdkvc.paper.page.figures import sweep_chart
from fdkvc.paper.page.past import Kind, Past
from fdkvc.paper.published import ABLATED_POLICY, ABLATED_SCENARIO, published_sweep
from fdkvc.paper.results import SweepRun, undefined_text
from fdkvc.paper.shipped import papers_run
from fdkvc.paper.sweep import Number, Sweep, read_values, suggested_values, sweepable
from fdkvc.policies import read_policy, synthetic_policies
from fdkvc.runs.options import options_of
from fdkvc.synthetic.scenarios import SCENARIOS
from fdkvc.ui import fields
from fdkvc.ui.downloads import show_chart
from fdkvc.ui.fields import held
from fdkvc.ui.frame import page_theme, panel, side_by_side
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

CHUNK = 20
"""Dialogs of a chunk: they run under all settings before the progress is shown."""


def read_swept(text: str) -> str:
    """Read the name of a policy with a hyperparameter to sweep, possibly wrapped."""
    name = read_policy(text).name
    if not sweepable(name):
        raise ValueError(
            f"{name} has no hyperparameter to sweep: choose from {', '.join(ABLE)}"
        )
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


def parameter_of(policy: str) -> Field:
    """Return the choice of a policy's hyperparameter."""
    settings = read_policy(policy).settings
    labels = {name: settings[name].title for name in sweepable(policy)}
    start = "gamma" if "gamma" in labels else next(iter(labels))
    return Field("Hyperparameter", name="first", default=start, choices=labels, owner=policy)


def values_of(policy: str, name: str) -> Field:
    """Return the field of a hyperparameter's values."""
    setting = read_policy(policy).settings[name]
    return Field(
        f"Values of {uncapitalized(setting.title)}",
        f"Each {setting.allowed(setting.kind)}.",
        name="values",
        default=" ".join(_words(suggested_values(policy, name))),
        owner=f"{policy}/{name}",
    )


def link_fields(page: str, link: Mapping[str, str]) -> list[Field]:
    """Return the fields of the address, for a link or else the session's values."""
    # A link or the session may hold a policy that cannot be swept, for which the default stands in.
    inside, outer_policy = held_policy(page, link)
    if not sweepable(inside.name):
        inside = outer_policy = read_policy(SWEPT_POLICY.default)
    policy = outer_policy.name
    swept = parameter_of(policy)
    parameter = link.get(swept.name, "") if link else held(page, swept)
    if parameter not in swept.choices:
        parameter = swept.default
    return [
        with_policy(SWEPT_POLICY, inside.name),
        around_of(inside),
        swept,
        values_of(policy, parameter),
        SWEPT_SCENARIO,
        *COUNTED,
    ]


def choose_sweep(page: str) -> Sweep:
    """Show the controls and return the sweep."""
    scenario = SCENARIOS[fields.choice(page, SWEPT_SCENARIO)]
    numbers = fields.numbers(page, NUMBERS)
    swept = st.container()
    options = st.expander("More", icon=":material/tune:")
    with options:
        inside = fields.choice(page, with_policy(SWEPT_POLICY, held(page, SWEPT_POLICY)))
        policy = choose_around(page, read_policy(inside)).name
    with swept:
        parameter = fields.choice(page, parameter_of(policy))
        values = fields.text(
            page,
            values_of(policy, parameter),
            lambda typed: read_values(typed, policy, parameter, MAX_SWEEP_VALUES),
        )
    with options:
        numbers |= fields.numbers(page, [BUDGET])
        metrics = fields.several(page, SWEPT_METRICS)
    return Sweep(policy, parameter, values, scenario, **numbers, metrics=metrics)


def sweep_command(sweep: Sweep) -> str:
    """Return the command that runs this sweep with 2,000 dialogs."""
    options = {
        "policy": sweep.policy,
        "parameter": sweep.parameter,
        "values": _words(sweep.values),
    }
    return command_line("sweep", options | options_of(replace(sweep, dialogs=2000)))


def _words(values: Sequence[Number]) -> list[str]:
    """Write values with all their digits, a whole one without a point."""
    return [np.format_float_positional(value, trim="-") for value in values]


def _link(sweep: Sweep) -> Mapping[str, str]:
    return {
        SWEPT_POLICY.name: sweep.policy,
        "first": sweep.parameter,
        "values": " ".join(_words(sweep.values)),
        SWEPT_SCENARIO.name: sweep.scenario.key,
        **{field.name: field.written(getattr(sweep, field.name)) for field in COUNTED},
    }


def _described(sweep: Sweep) -> str:
    return (
        f"{uncapitalized(_label(sweep))} of "
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
        shipped=[*starmap(_papers_sweep, papers_run().study.sweeps.items())],
    )


def _papers_sweep(parameter: str, results: Results) -> SweepRun:
    return SweepRun(Sweep(parameter=parameter, values=published_sweep(parameter)), results)


# ------------------------------------------------------------------------------- results


def show(page: str, run_view: Past, answer: DeltaGenerator) -> None:
    """Show a sweep; one of the paper's together with its other one."""
    run = run_view.result
    shipped = kind().shipped
    other_runs = []
    if run_view.job is None:
        other_runs = [paper_run for paper_run in shipped if paper_run is not run]
    answer.markdown(plain(effects_sentence([run, *other_runs])))
    st.caption("Lines and bands: mean and 95 % interval over the dialogs.")
    _panels(page, "sweep", run)
    for paper_run in other_runs:
        sweep = paper_run.settings
        st.header(plain(f"The paper's other sweep: {_label(sweep)}"), anchor=False)
        _panels(page, f"other-{sweep.parameter}", paper_run)
    show_glossary(run.settings.metrics)


def effects_sentence(runs: Sequence[SweepRun]) -> str:
    """Say what each swept setting does to the metric that the first moves most.

    At its highest and lowest mean, and at the default and the value before it.
    """
    if runs[0].table.empty:
        return undefined_text(runs[0].results)
    means_of_first = runs[0].table.groupby("metric")["mean"]
    metric = late_metric(str((means_of_first.max() - means_of_first.min()).idxmax()))
    sentences = []
    for run in runs:
        sweep = run.settings
        rows = run.table[run.table.metric == metric.name]
        values = rows[sweep.parameter].tolist()
        means = rows["mean"].tolist()
        default = read_policy(sweep.policy).settings[sweep.parameter].default
        places = {means.index(max(means)), means.index(min(means))}
        if default in values:
            place = values.index(default)
            places |= {max(place - 1, 0), place}
        parts = []
        for place in sorted(places):
            words = f"{metric.with_unit(means[place])} at {values[place]:g}"
            parts.append(words + " (the default)" * (values[place] == default))
        sentences.append(f"{_label(sweep)}: {uncapitalized(metric.title)} is {listed(parts)}.")
    return " ".join(sentences)


def _panels(page: str, kind: str, run: SweepRun) -> None:
    swept = run.table
    policy = read_policy(run.settings.policy)
    parameter = run.settings.parameter
    with side_by_side(kind):
        for metric in swept.metric.unique():
            with panel(f"{kind}-{metric}"):
                chart = sweep_chart(swept, policy, parameter, metric, page_theme())
                show_chart(page, f"{kind}/{metric}", chart)


def _label(sweep: Sweep) -> str:
    return read_policy(sweep.policy).settings[sweep.parameter].title
