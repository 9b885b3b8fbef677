"""What policies cost SmolLM2, a pretrained model: *judged* by it, in tables that are shipped."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from fdkvc.engine.metrics import METRICS
from fdkvc.policies import read_policy

_FOLDER = Path(__file__).parent / "shipped"
SHIPPED = _FOLDER / "judged.csv"
"""The table that benchmarks/research/judged.py measured.

It has a row for each data, policy, budget and metric, with the mean, the paired difference from
`COMPARED`, and 95 % intervals of both over clusters.
"""

PLANNED, SIZES, CLEARED, HEADS = "planned", "sizes", "cleared", "heads"
"""The plans that were committed before they were run, by benchmarks/research/planned.py: plan.toml,
plan_sizes.toml, plan_cleared.toml and plan_heads.toml beside it."""

SECOND_MODEL = "second_model"
"""The plan of a second model, plan_second_model.toml there, by second_model.py."""

METRICS_SHOWN = ("kl", "values_right_of_full")
FIRST, ENTRIES = "SGD", 128
"""The data and the budget of the figure."""

ENDS = ["mean_diff", "ci_low", "ci_high"]
"""Columns of a difference and its interval."""

COMPARED = "sinks(h2o)"
"""The policy by attention with which others are compared."""

SHARE = "% of the text"
"""A part of the name of data whose budgets are a share of each conversation's tokens."""

UNCORRECTED = "open after correction"
"""The verdict on a difference that is significant alone, but not among all of its plan."""

UNREINFORCED = "fd-kvc alpha_0=0.0"
"""FD-KVC without reinforcement by relevance."""


def part_title(data: str, budget: int) -> str:
    """Return the name of data with a budget.

    Examples
    --------
    >>> part_title("SGD", 1024)
    'SGD: 1,024'
    >>> part_title("SGD, % of the text", 10)
    'SGD, 10 % of the text'
    """
    return data.replace(SHARE, f"{budget} {SHARE}") if SHARE in data else f"{data}: {budget:,}"


@cache
def judged_table() -> pd.DataFrame:
    """Return the means of `METRICS_SHOWN`, sorted by KL within each data and budget."""
    table = pd.read_csv(SHIPPED)
    table = table[table.metric.isin(METRICS_SHOWN) & (table.policy != "full")]
    parts = []
    for _, part in table.groupby(["data", "budget"], sort=False):
        lost = part[part.metric == "kl"].set_index("policy")["mean"]
        order = lost.reindex(part.policy).to_numpy().argsort(kind="stable")
        parts.append(part.iloc[order])
    return pd.concat(parts)


def ways_file(plan: str = PLANNED) -> Path:
    """Return the file of a plan with a row for each sample, decider, way, metric and budget."""
    return _FOLDER / f"{plan}_ways.csv"


def comparisons_file(plan: str = PLANNED) -> Path:
    """Return the file with the result of each comparison of a plan.

    It has a row for the metric that is tested, and one for the values right. The difference is the
    sum of the ways `more` minus the sum of the ways `less`.
    """
    return _FOLDER / f"{plan}_comparisons.csv"


def planned_ways(plan: str = PLANNED) -> pd.DataFrame:
    """Return the means of every way of a plan."""
    return pd.read_csv(ways_file(plan))


def planned_comparisons(plan: str = PLANNED) -> pd.DataFrame:
    """Return the result of each comparison of a plan."""
    return pd.read_csv(comparisons_file(plan)).astype({"more_clusters": "Int64"})


@cache
def first_rows(decides: str = "head") -> pd.DataFrame:
    """Return the KL of each way of the plan on its first sample, the least first."""
    way_rows = planned_ways().query("sample == @FIRST and decides == @decides and metric == 'kl'")
    return way_rows.sort_values("mean", kind="stable", ignore_index=True)


def judged_sentence() -> str:
    """Say which policy without attention is best, how it compares, and how sure that is."""
    # 1. The best policy without attention, and `COMPARED`, where each head decides and where the
    #    whole model does.
    rows, rows_of_model = first_rows("head").set_index("policy"), first_rows("model")
    rows_of_model = rows_of_model.set_index("policy")
    attends = np.array(["attention" in read_policy(name).looks_at for name in rows.index])
    best = rows[~attends].index[0]
    kl = METRICS["kl"]
    title, with_attention = read_policy(best).title, read_policy(COMPARED).title
    by_head = [kl.figure(rows["mean"][name]) for name in (best, COMPARED)]
    by_model = [kl.figure(rows_of_model["mean"][name]) for name in (best, COMPARED)]
    # 2. Their paired difference, if the plan has it.
    differences = _from_compared(best, "kl").query("sample == @FIRST")
    change = "".join(
        f"; the paired difference is {kl.figure(*interval, signs=True)}"
        for interval in differences[ENDS].to_numpy(float).tolist()
    )
    # 3. FD-KVC as published, and without reinforcement.
    published, plain_row = kl.figure(rows["mean"]["fd-kvc"]), kl.figure(rows["mean"][UNREINFORCED])
    return (
        f"Of attention-free policies, {title} changes SmolLM2's predictions least: a KL of "
        f"{by_head[0]} nats per token, where {with_attention} has {by_head[1]} "
        f"({rows.n.iloc[0]:.0f} dialogs of {FIRST} in {rows.services.iloc[0]:.0f} clusters, "
        f"{ENTRIES} entries, each head decides). Where the whole model "
        f"decides, as in inference engines, it is {by_model[0]} and {by_model[1]}{change}. FD-KVC "
        f"loses most through its relevance reinforcement: {published}, and {plain_row} with α₀ = 0."
        f"{_longer(best)}"
    )


def _longer(best: str) -> str:
    """Return a sentence for each sample with fewer values right than under `COMPARED`."""
    right = METRICS["values_right_of_full"]
    worse_rows = _from_compared(best, "values_right_of_full").query("verdict == 'worse'")
    figures = worse_rows[ENDS].to_numpy(float).tolist()
    return "".join(
        f" In longer conversations, of {name}, fewer values are right than under "
        f"{read_policy(COMPARED).title}: {right.figure(*interval, signs=True)} points."
        for name, interval in zip(worse_rows["sample"], figures, strict=True)
    )


def _from_compared(best: str, metric: str) -> pd.DataFrame:
    """Return the comparisons of a policy with `COMPARED`, where the whole model decides."""
    table = planned_comparisons()
    pair = (table.more == f"model: {best}") & (table.less == f"model: {COMPARED}")
    return table[pair & (table.metric == metric)]
