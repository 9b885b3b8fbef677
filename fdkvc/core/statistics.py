"""Statistics over dialogs: intervals and paired differences.

Every array has shape (n,), with a finite number for each of at least one dialog; any other raises
a ValueError. Policies are compared on the same dialogs, so the comparison is paired: dialog i under
one policy with dialog i under the other. Intervals are at 95 %.
"""

import math
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from fdkvc.core.words import count

Doubles = npt.NDArray[np.float64]
PairedVerdict = Literal["too few", "same", "significant", "not significant"]
Settled = Literal["higher", "lower", "equivalent", "open"]
"""What a paired difference is known to be."""

FUZZ = 1e-6
"""Differences below this share of the compared values are float32 rounding."""

CONFIDENCE = 0.95
"""Coverage of an interval."""

POWER = 0.8
"""Probability with which the recommended number of clusters would settle a difference."""

MOST_CLUSTERS = 10_000
"""A difference that needs more clusters counts as one that cannot be settled."""

MIN_CLUSTERS = 4
"""With fewer clusters an interval says little: for three, Student's t is 4.3."""

MIN_EFFECTIVE = 1.25
"""With fewer effective clusters, 1/Σ shares², one has nearly all of the weight (with 90 %, 1.23),
and there is no interval. Of 4 to 20 normal clusters intervals covered the true mean in 98 to 100 %
of 1,500 draws from 1.37 on, in 92 to 96 % at 1.11, 82 to 90 % at 1.04 and 70 to 79 % at 1.02; in
less where they are skewed (`benchmarks/research/coverage.py`)."""

FEW_CLUSTERS = 20
"""With fewer clusters an interval may cover the true mean much less often than it says; the guide
to real dialogs has a simulation."""


@dataclass(frozen=True)
class Summary:
    """The mean over dialogs and its interval."""

    n: int
    """Dialogs, at least 1."""
    mean: float
    """Mean over dialogs."""
    sd: float
    """Standard deviation over dialogs (divisor n - 1); NaN for one dialog."""
    low: float
    """Lower end of the Student-t interval of the mean; NaN (unknown) for one dialog."""
    high: float
    """Its upper end."""


@dataclass(frozen=True)
class Paired(Summary):
    """The mean difference, policy - baseline, over the same dialogs, with its paired t-test."""

    t: float
    """Student's t with n - 1 degrees of freedom. NaN (undefined) for one dialog, and where the
    difference is the same in every dialog (`sd` is then 0)."""
    p: float
    """Two-sided p-value of `t`; NaN if `t` is."""

    @property
    def verdict(self) -> PairedVerdict:
        """The test's outcome; "significant" means p < 0.05."""
        if self.n < 2:
            return "too few"
        if self.sd == 0:
            return "same"
        return "significant" if self.p < 1 - CONFIDENCE else "not significant"


def summarize(values: npt.ArrayLike) -> Summary:
    """Return the mean over dialogs with its Student-t interval.

    Constant values have an interval that equals their mean exactly.

    Examples
    --------
    >>> summary = summarize([1, 2, 3, 4, 5])
    >>> round(summary.mean, 3), round(summary.low, 3), round(summary.high, 3)
    (3.0, 1.037, 4.963)
    >>> summarize([0.5, 0.5])
    Summary(n=2, mean=0.5, sd=0.0, low=0.5, high=0.5)
    """
    values = _one_per_dialog("values", values)
    n = values.size
    if n == 1:
        return Summary(1, float(values[0]), math.nan, math.nan, math.nan)
    # A mean over many equal numbers may differ from them in the last bit.
    if np.ptp(values) == 0:
        mean = float(values[0])
        sd = 0.0
        margin = 0.0
    else:
        from scipy.special import stdtrit

        mean = float(values.mean())
        sd = float(values.std(ddof=1))
        margin = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * sd / math.sqrt(n)
    return Summary(n, mean, sd, mean - margin, mean + margin)


def differences(policy: npt.ArrayLike, baseline: npt.ArrayLike) -> Doubles:
    """Return policy - baseline for each dialog, in float64 and without rounding noise.

    Metrics are float32, so a difference that is the same in every dialog may vary in its last
    bits, which a t-test would find overwhelming. Differences that lie within `FUZZ` times the
    largest compared value of each other are therefore set to their mean, and to 0 where that mean
    is as small. Both must have the same length.

    Examples
    --------
    >>> policy, baseline = np.array([0.3, 0.7]), np.array([0.1, 0.5])
    >>> np.unique(policy - baseline).size, np.unique(differences(policy, baseline)).size
    (2, 1)
    """
    policy = _one_per_dialog("policy", policy)
    baseline = _one_per_dialog("baseline", baseline)
    difference = policy - baseline
    largest = max(np.abs(policy).max(), np.abs(baseline).max())
    fuzz = FUZZ * float(largest)
    if np.ptp(difference) > fuzz:
        return difference
    # The mean of equal numbers may differ from them in the last bit.
    mean = difference[0] if np.ptp(difference) == 0 else difference.mean()
    return np.full_like(difference, 0.0 if abs(mean) <= fuzz else mean)


