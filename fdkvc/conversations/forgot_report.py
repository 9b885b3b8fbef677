"""What a session forgot, as sentences, tables of texts and JSON: for the command and the page."""

import json
import re
import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd

from fdkvc.conversations.forgot import SUMMARY, Forgot, Need
from fdkvc.conversations.sessions import Session
from fdkvc.core.transcripts import GIVEN_BY
from fdkvc.core.words import count, percent
from fdkvc.runs.grid import Grid

WORST = 5
"""Losses that are shown of a compaction."""

LOSSES = (
    *("value", "given by", "tool", "given", "messages before", "needed", "call", "slot", "calls"),
    *("given again", "held by"),
)
WAYS_COLUMNS = (
    *("way", "policy", "tokens", "values", "held", "calls again", "tokens again"),
    "read again",
)

CLIPPED = 34
"""Characters of a value in a table."""

STAYED = {"summary": "The summary and what stayed", "cleared": "What was not cleared"}
"""What the model had after a compaction, by its kind."""

WIDTH = 100
"""Columns of a line."""

TOKENS_NOTE = (
    "Tokens are words and punctuation marks; an agent counts a model's, with its prompt and tools. "
    "Again: calls as before the compaction whose first result is not held, and the tokens of their "
    "results. Read again: tokens that a model reads anew, after the first change of its text."
)


def heading(result: Forgot) -> str:
    """Return which compaction it is, where, and how large the text was before and after."""
    compaction, session = result.compaction, result.session
    if compaction.kind == "imagined":
        return (
            f"{session.name}, as if compacted {compaction.place}: {result.before:,} tokens, "
            f"{result.size:,} stay ({percent(result.size / max(result.before, 1))})"
        )
    of = f"compaction {result.number + 1} of {len(session.compactions)}"
    triggers = {"auto": ", automatic", "manual": ", by hand"}
    trigger = triggers.get(compaction.trigger, "")
    before, after = (f"{x:,}" if x else "?" for x in compaction.recorded)
    counted = f"; the agent counted {before} → {after}" if any(compaction.recorded) else ""
    stayed = session.tokens_of(compaction.stayed)
    return (
        f"{session.name}, {of} ({compaction.place}{trigger}): {result.before:,} → {stayed:,} tokens"
        f"{counted}"
    )


def sentence(result: Forgot) -> str:
    """Say what a compaction forgot, what was done again, and which other way held more."""
    total = len(result.needs)
    if not result.ways:
        return "Nothing can be compared here."
    done, others = result.ways[0], result.ways[1:]
    if result.compaction.kind == "imagined":
        done, others = max(result.ways, key=lambda way: sum(way.held)), ()
    held = sum(done.held)
    if not total:
        first = "No later call needed a value from the text before."
    else:
        what = STAYED.get(result.compaction.kind, f"“{done.label}”")
        first = f"{what} held {held:,} of {count(total, 'value')} that later calls needed."
    again = len([made for made in done.repeated if made])
    tokens = sum(
        row.tokens for row, made in zip(result.repeats, done.repeated, strict=True) if made
    )
    verb = "would be" if result.compaction.kind == "imagined" else "were"
    work = (
        f" {count(again, 'call')} {verb} made again, with {count(tokens, 'token')} of results."
        if again
        else ""
    )
    better = sorted((way for way in others if sum(way.held) > held), key=lambda way: -sum(way.held))
    more = (
        f" At the same size, “{better[0].label}” would have held {sum(better[0].held):,}."
        if better
        else " No other way of the same size would have held more."
        if others and total
        else ""
    )
    return first + work + more


def ways_grid(result: Forgot) -> Grid:
    """Return the ways beside each other."""
    rows = []
    for row in ways_table([result]).to_dict("records"):
        values = f"{row['held']:,} of {row['values']:,}"
        again = f"{row['calls again']:,} ({row['tokens again']:,})"
        numbers = [f"{row['tokens']:,}", values, again, f"{row['read again']:,}"]
        rows.append([shorter(row["way"], 28), *numbers, shorter(row["policy"], 24)])
    heads = ["way", "tokens", "values held", "again (tokens)", "read again", "policy"]
    return Grid(heads, rows)


def shown_value(value: str, words: bool) -> str:
    """Return a value on one line and not too long, or its kind and length."""
    if not words:
        return kind_of(value)
    line = " ".join(value.split())
    return line if len(line) <= CLIPPED else f"{line[: CLIPPED - 1]}…"


