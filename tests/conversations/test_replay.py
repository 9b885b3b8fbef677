"""Replays: every dialog under every policy and budget, and what the tables say of it."""

import dataclasses
import os
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fdkvc.conversations import lexical
from fdkvc.conversations import replay as replay_module
from fdkvc.conversations.formats import read_file
from fdkvc.conversations.lexical import LexicalRecordings, lexical_recording
from fdkvc.conversations.replay import (
    ARGUMENTS,
    BUDGETS,
    REPLAYED,
    Replay,
    replay,
    replay_arguments,
)
from fdkvc.core.recordings import Recording
from fdkvc.core.statistics import cluster_mean, summarize
from fdkvc.core.transcripts import Transcript, Turn
from fdkvc.engine.metrics import metric_named, metrics_of
from fdkvc.engine.simulate import simulate
from fdkvc.engine.summary import mean_table, paired_differences
from fdkvc.policies import policy_named, read_policy
from fdkvc.runs.jobs import CHUNKS_PER_WORKER, Progress
from fdkvc.verdict.results import ReplayRun, replay_text
from tests.examples import dialogs_of
from tests.worlds import measure

SMALL = Replay((policy_named("h2o"), read_policy("fd-kvc:gamma=0.8")), (24, 64))


@cache
def recordings() -> list[Recording]:
    return [lexical_recording(dialog) for dialog in dialogs_of() if dialog.calls]


@cache
def replayed_once() -> pd.DataFrame:
    return replay(SMALL, recordings())


def values(policy: str, budget: int, metric: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    table = replayed_once()
    of = (table.policy == policy) & (table.budget == budget) & (table.metric == metric)
    return np.asarray(table[of].value, np.float64)


def test_every_number_is_that_of_the_dialog_alone() -> None:
    assert tuple(replayed_once()) == REPLAYED
    metrics = len(metrics_of("evidence", optional=False))
    assert len(replayed_once()) == len(recordings()) * 2 * 2 * metrics
    for row, recording in enumerate(recordings()):
        trace = simulate(SMALL.policies[1], recording.dialogs, 24)
        for metric, number in measure(trace, recording).items():
            assert values("fd-kvc gamma=0.8", 24, metric)[row] == pytest.approx(number, nan_ok=True)


def test_metrics_that_are_asked_for_are_the_mean_over_heads() -> None:
    asked = ("retention", "output_error", "return_recall")
    table = replay(dataclasses.replace(SMALL, metrics=asked), recordings())

    assert list(dict.fromkeys(table.metric)) == [
        *metrics_of("evidence", optional=False),
        *(f"late_{key}" for key in asked),
    ]
    of_evidence = table.metric.isin(list(metrics_of("evidence", optional=False)))
    pd.testing.assert_frame_equal(table[of_evidence].reset_index(drop=True), replayed_once())
    numbers = table.set_index(["dialog", "policy", "budget", "metric"]).value
    for recording in recordings():
        trace = simulate(SMALL.policies[0], recording.dialogs, 24)
        for key in asked:
            measured = numbers[recording.transcript.name, "h2o", 24, f"late_{key}"]
            alone = metric_named(key).late(trace, recording.dialogs).mean()
            assert measured == pytest.approx(alone, abs=1e-6, nan_ok=True)


def test_chunks_do_not_change_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "CHUNK_NUMBERS", 1)
    seen: list[Progress] = []
    by_one = replay(SMALL, recordings(), workers=1, on_progress=seen.append)
    by_two = replay(SMALL, recordings(), workers=2)

    pd.testing.assert_frame_equal(by_one, by_two, check_exact=True)
    assert [progress.finished_jobs for progress in seen] == list(range(1, len(recordings()) + 1))
    assert {progress.total for progress in seen} == {len(recordings())}
    by = ["dialog", "policy", "budget", "metric"]
    pd.testing.assert_frame_equal(
        by_one.sort_values(by, ignore_index=True),
        replayed_once().sort_values(by, ignore_index=True),
        check_exact=True,
    )


