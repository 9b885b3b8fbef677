"""The search of hyperparameters: its settings, its front, and links to the step page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from string import ascii_uppercase
from threading import Event
from time import perf_counter

import pandas as pd
import streamlit as st

from fdkvc.charts.dots import dots_chart
from fdkvc.charts.sweep import tradeoff_chart
from fdkvc.charts.theme import Spec
from fdkvc.experiments.statistics import pareto_front
from fdkvc.experiments.tuning import (
    DIALOGS,
    FRESH,
    TRIALS,
    Tuned,
    Tuning,
    optuna_package,
    searchable,
    tune,
)
from fdkvc.files.options import options_of
from fdkvc.files.repeat import found_by
from fdkvc.files.studies import tuning_files
from fdkvc.parameters import SEED, Field
from fdkvc.policies import Policy, read_policy
from fdkvc.report.tables import interval_words
from fdkvc.run.metrics import metric_named, metrics_of
from fdkvc.synthetic.scenarios import BENCHMARK_SCENARIOS, SCENARIOS
from fdkvc.ui.ablation.sections import show_setting
from fdkvc.ui.kit import fields, past
from fdkvc.ui.kit.downloads import show_chart, show_pickable, shown_charts
from fdkvc.ui.kit.fields import pick_two, running
from fdkvc.ui.kit.files import brought_run, show_run_files, versions_of
from fdkvc.ui.kit.frame import page_theme
from fdkvc.ui.kit.glossary import show_glossary
from fdkvc.ui.kit.jobs import Report
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.markdown import Markdown, plain
from fdkvc.ui.kit.past import Kind
from fdkvc.ui.kit.run_panel import run_panel, show_command
from fdkvc.ui.kit.sidebar import BUDGET_HERE, read_name
from fdkvc.ui.kit.variants import warn_no_effect
from fdkvc.words import command_line, count, decimal, listed, sentence, signed

OF = "search"
"""Part of the session keys of these fields, which differ from those of a sweep."""

TUNED = Field(
    "Policy",
    "Any policy, also wrapped, such as blocks(h2o, size=8). Hyperparameters that are not searched "
    "keep these values.",
    name="policy",
    default="fd-kvc",
    of=OF,
    read=read_name,
)
NAMES = Field(
    "Hyperparameters", "If none is chosen, all are searched.", name="names", default=(), of=OF
)
GOALS = Field(
    "Goals",
    "With several goals, the search returns their Pareto front.",
    name="metrics",
    default=Tuning.metrics,
    choices=metrics_of(),
    of=OF,
)
WHERE = Field(
    "Scenarios",
    "A goal is averaged over the scenarios.",
    name="scenarios",
    default=BENCHMARK_SCENARIOS,
    choices={key: SCENARIOS[key] for key in BENCHMARK_SCENARIOS},
    of=OF,
)
NUMBERS = (
    replace(TRIALS, default=40, high=300, of=OF),
    replace(DIALOGS, high=60, of=OF),
    replace(FRESH, high=600, of=OF),
    replace(SEED, of=OF),
    replace(BUDGET_HERE, follows=False, of=OF),
)
SETTINGS = (NAMES, GOALS, WHERE, *NUMBERS)
"""What is chosen beside the policy, by the names of `Tuning`."""

SEARCH = "Start the search"
"""The label of the button."""

ORIGINAL, FOUND = "original", "found"


@dataclass(frozen=True, eq=False)
class Searched:
    """A search that has ended or was cancelled, after how many settings and seconds."""

    tuning: Tuning
    tuned: Tuned
    seconds: float
    tried: int


def _run(tuning: Tuning, on_progress: Report, cancelled: Event) -> Searched:
    began = perf_counter()
    tuned = tune(tuning, on_progress=on_progress, cancelled=cancelled)
    return Searched(tuning, tuned, perf_counter() - began, len(tuned.trials))


def link_fields(page: str, link: Mapping[str, str]) -> list[Field]:
    """Return the fields of the address, for a link or else the session's values."""
    try:
        line = link.get(TUNED.name, TUNED.default) if link else running(page, TUNED)
        policy = read_policy(line)
    except ValueError:
        policy = read_policy(TUNED.default)
    return [TUNED, _names_of(policy), *SETTINGS[1:]]


