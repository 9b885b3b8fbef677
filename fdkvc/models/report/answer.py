"""A model's answer that fails, and what it writes once evicted words are restored."""

from html import escape
from itertools import zip_longest

from fdkvc.conversations.formats import EXAMPLES, read_transcripts
from fdkvc.core.words import count
from fdkvc.models.answer_causes import (
    GradedCall,
    Passages,
    Restoration,
    Span,
    changed_words,
    grade_call,
    restore_spans,
    turns_in_words,
    turns_of,
)
from fdkvc.models.numpy import BUNDLED
from fdkvc.models.numpy.chat import Chat
from fdkvc.models.numpy.language_model import load_language_model
from fdkvc.models.numpy.model_text import model_text
from fdkvc.models.numpy.text_cache import TextCache
from fdkvc.policies import policy_named
from fdkvc.runs.grid import html_table
from fdkvc.runs.page import css, page

EXAMPLE, TURN, POLICY, BUDGET = "evening.json", 15, "fifo", 48
"""A shipped dialog, the turn of its answer, and what the model's cache is under."""

VERSIONS = {"as_it_was": "original entries", "as_it_would_be": "recomputed entries"}
"""Labels of the two kinds of entries that a span can be restored with."""

SHOWN_CHARACTERS = 60
"""Characters shown of an argument."""


def right(restored: Restoration, text: str, expected: str) -> bool:
    """Whether a passage is the expected one."""
    return grade_call(text, expected).right if restored.writer == "call" else text == expected


def evicted_in(cache: TextCache, passages: Passages, span: Span) -> str:
    """Return the turns in which any head evicted a span, in words."""
    turns = turns_of(passages)
    evicted = cache.evicted_in[:, :, span.first : span.end]
    when = sorted({turns[passage] for passage in evicted[evicted >= 0].tolist()})
    return turns_in_words(when[0], when[-1])


def restored_html(
    cache: TextCache, passages: Passages, restored: Restoration, expected: str
) -> str:
    """Return what was written with nothing and with each span restored, as a table."""
    turns = turns_of(passages)
    nothing = _written(restored, restored.lost, expected)
    rows = [['<th scope="row">nothing</th>', f'<td colspan="2">{nothing}</td>']]
    for attempt in restored.attempts:
        span = attempt.spans[0]
        label, place = f"all {len(attempt.spans)}", ""
        if len(attempt.spans) == 1:
            label = span.text
            evicted = cache.evicted_in[:, :, span.first : span.end] >= 0
            place = (
                f"from turn {turns[span.passage]}, evicted in {evicted_in(cache, passages, span)} "
                f"from {int(evicted.any(axis=-1).sum())} of {evicted[:, :, 0].size} heads"
            )
        texts = (getattr(attempt, version) for version in VERSIONS)
        head = f'<th scope="row">{escape(label)}<small>{place}</small></th>'
        rows.append([head, *(f"<td>{_written(restored, text, expected)}</td>" for text in texts)])
    names = ["restored", *VERSIONS.values()]
    return html_table(names, rows, "Answers after restoring words", "scrolls back")


def _written(restored: Restoration, text: str, expected: str) -> str:
    if restored.writer == "call":
        return call_html(grade_call(text, expected))
    return words_html(text, expected.split())


def words_html(text: str, full: list[str], *, writing: bool = False) -> str:
    """Mark the words that differ from the full cache; while both are written, those up to now.

    The last word of each may then be incomplete, and the full cache may still write further ones.
    """
    words = text.split()
    compared = max(min(len(words), len(full)) - 1, 0) if writing else len(words)
    return " ".join(
        f"<mark>{escape(word)}</mark>" if changed else escape(word)
        for word, changed in zip_longest(words, changed_words(words[:compared], full))
    )


def call_html(call: GradedCall) -> str:
    """Return a call as chips that show whether each argument is right."""
    if not call.method:
        expected = escape(call.expected_method)
        return f'<div class="chips"><span class="unmet">✗ no call of {expected}</span></div>'
    wrong = f"not {call.expected_method}" if call.expected_method else "not expected"
    parts = [_chip(call.method, "" if call.method == call.expected_method else wrong)]
    for argument in call.arguments:
        if argument.written is None:
            parts.append(_chip(argument.slot, f"missing: {argument.expected}"))
        else:
            wrong = "not expected" if argument.expected is None else f"not {argument.expected}"
            text = f"{argument.slot} = {argument.written}"
            parts.append(_chip(text, "" if argument.right else wrong))
    return f'<div class="chips">{" ".join(parts)}</div>'


def _chip(written: str, wrong: str) -> str:
    cut = len(written) > SHOWN_CHARACTERS
    shown = escape(f"{written[: SHOWN_CHARACTERS - 1]}…" if cut else written)
    whole = escape(written)
    if not wrong:
        return f'<span class="met" title="{whole}">✓ {shown}</span>'
    return f'<span class="unmet" title="{whole}">✗ {shown} <i>{escape(wrong)}</i></span>'


def answer_page(title: str) -> str:
    """Return a page on the answer of the bundled model that fails, and what brings it back."""
    path, policy = EXAMPLES / EXAMPLE, policy_named(POLICY)
    model, said = load_language_model(BUNDLED), read_transcripts(path.read_bytes(), path.name)[0]
    chat = Chat(model, {POLICY: model.evicting(policy, BUDGET)})
    for passage in model_text(said):
        if passage.turn < TURN:
            chat.add_message(passage.text, passage.writer)
    cache, passages = chat.caches[POLICY], chat.passages[POLICY]
    restored = restore_spans(model, cache, passages, most=4)
    words = (
        f"“{chat.text(POLICY)}” asks the user in turn {TURN - 1} of “{said.name}”. A small "
        f"language model answers with the {count(BUDGET, 'entry', 'entries')} that {policy.title} "
        f"left of {cache.count} in each head, and then with evicted words restored. ✗ marks what "
        "differs from the answer with the full cache."
    )
    table = restored_html(cache, passages, restored, restored.full)
    body = f"<main><h1>{escape(title)}</h1><p>{escape(words)}</p>{table}</main>"
    return page(title, body, css("answer") + css("gallery"))
