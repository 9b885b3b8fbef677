"""A model's answer that fails, and what it writes once evicted words are restored."""

from collections.abc import Sequence
from html import escape
from re import search

from fdkvc.charts.theme import hue_of
from fdkvc.core.words import all_of, clipped, listed
from fdkvc.models.answer_causes import (
    PUNCTUATION,
    Attempt,
    GradedArgument,
    GradedCall,
    Restoration,
    changed_words,
    grade_call,
    turns_in_words,
)
from fdkvc.models.cache_answers import CacheAnswer
from fdkvc.runs.grid import html_table

LOOPED = "Stopped: the model repeats itself."
"""The note on an answer that was stopped because it repeats itself."""

SHOWN_WORDS = 6
"""Most words whose predictions are shown."""

SHOWN_CHARACTERS = 60
"""Most characters that are shown of an argument."""


def restored_html(restored: Restoration, expected: str, *, by_full: bool) -> str:
    """Return what was written with nothing and with each span restored, as a table.

    `by_full` says whether the expected text is the full cache's.
    """
    nothing = Attempt((), restored.lost)
    same: list[Attempt] = []
    others: list[Attempt] = []
    for attempt in restored.attempts:
        changes = len(attempt.spans) > 1 or attempt.written != restored.lost
        (others if changes else same).append(attempt)
    same_words = [f"“{row.spans[0].text}” (turn {row.spans[0].turn})" for row in same]
    rows = []
    for attempt in (nothing, *others):
        label = f"all {len(attempt.spans)}"
        place = ""
        if not attempt.spans:
            label = "nothing"
            place = f"the same with {listed(same_words)}" if same else ""
        elif len(attempt.spans) == 1:
            (span,) = attempt.spans
            label = span.text
            evicting, heads = span.evicted
            who = f"{evicting} of {heads} heads" if evicting < heads else all_of(heads, "head")
            place = (
                f"from {'the call in ' if span.in_call else ''}turn {span.turn}, evicted by "
                f"{who} in {turns_in_words(*span.evicted_in)}"
            )
        head = f'<th scope="row">{escape(label)}<small>{escape(place)}</small></th>'
        rows.append(
            [head, f"<td>{_written(restored, attempt.written, expected, by_full)}</td>"]
        )
    return html_table(
        ["restored", "written with it"], rows, "Answers after restoring words", "scrolls back"
    )


def _written(restored: Restoration, text: str, expected: str, by_full: bool) -> str:
    if restored.writer == "call":
        return call_html(grade_call(text, expected, by_full=by_full))
    mark, sign = ("met", "✓") if restored.undone(text, expected) else ("unmet", "✗")
    word = escape(restored.written_word(text) or restored.word)
    chip = f'<div class="chips"><span class="{mark}">{sign} {word}</span></div>'
    return (chip if restored.word else "") + words_html(text, expected.split())


def words_html(text: str, full: list[str], *, writing: bool = False) -> str:
    """Mark the words that differ from the full cache's.

    While both are being written, only as many words are compared as both have, without the last
    one, which may be incomplete.
    """
    words = text.split()
    compared = max(min(len(words), len(full)) - 1, 0) if writing else len(words)
    html = [*map(escape, words)]
    for place, changed in enumerate(changed_words(words[:compared], full)):
        if changed:
            html[place] = f"<mark>{html[place]}</mark>"
    return " ".join(html)


def answers_html(answers: Sequence[CacheAnswer], *, writing: bool = False) -> str:
    """Return a column for each cache, the full one first; unfinished answers are not graded."""
    full = answers[0]
    columns = ""
    words: dict[str, list[str]] = {writer: text.split() for writer, text in full.passages}
    compared = full.as_expected  # a reference that failed is none: then no word is marked
    for answer in answers:
        parts = "".join(map(call_html, answer.calls))
        chips = []
        for index in shown_words(answers):
            word = answer.predicted[index]
            difference = "" if word.right else f"instead: {word.instead or '(end)'}"
            chips.append(_chip(word.text, difference))
        if chips:
            parts += "<small>after the same words, it predicts:</small>"
            parts += f'<div class="chips">{" ".join(chips)}</div>'
            parts += "<small>by itself, it writes:</small>"
        for writer, text in answer.passages:
            if writer != "call":
                expected = words.get(writer, []) if compared else text.split()
                parts += f"<p>{words_html(text, expected, writing=writing)}</p>"
            elif not answer.calls:
                parts += f'<div class="chips"><span>{escape(text)}</span></div>'
        if answer.note:
            parts += f"<small>{escape(answer.note)}</small>"
        columns += (
            f'<section aria-label="{escape(answer.title)}">'
            f"<b{hue_of(answer.title)}>{escape(answer.title)}</b> "
            f"<small>{answer.held:,} of {answer.count:,} tokens kept</small>{parts}</section>"
        )
    return f'<div class="answers">{columns}</div>'


def _lost(answers: Sequence[CacheAnswer], index: int) -> list[str]:
    """Return the titles of the caches that do not predict a word."""
    return [answer.title for answer in answers if not answer.predicted[index].right]


def _loss(answers: Sequence[CacheAnswer], index: int) -> tuple[int, int]:
    """Return how many caches lose a word after they had evicted it, and how many lose it at all."""
    words = [answer.predicted[index] for answer in answers]
    lost = [word.evicted for word in words if not word.right]
    return sum(lost), len(lost)


def shown_words(answers: Sequence[CacheAnswer]) -> list[int]:
    """Return the words that the full cache predicts and another does not, in the order of the text.

    Of many, those that most caches lose, evicted ones first.
    """
    right = [index for index, word in enumerate(answers[0].predicted) if word.right]
    lost = [index for index in right if _lost(answers, index)]
    most_lost = sorted(lost, key=lambda index: _loss(answers, index), reverse=True)
    return sorted(most_lost[:SHOWN_WORDS])


