"""Learned: a linear score of a token's traits, its age, and whether its word is repeated."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import ClassVar

import numpy as np

from fdkvc.core.attention import TRAITS, Columns, Floats, Observation
from fdkvc.core.cache import UNIT_SCALE, Cache
from fdkvc.policies.base import (
    EVICTION,
    RECENT_WINDOW,
    Available,
    Score,
    Step,
    Update,
    WindowedPolicy,
    changing,
    total,
    window_parameter,
)

SHIPPED = Path(__file__).with_suffix(".json")
"""The weights; the file names its training data."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "age": ("age",),
    "repeated": ("repeated",),
    "word": ("surprisal", "capital", "digit", "punctuation", "mark"),
    "neighbours": ("near_surprisal", "near_capital", "near_digit"),
    "position": ("position",),
    "speaker": ("user",),
}
"""The terms of the score, each with the features whose weighted sum it is.

``age`` is ln(1 + turns in the cache); ``repeated`` is 1 once a newer entry has the same word; the
others are `fdkvc.core.attention.TRAITS`.
"""

FEATURES = tuple(chain.from_iterable(GROUPS.values()))


@dataclass(frozen=True)
class Learned(WindowedPolicy):
    """Keep the newest, and the entries that a linear model scores highest.

    The score is a weighted sum of the features. The weights predict an entry's effect on
    what a pretrained model predicts later: ``benchmarks/research/learned.py`` measures and fits
    them.
    """

    key = "learned"
    label = "Learned"
    idea = (
        "A linear model scores each token by its text, its neighbours, its speaker, its age and "
        "whether its word is repeated. The weights were fitted to the effect of entries on a "
        "pretrained model's predictions. A share of the budget goes to the newest entries."
    )
    source = "this project; fitted on the Schema-Guided Dialogue dataset"
    looks_at = ("traits", "positions", "history")
    channels = ("age", "repeated")
    ties = UNIT_SCALE
    quantity_names: ClassVar[Mapping[str, str]] = {
        "repeated": "repetition",
        "word": "kind of word",
        "position": "place in the turn",
    }
    steps = (
        Step(
            "Age",
            r"a_i \leftarrow a_i + 1, \qquad \text{new: } a_j = 0",
            "in turns with tokens",
            reads=("age",),
            writes=("age",),
            kind="change",
        ),
        changing(
            "Repetition",
            "repeated",
            r"d_i \leftarrow \max\big(d_i,\; [\exists j > i:\ \text{word}_j = \text{word}_i]\big)",
            "j is cached or new; a new entry starts at 0",
        ),
        RECENT_WINDOW,
        replace(
            EVICTION,
            equation=r"\begin{gathered} s_i = \sum_f w_f\,(x_{if} - \mu_f)/\sigma_f \\ "
            r"\text{keep the top } B \text{ by } s_i,\text{ ties to the older} \end{gathered}",
            source="x are the features, in units of their standard deviation on training dialogs",
        ),
    )

    window: float = window_parameter(0.75)

    def without_effect(self, available: Available) -> tuple[str, ...]:
        if available.words:
            return ()
        return ("Words are unknown here, so it decides by age alone.",)

    def update(self, cache: Cache, turn: Observation, score: Score) -> Update:
        """Count the turns that each entry has been cached."""
        return Update(cache.with_channels(age=np.where(cache.present, cache["age"] + 1, 0)))

    def after_insert(self, cache: Cache, turn: Observation) -> Cache:
        """Mark entries whose word a newer entry has; they stay marked after that is evicted."""
        word = self._traits(cache, turn)[..., TRAITS.index("word")]
        # By word, older first: an entry is repeated if the next one has its word.
        order = np.argsort(word, axis=1, kind="stable")
        ordered = np.take_along_axis(word, order, axis=1)
        after_last = np.zeros_like(ordered[:, :1])
        following = np.concatenate([ordered[:, 1:], after_last], axis=1)
        repeated = np.empty(order.shape, np.bool_)
        np.put_along_axis(repeated, order, (ordered == following) & (ordered > 0), axis=1)
        return cache.with_channels(repeated=np.maximum(cache["repeated"], repeated))

    def _traits(self, cache: Cache, turn: Observation) -> Floats:
        return turn.remembered("traits", cache.token, lambda: turn.traits(cache.token))

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        """Return the weighted features, summed by group; a token with the mean features has 0."""
        traits = self._traits(cache, turn)
        features = {name: traits[..., index] for index, name in enumerate(TRAITS)}
        features |= {"age": np.log1p(cache["age"]), "repeated": cache["repeated"]}
        weighted = {}
        for name, (mean, weight) in _weights(SHIPPED).items():
            centred = features[name] - np.float32(mean)
            weighted[name] = np.float32(weight) * centred
        terms = {}
        for group, names in GROUPS.items():
            summed = total({name: weighted[name] for name in names})
            terms[group] = np.where(cache.present, summed, 0)
        return terms


@cache
def _weights(path: Path) -> Mapping[str, tuple[float, float]]:
    """Return each feature's mean, and its weight per unit, from a file."""
    weights = {}
    features = json.loads(path.read_text("utf-8"))["features"]
    for name in FEATURES:
        feature = features[name]
        weights[name] = (feature["mean"], feature["weight"] / feature["spread"])
    return weights
