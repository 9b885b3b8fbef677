"""The published figures are all there, rounded as printed, and recomputed as the claims say."""

import math

import pytest

from fdkvc.paper import published as tables
from fdkvc.paper.claims import CLAIMS, Claim, claim
from fdkvc.paper.published import (
    HYPERPARAMETERS,
    LATE_DIVERSITY,
    T_TESTS,
    published,
    published_ablation,
    published_sweep,
    read_printed,
)
from tests.paper.recomputed import COMPUTED_RANGES, RECOMPUTED, columns_of, from_cells, rows_of
from tests.studies import PRINTED

SCENARIOS = ("shift", "return", "mixed", "complex", "gradual")
TESTED = ("shift", "mixed", "gradual")
POLICIES = ("fifo", "sink", "h2o", "fd-kvc")
METRICS = ("late_alignment", "late_retention", "late_diversity")


@pytest.mark.parametrize(
    ("number", "rows", "columns"),
    [(1, 4, 6), (2, 4, 3), (3, 4, 5), (4, 4, 2), (5, 6, 2), (6, 6, 2)],
)
def test_tables_have_the_printed_shape(number: int, rows: int, columns: int) -> None:
    table = PRINTED[number - 1]
    assert (len(rows_of(table)), len(columns_of(table))) == (rows, columns)
    assert len(table) == rows * columns
    assert {cell.source for cell in table.values()} == {f"Table {number}"}


@pytest.mark.parametrize(
    ("scenario", "policy", "metric"),
    [
        ("gradual", "fd-kvc", "late_diversity"),
        ("mixed", "fd-kvc", "late_retention"),
        ("own", "fifo", "late_alignment"),
        ("shift", "random", "late_alignment"),
        ("shift", "fifo", "perplexity"),
    ],
)
def test_nothing_is_made_up_where_the_paper_prints_nothing(
    scenario: str, policy: str, metric: str
) -> None:
    assert published(scenario, policy, metric) is None


def test_adaptation_in_turns() -> None:
    printed = {
        policy: [published("adaptation", policy, name) for name in ("mean", "median", "p90")]
        for policy in POLICIES
    }
    assert {
        policy: [cell and cell.value for cell in cells] for policy, cells in printed.items()
    } == {"fifo": [2, 2, 2], "sink": [2, 2, 2], "h2o": [16, 16, 16], "fd-kvc": [4.5, 4, 5]}
    assert [cell and cell.rounding for cell in printed["h2o"]] == [0.05, 0.5, 0.5]
    assert published("adaptation", "fifo", "mode") is None


def test_ablations() -> None:
    retention = {
        parameter: [
            cell and cell.value
            for value in published_sweep(parameter)
            if (cell := published_ablation(parameter, value, "late_retention"))
        ]
        for parameter in ("w_c", "gamma")
    }
    assert retention == {
        "w_c": [0.776, 0.754, 0.728, 0.602, 0.299, 0.001],
        "gamma": [0.857, 0.838, 0.847, 0.856, 0.641, 0.273],
    }
    lowest = published_ablation("gamma", 0.92, "late_alignment")
    assert lowest is not None
    assert (lowest.value, lowest.rounding, lowest.dialogs) == (-0.0062, 0.00005, 200)
    assert published_ablation("w_c", 0.1 + 0.2, "late_alignment") is not None
    assert published_ablation("w_c", 0.45, "late_alignment") is None
    assert published_ablation("w_c", math.nan, "late_alignment") is None
    assert published_ablation("tau", 0.02, "late_alignment") is None
    assert published_sweep("tau") == ()


def test_hyperparameters_lie_in_their_range() -> None:
    symbols = " ".join(parameter.symbol for parameter in HYPERPARAMETERS)
    assert symbols == "γ α₀ τ β μ w_c w_ρ"
    assert all(parameter.low < parameter.default < parameter.high for parameter in HYPERPARAMETERS)
    default = {parameter.key: parameter.default for parameter in HYPERPARAMETERS}
    assert default["w_c"] + default["w_rho"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("printed", "value", "rounding"),
    [
        ("+127%", 1.27, 0.005),
        ("-39%", -0.39, 0.005),
        ("~50%", 0.5, 0.005),
        ("3.6×", 3.6, 0.05),
        ("0.078 ms", 0.078, 0.0005),
        ("16", 16, 0.5),
    ],
)
def test_value_and_rounding_are_read_off_the_digits(
    printed: str, value: float, rounding: float
) -> None:
    figure = read_printed(printed, "abstract")
    assert (figure.value, figure.rounding, figure.printed) == (value, rounding, printed)
    assert read_printed(printed, "abstract", exact=True).rounding == 0


