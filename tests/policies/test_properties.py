"""What holds for every policy, whatever its hyperparameters, the budget and the dialogs."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.core.attention import entry_sum, softmax
from fdkvc.core.dialogs import DialogBatch, stack
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Rule, Status, Trace
from fdkvc.policies import POLICIES, Policy, policy_named
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS, World
from tests.worlds import (
    EVICTING,
    all_entries,
    assert_same_run,
    assert_same_state,
    by_token,
    columns,
    evictions,
    kept_tokens,
    live,
    policies,
    ragged,
)

budgets = st.integers(1, 24) | st.sampled_from([56, 130, 200])


@given(policies(), ragged(), budgets)
def test_every_turn_of_a_run_keeps_the_promises(
    policy: Policy, batch: DialogBatch, budget: int
) -> None:
    trace = simulate(policy, batch, budget)

    kept_tokens_are_older_first_within_the_budget(trace, batch, policy, budget)
    every_entry_is_kept_or_evicted_by_a_rule(trace, batch, policy, budget)
    no_protected_or_better_entry_is_evicted(trace, batch, budget)
    attention_is_a_distribution_over_the_kept_entries(trace)
    the_output_is_the_values_weighted_by_attention(trace, batch)
    numbers_are_recorded_where_they_apply(trace, batch)
    the_rank_orders_by_score_and_then_by_age(trace, batch)


def kept_tokens_are_older_first_within_the_budget(
    trace: Trace, batch: DialogBatch, policy: Policy, budget: int
) -> None:
    for row in range(batch.rows):
        for turn in range(batch.turns):
            kept = kept_tokens(trace, row, turn)
            assert len(kept) <= policy.capacity(budget, int(batch.bounds[row, turn + 1]))
            assert kept == sorted(set(kept))
            assert all(0 <= token < batch.bounds[row, turn + 1] for token in kept)


def every_entry_is_kept_or_evicted_by_a_rule(
    trace: Trace, batch: DialogBatch, policy: Policy, budget: int
) -> None:
    entries = all_entries(trace)
    for row in range(batch.rows):
        cached: list[int] = []
        for turn in range(batch.turns):
            token = entries.token[row, turn]
            status, rule = entries.status[row, turn], entries.rule[row, turn]
            new = [int(index) for index in batch.new_tokens(turn)[row] if index >= 0]
            rules = evictions(entries, row, turn)
            kept = kept_tokens(trace, row, turn)

            assert sorted([*cached, *new]) == sorted([*kept, *rules])
            assert token[status != Status.empty].tolist() == [*cached, *new]
            assert token[status == Status.kept].tolist() == [
                index for index in kept if index in cached
            ]
            assert token[status == Status.new].tolist() == [index for index in kept if index in new]
            assert (token[status == Status.empty] == -1).all()
            evicted = (status == Status.evicted) | (status == Status.new_evicted)
            np.testing.assert_array_equal(evicted, rule != Rule.none)
            assert set(token[status == Status.new_evicted]) <= set(new)
            for name in ("budget", "threshold"):
                assert trace.evicted[name][row, turn] == list(rules.values()).count(name)
            if rules and "threshold" not in rules.values():  # a context shift makes more room
                budgets = policy.budgets(budget, batch.observe(turn))
                places = np.broadcast_to(budgets, (batch.rows, 1))[row, 0]
                # Messages leave as a whole, so fewer entries than there are places may stay.
                assert len(kept) <= places if policy.page_size != 1 else len(kept) == places
            cached = kept


def no_protected_or_better_entry_is_evicted(trace: Trace, batch: DialogBatch, budget: int) -> None:
    entries = all_entries(trace)
    by_budget = entries.rule == Rule.budget

    assert not (entries.protected & by_budget).any()
    assert not (entries.protected & (entries.status == Status.empty)).any()
    assert entries.protected.sum(axis=2).max() <= budget
    for row in range(batch.rows):
        for turn in range(batch.turns):
            score, token = entries.score[row, turn], entries.token[row, turn]
            evicted = by_budget[row, turn]
            stays = np.isin(token, trace.kept_tokens[row, turn]) & (token >= 0)
            contested = stays & ~entries.protected[row, turn]
            for slot in np.flatnonzero(evicted):
                better = (score[contested] > score[slot]) | (
                    (score[contested] == score[slot]) & (token[contested] < token[slot])
                )
                assert better.all()


def attention_is_a_distribution_over_the_kept_entries(trace: Trace) -> None:
    entries = all_entries(trace)
    kept = (entries.status == Status.kept) | (entries.status == Status.new)

    for weights in (entries.attention_before, entries.attention_after):
        np.testing.assert_array_equal(np.isfinite(weights), kept)
        assert (weights[kept] >= 0).all()
        total = np.nansum(weights, axis=2)
        np.testing.assert_allclose(total, kept.any(axis=2), rtol=1e-5)
    assert np.isfinite(trace.output).all()
    np.testing.assert_array_equal(trace.output[~kept.any(axis=2)], 0)


def the_output_is_the_values_weighted_by_attention(trace: Trace, batch: DialogBatch) -> None:
    entries = all_entries(trace)
    for row in range(batch.rows):
        for turn in range(int(batch.turn_counts[row])):
            weights = by_token(entries, entries.attention_after, row, turn)
            values = batch.values[row, list(weights)].astype(float)
            np.testing.assert_allclose(
                trace.output[row, turn], list(weights.values()) @ values, rtol=1e-4, atol=1e-5
            )


def numbers_are_recorded_where_they_apply(trace: Trace, batch: DialogBatch) -> None:
    """Elsewhere there is NaN."""
    entries = all_entries(trace)
    present = entries.status != Status.empty
    standing = present & (entries.rule != Rule.threshold)
    was_cached = present.copy()
    was_cached[:, :, trace.kept_tokens.shape[2] :] = False
    was_cached &= (np.diff(batch.bounds) > 0)[:, :, None]  # no step is taken without tokens

    for column in (entries.score, *entries.terms.values()):
        np.testing.assert_array_equal(np.isfinite(column), standing)
    for column in entries.channels.values():
        np.testing.assert_array_equal(np.isfinite(column), present)
    for name, column in entries.recorded.items():
        if column.ndim == 3:
            np.testing.assert_array_equal(np.isfinite(column), was_cached, err_msg=name)
    np.testing.assert_array_equal(entries.rank > 0, standing)


def the_rank_orders_by_score_and_then_by_age(trace: Trace, batch: DialogBatch) -> None:
    entries = all_entries(trace)
    for row in range(batch.rows):
        for turn in range(batch.turns):
            slots = live(entries, row, turn)
            score, token = entries.score[row, turn, slots], entries.token[row, turn, slots]
            best_first = np.lexsort((token, -score))
            rank = entries.rank[row, turn, slots[best_first]]
            assert rank.tolist() == list(range(1, len(slots) + 1))


@cache
def drawn(scenario: str, dialogs: range, world: World) -> DialogBatch:
    """Draw dialogs once for all policies."""
    return generate(SCENARIOS[scenario], dialogs, 5, world)


@pytest.mark.long
@pytest.mark.parametrize("key", POLICIES)
@pytest.mark.parametrize("world", [World(), World(tokens_per_turn=7, head_dimension=3)], ids=str)
def test_generated_dialogs_are_the_same_to_the_last_bit_in_any_batch(
    key: str, world: World
) -> None:
    policy, budget = policy_named(key), 56
    alone = {
        (name, number): drawn(name, range(number, number + 1), world)
        for name in ("adaptation", "shift", "return")
        for number in range(3)
    }
    runs = {which: simulate(policy, dialog, budget) for which, dialog in alone.items()}

    for name in ("adaptation", "shift"):
        chunk = simulate(policy, drawn(name, range(3), world), budget)
        for number in range(3):
            assert_same_run(runs[name, number], chunk, other_row=number)
    for order in (list(alone), list(reversed(alone)), list(alone)[4:6]):
        together = simulate(policy, stack([alone[which] for which in order]), budget)
        for row, which in enumerate(order):
            assert_same_run(runs[which], together, other_row=row)


@pytest.mark.parametrize("turn", [-1, 10, 11])
def test_a_state_is_that_of_a_recorded_turn(turn: int) -> None:
    trace = simulate(policy_named("fifo"), generate(SCENARIOS["shift"]), budget=4)

    with pytest.raises(ValueError, match=f"^turn is {turn}, but .* from 0 to 9$"):
        trace.result(turn)


@pytest.mark.parametrize("turn", [10, -1])
def test_a_run_starts_with_a_turn_of_the_dialog(turn: int) -> None:
    batch = generate(SCENARIOS["shift"])
    trace = simulate(policy_named("fifo"), batch, budget=4)

    with pytest.raises(ValueError, match=f"is {turn}, but must be a whole number from 0 to 9$"):
        simulate(policy_named("fifo"), batch, 4, start=(turn, trace.end_state))


@given(policies() | st.just(EVICTING), ragged(), budgets)
def test_recording_fewer_details_changes_nothing(
    policy: Policy, batch: DialogBatch, budget: int
) -> None:
    full = simulate(policy, batch, budget)
    short = simulate(policy, batch, budget, entries=False)
    for name, column in columns(short):
        np.testing.assert_array_equal(column, dict(columns(full))[name], err_msg=name, strict=True)
    assert_same_state(short.end_state, full.end_state)
    with pytest.raises(ValueError, match="recorded without entries"):
        all_entries(short)


@given(
    st.integers(1, 400),
    st.integers(0, 300),
    st.integers(1, 3),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_sums_and_softmax_do_not_depend_on_padding_or_other_rows(
    width: int, padding: int, rows: int, seed: int, wild: bool
) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, width)).astype(np.float32)
    x *= np.float32(10) ** random.integers(-6, 6, size=x.shape) if wild else 1
    padded = np.pad(x, [(0, 0), (0, padding)])
    masked = np.pad(x, [(0, 0), (0, padding)], constant_values=-np.inf)

    np.testing.assert_array_equal(entry_sum(padded), entry_sum(x))
    np.testing.assert_allclose(
        entry_sum(x), x.sum(axis=1, dtype=float), rtol=1e-4, atol=abs(x).sum() * 1e-6
    )
    np.testing.assert_array_equal(softmax(masked)[:, :width], softmax(x))
    np.testing.assert_array_equal(softmax(masked)[:, width:], 0)
    for row in range(rows):
        np.testing.assert_array_equal(entry_sum(padded[row : row + 1]), entry_sum(x)[row])
        np.testing.assert_array_equal(softmax(masked[row : row + 1])[0, :width], softmax(x)[row])


def test_softmax_of_large_logits_and_of_nothing() -> None:
    logits = np.array([[1e30, -1e30, 1e30], [-np.inf] * 3, [-1e30, -np.inf, -1e30]], np.float32)

    np.testing.assert_array_equal(softmax(logits), [[0.5, 0, 0.5], [0, 0, 0], [0.5, 0, 0.5]])