def repeats_itself(answer: CacheAnswer) -> bool:
    """Whether an answer was stopped for that, or says three words or more twice in a row."""
    words = " ".join(text for _, text in answer.passages).split()
    twice = r"(?<!\S)(\S+(?: \S+){2,}) \1(?!\S)"
    return answer.note == LOOPED or bool(search(twice, " ".join(words)))


def headline(answers: Sequence[CacheAnswer], *, by_full: bool = False) -> str:
    """Say which caches make the expected call, or else which predict a word of a text.

    That is the true text, or if `by_full` the full cache's, with which others agree or do not.
    """
    comparison = _comparison(answers, by_full)
    if by_full and not answers[0].calls and repeats_itself(answers[0]):
        return f"{REPEATS} {comparison}"
    return comparison


REPEATS = "The full cache does not answer well either: it repeats itself."
"""Begins a headline that compares with such an answer."""


def _comparison(answers: Sequence[CacheAnswer], by_full: bool) -> str:
    full = answers[0]
    titles = ["the full cache", *(answer.title for answer in answers[1:])]
    text = "the full cache's answer" if by_full else "the true answer"
    calling = [answer.title for answer in answers[1:] if _calls(answer)]
    if by_full and calling and not _calls(full):
        others = f"{listed(calling)} {'do' if len(calling) > 1 else 'does'}"
        return f"Nothing to compare with here: the full cache makes no call, but {others}"
    if full.calls and full.as_expected:
        return _calls_sentence(answers, titles)
    right = [index for index, predicted in enumerate(full.predicted) if predicted.right]
    full_text = text + ("" if by_full else " that the full cache predicts")
    words = shown_words(answers)
    if words:
        word = max(words, key=lambda index: _loss(answers, index))
        lost = _lost(answers, word)
        if all({*_lost(answers, index)} <= {*lost} for index in words):
            predicting = [title for title in titles if title not in lost]
            value = f"“{full.predicted[word].text.strip(PUNCTUATION)}” in {text}"
            return f"{value}: predicted with {listed(predicting)}; lost with {listed(lost)}"
        by_count: dict[int, list[str]] = {}
        for answer in answers[1:]:
            number = sum(not answer.predicted[index].right for index in right)
            by_count.setdefault(number, []).append(answer.title)
        losses = [
            f"{number or 'none'} with {listed(names)}"
            for number, names in sorted(by_count.items())
        ]
        return f"Lost of the {len(right)} content words of {full_text}: {', '.join(losses)}"
    if right and all(answer.held == full.count for answer in answers):
        return "Nothing was evicted before this answer: every cache has all that came before"
    if right:
        all_words = f"{all_of(len(right), 'content word')} of {full_text}"
        return f"With every cache, the model still predicts {all_words}"
    if by_full:
        return "The full cache's answer has no content word: nothing to compare"
    return f"The full cache predicts no word of {text}: nothing to compare with"


def _calls(answer: CacheAnswer) -> bool:
    return any(writer == "call" for writer, _ in answer.passages)


def _calls_sentence(answers: Sequence[CacheAnswer], titles: Sequence[str]) -> str:
    """Say which caches make the expected calls."""
    first_call, *more_calls = answers[0].calls
    by_full = first_call.by_full
    compared = [*zip(titles, answers, strict=True)][by_full:]
    same = [title for title, answer in compared if answer.as_expected]
    different = [title for title, answer in compared if not answer.as_expected]
    made = (
        f"the same call{'s' if more_calls else ''} as "
        f"{'the full cache' if by_full else 'in the dialog'}"
    )
    parts = []
    if same:
        parts.append(f"{listed(same)} make{'s' if len(same) == 1 else ''} {made}")
    if different:
        negation = "does not" if len(different) == 1 else "do not"
        parts.append(f"{listed(different)} {negation}" + ("" if same else f" make {made}"))
    values = [argument.expected for argument in first_call.arguments if argument.expected]
    call = clipped(f"{first_call.expected_method}({', '.join(values)})", SHOWN_CHARACTERS)
    return f"{call}: {'; '.join(parts) or 'there is no other cache'}"


def call_html(call: GradedCall) -> str:
    """Return a call as chips that show whether each argument is the expected one."""
    if not call.method:
        chips = [_chip(f"no call of {call.expected_method}", None, call.by_full)]
        return f'<div class="chips">{chips[0]}</div>'
    method = GradedArgument("", call.method, call.expected_method or None)
    chips = []
    for argument in (method, *call.arguments):
        text = f"{argument.slot} = {argument.written}".removeprefix(" = ")
        difference = f"not {argument.expected}"
        if argument.written is None:
            text = argument.slot
            difference = f"missing: {argument.expected}"
        elif argument.expected is None:
            difference = "not expected"
        chips.append(_chip(text, "" if argument.as_expected else difference, call.by_full))
    return f'<div class="chips">{" ".join(chips)}</div>'


def _chip(text: str, difference: str | None, by_full: bool = False) -> str:
    """Return what was written, and its difference; empty for none, None if there is nothing."""
    short_text = escape(clipped(text, SHOWN_CHARACTERS))
    if difference == "":
        kind, sign = ("same", "=") if by_full else ("met", "✓")
        return f'<span class="{kind}" title="{escape(text)}">{sign} {short_text}</span>'
    sign = "≠" if by_full else "✗"
    note = f" <i>{escape(difference)}</i>" if difference else ""
    return f'<span class="unmet" title="{escape(text)}">{sign} {short_text}{note}</span>'
