"""The sidebar of the Dialogs page: file, dialog, vectors and size."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, NoReturn

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.conversations.page import files
from fdkvc.conversations.page.file_choice import (
    DIALOG,
    DIGEST,
    FILE,
    OWN,
    TOOLS,
    choose_tools,
    choose_transcript,
    chosen_file,
    warn_skipped,
)
from fdkvc.conversations.page.session import show_session
from fdkvc.core.limits import MAX_SHOWN_BUDGET
from fdkvc.core.parameters import Field
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.models.page.loading import LABELS, STORED
from fdkvc.player.run import StageRun
from fdkvc.policies import POLICIES as ALL_POLICIES
from fdkvc.ui import fields
from fdkvc.ui.fields import held, problems
from fdkvc.ui.follow import open_as_linked, show_stage
from fdkvc.ui.frame import Page
from fdkvc.ui.glossary import WORDS
from fdkvc.ui.lanes import PAIR
from fdkvc.ui.lanes import POLICIES as LANES
from fdkvc.ui.lru import cached
from fdkvc.ui.sidebar import BUDGET_HERE, LOOK, MORE_METRICS, read_name
from fdkvc.verdict.card import TARGET
from fdkvc.verdict.checked import CHECKED_WITH, MINUTES
from fdkvc.verdict.model_shape import SHAPE
from fdkvc.verdict.page.replay import expect_file, in_tokens_of
from fdkvc.verdict.page.vectors import AT_ONCE, KV_HEAD, VECTORS, NotReadError, choose_vectors
from fdkvc.verdict.today import TODAY_TOKENS, TODAY_WAY


class Chosen(NamedTuple):
    """What the sidebar chooses."""

    file: files.DialogFile
    head: files.HeadChoice
    """A head of the chosen dialog."""
    budget: int


# ------------------------------------------------------------------------------- fields

CALLS = Field(
    "Tool calls",
    "Whether a call's name and arguments precede the words of its turn. Not part of the text: "
    + WORDS["Tool calls not part of the text"],
    name="calls",
    default="silent",
    choices={"silent": "not part of the text", "said": "part of the text"},
)
BUDGET = replace(
    BUDGET_HERE,
    label="Size in tokens",
    help="What a cache holds at most after a turn.",
    default=48,
    high=MAX_SHOWN_BUDGET,
    follows=False,
)
POLICIES = replace(
    LANES,
    label="Policies in the transcript",
    choices=ALL_POLICIES,
    default=("fifo", "h2o", "fd-kvc"),
)
WHOSE = Field("Show", name="look", default="", read=read_name)
VIEW = Field(
    "View",
    name="view",
    default="words",
    choices={"words": "Transcript", "lanes": "Side by side", "cache": "One cache"},
)
_DIALOG_FIELDS = (DIALOG, VECTORS, KV_HEAD)

PLACED = (*_DIALOG_FIELDS, *(replace(field, follows=False) for field in LOOK))
"""Fields whose values belong to one file."""

RUN_FIELDS = (CALLS, TOOLS, *_DIALOG_FIELDS, BUDGET, POLICIES, WHOSE)
"""Fields that choose what one cache shows of a file."""

TOKENS_OF = Field(
    "as counted by",
    "Whose tokenizer counts tokens. Those of models that Ollama, Hugging Face or LM Studio have "
    "stored on this machine are offered; no weights are read.",
    name="tokens",
    default="smollm2",
    choices={
        "smollm2": "SmolLM2 (an estimate)",
        **{name: name for name in STORED},
    },
)

READER = Field(
    "Read by",
    "Which model reads some of the conversations, to tell which values stay right. A larger one "
    "reads fewer in the same time.",
    name="reader",
    default=CHECKED_WITH,
    choices={name: label for name, label in LABELS.items() if name != AT_ONCE},
)

CARD_FIELDS = (SHAPE, TOKENS_OF, READER, TARGET, TODAY_WAY, TODAY_TOKENS, MINUTES)
_VIEW_FIELDS = (BUDGET, POLICIES, WHOSE, VIEW, *PAIR, MORE_METRICS)

FIELDS = (FILE, DIGEST, CALLS, TOOLS, *PLACED, *_VIEW_FIELDS, *CARD_FIELDS)
"""Every field of the page."""


def adopt_link(page: str, link: Mapping[str, str]) -> list[str]:
    """Apply a link to the page; return a sentence for each part that is not allowed."""
    wrong = fields.adopt_link(page, FIELDS, link)
    shown = (DIALOG, VECTORS, BUDGET, POLICIES, *LOOK)
    if wrong or any(field.name in link for field in shown):
        st.session_state[f"{page}/followed"] = ""  # any file
    open_as_linked(page, link)
    return wrong


def which_dialog(
    page: str, dialog: int | None = None, vectors: str = ""
) -> tuple[object, ...]:
    """Return what identifies a dialog and its tokens: by default, those on the page."""
    shown_dialog = held(page, DIALOG) if dialog is None else dialog
    return held(page, FILE), held(page, DIGEST), shown_dialog, vectors or held(page, VECTORS)


# ------------------------------------------------------------------------------- controls


def choose_dialog(shown: Page, controls: DeltaGenerator) -> Chosen:
    """Show what chooses a file, and among the `controls` of the transcript its dialog and size.

    Stops the page if there is nothing to show.
    """
    page = shown.name
    below_title = shown.below_title
    fields.choice(page, FILE)
    file = chosen_file(shown, PLACED, below_title)
    if file is None:
        # A person who opens the uploader is about to give a file.
        expect_file(chosen_encoding(page))
        _stop(page, below_title)
    encoding = chosen_encoding(page)
    if file.is_log:  # the page is this session's then
        with below_title:
            show_session(page, file, encoding)
        fields.write_link(page, FIELDS)
        st.stop()
    try:
        if fields.choice(page, CALLS, bool(file.packed)) == "said":
            file = files.with_calls(file)
        file = choose_tools(page, file)
        warn_skipped(file)
        if st.session_state.get(f"{page}/followed") == "":  # a link says what to show
            st.session_state[f"{page}/followed"] = file.digest
        with controls:
            dialog = choose_transcript(page, file)
        with st.spinner("Reading the dialog …", show_time=True):
            recording = choose_vectors(page, file, dialog, below_title)
            if recording is None:
                recording = in_tokens_of(file, dialog, encoding)
    except ValueError as error:
        with below_title:
            problems(f"{error}.")
        _stop(page, below_title)
    except NotReadError:  # `below_title` has the button to read it
        fields.write_link(page, FIELDS)
        st.stop()
    head = files.HeadChoice.of(file, *files.shown_recording(recording))
    with controls:
        return Chosen(file, head, fields.number(page, BUDGET))


def chosen_encoding(page: str) -> Encoding:
    """Return how tokens are counted: by a tokenizer.json of one's own, or as a model does."""
    upload = st.session_state.get(f"{page}/card/tokenizer")
    name = held(page, TOKENS_OF)
    try:
        if upload is not None:
            return encoding_of(upload.getvalue())
        if name != TOKENS_OF.default:
            return Encoding.of_model(name)
    except ValueError as error:
        problems(f"{error}. Counting tokens as SmolLM2 does.")
    return Encoding()


