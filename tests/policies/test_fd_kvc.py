"""FD-KVC, worked by hand: Algorithm 1 on three turns of one token."""

import dataclasses
import math

import numpy as np
import pytest

from fdkvc.cache import Cache
from fdkvc.explain.explain import explain, life
from fdkvc.explain.tables import turns_table
from fdkvc.policies import Policy, policy_named
from fdkvc.policies.base import Update, total
from fdkvc.run.fork import Fork, fork, state_at_fork
from fdkvc.run.metrics import cache_bytes, metric_named
from fdkvc.run.online import OnlineCache
from fdkvc.run.simulate import simulate
from fdkvc.run.trace import EntryTrace, Rule, Status, Trace
from fdkvc.synthetic.batch import DialogBatch, one_dialog, stack
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.worlds import by_token, evictions, kept_tokens, plain_dialog, random_dialog


def three_turns(tau: float) -> Trace:
    """Run the dialog: the cosine of tokens 0 and 2 with token 1 is 3/5; token 0 weighs 3."""
    dialog = one_dialog(
        embeddings=[[1.0, 0.0], [0.6, 0.8], [2.0, 0.0]],
        queries=[[1.0, 0.0]] * 3,
        keys=[[math.sqrt(2) * math.log(3), 0.0], [0.0, 0.0], [0.0, 0.0]],
        values=[[1.0, 0.0], [5.0, 5.0], [0.0, 1.0]],
        turn_lengths=[1, 1, 1],
    )
    policy = policy_named("fd-kvc", gamma=0.5, alpha_0=0.4, mu=1.0, tau=tau, beta=1.0, w_c=0.5)
    return simulate(policy, dialog, budget=2)


def channels(entries: EntryTrace, turn: int) -> dict[str, dict[int, float]]:
    return {name: by_token(entries, column, 0, turn) for name, column in entries.channels.items()}


def test_algorithm_1() -> None:
    trace = three_turns(tau=0.5)
    entries = trace.every_entry()

    assert channels(entries, 0) == {"cumulative": {0: 1}, "recency": {0: pytest.approx(1)}}
    # A single old entry is its own minimum, so it is not reinforced: ρ = 1 · 0.5.
    second = channels(entries, 1)
    assert second["cumulative"] == pytest.approx({0: 2, 1: 1})
    assert second["recency"] == pytest.approx({0: 0.5, 1: 1})
    assert trace.state["ownership_loss"][0, :2] == pytest.approx([0, 0])
    assert trace.state["learning_rate"][0, :2] == pytest.approx([0.4, 0.4])

    # Turn 2: attention 3/4 and 1/4; relevance 1 and 0; hybrid scores 33/40 and 21/44.
    third = channels(entries, 2)
    assert third["cumulative"] == pytest.approx({0: 2.75, 1: 1.25, 2: 1})
    assert third["recency"] == pytest.approx({0: 0.65, 1: 0.5, 2: 1})
    recorded = {
        name: column[0, 2, :2].tolist() if column.ndim == 3 else column[0, 2]
        for name, column in entries.recorded.items()
    }
    assert recorded["attention"] == pytest.approx([3 / 4, 1 / 4])
    assert recorded["recency before"] == pytest.approx([0.5, 1])
    assert recorded["recency decayed"] == pytest.approx([0.25, 0.5])
    assert recorded["relevance"] == pytest.approx([1, 0])
    assert recorded["learning rate before"] == pytest.approx(0.4)
    assert recorded["hybrid score"] == pytest.approx([33 / 40, 21 / 44])
    loss = (70 / 121) * (51 / 121) / 2
    assert trace.state["ownership_loss"][0, 2] == pytest.approx(loss)
    assert trace.state["learning_rate"][0, 2] == pytest.approx(0.4 / (1 + loss))

    # Token 1 stays above the threshold 33/80 and loses the budget.
    terms = {name: by_token(entries, column, 0, 2) for name, column in entries.terms.items()}
    assert terms["cumulative"] == pytest.approx({0: 1 / 2, 1: 5 / 22, 2: 2 / 11})
    assert terms["recency"] == pytest.approx({0: 0.325, 1: 1 / 4, 2: 1 / 2})
    score = by_token(entries, entries.score, 0, 2)
    assert score == pytest.approx({0: 33 / 40, 1: 21 / 44, 2: 15 / 22})
    assert entries.rank[0, 2].tolist() == [1, 3, 2]
    assert evictions(entries, 0, 2) == {1: "budget"}

    # Modulation multiplies 3/4 by 0.825 and 1/4 by 1.
    before = by_token(entries, entries.attention_before, 0, 2)
    after = by_token(entries, entries.attention_after, 0, 2)
    assert before == pytest.approx({0: 3 / 4, 2: 1 / 4})
    assert after == pytest.approx({0: 99 / 139, 2: 40 / 139})
    assert trace.output[0, 2] == pytest.approx([99 / 139, 40 / 139])


