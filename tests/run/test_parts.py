"""Long turns in parts: each part is a turn for the policy; and what the cache held at most."""

import numpy as np
import pytest

from fdkvc.corpora.lexical import lexical_recording
from fdkvc.corpora.recordings import Recording, stack_recordings
from fdkvc.corpora.transcripts import Transcript, Turn
from fdkvc.policies import policy_named, read_policy
from fdkvc.run.evidence import Evidence
from fdkvc.run.simulate import simulate

PART = 4
TURNS = ("one two three four five six seven eight nine", "ten", "six seven five ten one two eight")
POLICIES = ("fifo", "h2o", "fd-kvc", "surprisal")


def spoken(*texts: str) -> Recording:
    return lexical_recording(Transcript("own", tuple(Turn("User", text) for text in texts)))


def split(text: str) -> list[str]:
    words = text.split()
    return [" ".join(words[at : at + PART]) for at in range(0, len(words), PART)]


@pytest.mark.parametrize("key", POLICIES)
def test_a_part_is_a_turn_and_turns_end_with_their_last(key: str) -> None:
    dialogs = spoken(*TURNS), spoken(*TURNS[1:])
    in_parts = [spoken(*(part for text in texts for part in split(text))) for texts in TALKS]
    whole = stack_recordings(dialogs)
    parts, last = whole.in_parts(PART)
    trace = simulate(policy_named(key), parts, 6).of_whole_turns(last)

    assert last[0].tolist() == [2, 3, 5]
    assert (whole.turns, trace.turns) == (3, 3)
    for row, (dialog, other) in enumerate(zip(dialogs, in_parts, strict=True)):
        alone = simulate(policy_named(key), other.dialogs, 6)
        for turn in range(len(dialog.tokens)):
            assert trace.kept[row, turn].tolist() == alone.kept[0, last[row, turn]].tolist()
        first = 0
        for turn, end in enumerate(last[row, : len(dialog.tokens)]):
            assert trace.peak[row, turn] == alone.peak[0, first : end + 1].max()
            first = end + 1


TALKS = (TURNS, TURNS[1:])


def test_parts_as_long_as_the_longest_turn_change_nothing() -> None:
    dialogs = spoken(*TURNS).dialogs
    parts, last = dialogs.in_parts(9)
    assert last.tolist() == [[0, 1, 2]]
    np.testing.assert_array_equal(parts.bounds, dialogs.bounds)
    with pytest.raises(ValueError, match="the number of tokens in a part"):
        dialogs.in_parts(0)


def test_queries_of_a_turn_that_is_too_long_are_refused_before_their_products(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dialogs = spoken(*TURNS).dialogs  # the last turn has 7 queries over 17 tokens
    monkeypatch.setattr("fdkvc.dialogs.MAX_QUERY_LOGITS", 100)
    simulate(policy_named("fifo"), dialogs, 6)
    with pytest.raises(ValueError, match=r"turn 2 has 7 queries over 17 tokens, .*--chunk"):
        simulate(policy_named("snapkv"), dialogs, 6)
    parts, _ = dialogs.in_parts(PART)
    simulate(policy_named("snapkv"), parts, 6)


def test_the_peak_counts_what_a_turn_brings_before_any_is_evicted() -> None:
    recording = spoken(*TURNS)
    trace = simulate(policy_named("fifo"), recording.dialogs, 6)
    assert trace.peak.tolist() == [[9, 7, 13]]
    assert Evidence(trace, recording).peak_entries() == 13

    parts, last = recording.dialogs.in_parts(PART)
    folded = simulate(policy_named("fifo"), parts, 6).of_whole_turns(last)
    assert folded.peak.tolist() == [[8, 7, 10]]  # at most 6 cached and a part of 4


def test_a_pinned_prompt_stays_within_its_share_of_the_budget() -> None:
    turns = (Turn("system", "be kind and brief", kind="system"), Turn("user", "hi"))
    more = tuple(Turn("assistant" if at % 2 else "user", f"word{at}") for at in range(8))
    recording = lexical_recording(Transcript("own", (*turns, *more)))
    for budget, pinned in ((8, 4), (4, 2)):
        policy = read_policy("whitelist(fifo, first=0, speaker=prompt)")
        kept = simulate(policy, recording.dialogs, budget).kept[0, -1]
        assert sorted(kept[kept >= 0].tolist())[:pinned] == [*range(pinned)]
        assert (kept >= 0).sum() == budget
    system = read_policy("whitelist(fifo, first=0, speaker=system, most=1)")
    kept = simulate(system, recording.dialogs, 8).kept[0, -1]
    assert set(range(4)) < set(kept.tolist()), "the system's words include its prompt"
