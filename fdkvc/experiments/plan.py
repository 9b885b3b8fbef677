"""Which policy, and how much cache: recall against budget, in entries and in bytes of a model."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fdkvc.corpora.lexical import LexicalRecordings
from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.transcripts import word_spans
from fdkvc.experiments.model_shape import ModelShape
from fdkvc.experiments.replay import Replay
from fdkvc.experiments.statistics import MIN_CLUSTERS
from fdkvc.experiments.summary import mean_table, paired_differences
from fdkvc.policies import usable
from fdkvc.words import BEST, count, listed, percent, ranged, written_bytes

TARGETS = (0.9, 0.95, 0.99)
"""Call-argument recalls to reach."""

PLAN_BUDGETS = (64, 128, 256, 512, 1024, 2048)
"""The default budgets of a plan."""

PLAN = (
    *("policy", "heads", "budget", "n", "services", "recall", "ci_low", "ci_high"),
    *("entries", "bytes", "saved"),
)
SMALLEST = ("policy", "heads", "target", "budget", "bytes", "saved")


def dialog_lengths(recordings: Sequence[Recording]) -> tuple[int, ...]:
    """Return the number of tokens of each dialog; lexical ones are not computed for it."""
    if isinstance(recordings, LexicalRecordings):
        texts = (recording.texts for recording in recordings.transcripts)
        return tuple(sum(len(word_spans(text)) for text in recording) for recording in texts)
    return tuple(recording.starts[-1] for recording in recordings)


def plan_table(
    settings: Replay, replayed: pd.DataFrame, tokens: Sequence[int], shape: ModelShape
) -> pd.DataFrame:
    """Return the recall of call arguments by policy and budget, and what the cache takes.

    Columns `PLAN`: `entries` are those stored, with a second tier, and `saved` is the share that
    they do without of the full cache of a dialog of the mean length. Neither policies that see the
    future nor the full cache are in it.
    """
    full = float(np.mean(tokens))
    policies = {policy.name: policy for policy in usable(settings.policies)}
    rows = []
    means = mean_table(replayed[replayed.metric == "call_recall"])
    for row in means[means.policy.isin(list(policies))].to_dict("records"):
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
        columns[f"recall {percent(float(str(target)))}"] = rows.words.tolist()
    return columns


def smallest_budgets(plan: pd.DataFrame) -> pd.DataFrame:
    """Return the smallest budget at which each policy reaches each target, NaN for none.

    Columns `SMALLEST`. A policy reaches a target if its mean recall does at this budget and at all
    larger ones.
    """
    rows = []
    case: Any
    for case, group in plan.groupby(["policy", "heads"], sort=False):
        ordered = group.sort_values("budget", ascending=False)
        for target in TARGETS:
            held = ordered[(ordered.recall >= target).cummin()]
            last = dict(held.iloc[-1]) if len(held) else {}
            smallest = (float(last.get(name, "nan")) for name in ("budget", "bytes", "saved"))
            rows.append((*case, target, *smallest))
    return pd.DataFrame(rows, columns=list(SMALLEST))


def plan_sentence(
    settings: Replay,
    replayed: pd.DataFrame,
    plan: pd.DataFrame,
    tokens: Sequence[int],
    shape: ModelShape,
) -> str:
    """Return which policy reaches 95 % with the fewest entries, what it saves, and what ties.

    `plan` is the `plan_table` of the others.
    """
    plan = plan[plan.heads == settings.heads[0]]
    if plan.empty:
        return (
            "There is no plan: these dialogs have no calls whose arguments were mentioned before."
        )
    titles = {policy.name: policy.title for policy in settings.policies}
    needed = smallest_budgets(plan)
    for target in (0.95, 0.9):
        reached = needed[(needed.target == target) & needed.budget.notna()]
        if not reached.empty:
            break
    else:
        most = plan.sort_values("recall").iloc[-1]
        return (
            f"No policy reaches a call-argument recall of 90 % within {int(plan.budget.max()):,} "
            f"entries: the highest is {percent(most['recall'], 1)}, of {titles[most['policy']]} at "
            f"{int(most['budget']):,}. Try larger budgets."
        )
    budget = int(reached.budget.min())
    at_budget = plan[(plan.budget == budget) & plan.policy.isin(reached.policy)]
    best = at_budget.sort_values("recall").iloc[-1]
    low, high = (float(np.clip(best[name], 0, 1)) for name in ("ci_low", "ci_high"))
    recall = ranged(best["recall"], low, high, 1, percent)
    clusters = count(int(best["services"]), "cluster")
    some = replayed[
        (replayed.budget == budget)
        & (replayed.heads == settings.heads[0])
        & (replayed.metric == "call_recall")
        & (replayed.policy != BEST)
        & replayed.policy.isin(plan.policy)
    ]
    paired = paired_differences(some, best["policy"])
    differ = [significant is True for significant in paired.significant]
    ties = [titles[name] for name, one in zip(paired.policy, differ, strict=True) if not one]
    if best["services"] < MIN_CLUSTERS:
        undecided = f"An interval needs {MIN_CLUSTERS} clusters, so no policy is distinguishable."
    elif ties:
        undecided = f"Not distinguishable at this budget: {listed(ties)}."
    elif len(paired):
        undecided = "Every other policy differs at this budget."
    else:
        undecided = "No other policy was run."
    return (
        f"{titles[best['policy']]} at {budget:,} entries has a call-argument recall of {recall} "
        f"(mean over {count(int(best['n']), 'dialog')}, {clusters}); of the budgets tried, it is "
        f"the smallest at which a policy reaches {percent(target)}. "
        f"{_saving(best, float(np.mean(tokens)), shape)} {undecided}"
    )


def _saving(row: pd.Series, tokens: float, shape: ModelShape) -> str:
    """Return what a row of a plan saves at the end of a dialog of the mean length."""
    if row["saved"] <= 0:
        return (
            f"A dialog of the mean length, {tokens:,.0f} tokens, fits into the cache, so nothing "
            "is saved."
        )
    return (
        f"At the end of a dialog of the mean length, {tokens:,.0f} tokens, the cache then takes "
        f"{written_bytes(row['bytes'])} instead of {written_bytes(tokens * shape.entry_bytes)} in "
        f"{shape.name}, {percent(row['saved'])} less."
    )