def test_a_figure_without_digits_is_refused() -> None:
    with pytest.raises(ValueError, match="'quickly' must begin with a decimal number"):
        read_printed("quickly", "Section 5.5")


def consistent(one: Claim) -> bool:
    """Whether the paper's own cells, rounded as they are, bear a claim out."""
    assert one.recomputed is not None
    low, _, high = one.recomputed
    return one.verdict(low, high) == "holds"


@pytest.mark.parametrize("one", CLAIMS, ids=lambda one: one.key)
def test_the_stored_figures_are_those_of_the_printed_cells(one: Claim) -> None:
    computed = RECOMPUTED.get(one.key) or from_cells(one.measure)
    assert (one.recomputed is None) == (computed is None)
    if one.recomputed is not None and computed is not None:
        wanted = computed.range.low, computed.value, computed.range.high
        assert one.recomputed == pytest.approx(wanted, rel=1e-5)
    if (range_ := COMPUTED_RANGES.get(one.key)) is not None:
        assert one.holds_when is not None
        assert one.holds_when.low == pytest.approx(range_.low, rel=1e-5)
        assert one.holds_when.high == pytest.approx(range_.high, rel=1e-5)


def test_which_claims_the_papers_own_cells_contradict() -> None:
    assert {one.key for one in CLAIMS if one.recomputed and not consistent(one)} == {
        "significant",
        "consistent",
        "heuristics-alignment",
        "heuristics-retention",
        "diversity-composite",
        "adaptation-fifo",
        "learning-rate",
        "fixed-point",
        "hyperparameters",
    }


def test_claims_have_keys_of_their_own_and_name_known_things() -> None:
    assert len({one.key for one in CLAIMS}) == len(CLAIMS)
    for one in CLAIMS:
        measure = one.measure
        assert measure.policy in POLICIES
        assert measure.baseline in (None, *POLICIES)
        assert measure.scenario in (None, *SCENARIOS, "composite", "adaptation")
        assert (measure.parameter is not None) == (measure.kind == "peak")
        compares = {"change", "ratio", "difference", "share", "t", "p"}
        assert (measure.baseline is not None) == (measure.kind in compares)
        assert one.published is not None or one.holds_when is not None
        assert one.why.endswith(".")


@pytest.mark.parametrize(
    ("key", "low", "high", "verdict"),
    [
        ("alignment-return", -0.40, -0.38, "holds"),
        ("alignment-return", -0.30, -0.25, "direction only"),
        ("alignment-return", 0.10, 0.20, "does not hold"),
        ("alignment-return", -0.10, 0.20, "open"),
        ("diversity-composite", 0.803, 0.809, "holds"),
        ("diversity-composite", 0.75, 0.76, "does not hold"),
        ("heuristics-alignment", 3, 3, "does not hold"),
        ("seconds", 4, 5, "holds"),
        ("seconds", 70, 75, "does not hold"),
        ("tied-shift", 54, 56, "does not hold"),
        ("tied-shift", math.nan, math.nan, "open"),
        ("w_c-one", 0.1, 0.1, "does not hold"),
        ("peak-w_c", 0.1, 0.1, "does not hold"),
        ("learning-rate", 0.02, 0.02, "does not hold"),
        ("learning-rate", 0.06, 0.06, "holds"),
    ],
)
def test_judging_a_claim(key: str, low: float, high: float, verdict: str) -> None:
    assert claim(key).verdict(low, high) == verdict


def test_claims_print_the_figures_of_the_tables() -> None:
    assert claim("diversity-composite").published == LATE_DIVERSITY["fd-kvc", "composite"]
    assert claim("latency").published == tables.RETENTION_AND_LATENCY["fd-kvc", "latency"]
    for scenario in TESTED:
        tied = claim(f"tied-{scenario}")
        assert tied.published == T_TESTS[scenario, "t"]
        assert f"p = {T_TESTS[scenario, 'p'].printed}" in tied.source
