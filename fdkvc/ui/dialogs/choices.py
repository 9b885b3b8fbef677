"""The sidebar of the Dialogs page: file, dialog, topics, heads and budget."""

import gc
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import NamedTuple, NoReturn

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.corpora.file_text import PACKED_ENDINGS
from fdkvc.corpora.formats import FORMATS, endings
from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.tools import with_tools
from fdkvc.experiments.model_shape import SHAPE
from fdkvc.experiments.plan import OFFERED, TARGET, tenth_of
from fdkvc.experiments.replay import HEADS as WAYS
from fdkvc.experiments.replay import deciders, default_heads
from fdkvc.explain.notes import not_read_notes
from fdkvc.limits import (
    MAX_DIALOG_CHARACTERS,
    MAX_DIALOGS,
    MAX_SHOWN_BUDGET,
    MAX_SHOWN_HEADS,
    MAX_UPLOAD_MEGABYTES,
)
from fdkvc.parameters import Field
from fdkvc.policies import JUDGED, read_policy
from fdkvc.policies import POLICIES as EVERY
from fdkvc.ui.dialogs import files
from fdkvc.ui.dialogs.vectors import KV_HEAD, LAYERS, VECTORS, Vectors, choose_vectors
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.fields import held, hold, problems
from fdkvc.ui.kit.lanes import PAIR, Lane, read_lane
from fdkvc.ui.kit.lanes import POLICIES as LANES
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.sidebar import BUDGET_HERE, HUES, LOOK, MORE_METRICS, ORDER, TURN
from fdkvc.ui.stage.follow import open_as_linked
from fdkvc.words import count

OWN = "own"
DIGITS = 16  # hexadecimal digits of a file's SHA-256 in a link


class Chosen(NamedTuple):
    """The chosen dialog, vectors (None: the file's, or letters), head and budget."""

    file: files.DialogFile
    vectors: Vectors | None
    head: files.HeadChoice
    budget: int


# ------------------------------------------------------------------------------- fields

FILE = Field(
    "File",
    "Real dialogs, or a trace of a model.",
    name="file",
    default="rental",
    choices={OWN: "A file of my own …", **files.SHIPPED},
)
DIGEST = Field("SHA-256", "Of your own file.", name="sha", default="")
CALLS = Field(
    "Tool calls",
    "Whether a call's name and arguments precede the words of its turn in the text, as a model "
    "reads them.",
    name="calls",
    default="silent",
    choices={"silent": "not part of the text", "said": "part of the text"},
)
TOOLS = Field(
    "Tools",
    "Whether the dialog begins with a turn that lists the available tools, as a model "
    "reads them. A policy may evict it; the wrapper Whitelist keeps it.",
    name="tools",
    default="silent",
    choices={"silent": "not part of the text", "listed": "the first turn"},
)
DIALOG = Field("Dialog", name="dialog", default=0, low=0, high=MAX_DIALOGS - 1)
TOPICS = Field(
    "Topics",
    "They colour the views; no policy uses them.",
    name="topics",
    default="annotated",
    choices={"annotated": "as annotated", "marked": "set by me"},
)
SCHEDULE = Field("Topics", "One letter per turn, A to Z.", name="schedule", default="")
HEADS = replace(WAYS, default="kv")
"""Default for heads that share keys; others decide each for themselves."""

HEAD = Field("Head", name="head", default=0, low=0, high=MAX_SHOWN_HEADS - 1)
BUDGET = replace(BUDGET_HERE, default=48, high=MAX_SHOWN_BUDGET, follows=False)
POLICIES = replace(LANES, choices=EVERY, default=("fifo", "h2o", "fd-kvc"))
WHOSE = Field("Show", name="look", default="", read=read_lane)
VIEW = Field(
    "View",
    name="view",
    default="words",
    choices={"words": "Transcript", "lanes": "Side by side", "cache": "One cache"},
)
COMPARED = Field(
    "Compared policies",
    "They also run with the system prompt pinned, where there is one.",
    name="judged",
    default=JUDGED,
    choices={**{name: read_policy(name).title for name in JUDGED}, **EVERY},
)
LARGER = Field("Larger budgets", name="larger", default=0, low=0, high=len(OFFERED))
"""How many budgets larger than half of the text a verdict also tries."""

PLACED = (
    *(DIALOG, TOPICS, SCHEDULE, VECTORS, LAYERS, KV_HEAD, HEAD, HEADS, LARGER),
    *(replace(field, follows=False) for field in LOOK),
)
"""Fields whose values belong to one file."""

FIELDS = (
    *(FILE, DIGEST, CALLS, TOOLS, *PLACED, BUDGET, POLICIES, WHOSE),
    *(VIEW, ORDER, HUES, *PAIR, MORE_METRICS, SHAPE, TARGET, COMPARED),
)
"""Every field of the page."""


def adopt_link(page: str, link: Mapping[str, str]) -> list[str]:
    """Apply a link to the page; return a sentence for each part that is not allowed."""
    wrong = fields.adopt_link(page, FIELDS, link)
    if link:
        st.session_state[f"{page}/fitted"] = ""
    open_as_linked(page, link)
    return wrong


