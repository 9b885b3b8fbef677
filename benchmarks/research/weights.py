"""Features of tokens in a text, and the regression that gives the policy `learned` its weights."""

from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import TRAITS, Ints
from fdkvc.core.statistics import Doubles
from fdkvc.policies.learned import FEATURES

RIDGE = 1.0
"""Penalty on half the squared weights; it matters little."""

STEPS, LONGEST_STEP = 50, 2.0  # Newton's method takes about eight


@dataclass(frozen=True, eq=False)
class Weights:
    """A fitted model: mean, standard deviation and weight per deviation of `FEATURES` (F,)."""

    mean: Doubles
    spread: Doubles
    weight: Doubles

    def record(self) -> dict[str, dict[str, float]]:
        """Return the features as a file of weights stores them."""
        columns = np.round([self.mean, self.spread, self.weight], 4).T.tolist()
        keys = ("mean", "spread", "weight")
        named = zip(FEATURES, columns, strict=True)
        return {name: dict(zip(keys, column, strict=True)) for name, column in named}


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


def fit(features: Doubles, labels: Doubles) -> Weights:
    """Fit a Poisson regression of labels (n,), numbers from 0 on, on `FEATURES` (n, F).

    Their mean is exp of the score. By Newton's method; deterministic.
    """
    mean, spread = features.mean(axis=0), features.std(axis=0)
    spread[spread == 0] = 1
    x = np.column_stack([(features - mean) / spread, np.ones(len(features))])
    penalty = np.diag([RIDGE] * len(FEATURES) + [0.0])
    solution = np.zeros(len(penalty))
    solution[-1] = np.log(labels.mean())
    for _ in range(STEPS):
        expected = np.exp(x @ solution)
        gradient = x.T @ (expected - labels) + penalty @ solution
        step = np.linalg.solve((x * expected[:, None]).T @ x + penalty, gradient)
        step *= min(1, LONGEST_STEP / np.abs(step).max())
        solution -= step
        if np.abs(step).max() < 1e-9:
            break
    return Weights(mean, spread, solution[:-1])
