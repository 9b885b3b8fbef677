"""Intervals and paired tests, against SciPy, worked examples and exact cases."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fdkvc.core.statistics import (
    MIN_EFFECTIVE,
    cluster_mean,
    holm,
    paired,
    share_interval,
    summarize,
)

# Multiples of 1/64 shift, scale and subtract without rounding, so that a property fails only
# where the statistics are wrong.
exact_numbers = st.integers(-64, 64).map(lambda k: k / 64)


def normal(n: int, mean: float = 0.0, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.default_rng(seed).normal(mean, 1.0, n)


@pytest.fixture(scope="module")
def stats() -> Any:
    """SciPy's statistics, which take a second to import in every process that collects tests."""
    from scipy import stats

    return stats


class TestSummarize:
    @pytest.mark.parametrize("n", [2, 3, 50, 600])
    def test_agrees_with_scipy(self, stats: Any, n: int) -> None:
        values = normal(n, mean=0.7)
        expected = stats.t.interval(0.95, n - 1, loc=np.mean(values), scale=stats.sem(values))
        summary = summarize(values)
        assert (summary.low, summary.high) == pytest.approx(expected, rel=1e-12)
        assert summary.sd == pytest.approx(stats.tstd(values), rel=1e-12)
        assert summary.n == n

    @pytest.mark.parametrize("value", [0.0, 0.1, 6 / 7, 13 / 14, -1e9 / 3])
    @pytest.mark.parametrize("n", [2, 3, 600, 1023])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_constant_values_are_their_own_interval(
        self, value: float, n: int, dtype: type[np.floating[Any]]
    ) -> None:
        values = np.full(n, value, dtype)
        summary = summarize(values)
        assert summary.mean == summary.low == summary.high == float(values[0])
        assert summary.sd == 0

    def test_one_dialog_has_a_mean_and_no_interval(self) -> None:
        summary = summarize([0.25])
        assert (summary.n, summary.mean) == (1, 0.25)
        assert all(math.isnan(x) for x in (summary.sd, summary.low, summary.high))

    def test_float32_is_summed_in_float64(self) -> None:
        values = normal(600, mean=1000.0).astype(np.float32)
        assert summarize(values) == summarize(values.astype(np.float64))


class TestPaired:
    @pytest.mark.parametrize("n", [2, 5, 600])
    @pytest.mark.parametrize("shift", [0.0, 0.1, -2.0])
    def test_agrees_with_scipy(self, stats: Any, n: int, shift: float) -> None:
        policy, baseline = normal(n, mean=shift), normal(n, seed=1)
        expected = stats.ttest_rel(policy, baseline)
        interval = expected.confidence_interval(0.95)
        comparison = paired(policy, baseline)
        assert comparison.t == pytest.approx(expected.statistic, rel=1e-9)
        assert comparison.p == pytest.approx(expected.pvalue, rel=1e-9)
        assert (comparison.low, comparison.high) == pytest.approx(
            (interval.low, interval.high), rel=1e-9
        )

    @pytest.mark.parametrize("n", [2, 3, 600])
    def test_a_constant_difference_up_to_float32_has_no_t(self, n: int) -> None:
        baseline = np.random.default_rng(0).random(n).astype(np.float32)
        comparison = paired(baseline + np.float32(1 / 14), baseline)
        assert comparison.verdict == "same"
        assert comparison.sd == 0
        assert comparison.low == comparison.mean == comparison.high
        assert math.isnan(comparison.t)
        assert math.isnan(comparison.p)
        assert comparison.mean == pytest.approx(1 / 14)

    def test_a_difference_of_float32_rounding_is_no_difference(self) -> None:
        baseline = np.random.default_rng(0).random(600).astype(np.float32)
        comparison = paired(np.nextafter(baseline, np.float32(2)), baseline)
        assert (comparison.mean, comparison.low, comparison.high) == (0, 0, 0)
        assert comparison.verdict == "same"

    def test_one_dialog_that_differs_by_more_than_rounding_is_tested(self) -> None:
        policy = np.full(600, 0.5)
        policy[7] += 1e-4
        comparison = paired(policy, np.full(600, 0.5))
        assert comparison.verdict == "not significant"
        assert comparison.t == pytest.approx(1)  # one deviating value has t = 1 for any n

    def test_one_dialog_is_too_few(self) -> None:
        comparison = paired([0.75], [0.5])
        assert comparison.verdict == "too few"
        assert comparison.mean == 0.25
        assert math.isnan(comparison.p)

    def test_a_difference_is_significant_below_a_p_of_one_in_twenty(self, stats: Any) -> None:
        noise = stats.zscore(normal(600), ddof=1)
        for t, verdict in ((2.2, "significant"), (1.9, "not significant")):  # p = 0.028 and 0.058
            assert paired(noise + t / math.sqrt(600), np.zeros(600)).verdict == verdict


