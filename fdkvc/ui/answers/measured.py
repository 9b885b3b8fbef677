"""Over many dialogs: shipped results on what answers lose at each budget, and what predicts it.

The files were written by ``python -m fdkvc answers``; see `fdkvc.lm`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import StringIO

import pandas as pd
import streamlit as st

from fdkvc.charts.results import budgets_chart, dots_chart
from fdkvc.charts.theme import Spec
from fdkvc.experiments.answers import CUT_TEXT, FULL, Answers, with_proxies
from fdkvc.files.record import version_words
from fdkvc.grid import Grid, figures, pivot
from fdkvc.kinds.answers import correlations, cost_grid
from fdkvc.lm import MEASURED_ON
from fdkvc.lm.head_eviction import DECIDES
from fdkvc.policies import read_policy
from fdkvc.policies.pyramid import Pyramid
from fdkvc.policies.wrapper import inside
from fdkvc.report.shipped_answers import (
    TABLES,
    Shipped,
    opened,
    shipped,
)
from fdkvc.run.metrics import METRICS, Metric, late_metric, metrics_of
from fdkvc.ui.answers.choices import BY, MEASURE
from fdkvc.ui.answers.conversation import Answered
from fdkvc.ui.dialogs.choices import DIGITS, OWN, POLICIES, keep_file
from fdkvc.ui.dialogs.files import DialogFile, read_dialog_file
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.downloads import brought_run, show_chart
from fdkvc.ui.kit.fields import problems
from fdkvc.ui.kit.frame import page_theme, panel, show_grid, side_by_side
from fdkvc.ui.kit.markdown import plain
from fdkvc.words import count, listed, sentence

OTHERWISE = (
    "On the stage each layer decides by itself, within the same budget, by mean scores and with "
    "positions as read. This run decided differently, so the stage may show other evictions."
)


def damage_rows(metric: str, known: Shipped | None = None) -> pd.DataFrame:
    """Return the damage of each policy; above 0 is worse than the full cache."""
    paired = (known or shipped()).tables.paired
    rows = paired[paired.metric == metric].copy()
    if not METRICS[metric].lower_is_better:
        rows["mean_diff"] = -rows.mean_diff
        rows["ci_low"], rows["ci_high"] = -rows.ci_high, -rows.ci_low
    rows["title"] = rows.policy.map(_title)
    return rows.rename(columns={"mean_diff": "mean"})


def _title(name: str) -> str:
    return {CUT_TEXT: "Cut text", FULL: "Full cache"}.get(name) or read_policy(name).title


def show_measured(page: str, answered: Answered) -> Mapping[str, pd.DataFrame]:
    """Show the damage by budget and the proxies; return their tables."""
    own_run = _open_run(page)
    known = own_run or shipped()
    st.markdown(plain(_summary(known, own_run is not None)))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        metric: str = fields.choice(page, MEASURE, width=330)
        by: dict[int, str] = {each: f"{each} entries" for each in known.budgets}
        if own_run is None:
            budget: int = fields.choice(page, replace(BY, choices=by), width=150)
        else:
            budget = st.selectbox(plain(BY.label), [*by], key=f"{page}/own/at", width=150)
    measured = set(known.tables.paired.metric)
    if metric not in measured:  # such as a run on dialogs without calls
        missing, metric = metric, next(key for key in metrics_of("answers") if key in measured)
        instead = f"{METRICS[metric].label} is shown"
        st.info(plain(f"This run has no values of {METRICS[missing].label}: {instead}."))
    measure, rows = METRICS[metric], damage_rows(metric, known)
    unit = "percentage points" if measure.percent else "nats per token"
    loss = f"Damage is the loss against the full cache, in {unit}."
    st.caption(plain(f"{measure.label}: {measure.help} {loss}"))
    own = [policy.title for policy in answered.conversation.policies]
    with side_by_side("measured"):
        with panel("measured-budgets"):
            chosen = own if own_run is None else rows.title.unique().tolist()
            show_chart(page, "budgets", _by_budget(rows, chosen, measure.percent))
        with panel("measured-policies"):
            show_chart(page, "policies", _by_policy(rows[rows.budget == budget], budget, measure))
    show_grid(_table(rows), f"Damage: {measure.label}")
    if own_run is not None:
        return _show_own(page, own_run)
    tables = known.tables
    st.subheader("What predicts the damage", anchor=False)
    st.markdown(plain(_what_predicts()))
    show_grid(proxies_grid(tables.proxies), "Rank correlation of proxy and damage")
    shown = (tables.summary, tables.paired, tables.proxies)
    return dict(zip(TABLES, shown, strict=True))


def _open_run(page: str) -> Shipped | None:
    """Let the user open the folder of a run; return its results, None to show those shipped."""
    with st.popover("Open the results of your own model", icon=":material/folder_open:"):
        label = "The files of a folder that fdkvc live or answers wrote, with its run.json"
        try:
            run = brought_run(f"{page}/own", label, "answers", timed=("live_cost.csv",), trace=True)
            return None if run is None else opened(run)
        except ValueError as error:
            still = "Still showing the shipped results."
            problems(f"These files cannot be shown: {error}. {still}")
    return None


def _show_own(page: str, known: Shipped) -> Mapping[str, pd.DataFrame]:
    tables = dict(zip(TABLES, (known.tables.summary, known.tables.paired), strict=False))
    if "live_cost.csv" in known.run.texts:
        cost = pd.read_csv(StringIO(known.run.texts["live_cost.csv"]))
        tables["live_cost.csv"] = cost
        st.subheader("What it costs", anchor=False)
        st.caption(
            "Peak bytes of the cache, and tokens per second with evictions, on the longest dialog. "
            "Ratios are to the cache without eviction."
        )
        show_grid(cost_grid(cost, _title), "Cost of each cache")
    traces = [each for each in st.session_state[f"{page}/own"] if each.name.endswith(".npz")]
    if not traces:
        st.caption("To play it on the stage, also choose its trace.npz, which --trace writes.")
        return tables
    if _replays_otherwise(known):
        st.caption(OTHERWISE)
    if st.button("Play its trace on the stage", icon=":material/play_circle:", type="primary"):
        try:
            _play(known.run.settings, read_dialog_file(traces[-1].getvalue(), traces[-1].name))
        except ValueError as error:
            problems(sentence(str(error)))
    return tables


def _replays_otherwise(known: Shipped) -> bool:
    """Whether the stage cannot decide as the run did."""
    settings, model = known.run.settings, known.run.about["model"]
    return (
        settings.decides == "model"
        or model.get("pool") == "max"
        or model.get("positions") == "slots"
        or any(isinstance(each, Pyramid) for each in inside(settings.policies[0]))
    )


def _play(settings: Answers, trace: DialogFile) -> None:
    """Open a run's trace under the policy and the budget that it was recorded with."""
    keep_file("dialogs", trace)
    link = {"file": OWN, "sha": trace.digest[:DIGITS], "budget": f"{settings.budgets[0]}"}
    link["policies"] = POLICIES.written((settings.policies[0].name,))
    if settings.decides != DECIDES.default:
        link["heads"] = "together"
    st.switch_page("pages/dialogs.py", query_params=link)


