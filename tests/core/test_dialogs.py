"""Batches of dialogs: stacked, and a row alone."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from fdkvc.core.dialogs import DialogBatch, stack
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import World, custom_scenario
from tests.worlds import dialogs as some_dialogs
from tests.worlds import random_dialog

SMALL = World(tokens_per_turn=3, dimension=30, head_dimension=4)


def assert_same_dialogs(one: DialogBatch, other: DialogBatch) -> None:
    """Assert that two batches hold the same, and derive the same from it, to the last bit."""
    names = "embeddings keys values queries bounds turn_counts topic_bits current topics "
    names += "projections mean_embeddings mean_queries born in_turns topic_counts"
    for name in names.split():
        expected, actual = getattr(one, name), getattr(other, name)
        assert (expected is None) == (actual is None), name
        if expected is not None:
            np.testing.assert_array_equal(expected, actual, err_msg=name, strict=True)
    for product in ("logits", "similarities"):
        expected, actual = (batch.products(product, 0)[0] for batch in (one, other))
        np.testing.assert_array_equal(expected, actual, err_msg=product, strict=True)
    assert one.topic_names == other.topic_names


@given(some_dialogs(rows=4))
def test_a_row_of_a_stack_is_the_dialog_that_went_in(rows: list[DialogBatch]) -> None:
    batch = stack(rows)

    assert batch.rows == len(rows)
    assert batch.turns == max(row.turns for row in rows)
    for index, row in enumerate(rows):
        assert_same_dialogs(batch.row(index), row)


def test_stacks_can_be_stacked() -> None:
    rows = [random_dialog(seed, [seed + 1, 2]) for seed in range(4)]

    assert_same_dialogs(stack([stack(rows[:2]), stack(rows[2:])]), stack(rows))


def test_padding_belongs_to_no_turn() -> None:
    batch = stack([random_dialog(0, [2]), random_dialog(1, [1, 0, 4])])

    assert batch.bounds.tolist() == [[0, 2, 2, 2], [0, 1, 1, 5]]
    assert batch.turn_counts.tolist() == [1, 3]
    assert batch.in_turns.tolist() == [[True, False, False], [True, True, True]]
    assert batch.current[0, 1:].tolist() == [-1, -1]
    assert batch.new_tokens(0).tolist() == [[0, 1], [0, -1]]
    assert batch.new_tokens(2).tolist() == [[-1] * 4, [1, 2, 3, 4]]
    assert batch.turn_tokens == 4


def test_dialogs_that_do_not_belong_together_get_one_clear_sentence() -> None:
    one = generate(custom_scenario("AB"), world=SMALL)

    with pytest.raises(
        ValueError, match=r"differ in their topic names: \('A', 'C'\) and \('A', 'B'\)"
    ):
        stack([one, generate(custom_scenario("AC"), world=SMALL)])
    with pytest.raises(ValueError, match="embedding dimension: 31 and 30"):
        stack([one, generate(custom_scenario("AB"), world=World(dimension=31, head_dimension=4))])
    with pytest.raises(ValueError, match="head dimension: 5 and 4"):
        stack([one, generate(custom_scenario("AB"), world=World(dimension=30, head_dimension=5))])


OPTIONAL = [field.name for field in dataclasses.fields(DialogBatch) if field.default is None]


def with_everything(seed: int, lengths: list[int]) -> DialogBatch:
    """Return a dialog with every optional array."""
    random = np.random.default_rng(seed)
    dialog, tokens = random_dialog(seed, lengths), sum(lengths)
    dimension, head = dialog.embeddings.shape[2], dialog.keys.shape[2]
    return dataclasses.replace(
        dialog,
        positions=np.arange(tokens)[None] * 2,
        words=random.integers(9, size=(1, tokens)),
        kinds=random.integers(-1, 5, size=(1, tokens)),
        tools=random.integers(9, size=(1, tokens)),
        speakers=random.integers(3, size=(1, tokens)),
        topics=random.normal(size=(1, 8, dimension)).astype(np.float32),
        projections=random.normal(size=(3, 1, dimension, head)).astype(np.float32),
    )


def test_a_stack_keeps_every_optional_array() -> None:
    rows = [with_everything(0, [2, 3]), with_everything(1, [4])]

    for index, row in enumerate(rows):
        again = stack(rows).row(index)
        for name in OPTIONAL:
            np.testing.assert_array_equal(getattr(again, name), getattr(row, name), name)


@pytest.mark.parametrize("name", OPTIONAL)
def test_dialogs_of_which_only_some_have_an_array_are_refused_in_one_sentence(name: str) -> None:
    rows = [with_everything(0, [2, 3]), with_everything(1, [4])]
    without: dict[str, Any] = {name: None}
    for some in (
        [dataclasses.replace(rows[0], **without), rows[1]],
        [rows[0], dataclasses.replace(rows[1], **without)],
    ):
        with pytest.raises(ValueError, match=f"^some of the dialogs have {name}, others do not$"):
            stack(some)
