"""Evidence: recall and age worked by hand, and against a literal reading of the trace."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from fdkvc.conversations.lexical import lexical_recording
from fdkvc.core.recordings import Recording, stack_recordings
from fdkvc.core.transcripts import Demand, Mention, Transcript, Turn
from fdkvc.engine.evidence import OLD, Demands, Evidence
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Trace
from fdkvc.policies import policy_named
from tests.examples import dialogs_of
from tests.worlds import measure

DIALOGS = [dialog for dialog in dialogs_of() if dialog.calls]


def run(recording: Recording, key: str, budget: int) -> Trace:
    return simulate(policy_named(key), recording.dialogs, budget, entries=False)


def call(turn: int, slot: str, *mentions: tuple[int, int, int]) -> Demand:
    return Demand("call", turn, "f", slot, slot, tuple(Mention(*mention) for mention in mentions))


def test_recall_by_hand() -> None:
    turns = tuple(Turn("User", text) for text in ("a b", "c d", "e", "f"))
    demands = (
        call(1, "both", (0, 0, 3)),  # a b, the turn before
        call(3, "old", (0, 0, 1)),  # a
        call(3, "new", (0, 0, 1), (1, 2, 3)),  # a, or d
        call(4, "broken", (1, 0, 3)),  # c d, after the last turn
    )
    recording = lexical_recording(Transcript("own", turns, demands))
    # FIFO of 3 keeps a b; b c d; c d e; d e f.
    trace = run(recording, "fifo", 3)
    evidence = Evidence(trace, recording)

    assert evidence.recall_by_head(Demands("call")).tolist() == pytest.approx([(1 + 1 / 2 + 0) / 3])
    assert evidence.recall_by_head(Demands("call", 2)).tolist() == [0]  # only a, for the call at 3
    assert [int(turn[0]) for turn in evidence.lost] == [-1, 1, -1, 3]
    assert math.isnan(evidence.recall(Demands("state")))
    assert measure(trace, recording)["token_age"] == pytest.approx((0 * 2 + 1 + 2 + 3) / 11)


def test_what_was_never_cached_whole_is_lost_in_the_turn_of_its_last_mention() -> None:
    turns = tuple(Turn("User", text) for text in ("a b", "c d e f", "g", "h"))
    demands = (
        call(3, "long", (1, 0, 7)),  # c d e f
        call(3, "again", (0, 0, 3), (1, 0, 7)),  # a b was whole until turn 0
    )
    recording = lexical_recording(Transcript("own", turns, demands))
    # FIFO of 3 keeps a b; d e f; e f g; f g h.
    lost = Evidence(run(recording, "fifo", 3), recording).lost

    assert [int(turn[0]) for turn in lost] == [1, 1]


def plain(trace: Trace, recording: Recording, row: int, older_than: int) -> float:
    """Work call-argument recall out by sets of tokens."""
    calls: dict[tuple[int, str, int], list[bool]] = {}
    spans = [(t, token) for t, turn in enumerate(recording.tokens) for token in turn]
    for demand in recording.transcript.demands:
        if demand.kind != "call" or demand.turn - demand.mentions[-1].turn <= older_than:
            continue
        cached = set(trace.kept_tokens[row, demand.turn - 1].tolist())
        met = any(
            all(
                index in cached
                for index, (turn, token) in enumerate(spans)
                if turn == mention.turn and token.start < mention.end and token.end > mention.start
            )
            for mention in demand.mentions
        )
        calls.setdefault((demand.turn, demand.source, demand.call_number), []).append(met)
    return float(np.mean([np.mean(met) for met in calls.values()])) if calls else math.nan


@pytest.mark.parametrize("key", ["fifo", "h2o", "fd-kvc"])
def test_recall_is_that_of_a_plain_reading(key: str) -> None:
    recordings = [lexical_recording(dialog) for dialog in DIALOGS]
    trace = simulate(policy_named(key), stack_recordings(recordings), 64, entries=False)
    for row, recording in enumerate(recordings):
        metrics = measure(trace, recording, row)
        assert metrics["call_recall"] == pytest.approx(plain(trace, recording, row, 0), nan_ok=True)
        assert metrics["old_call_recall"] == pytest.approx(plain(trace, recording, row, OLD))


@pytest.mark.parametrize("key", ["fifo", "sink", "h2o", "random", "full"])
def test_a_cache_with_room_for_everything_knows_everything(key: str) -> None:
    recording = lexical_recording(DIALOGS[0])
    metrics = measure(run(recording, key, 512), recording)

    assert [metrics["call_recall"], metrics["old_call_recall"]] == [1, 1]


def test_heads_count_each_for_itself() -> None:
    recording = lexical_recording(DIALOGS[1])
    doubled: dict[str, Any] = {
        name: np.concatenate([getattr(recording, name), np.roll(getattr(recording, name), shift)])
        for shift, name in enumerate(("queries", "keys", "values"))
    }
    doubled_recording = dataclasses.replace(recording, heads=(0, 1), **doubled)
    trace = run(doubled_recording, "h2o", 48)
    one, other = Evidence(trace, doubled_recording).recall_by_head(Demands("call"))

    assert one != other
    assert measure(trace, doubled_recording)["call_recall"] == pytest.approx((one + other) / 2)
