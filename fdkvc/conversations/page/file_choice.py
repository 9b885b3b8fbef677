"""The choice of a file of dialogs, a bundled one or one's own, and of a dialog in it."""

import gc
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.conversations.file_text import PACKED_ENDINGS
from fdkvc.conversations.formats import FORMATS, endings
from fdkvc.conversations.page import files
from fdkvc.conversations.tools import with_tools
from fdkvc.core.limits import MAX_DIALOGS, MAX_SHOWN_CHARACTERS, MAX_UPLOAD_MEGABYTES
from fdkvc.core.parameters import Field
from fdkvc.core.words import count
from fdkvc.explain.notes import not_read_notes
from fdkvc.ui import fields
from fdkvc.ui.fields import held, hold, problems
from fdkvc.ui.frame import Page
from fdkvc.ui.markdown import plain
from fdkvc.ui.run_panel import session_jobs
from fdkvc.ui.sidebar import TURN

OWN = "own"

DIGITS = 16
"""Hexadecimal digits of a file's SHA-256 in a link."""

FILE = Field(
    "File",
    "Real dialogs.",
    name="file",
    default="rental",
    choices={OWN: "A file of my own …", **files.SHIPPED},
)

DIGEST = Field("SHA-256", "Of your own file.", name="sha", default="")

TOOLS = Field(
    "Tools",
    "Whether the dialog begins with a turn that lists the available tools, as a model "
    "reads them. A policy may evict it; the wrapper Whitelist keeps it.",
    name="tools",
    default="silent",
    choices={"silent": "not part of the text", "listed": "the first turn"},
)

DIALOG = Field("Dialog", name="dialog", default=0, low=0, high=MAX_DIALOGS - 1)


def name_example(page: str, verb: str) -> None:
    """Say of a bundled file that it is an example, and what “My file” does."""
    if example := files.SHIPPED.get(held(page, FILE)):
        st.caption(plain(f"{example}. “My file” {verb} yours."))


def choose_transcript(page: str, file: files.DialogFile) -> int:
    """Choose a dialog of a file; return its index."""
    names = dict(enumerate(transcript.name for transcript in file.transcripts))
    return int(
        fields.choice(page, replace(DIALOG, choices=names), len(names) > 1, width="content")
    )


def chosen_file(
    shown: Page, placed: Sequence[Field], first: DeltaGenerator | None = None
) -> files.DialogFile | None:
    """Return the chosen file, None if there is none or it is not the one of the link.

    For a file of the user's own, the uploader is shown, in `first` until there is a file. `placed`
    are the page's fields whose values belong to one file.
    """
    page = shown.name
    linked_key = f"{shown.name}/linked-own"
    if shown.link:
        st.session_state[linked_key] = shown.link.get(FILE.name) == OWN
    if held(page, FILE) != OWN:
        hold(page, DIGEST, "")
        return files.shipped_file(held(page, FILE))
    last = files.UPLOADS.get(st.session_state.get(f"{page}/uploaded"))
    container: AbstractContextManager[object] = first or nullcontext()
    with container if last is None else nullcontext():
        file, problem = _read_upload(page, placed, last)
    with container:
        problems(problem)
    # From now on the uploader does not stand in `first`, where this run has drawn it.
    if first is not None and last is None and file is not None:
        st.rerun()
    linked = held(page, DIGEST)
    other_file = file is not None and not file.digest.startswith(linked)
    if other_file or (file is None and st.session_state.get(linked_key)):
        with shown.below_title:
            st.info(
                "This link was made with a file, which a link cannot contain. Choose the same file "
                "again to see the same view.",
                icon=":material/upload_file:",
            )
        return None
    if file is not None:
        hold(page, DIGEST, file.digest[:DIGITS])
    return file


