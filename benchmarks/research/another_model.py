"""Compare the order of ways on another model with that on SmolLM2, on dialogs of the plan.

    pip install -r requirements-capture.txt
    python -m benchmarks.research.another_model DATA OUT MODEL [--dialogs N] [--minutes M]

DATA and OUT are as for `planned`, which has read the same dialogs with SmolLM2. MODEL is a folder
that *transformers* loads. The first N dialogs of SGD are read under the plan's ways for the whole
model, as the command ``live`` reads them; a run that was stopped goes on, and after M minutes no
dialog is begun. Printed: the KL of each way on both models, and Spearman's correlation of the two
orders with its interval over clusters.
"""

from pathlib import Path
from time import monotonic

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from benchmarks import options
from benchmarks.research.judged import measure
from benchmarks.research.planned import conversations, parts_of, plan
from fdkvc.models.transformers.loop import load_live
from fdkvc.runs.grid import Grid

SAMPLE, DECIDES = "SGD", "model"
RESAMPLES, SEED = 2000, 1


def losses(rows: pd.DataFrame, policies: tuple[str, ...]) -> pd.DataFrame:
    """Return the KL of each dialog (row, with its cluster as index) under each way (column)."""
    rows = rows[(rows.metric == "kl") & rows.policy.isin(policies)]
    table = rows.pivot_table(index=["services", "dialog"], columns="policy", values="value")
    return table[list(policies)]


def resampled(clusters: pd.Index, rng: np.random.Generator) -> np.ndarray:
    """Return the rows of as many clusters as there are, drawn with replacement."""
    rows = pd.Series(range(len(clusters))).groupby(np.asarray(clusters)).agg(list)
    drawn = rng.integers(len(rows), size=len(rows))
    return np.concatenate(rows.iloc[drawn].tolist())


def main() -> None:
    """Read what is left to read, and print the table."""
    asked = options(__doc__, "data", "out", "model", dialogs=30, minutes=10_000)
    until = monotonic() + 60 * asked.minutes
    sample = plan()["samples"][SAMPLE]
    part = next(part for part in parts_of(SAMPLE, sample) if part.decides == DECIDES)
    model = load_live(asked.model)
    here, there = list[pd.DataFrame](), list[pd.DataFrame]()
    for conversation in conversations(SAMPLE, sample, asked.data, asked.out)[: asked.dialogs]:
        file = conversation.folder / f"{DECIDES} {Path(asked.model).name}.csv"
        if monotonic() < until or file.exists():
            here.append(measure(part, conversation.transcript, file, model))
            there.append(pd.read_csv(conversation.folder / f"{DECIDES}.csv"))
    one, other = (losses(pd.concat(tables), part.policies) for tables in (here, there))
    clusters, rng = one.index.get_level_values("services"), np.random.default_rng(SEED)
    orders = list[float]()
    for _ in range(RESAMPLES):
        rows = resampled(clusters, rng)
        drawn = one.iloc[rows].mean(), other.iloc[rows].mean()
        orders.append(float(spearmanr(*drawn).statistic))
    means = pd.DataFrame({"SmolLM2": other.mean(), model.name: one.mean()}).sort_values("SmolLM2")
    cells = [[way, *(f"{mean:.3f}" for mean in means.loc[way])] for way in means.index]
    print(Grid(["way", *map(str, means)], cells).markdown())
    rank = spearmanr(one.mean(), other.mean()).statistic
    low, high = np.quantile(orders, (0.025, 0.975))
    print(
        f"\nSpearman {rank:.2f} ({low:.2f} to {high:.2f}), {len(one)} dialogs in "
        f"{clusters.nunique()} clusters"
    )


if __name__ == "__main__":
    main()
