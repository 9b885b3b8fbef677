"""Long turns: what they may compute, what the cache held at most, and pinned prompts."""

import pytest

from fdkvc.conversations.lexical import lexical_recording
from fdkvc.core.recordings import Recording
from fdkvc.core.transcripts import Transcript, Turn
from fdkvc.engine.evidence import Evidence
from fdkvc.engine.simulate import simulate
from fdkvc.policies import policy_named, read_policy

TURNS = ("one two three four five six seven eight nine", "ten", "six seven five ten one two eight")


def spoken(*texts: str) -> Recording:
    return lexical_recording(Transcript("own", tuple(Turn("User", text) for text in texts)))


def test_queries_of_a_turn_that_is_too_long_are_refused_before_their_products(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dialogs = spoken(*TURNS).dialogs  # the last turn has 7 queries over 17 tokens
    monkeypatch.setattr("fdkvc.core.dialogs.MAX_QUERY_LOGITS", 100)
    simulate(policy_named("fifo"), dialogs, 6)
    with pytest.raises(ValueError, match="turn 2 has 7 queries over 17 tokens"):
        simulate(policy_named("snapkv"), dialogs, 6)


def test_the_peak_counts_what_a_turn_brings_before_any_is_evicted() -> None:
    recording = spoken(*TURNS)
    trace = simulate(policy_named("fifo"), recording.dialogs, 6)
    assert trace.peak.tolist() == [[9, 7, 13]]
    assert Evidence(trace, recording).peak_entries() == 13


def test_a_pinned_prompt_stays_within_its_share_of_the_budget() -> None:
    turns = (Turn("system", "be kind and brief", kind="system"), Turn("user", "hi"))
    short = tuple(Turn("assistant" if index % 2 else "user", f"word{index}") for index in range(8))
    recording = lexical_recording(Transcript("own", (*turns, *short)))
    for budget, pinned in ((8, 4), (4, 2)):
        policy = read_policy("whitelist(fifo, first=0, speaker=prompt)")
        kept = simulate(policy, recording.dialogs, budget).kept_tokens[0, -1]
        assert sorted(kept[kept >= 0].tolist())[:pinned] == [*range(pinned)]
        assert (kept >= 0).sum() == budget
    system = read_policy("whitelist(fifo, first=0, speaker=system, most=1)")
    kept = simulate(system, recording.dialogs, 8).kept_tokens[0, -1]
    assert set(range(4)) < set(kept.tolist()), "the system's words include its prompt"
