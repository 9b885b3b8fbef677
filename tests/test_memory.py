"""What is kept is measured with all that it holds, and leaves when others need the room."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fdkvc.ui.dialogs.files import DialogFile, read_dialog_file
from fdkvc.ui.kit.memory import Memory, size_of

MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(MEGABYTE, np.uint8),
        np.zeros((2, MEGABYTE // 2), np.uint8)[:, :1],
        {"deep": [("x" * MEGABYTE,)]},
        [np.zeros(MEGABYTE, np.uint8)] * 3,
        pd.DataFrame({"number": np.zeros(MEGABYTE // 8)}),
        DialogFile("a", "x" * MEGABYTE, ()),
    ],
    ids=["array", "view", "nested", "thrice the same", "table", "dataclass"],
)
def test_a_size_counts_all_that_is_held_and_each_of_it_once(value: object) -> None:
    assert size_of(value) == pytest.approx(MEGABYTE, rel=0.01)


def test_a_size_counts_no_code() -> None:
    assert size_of([DialogFile, np, size_of, np.sum]) < 1000


def test_what_was_used_the_longest_ago_leaves_first() -> None:
    memory: Memory[bytes] = Memory(3500)
    for key in "abc":
        memory.keep(key, bytes(1000))
    assert memory.find("a") is not None

    memory.keep("d", bytes(1000))

    assert [key for key in "abcd" if memory.find(key) is not None] == ["a", "c", "d"]
    assert memory.size <= memory.most


def test_the_last_one_stays_whatever_its_size_and_one_key_stands_for_one_value() -> None:
    memory: Memory[bytes] = Memory(3500)
    memory.keep("small", bytes(10))

    for _ in range(3):
        memory.keep("large", bytes(5000))

    assert memory.find("small") is None
    assert len(memory.find("large") or b"") == 5000
    assert memory.size == size_of(bytes(5000))

    memory.keep("small", bytes(10))
    assert memory.find("large") is None
    assert memory.size == size_of(bytes(10))


def test_many_files_take_no_more_than_their_bound() -> None:
    memory: Memory[DialogFile] = Memory(100_000)
    for number in range(30):
        text = "\n".join(f"User: file {number}, line {line}" for line in range(100))
        file = read_dialog_file(text.encode(), "said.txt")
        memory.keep((file.name, file.digest), file)

        assert memory.size <= memory.most
        assert memory.find((file.name, file.digest)) is file
