"""How a session filled the model's context, message by message and by source, as HTML."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from html import escape

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


def filling_html(session: Session, moment: int, returning: Collection[int]) -> str:
    """Return columns with the tokens in context by source; those after a moment are paler.

    `returning` are the results that repeat what had left.
    """
    fillings = [*_fillings(session)]
    highest = max((sum(filling.values()) for filling in fillings), default=0) or 1
    width = -(-len(fillings) // MAX_COLUMNS)
    columns, bounds = list[str](), [*enumerate(session.bounds[1:-1], start=1)]
    for first in range(0, len(fillings), width):
        last = min(first + width, len(fillings)) - 1
        filling = fillings[last]
        marks = " later" if first > moment else ""
        marks += " now" if first <= moment <= last else ""
        marks += " back" if any(first <= index <= last for index in returning) else ""
        parts = "".join(
            f'<i class="{source}" style="height:{100 * filling[source] / highest:.2f}%"></i>'
            for source in SOURCES
            if filling[source]
        )
        number = next((row for row, bound in bounds if first <= bound <= last), 0)
        boundary = f"<b>{number}</b>" if number else ""
        title = f"message {last + 1}: {count(sum(filling.values()), 'token')}"
        columns.append(f'<span class="column{marks}" title="{title}">{boundary}{parts}</span>')
    label = escape(f"Tokens in context at each of {count(len(fillings), 'message')}, by source")
    present = Counter[str]()
    for filling in fillings:
        present |= filling
    legend = " ".join(
        f'<i class="{source}"></i>{name}' for source, name in SOURCES.items() if present[source]
    )
    boundaries = " <b>1</b>compaction" if bounds else ""
    boundaries += ' <i class="back"></i>repeats what had left' if returning else ""
    highest_words = f"highest: {count(highest, 'token')}"
    return (
        f'<div class="session-filling" role="img" aria-label="{label}">{"".join(columns)}</div>'
        f'<small class="session-sources">{legend}{boundaries}; {highest_words}</small>'
    )


def kinds_html(losses: Sequence[Counter[str]]) -> str:
    """Return bars of what compactions lost, by kind; each bar has a part for each compaction."""
    total = sum(losses, Counter[str]())
    most = max(total.values(), default=0) or 1
    rows = []
    for name, number in total.most_common():
        parts = "".join(
            f'<i style="width:{100 * kinds[name] / most:.1f}%" '
            f'title="compaction {place}: {kinds[name]}"></i>'
            for place, kinds in enumerate(losses, start=1)
        )
        rows.append(f"<span>{name}</span><span>{number}</span><div>{parts}</div>")
    title = "Values lost by all compactions, by kind"
    return f'<small>{title}</small><div class="session-kinds">{"".join(rows)}</div>' if rows else ""


def _fillings(session: Session) -> Iterator[Counter[str]]:
    """Yield the tokens in context by source, at each message in order."""
    for number, (first, end) in enumerate(zip(session.bounds, session.bounds[1:], strict=False)):
        context = session.contexts[number]
        stayed = [index for index in context if index < first]
        filling = Counter[str]()
        for index in stayed:
            filling[_source(session, index)] += session.messages[index].tokens
        new = {index for index in context if index >= first}
        for index in range(first, end):
            if index in new:
                filling[_source(session, index)] += session.messages[index].tokens
            yield Counter(filling)


def _source(session: Session, index: int) -> str:
    if index in session.summaries:
        return "summary"
    kind = span_kind(session.messages[index])
    return kind if kind in SOURCES else "assistant"
