"""A study is the benchmark and all that the paper's other tables and claims need, also as files."""

import io
import threading
import zipfile
from functools import cache

import numpy as np
import pandas as pd
import pytest

from fdkvc.engine.metrics import alignment, late
from fdkvc.engine.simulate import simulate
from fdkvc.paper.benchmark import Benchmark, run_benchmark
from fdkvc.paper.published import ABLATION_DIALOGS, published_sweep
from fdkvc.paper.replication.rules import RULES, SIGNS
from fdkvc.paper.results import BenchmarkRun, StudyRun, markdown
from fdkvc.paper.study import Study, ablation, run_study, timed_policies
from fdkvc.policies import policy_named
from fdkvc.runs.export import as_zip
from fdkvc.runs.jobs import Progress
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS, World, custom_scenario
from tests.studies import few_dialogs, other_budget, paper_tables, scores_of


@pytest.mark.parametrize("space", ["key", "query"])
def test_it_knows_the_alignment_of_every_projection(space: str) -> None:
    study = few_dialogs()
    dialogs = generate(SCENARIOS["mixed"], 6, 4)
    trace = simulate(policy_named("h2o"), dialogs, 56, entries=False)
    expected = late(alignment(trace, dialogs, space), dialogs)
    measured = scores_of(study.results, "mixed", "h2o", f"late_alignment_{space}")
    np.testing.assert_allclose(measured, expected, atol=1e-6)


def test_it_keeps_every_turn() -> None:
    measured = few_dialogs().results.measured["mixed"]["fd-kvc"]
    turns = len(SCENARIOS["mixed"].schedule)
    for name in ("alignment", "retention", "ownership_loss", "learning_rate", "evicted_budget"):
        assert measured.series[name].shape == (6, turns)


def test_the_ablations_are_the_papers() -> None:
    sweeps = few_dialogs().sweeps
    assert list(sweeps) == ["w_c", "gamma"]
    for parameter, results in sweeps.items():
        values = [getattr(policy, parameter) for policy in results.benchmark.policies]
        assert values == list(published_sweep(parameter))
        assert results.dialogs("mixed") == 6
    assert ablation("gamma", Benchmark(dialogs=900)).dialogs == ABLATION_DIALOGS


def test_with_another_budget_there_is_nothing_of_the_papers() -> None:
    study = other_budget()
    assert (dict(study.sweeps), dict(study.probes)) == ({}, {})
    assert {*study.latencies} == {"fifo", "sink", "h2o", "fd-kvc"}


def test_a_schedule_of_ones_own_has_its_row_in_every_table() -> None:
    scenario = custom_scenario("AB")
    study = run_study(Benchmark(scenarios=(scenario,), dialogs=2), workers=1)
    run = StudyRun(study)
    assert scenario.label in run.text
    assert {*run.tables["summary.csv"].scenario} == {scenario.key}
    assert all(map(len, run.timed.values()))


def test_alignments_that_are_the_same_in_every_dialog_are_no_error() -> None:
    # In one dimension every cosine is 1 or −1, and here also the same under both policies.
    world = World(tokens_per_turn=2, head_dimension=1, dimension=5)
    study = run_study(Benchmark(dialogs=3, world=world), workers=1)
    assert "Late-turn alignment" in StudyRun(study).text


def test_fifo_is_timed_also_where_it_does_not_run() -> None:
    benchmark = Benchmark(policies=(policy_named("h2o"),))
    assert [policy.key for policy in timed_policies(benchmark)] == ["fifo", "h2o"]
    assert [policy.key for policy in timed_policies(Benchmark())] == [
        *("fifo", "sink", "h2o", "fd-kvc")
    ]


def test_progress_never_goes_back_and_ends_at_the_whole() -> None:
    seen: list[Progress] = []
    run_study(Benchmark(dialogs=4, scenarios=(SCENARIOS["shift"],)), on_progress=seen.append)
    shares = [progress.finished_jobs / progress.total for progress in seen]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    titles = " ".join(progress.title for progress in seen)
    ablations = ("Ablation: Cumulative weight (w_c)", "Ablation: Recency decay (γ)")
    for part in ("Benchmark", *ablations, "Latency"):
        assert part in titles


