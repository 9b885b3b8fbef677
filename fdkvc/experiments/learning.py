"""Learning: the weights of the policy `learned`, fitted on dialogs with calls.

Logistic regression on pairs of a turn and a token of that turn or before: does a later call need a
value whose newest mention has the token? Nothing of the cache enters, so the weights are for any
budget. Dialogs are split by clusters, since those with the same services repeat each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fdkvc.attention import TRAITS, Bools, Ints
from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.transcripts import Transcript
from fdkvc.experiments.statistics import Doubles
from fdkvc.policies.learned import FEATURES

PAIRS = 400
"""Pairs that are drawn from each dialog, at most."""

HELD_OUT = 3
"""One in so many clusters is held out."""

RIDGE = 1.0
"""Penalty on half the squared weights; it matters little."""

STEPS, LONGEST_STEP = 50, 2.0  # Newton's method takes about eight


@dataclass(frozen=True, eq=False)
class Weights:
    """A fitted model: mean, standard deviation and weight per deviation of `FEATURES` (F,)."""

    mean: Doubles
    spread: Doubles
    weight: Doubles

    def scores(self, features: Doubles) -> Doubles:
        """Return the score of each pair (n,) from its features (n, F)."""
        scores: Doubles = (features - self.mean) / self.spread @ self.weight
        return scores

    def record(self) -> dict[str, dict[str, float]]:
        """Return the features as a file of weights stores them."""
        columns = np.round([self.mean, self.spread, self.weight], 4).T.tolist()
        keys = ("mean", "spread", "weight")
        named = zip(FEATURES, columns, strict=True)
        return {name: dict(zip(keys, column, strict=True)) for name, column in named}


def split_by_cluster(
    transcripts: Sequence[Transcript], seed: int
) -> tuple[list[Transcript], list[Transcript]]:
    """Return dialogs to train on, and those of the clusters held out.

    Raises a ValueError if there are fewer than `HELD_OUT` clusters.
    """
    clusters = sorted({transcript.services for transcript in transcripts})
    if len(clusters) < HELD_OUT:
        raise ValueError(
            f"the dialogs have {len(clusters)} clusters of services, but learning needs at least "
            f"{HELD_OUT}, to hold one out"
        )
    drawn = np.random.default_rng(seed).permutation(len(clusters))[: len(clusters) // HELD_OUT]
    held_out = {clusters[at] for at in drawn}
    return (
        [transcript for transcript in transcripts if transcript.services not in held_out],
        [transcript for transcript in transcripts if transcript.services in held_out],
    )


def draw_pairs(recordings: Sequence[Recording], seed: int) -> tuple[Doubles, Bools]:
    """Draw pairs of a turn and a token of dialogs; return features (n, F) and labels (n,).

    Raises a ValueError if no call needs an earlier word, so that there is nothing to learn.
    """
    drawn = []
    for at, recording in enumerate(recordings):
        pairs = pick_pairs(recording, np.random.default_rng([seed, at]))
        drawn.append((features_of(recording, *pairs), needed(recording, *pairs)))
    features, labels = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    if not labels.any():
        raise ValueError(
            "no call of these dialogs needs an earlier word: learning needs dialogs with calls"
        )
    return features, labels


def pick_pairs(recording: Recording, generator: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw at most `PAIRS` turns, and for each a token of it or before; both (n,)."""
    ends = np.asarray(recording.starts[1:])
    first = np.concatenate([[0], np.cumsum(ends)])  # pairs are numbered turn by turn
    picked = generator.choice(first[-1], min(PAIRS, first[-1]), replace=False)
    turn = np.searchsorted(first, picked, side="right") - 1
    return turn, picked - first[turn]


def needed(recording: Recording, turn: Ints, token: Ints) -> Bools:
    """Whether a call after each turn needs a value whose newest mention has the token (n,)."""
    ends = np.asarray(recording.starts[1:])
    labels = np.zeros(len(turn), np.bool_)
    for demand, mentions in recording.evidence:
        if demand.kind == "call":
            began = [int(np.searchsorted(ends, tokens[0], side="right")) for tokens in mentions]
            for tokens, low, high in zip(mentions, began, [*began[1:], demand.turn], strict=True):
                labels |= (turn >= low) & (turn < high) & np.isin(token, tokens)
    return labels


def features_of(recording: Recording, turn: Ints, token: Ints) -> Doubles:
    """Return `FEATURES` of tokens as of turns (n, F)."""
    dialogs, starts = recording.dialogs, np.asarray(recording.starts)
    assert dialogs.traits is not None
    with_tokens = np.cumsum(np.diff(starts) > 0)
    age = with_tokens[turn] - with_tokens[dialogs.born[0][token]]
    return text_features(dialogs.traits[0].astype(float), token, age, starts[turn + 1])


def text_features(traits: Doubles, token: Ints, age: Ints, end: Ints | int) -> Doubles:
    """Return `FEATURES` of tokens (n, F): as old as `age` turns, in a text of the first `end`.

    `traits` (N, ·) are those of all tokens.
    """
    word = traits[:, TRAITS.index("word")]
    following = np.full(len(word), len(word))  # the next token of the same word
    order = np.argsort(word, kind="stable")
    same = (word[order][1:] == word[order][:-1]) & (word[order][1:] > 0)
    following[order[:-1][same]] = order[1:][same]
    named = dict(zip(TRAITS, traits[token].T, strict=True))
    named["age"] = np.log1p(age)
    named["repeated"] = (following[token] < end).astype(float)
    return np.stack([named[name] for name in FEATURES], axis=1)


def fit(features: Doubles, labels: Bools | Doubles, *, counts: bool = False) -> Weights:
    """Fit a regression of labels (n,) on `FEATURES` (n, F) by Newton's method; deterministic.

    It is logistic, or, for labels that are `counts` or other numbers from 0 on, Poisson's, whose
    mean is exp of the score.
    """
    mean, spread = features.mean(axis=0), features.std(axis=0)
    spread[spread == 0] = 1
    x = np.column_stack([(features - mean) / spread, np.ones(len(features))])
    penalty = np.diag([RIDGE] * len(FEATURES) + [0.0])
    solution = np.zeros(len(penalty))
    if counts:
        solution[-1] = np.log(labels.mean())
    for _ in range(STEPS):
        expected = np.exp(x @ solution) if counts else 1 / (1 + np.exp(-x @ solution))
        curvature = expected if counts else expected * (1 - expected)
        gradient = x.T @ (expected - labels) + penalty @ solution
        step = np.linalg.solve((x * curvature[:, None]).T @ x + penalty, gradient)
        step *= min(1, LONGEST_STEP / np.abs(step).max())
        solution -= step
        if np.abs(step).max() < 1e-9:
            break
    return Weights(mean, spread, solution[:-1])