encoding_of = cached(Encoding.of_file)


def _stop(page: str, below_title: DeltaGenerator) -> NoReturn:
    """Stop the page; say which files may be uploaded unless there is one."""
    fields.write_link(page, FIELDS)
    sources, _ = st.session_state.get(f"{page}/uploaded/last", ((), ""))
    if not sources and held(page, FILE) == OWN:
        below_title.caption(
            "Upload or paste chats, calls of agents or a session of a coding agent: you see which "
            "tokens leave, what that costs and what to set. “?” lists the formats."
        )
    st.stop()


def offer_own_file(page: str) -> None:
    """Show the button that opens the uploader, unless it is open."""
    if held(page, FILE) != OWN and st.button(
        "My file", key="open-own-file", icon=":material/upload_file:"
    ):
        fields.hold_and_rerun(page, [(FILE, OWN)])


def choose_view(page: str) -> str:
    """Choose how the dialog is shown, far below the choice."""
    labels = fields.offer(page, VIEW)
    looks = {"persist_state": "session", "on_change": partial(show_stage, page)}
    return fields.segments(fields.key_of(page, VIEW), "View", labels, **looks)


def choose_look(page: str, lanes: Sequence[StageRun]) -> StageRun:
    """Choose the policy whose cache is shown; by default, the last."""
    labels = {lane.policy.name: f"Show {lane.policy.title}" for lane in lanes}
    field = replace(WHOSE, default=lanes[-1].policy.name, choices=labels)
    name = fields.choice(
        page,
        field,
        label_visibility="collapsed",
        width="content",
        on_change=partial(show_stage, page),
    )
    return next(lane for lane in lanes if lane.policy.name == name)
