"""The exact bound of evidence against exhaustive search."""

from __future__ import annotations

import tracemalloc
from itertools import product
from subprocess import Popen
from typing import Any

import numpy as np
import pytest

from fdkvc.corpora.lexical import lexical_recording
from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.transcripts import Demand, Mention, TooLargeError, Transcript, Turn
from fdkvc.run import bounds
from fdkvc.run.bounds import most_evidence
from fdkvc.run.evidence import Demands


def demanding(seed: int) -> Recording:
    """Draw a dialog of a few words, and calls that need some of them."""
    random = np.random.default_rng(seed)
    turns = tuple(Turn("User", "a b c d"[: 2 * int(random.integers(1, 5)) - 1]) for _ in range(5))
    demands = []
    for turn in sorted(random.integers(1, 6, size=4).tolist()):
        mentions = set()
        for _ in range(int(random.integers(1, 4))):
            at = int(random.integers(turn))
            start = 2 * int(random.integers((len(turns[at].text) + 1) // 2))
            end = start + int(random.choice([1, 3]))
            mentions.add(Mention(at, start, min(end, len(turns[at].text))))
        source = str(random.choice(["One", "Two"]))
        demands.append(Demand("call", turn, source, "slot", "value", tuple(sorted(mentions))))
    return lexical_recording(Transcript("own", turns, tuple(demands)))


def best_by_trying(recording: Recording, budget: int, asked: Demands) -> float:
    """Try every choice of a mention, or none, for every demand."""
    weights = asked.weights([demand for demand, _ in recording.evidence])
    born = [turn for turn, tokens in enumerate(recording.tokens) for _ in tokens]
    best = 0.0
    for choice in product(*([None, *mentions] for _, mentions in recording.evidence)):
        until: dict[int, int] = {}
        for (demand, _), mention in zip(recording.evidence, choice, strict=True):
            for token in mention or ():
                until[token] = max(until.get(token, 0), demand.turn - 1)
        most = max(
            sum(born[token] <= turn <= last for token, last in until.items()) for turn in range(5)
        )
        if most <= budget:
            met = [mention is not None for mention in choice]
            best = max(best, float(weights @ np.array(met)))
    return best


def test_the_most_evidence_is_what_trying_everything_finds() -> None:
    asked = Demands("call")
    found = [
        (most_evidence(recording, budget, asked), best_by_trying(recording, budget, asked))
        for recording in map(demanding, range(25))
        for budget in (1, 2, 3)
    ]

    most, tried = np.transpose(found)
    np.testing.assert_allclose(most, tried, atol=1e-9)
    assert ((tried > 0) & (tried < 1)).sum() > 25
    assert np.isnan(most_evidence(demanding(0), 3, Demands("state")))
    with pytest.raises(ValueError, match="budget is 0, but must be a whole number of at least 1"):
        most_evidence(demanding(0), 0, asked)


def repeating(words: int, demands: int) -> Recording:
    """Return seven turns of one word, and calls of 1, 2, … of it, each mentioned in every turn."""
    turns = tuple(Turn("User", "q " * words) for _ in range(7))
    asked = tuple(
        Demand("call", 7, "f", f"s{n}", "v", tuple(Mention(turn, 0, 2 * n) for turn in range(7)))
        for n in range(1, demands + 1)
    )
    return lexical_recording(Transcript("own", (*turns, Turn("User", "q")), asked))


def test_the_most_evidence_of_too_many_terms_is_refused_before_any_is_built() -> None:
    recording = repeating(1000, 450)
    assert len(recording.needed) == 450
    tracemalloc.start()

    with pytest.raises(TooLargeError, match="too large to compute the best cache"):
        most_evidence(recording, 32, Demands("call"))

    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    assert most_evidence(recording, 1000, Demands("call")) == 1  # all fit: nothing to search


def test_the_search_for_the_most_evidence_ends_at_its_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "MAX_BOUND_SECONDS", 1e-9)

    with pytest.raises(TooLargeError, match="too long"):
        most_evidence(repeating(60, 12), 8, Demands("call"))


def test_a_large_programme_is_solved_in_a_child_process_to_the_same_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recording, asked = demanding(7), Demands("call")
    here = most_evidence(recording, 2, asked)
    children: list[Popen[bytes]] = []

    def popen(*args: Any, **options: Any) -> Popen[bytes]:
        children.append(Popen(*args, **options))
        return children[-1]

    monkeypatch.setattr(bounds, "Popen", popen)
    monkeypatch.setattr(bounds, "MAX_BOUND_SECONDS", 60)  # however busy the machine is
    monkeypatch.setattr(bounds, "MAX_INLINE_BOUND_TERMS", 0)

    assert 0 < here < 1
    assert most_evidence(recording, 2, asked) == here
    assert [child.returncode for child in children] == [0]


def test_a_child_process_that_overruns_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_INLINE_BOUND_TERMS", 0)
    monkeypatch.setattr(bounds, "MAX_BOUND_SECONDS", 0.01)
    monkeypatch.setattr(bounds, "_SOLVER", "import time; time.sleep(600)")

    with pytest.raises(TooLargeError, match="too long"):
        most_evidence(demanding(7), 2, Demands("call"))
