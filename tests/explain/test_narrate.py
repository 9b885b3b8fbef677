"""The narrator: a worked dialog, every policy in every scenario, and policies it never saw."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.core.attention import Floats, Observation
from fdkvc.core.cache import Cache
from fdkvc.core.dialogs import DialogBatch
from fdkvc.engine.simulate import simulate
from fdkvc.explain.narrate import StepStory, headline, narrate, return_sentence
from fdkvc.policies import POLICIES, Policy, policy_named, read_policy
from fdkvc.policies.base import Step
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.explain.test_explain import budgets
from tests.worlds import EVICTING, all_entries, plain_dialog, policies, ragged

WORD = re.compile(r"\b(nan|None|inf)\b")


def test_a_turn_without_tokens_changes_nothing() -> None:
    dialogs = plain_dialog([[1.0, 2.0], [], [1.0]], topics=["A", None, "A"])
    for policy in map(policy_named, POLICIES):
        trace = simulate(policy, dialogs, budget=2)
        for step in narrate(trace, dialogs, 0, turn=1):
            assert step.sentence == "The turn has no tokens, so this step changed nothing."
            assert step.inputs == step.outputs == ()
        assert headline(trace, dialogs, 0, turn=1) == ("Turn 1: no new tokens, nothing changed.")
        assert headline(trace, dialogs, 0, turn=2).startswith("Turn 2: A continues; 1 new token")


@pytest.mark.parametrize("schedule", ["AABBA", "AAB"])
def test_what_runs_still_hold_of_the_topic_that_returns(schedule: str) -> None:
    dialogs = plain_dialog([[1.0]] * len(schedule), topics=[*schedule])
    runs = {key: simulate(policy_named(key), dialogs, budget=2) for key in ("fifo", "full")}
    words = return_sentence(runs.items(), dialogs)

    assert words == (
        "When topic A returns in turn 4, this is left of its 2 earlier tokens: fifo 0 "
        "(none since turn 3) and full 2."
        if schedule == "AABBA"
        else "No earlier topic returns in this dialog."
    )


@pytest.mark.parametrize(
    ("name", "budget", "words"),
    [
        # Of nine entries six stay: by score alone the newest, tokens 3 to 8.
        ("shift keep=2", 8, "2 of 9 entries are protected; by score alone 2"),
        # There is room for one page of four: by score alone that of the newest tokens.
        ("blocks(sinks(fifo), size=4)", 7, "4 of 5 entries are protected; by score alone 4"),
    ],
)
def test_protection_spares_what_the_places_of_the_turn_would_not_hold(
    name: str, budget: int, words: str
) -> None:
    dialogs = plain_dialog([[1.0]] * 9)
    trace = simulate(read_policy(name), dialogs, budget)
    turn = int(trace.evicted["budget"][0].argmax())  # the first that evicts
    (story,) = [s for s in narrate(trace, dialogs, 0, turn) if s.step.kind == "protect"]
    assert story.sentence == f"{words} of them would be evicted."


def test_a_rule_among_several_is_not_said_to_protect_what_the_others_do() -> None:
    dialogs = plain_dialog([[1.0]] * 9)
    trace = simulate(read_policy("sinks(window(knorm), n=1)"), dialogs, 4)
    stories = [story for story in narrate(trace, dialogs, 0, 8) if story.step.kind == "protect"]
    assert [story.step.name for story in stories] == ["Window", "Sinks"]
    assert {story.sentence for story in stories} == {
        "By all rules together, 3 of 5 entries are protected; by score alone 1 of them would be "
        "evicted."
    }


def test_a_score_of_nothing_has_no_sign() -> None:
    dialogs = generate(SCENARIOS["mixed"], seed=7)
    trace = simulate(policy_named("scissorhands"), dialogs, budget=56)
    for turn in range(dialogs.turns):
        for story in narrate(trace, dialogs, 0, turn):
            for text in (story.sentence, *(words for _, words in story.outputs)):
                assert not re.search(r"-0(?![.\d])", text), text


def test_how_the_topic_moved() -> None:
    dialogs = generate(SCENARIOS["return"], seed=7)
    trace = simulate(policy_named("fifo"), dialogs, budget=56)
    moves = [headline(trace, dialogs, 0, turn).split(";")[0] for turn in range(10)]

    assert moves == [
        "Turn 0: the dialog starts with A",
        "Turn 1: A continues",
        "Turn 2: A continues",
        "Turn 3: the topic changes to B",
        *(f"Turn {turn}: B continues" for turn in (4, 5, 6)),
        "Turn 7: the topic returns to A",
        *(f"Turn {turn}: A continues" for turn in (8, 9)),
    ]


def check(stories: list[StepStory], policy: Policy) -> None:
    assert tuple(story.step for story in stories) == policy.steps
    for story in stories:
        assert not story.sentence[0].islower()
        assert story.sentence.endswith(".")
        assert story.sentence.count(". ") == 0
        texts = [story.sentence, *(text for pair in story.inputs + story.outputs for text in pair)]
        for text in texts:
            assert text.strip()
            assert not WORD.search(text), text


@given(policies() | st.just(EVICTING), ragged(rows=2), budgets)
def test_any_run_is_told(policy: Policy, dialogs: DialogBatch, budget: int) -> None:
    trace = simulate(policy, dialogs, budget)
    for row in range(dialogs.rows):
        for turn in range(dialogs.turn_counts[row]):
            check(narrate(trace, dialogs, row, turn), policy)
            assert not WORD.search(headline(trace, dialogs, row, turn))


@pytest.mark.parametrize("key", POLICIES)
def test_steps_are_declared_as_their_kind_needs(key: str) -> None:
    policy = policy_named(key)
    assert sum(step.kind == "evict" for step in policy.steps) == 1
    for step in policy.steps:
        if step.kind == "change":
            assert step.writes[0] in policy.channels or not step.includes_new
            assert step.reads[0] in policy.channels or step.reads[0] not in step.writes
        if step.kind == "rate":
            assert set(step.writes) <= set(policy.initial_state())
        if step.kind == "evict":
            assert len(step.reads) in (0, 2)
        if step.kind == "attention":
            assert step.reads[:1] == ("attention_before",)
            assert step.writes[:1] == ("attention_after",)


@dataclass(frozen=True)
class Added(Policy):
    """A policy that the narrator does not know: the most similar to the turn stay."""

    key = "added"
    label = "Added"
    steps = (Step("Similarity", r"s_i = \cos(e_i, \bar e)", "a test", writes=("similarity",)),)
    quantity_names = {"similarity": "likeness"}  # noqa: RUF012

    def terms(self, cache: Cache, turn: Observation) -> Mapping[str, Floats]:
        return {"similarity": turn.similarity(cache.token)}


def test_a_policy_added_tomorrow_is_told_from_its_declaration() -> None:
    dialogs = generate(SCENARIOS["shift"], seed=7)
    trace = simulate(Added(), dialogs, budget=56)
    score = all_entries(trace).score[0, 4]
    score = score[np.isfinite(score)]

    (story,) = narrate(trace, dialogs, 0, turn=4)

    assert story.sentence == (
        f"The likeness of 88 entries ranges from {score.min():.3f} to {score.max():.3f}, "
        f"mean {score.mean(dtype=float):.3f}."
    )
