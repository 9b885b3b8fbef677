"""The views of the compare page: several runs in step."""

from collections.abc import Callable, Mapping, Sequence

import pandas as pd
import streamlit as st

from fdkvc.charts.theme import with_data
from fdkvc.charts.timeline import cursor_data, lines_spec, overlap_spec, placed
from fdkvc.explain.overlap import all_entries, first_difference
from fdkvc.files.export import csv_text
from fdkvc.parameters import Field
from fdkvc.ui.compare.figures import show_figures
from fdkvc.ui.compare.what_if import FORKED
from fdkvc.ui.kit import downloads, fields
from fdkvc.ui.kit.fields import held, hold
from fdkvc.ui.kit.frame import page_theme, panel, show_grid, side_by_side
from fdkvc.ui.kit.lanes import (
    FORK,
    PAIR,
    POLICIES,
    Lane,
    changes,
    choose_pair,
    differences,
    line_data,
    overlap,
)
from fdkvc.ui.kit.markdown import Markdown, plain
from fdkvc.ui.kit.sidebar import DIALOG, LOOK, MORE_METRICS
from fdkvc.ui.stage.follow import beside, follow_lanes, save_scene, show_lanes, shown, stage_view
from fdkvc.words import count, listed, percent

FILE = "comparison.csv"


FIELDS: tuple[Field, ...] = (*DIALOG, POLICIES, *LOOK, MORE_METRICS, *PAIR, *FORKED)
"""Every field of the page's view."""


def adopt_link(page: str, link: Mapping[str, str]) -> list[str]:
    """Apply a link to the page; return a sentence for each part that is wrong."""
    wrong = fields.adopt_link(page, FIELDS, link)
    names = {*held(page, POLICIES), FORK, ""}
    for field in PAIR:
        if link and held(page, field) not in names:
            wrong.append(
                f"This link has an error: {field.name} is {held(page, field)!r}, which is "
                "not among its policies."
            )
            hold(page, field, field.default)
    return wrong


def show(page: str, lanes: tuple[Lane, ...], write: Callable[[], None]) -> Callable[[], None]:
    """Show the runs as lanes of one stage, with charts and tables below.

    `write` writes the address once the server knows the stage's turn and entry. Call the returned
    fragment, which follows the stage, after the page is drawn.
    """
    show_lanes(page, lanes)
    first = lanes[0].run
    with side_by_side("differences"):
        with panel("lines"):
            st.header("Metrics over the turns", anchor=False)
            lines = st.container()
        with panel("difference"):
            st.header("Where they differ", anchor=False)
            pair = None if first.long else choose_pair(page, lanes)
            if pair is None:
                st.info(plain(first.long_note("This table")), icon=":material/info:")
            difference = st.container()
    show_figures(lanes)

    @st.fragment
    def following() -> None:
        turn = follow_lanes(page, lanes)
        with lines:
            show_lines(page, lanes, turn)
        if pair is not None:
            with difference:
                show_difference(page, *pair, turn)
        write()

    return following


def show_lines(page: str, lanes: tuple[Lane, ...], turn: int) -> None:
    """Show the metrics over the turns, a line for each run."""
    by_lane = [lane.run.metrics for lane in lanes]
    spec = lines_spec(
        lanes[0].run.dialogs.turns,
        tuple(lane.label for lane in lanes),
        lanes[-1].name == FORK,
        # An axis begins at the lowest value of any lane.
        tuple(min(same, key=lambda line: line.low) for same in zip(*by_lane, strict=True)),
        page_theme(),
    )
    chart = with_data(spec, {**line_data(lanes), "cursor": cursor_data(turn)})
    alt = "Metrics over the turns, a line for each run; the table below has their figures"
    downloads.show_chart(page, "metrics", chart, alt=alt)


