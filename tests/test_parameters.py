"""Numbers that a person may choose: what is allowed, and how that is said."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.parameters import (
    Checked,
    Parameter,
    check_count,
    check_parameter,
    defaults_of,
    parameter,
    parameters_of,
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
        (Parameter("", "", low=0, high=1, open_high=True), float, "a number from 0 and below 1"),
        (
            Parameter("", "", low=0, high=0.5, open_low=True, open_high=True),
            float,
            "a number above 0 and below 0.5",
        ),
        (Parameter("", "", low=1, high=64), int, "a whole number from 1 to 64"),
        (Parameter("", "", low=0, high=2**31), int, "a whole number from 0 to 2147483648"),
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
    known = Parameter("", "", low=1, high=9)

    assert known.accepts(np.int32(9), int)
    assert not known.accepts(2.0, int)
    assert not known.accepts(True, int)


@given(st.floats(), st.floats(-5, 5), st.floats(0, 5), st.booleans(), st.booleans())
def test_the_ends_belong_to_a_range_unless_it_is_open(
    value: float, low: float, width: float, open_low: bool, open_high: bool
) -> None:
    high = low + width
    known = Parameter("", "", low=low, high=high, open_low=open_low, open_high=open_high)

    inside = low < value < high
    at_an_end = (value == low and not open_low) or (value == high and not open_high)
    both = value == low == high and (open_low or open_high)
    assert known.accepts(value, float) is ((inside or at_an_end) and not both)


def test_a_dataclass_lists_its_parameters_in_order() -> None:
    assert list(parameters_of(Example)) == ["share", "count", "word"]
    assert parameters_of(Example()) == parameters_of(Example)
    assert parameters_of(Example)["share"].label == "Share"
    assert defaults_of(Example) == {"share": 0.5, "count": 3, "word": "mean"}
    assert defaults_of(Example(share=0.1)) == defaults_of(Example)


@pytest.mark.parametrize(
    ("given_value", "sentence"),
    [
        ({"share": 0}, "share is 0, but must be a number above 0 and at most 1"),
        ({"share": math.nan}, "share is nan, but must be a number above 0 and at most 1"),
        ({"count": 10}, "count is 10, but must be a whole number from 1 to 9"),
        ({"count": 1.0}, "count is 1.0, but must be a whole number from 1 to 9"),
        ({"word": "max"}, "word is 'max', but must be one of mean, each"),
        ({"word": 1}, "word is 1, but must be one of mean, each"),
    ],
)
def test_a_checked_dataclass_refuses_in_one_sentence(
    given_value: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 the sentence is compared
        Example(**given_value)
    assert str(refusal.value) == sentence


def test_a_checked_dataclass_holds_plain_numbers() -> None:
    example = Example(share=np.float64(0.25), count=np.int64(2))  # type: ignore[arg-type]

    assert example == Example(share=0.25, count=2)
    assert (type(example.share), type(example.count)) == (float, int)
    assert type(Example(share=1).share) is float


@pytest.mark.parametrize("value", [0, -1, 1.0, "1", None, True, math.nan])
def test_a_count_is_a_whole_number(value: Any) -> None:
    check_count("dialogs", 1)
    check_count("seed", np.int64(0), low=0)
    with pytest.raises(
        ValueError, match=r"^dialogs is .*, but must be a whole number of at least 1"
    ):
        check_count("dialogs", value)


def test_a_value_is_checked_by_name() -> None:
    check_parameter("w", Parameter("", "", low=0), 0.0, float)
    with pytest.raises(ValueError, match=r"^w is -1, but must be a number of at least 0$"):
        check_parameter("w", Parameter("", "", low=0), -1, float)
