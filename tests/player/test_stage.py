"""The stage: what the browser gets of a run is the run, in few bytes, and what it opens on."""

import numpy as np
import pytest

from fdkvc.engine.trace import Rule, Status
from fdkvc.explain.course import term_courses
from fdkvc.explain.decisions import turn_view
from fdkvc.player.moments import held_at_return, nearly_kept
from fdkvc.player.payload import PROTECTED_BIT, RULE_BIT, LaneHead
from fdkvc.player.run import DialogChoice, StageRun
from fdkvc.policies import POLICIES, policy_named, read_policy
from fdkvc.synthetic.scenarios import World, custom_scenario, scenario_named
from fdkvc.ui.component import lanes_payload, name_of_all, payload
from fdkvc.ui.lanes import load_run
from tests.app_pages import unpacked

every_policy = pytest.mark.parametrize("key", list(POLICIES))


def run_of(name: str, schedule: str = "AABBA", budget: int = 12) -> StageRun:
    world = World(tokens_per_turn=8)
    dialog = DialogChoice(custom_scenario(schedule), 3, world)
    return load_run(dialog, read_policy(name), budget, ())


@every_policy
def test_what_the_browser_gets_is_the_run(key: str) -> None:
    run = run_of(key)
    head, (difference, flags, score, *terms) = unpacked(payload(run, "", None, ""))
    token = np.cumsum(difference, dtype=np.uint32)
    entries = run.entries

    assert head["lanes"][0]["counts"] == entries.groupby("turn").size().tolist()
    assert token.tolist() == entries["token"].tolist()
    assert [Status(flag & 7).name for flag in flags] == entries["status"].tolist()
    rules = [Rule(flag >> RULE_BIT & 3) for flag in flags]
    assert [rule.name if rule else None for rule in rules] == [
        rule if isinstance(rule, str) else None for rule in entries["rule"]
    ]
    assert (flags >> PROTECTED_BIT).astype(bool).tolist() == entries["protected"].tolist()
    np.testing.assert_array_equal(score, entries["score"].to_numpy(np.float32))
    assert len(terms) == (len(run.terms) if len(run.terms) > 1 else 0)
    for name, column in zip(run.terms, terms, strict=False):
        np.testing.assert_array_equal(column, entries[name].to_numpy(np.float32))
    cutoffs = [turn_view(run.trace, run.dialogs, 0, turn).cutoff for turn in range(5)]
    assert head["lanes"][0]["cutoffs"] == cutoffs


@pytest.mark.parametrize("schedule", ["AABBA", "AABAA"])
@pytest.mark.parametrize("key", ["fd-kvc", "h2o"])
def test_the_run_before_comes_after_the_run_with_what_they_decided_differently(
    key: str, schedule: str
) -> None:
    run, past = run_of("fd-kvc:gamma=0.5"), run_of(key, schedule)
    head, columns = unpacked(payload(run, "", past, "previous run"))
    alone, own = unpacked(payload(run, "", None, ""))
    past_alone, past_own = unpacked(payload(past, "", None, ""))

    for column, expected in zip(columns, [*own, *past_own[:3]], strict=True):
        np.testing.assert_array_equal(column, expected)
    assert head["lanes"][0] == alone["lanes"][0]
    assert head["lanes"][1]["cutoffs"] == past_alone["lanes"][0]["cutoffs"]
    assert head["scaled"] == (key == "fd-kvc")
    assert head["alike"] == (schedule == "AABBA")
    for turn, words in enumerate(head["headlines"]):
        kept = [set(one.trace.kept_tokens[0, turn].tolist()) - {-1} for one in (run, past)]
        lacked = f"{len(kept[0] - kept[1])} of the {len(kept[0])} kept"
        only = f"; the previous run lacks {lacked}." * head["alike"]
        assert words == alone["headlines"][turn][: -1 if only else None] + only


def test_the_browser_knows_what_leaves_together_in_each_turn() -> None:
    runs = tuple(map(run_of, ("blocks(fifo)", "fifo")))
    head, _ = unpacked(lanes_payload(runs, 2 * (LaneHead("", 12, "", ()),), None))
    size = runs[0].trace.policy.page_size
    assert [lane["pages"] for lane in head["lanes"]] == [[size] * 5, [1] * 5]