def given_by(need: Need) -> str:
    """Say who gave a value."""
    if need.given_by == SUMMARY:
        return "an earlier summary"
    if need.tool:
        return f"result of {need.tool}"
    return {"user": "the user", "assistant": "the assistant"}.get(
        need.given_by, GIVEN_BY[need.given_by].removeprefix("used in ").removeprefix("said in ")
    )


def losses_grid(result: Forgot, most: int = WORST, words: bool = True) -> Grid:
    """Return the worst losses: the value, who gave it, how long before, and which call needed it.

    They are those of what the session did, or of the first way.
    """
    messages = result.session.messages
    rows = [
        [
            shown_value(need.value, words),
            shorter(given_by(need), 22),
            f"{need.needed - need.given:,}",
            shorter(f"{need.method}, {messages[need.needed].place}", 26),
            "yes" if need.again >= 0 else "",
        ]
        for need in result.lost()[:most]
    ]
    heads = ["forgotten", "given by", "ago", "needed by", "again"]
    return Grid(heads, rows, names=len(heads))


def shorter(text: str, most: int) -> str:
    """Cut a text to a width."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def as_text(results: Sequence[Forgot], words: bool = True) -> str:
    """Return what the command prints."""
    parts = []
    for result in results:
        told = [heading(result), sentence(result), result.compaction.note, *result.notes]
        lines = [textwrap.fill(text, WIDTH) for text in told if text]
        if result.ways:
            lines += ["", ways_grid(result).text()]
        if result.ways and result.lost():
            lost = len(result.lost())
            grid = losses_grid(result, words=words)
            of = f"The worst {len(grid.rows)} of {count(lost, 'loss', 'losses')}"
            lines += ["", f"{of} under “{result.ways[0].label}”:", grid.text()]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, textwrap.fill(TOKENS_NOTE, WIDTH)])


def as_json(sessions: Sequence[Session], results: Sequence[Forgot], words: bool = True) -> str:
    """Return the same as JSON: sessions, and for each compaction its ways and all of its losses."""

    def rows(table: Any) -> Any:
        return json.loads(table.drop(columns=["session", "compaction"]).to_json(orient="records"))

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
            "notes": [*filter(None, [result.compaction.note]), *result.notes],
            "ways": rows(ways_table([result])),
            "losses": rows(losses_table([result], words)),
        }
        for result in results
    ]
    told = [
        {
            "session": session.name,
            "messages": len(session.messages),
            "compactions": len(session.compactions),
            "notes": [*session.notes],
            "not_read": dict(session.unread),
        }
        for session in sessions
    ]
    return json.dumps({"sessions": told, "compactions": compactions}, indent=1, ensure_ascii=False)


# ----------------------------------------------------------------------------------------- tables


def ways_table(results: Sequence[Forgot]) -> pd.DataFrame:
    """Return a row for each compaction and way.

    `calls again` are those after the compaction whose first result the way does not hold, with the
    tokens of the results that came again.
    """
    rows = []
    for result in results:
        of = (result.session.name, result.number + 1)
        for way in result.ways:
            again = [row for row, made in zip(result.repeats, way.repeated, strict=True) if made]
            tokens = sum(row.tokens for row in again)
            held = len(way.held), sum(way.held)
            kept = way.label, way.policy, way.tokens, *held
            rows.append((*of, *kept, len(again), tokens, way.read_again))
    return pd.DataFrame(rows, columns=["session", "compaction", *WAYS_COLUMNS])


def losses_table(results: Sequence[Forgot], words: bool = True) -> pd.DataFrame:
    """Return a row for each value that what the session did, or the first way, does not hold.

    The worst come first. Without `words`, a value is its kind and length.
    """
    rows = []
    for result in results:
        of = (result.session.name, result.number + 1)
        for need in result.lost() if result.ways else ():
            place = result.session.messages
            again = place[need.again].place if need.again >= 0 else ""
            rows.append(
                (
                    *of,
                    need.value if words else kind_of(need.value),
                    need.given_by,
                    need.tool,
                    place[need.given].place,
                    need.needed - need.given,
                    place[need.needed].place,
                    need.method,
                    need.slot,
                    need.calls,
                    again,
                    ", ".join(result.holders(need)),
                )
            )
    return pd.DataFrame(rows, columns=["session", "compaction", *LOSSES])


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
"""What a value is, by the first pattern that matches all of it."""
