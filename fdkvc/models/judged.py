"""What policies cost SmolLM2, a pretrained model: *judged* by it, in tables that are shipped."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from fdkvc.core.statistics import MIN_CLUSTERS
from fdkvc.core.words import percent
from fdkvc.engine.metrics import METRICS
from fdkvc.policies import read_policy
from fdkvc.policies.ways import MESSAGES
from fdkvc.runs.grid import Grid

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

RIGHT = "values_right_of_full"
DIFFERENCE = "difference"
"""Names the rows of the second model's differences less SmolLM2's."""

METRICS_SHOWN = ("kl", "same_best", RIGHT)
FIRST, ENTRIES = "SGD", 128
"""The data and the budget of the figure."""

WITH_RESULTS = {
    "BFCL": "agents that call functions",
    "ToolTalk, 20 %": "a personal assistant",
    "τ-bench": "an airline's service",
}
"""The samples of conversations with tool results, of whose texts 20 % stay, in words."""

NEWEST = "sink"
"""The policy that keeps the first tokens and the newest."""

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


def ways_file(plan: str) -> Path:
    """Return the file of a plan with a row for each sample, decider, way, metric and budget."""
    return _FOLDER / f"{plan}_ways.csv"


def comparisons_file(plan: str) -> Path:
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
    table = pd.read_csv(comparisons_file(plan))
    types = {name: "Int64" for name in table if name == "more_clusters"}
    return table.astype(types)


def changed_rows() -> pd.DataFrame:
    """Return the share of next tokens that each policy changes on the first data, least first."""
    rows = judged_table().query(
        "metric == 'same_best' and data == @FIRST and budget == @ENTRIES"
    )
    changed = {
        "mean": 1 - rows["mean"],
        "ci_low": 1 - rows.ci_high,
        "ci_high": 1 - rows.ci_low,
    }
    return rows.assign(**changed).sort_values("mean", kind="stable")


def right_rows() -> pd.DataFrame:
    """Return the share of values right with each way of the plan on its first sample, best first.

    Each head decides by itself. Ways that do not look at attention decide alike in all heads, so
    those that the plan has for the whole model alone are among them.
    """
    rows = planned_ways().query("sample == @FIRST and metric == @RIGHT")
    alike = np.array(["attention" not in read_policy(name).looks_at for name in rows.policy])
    rows = rows[alike | (rows.decides == "head")].drop_duplicates("policy")
    return rows.sort_values("mean", ascending=False, kind="stable", ignore_index=True)


@cache
def recommendation() -> str:
    """Say in plain words what to keep, and how many values stay right with it."""
    rows = right_rows().set_index("policy")
    newest = rows["mean"][NEWEST]
    return (
        f"Not sure? Keep the first four tokens and the newest ({read_policy(NEWEST).title}): of "
        f"{rows.n[NEWEST]:.0f} service dialogs, {ENTRIES} tokens each, SmolLM2 still gets "
        f"{percent(newest)} of the values right, and no policy was shown to do better. "
        "With tool results it depends on the data: try yours on Dialogs."
    )


@cache
def judged_notes() -> tuple[str, ...]:
    """Say what the picture of values right does not: its first way, and what costs values."""
    rows = right_rows()
    best = rows.iloc[0]
    best_name, newest_name = (read_policy(name).title for name in (best.policy, NEWEST))
    best_share, low, high = map(percent, best[["mean", "ci_low", "ci_high"]])
    shares = rows.set_index("policy")["mean"]
    dropped, published, plain = map(percent, shares[[MESSAGES, "fd-kvc", UNREINFORCED]])
    return (
        f"{best_name} keeps {best_share} ({low} to {high}). This interval includes "
        f"{newest_name}'s share, and no test compared the two.",
        f"With the oldest messages dropped {dropped} stay right. With FD-KVC {published}, without "
        f"its reinforcement by similarity to the query (α₀ = 0) {plain}.",
        second_model_sentence(),
        ENGINES,
    )


ENGINES = (
    "Where to set them: Ollama drops the oldest messages, llama.cpp shifts the context, LangChain "
    "drops messages or clears tool results, Anthropic's API clears them. All others take this "
    "project's cache: in transformers, and in llama.cpp if they look at no attention."
)
"""Where each policy can be set; see `fdkvc.verdict.settings`."""


ABOUT_RESULTS = (
    "Conversations with tool results, with room for 20 % of the text: values right of those that "
    "SmolLM2 gets right with the full cache."
)


@cache
def results_grid() -> Grid:
    """Return the values right with the newest tokens and with H2O's, where tools return results."""
    newest, attentive = (read_policy(name).title for name in (NEWEST, COMPARED))
    rows = []
    for sample, description in WITH_RESULTS.items():
        query = "sample == @sample and metric == @RIGHT"
        ways = planned_ways(HEADS).query(f"{query} and decides == 'head'").set_index("policy")
        shares = map(percent, ways["mean"][[NEWEST, COMPARED]])
        ways_compared = f"more == 'head: {NEWEST}' and less == 'head: {COMPARED}'"
        pair = planned_comparisons(HEADS).query(f"{query} and {ways_compared}").iloc[0]
        ends = pair.mean_diff, pair.ci_low, pair.ci_high
        if pair.verdict == "worse":  # points that the other one is ahead
            ends = -pair.mean_diff, -pair.ci_high, -pair.ci_low
        points = METRICS[RIGHT].figure(*ends, signs=True)
        better = {"better": newest, "worse": attentive}.get(pair.verdict, "not settled")
        data = f"{sample.partition(',')[0]}: {description} ({pair.n})"
        rows.append([data, f"{better}: {points}", *shares])
    heads = ["conversations", "more right with, in points", newest, attentive]
    return Grid(heads, rows)


