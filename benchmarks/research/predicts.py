"""Tell which metric of a replayed cache predicts what a pretrained model loses.

    python -m benchmarks.research.judged DATA OUT --part N
    python -m benchmarks.research.predicts OUT [--workers W]

N is the part with most policies. SmolLM2 reads its dialogs again, and its policies are replayed
on the vectors of every KV head. Prints the rank correlation, over policies, of each metric's mean
with the KL and with the share of values lost, with bootstrap intervals over policies: over all, and
over those alone that keep the first tokens. Writes what it has replayed into OUT.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import bootstrap, spearmanr

from benchmarks import options
from benchmarks.research.judged import MODEL, PARTS
from fdkvc.conversations.formats import read_transcripts
from fdkvc.conversations.replay import Replay, replay
from fdkvc.core.transcripts import Transcript
from fdkvc.engine.sinks import SINKS, sinks_of
from fdkvc.models.numpy.head_recordings import read_dialog
from fdkvc.models.numpy.language_model import shared_language_model
from fdkvc.policies import read_policy
from fdkvc.policies.together import Together
from fdkvc.runs.jobs import one_blas_thread

NUMBER, PART = max(enumerate(PARTS, 1), key=lambda part: len(part[1].policies))

REPLAYED = ("retention", "diversity", "alignment", "attention_loss", "output_error")
PREDICTORS = ("call_recall", *(f"late_{metric}" for metric in REPLAYED))
PREDICTED = {"kl": "KL", "values_right_of_full": "values lost"}


def replayed(transcript: Transcript) -> pd.DataFrame:
    """Return the metrics of a dialogue, over all KV heads, under every policy."""
    model = shared_language_model(MODEL)
    policies = {
        Together(read_policy(name), model.decoder.shape.group): name for name in PART.policies
    }
    settings = Replay(tuple(policies), PART.budgets, REPLAYED)
    recordings = read_dialog(model, transcript, range(model.decoder.shape.layers))
    rows = replay(settings, recordings, workers=1)
    rows["policy"] = rows.policy.map({policy.name: name for policy, name in policies.items()})
    return rows.groupby(["policy", "metric"]).value.mean().reset_index()


def _correlation(one: Any, other: Any) -> float:
    return float(spearmanr(one, other).statistic)


def correlations(means: pd.DataFrame, lost: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield predictor, predicted and the correlation with its interval; policies are rows."""
    for name in means:
        for loss in lost:
            pair: Any = (means[name].to_numpy(float), lost[loss].to_numpy(float))
            rho = _correlation(*pair)
            interval = bootstrap(
                pair, _correlation, paired=True, vectorized=False, rng=np.random.default_rng(0)
            ).confidence_interval
            yield str(name), str(loss), f"{rho:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def main() -> None:
    """Replay, unless it is there, and print the tables."""
    asked = options(__doc__, "out", workers=1)
    folder = asked.out / str(NUMBER)
    file = folder / "replayed.csv"
    if not file.exists():
        one_blas_thread()
        transcripts = read_transcripts(folder.with_suffix(".json").read_bytes())
        with ProcessPoolExecutor(asked.workers) as pool:
            pd.concat(pool.map(replayed, transcripts)).to_csv(file, index=False)
    means = pd.read_csv(file).pivot_table(index="policy", columns="metric", values="value")[
        [*PREDICTORS]
    ]
    rows = pd.concat(map(pd.read_csv, folder.glob("*[0-9].csv")))
    measured = rows.pivot_table(index="policy", columns="metric", values="value")
    lost = measured.loc[means.index, [*PREDICTED]].rename(columns=PREDICTED)
    lost["values lost"] = 1 - lost["values lost"]
    keeping = [
        sinks_of(read_policy(name), *PART.budgets) == SINKS for name in map(str, means.index)
    ]
    for title, some in (("all", slice(None)), ("with the first tokens", keeping)):
        table = pd.DataFrame(correlations(means[some], lost[some]))
        print(f"{title}, {len(means[some])} policies")
        print(table.pivot(index=0, columns=1, values=2).to_string())


if __name__ == "__main__":
    main()