def _summary(known: Shipped, own: bool) -> str:
    tables = known.tables
    policies = count(tables.paired.policy.nunique(), "policy", "policies")
    dialogs = count(int(tables.summary.n.max()), "dialog")
    at = f"at {count(len(known.budgets), 'budget')}"
    version = f"with {version_words(known.run.versions['fdkvc-lab'])}."
    if own:
        return f"{known.run.about['model']['name']}: {policies} over {dialogs}, {at}, {version}"
    clusters = count(int(tables.paired.services.max()), "cluster")
    return (
        f"{policies} over {dialogs} that the bundled model was not trained on, {at}, measured on "
        f"{MEASURED_ON} {version} The 95 % intervals are by {clusters}."
    )


def _what_predicts() -> str:
    """Return what the correlations are computed over, and what they are worth."""
    titles = [policy.title for policy in with_proxies(shipped().run.settings.policies)]
    over = f"{count(len(titles), 'policy', 'policies')} ({listed(titles)})"
    return (
        "Rank correlation between a measure of the replayed dialogs and the damage to answers, "
        f"over {over} and {count(len(shipped().budgets), 'budget')}, with the 95 % interval by "
        "clusters and, in brackets, by policies. Which measure predicts damage best "
        "depends on the policies compared. In an independent audit on 400 dialogues of SGD's test "
        "part with seven policies, output error had +0.89, call-argument recall −0.86 and "
        "attention loss +0.81. Both are of a model without attention sinks; in "
        "SmolLM2-135M-Instruct, which has them, call-argument recall does not predict damage."
    )


def _by_budget(rows: pd.DataFrame, own: Sequence[str], percent: bool) -> Spec:
    shown = rows[rows.title.isin([*own, _title(CUT_TEXT)])]
    top = 1.05 * float(shown[["mean", "ci_high"]].max().max())
    shown = shown.assign(policy=shown.title)
    return budgets_chart(shown, "Damage by budget", page_theme(), percent=percent, top=top)


def _by_policy(rows: pd.DataFrame, budget: int, measure: Metric) -> Spec:
    ordered = rows.sort_values("mean")
    data = measure.scale * ordered[["mean", "ci_low", "ci_high"]]
    data = data.assign(row=ordered.title, name="damage", words="")
    title = f"Every policy at {budget} entries per head"
    subtitle = "least damage on top, with 95 % intervals"
    return dots_chart(data, title, subtitle, page_theme(), "policy")


def _table(rows: pd.DataFrame) -> Grid:
    """Return a row for each policy, and its damage with the interval at each budget."""
    least = rows[rows.budget == rows.budget.min()].sort_values("mean").title
    rows = rows.assign(policy=rows.title).set_index("title").loc[least]
    return pivot(rows, figures(rows), label="{} per head".format)


def proxies_grid(table: pd.DataFrame) -> Grid:
    """Return a row for each proxy, and its correlation with each damage."""
    table = table[table.over == "policies and budgets"]
    table = table.assign(proxy=[late_metric(name).title for name in table.proxy])
    label = {name: METRICS[name].label for name in table.damage}
    return pivot(table, correlations(table), ["proxy"], "damage", label.__getitem__)
