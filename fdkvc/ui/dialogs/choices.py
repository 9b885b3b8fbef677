"""The sidebar of the dialogs page: which file, which dialog of it, its topics, heads and budget."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from fdkvc.corpora.formats import FORMATS, endings
from fdkvc.corpora.recordings import Recording
from fdkvc.experiments.replay import HEADS as WAYS
from fdkvc.experiments.replay import deciders, default_heads
from fdkvc.explain.unsaid import unread
from fdkvc.limits import MAX_DIALOG_CHARACTERS, MAX_DIALOGS, MAX_SHOWN_HEADS, MAX_UPLOAD_MEGABYTES
from fdkvc.parameters import Field
from fdkvc.ui.answers.conversation import bundled_model
from fdkvc.ui.dialogs.files import (
    BROUGHT,
    SHIPPED,
    DialogFile,
    HeadChoice,
    check_together,
    read_dialog_file,
    shipped_file,
    shown_recording,
    with_calls,
)
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.fields import held, hold
from fdkvc.ui.kit.frame import problems, section_key
from fdkvc.ui.kit.lanes import PAIR, Lane, read_lane
from fdkvc.ui.kit.lanes import POLICIES as LANES
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.sidebar import ASKED, BUDGET_HERE, LOOK, ORDER, TURN
from fdkvc.ui.stage.follow import open_as_linked
from fdkvc.words import count

OWN = "own"
ALWAYS = ("each", "together")
"""Who may decide whether or not heads share keys."""

DIGITS = 16  # of a file's SHA-256 in a link


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

FILE = Field(
    "File",
    "What people said.",
    name="file",
    default="dialogues",
    choices={**SHIPPED, OWN: "A file of my own …"},
)
DIGEST = Field("SHA-256", "Of a file that is not an example.", name="sha", default="")
CALLS = Field(
    "Tool calls",
    "Whether their text, name and arguments, is read before the words of the turn that makes them. "
    "A model reads it.",
    name="calls",
    default="silent",
    choices={"silent": "not among the words", "said": "among the words"},
)
DIALOG = Field("Dialog of the file", "", name="dialog", default=0, low=0, high=MAX_DIALOGS - 1)
TOPICS = Field(
    "Topics",
    "They colour the views; no policy looks at them.",
    name="topics",
    default="annotated",
    choices={
        "annotated": "as annotated",
        "segmented": "found by TextTiling",
        "marked": "marked by me",
    },
)
SCHEDULE = Field("Topics", "One letter a turn, A to Z.", name="schedule", default="")
HEADS = replace(WAYS, default="kv")
"""Where heads share no keys, that is no choice, and each decides for itself."""

VECTORS = Field(
    "Attention by",
    "Vectors drawn from the letters of each word, or those of the model that comes with the "
    "project as it reads the dialog.",
    name="vectors",
    default="lexical",
    choices={"lexical": "the letters of words", "bundled": "the bundled model"},
)
KV_HEAD = Field(
    "KV head", "Whose cache it is.", name="kv", default=0, low=0, high=MAX_SHOWN_HEADS - 1
)
HEAD = Field("Head", "", name="head", default=0, low=0, high=MAX_SHOWN_HEADS - 1)
BUDGET = replace(BUDGET_HERE, default=48, follows=False)
POLICIES = replace(LANES, default=("fifo", "h2o", "fd-kvc"))
WHOSE = Field(
    "Look at",
    "Whose cache is shown below.",
    name="look",
    default="",
    read=read_lane,
    chosen=False,
)
SECTION = Field(
    "Section",
    "",
    name="section",
    default="evidence",
    choices={
        "evidence": "Evidence",
        "heads": "Heads",
        "all": "All dialogs of the file",
    },
    chosen=False,
)
VIEW = Field(
    "View",
    "",
    name="view",
    default="words",
    choices={"words": "Transcript", "lanes": "Caches side by side", "cache": "One cache"},
    chosen=False,
)
PLACED = (
    DIALOG,
    TOPICS,
    SCHEDULE,
    VECTORS,
    KV_HEAD,
    HEAD,
    HEADS,
    *(replace(each, follows=False) for each in LOOK),
)
"""What has a meaning in one file alone."""

FIELDS = (FILE, DIGEST, CALLS, *PLACED, BUDGET, POLICIES, WHOSE, VIEW, ORDER, SECTION, *PAIR, ASKED)
"""Every field of the page's view."""


def adopt_link(page: str, link: Mapping[str, str]) -> list[str]:
    """Let the page show what a link asks for; say what of it is not right, in sentences."""
    wrong = fields.adopt_link(page, FIELDS, link)
    open_as_linked(page, link)
    if SECTION.name in link:
        st.session_state[section_key(page)] = SECTION.labels[held(page, SECTION)]
    return wrong