def _read_upload(
    page: str, placed: Sequence[Field], last: files.DialogFile | None
) -> tuple[files.DialogFile | None, str]:
    """Show the uploader and the text box; return the file, and the problem with a new one.

    If a new file cannot be read, the last good one stays in use.
    """
    upload = st.file_uploader(
        "Dialogs",
        type=[*endings(), *PACKED_ENDINGS],
        key=f"{page}/upload",
        max_upload_size=MAX_UPLOAD_MEGABYTES,
        help=plain(f"{formats_read()}. The file stays in this app's memory."),
    )
    pasted = st.text_area(
        "Or paste a dialog",
        key=f"{page}/pasted",
        height=110,
        max_chars=MAX_SHOWN_CHARACTERS,
        placeholder="User: a table for two, please\nSystem: at six?",
        help="A speaker and a colon before each turn, or JSON in any supported format.",
    )
    sources = {} if upload is None else {upload.file_id: (upload.name, upload.getvalue)}
    if pasted.strip():
        ending = "json" if pasted.lstrip()[:1] in ("[", "{") else "txt"  # selects the format
        sources[pasted] = (f"pasted.{ending}", pasted.encode)
    read, problem = st.session_state.get(f"{page}/uploaded/last", ((), ""))
    # Streamlit gives the same upload on every run: read it once.
    new = [source for source in sources if source not in read]
    if new or last is None:  # what runs over the file before would slow the reading down
        session_jobs().release()
    if (new and last) or not (sources or last):  # not while a person waits for the first file
        gc.collect()  # closed browser sessions are reference cycles that hold their files
    # Also one that was read before, if its file had to make room meanwhile.
    if new or (sources and last is None and not problem):
        name, content = sources[new[-1]] if new else next(iter(sources.values()))
        problem = ""
        try:
            with st.spinner("Reading the dialogs …", show_time=True):
                last = files.read_dialog_file(content(), name)
            keep_file(page, placed, last)
        except ValueError as error:
            problem = f"{name} cannot be read: {error}."
    problem = problem if sources else ""
    st.session_state[f"{page}/uploaded/last"] = (tuple(sources), problem)
    still = f" Still using {last.name}." if last is not None else ""
    return last, problem and problem + still


def keep_file(page: str, placed: Sequence[Field], file: files.DialogFile) -> None:
    """Keep a file for the page; start with its first dialog unless it is the file of the link."""
    st.session_state[f"{page}/uploaded"] = key = (file.name, file.digest)
    files.UPLOADS.put(key, file)
    linked = held(page, DIGEST)
    if not (linked and file.digest.startswith(linked)):
        fields.reset(page, placed)
        st.session_state.pop(fields.key_of(page, TURN), None)
    hold(page, DIGEST, file.digest[:DIGITS])


def warn_skipped(file: files.DialogFile) -> None:
    """Warn about dialogs that are left out and calls that cannot be read.

    That a log of a coding agent has more than words is as it should be, and no warning.
    """
    for sentence in not_read_notes(file.transcripts):
        (st.caption if file.is_log else st.warning)(plain(sentence))
    if file.skipped:
        are_several = len(file.skipped) > 1
        left_out = (
            f"{count(len(file.skipped), 'dialog')} {'are' if are_several else 'is'} left out"
        )
        st.warning(
            plain(f"{left_out}: {file.skipped[0]}{', and so on' if are_several else ''}.")
        )


def choose_tools(page: str, file: files.DialogFile) -> files.DialogFile:
    """Choose whether dialogs begin with their tools, if there are any."""
    has_tools = any(transcript.tools for transcript in file.transcripts)
    if fields.choice(page, TOOLS, has_tools) == TOOLS.default:
        return file
    try:
        dialogs, too_long = with_tools(file.transcripts)
    except ValueError as error:
        problems(f"{error}. The dialogs are shown without their tools.")
        return file
    return replace(file, transcripts=dialogs, skipped=(*file.skipped, *too_long))


def formats_read() -> str:
    """Return the formats that can be read, those with the same endings together."""
    labels: dict[tuple[str, ...], list[str]] = {}
    for format in FORMATS.values():
        labels.setdefault(format.endings, []).append(format.label)
    kinds = []
    for written_endings, names in labels.items():
        kinds.append(f"{', '.join(dict.fromkeys(names))} (.{', .'.join(written_endings)})")
    packed = f"Text may be compressed (.{', .'.join(PACKED_ENDINGS)})"
    return f"{'; '.join(kinds)}. {packed}"
