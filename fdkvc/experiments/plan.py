"""Which policy, and how much cache: recall against budget, in entries and in bytes of a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fdkvc.corpora.lexical import LexicalRecordings
from fdkvc.corpora.model_folder import read_config
from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.transcripts import clean_name, word_spans
from fdkvc.experiments.replay import BEST, Replay, replay_paired, replay_summary
from fdkvc.experiments.statistics import MIN_CLUSTERS
from fdkvc.parameters import Field
from fdkvc.policies import usable
from fdkvc.words import count, listed, percent, ranged, written_bytes

TARGETS = (0.9, 0.95, 0.99)
"""Shares of the arguments of calls to hold."""

PLAN_BUDGETS = (64, 128, 256, 512, 1024, 2048)
"""The default budgets of a plan."""

PLAN = (
    *("policy", "heads", "budget", "n", "services", "recall", "ci_low", "ci_high"),
    *("entries", "bytes", "saved"),
)
SMALLEST = ("policy", "heads", "target", "budget", "bytes", "saved")


@dataclass(frozen=True)
class ModelShape:
    """What an entry of a model's cache takes: a key and a value in each layer and KV head."""

    name: str
    layers: int
    kv_heads: int
    head_width: int
    """Dimensions of a key or a value."""
    bits: int = 16
    """Of each number."""

    @property
    def entry_bytes(self) -> int:
        """Bytes of one entry in all layers and heads.

        Examples
        --------
        >>> SHAPES["llama-3.1-8b"].entry_bytes
        131072
        """
        return 2 * self.layers * self.kv_heads * self.head_width * self.bits // 8


SHAPES: Mapping[str, ModelShape] = {
    "llama-3.1-8b": ModelShape("Llama 3.1 8B", 32, 8, 128),
    "llama-3.1-70b": ModelShape("Llama 3.1 70B", 80, 8, 128),
    "mistral-7b": ModelShape("Mistral 7B", 32, 8, 128),
    "qwen2.5-7b": ModelShape("Qwen2.5 7B", 28, 4, 128),
}
"""Known shapes with 16 bits a number: Grattafiori et al. 2024, *The Llama 3 Herd of Models*, Table
3; Jiang et al. 2023, *Mistral 7B*, Table 1; Qwen Team 2024, *Qwen2.5 Technical Report*, Table 1."""

SHAPE = Field(
    "Model",
    "The model for whose cache bytes are given.",
    name="shape",
    default="llama-3.1-8b",
    choices={key: shape.name for key, shape in SHAPES.items()},
)

BITS = {"float32": 32, "float16": 16, "bfloat16": 16}
_NUMBERS = re.compile(r"(\d{1,4})x(\d{1,4})x(\d{1,5})x(\d{1,2})")


def read_shape(name: str) -> ModelShape:
    """Return a known shape, one in numbers, or that of a ``config.json``; ValueError otherwise.

    Examples
    --------
    >>> read_shape("4x2x64x8").entry_bytes
    1024
    """
    if name in SHAPES:
        return SHAPES[name]
    found = _NUMBERS.fullmatch(name)
    if found is not None and all(map(int, found.groups())):
        return ModelShape(name, *map(int, found.groups()))
    path = Path(name)
    if path.name == "config.json" or path.is_dir():
        return shape_of(read_config(path if path.is_dir() else path.parent))
    raise ValueError(
        f"shape {name[:80]!r} is unknown: choose from {', '.join(SHAPES)}, give layers x KV heads "
        "x head width x bits, such as 32x8x128x16, or the config.json of a model"
    )


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """Return the shape that a model's ``config.json`` describes."""
    inner = config.get("text_config")
    config = inner if isinstance(inner, dict) else config

    def number(*names: str) -> int | None:
        values = (config.get(each) for each in names)
        return next((each for each in values if type(each) is int and each > 0), None)

    layers, heads = number("num_hidden_layers", "n_layer"), number("num_attention_heads", "n_head")
    width = number("head_dim")
    hidden = number("hidden_size", "n_embd")
    if width is None and hidden is not None and heads is not None:
        width = hidden // heads
    if layers is None or heads is None or not width:
        raise ValueError(
            "config.json does not say the model's layers, heads and head width (num_hidden_layers, "
            "num_attention_heads, head_dim or hidden_size)"
        )
    bits = BITS.get(str(config.get("dtype", config.get("torch_dtype"))), 16)
    name = str(config.get("_name_or_path") or config.get("model_type") or "config.json")
    return ModelShape(clean_name(name), layers, number("num_key_value_heads") or heads, width, bits)


def dialog_lengths(recordings: Sequence[Recording]) -> tuple[int, ...]:
    """Return the number of tokens of each dialog; lexical ones are not computed for it."""
    if isinstance(recordings, LexicalRecordings):
        texts = (each.texts for each in recordings.transcripts)
        return tuple(sum(len(word_spans(text)) for text in each) for each in texts)
    return tuple(each.starts[-1] for each in recordings)


