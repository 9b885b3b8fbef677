"""Over many dialogs: what answers lose at each budget, by a run of ``answers`` or ``live``."""

from collections.abc import Mapping
from dataclasses import replace
from io import StringIO

import pandas as pd
import streamlit as st

from fdkvc.charts.results import budgets_chart, dots_chart
from fdkvc.charts.theme import Spec
from fdkvc.core.limits import MAX_RUN_JSON_BYTES
from fdkvc.core.words import count
from fdkvc.engine.metrics import METRICS, Metric, metrics_of
from fdkvc.models.answers import FULL
from fdkvc.models.page.choices import BY, MEASURE
from fdkvc.models.results import AnswersRun, cost_grid
from fdkvc.policies import read_policy
from fdkvc.runs.base import read_record
from fdkvc.runs.grid import figures, pivot
from fdkvc.runs.record import Record, version_words
from fdkvc.ui import fields
from fdkvc.ui.downloads import show_chart
from fdkvc.ui.fields import problems
from fdkvc.ui.frame import page_theme, panel, show_grid, side_by_side
from fdkvc.ui.markdown import plain

SUMMARY, PAIRED, COSTS = "answers_summary.csv", "answers_paired.csv", "live_cost.csv"
"""Tables of a run; only ``live`` writes the last."""


def opened_run(key: str) -> Record | None:
    """Let the user open a ``run.json`` with its tables; raise a ValueError if it is invalid.

    The costs are taken without a digest, as no run repeats them.
    """
    loaded = st.file_uploader(
        "The files of a folder that fdkvc live or answers wrote, with its run.json",
        type=["json", "csv"],
        key=key,
        max_upload_size=1,
        accept_multiple_files=True,
    )
    if not loaded:
        return None
    texts = {
        file.name: file.read(MAX_RUN_JSON_BYTES + 1).decode("utf-8", "replace") for file in loaded
    }
    runs = [name for name in texts if name.endswith(".json")]
    if not runs:
        raise ValueError("run.json is missing: choose it together with its tables")
    record = read_record(texts[runs[-1]], [AnswersRun])  # of several, the last
    return record.with_texts(texts, (COSTS,))


def tables_of(run: Record) -> dict[str, pd.DataFrame]:
    """Return the tables of a run.

    Raises a ValueError if a table is missing or was changed, or if damage is not against the full
    cache.
    """
    missing = [name for name in (SUMMARY, PAIRED) if name not in run.texts]
    if missing:
        raise ValueError(f"{missing[0]} of this run is missing: choose it together with run.json")
    if run.baseline != FULL:
        raise ValueError(f"its baseline is {run.baseline}, but damage is against {FULL}")
    names = [name for name in (SUMMARY, PAIRED, COSTS) if name in run.texts]
    return {name: pd.read_csv(StringIO(run.texts[name])) for name in names}


def damage_rows(paired: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the damage of each policy, by its title; above 0 is worse than the full cache."""
    rows = paired[paired.metric == metric].copy()
    if not METRICS[metric].lower_is_better:
        rows["mean_diff"] = -rows.mean_diff
        rows["ci_low"], rows["ci_high"] = -rows.ci_high, -rows.ci_low
    rows["policy"] = rows.policy.map(_title)
    return rows.rename(columns={"mean_diff": "mean"})


def _title(name: str) -> str:
    return read_policy(name).title


def show_measured(page: str) -> Mapping[str, pd.DataFrame]:
    """Show what a run over many dialogs measured, once its files are opened; return its tables."""
    st.caption(
        "What answers lose at each budget, and what that costs, over all dialogs of a file. The "
        "commands answers and live measure it for a model of your own."
    )
    try:
        run = opened_run(f"{page}/own")
        if run is None:
            return {}
        tables = tables_of(run)
    except ValueError as error:
        problems(f"These files cannot be shown: {error}.")
        return {}
    paired, budgets = tables[PAIRED], sorted(run.settings.budgets)
    policies = count(paired.policy.nunique(), "policy", "policies")
    dialogs = count(int(tables[SUMMARY].n.max()), "dialog")
    version = f"with {version_words(run.versions['fdkvc-lab'])}"
    name, tried = run.about["model"]["name"], count(len(budgets), "budget")
    st.markdown(plain(f"{name}: {policies} over {dialogs}, at {tried}, {version}."))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        metric: str = fields.choice(page, MEASURE, width="content")
        by = {budget: f"{budget} entries" for budget in budgets}
        field = replace(BY, default=budgets[0], choices=by)
        budget: int = fields.choice(page, field, width="content")
    measured = set(paired.metric)
    if metric not in measured:  # such as a run on dialogs without calls
        missing, metric = metric, next(key for key in metrics_of("answers") if key in measured)
        instead = f"{METRICS[metric].label} is shown"
        st.info(plain(f"This run has no values of {METRICS[missing].label}: {instead}."))
    measure, rows = METRICS[metric], damage_rows(paired, metric)
    unit = "percentage points" if measure.percent else "nats per token"
    loss = f"Damage is the loss against the full cache, in {unit}."
    st.caption(plain(f"{measure.label}: {measure.help} {loss}"))
    with side_by_side("measured"):
        with panel("measured-budgets"):
            show_chart(page, "budgets", _by_budget(rows, measure.percent))
        with panel("measured-policies"):
            show_chart(page, "policies", _by_policy(rows[rows.budget == budget], budget, measure))
    least = rows[rows.budget == rows.budget.min()].sort_values("mean").policy
    rows = rows.set_index("policy", drop=False).loc[least]
    show_grid(pivot(rows, figures(rows), label="{} per head".format), f"Damage: {measure.label}")
    if COSTS in tables:
        st.subheader("What it costs", anchor=False)
        st.caption(
            "Peak bytes of the cache, and tokens per second with evictions, on the longest dialog. "
            "Ratios are to the cache without eviction."
        )
        show_grid(cost_grid(tables[COSTS], _title), "Cost of each cache")
    return tables


def _by_budget(rows: pd.DataFrame, percent: bool) -> Spec:
    top = 1.05 * float(rows[["mean", "ci_high"]].max().max())
    return budgets_chart(rows, "Damage by budget", page_theme(), percent=percent, top=top)


def _by_policy(rows: pd.DataFrame, budget: int, measure: Metric) -> Spec:
    ordered = rows.sort_values("mean")
    data = measure.scale * ordered[["mean", "ci_low", "ci_high"]]
    data = data.assign(policy=ordered.policy)
    title = f"Every policy at {budget} entries per head"
    subtitle = "least damage on top, with 95 % intervals"
    return dots_chart(data, title, subtitle, page_theme())
