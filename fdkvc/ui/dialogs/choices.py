"""The sidebar of the dialogs page: which file, which dialog of it, its topics, heads and budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from fdkvc.measured.replay import HEADS
from fdkvc.parameters import Parameter
from fdkvc.said.recordings import Recording
from fdkvc.said.transcripts import MOST_DIALOGS
from fdkvc.ui.dialogs.files import (
    BROUGHT,
    KINDS,
    MOST_HEADS,
    MOST_MEGABYTES,
    SHIPPED,
    DialogFile,
    HeadChoice,
    check_together,
    read_dialog_file,
    shipped_file,
    shown_recording,
)
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.fields import Field
from fdkvc.ui.kit.frame import problems
from fdkvc.ui.kit.lanes import Lane, LaneField, pair_fields
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.memory import give_back
from fdkvc.ui.kit.sidebar import BUDGET_HERE, asked_field, order_field, view_fields
from fdkvc.ui.kit.variants import policies_field

OWN = "own"
DIGITS = 16  # of a file's SHA-256 in a link
POLICIES_AT_FIRST = ("fifo", "h2o", "fd-kvc")
TOPICS = {
    "annotated": "as annotated",
    "segmented": "found by TextTiling",
    "marked": "marked by me",
}

SECTIONS = {
    "cache": "One cache",
    "lanes": "Caches side by side",
    "evidence": "Evidence",
    "heads": "Heads",
    "all": "All dialogs of the file",
}


@dataclass(frozen=True)
class Chosen:
    """What is looked at.

    Attributes
    ----------
    file : DialogFile
    head : HeadChoice
    budget : int
    """

    file: DialogFile
    head: HeadChoice
    budget: int

    @property
    def recording(self) -> Recording:
        """The dialog, with topics that are letters."""
        return self.head.recording


# ------------------------------------------------------------------------------- fields


def _file_field(page: str) -> Field:
    known = Parameter("File", "What people said.", choices=(*SHIPPED, OWN))
    return Field(page, "file", "dialogues", known)


def _digest_field(page: str) -> Field:
    return Field(page, "sha", "", Parameter("SHA-256", "Of a file that is not an example."))


def _dialog_field(page: str) -> Field:
    return Field(page, "dialog", 0, Parameter("Dialog", "", low=0, high=MOST_DIALOGS - 1))


def _topics_field(page: str) -> Field:
    known = Parameter(
        "Topics", "They colour the views; no policy looks at them.", choices=tuple(TOPICS)
    )
    return Field(page, "topics", "annotated", known)


def _schedule_field(page: str) -> Field:
    return Field(page, "schedule", "", Parameter("Topics", "One letter a turn, A to Z."))


def _head_field(page: str) -> Field:
    return Field(page, "head", 0, Parameter("Head", "", low=0, high=MOST_HEADS - 1))


def _heads_field(page: str) -> Field:
    return Field(page, "heads", "each", HEADS)


def _budget_field(page: str) -> Field:
    return Field(page, "budget", 48, BUDGET_HERE)


def look_field(page: str) -> Field:
    """Return the field that holds the policy that is looked at closely."""
    known = Parameter("Look at", "Whose cache is shown below.")
    return LaneField(page, "look", "", known, chosen=False)


def section_field(page: str) -> Field:
    """Return the field that holds which section is open below the transcript."""
    known = Parameter("Section", "", choices=tuple(SECTIONS))
    return Field(page, "section", "cache", known, chosen=False)


def sections_key(page: str) -> str:
    """Return where the session holds the words of the open section."""
    return f"{page}/sections"


def all_fields(page: str) -> list[Field]:
    """Return every field of the page's view."""
    return [
        *(_file_field(page), _digest_field(page), _dialog_field(page), _topics_field(page)),
        *(_schedule_field(page), _head_field(page), _heads_field(page), _budget_field(page)),
        *(policies_field(page, POLICIES_AT_FIRST), look_field(page)),
        *view_fields(page),
        *(order_field(page), section_field(page)),
        *pair_fields(page),
        asked_field(page),
    ]


def adopt_link(page: str, link: Mapping[str, str]) -> list[str]:
    """Let the page show what a link asks for; say what of it is not right, in sentences."""
    wrong = fields.adopt_link(all_fields(page), link)
    if section_field(page).name in link:
        st.session_state[sections_key(page)] = SECTIONS[section_field(page).value]
    return wrong


def write_link(page: str) -> None:
    """Put the whole view into the page's address."""
    fields.write_link(all_fields(page))


# ------------------------------------------------------------------------------- controls


def choose_dialog(page: str) -> Chosen | None:
    """Show the controls; return what was chosen, or None while there is nothing to show."""
    file = _choose_file(page)
    if file is None:
        return None
    dialog = _choose(
        _dialog_field(page), [said.name for said in file.transcripts], "Dialog of the file"
    )
    way, schedule = _choose_topics(page, file, dialog)
    try:
        recording, names = shown_recording(file, dialog, way, schedule)
    except ValueError as error:
        problems([f"{error}."])
        return None
    head, mode = _choose_head(page, recording)
    budget = fields.number(_budget_field(page))
    try:
        if mode == "together":
            check_together(recording, budget)
    except ValueError as error:
        problems([f"{error}."])
        mode = "each"
    topics = tuple(turn.topic for turn in recording.transcript.turns)
    name = recording.transcript.name
    chosen = HeadChoice(file.digest, name, topics, head, mode == "together", recording, names)
    return Chosen(file, chosen, budget)


