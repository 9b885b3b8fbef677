"""Grids: the best of a column and those tied with it are marked alike in all renderings."""

import numpy as np
import pandas as pd
import pytest

from fdkvc.core.statistics import paired
from fdkvc.engine.summary import first_places, mean_table, paired_differences
from fdkvc.paper.benchmark import COMPOSITE
from fdkvc.paper.replication.facts import facts
from fdkvc.paper.shipped import papers_run
from fdkvc.runs.grid import Grid, figures, marked, pivot


def test_a_grid_without_rows_stays_one() -> None:
    """A card has none where no way is enough and today's loss is not known yet."""
    empty = Grid(["way", "again"], []).without_same({"again": "–"})
    assert (empty.heads, empty.rows) == (["way"], [])


def rows_of(means: dict[str, float], metric: str, dialogs: int = 12) -> pd.DataFrame:
    """Return rows of policies with these means and a little noise, two dialogs per cluster."""
    random = np.random.default_rng(7)
    places = [(dialog, policy) for dialog in range(dialogs) for policy in means]
    return pd.DataFrame(
        {
            "dialog": [f"dialog {dialog}" for dialog, _ in places],
            "services": [f"cluster {dialog // 2}" for dialog, _ in places],
            "policy": [policy for _, policy in places],
            "budget": 32,
            "metric": metric,
            "value": [means[policy] + 0.01 * random.normal() for _, policy in places],
        }
    )


def marks(rows: pd.DataFrame) -> dict[str, str]:
    return {policy: mark for (policy, *_), mark in first_places(rows).items()}


@pytest.mark.parametrize(
    ("means", "metric", "expected"),
    [
        ({"fifo": 0.9, "h2o": 0.5}, "call_recall", {"fifo": "★"}),
        ({"fifo": 0.9, "h2o": 0.5}, "nats", {"h2o": "★"}),
        ({"fifo": 0.9, "h2o": 0.5, "sink": 0.9}, "call_recall", {"fifo": "☆", "sink": "☆"}),
        ({"fifo": 0.9}, "call_recall", {}),
    ],
)
def test_the_best_is_marked_with_those_not_distinguishable_from_it(
    means: dict[str, float], metric: str, expected: dict[str, str]
) -> None:
    assert marks(rows_of(means, metric)) == expected


def test_without_an_interval_equal_figures_are_tied() -> None:
    rows = rows_of({"fifo": 0.9, "h2o": 0.9, "sink": 0.5}, "call_recall", dialogs=2)

    assert marks(rows.assign(value=rows.value.round(1))) == {"fifo": "☆", "h2o": "☆"}
    # 90.00 % and 90.001 % are the same figure.
    close = rows.value.round(1) + 1e-5 * (rows.policy == "h2o")
    assert marks(rows.assign(value=close)) == {"fifo": "☆", "h2o": "☆"}
    assert len(marks(rows.assign(value=rows.value.round(1) + 0.1 * (rows.policy == "h2o")))) == 1


def test_all_renderings_have_the_same_marks() -> None:
    rows = rows_of({"fifo": 0.9, "h2o": 0.5}, "call_recall")
    table = mean_table(rows)
    words = marked(table, paired_differences(rows, "fifo"), first_places(rows))
    grid = pivot(table, words)

    assert [word[-2:] for word in words] == ["★ ", " ≠"]
    assert [word[:-3] for word in words] == figures(table)
    for text in (grid.text(), grid.html("caption"), grid.markdown()):
        assert (text.count("★"), text.count("≠")) == (1, 1)


@pytest.mark.parametrize(
    ("metric", "difference", "verdict", "mark"),
    [
        ("call_recall", 0.2, "better", "≠"),
        ("call_recall", -0.2, "worse", "≠"),
        ("kl", -0.2, "better", "≠"),
        ("kl", 0.2, "worse", "≠"),
        ("call_recall", 0.03, "equivalent", "≈"),
        ("kl", 0.03, "worse", "≠"),
        ("kl", 0.0, "equivalent", "≈"),
        ("token_age", 0.0, "open", " "),
    ],
)
def test_a_difference_is_better_worse_equivalent_or_open(
    metric: str, difference: float, verdict: str, mark: str
) -> None:
    rows = rows_of({"fifo": 0.5, "h2o": 0.5 + difference}, metric)
    paired = paired_differences(rows, "fifo")

    assert paired.verdict.tolist() == [verdict]
    assert (paired.more_clusters[0] > 0) == (verdict == "open")
    assert [word[-1] for word in marked(mean_table(rows), paired, {})] == [" ", mark]


def test_the_marks_of_the_shipped_run_are_those_of_paired_tests() -> None:
    """By paired tests of each policy against the best, computed here again."""
    results = papers_run().study.results
    for metric in ("late_retention", "late_diversity", "late_alignment"):
        values = {
            policy.name: results.values(COMPOSITE, policy.name, metric)
            for policy in results.benchmark.policies
        }
        best = max(values, key=lambda name: values[name].mean())  # type: ignore[union-attr]
        tests = {name: paired(row, values[best]) for name, row in values.items()}  # type: ignore[arg-type]
        tied = {name for name, test in tests.items() if test.mean == 0 or test.p >= 0.05}
        sign = "☆" if len(tied) > 1 else "★"
        for name in values:
            (fact,) = (fact for fact in facts(results) if fact[1:4] == (COMPOSITE, name, metric))
            assert fact.place == (sign if name in tied else "")