def test_the_threshold_evicts_before_new_tokens_come_in() -> None:
    trace = three_turns(tau=0.6)
    entries = trace.every_entry()

    assert evictions(entries, 0, 2) == {1: "threshold"}
    assert kept_tokens(trace, 0, 2) == [0, 2]
    # It shows the channels it was judged by, and has no score in the contest it was not in.
    assert entries.channels["recency"][0, 2, 1] == pytest.approx(0.5)
    assert np.isnan(entries.score[0, 2, 1])
    assert entries.rank[0, 2].tolist() == [1, 0, 2]


def test_a_new_entry_unlike_its_turn_starts_without_recency() -> None:
    dialog = plain_dialog([[1, 1, -1]])

    entries = simulate(policy_named("fd-kvc"), dialog, budget=2).every_entry()

    assert channels(entries, 0)["recency"] == pytest.approx({0: 1, 1: 1, 2: 0})
    assert evictions(entries, 0, 0) == {2: "budget"}


def test_the_papers_threshold_evicts_nothing() -> None:
    policy = policy_named("fd-kvc", tau=0.10)  # the upper end of the paper's range
    for scenario in SCENARIOS.values():
        trace = simulate(policy, generate(scenario, dialogs=20, seed=1), 56, entries=False)
        assert not trace.evicted["threshold"].any()


@pytest.mark.parametrize(
    "options",
    [{}, {"reinforcement": "averaged"}, {"relevance": "attention"}, {"kappa": 1.0}],
    ids=str,
)
def test_neither_channel_changes_the_other(options: dict[str, float]) -> None:
    """Eqs. 1 to 3: an entry's recency does not ask its cumulative attention, nor that its recency.

    The decay is γ for all: those that gathered much, those that gathered nothing, old and young.
    """
    policy, dialog = policy_named("fd-kvc", **options), generate(SCENARIOS["shift"], 1, 7)
    before, turn = simulate(policy, dialog, 56).state_after(4).cache, dialog.observe(5)
    ladder = np.concatenate([[0], np.geomspace(1e-3, 1e3, 55)]).astype(np.float32)[None]

    def updated(cache: Cache) -> Update:
        return policy.update(cache, turn, lambda cache: total(policy.terms(cache, turn)))

    plain = updated(before)
    with_sums = updated(before.with_channels(cumulative=ladder))
    with_recency = updated(before.with_channels(recency=ladder))

    np.testing.assert_array_equal(with_sums.cache["recency"], plain.cache["recency"])
    np.testing.assert_array_equal(with_recency.cache["cumulative"], plain.cache["cumulative"])
    np.testing.assert_array_equal(
        with_recency.recorded["recency decayed"], np.float32(0.88) * ladder
    )
    gathered = with_sums.cache["cumulative"] - ladder
    np.testing.assert_allclose(gathered, with_sums.recorded["attention"], atol=1e-4)


def test_recency_exceeds_one_and_stays_below_its_limit() -> None:
    policy = policy_named("fd-kvc")
    dialogs = generate(SCENARIOS["adaptation"], dialogs=10, seed=1)

    recency = simulate(policy, dialogs, 56).last.cache["recency"]

    assert 1 < recency.max() < 0.3 / (1 - 0.88)
    assert policy.w_rho == pytest.approx(0.55)  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------- the options


