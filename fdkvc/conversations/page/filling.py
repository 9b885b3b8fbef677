"""How a session filled the model's context, message by message and by source, as HTML."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from fdkvc.conversations.session_text import span_kind
from fdkvc.conversations.sessions import Session
from fdkvc.core.words import count

MAX_COLUMNS = 160
"""Most columns; a column of several messages shows the context at the last of them."""

SOURCES = {
    "system": "system prompt",
    "summary": "summary",
    "user": "user",
    "assistant": "answers and calls",
    "result": "tool results",
}
"""What filled the context, from the bottom, and its name."""


class Column(NamedTuple):
    """The context at the last of some messages."""

    first: int
    last: int
    boundary: int
    """The number of the compaction among them, 0 if there is none."""
    filling: Counter[str]
    """Tokens by source."""


def columns_of(session: Session) -> tuple[Column, ...]:
    """Return at most `MAX_COLUMNS` columns for all messages of a session."""
    fillings = [*_fillings(session)]
    bounds = [*enumerate(session.bounds[1:-1], start=1)]
    columns = []
    width = -(-len(fillings) // MAX_COLUMNS)
    for first in range(0, len(fillings), width or 1):
        last = min(first + width, len(fillings)) - 1
        boundary = next((row for row, bound in bounds if first <= bound <= last), 0)
        columns.append(Column(first, last, boundary, fillings[last]))
    return tuple(columns)


def filling_html(columns: Sequence[Column], moment: int, returning: Collection[int]) -> str:
    """Return columns with the tokens in context by source; those after a moment are paler.

    `returning` are the results that repeat what had left.
    """
    highest = max((column.filling.total() for column in columns), default=0) or 1
    spans = []
    present = Counter[str]()
    has_boundary = False
    for first, last, number, filling in columns:
        marks = " later" if first > moment else ""
        marks += " now" if first <= moment <= last else ""
        marks += " back" if any(first <= index <= last for index in returning) else ""
        parts = ""
        for source in SOURCES:
            if filling[source]:
                height = f"height:{100 * filling[source] / highest:.2f}%"
                parts += f'<i class="{source}" style="{height}"></i>'
        boundary = f"<b>{number}</b>" if number else ""
        title = f"message {last + 1}: {count(filling.total(), 'token')}"
        spans.append(f'<span class="column{marks}" title="{title}">{boundary}{parts}</span>')
        present |= filling
        has_boundary = has_boundary or number > 0
    messages = columns[-1].last + 1 if columns else 0
    legend = " ".join(
        f'<i class="{source}"></i>{name}'
        for source, name in SOURCES.items()
        if present[source]
    )
    boundaries = " <b>1</b>compaction" if has_boundary else ""
    boundaries += ' <i class="back"></i>repeats what had left' if returning else ""
    return (
        f'<div class="session-filling" role="img" aria-label="Tokens in context at '
        f'each of {count(messages, "message")}, by source">{"".join(spans)}</div>'
        f'<small class="session-sources">{legend}{boundaries}; '
        f"tallest column: {count(highest, 'token')}</small>"
    )


def _fillings(session: Session) -> Iterator[Counter[str]]:
    """Yield the tokens in context by source, at each message in order."""
    for number, (first, end) in enumerate(
        zip(session.bounds, session.bounds[1:], strict=False)
    ):
        context = session.contexts[number]
        filling = Counter[str]()
        new = set()
        for index in context:
            if index < first:
                filling[_source(session, index)] += session.messages[index].tokens
            else:
                new.add(index)
        for index in range(first, end):
            if index in new:
                filling[_source(session, index)] += session.messages[index].tokens
            yield Counter(filling)


def _source(session: Session, index: int) -> str:
    if index in session.summaries:
        return "summary"
    kind = span_kind(session.messages[index])
    return kind if kind in SOURCES else "assistant"
