"""Retrieval: everything is stored, and a turn reads what is nearest to its queries."""

from __future__ import annotations

import numpy as np
import pytest

from fdkvc.conversations.formats import EXAMPLES, read_file
from fdkvc.conversations.lexical import lexical_recording
from fdkvc.engine.evidence import Demands, Evidence
from fdkvc.engine.metrics import METRICS, cache_bytes
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Rule
from fdkvc.explain.decisions import explain
from fdkvc.policies import policy_named
from tests.worlds import EAST, NORTH, kept_tokens, pointing, random_dialog


def test_it_worked_by_hand() -> None:
    dialog = pointing([EAST], [NORTH, NORTH], [NORTH], [EAST])
    trace = simulate(policy_named("retrieval"), dialog, 2)

    # The turns point north until the last, which finds the first token again.
    assert [kept_tokens(trace, 0, turn) for turn in range(4)] == [[0], [1, 2], [1, 2], [0, 4]]
    assert set(trace.tier[0, 3]) == {-1, 1, 2, 3}
    assert explain(trace, dialog, 0, 2, token=0).eviction == (2, Rule.budget)
    assert METRICS["memory"].measure(trace, dialog)[0].tolist() == [1, 1, 1, 1]
    reads = METRICS["reads"].measure(trace, dialog)[0]
    np.testing.assert_allclose(reads, [1, 2 / 3, 0.5, 0.4], rtol=1e-6)
    assert cache_bytes(trace, dialog).keys == 5 * 2 * 4
    assert cache_bytes(trace, dialog).reads == 2 * 2 * 2 * 4


@pytest.mark.parametrize("size", [1, 5])
def test_it_reads_the_nearest_of_all_that_was_said(size: int) -> None:
    lengths = [9, 14, 0, 20, 11]
    dialog = random_dialog(3, lengths)
    trace = simulate(policy_named("retrieval", size=size), dialog, 20)
    queries, keys, ends = dialog.token_queries[0], dialog.keys[0], np.cumsum(lengths)

    for turn, (end, length) in enumerate(zip(ends, lengths, strict=True)):
        if not length:
            continue
        pages = [range(first, min(first + size, end)) for first in range(0, end, size)]
        bounds = [
            max(
                sum(
                    max(q * k for k in column)
                    for q, column in zip(query, keys[page].T, strict=True)
                )
                for query in queries[end - length : end]
            )
            for page in pages
        ]
        best = sorted(range(len(pages)), key=lambda index: -bounds[index])[: 20 // size]
        assert kept_tokens(trace, 0, turn) == [t for index in sorted(best) for t in pages[index]]


def test_what_a_call_needs_is_looked_up_by_its_own_turn() -> None:
    recording = lexical_recording(read_file(EXAMPLES / "dialogues.json")[0], 0)
    few, all_of_it = (
        Evidence(simulate(policy_named("retrieval"), recording.dialogs, budget), recording)
        for budget in (24, 500)
    )

    assert all_of_it.recall(Demands("call")) == 1
    assert 0 <= few.recall(Demands("call")) <= 1
    turn = next(demand.turn for demand, _ in recording.evidence)
    kept = set(kept_tokens(few.trace, 0, turn))
    met = any(set(mention) <= kept for mention in recording.evidence[0][1])
    assert (few.lost[0][0] < 0) == met