def _names_of(policy: Policy) -> Field:
    labels = {name: known.title for name, known in searchable(policy).items()}
    return replace(NAMES, choices=labels)


def choose_search(page: str) -> Tuning:
    """Show the controls and return the search."""
    # A setting of the search checks that the policy has a hyperparameter.
    policy = fields.text(page, TUNED, lambda line: Tuning(read_policy(line)).policy)
    tuning = Tuning(
        policy=policy,
        names=fields.several(page, _names_of(policy)),
        scenarios=fields.several(page, WHERE),
        **fields.numbers(page, NUMBERS),
        metrics=fields.several(page, GOALS),
    )
    command = command_line("tune", options_of(replace(tuning, trials=1000)))
    show_command(f"At most {NUMBERS[0].high} trials", command)
    return tuning


# ------------------------------------------------------------------------------- runs


def _link(tuning: Tuning) -> Mapping[str, str]:
    chosen = {each.name: each.written(getattr(tuning, each.name)) for each in SETTINGS}
    return {TUNED.name: tuning.policy.name, **chosen}


def _described(tuning: Tuning) -> str:
    goals = listed([metric_named(key).label.lower() for key in tuning.metrics])
    return (
        f"{tuning.policy.title} for {goals} on {count(len(tuning.scenarios), 'scenario')}, "
        f"{count(tuning.trials, 'trial')}, {count(tuning.dialogs, 'dialog')} per scenario, seed "
        f"{tuning.seed}, budget {tuning.budget}"
    )


@cached
def files_of(searched: Searched) -> Mapping[str, str]:
    """Return the files of a search, those that the command line writes."""
    return tuning_files(searched.tuning, searched.tuned, searched.seconds)


def runs_of(page: str) -> Kind:
    """Return what is searched on the page."""
    return Kind(
        f"{page}-{OF}",
        Tuning,
        link=_link,
        fields=lambda link: link_fields(page, link),
        describe=_described,
        results=None,
        files=files_of,
        shipped=dict,
        held_by=page,
    )


# ------------------------------------------------------------------------------- on screen


def show(page: str) -> None:
    """Show the search and its results."""
    runs = runs_of(page)
    try:
        optuna_package()
    except ValueError as error:
        missing = sentence(str(error))
    else:
        missing = ""
        with st.sidebar:
            above = st.container()
            chosen = choose_search(page)
    opened = _open(runs.page)
    if opened is not None:
        _show_found(runs.page, opened)
        return
    if missing:
        st.info(plain(missing), icon=":material/extension_off:")
        return
    warn_no_effect([chosen.policy])
    with above:
        run_panel(runs.page, SEARCH, partial(_run, chosen), content=chosen)
    shown = past.at_hand(runs, chosen)
    past.show_runs(runs, shown)
    if shown is None:
        past.offer(SEARCH)
        return
    searched: Searched = shown.result
    tried = searched.tried, searched.tuning.trials
    past.about(runs, shown, chosen, searched.seconds, tried, "trials")
    _show_found(runs.page, searched)
    show_run_files(runs.page, files_of(searched), "fdkvc-search.zip")


def _open(page: str) -> Searched | None:
    """Open the files of a search by the command line; return it, or None."""
    with st.expander("Open a search from its files", icon=":material/folder_open:"):
        try:
            label = "run.json, front.csv, gains.csv and trials.csv"
            record = brought_run(f"{page}/open", label, "search")
            if record is None:
                return None
            tuned = found_by(record)
        except ValueError as error:
            fields.problems(f"This file cannot be opened: {error}.")
            return None
    tuning: Tuning = record.settings
    tried = len(tuned.trials) if "trials.csv" in record.texts else tuning.trials
    words = f"{_described(tuning)}. Ran with {versions_of(record)}"
    st.caption(plain(f"Shown until you remove the file: {words}."))
    past.warn_cancelled((tried, tuning.trials), "trials")
    return Searched(tuning, tuned, 0.0, tried)


