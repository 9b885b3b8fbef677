"""A real dialog on the stage: its transcript and other views, and what its calls needed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import chain
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.conversations.lexical import LEXICAL
from fdkvc.conversations.page.file_choice import FILE, OWN
from fdkvc.core.recordings import Recording
from fdkvc.core.transcripts import Demand
from fdkvc.core.words import listed
from fdkvc.engine.evidence import Evidence
from fdkvc.player.payload import DialogText
from fdkvc.player.run import StageRun
from fdkvc.ui import fields
from fdkvc.ui.compare import scenes
from fdkvc.ui.component import payload
from fdkvc.ui.follow import follow_lanes, show_downloads, show_lanes
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import plain
from fdkvc.ui.step import scene
from fdkvc.ui.step.before import NO_GHOST, choose_ghost
from fdkvc.verdict.page.choices import FIELDS, RUN_FIELDS, which_dialog
from fdkvc.verdict.search import sees_vectors

DEMANDS = {"call": "service call", "state": "dialogue state"}
"""What needs a value, by kind."""


def show_view(
    page: str,
    view: str,
    recording: Recording,
    lanes: tuple[StageRun, ...],
    lane: StageRun,
    controls: DeltaGenerator,
) -> None:
    """Show the dialog on the stage, and its files among the controls."""
    write = fields.link_writer(page, FIELDS)
    uploaded = fields.held(page, FILE) == OWN
    one_cache = view == "cache" and not lane.long
    ghost = NO_GHOST
    if one_cache:
        ghost = choose_ghost(page, lane, lambda *_: RUN_FIELDS, which_dialog(page))
    with controls:
        packed = partial(payload, lane, "", *ghost) if one_cache else None
        show_downloads(page, [lane] if one_cache else lanes, packed, uploaded=uploaded)
    if view == "words":
        show_transcript(page, recording, lanes, lane, write)
    elif view == "lanes":
        scenes.show(page, lanes, write)
    elif one_cache:
        scene.show(page, lane, write, ghost)
    else:
        note = lane.long_note("One cache, with its order by score,")
        st.info(plain(note), icon=":material/info:")
        write()


def show_transcript(
    page: str,
    recording: Recording,
    lanes: Sequence[StageRun],
    lane: StageRun,
    write: Callable[[], None],
) -> None:
    """Show the transcript, first underlined for `lane`; `write` writes the address."""
    text = _text(recording, tuple(lanes), lanes.index(lane))
    show_lanes(page, lanes, text)

    @st.fragment
    def following() -> None:
        follow_lanes(page, lanes)
        write()

    following()


def show_source(recording: Recording, lanes: Sequence[StageRun]) -> None:
    """Show whose vectors policies see: a model's, or those of letters if any looks at them."""
    words = f"Vectors: {recording.source}, as that model reads the dialog."
    if recording.source.startswith(LEXICAL):
        labels = [lane.policy.title for lane in lanes if sees_vectors(lane.policy)]
        if not labels:
            return
        words = (
            f"{listed(labels)}: by letters of words, not meaning. A model is under Vectors."
        )
    st.html(f"<small>{escape(words)}</small>")


def demand_kind(recording: Recording) -> tuple[str, str]:
    """Return the kind of demands that the transcript shows, and its label."""
    kind = (
        "state" if {demand.kind for demand, _ in recording.evidence} == {"state"} else "call"
    )
    return kind, DEMANDS[kind]


@dataclass(frozen=True)
class Outcome:
    """Whether a cache still held what a turn needed."""

    demand: Demand
    mentions: tuple[tuple[int, ...], ...]
    """The tokens of each mention."""
    lost: int
    """The turn that broke the last whole mention; −1 if one was held."""
    partly: bool
    """Whether part of a mention was held."""

    @property
    def words(self) -> str:
        """The outcome in words."""
        if self.lost < 0:
            return "held"
        return f"{'part ' if self.partly else ''}lost in turn {self.lost}"

    def mentions_token(self, token: int | None) -> bool:
        """Whether a token is part of a mention."""
        return any(token in tokens for tokens in self.mentions)


@cached
def outcomes_of(run: StageRun, recording: Recording) -> tuple[Outcome, ...]:
    """Return the outcome of each demand of the dialog."""
    lost = Evidence(run.trace, recording).lost
    outcomes = []
    for (demand, mentions), turn in zip(recording.evidence, lost, strict=True):
        # A turn reads the cache as the turn before has left it.
        cached_tokens = {*run.trace.kept_tokens[0, demand.turn - 1].tolist()}
        partly = not cached_tokens.isdisjoint(chain(*mentions))
        outcomes.append(Outcome(demand, mentions, int(turn[0]), partly))
    return tuple(outcomes)


def first_failure(recording: Recording, lane: StageRun) -> tuple[int, int | None]:
    """Return the first turn that lacked a value and a token of it, or the last turn and None."""
    kind, _ = demand_kind(recording)
    for outcome in outcomes_of(lane, recording):
        if outcome.demand.kind == kind and outcome.lost >= 0:
            return outcome.demand.turn, outcome.mentions[-1][0]
    return len(recording.tokens) - 1, None


@cached
def _text(recording: Recording, runs: tuple[StageRun, ...], underlined: int) -> DialogText:
    kind, name = demand_kind(recording)
    rows = zip(*(outcomes_of(run, recording) for run in runs), strict=True)
    rows_of_kind = [row for row in rows if row[0].demand.kind == kind]
    demands: dict[tuple[int, str, int], list[tuple[Any, ...]]] = {}
    needed_tokens: set[int] = set()
    for row in rows_of_kind:
        demand = row[0].demand
        mentions = row[0].mentions
        needed_tokens.update(*mentions)
        lost = tuple("" if outcome.lost < 0 else outcome.words for outcome in row)
        # Every turn repeats its state, so only missing values are listed.
        if kind == "call" or any(lost):
            value = (f"{demand.slot} “{demand.value}”", lost, mentions[-1][0])
            demands.setdefault(demand.needed_by, []).append(value)
    turns = []
    for turn, text in enumerate(recording.transcript.texts):
        turns.append((text, tuple(recording.piece_lengths(turn))))
    listed_demands = []
    for (turn, source, _), values in demands.items():
        listed_demands.append({"turn": turn, "source": source, "values": values})
    return DialogText(
        recording.transcript.roles,
        tuple(turns),
        tuple(sorted(needed_tokens)),
        name if rows_of_kind else "",
        underlined,
        listed_demands,
    )
