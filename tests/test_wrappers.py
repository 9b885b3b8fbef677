"""Policies around policies: written in a line, and told like any other."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from worlds import kept_tokens, plain_dialog

from fdkvc.dialogs.batch import DialogBatch, one_dialog
from fdkvc.dialogs.draw import generate
from fdkvc.dialogs.scenarios import SCENARIOS
from fdkvc.parameters import Field
from fdkvc.policies import (
    Policy,
    as_record,
    policy_named,
    read_policy,
    recorded_policy,
    wrapped,
)
from fdkvc.policies.recall import Recall
from fdkvc.policies.together import Together
from fdkvc.run.fork import Fork
from fdkvc.run.simulate import simulate
from fdkvc.said.formats import EXAMPLES, read_file
from fdkvc.said.lexical import lexical_recording
from fdkvc.told.counterfactual import counterfactual
from fdkvc.told.explain import explain, sentences
from fdkvc.told.narrate import narrate

EAST, NORTH = [1.0, 0.0], [0.0, 1.0]


def pages(*turns: list[list[float]]) -> DialogBatch:
    tokens = [token for turn in turns for token in turn]
    lengths = [len(turn) for turn in turns]
    return one_dialog(
        embeddings=tokens, queries=tokens, keys=tokens, values=tokens, turn_lengths=lengths
    )


def test_fifo_with_a_second_tier_worked_by_hand() -> None:
    dialog = pages([EAST, EAST], [NORTH, NORTH], [EAST])
    trace = simulate(read_policy("recall(fifo)"), dialog, budget=3)

    # Turn 1 evicts token 0; turn 2 points east again and brings it back; 0 and 1 are the oldest.
    assert [kept_tokens(trace, 0, turn) for turn in range(3)] == [[0, 1], [1, 2, 3], [2, 3, 4]]
    assert trace.tier[0].tolist() == [[-1, -1, -1], [-1, -1, 0], [-1, 0, 1]]
    assert trace.state["moves"][0].tolist() == [0, 1, 4]
    assert explain(trace, dialog, 0, 2, token=0).left == (2, 1)
    assert sentences(explain(trace, dialog, 0, 2, token=0)) == [
        "Token 0 (from turn 0) was evicted in turn 2 by the budget.",
        "Its score of 0 ranked 5th of 5, and 3 stay.",
        "The last to stay scored 2, so 2 was missing.",
    ]
    assert narrate(trace, dialog, 0, 2)[0].name == "Recall"


def test_without_places_it_is_the_policy_inside() -> None:
    dialogs = generate(SCENARIOS["return"], dialogs=2, seed=3)
    one, other = (
        simulate(read_policy(name), dialogs, 56, entries=False)
        for name in ("recall(fd-kvc-window)", "fd-kvc-window recall=1")
    )
    none, plain = (
        simulate(read_policy(name), dialogs, 56, entries=False)
        for name in ("recall(h2o, tier=0)", "h2o")
    )

    np.testing.assert_array_equal(one.kept, other.kept)
    np.testing.assert_array_equal(none.kept, plain.kept)
    np.testing.assert_array_equal(none.output, plain.output)
    assert none.policy.steps == plain.policy.steps


def test_a_counterfactual_speaks_of_both() -> None:
    dialogs = generate(SCENARIOS["return"], seed=7)
    trace = simulate(read_policy("recall(sink, tier=0.5)"), dialogs, 56)
    token = 40

    changes = {each.name: each for each in counterfactual(trace, dialogs, 0, 2, token)}

    assert list(changes) == ["sinks", "tier", "page_match", "budget"]
    sinks = changes["sinks"].after
    assert sinks is not None
    again = simulate(trace.policy.variant(sinks=sinks), dialogs, 56)
    assert (token in again.kept[0, 2]) != (token in trace.kept[0, 2])


def test_what_is_around_a_policy_is_asked_what_entries_are_worth() -> None:
    """FD-KVC's ownership loss is of the scores that evict, so the heads together have one."""
    dialogs = generate(SCENARIOS["mixed"], dialogs=2, seed=1)
    trace = simulate(Together(policy_named("fd-kvc"), 2), dialogs, 56, entries=False)

    loss = trace.state["ownership_loss"]
    np.testing.assert_array_equal(loss[0], loss[1])
    alone = simulate(policy_named("fd-kvc"), dialogs, 56, entries=False)
    assert (alone.state["ownership_loss"][0] != alone.state["ownership_loss"][1]).any()


# ------------------------------------------------------------------------------- written


@pytest.mark.parametrize(
    ("written", "name", "title"),
    [
        ("recall(h2o)", "recall(h2o)", "Recall (H2O)"),
        (
            "recall( h2o:window=0.25 , tier=2,page_match=0.7)",
            "recall(h2o window=0.25, tier=2.0)",
            "Recall (H2O window=0.25, tier=2.0)",
        ),
        ("recall(fd-kvc gamma=0.8, tier=1)",) + 2 * ("fd-kvc gamma=0.8 recall=1.0",),
    ],
)
def test_it_is_read_and_written_in_a_line(written: str, name: str, title: str) -> None:
    policy = read_policy(written)

    assert (policy.name, policy.title.replace("FD-KVC", "fd-kvc")) == (name, title)
    assert read_policy(policy.name) == policy
    assert recorded_policy(**json.loads(json.dumps(as_record(policy)))) == policy


def test_a_link_has_it_among_others() -> None:
    chosen = Field("Policies", "", name="policies", default=("fifo",), read=_name)
    names = ["fifo", "recall(h2o window=0.25, tier=2.0)", "fd-kvc gamma=0.8"]

    link = chosen.written(names)

    assert link == "fifo,recall(h2o:window=0.25,tier=2.0),fd-kvc:gamma=0.8"
    assert chosen.parse(link) == names


