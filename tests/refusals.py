"""Bad input raises a ValueError of one sentence, and nothing else."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import strategies as st


def assert_read_or_refused(read: Callable[[], Sequence[object]]) -> None:
    """Assert that input is read or rejected in one sentence; any other error propagates."""
    try:
        contents = read()
    except ValueError as error:
        assert_one_sentence(error)
    else:
        assert len(contents)


def assert_one_sentence(error: Exception) -> None:
    """Assert that an error is the project's own, in one sentence of readable length."""
    assert type(error) is ValueError
    sentence = str(error)
    assert sentence
    assert "\n" not in sentence
    assert len(sentence) < 400


@contextmanager
def refused(pattern: str) -> Iterator[pytest.ExceptionInfo[ValueError]]:
    """Expect a refusal in one sentence that has this pattern."""
    with pytest.raises(ValueError, match=pattern) as caught:
        yield caught
    assert_one_sentence(caught.value)


def any_json(*names: str) -> st.SearchStrategy[Any]:
    """Return JSON values whose objects have some of these names."""
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(names), inner, max_size=4)
        ),
        max_leaves=12,
    )
