"""Which policies keep the first tokens of a text: what they say of it is what they do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.core.cache import EMPTY
from fdkvc.engine.simulate import simulate
from fdkvc.engine.sinks import PROTECT, SINKS, sinks_notes, sinks_of
from fdkvc.models.judged import judged_table
from fdkvc.policies import POLICIES, Policy, policy_named, read_policy
from tests.worlds import policies, random_dialog


@pytest.mark.parametrize(
    ("name", "budget", "kept"),
    [
        ("fifo", 128, 0),
        ("surprisal", 128, 0),
        ("learned", 128, 0),
        ("sink", 128, 4),
        ("sink sinks=3", 128, 3),
        ("sink", 2, 2),
        ("expected-attention", 128, 4),
        ("full", 1, 4),
        ("sinks(surprisal)", 128, 4),
        ("sinks(fd-kvc tau=0.9, n=8)", 128, 4),
        ("sinks(surprisal, n=2)", 128, 2),
        ("sinks(surprisal)", 3, 3),
        ("blocks(sinks(h2o), size=8)", 128, 4),
        ("pyramid(sinks(fifo))", 128, 4),
        ("pyramid(sinks(fifo), last=0.1)", 16, 2),  # the last of several layers has 2 places
        ("pyramid(sinks(fifo), last=0)", 16, 0),
        ("whitelist(surprisal, first=1)", 128, 4),
        ("whitelist(surprisal, first=1)", 6, 3),  # half of the budget at most
        ("whitelist(surprisal, first=0)", 128, 0),
        ("whitelist(surprisal, first=0, at_turn=0)", 128, 4),
        ("whitelist(surprisal, first=0, at_turn=1)", 128, 0),
        ("whitelist(surprisal, first=0, speaker=prompt)", 128, 0),  # a text may have none
        ("window(sink)", 128, 4),
        ("window(surprisal)", 128, 0),
        ("blocks(sink, size=8)", 128, 4),
        # At some lengths of a dialog there is room for one more, but not at all.
        ("whitelist(shift keep=3)", 9, 3),
        ("whitelist(shift)", 7, 2),
    ],
)
def test_a_policy_is_asked_what_it_keeps(name: str, budget: int, kept: int) -> None:
    assert sinks_of(read_policy(name), budget) == kept


@given(policies(), st.integers(8, 24), st.integers(0, 1000))
def test_what_it_says_is_kept_in_a_run(policy: Policy, budget: int, seed: int) -> None:
    dialog = random_dialog(seed, (SINKS, budget + 3, 5, budget, 2))
    kept = simulate(policy, dialog, budget).kept_tokens[0]
    first = set(range(sinks_of(policy, budget)))
    for turn in kept:
        assert first <= {*turn[turn != EMPTY].tolist()}


@pytest.mark.parametrize("key", [key for key in POLICIES if not sinks_of(policy_named(key), 8)])
def test_the_others_evict_them_in_some_dialog(key: str) -> None:
    lengths = (20, 20, 20)
    unlike = random_dialog(0, lengths)  # the first get no attention from others
    unlike.keys[0, :SINKS] = -10 * unlike.token_queries[0].mean(axis=0)
    for dialog in (unlike, *(random_dialog(seed, lengths) for seed in range(4))):
        trace = simulate(policy_named(key), dialog, 8)
        if not {*range(SINKS)} <= {*trace.kept_tokens[0, -1].tolist()}:
            return
    pytest.fail(f"{key} evicted none of the first tokens")


def test_a_note_names_the_policies_at_any_of_the_budgets() -> None:
    named = [read_policy(name) for name in ("fifo", "whitelist(h2o)", "sink", "full")]
    assert sinks_notes(named, [128]) == [
        f"The first tokens of a text are not protected under FIFO. {PROTECT}"
    ]
    (note,) = sinks_notes(named, [4, 128])
    assert "not protected under FIFO and Whitelist (H2O). " in note
    assert sinks_notes(named[2:], [4, 128]) == []


def test_its_numbers_are_those_that_were_measured() -> None:
    measured = judged_table().query("data == 'SGD' and budget == 128 and metric == 'kl'")
    rows = measured.set_index("policy")["mean"]
    surprisal, protected, random, h2o = (
        f"{rows[name]:.2f}" for name in ("surprisal", "sinks(surprisal)", "sinks(random)", "h2o")
    )

    assert f"surprisal {surprisal}; with the first four" in PROTECT
    assert f"surprisal {protected} and random eviction {random}" in PROTECT
    assert f"protects none, {h2o}" in PROTECT
    assert all(rows[name] > rows["sinks(random)"] for name in ("fifo", "surprisal", "fd-kvc"))
