"""Heads that decide together keep the same tokens, by their mean score."""

import dataclasses

import numpy as np
import pytest

from fdkvc.conversations.lexical import lexical_recording
from fdkvc.conversations.replay import Replay, replay
from fdkvc.core.attention import LANES, Observation
from fdkvc.core.cache import Cache
from fdkvc.core.recordings import stack_recordings
from fdkvc.engine.evidence import Evidence
from fdkvc.engine.metrics import METRICS
from fdkvc.engine.simulate import simulate
from fdkvc.policies import POLICIES, Policy, policy_named, read_policy
from fdkvc.policies.base import Score, Update, total
from fdkvc.policies.fifo import Fifo
from fdkvc.policies.together import Together
from tests.examples import dialogs_of
from tests.worlds import all_entries, with_heads

HEADS = 3

DIFFERENT = (
    "fd-kvc",
    "sinks(h2o)",
    "sinks(learned)",
    "messages(fd-kvc)",
    "reread(clear-results)",
    "shift",
    "clear-results trigger=60",
    "ada-heads(h2o)",
    "pyramid(h2o)",
    "blocks(weighted-recency)",
)
"""Policies that decide by different things, or hold different numbers of entries."""


RECORDINGS = [
    with_heads(*(lexical_recording(dialog, seed) for seed in range(HEADS)))
    for dialog in dialogs_of("dialogues")
]
"""Two dialogs with three heads whose queries, keys and values are their own."""


@pytest.mark.parametrize("key", POLICIES)
def test_heads_together_keep_the_same_tokens(key: str) -> None:
    dialogs = RECORDINGS[0].dialogs
    trace = simulate(Together(policy_named(key), HEADS), dialogs, 32, entries=False)

    assert (trace.kept_tokens == trace.kept_tokens[:1]).all()
    assert (trace.kept_tokens >= 0).any()


@pytest.mark.parametrize("key", POLICIES)
def test_one_head_together_is_the_policy_itself(key: str) -> None:
    dialogs = RECORDINGS[1].dialogs
    alone = simulate(policy_named(key), dialogs, 40, entries=False)
    one = simulate(Together(policy_named(key), 1), dialogs, 40, entries=False)

    np.testing.assert_array_equal(alone.kept_tokens, one.kept_tokens)
    np.testing.assert_array_equal(alone.output, one.output)


@pytest.mark.parametrize("key", ["tova", "fd-kvc"])
def test_a_row_of_the_record_is_the_record_of_that_head_alone(key: str) -> None:
    dialogs, policy = RECORDINGS[0].dialogs, policy_named(key)
    row = simulate(policy, dialogs, 32).row(1)
    alone = simulate(policy, dialogs.row(1), 32)

    np.testing.assert_array_equal(row.kept_tokens, alone.kept_tokens)
    np.testing.assert_array_equal(row.output, alone.output)
    for field in dataclasses.fields(all_entries(alone)):
        in_batch, theirs = (getattr(all_entries(trace), field.name) for trace in (row, alone))
        np.testing.assert_equal(in_batch, theirs)
    np.testing.assert_equal(row.state, alone.state)
    np.testing.assert_equal(row.evicted, alone.evicted)
    np.testing.assert_array_equal(row.end_state.cache.token, alone.end_state.cache.token)
    np.testing.assert_array_equal(
        row.end_state.attended.modulated_weights, alone.end_state.attended.modulated_weights
    )
    assert row.kept_tokens.base is None  # it does not hold on to the other heads


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_run_that_reads_no_attention_decides_the_same(name: str) -> None:
    dialogs, policy = stack_recordings(RECORDINGS), read_policy(name)
    assert not dialogs.in_turns.all()
    full = simulate(policy, dialogs, 164)
    few = simulate(policy, dialogs, 164, entries=False, outputs_from=dialogs.turns)

    np.testing.assert_array_equal(few.kept_tokens, full.kept_tokens)
    np.testing.assert_array_equal(few.peak, full.peak)
    np.testing.assert_equal(few.state, full.state)
    np.testing.assert_equal(few.end_state.cache.channels, full.end_state.cache.channels)


def test_it_has_few_slots_while_few_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    dialogs, widths, scored = RECORDINGS[0].dialogs, list[int](), list[int]()

    def update(self: Fifo, cache: Cache, turn: Observation, score: Score) -> Update:
        widths.append(cache.token.shape[1])
        return Update(cache)

    def terms(self: Fifo, cache: Cache, turn: Observation) -> dict[str, np.ndarray]:
        scored.append(turn.turn)
        return {"position": cache.token.astype(np.float64)}

    monkeypatch.setattr(Fifo, "update", update)
    monkeypatch.setattr(Fifo, "terms", terms)
    few = simulate(Fifo(), dialogs, 4096, entries=False, outputs_from=dialogs.turns)

    assert few.kept_tokens.shape[2] == 4096
    ends = dialogs.bounds[0, 1:]
    assert all(width <= end + LANES for width, end in zip(widths, ends, strict=True))
    assert not scored


def test_an_empty_slot_adds_nothing_to_the_loss() -> None:
    dialogs, paged = RECORDINGS[0].dialogs, read_policy("messages(fd-kvc)")
    few, more = (simulate(paged, dialogs, 2**k).state["ownership_loss"] for k in (11, 12))
    np.testing.assert_array_equal(few, more)


def test_the_score_is_the_mean_of_the_heads_scores() -> None:
    dialogs, policy = RECORDINGS[0].dialogs, policy_named("knorm")
    joined = all_entries(simulate(Together(policy, HEADS), dialogs, 32))
    cached = Cache(joined.token[:, 1])
    scores = total(policy.terms(cached, dialogs.observe(1)))

    present = cached.present[0]
    assert present.any()
    np.testing.assert_allclose(joined.score[0, 1, present], scores.mean(axis=0)[present], rtol=1e-6)
    assert scores.std(axis=0)[present].max() > 0.1


def test_a_replay_is_the_mean_over_heads_that_decide_alone_or_together() -> None:
    tova = policy_named("tova")
    table = replay(Replay((tova, Together(tova, HEADS)), (48,)), RECORDINGS)
    means = table[table.metric == "call_recall"].groupby("policy", sort=False).value.mean()

    def recall(policy: Policy) -> float:
        shares = []
        for recording in RECORDINGS:
            trace = simulate(policy, recording.dialogs, 48, entries=False)
            shares.append(METRICS["call_recall"].measure(Evidence(trace, recording)))
        return float(np.mean(shares))

    np.testing.assert_allclose(means, [recall(tova), recall(Together(tova, HEADS))])
    assert len(set(means)) == 2