def pointing(turns: list[list[list[float]]]) -> DialogBatch:
    """Make a dialog whose tokens are vectors, which are their embeddings, queries and keys."""
    tokens = [token for turn in turns for token in turn]
    return one_dialog(
        embeddings=tokens,
        queries=tokens,
        keys=tokens,
        values=tokens,
        turn_lengths=[len(turn) for turn in turns],
    )


EAST, NORTH = [1.0, 0.0], [0.0, 1.0]


@pytest.mark.parametrize("options", [{}, {"theta": 0.1, "page_match": 0.2}], ids=str)
def test_options_that_are_off_leave_the_paper_as_it_is(options: dict[str, float]) -> None:
    policy, paper = policy_named("fd-kvc", **options), policy_named("fd-kvc")
    dialogs = generate(SCENARIOS["mixed"], dialogs=2, seed=1)
    one, other = (simulate(each, dialogs, 56) for each in (policy, paper))

    assert (policy.steps, policy.looks_at) == (paper.steps, paper.looks_at)
    assert [step.source for step in policy.steps] == [
        *("Eq. 1", "Eq. 2", "Eqs. 3 and 4", "Eqs. 5 to 7", "Eqs. 5 and 8", "Eq. 9")
    ]
    assert set(one.state) == {"learning_rate", "ownership_loss"}
    np.testing.assert_array_equal(one.kept, other.kept)


@pytest.mark.parametrize(
    ("options", "step"),
    [
        ({"window": 0.5}, "Protection"),
        ({"reinforcement": "averaged"}, "Learning rate of an average"),
        ({"relevance": "attention"}, "Relevance reinforcement"),
        ({"kappa": 1.0}, "Adaptive channel weights"),
        ({"recall": 1.0}, "Recall"),
    ],
    ids=str,
)
def test_an_option_that_is_on_is_among_the_steps(options: dict[str, float], step: str) -> None:
    policy, paper = policy_named("fd-kvc", **options), policy_named("fd-kvc")
    own = {each.name for each in policy.steps if each not in paper.steps}
    assert step in own
    assert own <= {step, "Eviction and insertion"}


def test_a_window_protects_the_newest() -> None:
    # By score the older of equals would stay: with w_c = 1 all are worth the same.
    dialog = plain_dialog([[1] * 5])
    trace = simulate(policy_named("fd-kvc", w_c=1, window=0.5), dialog, budget=4)

    assert kept_tokens(trace, 0, 0) == [0, 1, 3, 4]
    odd = simulate(policy_named("fd-kvc", w_c=1, window=0.5), dialog, budget=3)
    assert kept_tokens(odd, 0, 0) == [0, 1, 4]  # half of three is one


def test_an_averaged_recency_stays_on_the_scale_of_relevance() -> None:
    dialog = pointing([[EAST], [[0.6, 0.8]], [EAST]])
    policy = policy_named("fd-kvc", gamma=0.5, alpha_0=2, reinforcement="averaged")
    trace = simulate(policy, dialog, budget=3)

    # Turn 2: relevance 1 and 0, so ρ is 1/2 · 1/2 + 1/2 · 1 and 1/2 · 1 + 1/2 · 0.
    assert channels(trace.every_entry(), 2)["recency"] == pytest.approx({0: 0.75, 1: 0.5, 2: 1})
    assert trace.state["learning_rate"][0] == pytest.approx([0.5] * 3)
    long = generate(SCENARIOS["adaptation"], dialogs=5, seed=1)
    recency = simulate(policy, long, 56).every_entry().channels["recency"]
    assert np.nanmax(recency) <= 1


