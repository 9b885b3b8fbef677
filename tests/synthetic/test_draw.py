"""Scenarios, and the dialogs drawn from them."""

import math
from typing import Any

import numpy as np
import pytest

from fdkvc.core.dialogs import DialogBatch
from fdkvc.engine.metrics import diversity, retention
from fdkvc.engine.simulate import simulate
from fdkvc.policies import PAPER_POLICIES, policy_named
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import (
    BENCHMARK_SCENARIOS,
    SCENARIOS,
    Scenario,
    World,
    custom_scenario,
    scenario_named,
)
from tests.worlds import by_cosine, random_dialog

SMALL = World(tokens_per_turn=3, dimension=30, head_dimension=4)


@pytest.mark.parametrize(
    ("key", "schedule"),
    [
        ("shift", "AAA BBBBBBB"),
        ("return", "AAA BBBB AAA"),
        ("mixed", "AA BBB CC AA BBB"),
        ("complex", "AA BB CC DD EE BB AA CC AA CC"),
        ("gradual", "AAAAA BBBBBBB"),
        ("adaptation", "AAA BBBBBBBBBBBBBBBB"),
    ],
)
def test_the_papers_schedules(key: str, schedule: str) -> None:
    assert scenario_named(key).key == key
    assert scenario_named(key).schedule == schedule.replace(" ", "")


def test_the_benchmark_has_the_papers_five_scenarios() -> None:
    assert set(BENCHMARK_SCENARIOS) == set(SCENARIOS) - {"adaptation"}


def test_gradual_blends_over_turns_2_to_8() -> None:
    gradual = SCENARIOS["gradual"]
    share = np.array([0, 0, 0, 1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1, 1, 1, 1])

    np.testing.assert_allclose(gradual.mixture, np.stack([1 - share, share], axis=1), atol=1e-6)
    np.testing.assert_array_equal(gradual.current, share >= 0.5)


def test_a_schedule_of_ones_own() -> None:
    scenario = custom_scenario(" aac\tc\nB ")

    assert scenario.schedule == "AACCB"
    assert scenario.topic_names == ("A", "B", "C")
    assert scenario.current.tolist() == [0, 0, 2, 2, 1]
    np.testing.assert_array_equal(scenario.mixture, np.eye(3)[[0, 0, 2, 2, 1]])


@pytest.mark.parametrize("schedule", ["", "   ", "AA1B", "A-B", "ÄB", "A🂡"])
def test_a_schedule_that_is_not_letters_gets_one_clear_sentence(schedule: str) -> None:
    with pytest.raises(ValueError, match="but must be letters A to Z, one for each") as said:
        custom_scenario(schedule)
    assert repr("".join(schedule.upper().split())) in str(said.value)


def test_an_unknown_scenario_gets_one_clear_sentence() -> None:
    with pytest.raises(ValueError, match=r"^scenario 'shft' is unknown"):
        scenario_named("shft")


@pytest.mark.parametrize(
    ("schedule", "blend"),
    [
        ("AAB", (0.0, 0.5)),
        ("AAB", (0.0, 0.5, 1.0, 1.0)),
        ("AAB", (0.0, 0.5, 1.5)),
        ("AAB", (0.0, math.nan, 1.0)),
        ("AAA", (0.0, 0.5, 1.0)),
        ("ABC", (0.0, 0.5, 1.0)),
    ],
)
def test_a_blend_that_does_not_fit_its_schedule_gets_one_clear_sentence(
    schedule: str, blend: tuple[float, ...]
) -> None:
    sentence = "blend needs two topics|blend has . shares for 3 turns|blend is .*, but must be"
    with pytest.raises(ValueError, match=sentence):
        Scenario("mine", "Mine", schedule, blend)


@pytest.mark.parametrize("key", SCENARIOS)
def test_topics_are_orthonormal_and_differ_between_dialogs(key: str) -> None:
    batch = generate(SCENARIOS[key], dialogs=5, seed=2)
    assert batch.topics is not None
    topics = batch.topics.astype(float)
    count = len(batch.topic_names)

    products = topics @ topics.swapaxes(1, 2)
    np.testing.assert_allclose(products, np.tile(np.eye(count), (5, 1, 1)), atol=1e-6)
    assert np.abs(topics[0] - topics[1]).max() > 0.1


@pytest.mark.parametrize("noise", [0.05, 0.3])
@pytest.mark.parametrize("strength", [0.8, 0.2])
def test_a_token_is_its_topic_and_noise_of_the_given_standard_deviation(
    noise: float, strength: float
) -> None:
    world = World(noise=noise, topic_strength=strength)
    batch = generate(SCENARIOS["mixed"], dialogs=20, seed=4, world=world)
    assert batch.topics is not None

    topic = batch.topics[:, np.repeat(SCENARIOS["mixed"].current, world.tokens_per_turn)]
    rest = batch.embeddings.astype(float) - strength * topic
    # 491,520 numbers: the standard deviation is known to 0.1 %.
    assert rest.std() == pytest.approx(noise, rel=0.005)
    assert rest.mean() == pytest.approx(0, abs=0.005 * noise)
    # Also along the topic, where the token's own topic was taken off.
    assert (rest * topic).sum(axis=2).std() == pytest.approx(noise, rel=0.05)


