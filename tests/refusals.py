"""How bad input is refused: by a ValueError of one sentence, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def assert_read_or_refused(read: Callable[[], Sequence[object]]) -> None:
    """Assert that something is read, or refused in one sentence; any other error passes on."""
    try:
        found = read()
    except ValueError as error:
        assert_one_sentence(error)
    else:
        assert len(found)


def assert_one_sentence(error: Exception) -> None:
    """Assert that an error is the project's own and says one sentence of readable length."""
    assert type(error) is ValueError
    sentence = str(error)
    assert sentence
    assert "\n" not in sentence
    assert len(sentence) < 400