def test_a_fork_to_an_average_takes_its_rate_at_once() -> None:
    dialog = generate(SCENARIOS["shift"], 1, 7)
    trace = simulate(policy_named("fd-kvc"), dialog, 56)
    average = policy_named("fd-kvc", reinforcement="averaged")

    rate = fork(trace, dialog, Fork(5, policy=average)).every_entry().recorded
    assert rate["learning rate before"][0, 0] == pytest.approx(0.12)


def test_relevance_may_be_the_attention_of_the_turn() -> None:
    # Token 1 weighs 3 and token 0 weighs 1; of the last two tokens one weighs 3.
    dialog = one_dialog(
        embeddings=[[1.0, 0.0], [0.6, 0.8], [2.0, 0.0], [2.0, 0.0]],
        queries=[[1.0]] * 4,
        keys=[[0.0], [math.log(3)], [math.log(3)], [0.0]],
        values=[[1.0]] * 4,
        turn_lengths=[2, 2],
    )
    policy = policy_named("fd-kvc", gamma=0.5, alpha_0=0.4, relevance="attention")
    entries = simulate(policy, dialog, budget=4).every_entry()

    assert channels(entries, 0)["recency"] == pytest.approx({0: 1 / 3, 1: 1})
    # By similarity token 0 would be the relevant one.
    relevance = by_token(entries, entries.recorded["relevance"], 0, 1)
    assert relevance == pytest.approx({0: 0, 1: 1})
    recency = channels(entries, 1)["recency"]
    assert recency == pytest.approx({0: 1 / 6, 1: 0.9, 2: 1, 3: 1 / 3})


def test_the_weights_shift_as_the_query_moves() -> None:
    dialog = pointing([[EAST], [EAST], [NORTH]])
    trace = simulate(policy_named("fd-kvc", kappa=0.5, theta=0.5), dialog, budget=3)

    # What is recent points east: the cosine with the query is 1, then 0.
    assert trace.state["continuity"][0] == pytest.approx([0, 1 / 2, -1 / 2])
    assert trace.state["cumulative_weight"][0] == pytest.approx([0.45, 0.7, 0.2])
    terms = trace.every_entry().terms
    recency = channels(trace.every_entry(), 2)["recency"]
    assert by_token(trace.every_entry(), terms["recency"], 0, 2) == pytest.approx(
        {token: 0.8 * each for token, each in recency.items()}
    )


def three_pages(**options: float) -> tuple[Trace, DialogBatch]:
    """Run two tokens east, two north and one east again, where recency alone decides."""
    dialog = pointing([[EAST, EAST], [NORTH, NORTH], [EAST]])
    policy = policy_named("fd-kvc", w_c=0, recall=1.0, **options)
    return simulate(policy, dialog, budget=2), dialog


def test_a_page_comes_back_when_the_query_returns_to_it() -> None:
    trace, dialog = three_pages()
    entries = trace.every_entry()

    assert trace.tier[0].tolist() == [[-1, -1], [0, 1], [3, 4]]
    # They come back with ρ = 1, which decays and is reinforced: more than the new token's 1.
    assert kept_tokens(trace, 0, 2) == [0, 1]
    recency = {0: 1.18, 1: 1.18, 2: 0.88, 3: 0.88, 4: 1}
    assert channels(entries, 2)["recency"] == pytest.approx(recency)
    # Two went, two came back, and of the last three evicted the tier had room for two.
    assert trace.state["moves"][0].tolist() == [0, 2, 6]
    assert turns_table(trace, dialog).moves.tolist() == [0, 2, 6]
    assert trace.evicted["budget"][0].tolist() == [0, 2, 3]

    assert (explain(trace, dialog, 0, 1, token=0).left) == (1, Rule.budget)
    back = explain(trace, dialog, 0, 2, token=0)
    assert (back.status, back.left) == (Status.kept, None)
    assert life(trace, dialog, 0, token=0).turn.tolist() == [0, 1, 2]
    assert np.isnan(metric_named("regret").late(trace, dialog)).all()
    assert cache_bytes(trace, dialog).keys == 2 * cache_bytes(trace, dialog).values


