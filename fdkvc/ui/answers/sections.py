"""Below the answers: why, what brings them back, the damage, and the files of all that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pandas as pd
import streamlit as st

from fdkvc.experiments.answers import MEASURES
from fdkvc.files.export import csv_text
from fdkvc.ui.answers.back import show_back
from fdkvc.ui.answers.choices import BY, SECTION
from fdkvc.ui.answers.conversation import Answered, bundled_model, size_in_words
from fdkvc.ui.answers.damage import show_damage
from fdkvc.ui.answers.measured import TABLES, report, shipped, show_measured
from fdkvc.ui.answers.scene import answers_table
from fdkvc.ui.answers.why import keep_to_answers, show_why
from fdkvc.ui.dialogs.choices import FILE, OWN
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.downloads import (
    download_files,
    download_pictures,
    shown_charts,
    tell_address,
)
from fdkvc.ui.kit.fields import held
from fdkvc.ui.kit.files import report_button
from fdkvc.ui.kit.frame import open_section_of, problems
from fdkvc.ui.kit.markdown import Markdown
from fdkvc.words import sentence

HELP = (
    (
        "Right and wrong",
        "In a dialog of a file, a call is right when its method and every argument are those of "
        "the dialog's own, in the words that were said. In a talk of yours there is no such call: "
        "the full cache's is taken for right. Marked words are not those of the full cache.",
    ),
    (
        "Entries a head",
        "Each head of keys of each layer is a cache of its own. After every passage (what the user "
        "says, a call, what the system says) the policy evicts down to the budget, and all that "
        "comes later is computed from what was left.",
    ),
    (
        "Nats",
        "−log of the probability of what came, a token: 0.7 more halves the probability.",
    ),
    *((measure.label, measure.help) for measure in MEASURES.values()),
)


PICTURES = {
    "damage": "damage.csv",
    "budgets": "answers_paired.csv",
    "policies": "answers_paired.csv",
}
"""Each chart, and the table that stands behind it."""


def tell_model() -> None:
    """Say what the model is, and what it cannot do."""
    try:
        size = size_in_words(bundled_model())
    except ValueError as error:
        problems([sentence(str(error))])
        st.stop()
    st.caption(
        Markdown(
            "The model has {} parameters and was trained on service dialogs in English alone: it "
            "can ask, make calls with what was said and answer in their style, but it knows "
            "nothing of the world, invents names, times and prices, and is no measure of what a "
            "large model loses."
        ).format(size)
    )


def keep_to_sections(page: str, answered: Answered, link: Mapping[str, str]) -> list[str]:
    """Take what sections show to what there is; say where a link asked for else."""
    budgets = replace(BY, choices=shipped().budgets)
    return [
        *keep_to_answers(page, answered, link),
        *fields.keep_to(page, budgets, link, BY.default, " in what was measured"),
    ]


def open_section(page: str, answered: Answered) -> None:
    """Show the section that is open, and offer what it shows as files."""
    sections: dict[str, Callable[[], Mapping[str, pd.DataFrame]]] = {
        "why": lambda: show_why(page, answered),
        "back": lambda: show_back(page, answered),
        "damage": lambda: show_damage(page, answered),
        "measured": lambda: show_measured(page, answered),
    }
    tables = {"answers.csv": answers_table(answered)}
    tables |= open_section_of(page, SECTION, sections)
    with st.container(horizontal=True):
        _downloads(page, tables)
        if tables.keys() >= set(TABLES):
            report_button(page, report, "Tables of all that was measured")
    with st.expander("What these figures say", icon=":material/help:"):
        st.markdown(
            Markdown("\n").join(Markdown("- **{}:** {}").format(name, help) for name, help in HELP)
        )


def _downloads(page: str, tables: Mapping[str, pd.DataFrame]) -> None:
    """Offer the tables of what is shown, and the chart if there is one."""
    charts = shown_charts(page)
    with st.popover("Download", icon=":material/download:"):
        tell_address(held(page, FILE) == OWN)
        download_files(
            page,
            lambda: {name: csv_text(table) for name, table in tables.items()},
            list(tables),
        )
        shown = [name for name, table in PICTURES.items() if table in tables]
        download_pictures(page, charts, {name: name for name in shown})
