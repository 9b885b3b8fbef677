"""Why this answer: what a word attended to, and which of that was evicted."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from html import escape
from typing import Any

import pandas as pd
import streamlit as st

from fdkvc.core.transcripts import SPAN_KINDS
from fdkvc.core.words import percent
from fdkvc.models import answer_causes as causes
from fdkvc.models.page import choices
from fdkvc.models.page.conversation import FULL, Answered, answer_words
from fdkvc.models.report.answer import shown_words
from fdkvc.ui import fields
from fdkvc.ui.fields import held
from fdkvc.ui.frame import show_grid
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import Markdown, plain

EVICTED_WORDS = 8
"""Rows in the table of evicted words."""

PROMPT = -1
"""Stands for the model's own system prompt among the numbers of passages."""


def choose_answer(page: str, answered: Answered, *, evicting: bool = False) -> str:
    """Choose a cache; by default, the first whose answer is not the expected one."""
    titles = dict(answered.conversation.titles)
    if evicting:
        del titles[FULL]
    start = _first_other(answered, titles)
    if fields.is_new(f"{page}/look of", answered.conversation):
        fields.hold(page, choices.WHOSE, start)
    return choices.choose_cache(page, titles, start)


def keep_to_answers(page: str, answered: Answered, link: Mapping[str, str]) -> list[str]:
    """Keep the selection within the results; return a sentence for each wrong part of a link."""
    titles = answered.conversation.titles
    cache_field = replace(choices.WHOSE, choices=titles)
    wrong = fields.keep_to(page, cache_field, link, _first_other(answered, titles))
    name = held(page, cache_field)
    last = len(answer_words(answered, name)) - 1
    word = replace(choices.WORD, high=max(last, 0))
    start = _first_changed(answered, name)
    return wrong + fields.keep_to(page, word, link, start, " in this answer")


def _first_other(answered: Answered, titles: Mapping[str, str]) -> str:
    """Return the first policy without the expected calls or that loses a word, or the last one."""
    answers = answered.answers()
    lost = shown_words(answers)
    for name, answer in zip(answered.conversation.titles, answers, strict=True):
        keeps_words = all(answer.predicted[word].right for word in lost)
        if name != FULL and not (answered.as_expected(name) and keeps_words):
            return name
    return list(titles)[-1]