def which_dialog(page: str, dialog: int | None = None, vectors: str = "") -> tuple[object, ...]:
    """Return what identifies a dialog and its tokens: by default, those on the page."""
    shown = held(page, DIALOG) if dialog is None else dialog
    return held(page, FILE), held(page, DIGEST), shown, vectors or held(page, VECTORS)


# ------------------------------------------------------------------------------- controls


def choose_dialog(page: str, below_title: DeltaGenerator) -> Chosen:
    """Show the controls and return the choice; stop the page if there is nothing to show."""
    fields.choice(page, FILE)
    file = chosen_file(page, below_title)
    if file is None:
        _stop(page, below_title)
    try:
        if fields.choice(page, CALLS, bool(file.packed)) == "said":
            file = files.with_calls(file)
        file = choose_tools(page, file)
        warn_skipped(file)
        _fit_budget(page, file)
        dialog = choose_transcript(page, file)
        way, schedule = _choose_topics(page, file, dialog)
        with st.spinner("Reading the dialog …", show_time=True):
            vectors, read = choose_vectors(page, file, dialog, below_title)
            if vectors is not None and read is None:  # `below_title` has the button to read it
                fields.write_link(page, FIELDS)
                st.stop()
            recording, names = files.shown_recording(file, dialog, way, schedule, read)
    except ValueError as error:
        with below_title:
            problems(f"{error}.")
        _stop(page, below_title)
    head, mode = _choose_head(page, recording)
    chosen = files.HeadChoice.of(file, recording, names, head, deciders(mode, [recording]))
    return Chosen(file, vectors, chosen, fields.number(page, BUDGET))


def choose_transcript(page: str, file: files.DialogFile) -> int:
    """Choose a dialog of a file; return its index."""
    names = dict(enumerate(transcript.name for transcript in file.transcripts))
    return int(fields.choice(page, replace(DIALOG, choices=names)))


def chosen_file(page: str, first: DeltaGenerator | None = None) -> files.DialogFile | None:
    """Return the chosen file; for the user's own, show the uploader, in `first` until there is one.

    None if there is none, or if it is not the link's.
    """
    if held(page, FILE) != OWN:
        hold(page, DIGEST, "")
        return files.shipped_file(held(page, FILE))
    last = files.UPLOADS.get(st.session_state.get(f"{page}/uploaded"))
    above: AbstractContextManager[object] = first or nullcontext()
    with above if last is None else nullcontext():
        file, problem = _read_upload(page, last)
    with above:
        problems(problem)
    if first is not None and last is None and file is not None:
        st.rerun()
    linked = held(page, DIGEST)
    if linked and (file is None or not file.digest.startswith(linked)):
        st.info(
            "This link was made with an uploaded file, which a link cannot contain. Upload the "
            "same file to see the same view.",
            icon=":material/upload_file:",
        )
        return None
    if file is not None:
        hold(page, DIGEST, file.digest[:DIGITS])
    return file


def _read_upload(page: str, last: files.DialogFile | None) -> tuple[files.DialogFile | None, str]:
    """Show the uploader and the text box; return the file, and what is wrong with a new one.

    The last good file is kept when a new one is bad.
    """
    upload = st.file_uploader(
        "Dialogs or a trace",
        type=[*endings(), *PACKED_ENDINGS, "npz"],
        key=f"{page}/upload",
        max_upload_size=MAX_UPLOAD_MEGABYTES,
        help=plain(f"{_formats()}. The file stays in this app's memory."),
    )
    pasted = st.text_area(
        "Or paste a dialog",
        key=f"{page}/pasted",
        height=110,
        max_chars=MAX_DIALOG_CHARACTERS,
        placeholder="User: a table for two, please\nSystem: at six?",
        help="A speaker and a colon before each turn, or JSON in any supported format.",
    )
    sources = {} if upload is None else {upload.file_id: (upload.name, upload.getvalue)}
    if pasted.strip():
        ending = "json" if pasted.lstrip()[:1] in ("[", "{") else "txt"  # selects the format
        sources[pasted] = (f"pasted.{ending}", pasted.encode)
    read, problem = st.session_state.get(f"{page}/uploaded/last", ((), ""))
    new = [source for source in sources if source not in read]
    if new or (sources and last is None and not problem):
        name, content = sources[new[-1]] if new else next(iter(sources.values()))
        problem = ""
        try:
            with st.spinner("Reading the dialogs …", show_time=True):
                last = files.read_dialog_file(content(), name)
            keep_file(page, last)
        except ValueError as error:
            problem = f"{name} cannot be read: {error}."
        gc.collect()  # closed sessions are cycles that hold their files
    problem = problem if sources else ""
    st.session_state[f"{page}/uploaded/last"] = (tuple(sources), problem)
    still = f" Still using {last.name}." if last is not None else ""
    return last, problem and problem + still


