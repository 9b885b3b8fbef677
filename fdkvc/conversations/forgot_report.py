"""What a session forgot, as sentences, tables and JSON, for the command and the page."""

import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fdkvc.conversations.forgot import SUMMARY, Forgot, Need
from fdkvc.conversations.sessions import Session
from fdkvc.core.transcripts import GIVEN_BY
from fdkvc.core.words import clipped, count, percent
from fdkvc.runs.grid import Grid

WORST = 5
"""Most losses that are shown of a compaction."""

CLIPPED = 34
"""Most characters of a value in a table."""

STAYED = {"summary": "The summary and what stayed", "cleared": "What was not cleared"}
"""What the model had after a compaction, by its kind."""

WIDTH = 100
"""Columns of a line."""


def tokens_note(session: Session) -> str:
    """Say what the numbers of the tables count."""
    return (
        f"Sizes are {session.unit}, without the marks of a chat template; an agent counts tokens "
        "of its own model, with its prompt and tools. Made again: calls that repeat one from "
        "before the compaction whose result is not held (tokens of their results). Read again: "
        "tokens that a model reads anew, from the first change of its text on."
    )


def heading(result: Forgot) -> str:
    """Say which compaction it is, where, and how large the text was before and after."""
    compaction, session = result.compaction, result.session
    if compaction.kind == "imagined":
        return (
            f"{session.name}, as if compacted {compaction.place}: {result.before:,} tokens, "
            f"{result.size:,} stay ({percent(result.size / max(result.before, 1))})"
        )
    number = f"compaction {result.number + 1} of {len(session.compactions)}"
    trigger = {"auto": ", automatic", "manual": ", by hand"}.get(compaction.trigger, "")
    before, after = (f"{tokens:,}" if tokens else "?" for tokens in compaction.recorded)
    counted = f"; the agent: {before} → {after}" if any(compaction.recorded) else ""
    stayed = session.tokens_of(compaction.stayed)
    return (
        f"{session.name}, {number} ({compaction.place}{trigger}): {result.before:,} → {stayed:,} "
        f"tokens{counted}"
    )


def sentence(result: Forgot) -> str:
    """Say what a compaction forgot, what was done again, and which other way held more."""
    if not result.ways:
        return "Nothing can be compared here."
    # What the session did is the first way. If it did nothing, the best way stands for it.
    done, others, verb = result.ways[0], result.ways[1:], ""
    if result.compaction.kind == "imagined":
        done, others, verb = max(result.ways, key=lambda way: sum(way.held)), (), "would be"
    total, held = len(done.held), sum(done.held)
    sentences = ["No later call needed a value from the text before."]
    if total:
        what = STAYED.get(result.compaction.kind, f"“{done.label}”")
        sentences = [f"{what} held {held:,} of {count(total, 'value')} that later calls needed."]
    calls, tokens = result.again(done)
    if calls:
        verb = verb or ("was" if calls == 1 else "were")
        results = f"{count(tokens, 'token')} of results"
        sentences.append(f"{count(calls, 'call')} {verb} made again, with {results}.")
    best = max(others, key=lambda way: sum(way.held), default=done)
    if sum(best.held) > held:
        more = f"“{best.label}” would have held {sum(best.held):,}"
        sentences.append(f"At the same size, {more}.")
    elif others and total:
        sentences.append("No other way of the same size would have held more.")
    return " ".join(sentences)


def notes_of(result: Forgot) -> list[str]:
    """Return the sentences on what is missing of a compaction, and on what is not compared."""
    return [note for note in (result.compaction.note, *result.notes) if note]


def ways_grid(result: Forgot) -> Grid:
    """Return the table of ways."""
    rows = []
    for way in result.ways:
        calls, tokens = result.again(way)
        held = f"{sum(way.held):,} of {len(way.held):,}"
        numbers = [f"{way.tokens:,}", held, f"{calls:,} ({tokens:,})", f"{way.read_again:,}"]
        read = [] if way.reading is None else [way.reading.cell]
        rows.append([way.label, *numbers, *read, way.policy])
    heads = ["way", "tokens", "held", "made again", "read again", "right, KL", "policy"]
    if rows and len(rows[0]) < len(heads):
        heads.remove("right, KL")
    return Grid(heads, rows)


def given_by(need: Need) -> str:
    """Say who gave a value."""
    if need.given_by == SUMMARY:
        return "an earlier summary"
    if need.tool:
        return f"result of {need.tool}"
    return re.sub("^(used|said) (in|by) ", "", GIVEN_BY[need.given_by])