def drawn_clusters(seed: int, clusters: int) -> tuple[Any, Any, Any]:
    """Draw dialogs around the level of their cluster: values, cluster numbers and weights.

    Levels are as those of recall, bounded and skewed, of mean 2/3; clusters differ in size.
    """
    random = np.random.default_rng(seed)
    number = np.repeat(np.arange(clusters), np.minimum(random.geometric(0.3, clusters), 16))
    level = random.beta(4, 2, clusters)
    values = level[number] + 0.15 * random.normal(size=len(number))
    return values, number, 1 + random.poisson(3, len(number))


class TestClusterInterval:
    @pytest.mark.parametrize("n", [4, 5, 30])
    def test_agrees_with_scipy_where_each_dialog_is_a_cluster(self, stats: Any, n: int) -> None:
        values = normal(n)
        interval = cluster_mean(values, list(range(n))).interval
        assert interval == pytest.approx(
            stats.t.interval(0.95, n - 1, values.mean(), stats.sem(values))
        )

    @pytest.mark.parametrize("clusters", [5, 8, 20])
    def test_covers_the_mean_of_unequal_clusters(self, clusters: int) -> None:
        # Percentiles of whole clusters drawn anew cover it 83, 87 and 91 % of the time.
        covered = 0
        for seed in range(600):
            values, number, weights = drawn_clusters(seed, clusters)
            low, high = cluster_mean(values, number.tolist(), weights).interval
            covered += low <= 2 / 3 <= high
        assert 0.93 <= covered / 600 <= 0.97

    @given(st.lists(exact_numbers, min_size=8, max_size=20), st.integers(-64, 64))
    def test_follows_shift_and_weights_as_repeated_dialogs_do(
        self, values: list[float], shift: int
    ) -> None:
        clusters = [index % 5 for index in range(len(values))]
        low, high = cluster_mean(values, clusters).interval
        moved = cluster_mean([value + shift for value in values], clusters).interval
        assert moved == pytest.approx((low + shift, high + shift))
        assert low - 1e-12 <= np.mean(values) <= high + 1e-12
        weights = [1 + index % 2 for index in range(len(values))]
        again = np.repeat(values, weights), np.repeat(clusters, weights).tolist()
        assert cluster_mean(values, clusters, weights).interval == pytest.approx(
            cluster_mean(*again).interval, abs=1e-12
        )

    def test_is_the_regression_estimate_of_bell_and_mccaffrey(self, stats: Any) -> None:
        # By matrices: each cluster's residuals times the inverse root of one less its hat matrix.
        values, number, _ = drawn_clusters(1, 6)
        design = np.ones((len(values), 1))
        bread = np.linalg.inv(design.T @ design)
        meat = 0.0
        for cluster in range(6):
            members = number == cluster
            x = design[members]
            left = np.eye(members.sum()) - x @ bread @ x.T
            size, vectors = np.linalg.eigh(left)
            root = vectors @ np.diag(size**-0.5) @ vectors.T
            meat += float((x.T @ root @ (values[members] - values.mean())).item() ** 2)
        error = math.sqrt(meat) * bread.item()
        shares = np.bincount(number) / len(number)
        margin = error * stats.t.ppf(0.975, 1 / np.sum(shares**2) - 1)
        interval = cluster_mean(values, number.tolist()).interval
        assert interval == pytest.approx((values.mean() - margin, values.mean() + margin))

    def test_one_cluster_that_is_most_has_one_degree_of_freedom(self) -> None:
        low, high = cluster_mean([0, 1, 1, 1], "abcd", [79, 7, 7, 7]).interval
        # Without it the mean is 1, without another 0.14 / 0.93; the mean is 0.21.
        error = math.sqrt(0.21 * 0.79**2 + 3 * 0.93 * (0.14 / 0.93 - 0.21) ** 2)
        assert (high - 0.21, 0.21 - low) == pytest.approx([12.7062 * error] * 2, abs=1e-3)

    @given(
        st.lists(exact_numbers, min_size=4, max_size=12),
        st.floats(0.05, 0.995),
        st.sampled_from([1, 3]),
    )
    def test_one_cluster_that_is_nearly_all_leaves_no_interval(
        self, values: list[float], largest: float, dialogs: int
    ) -> None:
        """However its weight is spread over its dialogs, and whatever the values are."""
        others = len(values) - 1
        weights = [largest / dialogs] * dialogs + [(1 - largest) / others] * others
        numbers = [0] * dialogs + [*range(1, others + 1)]
        spread = [values[0]] * dialogs + values[1:]
        known = cluster_mean(spread, numbers, weights)
        effective = 1 / (largest**2 + (1 - largest) ** 2 / others)
        assume(abs(effective - MIN_EFFECTIVE) > 1e-9)
        assert np.isnan(known.interval).all() == (effective < MIN_EFFECTIVE)
        assert known.mean == pytest.approx(np.average(spread, weights=weights), abs=1e-9)
        assert known.settled(0.5) == "open" or effective >= MIN_EFFECTIVE

    @pytest.mark.parametrize("largest", [0.8, 0.88])
    @pytest.mark.parametrize("clusters", [4, 8])
    def test_what_has_an_interval_is_covered_with_one_large_cluster(
        self, clusters: int, largest: float
    ) -> None:
        random = np.random.default_rng(2)
        weights = [largest] + [(1 - largest) / (clusters - 1)] * (clusters - 1)
        covered = 0
        for _ in range(1000):
            low, high = cluster_mean(
                random.normal(size=clusters), range(clusters), weights
            ).interval
            covered += low <= 0 <= high
        assert covered >= 950

    def test_too_few_clusters_and_no_scatter(self) -> None:
        assert np.isnan(cluster_mean([0.1, 0.2, 0.3], "abc").interval).all()
        assert np.isnan(cluster_mean([0.1, 0.2], "aa").interval).all()
        assert cluster_mean([0.3] * 5, "abcda").interval == (0.3, 0.3)


