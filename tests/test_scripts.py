"""Words of any script: where they are cut, and that English ones are cut as ever."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.core.attention import word_id
from fdkvc.core.scripts import plain, same_spelling, word_count, word_pattern, word_spans
from fdkvc.core.token_traits import word_surprisal

CASES = {
    "我要去广州，4张票。": "我 要 去 广 州 ， 4 张 票 。",
    "Suicaで３駅": "Suica で ３ 駅",
    "バス": "バ ス",
    "대전에서 4명": "대 전 에 서 4 명",
    "ภูเก็ต": "ภู เ ก็ ต",
    "و٣ مقاعد": "و ٣ مقاعد",
    "पुणे से": "पुणे से",
    "от 5км": "от 5км",
    "cafe\u0301s, it's": "cafe\u0301s , it ' s",
}


@pytest.mark.parametrize("text", CASES)
def test_a_word_is_no_clause(text: str) -> None:
    assert [text[start:end] for start, end in word_spans(text)] == CASES[text].split()
    assert word_count(text) == len(CASES[text].split())


@given(st.text(st.sampled_from("去バ서ชีa٣\u0301é_4.，　 \n²ﾞ½👍\ufe0f\u200d")))
def test_words_cut_any_script_without_loss(text: str) -> None:
    assert "".join(text[start:end] for start, end in word_spans(text)) == "".join(text.split())


@given(st.text(st.characters(max_codepoint=0x2FF)), st.sampled_from("’—…€1\ufe0f\u20e3👍\u200d™"))
def test_english_is_cut_into_runs_of_letters_and_digits(text: str, mark: str) -> None:
    text = mark + text.replace("q", mark)
    expected = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
    assert word_spans(text) == expected
    foreign = word_pattern(r"\w+|[^\w\s]", True)
    assert [match.span() for match in foreign.finditer(text)] == expected


@given(st.text())
def test_a_plain_text_has_the_same_places_and_is_plain_already(text: str) -> None:
    assert len(plain(text)) == len(text)
    assert plain(plain(text)) == plain(text)
    assert same_spelling(same_spelling(text)) == same_spelling(text)


def test_marks_of_other_scripts_are_as_frequent_as_english_ones() -> None:
    assert word_surprisal("。") == word_surprisal(".") < word_surprisal("广")
    assert word_surprisal("Ｔｈｅ") == word_surprisal("the")
    assert word_id("广") != word_id("州")
