"""The transcript, a column for each policy: what each cache still holds, and what it forgot.

Whatever stands in a file is escaped and shown by ``st.html`` alone, never as Markdown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import streamlit as st

from fdkvc.charts.theme import TOPICS, patterned
from fdkvc.run.evidence import lost_in
from fdkvc.said.lexical import LEXICAL
from fdkvc.said.recordings import Recording
from fdkvc.said.transcripts import Demand
from fdkvc.told.explain import explain, sentences
from fdkvc.ui.dialogs.files import HeadChoice
from fdkvc.ui.kit.lanes import Lane
from fdkvc.ui.kit.memory import kept
from fdkvc.ui.kit.runs import Run

MOST_REASONS = 6000
"""Tokens, each counted for every policy, up to which a token says on hover all of why it went."""


def show_transcript(head: HeadChoice, lanes: Sequence[Lane], turn: int, picked: int | None) -> None:
    """Show what was said, and after this turn what of it each policy still holds.

    Parameters
    ----------
    head : HeadChoice
    lanes : sequence of Lane
        A column each.
    turn : int
    picked : int, optional
        Token to point out.
    """
    recording = head.recording
    brief = len(lanes) * recording.starts[-1] > MOST_REASONS
    columns = [_Column(lane.run, recording, turn, picked, brief) for lane in lanes]
    heads = "".join(
        f'<th scope="col">{escape(lane.label)}<small>{column.figures()}</small></th>'
        for lane, column in zip(lanes, columns, strict=True)
    )
    rows = [
        f'<tr class="{_when(at, turn)} {_hue(recording, at)}">{_speaker(recording, at)}'
        f"{''.join(f'<td>{column.cell(at)}</td>' for column in columns)}</tr>"
        for at in range(len(recording.tokens))
    ]
    st.html(
        f'<div class="said" tabindex="0" role="region" aria-label="Transcript after turn {turn}">'
        f'<table><thead><tr><th scope="col">{len(rows)} turns</th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def explain_colours(head: HeadChoice) -> None:
    """Say once how the transcript is to be read."""
    letters = head.recording.dialogs.topic_names
    topics = "".join(
        f'<span class="{_topic_class(place)}"><b class="letter">{letter}</b> '
        f"{escape(name) if name != letter else ''}</span>"
        for place, (letter, name) in enumerate(zip(letters, head.topic_names, strict=True))
    )
    evidence = f"<span><u>underlined</u> a later {demanded(head.recording)[1]} needs it</span>"
    st.html(
        '<div class="said-key"><span class="topic0"><mark>tinted</mark> still in the cache</span>'
        "<span><s>struck out</s> evicted: point at it to see why</span>"
        '<span><s class="now">struck heavily</s> evicted in this turn</span>'
        f"{evidence if head.recording.evidence else ''}{topics}</div>"
    )
    source = head.recording.source
    caution = (
        ", a vector drawn for each word by its letters alone. Such attention is nearly even, so "
        "that policies that look at it decide by age and chance; a trace of a model has its own."
        if source.startswith(LEXICAL)
        else "."
    )
    st.html(f"<small>Attention by: {escape(source)}{caution}</small>")


def demanded(recording: Recording) -> tuple[str, str]:
    """Return the kind of demands that the transcript shows, and what it is called."""
    kinds = {demand.kind for demand, _ in recording.evidence}
    return ("state", "dialogue state") if kinds == {"state"} else ("call", "service call")


# ------------------------------------------------------------------------------- what was said


def _when(at: int, turn: int) -> str:
    return "to-come" if at > turn else "now" if at == turn else "past"


def _hue(recording: Recording, at: int) -> str:
    return _topic_class(int(recording.dialogs.current[0, at]))


def _topic_class(place: int) -> str:
    """Return the classes that give a topic its hue, and a pattern where that comes again."""
    if place < 0:
        return "topicless"
    return f"topic{place % len(TOPICS)}{' patterned' * patterned(place)}"


def _speaker(recording: Recording, at: int) -> str:
    said = recording.transcript.turns[at]
    letter = f'<b class="letter">{said.topic}</b>' if said.topic else ""
    return f'<th scope="row"><i>{at}</i> {letter} {escape(said.speaker)}</th>'


@kept
def _pieces(recording: Recording) -> tuple[tuple[tuple[str, int], ...], ...]:
    """Return the escaped pieces of each turn's text with their tokens."""
    return tuple(
        tuple((escape(piece.text), piece.token) for piece in recording.pieces(turn))
        for turn in range(len(recording.tokens))
    )


@kept
def _needed(recording: Recording) -> frozenset[int]:
    """Return the tokens that are evidence for what the transcript shows as demanded."""
    kind, _ = demanded(recording)
    return frozenset(
        token
        for demand, mentions in recording.evidence
        if demand.kind == kind
        for mention in mentions
        for token in mention
    )


# ------------------------------------------------------------------------------- one policy