def plan_table(
    settings: Replay, replayed: pd.DataFrame, tokens: Sequence[int], shape: ModelShape
) -> pd.DataFrame:
    """Return the recall of call arguments by policy and budget, and what the cache takes.

    Columns `PLAN`: `entries` are those stored, with a second tier, and `saved` is the share that
    they do without of the full cache of a dialog of the mean length. Neither policies that see the
    future nor the full cache are in it.
    """
    full = float(np.mean(tokens))
    policies = {each.name: each for each in usable(settings.policies)}
    rows = []
    found = replay_summary(replayed[replayed.metric == "call_recall"])
    for row in found[found.policy.isin(list(policies))].to_dict("records"):
        budget, policy = int(row["budget"]), policies[row["policy"]]
        stored = policy.slots(budget, 1, 1) + policy.tier_places(budget, int(full))
        entries = min(float(stored), full)
        recall = [row[name] for name in ("n", "services", "mean", "ci_low", "ci_high")]
        size = entries * shape.entry_bytes
        rows.append((policy.name, row["heads"], budget, *recall, entries, size, 1 - entries / full))
    return pd.DataFrame(rows, columns=list(PLAN))


def budget_columns(smallest: pd.DataFrame, name: Callable[[str, str], str]) -> dict[str, list[str]]:
    """Return smallest budgets in words, a row for each `name` of a policy and its heads."""
    words = [
        "–" if np.isnan(budget) else f"{budget:,.0f} entries, {written_bytes(size)}"
        for budget, size in zip(smallest.budget, smallest.bytes, strict=True)
    ]
    cases = smallest.drop_duplicates(["policy", "heads"])
    columns = {"policy": list(map(name, cases.policy, cases.heads))}
    for target, rows in smallest.assign(words=words).groupby("target", sort=False):
        columns[f"{percent(float(str(target)))} held"] = rows.words.tolist()
    return columns


def smallest_budgets(plan: pd.DataFrame) -> pd.DataFrame:
    """Return the smallest budget at which each policy holds each target, NaN for none.

    Columns `SMALLEST`. A policy holds a target if its mean recall reaches it at this budget and at
    all larger ones.
    """
    rows = []
    case: Any
    for case, group in plan.groupby(["policy", "heads"], sort=False):
        ordered = group.sort_values("budget", ascending=False)
        for target in TARGETS:
            held = ordered[(ordered.recall >= target).cummin()]
            last = dict(held.iloc[-1]) if len(held) else {}
            found = (float(last.get(name, "nan")) for name in ("budget", "bytes", "saved"))
            rows.append((*case, target, *found))
    return pd.DataFrame(rows, columns=list(SMALLEST))


def plan_sentence(
    settings: Replay,
    replayed: pd.DataFrame,
    plan: pd.DataFrame,
    tokens: Sequence[int],
    shape: ModelShape,
) -> str:
    """Return which policy holds 95 % with the fewest entries, what it saves, and what ties.

    `plan` is the `plan_table` of the others.
    """
    plan = plan[plan.heads == settings.heads[0]]
    if plan.empty:
        return (
            "There is no plan: these dialogs have no calls whose arguments were mentioned before."
        )
    titles = {each.name: each.title for each in settings.policies}
    needed = smallest_budgets(plan)
    for target in (0.95, 0.9):
        reached = needed[(needed.target == target) & needed.budget.notna()]
        if not reached.empty:
            break
    else:
        most = plan.sort_values("recall").iloc[-1]
        return (
            f"No policy holds 90 % of the call arguments within {int(plan.budget.max()):,} "
            f"entries: {titles[most['policy']]} holds the most, {percent(most['recall'], 1)} at "
            f"{int(most['budget']):,}. Try larger budgets."
        )
    budget = int(reached.budget.min())
    at_budget = plan[(plan.budget == budget) & plan.policy.isin(reached.policy)]
    best = at_budget.sort_values("recall").iloc[-1]
    held = ranged(best["recall"], best["ci_low"], best["ci_high"], 1, percent)
    clusters = count(int(best["services"]), "cluster")
    full = float(np.mean(tokens)) * shape.entry_bytes
    some = replayed[
        (replayed.budget == budget)
        & (replayed.heads == settings.heads[0])
        & (replayed.metric == "call_recall")
        & (replayed.policy != BEST)
        & replayed.policy.isin(plan.policy)
    ]
    paired = replay_paired(some, best["policy"])
    differ = [each is True for each in paired.significant]
    ties = [titles[name] for name, one in zip(paired.policy, differ, strict=True) if not one]
    if best["services"] < MIN_CLUSTERS:
        undecided = f"{clusters} are too few for intervals, so no policy is distinguishable."
    elif ties:
        undecided = f"Not distinguishable at this budget: {listed(ties)}."
    else:
        undecided = "Every other policy differs at this budget."
    saved = (
        f"{written_bytes(best['bytes'])} instead of {written_bytes(full)} at "
        f"{np.mean(tokens):,.0f} tokens, the mean length, in {shape.name}: "
        f"{percent(best['saved'])} less memory after each turn"
    )
    return (
        f"{titles[best['policy']]} with {budget:,} entries holds {held} of the call arguments "
        f"({count(int(best['n']), 'dialog')}, {clusters}), the fewest entries for "
        f"{percent(target)}: {saved}. {undecided}"
    )
