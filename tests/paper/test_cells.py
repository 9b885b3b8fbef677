"""Every cell of the paper's tables is measured, beside the published figure, and compared."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fdkvc.core.statistics import paired, summarize
from fdkvc.paper.benchmark import Benchmark, run_benchmark
from fdkvc.paper.published import Published, read_printed
from fdkvc.paper.replication.cells import (
    MeasuredTable,
    cells_table,
    figure_words,
    measured_tables,
    verdicts_of,
)
from fdkvc.paper.replication.facts import (
    DIFFERENCE,
    Fact,
    facts,
    facts_table,
    printed,
    unrelated_spread,
)
from fdkvc.paper.replication.rules import (
    ONE_SIDED,
    POWER,
    POWER_OF_TEN,
    TWO_SIDED,
    Case,
    compare_case,
    mean_case,
    percentile_case,
    t_of_difference,
)
from fdkvc.paper.replication.tables import (
    ALIGNMENTS,
    PROJECTIONS,
    PUBLISHED,
    alignments_table,
    differences_table,
    summary_table,
)
from fdkvc.paper.shipped import papers_run
from fdkvc.policies import policy_named
from fdkvc.synthetic.scenarios import SCENARIOS, World
from tests.studies import PRINTED, few_dialogs, paper_study, paper_tables, scores_of


def table(number: int) -> MeasuredTable:
    return next(table for table in paper_tables() if table.number == number)


@pytest.mark.long
def test_every_figure_stands_in_one_table_once_and_is_worked_out_once() -> None:
    study = paper_study()
    table = facts_table(study)
    assert not table.duplicated(["source", "scenario", "policy", "metric"]).any()
    late = table[table.source == "benchmark"]
    pd.testing.assert_series_equal(
        late["mean"].reset_index(drop=True), summary_table(study.results)["mean"]
    )
    assert set(table.source) == {
        *("benchmark", "difference", "adaptation", "latency", "default"),
        *study.sweeps,
    }
    assert facts(study) is facts(study)


@pytest.mark.parametrize("number", range(1, 7))
def test_every_printed_cell_stands_beside_a_measured_one(number: int) -> None:
    printed = PRINTED[number - 1]
    columns = {"late_retention": "composite"} if number == 4 else {}
    for (row, column), figure in printed.items():
        key = f"{float(row):g}" if number in (5, 6) else row
        cell = table(number).cells[key, columns.get(column, column)]
        assert cell.published == figure
        assert math.isfinite(cell.mean)


def test_the_hyperparameters_are_the_papers_and_count_as_nothing_reproduced() -> None:
    cells = table(7).cells
    assert len(cells) == 7
    assert all(cell.difference == 0 for cell in cells.values())
    assert {cell.verdict for cell in cells.values()} == {None}


def test_of_what_varies_100_dialogs_confirm_nothing_and_contradict_no_retention() -> None:
    for number, column in ((3, "mixed"), (3, "complex"), (4, "composite")):
        assert table(number).cells["fd-kvc", column].verdict == "open"
    for number in (5, 6):
        retention = [
            cell for (_, column), cell in table(number).cells.items() if column == "late_retention"
        ]
        assert len(retention) == 6
        assert all(cell.verdict in ("open", "reproduced") for cell in retention)


def test_a_level_of_alignment_differs_however_small_the_printed_one_is() -> None:
    levels = [cell for (row, _), cell in table(1).cells.items() if row != DIFFERENCE]
    assert len(levels) == 24
    assert {cell.verdict for cell in levels} == {"differs"}


def test_the_difference_that_the_paper_tests_is_indistinguishable_from_zero() -> None:
    cells = {column: cell for (row, column), cell in table(1).cells.items() if row == DIFFERENCE}
    assert set(cells) == {"shift", "return", "mixed", "complex", "gradual", "composite"}
    assert {cell.verdict for cell in cells.values()} == {"indistinguishable from zero"}
    one = scores_of(paper_study().results, "shift", "fd-kvc", "late_alignment")
    other = scores_of(paper_study().results, "shift", "h2o", "late_alignment")
    expected = paired(one, other)
    assert cells["shift"].low == pytest.approx(expected.low, abs=1e-6)
    assert cells["shift"].high == pytest.approx(expected.high, abs=1e-6)
    assert cells["shift"].published_value == pytest.approx(0.0190 - 0.0084)


def test_the_t_of_a_difference_is_the_printed_one_or_follows_from_the_measured_spread() -> None:
    printed = [t_of_difference(key, math.nan) for key in ("shift", "mixed", "gradual")]
    assert printed == [1.31, 0.57, 0.87]
    expected = (0.0196 - 0.0184) / (0.09 / math.sqrt(600))
    assert t_of_difference("composite", 0.09) == pytest.approx(expected)
    assert math.isnan(t_of_difference("composite", math.nan))


def test_the_spread_of_unrelated_vectors_is_measured_and_smaller_over_five_scenarios() -> None:
    results = paper_study().results
    assert unrelated_spread(results, "shift", "fd-kvc") == pytest.approx(0.25, abs=0.04)
    for policy in ("fifo", "h2o", "fd-kvc"):
        assert unrelated_spread(results, "composite", policy) == pytest.approx(0.165, abs=0.03)
    bare = run_benchmark(Benchmark(dialogs=2))
    assert math.isnan(unrelated_spread(bare, "shift", "fd-kvc"))


FIGURE = Published(0.5, 0.0005, "50.0%", "Table 9", 400)


@pytest.mark.parametrize(
    ("mean", "expected"),
    [
        (0.5, "reproduced"),
        (0.503, "reproduced"),
        (0.51, "open"),
        (0.527, "open"),
        (0.53, "differs"),
    ],
)
def test_the_rule_by_hand(mean: float, expected: str) -> None:
    # s = 0.2, n = 400 and 400. Equivalent within 0.0005 + 1.96·0.2/√400 = 0.0201, less the error of
    # 1.645·0.2/√400 = 0.0165: up to 0.0036. Beyond 0.0005 + 1.96·0.2·√(2/400) = 0.0282 it differs.
    values = np.where(np.arange(400) % 2, mean + 0.2, mean - 0.2).astype(np.float32)
    summary = summarize(values)
    assert compare_case(mean_case(summary.mean, summary.sd, 400, FIGURE)) == expected


def by_rule(
    measured: float,
    published: float,
    sd: float = 0.1,
    rounding: float = 0.0005,
    n: int = 600,
    dialogs: int = 600,
) -> str | None:
    figure = Published(published, rounding, str(published), "Table 9", n)
    return compare_case(mean_case(measured, sd, dialogs, figure))


def test_fewer_published_dialogs_allow_more() -> None:
    assert by_rule(0.70, 0.7125) == "differs"
    assert by_rule(0.70, 0.7125, n=200) == "open"
    assert by_rule(0.70, 0.7075, n=200) == "reproduced"


@pytest.mark.parametrize(
    ("turns", "printed", "expected"),
    [
        ([4] * 280 + [5] * 320, "4", "open"),  # the true median may well be 4
        ([4] * 340 + [5] * 260, "4", "reproduced"),
        ([4] * 200 + [5] * 400, "4", "differs"),
        ([2] * 100, "2", "reproduced"),
        ([2] * 100, "3", "differs"),
    ],
)
def test_a_percentile_is_judged_by_the_shares_on_either_side(
    turns: list[int], printed: str, expected: str
) -> None:
    values = np.array(turns, np.float32)
    assert compare_case(percentile_case(values, 0.5, read_printed(printed, "Table 2"))) == expected


def test_an_exact_value_has_rounding_only() -> None:
    assert by_rule(32 / 35, 0.914, sd=0) == "reproduced"
    assert by_rule(32 / 35, 0.915, sd=0) == "differs"


@pytest.mark.parametrize("measured", [0.925, float(np.float32(0.925))])
def test_half_a_digit_away_is_still_rounding(measured: float) -> None:
    assert by_rule(measured, 0.92, sd=0, rounding=0.005) == "reproduced"


@pytest.mark.parametrize("published", [0.7, 0.1])
def test_indistinguishable_from_zero_comes_before_any_comparison(published: float) -> None:
    figure = Published(published, 0.0005, str(published), "Table 9", 600)
    chance = compare_case(mean_case(0.7, 0.1, 600, figure, chance=True))
    assert chance == "indistinguishable from zero"
    level = compare_case(mean_case(0.7, 0.1, 600, figure))
    assert level == ("reproduced" if published == 0.7 else "differs")


@pytest.mark.parametrize(
    ("settings", "scenario", "policy", "metric", "swept", "is_printed"),
    [
        ({}, "shift", "fd-kvc", "late_alignment", "", True),
        ({}, "mixed", "sink", "latency", "", True),
        ({}, "mixed", "fd-kvc gamma=0.8", "late_alignment", "gamma", True),
        ({"budget": 28}, "shift", "fd-kvc", "late_alignment", "", False),
        ({"world": World(noise=0.1)}, "shift", "fd-kvc", "late_alignment", "", False),
        ({}, "shift", "fd-kvc gamma=0.8", "late_alignment", "", False),
        ({}, "mixed", "sink sinks=8", "latency", "", False),
        ({"budget": 28}, "mixed", "fd-kvc gamma=0.8", "late_alignment", "gamma", False),
        ({}, "shift", "fd-kvc gamma=0.8", "late_alignment", "gamma", False),
        ({}, "mixed", "fd-kvc gamma=0.8 w_c=0.5", "late_alignment", "gamma", False),
    ],
)
def test_only_the_papers_settings_have_published_figures(
    settings: dict[str, Any], scenario: str, policy: str, metric: str, swept: str, is_printed: bool
) -> None:
    figure = printed(Benchmark(**settings), scenario, policy, metric, swept)
    assert (figure is not None) == is_printed


@pytest.mark.parametrize(("dialogs", "compared"), [(99, False), (100, True)])
def test_fewer_than_100_dialogs_have_no_verdict(dialogs: int, compared: bool) -> None:
    policies = (policy_named("fifo"), policy_named("h2o"))
    benchmark = Benchmark(
        (SCENARIOS["shift"], SCENARIOS["adaptation"]), policies=policies, dialogs=dialogs
    )
    table = facts_table(run_benchmark(benchmark))
    assert (table.published.notna() == (table.metric != "late_retention")).all()
    assert (table.verdict.notna() == (compared & table.published.notna())).all()


def test_few_dialogs_have_no_verdict_and_times_never_have() -> None:
    assert set(verdicts_of(measured_tables(few_dialogs())).values()) == {0}
    times = facts_table(paper_study()).query("source == 'latency'")
    assert times.published.notna().any()
    assert set(times.verdict) == {None}


def test_all_cells_as_a_tidy_table() -> None:
    tables = paper_tables()
    frame = cells_table(tables)
    assert len(frame) == sum(len(paper_table.cells) for paper_table in tables)
    row = frame[(frame.table == 3) & (frame.row == "fifo") & (frame.column == "mixed")].iloc[0]
    assert row.published == 0.444
    assert row.difference == pytest.approx(4 / 9 - 0.444, abs=1e-6)
    counts = verdicts_of(tables)
    assert counts == {verdict: int((frame.verdict == verdict).sum()) for verdict in counts}


def test_reproduced_figures_are_counted_by_what_could_have_come_out_otherwise() -> None:
    """FIFO, Sink+Window and H2O keep the same topics in every dialog, which confirms little."""
    reproduced = [fact for fact in facts(papers_run().study) if fact.verdict == "reproduced"]
    same = [fact for fact in reproduced if fact.constant]
    varying = [fact for fact in reproduced if not fact.constant and not math.isnan(fact.sd)]

    assert (len(reproduced), len(same), len(varying)) == (42, 22, 13)
    assert {fact.policy.split()[0] for fact in varying} == {"fd-kvc"}


def power(dialogs: int, published_dialogs: int) -> float:
    """Return the power of `by_equivalence` for two samples of one population, without rounding."""
    error, margin = 1 / math.sqrt(dialogs), TWO_SIDED / math.sqrt(published_dialogs)
    room = max(margin - ONE_SIDED * error, 0.0)
    return math.erf(room / math.sqrt(2 * (1 / dialogs + 1 / published_dialogs)))


def test_the_stated_power_is_that_of_the_rules() -> None:
    assert (round(100 * power(600, 600)), round(100 * power(6000, 600))) == (POWER, POWER_OF_TEN)


@pytest.mark.parametrize(("n", "published"), [(100, 600), (600, 600), (2000, 600), (6000, 200)])
def test_the_power_of_the_rules_is_what_drawn_samples_give(n: int, published: int) -> None:
    random = np.random.default_rng(n + published)
    ours, theirs = (random.normal(0, 1 / math.sqrt(size), 4000) for size in (n, published))

    verdicts = [
        compare_case(Case(float(apart), 1.0, n, published)) for apart in np.abs(ours - theirs)
    ]

    assert verdicts.count("reproduced") / 4000 == pytest.approx(power(n, published), abs=0.025)
    assert verdicts.count("differs") / 4000 == pytest.approx(0.05, abs=0.015)


@pytest.mark.parametrize(
    ("metric", "figures", "words"),
    [
        ("late_retention", (0.721, 0.713, 0.729), "72.1 ± 0.8"),
        ("late_alignment", (-0.0126, math.nan, math.nan), "−0.0126"),
        ("late_retention", (0.5, 0.5, 0.5), "50.0"),
        ("latency", (0.1234, math.nan, math.nan), "0.123"),
    ],
)
def test_a_cell_in_words(metric: str, figures: tuple[float, float, float], words: str) -> None:
    mean, low, high = figures
    fact = Fact("benchmark", "mixed", "fd-kvc", metric, 100, mean, low=low, high=high)
    assert figure_words(fact) == words


SIX = ("shift", "return", "mixed", "complex", "gradual", "composite")


def test_every_scenario_and_policy_under_every_projection() -> None:
    table = alignments_table(paper_study().results)
    assert tuple(table.columns) == ALIGNMENTS
    assert len(table) == len(SIX) * 4 * (len(PROJECTIONS) + 1)


def test_only_the_value_matrix_gives_alignments_that_are_not_zero() -> None:
    table = alignments_table(paper_study().results)
    value = table[table.projection == "value"]
    assert (value.ci_low > 0.5).all()
    other = table[table.projection.isin(["key", "query"])]
    assert (other["mean"].abs() < 0.1).all()
    single = other[other.scenario != "composite"]
    assert single.sd.between(0.15, 0.30).all()


def test_published_alignments_have_the_interval_of_unrelated_vectors() -> None:
    table = alignments_table(paper_study().results)
    row = table[(table.projection == PUBLISHED) & (table.policy == "fifo")].iloc[0]
    assert (row.n, row["mean"]) == (600, 0.02)
    assert row.sd == pytest.approx(0.25, abs=0.04)
    assert row.ci_high - row["mean"] == pytest.approx(1.96 * row.sd / math.sqrt(600))
    five = table[(table.projection == PUBLISHED) & (table.scenario == "composite")]
    assert five.sd.between(0.13, 0.2).all()  # the mean of five varies less


def test_differences_are_paired_and_the_published_ones_follow_the_t_tests() -> None:
    study = paper_study()
    table = differences_table(study.results)
    columns = "scenario projection policy baseline n mean_diff ci_low ci_high t p"
    assert list(table.columns) == columns.split()
    assert len(table) == len(SIX) * (len(PROJECTIONS) + 1)
    rows = table.set_index(["scenario", "projection"])
    one, other = (
        scores_of(study.results, "mixed", policy, "late_alignment") for policy in ("fd-kvc", "h2o")
    )
    assert rows.loc[("mixed", "value"), "t"] == pytest.approx(paired(one, other).t, rel=1e-5)
    shift = table[(table.scenario == "shift") & (table.projection == PUBLISHED)].iloc[0]
    assert (shift.t, round(shift.p, 2)) == (1.31, 0.19)
    assert shift.ci_low < 0 < shift.ci_high
    assert (rows.xs(PUBLISHED, level="projection").t.abs() < 1.96).all()
    assert (rows.xs("value", level="projection").t.abs() > 5).all()


def test_without_both_policies_there_is_no_difference() -> None:
    results = run_benchmark(Benchmark(policies=(policy_named("fifo"),), dialogs=2))
    assert differences_table(results).empty
    assert not alignments_table(results).empty