def show_why(page: str, answered: Answered) -> Mapping[str, pd.DataFrame]:
    """Show what a word attended to; return its table."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = choose_answer(page, answered)
        words = answer_words(answered, name)
        if not words:
            st.info("This answer is empty.")
            return {}
        word = words[_choose_word(page, answered, name, words)]
    table = _why(answered.chat, name, word)
    st.markdown(plain(_attention_sentence(answered, name, word, table)))
    st.html(_transcript(answered, name, word, table))
    evicted = table[table.evicted > 0]
    if len(evicted):
        readable = evicted.word.map(causes.is_readable)
        top_words = evicted[readable].nlargest(EVICTED_WORDS, "all_there")
        speakers = [*answered.speakers(name), SPAN_KINDS["system"]]
        places = top_words.passage
        places = places.where(top_words.end > answered.prompt_end, PROMPT)
        columns = _columns(top_words, [speakers[place] for place in places])
        show_grid(columns, "Evicted words that would have received attention")
    return {"why.csv": table}


_why = cached(causes.why_table)


def _choose_word(
    page: str, answered: Answered, name: str, words: tuple[causes.Word, ...]
) -> int:
    """Choose a word of the answer; by default, the first that differs from the full cache."""
    labels = {index: f"{index + 1} · {word.text}" for index, word in enumerate(words)}
    start = _first_changed(answered, name)
    if (
        fields.is_new(f"{page}/word of", (name, labels))
        or held(page, choices.WORD) not in labels
    ):
        fields.hold(page, choices.WORD, start)
    word = replace(choices.WORD, default=start, choices=labels)
    return int(fields.choice(page, word, width="content"))


def _first_changed(answered: Answered, name: str) -> int:
    """Return the first word that differs from the full cache, or else the middle one."""
    words = [word.text for word in answer_words(answered, name)]
    full = [word.text for word in answer_words(answered, FULL)]
    changed = causes.changed_words(words, full)
    return changed.index(True) if True in changed else len(words) // 2


def _attention_sentence(
    answered: Answered, name: str, word: causes.Word, table: pd.DataFrame
) -> Markdown:
    lost = table[table.evicted > 0]
    written_word = Markdown("*{}*").format(word.text)
    title = answered.conversation.titles[name]
    if name == FULL or lost.empty:
        return Markdown("Nothing was evicted before {} wrote {}.").format(title, written_word)
    # A readable word, if there is any.
    readable = lost.word.map(causes.is_readable)
    named_words = lost[readable] if readable.any() else lost
    top_word = named_words.nlargest(1, "all_there").iloc[0]
    eviction_turns = causes.turns_in_words(top_word.first_evicted_in, top_word.last_evicted_in)
    return Markdown(
        "{} wrote {}. With nothing evicted, {} of its attention would have gone to words that some "
        "head has evicted; they received {}. Of {}, *{}* from turn {} would have had most, {}: {} "
        "evicted it in {}, by the {}. *Restore evicted words* shows if it matters."
    ).format(
        title,
        written_word,
        percent(float(lost.all_there.sum())),
        percent(float(lost.attended.sum())),
        "content words" if readable.any() else "these",
        top_word.word,
        top_word.turn,
        percent(top_word.all_there, 1),
        _heads(top_word.evicted, top_word.heads),
        eviction_turns,
        top_word["rule"],
    )


def _heads(evicted: int, heads: int) -> str:
    """Say which heads evicted a word."""
    return "every attention head" if evicted == heads else f"{evicted} of {heads} KV heads"


def _columns(table: pd.DataFrame, speakers: list[str]) -> dict[str, list[str]]:
    columns = {
        "word": table.word.tolist(),
        "from turn": [*map(str, table.turn)],
        "of": speakers,
        "attention if cached": [percent(share, 1) for share in table.all_there],
        "actual attention": [percent(share, 1) for share in table.attended],
        "evicted in": [
            *map(causes.turns_in_words, table.first_evicted_in, table.last_evicted_in)
        ],
        "evicted by": [*map(_heads, table.evicted, table.heads)],
    }
    if table["rule"].nunique() > 1:  # the sentence above names the only one
        columns["rule"] = table["rule"].tolist()
    return columns


def _transcript(answered: Answered, name: str, word: causes.Word, table: pd.DataFrame) -> str:
    """Return the text up to a word, each word tinted by its attention."""
    speakers = answered.speakers(name)
    prompt = answered.prompt_end
    turns = causes.turns_of(answered.chat.passages[name])
    top = max(float(table[["attended", "all_there"]].max().max()), 1e-9)
    cells: dict[int, list[str]] = {}
    for row in table.to_dict("records"):
        place = row["passage"] if row["end"] > prompt else PROMPT
        cells.setdefault(place, []).append(_word_html(row, top))
    for later in answer_words(answered, name):
        if later.first >= word.first:
            tag, look = ("b", "chosen") if later == word else ("span", "after")
            html = f'<{tag} class="{look}">{escape(later.text)}</{tag}>'
            cells.setdefault(later.passage, []).append(html)
    # At the end of both lists, which `PROMPT`, −1, is the index of.
    turns = [*turns, 0]
    speakers = [*speakers, SPAN_KINDS["system"]]
    rows = ""
    for index, words in cells.items():
        look = " class=now" if index == word.passage else ""
        rows += (
            f'<tr{look}><th scope="row"><i>{turns[index]}</i> {speakers[index]}</th>'
            f"<td>{' '.join(words)}</td></tr>"
        )
    return (
        '<div class="passages-key"><span class="looked"><mark style="--share:.7">tinted</mark> '
        "attention received</span>"
        '<span class="looked passages"><s style="--share:.7">struck out</s> evicted before; the '
        "tint is the attention it would have received</span>"
        '<span class="looked passages"><s class="partly" style="--share:0">dotted</s> evicted from '
        "some heads</span></div>"
        '<div class="passages looked" tabindex="0" role="region" '
        f'aria-label="Attention behind the word"><table><tbody>{rows}</tbody></table></div>'
    )


def _word_html(row: Mapping[Hashable, Any], top: float) -> str:
    attended = row["attended"]
    all_there = row["all_there"]
    text = escape(row["word"])
    evicted = row["evicted"]
    # The tint of an evicted word is the attention that it would have received.
    share = (max(attended, all_there) if evicted else attended) / top
    if share < 0.01 and not evicted:
        return text
    title = f"{percent(attended, 1)} of the attention"
    if evicted:
        title += (
            f", {percent(all_there, 1)} if it were cached; evicted in "
            f"{causes.turns_in_words(row['first_evicted_in'], row['last_evicted_in'])} from "
            f"{_heads(evicted, row['heads'])}, by the {row['rule']}"
        )
    tag = "s" if evicted else "mark"
    partly = ' class="partly"' if 0 < evicted < row["heads"] else ""
    return f'<{tag}{partly} style="--share:{share:.2f}" title="{escape(title)}">{text}</{tag}>'
