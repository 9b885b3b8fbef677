"""The tables say what the results and the trace hold, and how two runs differ."""

import dataclasses
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fdkvc.core.dialogs import DialogBatch, stack
from fdkvc.core.statistics import paired, summarize
from fdkvc.engine.metrics import metrics_of
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Trace
from fdkvc.explain.tables import (
    difference_table,
    entries_table,
    figures_table,
    first_difference,
    overlap_table,
    turns_table,
)
from fdkvc.paper.benchmark import Benchmark, PolicyScores, Results, run_benchmark
from fdkvc.paper.published import published
from fdkvc.paper.replication.tables import (
    ADAPTATIONS,
    LATENCY,
    SUMMARY,
    adaptation_table,
    latency_table,
    paired_table,
    summary_table,
    sweep_table,
)
from fdkvc.paper.study import Study
from fdkvc.policies import PAPER_POLICIES, POLICIES, policy_named
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS, custom_scenario
from tests.studies import scores_of
from tests.worlds import adaptation_in, all_entries, pointing

FIVE = ("shift", "return", "mixed", "complex", "gradual")
LATE = ("late_alignment", "late_retention", "late_diversity")


@pytest.fixture(scope="module")
def results() -> Results:
    return run_benchmark(Benchmark(dialogs=8, seed=3))


def by_hand(
    values: Mapping[str, Mapping[str, list[float]]], scenario: str = "shift", **settings: Any
) -> Results:
    """Make results of one scenario out of numbers, by policy and metric."""
    (dialogs,) = {len(row) for metrics in values.values() for row in metrics.values()}
    benchmark = Benchmark(
        scenarios=(SCENARIOS[scenario],),
        policies=tuple(policy_named(key) for key in values),
        dialogs=dialogs,
        metrics=tuple(name.removeprefix("late_") for name in values[next(iter(values))]),
        **settings,
    )
    measured = {
        policy: PolicyScores({name: np.array(row, np.float32) for name, row in metrics.items()}, {})
        for policy, metrics in values.items()
    }
    return Results(benchmark, {scenario: measured}, 0.1)


def test_summary_has_a_row_for_each_scenario_policy_and_metric(results: Results) -> None:
    table = summary_table(results)
    assert tuple(table.columns) == SUMMARY
    assert list(table[["scenario", "policy", "metric"]].itertuples(index=False, name=None)) == [
        (scenario, policy, metric)
        for scenario in (*FIVE, "composite")
        for policy in PAPER_POLICIES
        for metric in LATE
    ]
    assert set(table.n) == {8}


def test_summary_is_the_mean_with_students_interval(results: Results) -> None:
    for row in summary_table(results).to_dict("records"):
        expected = summarize(scores_of(results, row["scenario"], row["policy"], row["metric"]))
        figures = (expected.mean, expected.low, expected.high)
        assert (row["mean"], row["ci_low"], row["ci_high"]) == pytest.approx(figures, rel=1e-9)


def test_composite_is_the_mean_over_the_five_scenarios(results: Results) -> None:
    table = summary_table(results).set_index(["scenario", "policy", "metric"])["mean"].unstack(0)
    assert table["composite"].to_numpy() == pytest.approx(
        table[list(FIVE)].mean(axis=1).to_numpy(), rel=1e-6
    )


def test_there_is_no_composite_of_some_scenarios() -> None:
    ran = run_benchmark(Benchmark(dialogs=2, scenarios=(SCENARIOS["mixed"], SCENARIOS["shift"])))
    assert list(summary_table(ran).scenario.unique()) == ["mixed", "shift"]


def test_a_run_that_was_cancelled_shows_what_is_finished() -> None:
    whole = by_hand({"fifo": {"late_retention": [0.5, 0.7]}, "h2o": {"late_retention": [0.2, 0.4]}})
    wanted = dataclasses.replace(
        whole.benchmark, scenarios=(SCENARIOS["shift"], SCENARIOS["mixed"]), dialogs=5
    )
    part = Results(wanted, {**whole.measured, "mixed": {}}, 0.1)
    assert summary_table(part)[["scenario", "n"]].drop_duplicates().to_numpy().tolist() == [
        ["shift", 2]
    ]
    assert paired_table(part).n.tolist() == [2]