def paired(policy: npt.ArrayLike, baseline: npt.ArrayLike) -> Paired:
    """Compare a policy with a baseline by a paired t-test of their `differences`.

    Examples
    --------
    >>> comparison = paired([2, 4, 6], [1, 2, 3])
    >>> comparison.mean, round(comparison.t, 3), round(comparison.p, 3), comparison.verdict
    (2.0, 3.464, 0.074, 'not significant')
    """
    summary = summarize(differences(policy, baseline))
    t = p = math.nan
    if summary.sd > 0:
        from scipy.special import stdtr

        t = summary.mean / (summary.sd / math.sqrt(summary.n))
        p = 2 * float(stdtr(summary.n - 1, -abs(t)))
    return Paired(**asdict(summary), t=t, p=p)


@dataclass(frozen=True)
class ClusterMean:
    """A weighted mean over dialogs in clusters; for paired differences, with its tests."""

    mean: float
    """Mean over dialogs."""
    error: float
    """Its standard error; NaN (unknown) for fewer clusters than `MIN_CLUSTERS` or effective ones
    than `MIN_EFFECTIVE`, 0 where all values are the same."""
    degrees: float
    """Degrees of freedom of Student's t: the effective number of clusters minus one, at least 1."""
    clusters: int
    """Number of clusters."""

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the mean; NaN where the error is."""
        if not self.error:
            return self.mean, self.mean
        from scipy.special import stdtrit

        margin = float(stdtrit(self.degrees, (1 + CONFIDENCE) / 2)) * self.error
        return self.mean - margin, self.mean + margin

    @property
    def p(self) -> float:
        """Two-sided p-value of a mean of 0; NaN (undefined) where the error is NaN or 0."""
        return 2 * self._tail(abs(self.mean))

    def equivalence_p(self, margin: float) -> float:
        """Return the larger p-value of the two one-sided tests that the mean is beyond ± `margin`.

        References
        ----------
        D. J. Schuirmann, A Comparison of the Two One-Sided Tests Procedure and the Power Approach
        for Assessing the Equivalence of Average Bioavailability, J. Pharmacokinetics and
        Biopharmaceutics 15, 1987.
        """
        return self._tail(margin - abs(self.mean))

    def settled(self, margin: float = 0.0) -> Settled:
        """Return what the difference is known to be, at a level of 5 %.

        Equivalent comes first: a difference that is significantly smaller than `margin` does not
        matter, even if it is significant. A `margin` of 0 allows no equivalence.

        Examples
        --------
        >>> clusters = range(8)
        >>> far = [0.9, 1.0, 1.1, 0.9, 1.0, 1.1, 1.0, 1.0]
        >>> cluster_mean(far, clusters).settled(0.5)
        'higher'
        >>> cluster_mean(np.array(far) - 1, clusters).settled(0.5)
        'equivalent'
        >>> cluster_mean(np.array(far) - 0.95, clusters).settled()
        'open'
        """
        if math.isnan(self.error):
            return "open"
        level = 1 - CONFIDENCE
        equivalent = (
            self.equivalence_p(margin) < level if self.error else abs(self.mean) < margin
        )
        if margin and equivalent:
            return "equivalent"
        low, high = self.interval
        if low > 0 or high < 0:
            return "higher" if low > 0 else "lower"
        return "open"

    def clusters_to_settle(self, margin: float = 0.0) -> int | None:
        """Return how many more clusters would settle this difference with a power of 80 %.

        Assumes that the mean and the variance per cluster stay as they are. Returns 0 if it is
        settled, None for more than `MOST_CLUSTERS` or an unknown error.

        Examples
        --------
        >>> cluster_mean([-1, 3, 0, 2], "abcd").clusters_to_settle()
        25
        """
        if math.isnan(self.error) or self.settled(margin) != "open":
            return None if math.isnan(self.error) else 0
        from scipy.special import stdtrit

        def settles(clusters: int) -> bool:
            # The standard error falls with the root of the number of clusters.
            error = self.error * math.sqrt(self.clusters / clusters)
            degrees = (self.degrees + 1) * clusters / self.clusters - 1
            # A test at its level has this power from a distance of (t_level + t_power) errors on.
            different = float(stdtrit(degrees, ((1 + CONFIDENCE) / 2, POWER)).sum()) * error
            # Either of the two one-sided tests may fail, so each gets half of the allowed misses.
            equivalent = float(stdtrit(degrees, (CONFIDENCE, (1 + POWER) / 2)).sum()) * error
            return abs(self.mean) >= different or margin - abs(self.mean) >= equivalent

        # More clusters never unsettle it, so bisection finds the least number.
        candidates = range(MOST_CLUSTERS)
        added = bisect_left(candidates, True, key=lambda more: settles(self.clusters + more))
        return added if added < len(candidates) else None

    def _tail(self, distance: float) -> float:
        """Return the probability of a mean beyond this distance from the true one, to one side."""
        if not self.error:
            return math.nan
        from scipy.special import stdtr

        return float(stdtr(self.degrees, -distance / self.error))


def cluster_mean(
    values: npt.ArrayLike, clusters: Sequence[Hashable], weights: npt.ArrayLike | None = None
) -> ClusterMean:
    """Return the weighted mean over dialogs in clusters.

    Dialogs of one cluster may resemble each other, so clusters are left out one by one. The
    variance is that of Bell and McCaffrey (CR2), which allows for clusters of different weight; it
    is unbiased where all dialogs have the same variance. The degrees of freedom are the effective
    number of clusters, 1/Σ shares², minus one, and at least 1, where the shares of the clusters in
    all weights sum to 1; of fewer than `MIN_EFFECTIVE` there is no interval.

    With one dialog per cluster and equal weights, the default, its interval is that of `summarize`.
    Each of the n values has a cluster and a weight above 0.

    References
    ----------
    R. M. Bell and D. F. McCaffrey, Bias Reduction in Standard Errors for Linear Regression with
    Multi-Stage Samples, Survey Methodology 28, 2002. A. V. Carter, K. T. Schnepel and
    D. G. Steigerwald, Asymptotic Behavior of a t-Test Robust to Cluster Heterogeneity, Review of
    Economics and Statistics 99, 2017 (the effective number of clusters).

    Examples
    --------
    >>> low, high = cluster_mean([1, 1, 3, 3, 1, 3], ["a", "a", "b", "b", "c", "d"]).interval
    >>> round(low, 2), round(high, 2)
    (-0.2, 4.2)
    >>> cluster_mean([0.5, 0.5, 0.7], ["a", "b", "b"]).interval
    (nan, nan)
    """
    values = _one_per_dialog("values", values)
    weights = _one_per_dialog("weights", np.ones_like(values) if weights is None else weights)
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    # 1. Sums and weights of each cluster (G,).
    index = np.array([numbers[cluster] for cluster in clusters], np.intp)
    sums = np.bincount(index, values * weights)
    counts = np.bincount(index, weights)
    total = sums.sum()
    weight = counts.sum()
    mean = float(total / weight)
    shares = counts / weight
    effective = 1 / float((shares**2).sum())
    if len(numbers) < MIN_CLUSTERS or effective < MIN_EFFECTIVE:
        return ClusterMean(mean, math.nan, 1.0, len(numbers))
    if np.ptp(values) == 0:
        return ClusterMean(float(values[0]), 0.0, 1.0, len(numbers))
    # 2. The mean without each cluster, and CR2's variance from these.
    other_means = (total - sums) / (weight - counts)
    error = math.sqrt(float(((1 - shares) * (other_means - mean) ** 2).sum()))
    # 3. Student's t with the effective number of clusters.
    return ClusterMean(mean, error, max(effective - 1, 1.0), len(numbers))


def over_clusters(clusters: int) -> str:
    """Say how many clusters an interval is over, or that there are too few for one.

    Examples
    --------
    >>> over_clusters(74)
    'over 74 clusters'
    >>> over_clusters(8)
    'over 8 clusters (fewer than 20, so it may cover the true mean less than 95 % of the time)'
    >>> over_clusters(1)
    'unknown: these dialogs have 1 cluster, but an interval needs 4'
    """
    number = count(clusters, "cluster")
    if clusters < MIN_CLUSTERS:
        return f"unknown: these dialogs have {number}, but an interval needs {MIN_CLUSTERS}"
    if clusters < FEW_CLUSTERS:
        reason = f"fewer than {FEW_CLUSTERS}, so it may cover the true mean less than"
        return f"over {number} ({reason} {100 * CONFIDENCE:g} % of the time)"
    return f"over {number}"


def percentile_interval(values: npt.ArrayLike, share: float) -> tuple[float, float]:
    """Return a distribution-free interval of a percentile; the `share` 0.5 gives the median's.

    Of n dialogs, the share below the true percentile has mean `share` and standard deviation
    √(share (1 − share) / n); the sample's percentiles at the ends of its interval are returned.

    References
    ----------
    W. J. Conover, Practical Nonparametric Statistics, 3rd ed., 1999, section 3.2.

    Examples
    --------
    >>> percentile_interval(np.arange(101), 0.5)
    (40.0, 60.0)
    """
    values = _one_per_dialog("values", values)
    from scipy.special import ndtri

    # The normal approximation of the binomial number of dialogs below the percentile.
    error = math.sqrt(share * (1 - share) / values.size)
    reach = float(ndtri((1 + CONFIDENCE) / 2)) * error
    shares = np.clip([share - reach, share + reach], 0, 1)
    # Values that occur, outwards: between two of them nothing is known.
    low = np.quantile(values, shares[0], method="lower")
    high = np.quantile(values, shares[1], method="higher")
    return float(low), float(high)


def share_interval(count: int, n: int) -> tuple[float, float]:
    """Return Wilson's interval of a share: `count` (0 to n) of `n` dialogs (at least 1) have it.

    References
    ----------
    E. B. Wilson, Probable Inference, the Law of Succession, and Statistical Inference, JASA 22,
    1927.

    Examples
    --------
    >>> low, high = share_interval(5, 10)
    >>> round(low, 3), round(high, 3)
    (0.237, 0.763)
    """
    from scipy.special import ndtri  # importing scipy.stats takes half a second

    z = float(ndtri((1 + CONFIDENCE) / 2))
    middle = 2 * count + z**2
    reach = z * math.sqrt(4 * count * (n - count) / n + z**2)
    denominator = 2 * (n + z**2)
    low = (middle - reach) / denominator
    high = (middle + reach) / denominator
    # At 0 and n the formula gives exactly 0 and 1, but for rounding.
    return low if count else 0.0, high if count < n else 1.0


def cluster_share(
    values: npt.ArrayLike,
    clusters: Sequence[Hashable],
    n: int,
    weights: npt.ArrayLike | None = None,
) -> tuple[float, float]:
    """Return the interval of the mean of shares of dialogs, of which `n` were counted in all.

    It is the wider one of that over clusters, see `cluster_mean`, and of Wilson's, as a few equal
    shares say little of others; NaN without an interval over clusters.

    Examples
    --------
    >>> cluster_share([1, 1, 1], ["a", "b", "c"], 30)
    (nan, nan)
    >>> low, high = cluster_share([1, 1, 1, 1], ["a", "b", "c", "d"], 20)
    >>> round(low, 2), high
    (0.84, 1.0)
    """
    known = cluster_mean(values, clusters, weights)
    low, high = known.interval
    if math.isnan(low):
        return low, high
    least, most = share_interval(round(known.mean * n), n)
    return max(min(low, least), 0.0), min(max(high, most), 1.0)


def holm(p_values: Iterable[float | None]) -> Doubles:
    """Adjust p-values for multiple tests by Holm's step-down method.

    Undefined p-values (NaN or None) stay NaN and do not count as tests. The result is in the given
    order, to be compared with the level of a single test.

    References
    ----------
    S. Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scand. J. Statist. 6, 1979.

    Examples
    --------
    >>> holm([0.01, 0.04, None, 0.03, 0.005])
    array([0.03, 0.06,  nan, 0.06, 0.02])
    """
    p = np.array([*p_values], np.float64)
    tested = np.flatnonzero(~np.isnan(p))
    smallest_first = tested[np.argsort(p[tested], kind="stable")]
    # The smallest of m p-values times m, the next times m − 1, …, and none below a smaller one's.
    hypotheses_left = np.arange(tested.size, 0, -1)
    adjusted = np.full_like(p, math.nan)
    adjusted[smallest_first] = np.minimum(
        np.maximum.accumulate(p[smallest_first] * hypotheses_left), 1.0
    )
    return adjusted


def significant(tests: Sequence[Paired]) -> list[bool]:
    """Return whether each test is significant after `holm`'s adjustment.

    A difference that is the same in every dialog is significant unless it is 0.

    Examples
    --------
    >>> one, same = paired([3, 5, 6], [1, 2, 3]), paired([2, 4, 6], [1, 3, 5])
    >>> round(one.p, 3), significant([one]), significant([one, one]), significant([same])
    (0.015, [True], [True, True], [True])
    >>> significant([one] * 4)
    [False, False, False, False]
    """
    results = []
    for test, p in zip(tests, holm(test.p for test in tests), strict=True):
        results.append(test.mean != 0 if test.verdict == "same" else bool(p < 1 - CONFIDENCE))
    return results


def _one_per_dialog(name: str, values: npt.ArrayLike) -> Doubles:
    """Return `values` in float64, after checking that it holds one finite number per dialog."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"{name} has shape {array.shape}, but must hold one number for each of at "
            "least 1 dialog"
        )
    wrong = np.flatnonzero(~np.isfinite(array))
    if wrong.size:
        raise ValueError(
            f"{name} is {array[wrong[0]]} at dialog {wrong[0]}, but every value must be a "
            "finite number"
        )
    return array
