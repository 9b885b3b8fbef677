"""Arguments of calls that replays found cached or not, by source; the recall by another way."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

from fdkvc.conversations.arguments import AGE_LABELS, ANY, SOURCE_RECALL, forgotten, source_recall
from fdkvc.conversations.lexical import LexicalRecordings
from fdkvc.conversations.replay import ARGUMENTS, Replay, replay, replay_arguments
from fdkvc.core.transcripts import SPAN_KINDS
from fdkvc.engine.evidence import Evidence
from fdkvc.engine.simulate import simulate
from fdkvc.engine.summary import mean_table
from fdkvc.policies import policy_named
from fdkvc.verdict.results import ReplayRun, forgotten_text
from tests.examples import dialogs_of

SMALL = Replay((policy_named("h2o"), policy_named("fifo")), (24, 64))
RECORDINGS = LexicalRecordings(dialogs_of())


@cache
def replayed() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return every value of the metrics, and every argument."""
    return replay_arguments(SMALL, RECORDINGS, workers=1)


def test_every_argument_of_every_call_has_a_row_for_each_policy_and_budget() -> None:
    table, found = replayed()
    assert tuple(found) == ARGUMENTS
    assert table.equals(replay(SMALL, RECORDINGS, workers=1))
    demanded = sum(demand.kind == "call" for one in RECORDINGS for demand, _ in one.evidence)
    assert len(found) == 4 * demanded
    for recording in RECORDINGS:
        trace = simulate(SMALL.policies[0], recording.dialogs, 24)
        rows = found[
            (found.dialog == recording.transcript.name)
            & (found.policy == "h2o")
            & (found.budget == 24)
        ]
        lost = [
            int(turns[0])
            for (demand, _), turns in zip(
                recording.evidence, Evidence(trace, recording).lost, strict=True
            )
            if demand.kind == "call"
        ]
        assert rows.lost.tolist() == lost
        assert rows.held.tolist() == [float(turn < 0) for turn in lost]
        for row in rows.to_dict("records"):
            assert row["source"] in SPAN_KINDS
            assert row["age"] == row["turn"] - row["mentioned"] >= 1


@pytest.mark.parametrize(
    ("age", "metric"),
    [
        (ANY, "call_recall"),
        ("recent", "recent_call_recall"),
        ("middle", "middle_call_recall"),
        ("old", "old_call_recall"),
    ],
)
def test_the_recall_of_any_source_is_that_of_the_metric(age: str, metric: str) -> None:
    table, found = replayed()
    recall = source_recall(found)
    assert tuple(recall) == SOURCE_RECALL
    some = recall[(recall.source == ANY) & (recall.age == age)].set_index(["policy", "budget"])
    known = mean_table(table)
    known = known[known.metric == metric].set_index(["policy", "budget"])
    for name in ("n", "services", "mean", "ci_low", "ci_high"):
        np.testing.assert_allclose(some[name], known[name].reindex(some.index), atol=1e-6)


def test_sources_and_ages_divide_the_arguments() -> None:
    recall = source_recall(replayed()[1])
    case = recall[(recall.policy == "fifo") & (recall.budget == 24)]
    every = int(case[(case.source == ANY) & (case.age == ANY)].arguments.iloc[0])
    assert case[(case.source != ANY) & (case.age == ANY)].arguments.sum() == every
    assert case[(case.source != ANY) & (case.age != ANY)].arguments.sum() == every
    assert set(case.age) <= set(AGE_LABELS)


def test_what_was_forgotten_is_sorted_by_how_long_ago_it_was_given() -> None:
    table, found = replayed()
    lost = forgotten(found)
    assert (lost.held < 1).all()
    assert len(lost) == (found.held < 1).sum()
    for _, group in lost.groupby(["policy", "budget"]):
        assert group.age.is_monotonic_decreasing
    run = ReplayRun(SMALL, RECORDINGS, table, found, seconds=0, digest="")
    last = lost[(lost.policy == "fifo") & (lost.budget == 64)]
    assert f"What fifo forgot at budget 64: {len(last)} arguments" in forgotten_text(run)