def test_a_query_is_on_a_page_from_the_page_match_on_itself_included() -> None:
    trace, _ = three_pages(page_match=0.0)

    # East is at a cosine of 0 with the page north, which is enough to stay there.
    assert trace.state["moves"][0].tolist() == [0, 2, 3]
    assert not {0, 1} & set(kept_tokens(trace, 0, 2))


def test_nothing_comes_back_while_the_query_stays_or_where_no_page_is_like_it() -> None:
    dialog = pointing([[EAST, EAST], [NORTH, NORTH], [NORTH], [[-1.0, 0.0]]])
    trace = simulate(policy_named("fd-kvc", w_c=0, recall=4.0), dialog, budget=2)

    entries = trace.every_entry()
    for turn in (2, 3):
        assert not {0, 1} & set(entries.token[0, turn].tolist())


def test_a_second_tier_of_a_stream_and_of_a_fork() -> None:
    trace, dialog = three_pages()
    cache = OnlineCache(trace.policy, budget=2)
    for turn, (low, high) in enumerate([(0, 2), (2, 4), (4, 5)]):
        tokens = dialog.keys[0, low:high]
        fed = cache.feed(queries=tokens, keys=tokens, values=tokens, embeddings=tokens)
        assert fed.kept.tolist() == kept_tokens(trace, 0, turn)

    # What the fork itself evicts waits, too, as the last that came.
    for budget, waiting in ((1, [3]), (2, [0, 1]), (3, [-1, 0, 1])):
        tier = state_at_fork(trace, dialog, Fork(1, budget=budget)).tier
        assert tier[0].tolist() == waiting
    none = fork(trace, dialog, Fork(1, policy=policy_named("fd-kvc", w_c=0)))
    assert none.tier.shape == (1, 1, 0)
    assert kept_tokens(none, 0, 2) == [2, 4]


# ------------------------------------------------------------------------------- salience


def said(
    words: str, surprisal: list[float] | None, turn_lengths: list[int], policy: Policy, budget: int
) -> Trace:
    """Run words, each letter a word with a direction of its own; each query asks all alike."""
    embeddings = np.eye(26)[[ord(letter) - ord("a") for letter in words]]
    alike = np.zeros((len(words), 2))
    dialog = one_dialog(
        embeddings=embeddings,
        queries=alike,
        keys=alike,
        values=alike,
        turn_lengths=turn_lengths,
        surprisal=surprisal,
    )
    return simulate(policy, dialog, budget)


def test_what_was_surprising_stays_until_it_has_faded() -> None:
    policy = policy_named("fd-kvc", salience=1, salience_decay=0.5)
    trace = said("abcde", [8, 2, 3, 3, 3], [2, 1, 1, 1], policy, 2)
    entries = trace.every_entry()

    salience = [by_token(entries, entries.channels["salience"], 0, turn) for turn in range(4)]
    assert salience == [
        {0: 8, 1: 2},
        {0: 4, 1: 1, 2: 3},
        {0: 2, 2: 1.5, 3: 3},
        {0: 1, 3: 1.5, 4: 3},
    ]
    assert [kept_tokens(trace, 0, turn) for turn in range(4)] == [[0, 1], [0, 2], [0, 3], [3, 4]]
    score = by_token(entries, entries.score, 0, 1)
    assert score == pytest.approx({0: 1, 1: 1 / 4, 2: 3 / 4})
    assert by_token(entries, entries.terms["cumulative"], 0, 1) == {0: 0, 1: 0, 2: 0}


def test_salience_takes_its_share_of_the_score_and_leaves_the_paper_the_rest() -> None:
    dialogs = random_dialog(3, [9, 12, 8])
    paper, half = (
        simulate(policy_named("fd-kvc", mu=0, salience=share), dialogs, 40).every_entry()
        for share in (0, 0.5)
    )

    for name in ("cumulative", "recency"):
        np.testing.assert_allclose(half.terms[name], paper.terms[name] / 2, rtol=1e-5)
    highest = np.nanmax(half.channels["salience"], axis=2, keepdims=True)
    np.testing.assert_allclose(
        half.terms["salience"], half.channels["salience"] / highest / 2, rtol=1e-5
    )


