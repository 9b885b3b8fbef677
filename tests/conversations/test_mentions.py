"""Mentions: where a value stands, and where it is only a part of something else."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.conversations.mentions import MentionFinder, wordings_of
from fdkvc.core.limits import MAX_MENTIONS
from fdkvc.core.transcripts import Mention
from tests.growth import LINEAR, growth

TEXT = st.text(st.sampled_from("aB2é .:\nİ-"), max_size=12)


@given(st.lists(TEXT, min_size=1, max_size=4), TEXT, st.integers(0, 4))
def test_a_mention_is_the_wording_where_it_stands(
    texts: list[str], wording: str, before: int
) -> None:
    mentions = MentionFinder(texts).mentions([wording], before)

    assert list(mentions) == sorted(set(mentions))
    for mention in mentions:
        assert mention.turn < before
        text = texts[mention.turn][mention.start : mention.end]
        assert text.lower().split() == wording.lower().split() or "İ" in text


@given(st.lists(st.text(st.sampled_from("aB ,\\nA"), max_size=24), min_size=1, max_size=4))
def test_words_are_found_as_a_regular_expression_finds_them(texts: list[str]) -> None:
    finder = MentionFinder(texts)
    for wording in ("a", "ab", "a b", "a a", "na", r"a\na", "a,", ",,"):
        escaped = re.escape(wording).replace(r"\ ", r"\s+")
        pattern = rf"(?:(?<!\w)|(?<=\\n))(?=({escaped})(?!\w))"
        for before in range(len(texts) + 1):
            expected = [
                Mention(turn, *match.span(1))
                for turn, text in enumerate(texts[:before])
                for match in re.finditer(pattern, text, re.IGNORECASE)
            ]
            assert list(finder.mentions([wording], before)) == expected[-MAX_MENTIONS:]


HAN = st.text(st.sampled_from("北京上a3，ー"), max_size=16)


@given(st.lists(HAN, min_size=1, max_size=3), st.text(st.sampled_from("北京上"), min_size=1))
def test_without_spaces_a_wording_is_found_wherever_it_stands(
    texts: list[str], wording: str
) -> None:
    expected = [
        Mention(turn, start, start + len(wording))
        for turn, text in enumerate(texts)
        for start in range(len(text))
        if text.startswith(wording, start)
    ]
    assert list(MentionFinder(texts).mentions([wording], len(texts))) == expected


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("帮我订明晚去广州的车，要4张", "广州", ["广州"]),
        ("帮我订明晚去广州的车，要4张", "4", ["4"]),
        ("共14张", "4", []),
        ("京都の宿を、大人２名と子供１名で", "2", ["２"]),
        ("ﾊﾞｽで行く", "バス", ["ﾊﾞｽ"]),
        ("会費は３，２００円", "3200", ["３，２００"]),
        ("先要3，200元以内的", "3", ["3"]),
        ("晚上8：15出发", "8", []),
        ("晚上8：15出发", "8:15", ["8：15"]),
        ("最低-6度", "-6", ["-6"]),
        ("房号B12-今天", "B12", ["B12"]),
        ("写给mo@x.org。", "mo@x.org", ["mo@x.org"]),
        ("대전에서 광주로 KTX를 2명", "광주", ["광주"]),
        ("대전에서 광주로 KTX를 2명", "ktx", ["KTX"]),
        ("대전에서 광주로 KTX를 2명", "2", ["2"]),
        ("남대전 말고", "대전", []),
        ("\u1103\u1162\u110c\u1165\u11ab\u110b\u1166", "대전", ["\u1103\u1162\u110c\u1165\u11ab"]),
        ("จองห้องที่ภูเก็ต๒คืน", "ภูเก็ต", ["ภูเก็ต"]),
        ("จองห้องที่ภูเก็ต๒คืน", "2", ["๒"]),
        ("ม้า", "มา", []),
        ("غرفة لـ٢ و٤ ليال، ٢٫٥ كم", "4", ["٤"]),
        ("غرفة لـ٢ و٤ ليال، ٢٫٥ كم", "2.5", ["٢٫٥"]),
        ("غرفة لـ٢ و٤ ليال، ٢٫٥ كم", "5", []),
        ("५ टिकट", "5", ["५"]),
        ("5 tickets", "५", ["5"]),
        ("पुणे से", "पु", []),
        ("a cafe\u0301", "café", ["cafe\u0301"]),
        ("a cafe\u0301", "cafe", []),
        ("ＲＯＯＭ　７", "room 7", ["ＲＯＯＭ　７"]),
        ("10² m, 1½ or ③", "102", []),
        ("10² m, 1½ or ③", "3", []),
        (r'{"to": "\u53bb\u5e7f\u5dde4\u5929"}', "广州", [r"\u5e7f\u5dde"]),
        (r'{"to": "\u53bb\u5e7f\u5dde4\u5929"}', "4", ["4"]),
        (r"\\u5e7f\\u5dde", "广州", [r"\\u5e7f\\u5dde"]),
        (r"\ud83d\ude82 Zo\u00eb", "zoë", [r"Zo\u00eb"]),
    ],
)
def test_a_value_is_found_where_it_stands_in_any_script(
    text: str, value: str, expected: list[str]
) -> None:
    mentions = MentionFinder([text]).mentions(wordings_of(value), 1)
    assert [text[mention.start : mention.end] for mention in mentions] == expected


WORST: dict[str, Callable[[int], tuple[str, list[str]]]] = {
    "letters": lambda n: ("a" * (1400 * n), ["a" * (2 + at) for at in range(n)]),
    "words": lambda n: ("a " * (100 * n), [("a " * (1 + at)).strip() for at in range(n)]),
    "rarely whole": lambda n: ("1." * (24 * n), [("1." * (1 + at)) + "1" for at in range(n)]),
    "one value": lambda n: ("a " * (80 * n), ["a"] * (10 * n)),
    "two words": lambda n: (
        " ".join(f"{at:015b}"[-at % 7 :].replace("", " ") for at in range(7 * n)),
        [" ".join(f"{at:012b}") for at in range(10 * n)],
    ),
    "numbers": lambda n: ("2:2.0:2.00:" * (8 * n), ["2"] * (10 * n)),
    "escaped": lambda n: (r'é"a é\"a \u00e9\"a é\\\"a \\u00e9\\\"a ' * (4 * n), ['é"'] * (10 * n)),
    "long": lambda n: (
        "a b " * (40 * n),
        [("a b " * (n // 4)).strip() + f" c{at}" for at in range(10 * n)],
    ),
    "backslashes": lambda n: ("\\" * (40 * n) + "ud83d", ["\\" * 90 + "u53bb"] * (10 * n)),
    "without spaces": lambda n: ("去3" * (40 * n), ["去"] * (10 * n)),
    "accents": lambda n: ("a" + "\u0301\u0323" * (600 * n), ["á"] * 9),
}
"""The text of a turn, and the values that a later one needs: so many times as many of each."""


@pytest.mark.long
@pytest.mark.parametrize("case", WORST)
def test_more_values_in_longer_texts_take_linear_time(case: str) -> None:
    def find(text_and_values: tuple[str, list[str]]) -> list[tuple[Mention, ...]]:
        text, values = text_and_values
        finder = MentionFinder([text] * 3)
        return [finder.mentions(wordings_of(value), 3) for value in values]

    assert len(find(WORST[case](25))[0]) <= MAX_MENTIONS
    assert growth(find, WORST[case], 12) < LINEAR


@pytest.mark.parametrize(
    ("text", "wording", "expected"),
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
        ("[12,3456]", "3456", [(4, 8)]),
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
    text: str, wording: str, expected: list[tuple[int, int]]
) -> None:
    mentions = MentionFinder([text]).mentions([wording], 1)
    assert [(mention.start, mention.end) for mention in mentions] == expected


def test_the_newest_mentions_before_the_turn_are_returned() -> None:
    turns = MAX_MENTIONS + 9
    finder = MentionFinder(["Rome"] * turns)

    for before in (turns - 4, turns, turns - 4):
        newest = range(before - MAX_MENTIONS, before)
        mentions = finder.mentions(["rome"], before)
        assert mentions == tuple(Mention(turn, 0, 4) for turn in newest)