def test_adaptation_table(results: Results) -> None:
    table = adaptation_table(results)
    assert tuple(table.columns) == ADAPTATIONS
    assert table.policy.tolist() == list(PAPER_POLICIES)
    for row in table.to_dict("records"):
        turns = scores_of(results, "adaptation", row["policy"], "adaptation")
        assert (row["n"], row["mean"]) == (8, pytest.approx(turns.mean()))
        assert row["median"] == np.percentile(turns, 50)
        assert row["p90"] == pytest.approx(np.percentile(turns, 90))
        for name in ("mean", "median", "p90"):
            figure = published("adaptation", row["policy"], name)
            assert figure is not None
            assert row[f"published_{name}"] == figure.value


def test_paired_table_compares_all_with_the_baseline(results: Results) -> None:
    baseline = "fifo"
    table = paired_table(results, baseline)
    others = [key for key in PAPER_POLICIES if key != baseline]
    assert list(table[["scenario", "metric", "policy"]].itertuples(index=False, name=None)) == [
        (scenario, metric, policy)
        for scenario in (*FIVE, "composite")
        for metric in LATE
        for policy in others
    ]
    assert set(table.baseline) == {baseline}
    for row in table[table.t.notna()].to_dict("records"):
        ours, base = (
            scores_of(results, row["scenario"], policy, row["metric"])
            for policy in (row["policy"], baseline)
        )
        expected = paired(ours, base)
        assert (row["t"], row["p"]) == pytest.approx((expected.t, expected.p), rel=1e-6)


def timed(latencies: dict[str, float]) -> Study:
    return Study(Results(Benchmark(), {}, 0.1), latencies=latencies)


def test_latency_table() -> None:
    table = latency_table(timed({"fifo": 0.04, "fd-kvc": 0.12}))
    assert tuple(table.columns) == LATENCY
    assert table.policy.tolist() == ["fifo", "fd-kvc"]
    assert table.ms_per_turn.tolist() == [0.04, 0.12]
    assert table.ratio_to_fifo.tolist() == pytest.approx([1, 3])
    assert table.published_ms.tolist() == [0.027, 0.105]
    assert latency_table(timed({"h2o": 0.04})).ratio_to_fifo.isna().all(), "FIFO did not run"


def test_an_ablation_has_the_value_of_the_parameter() -> None:
    ran = by_hand({"sink": {"late_retention": [0.6]}})
    assert sweep_table(ran, "sinks")[["sinks", "mean"]].to_numpy() == pytest.approx(
        np.array([[4, 0.6]])
    )


RUNS = [
    *((policy_named(key), "mixed") for key in POLICIES),
    (policy_named("fd-kvc"), "gradual"),
    (policy_named("fd-kvc", tau=0.8), "return"),
]


@pytest.fixture(params=RUNS, ids=lambda run: f"{run[0].name} {run[1]}")
def run(request: pytest.FixtureRequest) -> tuple[Trace, DialogBatch]:
    policy, scenario = request.param
    dialogs = generate(SCENARIOS[scenario], 2, seed=7)
    return simulate(policy, dialogs, 56), dialogs


ENTRY_COLUMNS = ["turn", "token", "born", "topic", "status", "rule"]
ENTRY_COLUMNS += ["attention_before", "attention_after"]
TURN_COLUMNS = ["turn", "topic", "cached", "evicted", "ownership_loss", "learning_rate"]
TURN_COLUMNS += ["retention", "diversity", "alignment", "latency_ms"]


def test_columns_of_a_trace(run: tuple[Trace, DialogBatch]) -> None:
    trace, dialogs = run
    entries = all_entries(trace)
    assert list(entries_table(trace, dialogs)) == [
        *ENTRY_COLUMNS,
        *(f"channel_{name}" for name in trace.policy.channels),
        *(f"term_{name}" for name in entries.terms),
        "score",
        "rank",
        "protected",
    ]
    states = [name for name in trace.state if name not in TURN_COLUMNS]
    assert list(turns_table(trace, dialogs)) == [*TURN_COLUMNS[:6], *states, *TURN_COLUMNS[6:]]


