"""Recall around FD-KVC, worked by hand."""

import pytest

from fdkvc.core.dialogs import DialogBatch
from fdkvc.engine.metrics import cache_bytes
from fdkvc.engine.online import OnlineCache
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Rule, Status, Trace
from fdkvc.explain.decisions import explain
from fdkvc.explain.tables import entries_table, turns_table
from fdkvc.policies import read_policy
from tests.worlds import EAST, NORTH, all_entries, by_token, kept_tokens, pointing


def three_pages(page_match: float = 0.7) -> tuple[Trace, DialogBatch]:
    """Run two tokens east, two north and one east again, where recency alone decides."""
    dialog = pointing([EAST, EAST], [NORTH, NORTH], [EAST])
    policy = read_policy(f"recall(fd-kvc w_c=0, page_match={page_match})")
    return simulate(policy, dialog, budget=2), dialog


def test_a_page_comes_back_when_the_query_returns_to_it() -> None:
    trace, dialog = three_pages()
    entries = all_entries(trace)

    assert trace.tier[0].tolist() == [[-1, -1], [0, 1], [3, 4]]
    # They come back with ρ = 1, which decays and is reinforced: more than the new token's 1.
    assert kept_tokens(trace, 0, 2) == [0, 1]
    recency = {0: 1.18, 1: 1.18, 2: 0.88, 3: 0.88, 4: 1}
    assert by_token(entries, entries.channels["recency"], 0, 2) == pytest.approx(recency)
    # Two went, two came back, and of the last three evicted the tier had room for two.
    assert trace.state["moves"][0].tolist() == [0, 2, 6]
    assert turns_table(trace, dialog).moves.tolist() == [0, 2, 6]
    assert trace.evicted["budget"][0].tolist() == [0, 2, 3]

    assert (explain(trace, dialog, 0, 1, token=0).eviction) == (1, Rule.budget)
    back = explain(trace, dialog, 0, 2, token=0)
    assert (back.status, back.eviction) == (Status.kept, None)
    assert entries_table(trace, dialog).query("token == 0").turn.tolist() == [0, 1, 2]
    assert cache_bytes(trace, dialog).keys == 2 * cache_bytes(trace, dialog).values


def test_a_query_is_on_a_page_from_the_page_match_on_itself_included() -> None:
    trace, _ = three_pages(page_match=0.0)

    # East is at a cosine of 0 with the page north, which is enough to stay there.
    assert trace.state["moves"][0].tolist() == [0, 2, 3]
    assert not {0, 1} & set(kept_tokens(trace, 0, 2))


def test_nothing_comes_back_while_the_query_stays_or_where_no_page_is_like_it() -> None:
    dialog = pointing([EAST, EAST], [NORTH, NORTH], [NORTH], [[-1.0, 0.0]])
    trace = simulate(read_policy("recall(fd-kvc w_c=0, tier=4)"), dialog, budget=2)

    entries = all_entries(trace)
    for turn in (2, 3):
        assert not {0, 1} & set(entries.token[0, turn].tolist())


def test_a_second_tier_of_a_stream() -> None:
    trace, dialog = three_pages()
    cache = OnlineCache(trace.policy, budget=2)
    for turn, (low, high) in enumerate([(0, 2), (2, 4), (4, 5)]):
        tokens = dialog.keys[0, low:high]
        fed = cache.feed(queries=tokens, keys=tokens, values=tokens, embeddings=tokens)
        assert fed.kept_tokens.tolist() == kept_tokens(trace, 0, turn)