def finding(verdicts: pd.Series, clusters: int) -> str:
    """Return on which models an answer holds, by the rule of plan_second_model.toml.

    Examples
    --------
    >>> finding(pd.Series({"second": "better", "first": "better", "difference": "open"}), 9)
    'holds on both'
    >>> finding(pd.Series({"second": "open", "first": "worse", "difference": "better"}), 9)
    'differs'
    """
    settled = ("better", "worse", "equivalent")
    same = verdicts["second"] == verdicts["first"]
    if clusters < MIN_CLUSTERS:
        return "open"
    if same and verdicts["second"] in settled:
        return "holds on both"
    differs = verdicts[DIFFERENCE] in ("better", "worse")
    return "differs" if differs and not same else "open"


@cache
def second_model_sentence() -> str:
    """Say what Qwen2.5-Coder shows of `judged_notes`, of how many dialogs."""
    comparisons = planned_comparisons(SECOND_MODEL)
    table = comparisons.query("metric == 'kl' and count > 0")
    findings = []
    for _, part in table.groupby(["more", "less", "sample"], sort=False):
        verdicts = part.set_index("model").verdict
        findings.append(finding(verdicts, int(part.services.iloc[0])))
    values = comparisons.query("metric == @RIGHT and model == 'second'")
    values = values.set_index("more")
    names = ["model: messages(fifo)", "head: fd-kvc"]
    dropped, reinforced = 100 * values.mean_diff[names]
    dropped_dialogs, reinforced_dialogs = values.n[names]
    return (
        f"A second model, Qwen2.5-Coder-0.5B: FD-KVC's reinforcement costs it {-reinforced:.0f} "
        f"points ({reinforced_dialogs} dialogs). Dropped messages (keys kept) cost it "
        f"{-dropped:.0f} against Weighted recency + sinks ({dropped_dialogs} dialogs). Of "
        f"{len(findings)} comparisons of next words, it answers {findings.count('differs')} "
        "otherwise than SmolLM2."
    )
