"""User settings: allowed values and their messages."""

import dataclasses
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.core.parameters import (
    Checked,
    Field,
    Parameter,
    check_count,
    defaults_of,
    parameter,
    parameters_of,
    read_number,
    split_list,
)


@dataclasses.dataclass(frozen=True)
class Example(Checked):
    share: float = parameter(0.5, "Share", "A share.", low=0, high=1, open_low=True)
    count: int = parameter(3, "Count", "A count.", low=1, high=9)
    word: str = parameter("mean", "Word", "A word.", choices=("mean", "each"))
    note: str = "not a parameter"


@pytest.mark.parametrize(
    ("known", "kind", "words"),
    [
        (Parameter("", "", low=0, high=1), float, "a number from 0 to 1"),
        (Parameter("", "", low=0, high=1, open_low=True), float, "a number above 0 and at most 1"),
        (
            Parameter("", "", low=0, high=1, open_high=True),
            float,
            "a number of at least 0 and below 1",
        ),
        (
            Parameter("", "", low=0, high=0.5, open_low=True, open_high=True),
            float,
            "a number above 0 and below 0.5",
        ),
        (Parameter("", "", low=1, high=64), int, "a whole number from 1 to 64"),
        (Parameter("", "", low=0, high=2**31), int, "a whole number from 0 to 2,147,483,648"),
        (Parameter("", "", low=1), int, "a whole number of at least 1"),
        (Parameter("", "", low=0, open_low=True), float, "a number above 0"),
        (Parameter("", "", choices=("mean", "each")), str, "one of mean, each"),
    ],
)
def test_what_is_allowed_is_said_in_words(known: Parameter, kind: type, words: str) -> None:
    assert known.allowed(kind) == words


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        (0, True),
        (1, True),
        (0.5, True),
        (np.float32(0.5), True),
        (np.int64(1), True),
        (-1e-9, False),
        (1 + 1e-9, False),
        (math.nan, False),
        (np.float64("nan"), False),
        (math.inf, False),
        (True, False),
        (np.True_, False),
        ("0.5", False),
        (None, False),
        (0.5j, False),
        ([0.5], False),
        (np.array([0.5]), False),
    ],
)
def test_a_number_in_the_range_is_accepted(value: Any, accepted: bool) -> None:
    assert Parameter("", "", low=0, high=1).accepts(value, float) is accepted


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_no_range_is_so_wide_that_it_holds_infinity(value: float) -> None:
    assert not Parameter("", "").accepts(value, float)


def test_a_whole_number_is_asked_for_where_the_default_is_one() -> None:
    parameter = Parameter("", "", low=1, high=9)

    assert parameter.accepts(np.int32(9), int)
    assert not parameter.accepts(2.0, int)
    assert not parameter.accepts(True, int)


@given(st.floats(), st.floats(-5, 5), st.floats(0, 5), st.booleans(), st.booleans())
def test_the_ends_belong_to_a_range_unless_it_is_open(
    value: float, low: float, width: float, open_low: bool, open_high: bool
) -> None:
    high = low + width
    parameter = Parameter("", "", low=low, high=high, open_low=open_low, open_high=open_high)

    inside = low < value < high
    at_an_end = (value == low and not open_low) or (value == high and not open_high)
    at_both_ends = value == low == high and (open_low or open_high)
    assert parameter.accepts(value, float) is ((inside or at_an_end) and not at_both_ends)


def test_a_dataclass_lists_its_parameters_in_order() -> None:
    assert list(parameters_of(Example)) == ["share", "count", "word"]
    assert parameters_of(Example()) == parameters_of(Example)
    assert parameters_of(Example)["share"].label == "Share"
    assert defaults_of(Example) == {"share": 0.5, "count": 3, "word": "mean"}
    assert defaults_of(Example(share=0.1)) == defaults_of(Example)


def test_a_checked_dataclass_holds_plain_numbers() -> None:
    example = Example(share=np.float64(0.25), count=np.int64(2))  # type: ignore[arg-type]

    assert example == Example(share=0.25, count=2)
    assert (type(example.share), type(example.count)) == (float, int)
    assert type(Example(share=1).share) is float


@pytest.mark.parametrize("value", [0, -1, 1.0, "1", None, True, math.nan])
def test_a_count_is_a_whole_number(value: Any) -> None:
    check_count("dialogs", 1)
    check_count("seed", np.int64(0), low=0)
    with pytest.raises(ValueError, match=r"^dialogs is .*, but must .* at least 1"):
        check_count("dialogs", value)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", [""]),
        ("a,b", ["a", "b"]),
        ("a(b,c),d", ["a(b,c)", "d"]),
        ("a(b(c),d(e,f),g),h", ["a(b(c),d(e,f),g)", "h"]),
        ("a),b", ["a)", "b"]),
        (",", ["", ""]),
    ],
)
def test_a_list_is_split_at_the_commas_outside_of_parentheses(text: str, parts: list[str]) -> None:
    assert split_list(text) == parts


@given(st.text("a,()", max_size=12))
def test_the_parts_of_a_list_make_it_up_and_have_no_comma_of_their_own(text: str) -> None:
    parts = split_list(text)

    assert ",".join(parts) == text
    for part in parts:
        outside = part
        while (inner := re.sub(r"\([^()]*\)", "", outside)) != outside:
            outside = inner
        assert "," not in outside.partition("(")[0]


@pytest.mark.parametrize("text", ["0", "-7", "+3", "0.5", ".5", "5.", "1e3", "2.5E-4", "00012"])
def test_a_number_is_read_as_python_reads_it(text: str) -> None:
    assert read_number(text) == float(text)


NO_NUMBERS = "1_000 ٣ １２ 0x10 inf -inf nan 1e e3 . 1,5 --1 1e3.0 ² ½"


@pytest.mark.parametrize("text", ["", " 1", "1 ", "1\n", *NO_NUMBERS.split()])
def test_other_texts_are_no_numbers(text: str) -> None:
    assert read_number(text) == text
    assert read_number(text, int) == text


def test_a_whole_number_has_digits_alone() -> None:
    assert [read_number(text, int) for text in ("12", "-3")] == [12, -3]
    for text in ("1.0", "1e3", "9" * 5_000):
        assert read_number(text, int) == text


def test_a_long_value_of_a_link_is_refused_before_it_is_read() -> None:
    def never(text: str) -> str:
        raise AssertionError(text)

    several = Field("Policies", "", name="policies", default=("fifo",), read=never)
    with pytest.raises(ValueError, match=r"^Policies has 10,001 characters, but at most"):
        several.parse("a" * 10_001)