def _choose_file(page: str) -> DialogFile | None:
    key = fields.choice(_file_field(page), {**SHIPPED, OWN: "A file of my own …"})
    if key != OWN:
        _digest_field(page).set("")
        return shipped_file(key)
    file = _brought(page)
    wanted = _digest_field(page)
    if wanted.value and (file is None or not file.digest.startswith(wanted.value)):
        st.info(
            "This link shows a file that it cannot carry. Bring that file to see it as it was "
            "shown.",
            icon=":material/upload_file:",
        )
        return None
    if file is not None:
        wanted.set(file.digest[:DIGITS])
    return file


def _brought(page: str) -> DialogFile | None:
    """Let a person bring a file; keep the last good one while another is not right."""
    kept, last = f"{page}/brought", f"{page}/brought/last"
    upload = st.file_uploader(
        "A file of dialogs, or a trace",
        type=list(KINDS),
        key=f"{page}/upload",
        max_upload_size=MOST_MEGABYTES,
        help="SGD, MultiWOZ 2.2 or chat messages as JSON or JSON Lines, plain text with a speaker "
        "before each turn, or a trace (.npz) of `python -m fdkvc capture`. It stays on this "
        "server while you look at it.",
    )
    before = BROUGHT.find(st.session_state.get(kept))
    if upload is not None:
        known, problem = st.session_state.get(last, (None, ""))
        if upload.file_id != known or (before is None and not problem):
            problem = ""
            try:
                before = read_dialog_file(upload.getvalue(), upload.name)
                st.session_state[kept] = key = (before.name, before.digest)
                BROUGHT.keep(key, before)
                _begin_anew(page, before)
            except ValueError as error:
                problem = f"{upload.name} cannot be read: {error}."
            st.session_state[last] = (upload.file_id, problem)
            give_back()
        staying = f" Staying with {before.name}." if before is not None else ""
        problems([problem + staying] if problem else [])
    return before


def _begin_anew(page: str, file: DialogFile) -> None:
    """Begin with the first dialog of a file, unless a link to this file has said where."""
    wanted = _digest_field(page)
    if not (wanted.value and file.digest.startswith(wanted.value)):
        placed = (_dialog_field(page), _topics_field(page), _schedule_field(page))
        for field in (*placed, _head_field(page), *view_fields(page)):
            field.set(field.default)
    wanted.set(file.digest[:DIGITS])


def ask_for_file() -> None:
    """Say what can be brought, while there is nothing to show."""
    st.info(
        "Bring a file of dialogs in the sidebar: the Schema-Guided Dialogue dataset, MultiWOZ 2.2, "
        "chat messages as JSON or JSON Lines, plain text with a speaker and a colon before each "
        "turn, or a trace of a model's attention. The README says where people get them.",
        icon=":material/upload_file:",
    )


def _choose_topics(page: str, file: DialogFile, dialog: int) -> tuple[str, str]:
    """Let a person choose where the topics come from; return it and the marked schedule."""
    said = file.transcripts[dialog]
    field = _topics_field(page)
    known = [way for way in TOPICS if way != "annotated" or said.topics]
    if field.value not in known:
        field.set(known[0])
    way = fields.choice(field, {way: TOPICS[way] for way in known})
    if way != "marked":
        return way, ""
    typed = _schedule_field(page)
    unmarked = "A" * len(said.turns)
    if not typed.value.strip("A"):
        typed.set(unmarked)
    schedule = fields.text(typed)
    try:
        said.with_schedule(schedule)
    except ValueError as error:
        problems([f"{error}. Staying with one topic."])
        schedule = unmarked
    return way, schedule


def _choose_head(page: str, recording: Recording) -> tuple[int, str]:
    """Let a person choose a head of several; return its place and who decides."""
    if len(recording.heads) == 1:
        _head_field(page).set(0)
        return 0, "each"
    mode = fields.choice(
        _heads_field(page),
        {"each": "each decides for itself", "together": "all decide together"},
    )
    head = _choose(_head_field(page), [f"head {head}" for head in recording.heads], "Head")
    return head, mode


def _choose(field: Field, labels: Sequence[str], name: str) -> int:
    """Let a person choose by number, and return it; the labels are shown as they are."""
    fields.offer(field, dict(enumerate(labels)))
    place: int = st.selectbox(
        plain(name),
        range(len(labels)),
        key=field.key,
        format_func=labels.__getitem__,
        persist_state="session",
    )
    return place


def choose_look(page: str, lanes: Sequence[Lane]) -> Lane:
    """Let a person choose whose cache is looked at closely: the last, as long as nobody has."""
    labels = {lane.name: lane.label for lane in lanes}
    field = look_field(page)
    if field.value not in labels:
        field.set(lanes[-1].name)
    fields.offer(field, labels)
    name = st.selectbox(
        plain(field.parameter.label),
        list(labels),
        key=field.key,
        format_func=lambda name: f"Look at {labels[name]}",
        label_visibility="collapsed",
        width=260,
        persist_state="session",
    )
    return next(lane for lane in lanes if lane.name == name)
