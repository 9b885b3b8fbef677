"""The views of the compare page: several runs in step, and their figures as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pandas as pd
import streamlit as st

from fdkvc.core.parameters import Field
from fdkvc.core.words import listed, percent
from fdkvc.engine.metrics import ADAPTED, LATE_TURNS, default_metrics, metric_named
from fdkvc.explain.narrate import return_sentence
from fdkvc.explain.tables import figures_table, first_difference
from fdkvc.player.run import StageRun
from fdkvc.ui import fields
from fdkvc.ui.fields import held
from fdkvc.ui.follow import follow_lanes, show_lanes
from fdkvc.ui.frame import panel, show_grid
from fdkvc.ui.glossary import show_glossary
from fdkvc.ui.lanes import PAIR, POLICIES, choose_pair, differences, overlap
from fdkvc.ui.markdown import Markdown, plain
from fdkvc.ui.sidebar import DIALOG, LOOK, MORE_METRICS

FIELDS: tuple[Field, ...] = (*DIALOG, POLICIES, *LOOK, MORE_METRICS, *PAIR)
"""Every field of the page's view."""

CONTINUED = "fork"
"""The parameter of links of earlier versions that names a run continued with something changed."""

CONTINUED_WITH = ("fork_turn", "fork_policy", "fork_budget", "pinned", "dropped")
"""Their parameters that say with what."""


def adopt_link(page: str, link: Mapping[str, str]) -> list[str]:
    """Apply a link to the page; return a sentence for each part that is wrong."""
    known_parameters = dict(link)
    for name, text in link.items():
        if name in (CONTINUED, *CONTINUED_WITH) or text == CONTINUED:
            del known_parameters[name]
    wrong = fields.adopt_link(page, FIELDS, known_parameters)
    if link.get(CONTINUED):
        wrong.append(
            "This link has an error: it continues a run with something changed, which this version "
            "does not show. Add a variant with the changed setting instead."
        )
    for field in PAIR:
        if held(page, field):
            lane_choice = replace(field, choices=held(page, POLICIES))
            wrong += fields.keep_to(page, lane_choice, link, field.default)
    return wrong


def show(page: str, lanes: tuple[StageRun, ...], write: Callable[[], None]) -> None:
    """Show the runs as lanes of one stage, with figures below; `write` writes the address."""
    first = lanes[0]
    answer = return_sentence([(lane.policy.title, lane.trace) for lane in lanes], first.titled)
    st.container(key="page-answer").markdown(plain(answer))
    show_lanes(page, lanes)
    with panel("difference"):
        st.header("Where they differ", anchor=False)
        pair = None if first.long else choose_pair(page, lanes)
        if pair is None:
            st.info(plain(first.long_note("This table")), icon=":material/info:")
        difference = st.container()
    show_figures(lanes)

    # A step of the stage reruns only this, which fills the containers above.
    @st.fragment
    def following() -> None:
        turn = follow_lanes(page, lanes)
        if pair is not None:
            with difference:
                show_difference(*pair, turn)
        write()

    following()


def show_difference(lane: StageRun, other_lane: StageRun, turn: int) -> None:
    """Say where two runs diverge, and show what only one of them keeps."""
    shared = overlap(lane, other_lane)
    table = differences(lane, other_lane)  # of all turns, computed once
    table = table[table["turn"] == turn]
    with st.container(key="difference-words"):
        st.markdown(plain(_difference_words(lane, other_lane, turn, shared, table)))
    show_grid(_columns(table, lane, other_lane), "Entries that only one of the two keeps")
    st.caption(
        plain(f"Rank among all, and score: in turn {turn}, or in the turn of the eviction.")
    )


def _difference_words(
    lane: StageRun, other_lane: StageRun, turn: int, shared: pd.DataFrame, table: pd.DataFrame
) -> Markdown:
    if lane is other_lane:
        return Markdown(
            "Choose two different runs. If there is only one, choose another policy in the sidebar."
        )
    parted = first_difference(shared)
    labels = (lane.policy.title, other_lane.policy.title)
    if parted is None:
        return Markdown("**{}** and **{}** keep the same entries in every turn.").format(
            *labels
        )
    now = shared.iloc[turn]
    shared_entries = int(now["shared"])
    entries = int(now["only_one"] + now["only_other"]) + shared_entries
    parts = [
        Markdown(
            "**{}** and **{}** first diverge in **turn {}**. After turn {} both keep {} of the {} "
            "entries that either keeps ({})."
        ).format(*labels, parted, turn, shared_entries, entries, percent(now["jaccard"]))
    ]
    for label, keeper in zip(labels, ("one", "other"), strict=True):
        topics = table.loc[table["keeper"] == keeper, "topic"].value_counts()
        if len(topics):
            counts = [f"{number} {topic}" for topic, number in topics.items()]
            parts.append(Markdown("Only **{}** keeps {}.").format(label, listed(counts)))
    return Markdown(" ").join(parts)


def _columns(
    table: pd.DataFrame, first_lane: StageRun, second_lane: StageRun
) -> dict[str, list[str]]:
    lanes = {"one": first_lane, "other": second_lane}
    words = first_lane.dialog.words
    columns = {"only in": [lanes[keeper].policy.title for keeper in table["keeper"]]}
    if words:
        columns["word"] = [words[token] for token in table["token"]]
    columns["token"] = _words(table["token"], "d")
    columns["topic"] = table["topic"].fillna("–").tolist()
    columns["from turn"] = _words(table["born"], "d")
    for quantity, form in (("rank", ".0f"), ("score", ".3f")):
        for name, lane in lanes.items():
            columns[f"{quantity} in {lane.policy.title}"] = _words(
                table[f"{quantity}_{name}"], form
            )
    loser = {"one": second_lane.policy.title, "other": first_lane.policy.title}
    columns["evicted by"] = [loser[keeper] for keeper in table["keeper"]]
    columns["in turn"] = _words(table["evicted"], ".0f")
    return columns


def _bounded(words: str, never: bool) -> str:
    """Return a number of turns; more than that, if a run `never` adapted."""
    return f"> {words}" if never and words != "–" else words


def _words(column: pd.Series, form: str) -> list[str]:
    return ["–" if pd.isna(value) else f"{value:{form}}" for value in column]


# ------------------------------------------------------------------------------- whole runs


FIGURES = {
    "Turns to adapt": f"Turns from the first change of topic until {percent(ADAPTED)} of the cache "
    "is about the new topic; > 3: not within 3 turns.",
}
"""Words of the figures of whole runs."""


def show_figures(lanes: Sequence[StageRun]) -> None:
    """Show a row of figures for each run over the whole dialog."""
    st.header("The whole run in figures", anchor=False)
    first = lanes[0]
    turns = {lane.policy.title: lane.turns for lane in lanes}
    table = figures_table(turns, first.dialogs, first.optional)
    columns = {"run": table["policy"].tolist()}
    metrics = (*default_metrics(), *first.optional)
    for metric in map(metric_named, metrics):
        heading = f"{metric.title.lower()} {'↓' if metric.lower_is_better else '↑'}"
        columns[heading] = [*map(metric.with_unit, table[metric.name])]
    adaptation = _words(table["adaptation"], ".0f")
    columns["turns to adapt ↓"] = [*map(_bounded, adaptation, table["never"])]
    with st.container(key="whole-run"):
        show_grid(columns, "Figures of the whole run")
    st.caption(
        plain(
            "↑ higher is better, ↓ lower is better. Retention is of the topic spoken of. Late: "
            f"the mean of the last {LATE_TURNS} turns."
        )
    )
    show_glossary(metrics, (lane.policy for lane in lanes), FIGURES)