def test_without_noise_a_token_is_its_topic() -> None:
    batch = generate(SCENARIOS["gradual"], dialogs=2, seed=4, world=World(noise=0))
    assert batch.topics is not None

    mixture = np.repeat(SCENARIOS["gradual"].mixture, 32, axis=0)
    np.testing.assert_allclose(batch.embeddings, 0.8 * mixture @ batch.topics, atol=1e-6)


def test_projections_have_variance_one_over_d_and_are_shared_by_tokens() -> None:
    world = World(dimension=64, head_dimension=16)
    batch = generate(SCENARIOS["shift"], dialogs=20, seed=5, world=world)
    matrices = np.stack([batch.projection(space) for space in ("query", "key", "value")])

    assert matrices.shape == (3, 20, 64, 16)
    assert matrices.var() == pytest.approx(1 / 64, rel=0.03)
    assert abs(np.corrcoef(matrices.reshape(3, -1)) - np.eye(3)).max() < 0.03
    assert abs(np.corrcoef(matrices.reshape(60, -1)) - np.eye(60)).max() < 0.2
    np.testing.assert_allclose(batch.keys, batch.embeddings @ matrices[1], atol=1e-5)
    np.testing.assert_allclose(batch.values, batch.embeddings @ matrices[2], atol=1e-5)
    queries = batch.embeddings @ matrices[0]
    by_turn = queries.reshape(20, 10, 32, 16).mean(axis=2)
    np.testing.assert_allclose(batch.mean_queries, by_turn, atol=1e-5)


def tokens_of(batch: DialogBatch, turns: int) -> dict[str, np.ndarray]:
    """Return what the first turns of a batch hold."""
    end = batch.bounds[0, turns]
    names = ("embeddings", "keys", "values", "topic_bits")
    return {name: getattr(batch, name)[:, :end] for name in names}


@pytest.mark.parametrize(
    ("one", "other", "turns"),
    [
        ("AAAB", "AAABBB", 4),
        ("AAA", "AAAB", 3),
        ("AABB", "AABBCDEFGHIJKLMNOPQRSTUVWXYZ", 4),
        ("AABC", "AABD", 3),
        ("CCAAB", "CCAAZ", 4),
    ],
)
def test_schedules_with_the_same_beginning_give_dialogs_with_the_same_beginning(
    one: str, other: str, turns: int
) -> None:
    first, second = (
        generate(custom_scenario(schedule), dialogs=3, seed=6, world=SMALL)
        for schedule in (one, other)
    )

    beginning, again = tokens_of(first, turns), tokens_of(second, turns)
    for name in ("embeddings", "keys", "values"):
        np.testing.assert_array_equal(beginning[name], again[name], err_msg=name)
    assert [first.topic_names[topic] for topic in first.current[0, :turns]] == list(one[:turns])
    assert [second.topic_names[topic] for topic in second.current[0, :turns]] == list(other[:turns])


def test_letters_are_names_only() -> None:
    ab, ba = (
        generate(custom_scenario(schedule), seed=7, world=SMALL) for schedule in ("AAB", "QQC")
    )

    np.testing.assert_array_equal(ab.embeddings, ba.embeddings)
    assert (ab.topic_names, ba.topic_names) == (("A", "B"), ("C", "Q"))
    assert ab.current.tolist() == [[0, 0, 1]]
    assert ba.current.tolist() == [[1, 1, 0]]
    assert ba.topics is not None
    own_topic = ba.topics[0, ba.current[0]]
    by_turn = ba.embeddings.reshape(3, 3, 30)
    assert (np.einsum("tnd,td->tn", by_turn, own_topic) > 0.5).all()


@pytest.mark.parametrize("key", ["shift", "complex", "gradual"])
def test_a_dialogs_number_decides_it_whichever_others_are_drawn(key: str) -> None:
    whole = generate(SCENARIOS[key], dialogs=7, seed=9)

    for part in (range(2, 5), range(6, 7), range(5, 1, -2)):
        some = generate(SCENARIOS[key], dialogs=part, seed=9)
        for row, number in enumerate(part):
            for name in ("embeddings", "keys", "values", "topics", "topic_bits"):
                one, other = getattr(some, name)[row], getattr(whole, name)[number]
                np.testing.assert_array_equal(one, other, err_msg=name)
            for product in ("logits", "similarities"):
                (one, _), (other, _) = some.products(product, 0), whole.products(product, 0)
                np.testing.assert_array_equal(one[row], other[number], err_msg=product)


