"""Below the chat: why, restored words, and downloads."""

from functools import partial

import streamlit as st

from fdkvc.models.page.choices import SECTION
from fdkvc.models.page.conversation import Answered
from fdkvc.models.page.loading import MODEL
from fdkvc.models.page.restore import show_restored
from fdkvc.models.page.scene import answers_table
from fdkvc.models.page.why import show_why
from fdkvc.runs.export import csv_text
from fdkvc.ui.downloads import offer_zip
from fdkvc.ui.frame import open_section_of
from fdkvc.ui.glossary import show_entries
from fdkvc.ui.markdown import plain

HELP = (
    (
        "Right and wrong",
        "In a dialog from a file, a call is right when its method and every argument equal those "
        "of the dialog's own call. Your own chat has no such call: there a call is the same as the "
        "full cache's (=) or different (≠). Dashed words differ from the full cache's; the others "
        "are the same, which may be wrong, too.",
    ),
    (
        "Entries per head",
        "Each KV head of each layer has its own cache. After every message and every tool call the "
        "policy evicts down to the budget, and all later tokens are computed from what is left.",
    ),
)


def show_model_note(key: str, name: str, remark: str = "") -> None:
    """Show what the model is, and what it cannot do."""
    note = (
        f"What {name} writes may be wrong even with the full cache. Policies evict after every "
        "message and answer."
    )
    if key == MODEL.default:
        note = (
            "The bundled model is small and trained only on English service dialogs: it makes up "
            "what a service replies, and does not show what a large model would lose."
        )
    st.caption(plain(f"{note} {remark}".strip()))


def open_section(page: str, answered: Answered) -> None:
    """Show the open section and its downloads."""
    shows = {"why": show_why, "back": show_restored}
    sections = {name: partial(show, page, answered) for name, show in shows.items()}
    tables = {
        "answers.csv": answers_table(answered),
        **open_section_of(page, SECTION, sections),
    }
    files = {name: csv_text(table) for name, table in tables.items()}
    offer_zip(f"{page}/zip", "answers.zip", lambda: files, "Download")
    show_entries(HELP)