def keep_file(page: str, file: files.DialogFile) -> None:
    """Keep a file for the page, and start with its first dialog unless a link names one."""
    st.session_state[f"{page}/uploaded"] = key = (file.name, file.digest)
    files.UPLOADS.put(key, file)
    linked = held(page, DIGEST)
    if not (linked and file.digest.startswith(linked)):
        fields.reset(page, PLACED)
        st.session_state.pop(fields.key_of(page, TURN), None)
        st.session_state.pop(f"{page}/fitted", None)
    hold(page, DIGEST, file.digest[:DIGITS])


def _fit_budget(page: str, file: files.DialogFile) -> None:
    """Begin a file with a budget of a tenth of its text, unless a link led to it."""
    fitted, st.session_state[f"{page}/fitted"] = st.session_state.get(f"{page}/fitted"), file.digest
    if fitted not in ("", file.digest):
        hold(page, BUDGET, tenth_of(file.mean_words))


def warn_skipped(file: files.DialogFile) -> None:
    """Warn about dialogs that are left out and calls that cannot be read."""
    for sentence in not_read_notes(file.transcripts):
        st.warning(plain(sentence))
    if file.skipped:
        several = len(file.skipped) > 1
        left_out = f"{count(len(file.skipped), 'dialog')} {'are' if several else 'is'} left out"
        st.warning(plain(f"{left_out}: {file.skipped[0]}{', and so on' if several else ''}."))


def choose_tools(page: str, file: files.DialogFile) -> files.DialogFile:
    """Choose whether dialogs begin with their tools, if there are any."""
    has_tools = any(transcript.tools for transcript in file.transcripts)
    if fields.choice(page, TOOLS, has_tools) == TOOLS.default:
        return file
    try:
        begun, too_long = with_tools(file.transcripts)
    except ValueError as error:
        problems(f"{error}. The dialogs are shown without their tools.")
        return file
    return replace(file, transcripts=begun, skipped=(*file.skipped, *too_long))


def _formats() -> str:
    labels = (f"{format.label} (.{', .'.join(format.endings)})" for format in FORMATS.values())
    kinds = ", ".join(dict.fromkeys(labels))
    kinds += f"; also compressed (.{', .'.join(PACKED_ENDINGS)})"
    return f"{kinds}, or a trace of a model from python -m fdkvc capture (.npz)"


def _stop(page: str, below_title: DeltaGenerator) -> NoReturn:
    """Say which files may be uploaded, or point to the error; then stop the page."""
    fields.write_link(page, FIELDS)
    sources, _ = st.session_state.get(f"{page}/uploaded/last", ((), ""))
    words, icon = f"Upload a file or paste a dialog above: {_formats()}.", "upload_file"
    if sources or held(page, FILE) != OWN:
        words, icon = "There is nothing to show: see the error message.", "error"
    below_title.info(plain(words), icon=f":material/{icon}:")
    st.stop()


def _choose_topics(page: str, file: files.DialogFile, dialog: int) -> tuple[str, str]:
    """Choose where the topics come from; return the choice and a marked schedule."""
    transcript = file.transcripts[dialog]
    labels = dict(TOPICS.labels)
    if not transcript.topics:
        labels["annotated"] = "none"
    way = fields.choice(page, replace(TOPICS, choices=labels))
    if way != "marked":
        return way, ""
    unmarked = "A" * len(transcript.turns)
    if not held(page, SCHEDULE).strip("A"):
        hold(page, SCHEDULE, unmarked)
    schedule = fields.text(page, SCHEDULE, str)
    try:
        transcript.with_schedule(schedule)
    except ValueError as error:
        problems(f"{error}. Using one topic.")
        schedule = unmarked
    return way, schedule


def _choose_head(page: str, recording: Recording) -> tuple[int, str]:
    """Choose one of several heads; return its place and which heads decide together.

    By default, heads decide as in a model's own cache.
    """
    several, default = len(recording.heads) > 1, default_heads(recording)
    ways = {key: words for key, words in HEADS.labels.items() if key != "kv" or default == "kv"}
    field = replace(HEADS, default=default, choices=ways) if several else HEADS
    mode = fields.choice(page, field, several)
    labels = {place: f"head {head}" for place, head in enumerate(recording.heads)}
    return fields.choice(page, replace(HEAD, choices=labels), several), mode


def offer_own_file(page: str) -> None:
    """Show the button that opens the uploader, unless it is open."""
    if held(page, FILE) != OWN and st.button(
        "My file", key="open-own-file", icon=":material/upload_file:"
    ):
        fields.hold_and_rerun(page, [(FILE, OWN)])


def choose_view(page: str) -> str:
    """Choose how the dialog is shown."""
    labels = fields.offer(page, VIEW)
    return fields.segments(fields.key_of(page, VIEW), "View", labels, persist_state="session")


def choose_look(page: str, lanes: Sequence[Lane]) -> Lane:
    """Choose the policy whose cache is shown; by default, the last."""
    labels = {lane.name: f"Show {lane.label}" for lane in lanes}
    whose = replace(WHOSE, default=lanes[-1].name, choices=labels)
    name = fields.choice(page, whose, label_visibility="collapsed", width="content")
    return next(lane for lane in lanes if lane.name == name)
