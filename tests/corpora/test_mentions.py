"""Mentions: where a value stands, and where it is only a part of something else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.corpora.mentions import MentionFinder
from fdkvc.corpora.transcripts import Mention
from fdkvc.limits import MAX_MENTIONS

TEXT = st.text(st.sampled_from("aB2é .:\nİ-"), max_size=12)


@given(st.lists(TEXT, min_size=1, max_size=4), TEXT, st.integers(0, 4))
def test_a_mention_is_the_wording_where_it_stands(
    texts: list[str], wording: str, before: int
) -> None:
    found = MentionFinder(texts).mentions([wording], before)

    assert list(found) == sorted(set(found))
    for mention in found:
        assert mention.turn < before
        text = texts[mention.turn][mention.start : mention.end]
        assert text.lower().split() == wording.lower().split() or "İ" in text


@given(st.lists(st.text(st.sampled_from("aB ,é"), max_size=12), min_size=1, max_size=4))
def test_words_are_found_as_a_regular_expression_finds_them(texts: list[str]) -> None:
    for wording in ("a", "ab", "a b", "a a"):
        pattern = rf"(?<!\w){wording}(?!\w)".replace(" ", r"\s+")
        expected = [
            Mention(turn, *found.span())
            for turn, text in enumerate(texts)
            for found in re.finditer(pattern, text, re.IGNORECASE)
        ]
        assert list(MentionFinder(texts).mentions([wording], len(texts))) == expected


@pytest.mark.parametrize(
    ("text", "wording", "found"),
    [
        ("at 2:30, for 2.", "2", [(13, 14)]),
        ("1,200 or 200", "200", [(9, 12)]),
        ("$96 a night", "$96", [(0, 3)]),
        ("96 euros (96)", "96", [(0, 2), (10, 12)]),
        ("New York, new york", "new  York", [(0, 8), (10, 18)]),
        ("New\n  York's", "new york", [(0, 10)]),
        ("5pm", "5", []),
        ("-5, .5, (5) or $5", "5", [(9, 10), (16, 17)]),
        ("10-5 or −5", "-5", []),
        ("−5 or 5", "5", [(6, 7)]),
        ("[12,34,5] and 12,345", "34", [(4, 6)]),
        ("[12,34,5] and 12,345", "12", [(1, 3)]),
        ("[12,34,5] and 12,345", "345", []),
        ("[50,-7]", "7", []),
        ("[12,3456]", "12", [(1, 3)]),
        ("HAT001-XL, X-HAT001, a HAT001.", "hat001", [(23, 29)]),
        ("from 2pm-3pm", "3pm", [(9, 12)]),
        ("A#W1-4 or #W1-4", "#W1-4", [(10, 15)]),
        ("a.jo@x.com, jo@x.com.au, jo@x.com", "jo@x.com", [(25, 33)]),
        ("foo_id, _id", "_id", [(8, 11)]),
        (r'{"note": "done\nParis"}', "Paris", [(16, 21)]),
        ("", "a", []),
        ("anything", "", []),
    ],
)
def test_what_is_within_another_word_number_or_id_is_no_mention(
    text: str, wording: str, found: list[tuple[int, int]]
) -> None:
    mentions = MentionFinder([text]).mentions([wording], 1)
    assert [(mention.start, mention.end) for mention in mentions] == found


def test_the_newest_mentions_before_the_turn_are_returned() -> None:
    turns = MAX_MENTIONS + 9
    finder = MentionFinder(["Rome"] * turns)

    for before in (turns, turns - 4):
        newest = range(before - MAX_MENTIONS, before)
        mentions = finder.mentions(["rome"], before)
        assert mentions == tuple(Mention(turn, 0, 4) for turn in newest)
