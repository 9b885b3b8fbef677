"""Shipped results on SmolLM2: how far each policy moves its predictions, and what it forgets."""

import math
from functools import cache

import pandas as pd

from fdkvc.charts.results import dots_chart
from fdkvc.charts.theme import Spec, Theme
from fdkvc.core.words import lost_likelihood, p_words
from fdkvc.engine.metrics import METRICS
from fdkvc.models.judged import (
    ENTRIES,
    FIRST,
    PLANNED,
    UNCORRECTED,
    changed_rows,
    judged_table,
    part_title,
    planned_comparisons,
    right_rows,
)
from fdkvc.policies import read_policy
from fdkvc.runs.grid import Grid, figures, pivot

TITLE = "Values that SmolLM2 still gets right"
CHANGED_TITLE = "Next tokens of SmolLM2 that change"
COMPARISONS = "Questions asked before the run, and their answers"
TITLES = {
    "kl": "KL from the full cache on all data and budgets, nats per token",
    "same_best": "Tokens whose most likely prediction is still the full cache's, %",
    "values_right_of_full": "Values still right, of those right with the full cache, %",
}

DECIDED = {"head": "each head", "model": "the whole model"}

ABOUT = (
    "KL is how far the model's predictions are from those with the full cache, in nats per token: "
    f"at 0.1, what the full cache expects becomes {lost_likelihood(0.1)} less likely; "
    "values right are argument values of calls that the model still predicts, of those that it "
    "predicts with the full cache. SmolLM2-135M-Instruct reads the true text; 95 % intervals by "
    "cluster; headings give dialogs and clusters. Each KV head decides by itself unless the "
    "heading says otherwise. The chart and the first table are of a plan that was committed before "
    "its run, benchmarks/research/plan.toml; the others were measured earlier, by judged.py beside "
    "it."
)


@cache
def judged_chart(theme: Theme) -> Spec:
    """Return the share of values right with each policy on the first data, with its interval."""
    unit = "% of those right with the full cache (dashed)"
    return _policies_chart(right_rows(), TITLE, unit, theme, 100.0)


@cache
def changed_chart(theme: Theme) -> Spec:
    """Return the share of next tokens that each policy changes, with its interval."""
    unit = "% of its likeliest next tokens"
    return _policies_chart(changed_rows(), CHANGED_TITLE, unit, theme, 0.0)


def _policies_chart(
    rows: pd.DataFrame, title: str, unit: str, theme: Theme, reference: float
) -> Spec:
    sample = f"{rows.n.max():.0f} service dialogs ({FIRST}), {ENTRIES} tokens"
    subtitle = f"{unit}\n“+ sinks”: the first four tokens stay\n{sample}, 95 % intervals"
    dots = 100 * rows[["mean", "ci_low", "ci_high"]]
    policies = [*map(read_policy, rows.policy)]
    dots.insert(0, "policy", [policy.title for policy in policies])
    dots.insert(1, "idea", [policy.idea for policy in policies])
    return dots_chart(dots, title, subtitle, theme, reference)


@cache
def judged_grids() -> dict[str, Grid]:
    """Return the comparisons of the plan, then both metrics by policy, data and budget."""
    return {COMPARISONS: planned_grid()} | {
        title: _grid(judged_table().query("metric == @metric"))
        for metric, title in TITLES.items()
    }


def _grid(rows: pd.DataFrame) -> Grid:
    sizes = rows.groupby(["data", "budget"])[["n", "services"]].transform("max")
    columns = rows.data, rows.budget, sizes.n, sizes.services
    part = []
    for data, budget, n, clusters in zip(*columns, strict=True):
        title = part_title(data, budget)
        part.append(f"{title} ({n} in {clusters} clusters)")
    rows = rows.assign(part=part, policy=[read_policy(name).title for name in rows.policy])
    return pivot(rows, figures(rows), ["policy"], column="part", missing="–")


def comparison_name(better: str, poorer: str) -> str:
    """Return the ways of a comparison, and who decides.

    Examples
    --------
    >>> comparison_name("head: sinks(h2o)", "head: sinks(random)")
    'H2O + sinks − Random + sinks, each head'
    >>> comparison_name("model: sinks(random) + head: sink", "head: sinks(random) + model: sink")
    'Random + sinks − Sink+Window, the whole model − each head'
    """
    # Each side is one way, or two for the difference of two differences.
    added = [cell.split(": ") for cell in better.split(" + ")]
    subtracted = [cell.split(": ") for cell in poorer.split(" + ")]
    decider, name = added[0]
    other_decider, baseline = subtracted[0]
    if len(added) == 1:
        deciders = DECIDED[decider]
    else:
        baseline = added[1][1]
        deciders = f"{DECIDED[decider]} − {DECIDED[other_decider]}"
    return f"{read_policy(name).title} − {read_policy(baseline).title}, {deciders}"


def planned_grid(plan: str = PLANNED) -> Grid:
    """Return the comparisons of a plan: the difference in KL, what it is, and that in values."""
    table = planned_comparisons(plan)
    tested = table[table.metric == "kl"]
    values_right = table[table.metric == "values_right_of_full"]
    samples = map("{}, {} in {}".format, tested["sample"], tested.n, tested.services)
    return Grid.of(
        {
            "question": tested.asks.tolist(),
            "ways": [*map(comparison_name, tested.more, tested.less)],
            "sample: conversations in clusters": [*samples],
            "KL, nats": tested.apply(difference_text, axis=1).tolist(),
            "the first is": tested.apply(_verdict, axis=1).tolist(),
            "values right, points": values_right.apply(difference_text, axis=1).tolist(),
        }
    )


def difference_text(row: pd.Series) -> str:
    """Return a difference with its interval, – if it was not measured."""
    if math.isnan(row.mean_diff):
        return "–"
    return METRICS[row.metric].figure(row.mean_diff, row.ci_low, row.ci_high, signs=True)


def _verdict(row: pd.Series) -> str:
    """Return a verdict, corrected for all comparisons, or what would settle it."""
    if row.verdict == "open" and pd.notna(row.more_clusters):
        return f"open: {row.more_clusters:,} clusters more would settle it"
    if row.verdict in ("better", "worse", UNCORRECTED):
        return f"{row.verdict}, {p_words(row.p_holm)}"
    return str(row.verdict)
