"""Over many dialogs: shipped results on what answers lose at each budget, and what predicts it.

The files were written by ``python -m fdkvc answers``; see `fdkvc.lm`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from io import StringIO

import pandas as pd
import streamlit as st

from fdkvc.charts.budgets import budgets_spec
from fdkvc.charts.dots import dots_spec
from fdkvc.charts.theme import Spec, with_data
from fdkvc.experiments.answers import CUT_TEXT, MEASURES, PROXIES, Measure
from fdkvc.experiments.known_services import known_sentence
from fdkvc.experiments.proxies import DAMAGES, AnswersTables
from fdkvc.files.record import Record, read_run
from fdkvc.files.text import by_policies
from fdkvc.lm import MEASURED, MEASURED_ON
from fdkvc.policies import read_policy
from fdkvc.report.document import answers_parts, dialogs_report, ran_on
from fdkvc.run.metrics import late_metric
from fdkvc.ui.answers.choices import BY, MEASURE
from fdkvc.ui.answers.conversation import Answered, bundled_model
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.downloads import show_chart
from fdkvc.ui.kit.frame import page_theme, panel, side_by_side, table_html
from fdkvc.ui.kit.markdown import Markdown, plain
from fdkvc.words import count, listed, ranged, signed

TABLES = ("answers_summary.csv", "answers_paired.csv", "proxies.csv", "answers_services.csv")
"""The shipped files, beside ``run.json``."""


@dataclass(frozen=True, eq=False)
class Shipped:
    """Shipped results of the bundled model.

    Attributes
    ----------
    files : mapping of name to str
    tables : AnswersTables
    run : Record
        The content of ``run.json``.
    """

    files: Mapping[str, str]
    tables: AnswersTables
    run: Record

    @property
    def budgets(self) -> tuple[int, ...]:
        """The measured budgets, in rising order."""
        return tuple(sorted(self.run.settings.budgets))


@lru_cache(maxsize=1)
def shipped() -> Shipped:
    """Read the files, once."""
    files = {name: (MEASURED / name).read_text("utf-8") for name in (*TABLES, "run.json")}
    run = read_run(files["run.json"], "answers")
    tables = (pd.read_csv(StringIO(files[name])) for name in TABLES)
    return Shipped(files, AnswersTables(run.baseline, *tables), run)


def report() -> str:
    """Return the shipped results as a report."""
    known = shipped()
    ran = ran_on(None, known.run.versions, known.run.processor)
    return dialogs_report(
        answers_parts(known.run.settings, known.tables, bundled_model().name, known.files, ran),
        made=MEASURED_ON,
    )


def damage_rows(metric: str) -> pd.DataFrame:
    """Return the damage of each policy; above 0 is worse than the full cache."""
    paired = shipped().tables.paired
    rows = paired[paired.metric == metric].copy()
    if not MEASURES[metric].lower_is_better:
        rows["mean_diff"] = -rows.mean_diff
        rows["ci_low"], rows["ci_high"] = -rows.ci_high, -rows.ci_low
    rows["title"] = [_title(name) for name in rows.policy]
    return rows.rename(columns={"mean_diff": "mean"})


def _title(name: str) -> str:
    return "Cut text" if name == CUT_TEXT else read_policy(name).title


def show_measured(page: str, answered: Answered) -> Mapping[str, pd.DataFrame]:
    """Show the damage by budget and the proxies; return their tables."""
    known = shipped()
    st.markdown(plain(_summary(known)))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        metric: str = fields.choice(page, MEASURE, width=330)
        by: dict[int, str] = {each: f"{each} entries" for each in known.budgets}
        budget: int = fields.choice(page, replace(BY, choices=by), width=150)
    measure, rows = MEASURES[metric], damage_rows(metric)
    st.caption(
        Markdown("{}: {} Damage is the loss against the full cache{}.").format(
            measure.label,
            measure.help,
            ", in nats per token" if measure.unit == "nats" else ", in percentage points",
        )
    )
    own = [policy.title for policy in answered.conversation.policies]
    with side_by_side("measured"):
        with panel("measured-budgets"):
            show_chart(page, "budgets", _by_budget(rows, own, measure.unit == "%"))
        with panel("measured-policies"):
            show_chart(page, "policies", _by_policy(rows[rows.budget == budget], budget, measure))
    st.html(table_html(_table(rows, measure.unit == "%"), f"Damage: {measure.label}"))
    st.subheader("What predicts it", anchor=False)
    tables = known.tables
    st.markdown(plain(_what_predicts()))
    st.html(table_html(proxies_columns(tables.proxies), "Rank correlation of proxy and damage"))
    return dict(
        zip(TABLES, (tables.summary, tables.paired, tables.proxies, tables.known), strict=True)
    )


def _summary(known: Shipped) -> Markdown:
    return Markdown(
        "{} over {} that the bundled model was not trained on, at {}, measured on {} with version "
        "{} of the lab. The 95 % intervals are by {}. {}"
    ).format(
        count(known.tables.paired.policy.nunique(), "policy", "policies"),
        count(int(known.tables.summary.n.max()), "dialogue"),
        count(len(known.budgets), "budget"),
        MEASURED_ON,
        known.run.versions["fdkvc-lab"],
        count(int(known.tables.paired.services.max()), "service cluster"),
        known_sentence(known.tables.known),
    )


def _what_predicts() -> Markdown:
    """Return what the correlations are computed over, and what they are worth."""
    names = shipped().tables.paired.policy.unique()
    titles = [_title(name) for name in names if name != CUT_TEXT]
    return Markdown(
        "Rank correlation between a measure of the replayed dialogs and the damage to answers, "
        "over {} ({}) and {}, with the 95 % interval by service clusters and, in brackets, by "
        "policies. Which measure predicts damage best depends on the policies compared. In an "
        "independent audit on 400 dialogues of SGD's test part with seven policies, output error "
        "had +0.89, call-argument recall −0.86 and attention loss +0.81."
    ).format(
        count(len(titles), "policy", "policies"),
        listed(titles),
        count(len(shipped().budgets), "budget"),
    )


def _by_budget(rows: pd.DataFrame, own: Sequence[str], percent: bool) -> Spec:
    """Draw the page's policies and text truncation."""
    chosen = [title for title in rows.title.unique() if title in (*own, _title(CUT_TEXT))]
    shown = rows[rows.title.isin(chosen)]
    spec = budgets_spec(
        "Damage by budget",
        shipped().budgets,
        tuple(chosen),
        1.05 * float(shown[["mean", "ci_high"]].max().max()),
        percent,
        True,
        page_theme(),
    )
    data = shown.assign(policy=shown.title)[["policy", "budget", "n", "mean", "ci_low", "ci_high"]]
    return with_data(spec, {"budgets": data.reset_index(drop=True)})


