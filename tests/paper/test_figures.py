"""Figures that are the same in every dialog are the paper's, by fractions worked out by hand.

Those that vary are compared by the verdicts on cells and claims.
"""

from fractions import Fraction

import numpy as np
import pytest

from fdkvc.paper.published import published
from tests.studies import paper_study, scores_of

# Retention and diversity, mean over the last three turns of 32 tokens in a cache of 56.
LATE = {
    ("fifo", "shift"): (Fraction(1), Fraction(1, 2)),
    ("fifo", "return"): (Fraction(6, 7), Fraction(2, 3)),
    ("fifo", "mixed"): (Fraction(6, 7), Fraction(4, 9)),
    ("fifo", "complex"): (Fraction(6, 7), Fraction(4, 15)),
    ("fifo", "gradual"): (Fraction(1), Fraction(1, 2)),
    ("sink", "shift"): (Fraction(13, 14), Fraction(1)),
    ("sink", "return"): (Fraction(37, 42), Fraction(2, 3)),
    ("sink", "mixed"): (Fraction(17, 21), Fraction(2, 3)),
    ("sink", "complex"): (Fraction(5, 6), Fraction(1, 3)),
    ("sink", "gradual"): (Fraction(13, 14), Fraction(1)),
    ("h2o", "shift"): (Fraction(1, 2), Fraction(1)),
    ("h2o", "return"): (Fraction(1), Fraction(1, 2)),
    ("h2o", "mixed"): (Fraction(1, 2), Fraction(2, 3)),
    ("h2o", "complex"): (Fraction(2, 3), Fraction(1, 3)),
    ("h2o", "gradual"): (Fraction(1, 2), Fraction(1)),
}


@pytest.mark.parametrize(("key", "scenario"), LATE)
def test_the_frozen_policies_figures_are_exact_in_every_dialog(key: str, scenario: str) -> None:
    for metric, expected in zip(("retention", "diversity"), LATE[key, scenario], strict=True):
        values = scores_of(paper_study().results, scenario, key, f"late_{metric}")
        np.testing.assert_allclose(values, float(expected), rtol=1e-6)
        printed = published(scenario, key, f"late_{metric}")
        if printed:
            assert abs(float(expected) - printed.value) <= printed.rounding


@pytest.mark.parametrize("key", ["fifo", "sink", "h2o"])
def test_adaptation_of_the_frozen_policies_is_exact(key: str) -> None:
    names = ("adaptation", "never")
    turns, never = (scores_of(paper_study().results, "adaptation", key, name) for name in names)
    for statistic in ("mean", "median", "p90"):
        printed = published("adaptation", key, statistic)
        assert printed is not None
        assert set(turns.tolist()) == {printed.value}
    assert set(never.tolist()) == {key == "h2o"}