def test_seeds_and_numbers_give_dialogs_that_differ() -> None:
    first = generate(SCENARIOS["shift"], dialogs=3, seed=0, world=SMALL).embeddings
    second = generate(SCENARIOS["shift"], dialogs=3, seed=1, world=SMALL).embeddings

    rows = np.concatenate([first, second]).reshape(6, -1)
    assert len(np.unique(rows[:, 0])) == 6
    noise = rows - rows.mean(axis=0)
    assert abs(np.corrcoef(noise) + 0.2 - 1.2 * np.eye(6)).max() < 0.3


@pytest.mark.parametrize("dialogs", [0, -3, 2.5, math.nan, "3", None, True])
def test_the_number_of_dialogs_must_be_a_whole_number_of_at_least_1(dialogs: Any) -> None:
    with pytest.raises(ValueError, match=f"is {dialogs!r}, but .*whole number of at least 1"):
        generate(SCENARIOS["shift"], dialogs=dialogs, world=SMALL)


def test_a_range_of_dialogs_must_not_be_empty_or_negative() -> None:
    with pytest.raises(ValueError, match="number of dialogs is 0, but must be"):
        generate(SCENARIOS["shift"], dialogs=range(3, 3), world=SMALL)
    with pytest.raises(ValueError, match="is -2, but must be"):
        generate(SCENARIOS["shift"], dialogs=range(-2, 1), world=SMALL)


@pytest.mark.parametrize("seed", [-1, 1.5, math.nan, "0", None, True])
def test_a_seed_must_be_a_whole_number_of_at_least_0(seed: Any) -> None:
    with pytest.raises(ValueError, match=r"^seed is .*, but must be"):
        generate(SCENARIOS["shift"], seed=seed, world=SMALL)


def test_more_topics_than_dimensions_get_one_clear_sentence() -> None:
    world = World(dimension=2)
    assert generate(custom_scenario("AB"), world=world).topics is not None
    with pytest.raises(ValueError, match="has 3 topics, but 2 dimensions hold at most"):
        generate(custom_scenario("ABC"), world=world)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("tokens_per_turn", 0, "a whole number from 1 to 4,096"),
        ("noise", math.nan, "a number from 0 to 10"),
        ("topic_strength", math.inf, "a number from 0 to 10"),
    ],
)
def test_a_world_out_of_range_gets_one_clear_sentence(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} is {value}, but must be {allowed}$"):
        World(**{name: value})


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("key", PAPER_POLICIES)
def test_labels_and_the_papers_cosine_rule_agree_in_the_papers_world(
    key: str, scenario: str
) -> None:
    dialogs = generate(SCENARIOS[scenario], dialogs=10, seed=12)
    trace = simulate(policy_named(key), dialogs, budget=56, entries=False)
    ruled = by_cosine(dialogs)

    for metric in (retention, diversity):
        np.testing.assert_array_equal(metric(trace, dialogs), metric(trace, ruled))


def test_the_cosine_rule_parts_from_the_labels_with_more_noise() -> None:
    dialogs = generate(SCENARIOS["shift"], dialogs=10, seed=12, world=World(noise=0.3))
    common_bits = by_cosine(dialogs).topic_bits & dialogs.topic_bits

    # 0.8 against a noise of length 0.3·√64: 56 % of a topic's own tokens pass.
    assert (common_bits > 0).mean() == pytest.approx(0.56, abs=0.03)


def test_a_token_of_a_blend_is_of_both_its_topics_while_its_cosine_with_both_is_enough() -> None:
    dialogs = generate(SCENARIOS["gradual"], dialogs=50, seed=3)
    bits = dialogs.topic_bits.reshape(50, 12, 32)
    of_a, of_b = bits & 1, bits >> 1 & 1

    # B's share is 1/6 at turn 3 and 5/6 at turn 7; there few tokens pass for the lesser topic.
    assert (of_a[:, :3] == 1).all()
    assert (of_b[:, :3] == 0).all()
    assert (of_a[:, 4:7] & of_b[:, 4:7]).mean() > 0.5
    assert (of_a[:, 5] & of_b[:, 5]).mean() > 0.98
    assert (of_b[:, 8:] == 1).all()
    assert (of_a[:, 8:] == 0).all()
    assert (of_a[:, 3] == 1).all()
    assert (of_b[:, 7] == 1).all()
    np.testing.assert_array_equal(dialogs.topic_counts, 2)


def test_projections_need_what_a_dialog_of_ones_own_has_not() -> None:
    dialog = random_dialog(0, [3, 2])

    with pytest.raises(ValueError, match="come without projection matrices"):
        dialog.projection("value")