def test_lexical_recordings_are_computed_once_for_several_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed: list[str] = []

    def counted(transcript: Transcript, *how: Any) -> Recording:
        computed.append(transcript.name)
        return lexical_recording(transcript, *how)

    monkeypatch.setattr(lexical, "lexical_recording", counted)
    monkeypatch.setattr(lexical, "KEPT", lexical.Kept(100_000))
    dialogs = [recording.transcript for recording in recordings()]
    table = replay(SMALL, LexicalRecordings(dialogs), workers=1)

    pd.testing.assert_frame_equal(table, replayed_once(), check_exact=True)
    replay(SMALL, LexicalRecordings(dialogs), workers=1)
    assert computed == [dialog.name for dialog in dialogs]


def test_a_dialog_with_a_long_turn_is_not_padded_together_with_others() -> None:
    short, long = (
        lexical_recording(Transcript(name, (Turn("user", "a word " * words),)))
        for name, words in (("short", 4), ("long", 1200))
    )
    few = [short] * 3
    jobs = replay_module.jobs_of(Replay(budgets=(32,)), [*few, long, *few])
    assert [[*job] for job in jobs] == [few, [long], few]


def test_a_cancelled_replay_returns_what_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "CHUNK_NUMBERS", 1)
    stop = threading.Event()
    table = replay(SMALL, recordings(), workers=1, on_progress=lambda _: stop.set(), cancelled=stop)

    names = [recording.transcript.name for recording in recordings()]
    dialogs = table.dialog.unique().tolist()
    # The next ones were submitted already and may have finished as well.
    assert 1 <= len(dialogs) <= CHUNKS_PER_WORKER < len(names)
    assert dialogs == names[: len(dialogs)]


def test_the_summary_is_over_dialogs_that_a_metric_speaks_of() -> None:
    table = mean_table(replayed_once()).set_index(["policy", "budget", "metric"])

    known = values("h2o", 64, "state_recall")
    assert np.isnan(known).sum() == 3  # chats have no states
    spoken = known[~np.isnan(known)]
    row: Any = table.xs(("h2o", 64, "state_recall"))
    assert (row.n, row.services, row["mean"]) == (3, 3, spoken.mean())
    assert np.isnan(row.ci_low)  # three clusters are too few


def of_kinds(values: list[float], kinds: str, policy: str) -> pd.DataFrame:
    """Make a table of dialogs, one of each kind."""
    rows = [
        (f"dialog {at}", kind, policy, 32, "call_recall", value)
        for at, (value, kind) in enumerate(zip(values, kinds, strict=True))
    ]
    return pd.DataFrame(rows, columns=list(REPLAYED))


def test_intervals_are_over_sets_of_services() -> None:
    random = np.random.default_rng(0)
    kinds = "ABCDEFGH" * 5
    level = dict(zip("ABCDEFGH", random.random(8), strict=True))
    recalls = [level[kind] + 0.01 * random.random() for kind in kinds]
    table = pd.concat([of_kinds(recalls, kinds, "fifo"), of_kinds([0.1] * 40, kinds, "h2o")])

    summary: Any = mean_table(table).set_index("policy").loc["fifo"]
    assert (summary.n, summary.services) == (40, 8)
    assert (summary.ci_low, summary.ci_high) == cluster_mean(recalls, list(kinds)).interval
    naive = summarize(recalls)
    assert summary.ci_high - summary.ci_low > 1.5 * (naive.high - naive.low)
    paired: Any = paired_differences(table, "h2o").iloc[0]
    assert (paired.policy, paired.services, paired.significant) == ("fifo", 8, True)
    assert paired.mean_diff == pytest.approx(np.mean(recalls) - 0.1)


def test_differences_are_paired_over_the_same_dialogs() -> None:
    table = paired_differences(replayed_once(), "h2o").set_index(["policy", "budget", "metric"])

    assert set(table.index.get_level_values("policy")) == {"fd-kvc gamma=0.8"}
    difference = values("fd-kvc gamma=0.8", 24, "call_recall") - values("h2o", 24, "call_recall")
    row: Any = table.xs(("fd-kvc gamma=0.8", 24, "call_recall"))
    assert row.mean_diff == pytest.approx(difference.mean())