@dataclass(frozen=True)
class Outcome:
    """Whether a policy's cache still held what a turn needed.

    Attributes
    ----------
    demand : Demand
    lost : int
        The turn that broke its last mention; −1 if it was held.
    """

    demand: Demand
    lost: int

    @property
    def words(self) -> str:
        """The verdict in words."""
        if self.lost < 0:
            return "held"
        at_once = self.lost == self.demand.mentions[-1].turn
        return f"lost {'at once, ' * at_once}in turn {self.lost}"


@kept
def verdicts(run: Run, recording: Recording) -> tuple[Outcome, ...]:
    """Return for each demand of the dialog whether this run met it."""
    lost = lost_in(run.trace, recording)
    return tuple(
        Outcome(demand, int(turn[0]))
        for (demand, _), turn in zip(recording.evidence, lost, strict=True)
    )


@kept
def _reasons(run: Run, turn: int) -> Mapping[int, list[str]]:
    """Return which tokens a turn evicted, and why."""
    here = run.entries[run.entries["turn"] == turn]
    gone = here.loc[here["rule"].notna(), "token"].tolist()
    return {token: sentences(explain(run.trace, run.dialogs, 0, turn, token)) for token in gone}


class _Column:
    """What one policy's cache holds of the dialog after a turn."""

    def __init__(
        self, run: Run, recording: Recording, turn: int, picked: int | None, brief: bool
    ) -> None:
        self._recording, self._turn, self._picked, self._brief = recording, turn, picked, brief
        self._held = {token for token in run.trace.kept[0, turn].tolist() if token >= 0}
        self._why: dict[int, list[str]] = {}
        for past in range(turn + 1):
            self._why |= _reasons(run, past)  # of what came back and went again, the last
        self._went_now = _reasons(run, turn)
        self._needed = _needed(recording)
        self._kind, _ = demanded(recording)
        self._verdicts = [
            verdict
            for verdict in verdicts(run, recording)
            if verdict.demand.kind == self._kind and verdict.demand.turn <= turn
        ]

    def figures(self) -> str:
        """Say how much is held, and how many demands were met so far."""
        what = "arguments" if self._kind == "call" else "values"
        met = f" · {_met(self._verdicts)} {what} met" if self._verdicts else ""
        return f"{len(self._held)} held{met}"

    def cell(self, at: int) -> str:
        """Return what was said in a turn, and what it needed of what was said before."""
        pieces = _pieces(self._recording)[at]
        if at > self._turn:
            return "".join(text for text, _ in pieces)
        return "".join(self._marked(pieces)) + self._asks(at)

    def _marked(self, pieces: Sequence[tuple[str, int]]) -> Iterator[str]:
        """Mark each token; tokens that are held alike are one mark, with what lies between."""
        mark, said, between = ("", ""), "", ""
        for text, token in pieces:
            if token < 0:
                between += text
                continue
            own = self._mark(token)
            if own == mark and own[0] == "mark":
                said += between + text
            else:
                yield _element(*mark, said) + between
                mark, said = own, text
            between = ""
        yield _element(*mark, said) + between

    def _mark(self, token: int) -> tuple[str, str]:
        """Return the element that a token is in, and its attributes."""
        held, needed = token in self._held, token in self._needed
        given = {
            "need": needed,
            "picked": token == self._picked,
            "now": not held and token in self._went_now,
        }
        names = " ".join(name for name, is_so in given.items() if is_so)
        classes = f' class="{names}"' if names else ""
        if held:
            return "mark", classes
        why = self._why.get(token, [])
        return "s", f'{classes} title="{escape(" ".join(why[:1] if self._brief else why))}"'

    def _asks(self, at: int) -> str:
        """Return what a turn needed: each argument, or of a state what was lost."""
        asked: dict[str, list[Outcome]] = {}
        for verdict in self._verdicts:
            if verdict.demand.turn == at:
                asked.setdefault(verdict.demand.source, []).append(verdict)
        found = ""
        for source, every in asked.items():
            shown = every if self._kind == "call" else [each for each in every if each.lost >= 0]
            tally = "" if self._kind == "call" else f" {_met(every)} values held"
            each = " ".join(map(_verdict_html, shown))
            found += f'<div class="asks"><b>{escape(source)}</b>{tally} {each}</div>'
        return found


def _element(tag: str, attributes: str, content: str) -> str:
    return f"<{tag}{attributes}>{content}</{tag}>" if tag else content


def _met(every: Sequence[Outcome]) -> str:
    return f"{sum(verdict.lost < 0 for verdict in every)} of {len(every)}"


def _verdict_html(verdict: Outcome) -> str:
    demand = verdict.demand
    what = f"{escape(demand.slot)} “{escape(demand.value)}”"
    if verdict.lost < 0:
        return f'<span class="met">✓ {what}</span>'
    return f'<span class="unmet">✗ {what} {verdict.words}</span>'