def test_who_took_part_in_each_turn(run: tuple[Trace, DialogBatch]) -> None:
    (trace, dialogs), row = run, 1
    table = entries_table(trace, dialogs, row)
    before: list[int] = []
    for turn, part in table.groupby("turn"):
        assert isinstance(turn, int)
        new = list(range(32 * turn, 32 * turn + 32))
        assert part.token.tolist() == before + new
        assert part.token[part.born == turn].tolist() == new
        assert (part.born == part.token // 32).all()
        assert part.token[part.status.isin(["new", "new_evicted"])].tolist() == new
        before = part.token[part.status.isin(["kept", "new"])].tolist()
        assert before == [token for token in trace.kept_tokens[row, turn].tolist() if token >= 0]
    assert table.turn.unique().tolist() == list(range(dialogs.turns))


@pytest.mark.long
def test_what_decided_stands_in_each_row(run: tuple[Trace, DialogBatch]) -> None:
    trace, dialogs = run
    table = entries_table(trace, dialogs)
    kept = table.status.isin(["kept", "new"])
    assert set(table.rule[~kept]) <= {"budget", "threshold"}
    assert table.rule[kept].isna().all()
    stale = table.rule == "threshold"
    assert stale.any() == (trace.policy.name == "fd-kvc tau=0.8")
    assert table.loc[stale, "status"].eq("evicted").all()
    assert table.loc[stale, ["score", "rank"]].isna().all(axis=None)
    assert table.loc[stale].filter(like="channel_").notna().all(axis=None)
    assert table.loc[~stale, ["score", "rank"]].notna().all(axis=None)
    np.testing.assert_allclose(
        table.filter(like="term_").sum(axis=1)[~stale], table.score[~stale], rtol=1e-6
    )
    assert not (table.protected & ~kept).any()
    for _, part in table[~stale].groupby("turn"):
        order = part.sort_values("rank")
        assert order["rank"].tolist() == list(range(1, len(part) + 1))
        assert order.score.is_monotonic_decreasing
        free = order[~order.protected].status.isin(["kept", "new"]).tolist()
        assert free == sorted(free, reverse=True)  # the kept before the evicted
    weights = table[kept].groupby("turn")[["attention_before", "attention_after"]].sum()
    assert weights.to_numpy() == pytest.approx(1, abs=1e-5)
    assert table.loc[~kept, ["attention_before", "attention_after"]].isna().all(axis=None)


def test_turns_agree_with_the_entries(run: tuple[Trace, DialogBatch]) -> None:
    trace, dialogs = run
    entries, turns = entries_table(trace, dialogs), turns_table(trace, dialogs)
    kept = entries[entries.status.isin(["kept", "new"])]
    assert turns.cached.tolist() == kept.groupby("turn").size().tolist()
    evicted = entries[entries.status.str.contains("evicted")].groupby("turn").size()
    assert turns.evicted.tolist() == evicted.reindex(turns.turn, fill_value=0).tolist()
    topic = kept.turn.map(dict(zip(turns.turn, turns.topic, strict=True)))
    on_topic = [now in tokens.split("+") for now, tokens in zip(topic, kept.topic, strict=True)]
    share = pd.Series(on_topic, kept.index).groupby(kept.turn).mean()
    np.testing.assert_allclose(turns.retention, share, rtol=1e-6)


def test_a_token_of_two_topics_names_both() -> None:
    dialogs = generate(SCENARIOS["gradual"], 1, seed=1)
    entries = entries_table(simulate(policy_named("fifo"), dialogs, 56), dialogs)
    assert set(entries.topic[entries.born < 3]) == {"A"}
    assert "A+B" in set(entries.topic[entries.born == 5])
    assert set(entries.topic[entries.born > 7]) == {"B"}


def test_a_dialog_without_topics_has_empty_cells() -> None:
    vectors = np.random.default_rng(0).normal(size=(6, 4))
    dialogs = pointing(vectors[:3].tolist(), [], vectors[3:].tolist())
    trace = simulate(policy_named("h2o"), dialogs, 4)
    turns = turns_table(trace, dialogs)
    assert turns[["topic", "retention", "diversity", "alignment"]].isna().all(axis=None)
    assert turns.cached.tolist() == [3, 3, 4]
    entries = entries_table(trace, dialogs)
    assert entries.topic.isna().all()
    assert entries.groupby("turn").size().tolist() == [3, 3, 6]  # a silent turn keeps what it has


def test_a_shorter_row_of_a_batch_has_its_own_turns_only() -> None:
    short, long = (generate(custom_scenario(letters), 1, seed=4) for letters in ("AB", "ABBA"))
    batch = stack([short, long])
    policy = policy_named("fd-kvc")
    together = simulate(policy, batch, 40)
    for row, dialogs in enumerate((short, long)):
        alone = simulate(policy, dialogs, 40)
        pd.testing.assert_frame_equal(
            entries_table(together, batch, row), entries_table(alone, dialogs)
        )
        pd.testing.assert_frame_equal(
            turns_table(together, batch, row).drop(columns="latency_ms"),
            turns_table(alone, dialogs).drop(columns="latency_ms"),
        )


DIALOG = generate(SCENARIOS["mixed"], 1, 7)
NAMES = ("fifo", "sink", "h2o", "fd-kvc")
TRACES = {name: simulate(policy_named(name), DIALOG, 56) for name in NAMES}
ENTRIES = {name: entries_table(trace, DIALOG) for name, trace in TRACES.items()}
PAIRS = list(combinations(NAMES, 2))

every_pair = pytest.mark.parametrize(("one", "other"), PAIRS)


def kept_in(trace: Trace, turn: int) -> set[int]:
    return set(trace.kept_tokens[0, turn].tolist()) - {-1}


@every_pair
def test_the_overlap_is_that_of_the_sets_of_kept_tokens(one: str, other: str) -> None:
    table = overlap_table(ENTRIES[one], ENTRIES[other])

    assert list(table) == ["turn", "shared", "only_one", "only_other", "jaccard"]
    assert table["turn"].tolist() == list(range(12))
    assert first_difference(table) == table.turn[table.jaccard < 1].min()
    for turn, row in zip(range(12), table.itertuples(), strict=True):
        first, second = kept_in(TRACES[one], turn), kept_in(TRACES[other], turn)
        assert row.shared == len(first & second)
        assert (row.only_one, row.only_other) == (len(first - second), len(second - first))
        assert row.jaccard == pytest.approx(len(first & second) / len(first | second))


def test_a_run_overlaps_wholly_with_itself() -> None:
    table = overlap_table(ENTRIES["h2o"], ENTRIES["h2o"])

    assert (table["jaccard"] == 1).all()
    assert first_difference(table) is None
    assert difference_table(ENTRIES["h2o"], ENTRIES["h2o"]).empty


def test_two_empty_caches_overlap_wholly() -> None:
    evicted = pd.DataFrame({"turn": [0, 1], "token": [0, 0], "status": "evicted"})

    assert overlap_table(evicted, evicted)["jaccard"].tolist() == [1.0, 1.0]


@every_pair
def test_the_difference_lists_what_only_one_keeps(one: str, other: str) -> None:
    table = difference_table(ENTRIES[one], ENTRIES[other])

    columns = "turn token topic born keeper score_one rank_one score_other rank_other evicted"
    assert list(table) == columns.split()
    for turn in range(12):
        rows = table[table["turn"] == turn]
        assert rows["token"].is_monotonic_increasing
        first, second = kept_in(TRACES[one], turn), kept_in(TRACES[other], turn)
        assert set(rows.loc[rows["keeper"] == "one", "token"]) == first - second
        assert set(rows.loc[rows["keeper"] == "other", "token"]) == second - first


@every_pair
def test_scores_and_ranks_are_those_of_the_turn_and_of_the_eviction(one: str, other: str) -> None:
    table = difference_table(ENTRIES[one], ENTRIES[other])
    rows = {
        side: ENTRIES[name].set_index(["turn", "token"])
        for side, name in (("one", one), ("other", other))
    }

    for row in table.sample(40, random_state=1).to_dict(orient="records"):
        loser = "other" if row["keeper"] == "one" else "one"
        stays = rows[row["keeper"]].loc[(row["turn"], row["token"])]
        went = rows[loser].loc[(row["evicted"], row["token"])]
        assert stays["status"] in ("kept", "new")
        assert went["rule"] == "budget"
        assert row["evicted"] <= row["turn"]
        for name in ("score", "rank"):
            assert row[f"{name}_{row['keeper']}"] == stays[name]
            assert row[f"{name}_{loser}"] == went[name]


def test_the_figures_are_those_of_the_metrics() -> None:
    asked = metrics_of()
    optional = metrics_of(optional=True)
    turns = {n: turns_table(t, DIALOG, metrics=optional) for n, t in TRACES.items()}
    table = figures_table(turns, DIALOG, optional)

    figures = ["policy", "adaptation", "never"]
    assert list(table) == [*figures, *(f"late_{key}" for key in asked)]
    for row in table.to_dict(orient="records"):
        trace = TRACES[row["policy"]]
        for key, metric in asked.items():
            assert row[f"late_{key}"] == pytest.approx(float(metric.late(trace, DIALOG)[0]))
        adapted = adaptation_in(trace, DIALOG)
        assert (row["adaptation"], row["never"]) == (adapted.turns[0], adapted.never[0])