def losses_grid(result: Forgot, words: bool = True) -> Grid:
    """Return the worst losses: value, who gave it, how long before, and the call that needed it."""
    messages = result.session.messages
    rows = [
        [
            clipped(" ".join(need.value.split()), CLIPPED) if words else kind_of(need.value),
            clipped(given_by(need), 22),
            f"{need.needed - need.given:,}",
            clipped(f"{need.method}, {messages[need.needed].place}", 26),
            "yes" if need.again >= 0 else "",
        ]
        for need in result.lost()[:WORST]
    ]
    heads = ["forgotten", "given by", "ago", "needed by", "again"]
    return Grid(heads, rows, names=len(heads))


def as_text(results: Sequence[Forgot], words: bool = True) -> str:
    """Return what the command prints."""
    parts = []
    for result in results:
        paragraphs = [heading(result), sentence(result), *notes_of(result)]
        lines = [textwrap.fill(text, WIDTH) for text in paragraphs]
        if result.ways:
            lines += ["", ways_grid(result).within(WIDTH).text()]
        lost = result.lost()
        if lost:
            grid = losses_grid(result, words=words)
            worst = f"The worst {len(grid.rows)} of {count(len(lost), 'loss', 'losses')}"
            lines += ["", f"{worst} under “{result.ways[0].label}”:", grid.text()]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, textwrap.fill(tokens_note(results[0].session), WIDTH)])


def none_sentence(session: Session) -> str:
    """Say that a session has no compaction, and how to see what one would forget."""
    tokens = session.tokens_of(session.contexts[0])
    size = max(tokens // 10, 1)
    return textwrap.fill(
        f"No compaction in this session of {tokens:,} {session.unit}: nothing was forgotten. To "
        f"see what each way would forget at a size of {size:,} tokens, add --at {size}.",
        WIDTH,
        break_on_hyphens=False,
    )


def as_json(sessions: Sequence[Session], results: Sequence[Forgot], words: bool = True) -> str:
    """Return what `as_text` says as JSON, with all losses of each compaction."""
    compactions = [
        {
            "session": result.session.name,
            "compaction": result.number + 1,
            "place": result.compaction.place,
            "kind": result.compaction.kind,
            "trigger": result.compaction.trigger,
            "recorded_before": result.compaction.recorded[0],
            "recorded_after": result.compaction.recorded[1],
            "before": result.before,
            "size": result.size,
            "sentence": sentence(result),
            "notes": notes_of(result),
            "ways": ways_rows(result),
            "losses": losses_rows(result, words),
        }
        for result in results
    ]
    conversations = [
        {
            "session": session.name,
            "messages": len(session.messages),
            "unit": session.unit,
            "compactions": len(session.compactions),
            "notes": session.notes,
            "not_read": dict(session.unread),
        }
        for session in sessions
    ]
    content = {"sessions": conversations, "compactions": compactions}
    return json.dumps(content, indent=1, ensure_ascii=False)


def ways_rows(result: Forgot) -> list[dict[str, Any]]:
    """Return what each way keeps, and the calls whose first result it does not hold."""
    rows = []
    for way in result.ways:
        calls, tokens = result.again(way)
        rows.append(
            {
                "way": way.label,
                "policy": way.policy,
                "tokens": way.tokens,
                "values": len(way.held),
                "held": sum(way.held),
                "calls again": calls,
                "tokens again": tokens,
                "read again": way.read_again,
                "reading": None if way.reading is None else asdict(way.reading),
            }
        )
    return rows


def losses_rows(result: Forgot, words: bool = True) -> list[dict[str, Any]]:
    """Return the values that the first way does not hold, the worst loss first.

    Without `words`, a value is its kind and length.
    """
    messages = result.session.messages
    return [
        {
            "value": need.value if words else kind_of(need.value),
            "given by": need.given_by,
            "tool": need.tool,
            "given": messages[need.given].place,
            "messages before": need.needed - need.given,
            "needed": messages[need.needed].place,
            "call": need.method,
            "slot": need.slot,
            "calls": need.calls,
            "given again": messages[need.again].place if need.again >= 0 else "",
            "held by": ", ".join(result.holders(need)),
        }
        for need in result.lost()
    ]


def kind_of(value: str) -> str:
    """Return what a value is, without its words.

    Examples
    --------
    >>> kind_of("src/app.py"), kind_of("QX-771"), kind_of("so be it")
    ('path of 10 characters', 'id of 6 characters', 'text of 8 characters')
    """
    kind = next(kind for kind, pattern in KINDS.items() if re.fullmatch(pattern, value.strip()))
    return f"{kind} of {count(len(value), 'character')}"


KINDS = {
    "number": r"[-+]?[\d.,]+",
    "address": r"\w+://\S+|\S+@\S+\.\w+",
    "path": r"\S*[/\\]\S*|[\w-]+\.[a-z]\w{0,4}",
    "id": r"(?=\S*[\d_-])\S+",
    "word": r"\S+",
    "text": r"(?s).*",
}
"""Kinds of values, by the first pattern that matches the whole value."""