def _name(text: str) -> str:
    return read_policy(text).name


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("recall(h2o", "'recall(h2o' needs a closing parenthesis at its end, such as recall(h2o)"),
        ("recal(h2o)", "'recal' cannot stand around a policy: choose from window, "),
        ("recall", "a policy stands inside recall: write recall(POLICY), such as recall(h2o)"),
        ("recall(nothing)", "policy 'nothing' is unknown"),
        ("recall()", "policy '' is unknown"),
        ("recall(h2o, tier)", "'tier' in 'recall(h2o, tier)' is no hyperparameter"),
        ("recall(h2o, tier=9)", "tier is 9.0, but must be a number from 0 to 4"),
        ("recall(h2o, places=9)", "'places' is not a hyperparameter of recall (it has: tier, "),
        ("recall(recall(h2o))", "recall(h2o) has a second tier already"),
        ("recall(full)", "full evicts nothing, so recall changes nothing"),
        ("turns(recall(h2o))", "recall(h2o) brings entries back, but turns judges none again"),
        ("turns(turns(fifo))", "turns(fifo) has 'picks' already, so turns cannot stand around it"),
        ("window(full)", "full evicts nothing, so window changes nothing"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(written: str, message: str) -> None:
    with pytest.raises(ValueError, match="^" + _escaped(message)):
        read_policy(written)


def _escaped(message: str) -> str:
    return "".join(f"\\{each}" if each in "()" else each for each in message)


# ------------------------------------------------------------------------------- by hand


def kept_by(name: str, dialog: DialogBatch, budget: int) -> list[list[int]]:
    trace = simulate(read_policy(name), dialog, budget)
    return [kept_tokens(trace, 0, turn) for turn in range(trace.turns)]


def test_a_window_around_a_policy_worked_by_hand() -> None:
    dialog = plain_dialog([[3, 1], [2, 9], [8, 7]])

    # The shortest keys stay; half of the budget, and its newest two tokens, whatever their keys.
    assert kept_by("knorm", dialog, 4) == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 5]]
    assert kept_by("window(knorm)", dialog, 4) == [[0, 1], [0, 1, 2, 3], [1, 2, 4, 5]]
    assert read_policy("window(h2o, share=0.75)") == policy_named("h2o", window=0.75)
    # SnapKV's window is another: the share of a turn that votes.
    assert read_policy("window(snapkv, share=0.75)").name == "window(snapkv, share=0.75)"


def test_a_whitelist_worked_by_hand() -> None:
    dialog = plain_dialog([[1, 1, 1], [1], [1, 1]])

    assert kept_by("whitelist(fifo)", dialog, 4)[2] == [0, 1, 4, 5]  # half of the budget
    assert kept_by("whitelist(fifo, most=1)", dialog, 4)[2] == [0, 1, 2, 5]
    assert kept_by("whitelist(fifo, first=0)", dialog, 4)[2] == [2, 3, 4, 5]
    speakers = np.array([[1, 0, 1]])
    said = dataclasses.replace(dialog, speakers=speakers)
    assert kept_by("whitelist(fifo, first=0, speaker=user)", said, 2)[2] == [3, 5]
    # Nobody is known to speak in a drawn dialog.
    assert kept_by("whitelist(fifo, first=0, speaker=user)", dialog, 2)[2] == [4, 5]
    # It leaves no place to the sinks.
    assert kept_by("whitelist(sink, first=2, most=1)", dialog, 3)[1] == [0, 1, 2]


def test_a_recording_knows_who_speaks() -> None:
    recording = lexical_recording(read_file(EXAMPLES / "dialogues.json")[0], 0)
    trace = simulate(
        read_policy("whitelist(fifo, first=0, speaker=system, most=1)"), recording.dialogs, 24
    )

    last = trace.kept[0, -1]
    said = recording.transcript.spoken_by
    assert {said[turn] for turn in recording.dialogs.born[0, last]} == {"system"}
    assert set(said) == {"user", "system"}


def test_turns_are_judged_once_worked_by_hand() -> None:
    dialog = plain_dialog([[3, 1, 2, 4], [8, 6], [9, 7]])

    # Half of each turn is picked, by the shortest keys: 1 and 2, then 5, then 7. What was not
    # picked leaves first, the oldest of it first; then what was picked longest ago.
    assert kept_by("turns(knorm, picks=0.5)", dialog, 3) == [[1, 2, 3], [1, 2, 5], [2, 5, 7]]
    trace = simulate(read_policy("turns(knorm, picks=0.5)"), dialog, 3)
    why = explain(trace, dialog, 0, 1, token=3)
    assert (why.score, why.cutoff, why.deciding_terms) == (-3, 1, ("passed over",))
    assert narrate(trace, dialog, 0, 1)[0].name == "Compression of the turn"


# ------------------------------------------------------------------------------- changed


def test_a_variant_changes_what_is_inside_too() -> None:
    policy: Policy = wrapped("recall", policy_named("h2o"))
    changed = policy.variant(window=0.25, tier=2.0)

    assert changed == Recall(policy_named("h2o", window=0.25), tier=2.0)
    change = Fork(3, policy=changed)
    assert change.changes(policy, 56) == [
        "window at 0.25 instead of 0.5",
        "second tier at 2.0 instead of 1.0",
    ]
    assert not change.starts_anew(policy)
    other = Fork(3, policy=policy_named("h2o", queries="each"))
    assert other.changes(policy, 56) == ["H2O queries=each instead of Recall (H2O)"]
    assert other.starts_anew(policy)
    assert not Fork(3, policy=policy_named("h2o")).starts_anew(policy)