def which_dialog(page: str) -> tuple[object, ...]:
    """Return what says which dialog of which file the page holds."""
    return tuple(held(page, field) for field in (FILE, DIGEST, DIALOG))


# ------------------------------------------------------------------------------- controls


def choose_dialog(page: str) -> Chosen | None:
    """Show the controls; return what was chosen, or None while there is nothing to show."""
    file = _choose_file(page)
    if file is None:
        return None
    try:
        file = _choose_calls(page, file)
    except ValueError as error:
        problems([f"{error}."])
        return None
    tell_left(file)
    names_of = [said.name for said in file.transcripts]
    dialog = fields.choice(page, replace(DIALOG, choices=dict(enumerate(names_of))))
    way, schedule = _choose_topics(page, file, dialog)
    try:
        kv_head = None if file.traced else _choose_vectors(page)
        recording, names = shown_recording(file, dialog, way, schedule, kv_head)
    except ValueError as error:
        problems([f"{error}."])
        return None
    head, mode = _choose_head(page, recording)
    deciding = deciders(mode, [recording])
    budget = fields.number(page, BUDGET)
    try:
        if deciding > 1:
            check_together(recording, deciding, budget)
    except ValueError as error:
        problems([f"{error}."])
        deciding = 1
    topics = tuple(turn.topic for turn in recording.transcript.turns)
    name = recording.transcript.name
    chosen = HeadChoice(file.key, name, topics, head, deciding, recording, names)
    return Chosen(file, chosen, budget)


def _choose_file(page: str) -> DialogFile | None:
    key = fields.choice(page, FILE)
    if key != OWN:
        hold(page, DIGEST, "")
        return shipped_file(key)
    return choose_own_file(page)


def choose_own_file(page: str) -> DialogFile | None:
    """Let a person bring a file; return it, or None while there is none, or not the link's."""
    file = _brought(page)
    wanted = held(page, DIGEST)
    if wanted and (file is None or not file.digest.startswith(wanted)):
        st.info(
            "This link was made with a file of someone's own, which no link can carry. Open that "
            "file here to see the same view.",
            icon=":material/upload_file:",
        )
        return None
    if file is not None:
        hold(page, DIGEST, file.digest[:DIGITS])
    return file


def _brought(page: str) -> DialogFile | None:
    """Let a person bring a file or paste a dialog; keep the last good one while another is not."""
    kept, last = f"{page}/brought", f"{page}/brought/last"
    upload = st.file_uploader(
        "A file of dialogs, or a trace",
        type=[*endings(), "npz"],
        key=f"{page}/upload",
        max_upload_size=MAX_UPLOAD_MEGABYTES,
        help=plain(f"{_kinds()}. It stays in this app's memory while you look at it."),
    )
    pasted = st.text_area(
        "Or paste a dialog",
        key=f"{page}/pasted",
        height=110,
        max_chars=MAX_DIALOG_CHARACTERS,
        placeholder="User: a table for two, please\nSystem: at six?",
        help="A speaker and a colon before each turn; or JSON of any kind that a file may have.",
    )
    before = BROUGHT.get(st.session_state.get(kept))
    brought = {} if upload is None else {upload.file_id: (upload.name, upload.getvalue)}
    if pasted.strip():
        brought[pasted] = (_pasted_name(pasted), pasted.encode)
    known, problem = st.session_state.get(last, ((), ""))
    new = [each for each in brought if each not in known]
    if new or (brought and before is None and not problem):
        name, content = brought[new[-1]] if new else next(iter(brought.values()))
        problem = ""
        try:
            before = read_dialog_file(content(), name)
            st.session_state[kept] = key = (before.name, before.digest)
            BROUGHT.put(key, before)
            _begin_anew(page, before)
        except ValueError as error:
            problem = f"{name} cannot be read: {error}."
        gc.collect()  # closed sessions refer to themselves, and to the files that they brought
    st.session_state[last] = (tuple(brought), problem if brought else "")
    staying = f" Staying with {before.name}." if before is not None else ""
    problems([problem + staying] if brought and problem else [])
    return before


def tell_left(file: DialogFile) -> None:
    """Say which dialogs of a file are left out, and why, and which calls cannot be read."""
    for sentence in unread(file.transcripts):
        st.warning(plain(sentence))
    many = len(file.left)
    if many:
        st.warning(
            plain(
                f"{count(many, 'dialog')} {'is' if many == 1 else 'are'} left out: "
                f"{file.left[0]}{', and so on' if many > 1 else ''}."
            )
        )