def test_lanes_are_their_runs_one_after_the_other() -> None:
    names = ("h2o", "fd-kvc", "fifo")
    runs = tuple(map(run_of, names))
    heads = tuple(LaneHead(name, 12, "", ()) for name in names)
    head, columns = unpacked(lanes_payload(runs, heads, None))

    assert head["name"] == name_of_all(runs)
    assert [lane["label"] for lane in head["lanes"]] == [*names]
    assert len(columns) == 3 * len(runs)
    for run, lane, difference, flags in zip(
        runs, head["lanes"], columns[::3], columns[1::3], strict=True
    ):
        assert np.cumsum(difference, dtype=np.uint32).tolist() == run.entries["token"].tolist()
        assert [Status(flag & 7).name for flag in flags] == run.entries["status"].tolist()
        assert sum(lane["counts"]) == len(run.entries)
        assert len(lane["cutoffs"]) == run.dialogs.turns


def test_sixty_turns_of_a_large_cache_are_sent_in_300_kilobytes() -> None:
    dialog = DialogChoice(custom_scenario("AAABBBCCCDDDEEEBBBAA" * 3), 7, World())
    run = load_run(dialog, policy_named("fd-kvc"), 512, ())

    assert len(run.entries) > 28_000
    assert len(payload(run, "", None, "")) < 300_000


@pytest.mark.parametrize("name", ["fd-kvc", "window(fd-kvc-adaptive kappa=1, share=0.5)", "h2o"])
def test_less_what_all_entries_lost_alike_each_has_gained(name: str) -> None:
    """Attention and relevance only ever add to a score."""
    trace = run_of(name).trace
    for course in term_courses(trace):
        terms = [
            dict(zip(trace.entries_in(turn).token[0], result.terms[course.term][0], strict=True))
            for turn, result in enumerate(trace.results or ())
        ]
        for turn in range(1, trace.turns):
            stayed = set(trace.kept_tokens[0, turn - 1]) & set(terms[turn]) - {-1}
            share = np.prod([shares[turn] for shares in course.shares.values()])
            gained = [terms[turn][token] - share * terms[turn - 1][token] for token in stayed]
            assert stayed
            if course.shares or name == "h2o":
                assert min(gained) > -1e-5
                assert max(gained) > 0


@every_policy
def test_only_a_policy_that_looks_at_history_remembers(key: str) -> None:
    trace = run_of(key).trace

    assert {course.remembers for course in term_courses(trace)} == {
        "history" in trace.policy.looks_at
    }


def test_decay_and_reinforcement_are_told_apart() -> None:
    cumulative, recency = term_courses(run_of("fd-kvc gamma=0.7").trace)

    assert recency.gained == "Relevance reinforcement"
    assert list(recency.shares) == ["Recency decay"]
    np.testing.assert_allclose(recency.shares["Recency decay"][1:], 0.7, rtol=1e-5)
    assert cumulative.gained == "Cumulative attention"


def test_it_opens_on_the_turn_after_a_change_of_topic_with_what_was_nearly_kept() -> None:
    for key in ("fd-kvc", "h2o"):
        dialog = DialogChoice(scenario_named("shift"), 7, World())
        run = load_run(dialog, policy_named(key), 56, ())
        turn, token = nearly_kept(run)
        made = turn_view(run.trace, run.dialogs, 0, turn)
        gone = (made.rule == Rule.budget) & ~made.new

        assert turn == 4  # B comes in turn 3
        assert token == made.token[gone][np.argmax(made.score[gone])]


def test_several_runs_open_where_a_topic_returns_with_an_entry_that_one_still_holds() -> None:
    dialog = DialogChoice(scenario_named("mixed"), 7, World())
    runs = [load_run(dialog, policy_named(key), 56, ()) for key in ("fifo", "h2o")]
    turn, token = held_at_return(runs)
    current = runs[0].dialogs.current[0].tolist()
    assert current[turn] == current[0] not in current[turn - 4 : turn]
    fifo, h2o = (run.trace.kept_tokens[0, turn - 1] for run in runs)
    assert token in h2o
    assert token not in fifo
    assert runs[0].dialogs.born[0][token] == 0

    alone, token = held_at_return(runs[:1])
    assert (alone, token) == (turn, 0), "if none holds any, with the topic's first"
    never = run_of("full", "AB")
    assert held_at_return([never]) == nearly_kept(never)


def test_where_nothing_is_evicted_it_opens_on_the_last_turn() -> None:
    assert nearly_kept(run_of("full")) == (4, None)
    assert nearly_kept(run_of("fifo", "A", budget=8)) == (0, None)
