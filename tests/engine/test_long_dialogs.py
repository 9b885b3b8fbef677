"""Long dialogs compute only what they need, in parts, and the same entries stay."""

import weakref

import numpy as np
import pytest

from fdkvc.conversations.lexical import lexical_recording
from fdkvc.core import attention, dialogs
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.recordings import stack_recordings
from fdkvc.engine.simulate import simulate, take_turn
from fdkvc.policies import POLICIES
from tests.examples import dialogs_of

BUDGET = 24
TRANSCRIPT = dialogs_of("dialogues")[0]


def dialog() -> DialogBatch:
    """Return a dialog that has computed nothing yet."""
    return lexical_recording(TRANSCRIPT).dialogs


WHOLE = dialog()


@pytest.fixture(params=[1, 700, 3000])
def in_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> DialogBatch:
    """Return the dialog, of whose products few numbers are computed at once."""
    assert request.param < WHOLE.turns * WHOLE.keys.shape[1]
    for module in (attention, dialogs):
        monkeypatch.setattr(module, "BLOCK", request.param)
    return dialog()


@pytest.mark.long
@pytest.mark.parametrize("key", POLICIES)
def test_the_same_entries_stay(in_parts: DialogBatch, key: str) -> None:
    whole = simulate(POLICIES[key](), WHOLE, BUDGET)
    parts = simulate(POLICIES[key](), in_parts, BUDGET)

    np.testing.assert_array_equal(parts.kept_tokens, whole.kept_tokens)
    np.testing.assert_allclose(parts.output, whole.output, rtol=1e-5, atol=1e-5)


def test_what_one_run_reads_stays_while_another_reads_the_same_dialog(
    in_parts: DialogBatch,
) -> None:
    for name in ("logits", "similarities"):
        products, _ = in_parts.products(name, in_parts.turns - 1)
        before = products.copy()
        in_parts.products(name, 0)
        np.testing.assert_array_equal(products, before)


def test_only_a_part_of_the_products_is_in_memory(in_parts: DialogBatch) -> None:
    for turn in range(in_parts.turns):
        products, index = in_parts.products("logits", turn)
        tokens = int(in_parts.bounds[0, turn + 1])
        assert products[0].size <= max(attention.BLOCK, in_parts.keys.shape[1] + 1)
        scale = np.sqrt(WHOLE.keys.shape[-1])
        expected = WHOLE.keys[0, :tokens] @ WHOLE.mean_queries[0, turn] / scale
        np.testing.assert_allclose(products[0, index, :tokens], expected, atol=1e-6)
        assert products[0, index, -1] == -np.inf


def test_repetition_is_the_largest_cosine_with_a_newer_token_of_the_turn(
    in_parts: DialogBatch,
) -> None:
    turn = in_parts.observe(5)
    token = np.concatenate([[0, 3, -1, 7], turn.new[0], [-1]])
    x = in_parts.embeddings[0].astype(float)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    expected = [
        max([unit[t] @ unit[new] for new in turn.new[0] if new > t] + [0.0]) if t >= 0 else 0
        for t in token
    ]
    np.testing.assert_allclose(turn.repetition(token[None])[0], expected, atol=1e-6)


def test_the_last_queries_alone_attend_as_among_all() -> None:
    recordings = [lexical_recording(transcript) for transcript in dialogs_of("dialogues")]
    turn = stack_recordings(recordings).observe(4)
    token = np.concatenate([np.arange(40) + 0 * turn.new[:, :1], turn.new], axis=1)
    count = turn.query_count
    assert count.max() > count.min()
    last = np.minimum(count, np.arange(1, len(count) + 1))[:, None]

    all_queries, last_queries = turn.attention_of_each(token), turn.attention_of_each(token, last)
    assert last_queries.shape == (len(count), last.max(), token.shape[1])
    for row, n in enumerate(count):
        expected = all_queries[row, n - last[row, 0] : n]
        np.testing.assert_array_equal(last_queries[row, : len(expected)], expected)
        assert not last_queries[row, len(expected) :].any()


@pytest.mark.parametrize("key", ["fd-kvc", "surprisal"])
def test_a_state_does_not_keep_the_one_before_alive(key: str) -> None:
    policy = POLICIES[key]()
    first = simulate(policy, WHOLE, BUDGET, entries=False, stop=1).end_state
    earlier = weakref.ref(first)
    last = take_turn(policy, first, WHOLE.observe(1), BUDGET).end_state
    del first

    assert earlier() is None
    assert last.attended.weights.shape == (1, BUDGET)