@st.fragment
def _show_found(page: str, searched: Searched) -> None:
    shown_charts(page).clear()
    tuning, front = searched.tuning, searched.tuned.front
    start = tuning.policy.name
    found = [name for name in front.setting.unique() if name != start]
    names = {start: ORIGINAL, **dict(zip(found, ascii_uppercase, strict=False))}
    table = _table(searched, names)

    def pick_row() -> None:
        if rows := st.session_state[f"{page}/settings"].selection.rows:
            st.session_state[f"{page}/picked"] = table.setting.iloc[rows[0]]

    st.header("Results on fresh dialogs", anchor=False)
    st.markdown(
        plain(
            f"Of {count(searched.tried, 'setting')}, those on the Pareto front of the search and "
            f"the original policy were measured again on {tuning.fresh} fresh dialogs per "
            "scenario, because the dialogs of a search favour the settings that it selected. Click "
            "a point or a row for a link to step through that setting."
        )
    )
    labels = {key: metric_named(key).label for key in tuning.metrics}
    if len(labels) > 1:
        x, y = pick_two(f"{page}/axis", labels, ("Horizontal axis", ""), ("Vertical axis", ""))
        chart = _front_chart(front, x, y, names)
        show_pickable(page, "front", chart)
    else:
        rows = front.assign(row=front.setting.map(names), name=FOUND, words="")
        title, words = metric_named(tuning.metrics[0]).title, "mean and 95 % interval"
        show_chart(page, "front", dots_chart(rows, title, words, page_theme(), "setting"))
    st.dataframe(
        table.drop(columns="setting"),
        hide_index=True,
        height="content",
        key=f"{page}/settings",
        on_select=pick_row,
        selection_mode="single-row",
        column_config={"": st.column_config.TextColumn(pinned=True, width=80)},
    )
    name = st.session_state.get(f"{page}/picked", "")
    if name in names:
        policy, scenario = read_policy(name), SCENARIOS[tuning.scenarios[0]]
        words = Markdown("**{}**: {}").format(names[name], policy.title)
        show_setting(words, policy, scenario, tuning.seed, tuning.budget)
    show_glossary(tuning.metrics)


def _front_chart(front: pd.DataFrame, x: str, y: str, names: Mapping[str, str]) -> Spec:
    wide = front.set_index(["setting", "goal"]).unstack(sort=False)
    columns = {
        f"{axis}{end}": wide[name, goal]
        for axis, goal in (("x", x), ("y", y))
        for name, end in (("mean", ""), ("ci_low", "_low"), ("ci_high", "_high"))
    }
    points = pd.DataFrame(columns).reset_index()
    lower = tuple(metric_named(goal).lower_is_better for goal in (x, y))
    signs = [-1 if each else 1 for each in lower]
    points["front"] = pareto_front(points[["x", "y"]].to_numpy() * signs)
    points["name"] = points.setting.map(names)
    points["group"] = [ORIGINAL if name == ORIGINAL else FOUND for name in points.name]
    return tradeoff_chart(
        points,
        (metric_named(x).title, metric_named(y).title),
        (FOUND, ORIGINAL),
        (lower[0], lower[1]),
        page_theme(),
    )


def _table(searched: Searched, names: Mapping[str, str]) -> pd.DataFrame:
    """Return a row per setting: its letter, each goal, and its hyperparameters."""
    tuned, goals = searched.tuned, searched.tuning.metrics
    searched_for = ["" if math.isnan(mean) else decimal(mean) for mean in tuned.front.searched]
    gained = interval_words(tuned.gains, write=signed, names=("mean_diff", "ci_low", "ci_high"))
    fresh, found, gains = (
        dict(zip(zip(table.setting, table.goal, strict=True), words, strict=True))
        for table, words in (
            (tuned.front, interval_words(tuned.front)),
            (tuned.front, searched_for),
            (tuned.gains, gained),
        )
    )
    rows = []
    for name, letter in names.items():
        row: dict[str, object] = {"setting": name, "": letter}
        for goal in goals:
            label, at = metric_named(goal).label, (name, goal)
            row[label] = fresh[at]
            row[f"{label}, in the search"] = found[at]
            row[f"{label}, gain"] = gains.get(at, "")
        settings = read_policy(name).settings
        row |= {
            known.title: str(settings[each].default)
            for each, known in searched.tuning.searched.items()
        }
        rows.append(row)
    return pd.DataFrame(rows)