def show_difference(page: str, first: Lane, second: Lane, turn: int) -> None:
    """Show where two runs diverge, and what only one of them keeps."""
    shared = overlap(first.run, second.run)
    parted = first_difference(shared)
    table = differences(first.run, second.run)
    table = table[table["turn"] == turn]
    with st.container(key="difference-words"):
        st.markdown(plain(_difference_words(first, second, turn, shared, table)))
    chart = with_data(
        overlap_spec(first.run.dialogs.turns, page_theme()),
        {
            "overlap": placed(shared),
            "changes": changes(first.run),
            "parting": placed(pd.DataFrame({"turn": [] if parted is None else [parted]})),
            "cursor": cursor_data(turn),
        },
    )
    alt = "Share of entries that both caches hold, over the turns"
    downloads.show_chart(page, "overlap", chart, alt=alt)
    show_grid(_columns(table, first, second), "Entries that only one of the two keeps")
    st.caption(
        plain(
            f"Rank and score are of turn {turn}; for the run that evicted the entry, of the turn "
            "of its eviction."
        )
    )


def _difference_words(
    first: Lane, second: Lane, turn: int, shared: pd.DataFrame, table: pd.DataFrame
) -> Markdown:
    if first is second:
        return Markdown(
            "Choose two different runs. If there is only one, choose another policy in the sidebar."
        )
    parted, labels = first_difference(shared), (first.label, second.label)
    if parted is None:
        return Markdown("**{}** and **{}** keep the same entries in every turn.").format(*labels)
    now = shared.iloc[turn]
    entries, overlapping = count(int(now["shared"]), "entry", "entries"), percent(now["jaccard"])
    parts = [
        Markdown(
            "**{}** and **{}** first diverge in **turn {}**. After turn {} they share {}, an "
            "overlap of {}."
        ).format(*labels, parted, turn, entries, overlapping)
    ]
    for label, keeper in zip(labels, ("one", "other"), strict=True):
        topics = table.loc[table["keeper"] == keeper, "topic"].value_counts()
        if len(topics):
            counts = [f"{number} {topic}" for topic, number in topics.items()]
            parts.append(Markdown("Only **{}** keeps {}.").format(label, listed(counts)))
    return Markdown(" ").join(parts)


def _columns(table: pd.DataFrame, first: Lane, second: Lane) -> dict[str, list[str]]:
    lanes, words = {"one": first, "other": second}, first.run.dialog.words
    return {
        "only in": [lanes[keeper].label for keeper in table["keeper"]],
        **({"word": [words[token] for token in table["token"]]} if words else {}),
        "token": _words(table["token"], "d"),
        "topic": table["topic"].fillna("–").tolist(),
        "from turn": _words(table["born"], "d"),
        **{
            f"{what} in {lane.label}": _words(table[f"{what}_{name}"], form)
            for what, form in (("rank", ".0f"), ("score", ".3f"))
            for name, lane in lanes.items()
        },
        "evicted in turn": _words(table["evicted"], ".0f"),
    }


def _words(column: pd.Series, form: str) -> list[str]:
    return ["–" if pd.isna(value) else f"{value:{form}}" for value in column]


def show_downloads(
    page: str, lanes: tuple[Lane, ...], *, pictures: bool = True, uploaded: bool = False
) -> None:
    """Offer the comparison as one table, and its charts if there are `pictures`."""
    with st.popover("Download", icon=":material/download:"):
        downloads.show_address(uploaded)
        rows = [lane.run for lane in beside(lanes)]
        title = f"{listed([lane.label for lane in lanes])} on {rows[0].dialog.title}"
        view = stage_view(page)  # the session is out of reach at the click
        save_scene(page, title, lambda: shown(view, lanes), rows)
        if lanes[0].run.long:
            st.caption(plain(lanes[0].run.long_note(FILE)))
        else:
            downloads.download_files(page, lambda: {FILE: csv_text(_entries(lanes))}, [FILE])
        if pictures:
            names = ["metrics"] if lanes[0].run.long else ["metrics", "overlap"]
            downloads.download_pictures(page, downloads.shown_charts(page), names)


def _entries(lanes: Sequence[Lane]) -> pd.DataFrame:
    return all_entries({lane.words: lane.run.entries for lane in lanes})