def _choose_calls(page: str, file: DialogFile) -> DialogFile:
    """Let a person choose whether the text of calls is read, where there are any."""
    if not file.packed:
        hold(page, CALLS, CALLS.default)
        return file
    return with_calls(file) if fields.choice(page, CALLS) == "said" else file


def _pasted_name(text: str) -> str:
    """Return what pasted text is called; its ending says how it is read."""
    return f"pasted.{'json' if text.lstrip()[:1] in ('[', '{') else 'txt'}"


def _begin_anew(page: str, file: DialogFile) -> None:
    """Begin with the first dialog of a file, unless a link to this file has said where."""
    wanted = held(page, DIGEST)
    if not (wanted and file.digest.startswith(wanted)):
        fields.reset(page, PLACED)
        st.session_state.pop(fields.key_of(page, TURN), None)  # nobody has looked at any yet
    hold(page, DIGEST, file.digest[:DIGITS])


def _kinds() -> str:
    """Name every kind of file that can be brought."""
    kinds = [f"{known.label} (.{', .'.join(known.endings)})" for known in FORMATS.values()]
    return f"{', '.join(kinds)}, or a trace of a model by python -m fdkvc capture (.npz)"


def ask_for_file(page: str) -> None:
    """Say what can be brought, while there is nothing to show; or that it cannot be shown."""
    fields.write_link(page, FIELDS)
    brought, _ = st.session_state.get(f"{page}/brought/last", ((), ""))
    if brought or held(page, FILE) != OWN:
        st.info("This cannot be shown: the sidebar says why.", icon=":material/error:")
        return
    st.info(
        plain(
            f"Bring a file of dialogs in the sidebar: {_kinds()}. The README says where people "
            "get them. Or paste a dialog below it."
        ),
        icon=":material/upload_file:",
    )


def _choose_topics(page: str, file: DialogFile, dialog: int) -> tuple[str, str]:
    """Let a person choose where the topics come from; return it and the marked schedule."""
    said = file.transcripts[dialog]
    labels = {
        way: words for way, words in TOPICS.labels.items() if way != "annotated" or said.topics
    }
    way = fields.choice(page, replace(TOPICS, default=next(iter(labels)), choices=labels))
    if way != "marked":
        return way, ""
    unmarked = "A" * len(said.turns)
    if not held(page, SCHEDULE).strip("A"):
        hold(page, SCHEDULE, unmarked)
    schedule = fields.text(page, SCHEDULE, str)
    try:
        said.with_schedule(schedule)
    except ValueError as error:
        problems([f"{error}. Staying with one topic."])
        schedule = unmarked
    return way, schedule


def _choose_vectors(page: str) -> int | None:
    """Let a person choose whose vectors policies look at: letters, or a head of the model."""
    if fields.choice(page, VECTORS) != "bundled":
        hold(page, KV_HEAD, 0)
        return None
    shape = bundled_model().decoder.shape
    labels = {
        place: f"layer {place // shape.kv_heads}, head {place % shape.kv_heads}"
        for place in range(shape.layers * shape.kv_heads)
    }
    kv_head: int = fields.choice(page, replace(KV_HEAD, choices=labels))
    return kv_head


def _choose_head(page: str, recording: Recording) -> tuple[int, str]:
    """Let a person choose a head of several; return its place and who decides."""
    if len(recording.heads) == 1:
        hold(page, HEAD, 0)
        hold(page, HEADS, "each")
        return 0, "each"
    mode = fields.choice(page, ways_of(recording))
    labels = {place: f"head {head}" for place, head in enumerate(recording.heads)}
    return fields.choice(page, replace(HEAD, choices=labels)), mode


def ways_of(recording: Recording) -> Field:
    """Return who may decide, as a choice that begins with what a model's own cache would do."""
    default = default_heads(recording)
    labels = {key: words for key, words in HEADS.labels.items() if key in (default, *ALWAYS)}
    return replace(HEADS, default=default, choices=labels)


def choose_view(page: str) -> str:
    """Let a person choose how the dialog is shown."""
    labels = fields.offer(page, VIEW)
    st.segmented_control(
        "View",
        list(labels),
        format_func=lambda key: plain(labels[key]),
        key=fields.key_of(page, VIEW),
        required=True,
        label_visibility="collapsed",
        persist_state="session",
    )
    return str(held(page, VIEW))


def choose_look(page: str, lanes: Sequence[Lane]) -> Lane:
    """Let a person choose whose cache is looked at closely: the last, as long as nobody has."""
    labels = {lane.name: f"Look at {lane.label}" for lane in lanes}
    whose = replace(WHOSE, help="", default=lanes[-1].name, choices=labels)
    name = fields.choice(page, whose, label_visibility="collapsed", width=190)
    return next(lane for lane in lanes if lane.name == name)