class TestSettled:
    def test_equivalence_agrees_with_two_one_sided_tests_of_scipy(self, stats: Any) -> None:
        values, margin = normal(30, mean=0.1, seed=3), 0.5
        above = stats.ttest_1samp(values, -margin, alternative="greater").pvalue
        below = stats.ttest_1samp(values, margin, alternative="less").pvalue
        known = cluster_mean(values, range(30))
        assert known.equivalence_p(margin) == pytest.approx(max(above, below))
        assert known.p == pytest.approx(stats.ttest_1samp(values, 0).pvalue)

    @pytest.mark.parametrize(
        ("mean", "margin", "settled"),
        [
            *[(1.0, 0.5, "higher"), (-1.0, 0.5, "lower"), (0.0, 0.5, "equivalent")],
            *[(0.3, 0.5, "equivalent"), (0.3, 0.0, "higher"), (0.45, 0.45, "higher")],
            *[(0.01, 0.0, "open"), (0.01, 0.02, "open")],
        ],
    )
    def test_a_small_difference_is_equivalent_even_if_it_is_certain(
        self, mean: float, margin: float, settled: str
    ) -> None:
        values = np.tile([-0.2, 0.2], 10) + mean
        assert cluster_mean(values, range(20)).settled(margin) == settled

    @pytest.mark.parametrize(
        ("value", "settled"), [(0.0, "equivalent"), (0.1, "equivalent"), (0.3, "higher")]
    )
    def test_what_never_varies_is_settled(self, value: float, settled: str) -> None:
        known = cluster_mean([value] * 5, "abcde")
        assert (known.settled(0.2), known.clusters_to_settle(0.2)) == (settled, 0)
        assert math.isnan(known.p)

    def test_few_clusters_settle_nothing(self) -> None:
        known = cluster_mean([5.0, 5.1, 5.2], "abc")
        assert (known.settled(1), known.clusters_to_settle(1)) == ("open", None)

    @pytest.mark.parametrize("margin", [0.0, 0.5])
    def test_as_many_clusters_more_settle_it_in_four_of_five_draws(self, margin: float) -> None:
        # Eight values with this mean and deviation, and what was foreseen for a world like them.
        mean = 0.0 if margin else 0.5
        few = (np.arange(8) - 3.5) / np.std(np.arange(8), ddof=1) + mean
        more = cluster_mean(few, range(8)).clusters_to_settle(margin)
        assert more
        drawn = np.random.default_rng(5).normal(mean, 1, (600, 8 + more))
        settled = [cluster_mean(values, range(8 + more)).settled(margin) for values in drawn]
        assert 1 - settled.count("open") / 600 > 0.75

    def test_what_no_number_of_clusters_settles_is_said(self) -> None:
        values = np.tile([-1.0, 1.0], 10)
        assert cluster_mean(values, range(20)).clusters_to_settle() is None


class TestHolm:
    def test_undefined_p_values_are_passed_over(self) -> None:
        adjusted = holm([math.nan, 0.01, None, 0.03])
        assert adjusted == pytest.approx([math.nan, 0.02, math.nan, 0.03], nan_ok=True)
        assert holm([]).size == 0
        assert np.isnan(holm([None])).all()

    @given(p=st.lists(st.floats(0, 1), min_size=1, max_size=20), level=st.floats(0.001, 0.5))
    def test_rejects_what_the_sequential_procedure_rejects(
        self, p: list[float], level: float
    ) -> None:
        rejected = set()
        for step, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
            if p[i] * (len(p) - step) > level:
                break
            rejected.add(i)
        assert set(np.flatnonzero(holm(p) <= level)) == rejected


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_is_named(wrong: float) -> None:
    sentence = f"is {wrong} at dialog 1, but every value must be a finite number"
    with pytest.raises(ValueError, match=f"values {sentence}"):
        summarize([0.5, wrong])
    with pytest.raises(ValueError, match=f"baseline {sentence}"):
        paired([0.5, 0.5], [0.5, wrong])


@pytest.mark.parametrize("wrong", [[], [[0.5, 0.5]], 0.5])
def test_a_wrong_shape_is_named(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"has shape .*, but must hold one number"):
        summarize(wrong)


@pytest.mark.parametrize("n", [1, 15, 16, 100])
def test_the_interval_of_all_or_none_ends_there_exactly(n: int) -> None:
    low, high = share_interval(n, n)
    assert 0 < low < high == 1
    none = share_interval(0, n)
    assert none[0] == 0
    assert none[1] == pytest.approx(1 - low)