def run_of(table: pd.DataFrame, seconds: float = 1.0, settings: Replay = SMALL) -> ReplayRun:
    arguments = pd.DataFrame(columns=list(ARGUMENTS))
    return ReplayRun(settings, recordings(), table, arguments, seconds, "0", seed=3, baseline="h2o")


def test_a_run_that_is_cancelled_amid_a_dialog_leaves_it_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_module, "CHUNK_NUMBERS", 1)
    stop, begun = threading.Event(), []

    def stopping(*arguments: Any, **more: Any) -> Any:
        begun.append(arguments)
        stop.set()
        return simulate(*arguments, **more)

    monkeypatch.setattr(replay_module, "simulate", stopping)

    assert replay(SMALL, recordings(), workers=1, cancelled=stop).empty
    assert len(begun) == 1


def test_files_and_text_hold_every_table() -> None:
    one = run_of(replayed_once()).files
    other = run_of(replay(SMALL, recordings()), seconds=2.0).files

    tables = {"replay.csv", "replay_summary.csv", "replay_paired.csv"}
    tables |= {"replay_sources.csv", "replay_forgotten.csv"}
    assert set(one) == {*tables, "run.json"}
    assert one["run.json"] != other.pop("run.json")
    assert all(one[name] == text for name, text in other.items())
    text = replay_text(replayed_once(), "h2o")
    mean = 100 * values("h2o", 64, "call_recall").mean()
    assert f" {mean:.1f}" in text
    assert "which is\nover 6 clusters" in text
    assert max(map(len, text.splitlines())) <= 104


def test_a_dialog_without_evidence_has_only_an_age() -> None:
    turns = (Turn("User", "nothing to remember"), Turn("Bot", "good"))
    means = mean_table(replay(SMALL, [lexical_recording(Transcript("chat", turns))]))

    assert set(means.metric) == {"token_age"}
    assert means["mean"].tolist() == [1 * 3 / 7] * 4  # three tokens of a turn ago among seven


def test_what_cannot_be_run_is_named() -> None:
    fifo = policy_named("fifo")
    for policies, budgets, sentence in (
        ((), (32,), "a replay needs at least one policy and one budget"),
        ((fifo,), (), "a replay needs at least one policy and one budget"),
        ((fifo,), (0,), "budget is 0, but must be a whole number from 1 to 1,000,000"),
        ((fifo,), (32, 32), "budget '32' is given twice"),
        ((fifo, fifo), (32,), "policy 'fifo' is given twice"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Replay(policies, budgets)


SGD = Path(os.environ.get("FDKVC_SGD_FILE", "no dialogues"))


@pytest.mark.skipif(
    not SGD.is_file(),
    reason="no dialogs of SGD: name a file of them with FDKVC_SGD_FILE=dialogues_001.json",
)
def test_on_sgd_the_papers_policy_forgets_what_calls_need() -> None:
    recordings = [lexical_recording(dialog) for dialog in read_file(SGD)]
    means = mean_table(replay(Replay(budgets=BUDGETS[1:2]), recordings))
    recall = means[means.metric == "call_recall"].set_index("policy")["mean"]

    assert recall["fifo"] == pytest.approx(0.82, abs=0.01)
    assert recall["random"] == pytest.approx(0.57, abs=0.03)
    assert recall["fd-kvc"] < recall["random"] < recall["h2o"] < recall["fifo"]


@pytest.mark.parametrize("policy", ["fifo", "h2o", "fd-kvc", "reread(messages(fifo))"])
def test_a_dialog_is_replayed_some_turns_at_a_time_where_all_would_not_fit(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = tuple(metrics_of("evidence"))
    settings = Replay((read_policy(policy),), (24, 60), metrics=every)
    one = recordings()[:1]
    at_once = replay_arguments(settings, one, workers=1)
    monkeypatch.setattr(replay_module, "MAX_KEPT_ENTRIES", 200)
    in_parts = replay_arguments(settings, one, workers=1)
    for whole, parts in zip(at_once, in_parts, strict=True):
        pd.testing.assert_frame_equal(whole, parts, check_exact=True)