def _by_policy(rows: pd.DataFrame, budget: int, measure: Measure) -> Spec:
    """Draw every policy at one budget."""
    ordered = rows.sort_values("mean")
    scale = 100 if measure.unit == "%" else 1
    data = pd.DataFrame(
        {
            "row": ordered.title.tolist(),
            "name": "damage",
            **{name: (scale * ordered[name]).tolist() for name in ("mean", "ci_low", "ci_high")},
            "words": "",
        }
    )
    low, high = min(0.0, float(data.ci_low.min())), float(data.ci_high.max())
    room = 0.04 * (high - low)
    spec = dots_spec(
        f"Every policy at {budget} entries per head",
        "least damage on top, with 95 % intervals",
        tuple(data["row"]),
        ("damage",),
        low - room,
        high + room,
        page_theme(),
        "policy",
    )
    return with_data(spec, {"dots": data})


def _table(rows: pd.DataFrame, percent: bool) -> dict[str, list[str]]:
    """Return a row for each policy, and its damage with the interval at each budget."""
    by_policy = {(row["title"], row["budget"]): row for row in rows.to_dict("records")}
    first = shipped().budgets[0]
    titles = rows[rows.budget == first].sort_values("mean").title.tolist()
    scale, digits = (100, 1) if percent else (1, 3)

    def words(title: str, budget: int) -> str:
        row = by_policy[title, budget]
        mean, low, high = (scale * row[name] for name in ("mean", "ci_low", "ci_high"))
        return ranged(mean, low, high, digits)

    return {
        "policy": titles,
        **{
            f"{budget} per head": [words(title, budget) for title in titles]
            for budget in shipped().budgets
        },
    }


def proxies_columns(table: pd.DataFrame) -> dict[str, list[str]]:
    """Return a row for each proxy, and its correlation with each damage."""
    rows = table[table.over == "policies and budgets"].to_dict("records")
    over = {(row["proxy"], row["damage"]): row for row in rows}
    columns = {"proxy": [late_metric(name).title for name in PROXIES]}
    for damage in DAMAGES:
        columns[MEASURES[damage].label] = [
            ranged(row["rho"], row["ci_low"], row["ci_high"], 2, signed)
            + by_policies(row["policies_low"], row["policies_high"])
            for row in (over[name, damage] for name in PROXIES)
        ]
    return columns