def test_a_policy_that_weighs_surprisal_says_so_where_there_is_none() -> None:
    policy = policy_named("fd-kvc", salience=0.5)
    sentence = "^this policy weighs the surprisal of every token, which these dialogs do not have$"
    vectors = dict.fromkeys(("queries", "keys", "values", "embeddings"), np.eye(2))

    with pytest.raises(ValueError, match=sentence):
        said("ab", None, [2], policy, 2)
    with pytest.raises(ValueError, match=sentence):
        OnlineCache(policy, 2).feed(**vectors)
    cache = OnlineCache(policy, 2)
    cache.feed(**vectors, surprisal=[1, 2])
    with pytest.raises(ValueError, match="surprisal must be given in every turn of a stream"):
        cache.feed(**vectors)
    for wrong, said_of_it in (
        ([1], "surprisal holds 1 numbers, but there are 2 tokens"),
        ([1, -1], "surprisal holds a number below 0, but no probability is above 1"),
        ([1, math.nan], "surprisal holds a number that is not finite"),
    ):
        with pytest.raises(ValueError, match=said_of_it):
            OnlineCache(policy, 2).feed(**vectors, surprisal=wrong)


def test_dialogs_with_surprisal_and_without_do_not_stand_in_one_batch() -> None:
    with_surprisal = random_dialog(1, [3])
    without = dataclasses.replace(with_surprisal, surprisal=None)

    with pytest.raises(ValueError, match="some of the dialogs have the surprisal of tokens"):
        stack([with_surprisal, without])


# ------------------------------------------------------------------------------- redundancy


def test_of_what_is_said_again_the_last_stays() -> None:
    policy = policy_named("fd-kvc", w_c=1, redundancy=0.9)
    trace = said("abcab", None, [3, 1, 1], policy, 3)
    entries = trace.every_entry()

    # Tokens 0 and 1 have gathered the most attention, and go because 3 and 4 repeat them.
    assert [kept_tokens(trace, 0, turn) for turn in range(3)] == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert by_token(entries, entries.channels["redundancy"], 0, 1) == {0: 1, 1: 0, 2: 0, 3: 0}
    terms = by_token(entries, entries.terms["redundancy"], 0, 1)
    assert terms == {0: pytest.approx(-2), 1: 0, 2: 0, 3: 0}
    assert by_token(entries, entries.score, 0, 1)[0] == pytest.approx(-1)
    assert evictions(entries, 0, 1) == {0: "budget"}


def test_what_is_repeated_stays_while_there_is_room_and_in_the_window() -> None:
    roomy = policy_named("fd-kvc", redundancy=0.9, tau=0.5)
    windowed = policy_named("fd-kvc", redundancy=0.9, window=1)

    # Its threshold judges by the score that an entry would have if nothing repeated it.
    assert kept_tokens(said("aab", None, [1, 1, 1], roomy, 3), 0, 2) == [0, 1, 2]
    assert kept_tokens(said("baa", None, [3], roomy, 2), 0, 0) == [0, 2]
    assert kept_tokens(said("baa", None, [3], windowed, 2), 0, 0) == [1, 2]


def test_what_is_less_alike_than_the_threshold_repeats_nothing() -> None:
    dialog = one_dialog(
        embeddings=[[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]],
        queries=np.ones((3, 1)),
        keys=np.zeros((3, 1)),
        values=np.ones((3, 1)),
        turn_lengths=[1, 1, 1],
    )
    for threshold, kept in ((0.5, [0, 2]), (0.7, [0, 2]), (0.9, [0, 1])):
        policy = policy_named("fd-kvc", w_c=1, redundancy=threshold)
        assert kept_tokens(simulate(policy, dialog, 2), 0, 2) == kept
    entries = simulate(policy, dialog, 3).every_entry()
    found = by_token(entries, entries.channels["redundancy"], 0, 2)
    assert found == pytest.approx({0: 0.6, 1: 0.8, 2: 0})