def test_cancel_keeps_what_is_finished() -> None:
    cancelled = threading.Event()
    study = run_study(
        Benchmark(dialogs=500, scenarios=(SCENARIOS["shift"],)),
        workers=1,
        on_progress=lambda _: cancelled.set(),
        cancelled=cancelled,
    )
    assert 0 < study.results.dialogs("shift") < 500
    assert not study.results.complete
    assert not {*study.latencies, *study.memories, *study.probes}

    costs = pd.read_csv(io.StringIO(StudyRun(study).files["cost.csv"]))
    assert costs.empty
    assert {"ms_per_turn", "key_bytes", "full_cache_bytes"} <= {*costs}


def test_a_cache_with_more_room_than_tokens_takes_what_it_holds() -> None:
    benchmark = Benchmark(scenarios=(SCENARIOS["shift"],), dialogs=1, budget=1000)
    costs = StudyRun(run_study(benchmark, workers=1)).timed["cost.csv"]
    assert isinstance(costs, pd.DataFrame)
    assert (costs.key_bytes + costs.value_bytes == costs.full_cache_bytes).all()
    assert costs.score_bytes_per_entry.tolist() == [0, 0, 4, 8]


def test_the_probes_are_what_they_say() -> None:
    probes = few_dialogs().probes
    assert (probes["highest_score"] > 1).all()
    # At the first turn both hold tokens of that turn only; they part at once after it.
    assert 0 < probes["same_entries"].mean() < 0.2


@cache
def files() -> dict[str, str]:
    return StudyRun(few_dialogs()).files


def test_the_benchmarks_files_are_among_them_byte_for_byte() -> None:
    study = few_dialogs()
    expected = BenchmarkRun(
        Study(run_benchmark(study.results.benchmark), latencies=study.latencies)
    ).files
    for name in ("summary.csv", "adaptation.csv", "paired.csv", "latency.csv"):
        assert files()[name] == expected[name]


def test_every_number_of_every_dialog_is_there() -> None:
    table = pd.read_csv(io.StringIO(files()["dialogs.csv"]))
    values = scores_of(few_dialogs().results, "mixed", "fd-kvc", "late_retention")
    rows = table[
        (table.scenario == "mixed")
        & (table.policy == "fd-kvc")
        & (table.metric == "late_retention")
    ]
    assert rows.dialog.tolist() == list(range(6))
    assert rows.value.astype("float32").tolist() == values.tolist()


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_study_gives_the_same_bytes_apart_from_times(workers: int) -> None:
    again = StudyRun(run_study(few_dialogs().results.benchmark, workers=workers)).files
    for name in set(files()) - {*StudyRun(few_dialogs()).timed, "run.json"}:
        assert again[name] == files()[name], name


def test_an_archive_holds_the_files_and_is_the_same_each_time() -> None:
    packed = as_zip(files())
    assert packed == as_zip(files())
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name).decode() for name in archive.namelist()} == files()


def test_markdown_has_every_table_with_rows_of_equal_length() -> None:
    text = markdown(paper_tables())
    for number in range(1, 8):
        assert f"### Table {number}: " in text
    blocks = [block for block in text.split("\n\n") if block.startswith("| ")]
    assert len(blocks) == 7
    for block in blocks:
        assert len({line.count("|") for line in block.splitlines()}) == 1
    assert "50.0 (50.0 % ✓)" in text


def test_every_verdict_has_its_sign_wherever_tables_are_told() -> None:
    signs = [rule.sign for rule in RULES]
    assert len(set(signs)) == len(set(SIGNS)) == len(RULES)
    for rule in RULES:
        assert f"{rule.sign} {rule.verdict}" in markdown(paper_tables())
        assert f"**{rule.verdict.capitalize()}**: {rule.meaning}" in markdown(paper_tables())


def test_a_study_without_late_metrics_has_its_files_all_the_same() -> None:
    scenario = Benchmark().scenarios[-1]
    few = StudyRun(run_study(Benchmark(scenarios=(scenario,), dialogs=2))).files
    assert set(few) == set(files())
    assert few["paired.csv"].count("\n") == 1
