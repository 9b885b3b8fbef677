"""Which policy, and how much cache: recall against budget, in entries and in bytes of a model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fdkvc.conversations.arguments import AGE_LABELS, age_of
from fdkvc.conversations.replay import Replay, default_heads, transcripts_of, turn_tokens
from fdkvc.core.attention import TOLERANCE
from fdkvc.core.parameters import Field
from fdkvc.core.recordings import Recording
from fdkvc.core.statistics import FEW_CLUSTERS, MIN_CLUSTERS
from fdkvc.core.transcripts import GIVEN_BY
from fdkvc.core.words import count, listed, percent, ranged, sentence, signed, written_bytes
from fdkvc.engine.sinks import RECALL_ONLY, SINKS, sinks_of
from fdkvc.engine.summary import mean_table, paired_differences
from fdkvc.policies import CANDIDATES, Policy, read_policy, usable, with_pinned_prompts
from fdkvc.policies.whitelist import Whitelist
from fdkvc.verdict.model_shape import ModelShape

TARGETS = (0.9, 0.95, 0.99)
"""Call-argument recalls to reach."""

TARGET = Field(
    "Target",
    "The call-argument recall that a policy must reach.",
    name="target",
    default="95",
    choices={f"{100 * target:.0f}": percent(target) for target in TARGETS},
)

OFFERED = tuple(1 << power for power in range(4, 14))
"""Budgets that pages offer, and of which `fitting_budgets` chooses."""

_RECALL = ("n", "services", "recall", "ci_low", "ci_high")
PLAN = ("policy", "heads", "budget", *_RECALL, "entries", "bytes", "saved")


def dialog_lengths(recordings: Sequence[Recording]) -> tuple[int, ...]:
    """Return the number of tokens of each dialog."""
    return tuple(map(sum, turn_tokens(recordings)))


def fitting_budgets(tokens: float) -> tuple[int, ...]:
    """Return the offered budgets from 2 to 50 % of a dialog of so many tokens.

    Examples
    --------
    >>> fitting_budgets(4000), fitting_budgets(10)
    ((128, 256, 512, 1024), (16,))
    """
    return tuple(size for size in OFFERED if 0.02 * tokens <= size <= 0.5 * tokens) or (
        tenth_of(tokens),
    )


def tenth_of(tokens: float) -> int:
    """Return the offered budget nearest to 10 % of so many tokens.

    Examples
    --------
    >>> tenth_of(3000), tenth_of(10)
    (256, 16)
    """
    return min(OFFERED, key=lambda size: abs(math.log(10 * size / max(tokens, 1))))


def replay_settings(
    recordings: Sequence[Recording],
    policies: Sequence[Policy] = (),
    budgets: Sequence[int] = (),
) -> Replay:
    """Return the replay that a verdict on these dialogs rests on.

    By default, of those of `CANDIDATES` that these dialogs allow, at the budgets that fit their
    lengths. Policies also run with the system prompt pinned, where there is one.
    """
    first = recordings[0]
    if not policies:
        policies = [*map(read_policy, CANDIDATES)]
        if first.surprisal is None:
            policies = [policy for policy in policies if "surprisal" not in policy.looks_at]
    if any("system" in (turn.kind for turn in row.turns) for row in transcripts_of(recordings)):
        policies = with_pinned_prompts(policies)
    budgets = budgets or fitting_budgets(float(np.mean(dialog_lengths(recordings))))
    return Replay((*dict.fromkeys(policies),), tuple(budgets), (default_heads(first),))


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


def smallest_budgets(plan: pd.DataFrame, target: float) -> pd.Series:
    """Return the smallest budget by policy at which it reaches a target, NaN for none.

    A policy reaches it if its mean recall does at this budget and at all larger ones.
    """

    def smallest(rows: pd.DataFrame) -> float:
        falling = rows.sort_values("budget", ascending=False)
        return float(falling.budget[(falling.recall >= target - TOLERANCE).cummin()].min())

    return pd.Series({name: smallest(rows) for name, rows in plan.groupby("policy", sort=False)})


@dataclass(frozen=True)
class Verdict:
    """Which policy and budget to use, in words, and what these words rest on."""

    policy: str
    """The name of the recommended policy; of the best one if none reaches the target."""
    budget: int
    """The entries that it needs."""
    lead: str
    """The answer in a sentence."""
    rest: str = ""
    """What is still forgotten, and how the others compare."""
    caution: str = ""
    """What the measure cannot say."""

    @property
    def sentence(self) -> str:
        """The answer with all that belongs to it."""
        return f"{self.lead} {self.rest}".strip()


NO_VERDICT = Verdict(
    policy="",
    budget=0,
    lead="There is no verdict: no call in these dialogs needs a value mentioned before.",
)


def find_verdict(
    settings: Replay,
    replayed: pd.DataFrame,
    arguments: pd.DataFrame,
    tokens: Sequence[int],
    shape: ModelShape,
    target: float = 0.95,
) -> Verdict:
    """Return the policy that reaches the target with the fewest entries, and how sure that is.

    `replayed` and `arguments` are as `replay_arguments` returns them, and `tokens` the lengths of
    the dialogs. Of the policies at that budget it is the one with the highest recall, or one that
    is not distinguishable from it and protects the first tokens, which pretrained models need.
    """
    mode = settings.heads[0]
    plan = plan_table(settings, replayed, tokens, shape)
    plan = plan[plan.heads == mode]
    if plan.empty:
        return NO_VERDICT
    needed = smallest_budgets(plan, target)
    enough, largest = bool(needed.notna().any()), int(plan.budget.max())
    budget = int(needed.min()) if enough else largest
    at_budget = plan[plan.budget == budget]
    reaching = at_budget[at_budget.policy.map(needed) == budget] if enough else at_budget
    recalls = replayed[(replayed.budget == budget) & (replayed.heads == mode)]
    recalls = recalls[(recalls.metric == "call_recall") & recalls.policy.isin(plan.policy)]
    best = reaching.iloc[int(reaching.recall.argmax())]
    if enough:
        paired = paired_differences(recalls, str(best["policy"]))
        tied = reaching[~reaching.policy.isin(paired.policy[paired.significant.eq(True)])]
        safe = tied[[sinks_of(read_policy(name), budget) == SINKS for name in tied.policy]]
        best = safe.iloc[int(safe.recall.argmax())] if len(safe) else best
    name, held = str(best["policy"]), f"{budget:,} entries"
    interval = ranged(best["recall"], best["ci_low"], best["ci_high"], 1, percent)
    if enough:
        lead = f"Use {named(name)} with {held}: {_saving(best, float(np.mean(tokens)), shape)}."
        below = best["ci_low"] < target
        unsure = f", so {percent(target)} is not certain" if below else ""
        parts = [f"It holds {interval} of the values that a call needs, on average{unsure}."]
    else:
        lead = (
            f"No policy tried holds {percent(target)} of the values that calls need within {held}: "
            f"{named(name)} holds most, {interval}."
        )
        parts = []
    of_best = (arguments.policy == name) & (arguments.budget == budget) & (arguments.heads == mode)
    parts.append(_forgotten_words(arguments[of_best]))
    paired = paired_differences(recalls, name).set_index("policy")
    titles = {policy.name: policy.title for policy in settings.policies}
    unpinned, sure = unpinned_name(name), int(best["services"]) >= MIN_CLUSTERS
    rivals = [other for other in paired.index if unpinned_name(other) == other != unpinned]
    if rivals and sure:
        parts.append(_rivals_sentence(paired.loc[rivals], titles))
    if enough:
        parts.append(_others_need(needed[rivals] / budget, titles, target, largest))
    for twin in paired.index:
        if unpinned_name(twin) == unpinned and sure:
            parts.append(_pinning(paired.loc[twin], 1 if name == unpinned else -1))
    return Verdict(name, budget, lead, " ".join(filter(None, parts)), _caution(best))


def _rivals_sentence(paired: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """Say from which other policies the recommended one is not distinguishable; those hold less."""
    different = paired[paired.significant.eq(True)]
    ties = [titles[name] for name in paired.index if name not in different.index]
    parts = [f"it is not distinguishable from {listed(ties)}"] if ties else []
    if len(different):
        one, above = len(different) == 1, bool((different.mean_diff > 0).any())
        others = "the other" if one else "the others" if ties else "all others"
        ending = "s" if one else ""
        parts.append(f"{others} differ{ending}" if above else f"{others} hold{ending} less")
    return f"At this budget {'; '.join(parts)}."


def unpinned_name(name: str) -> str:
    """Return the name of a policy without its pinned system prompt."""
    policy = read_policy(name)
    pinned = isinstance(policy, Whitelist) and policy.speaker == "prompt"
    return policy.policy.name if isinstance(policy, Whitelist) and pinned else name


def named(name: str) -> str:
    """Return the title of a policy for a sentence."""
    inside = unpinned_name(name)
    title = read_policy(inside).title
    return title if inside == name else f"{title} (system prompt pinned)"


def _forgotten_words(arguments: pd.DataFrame) -> str:
    """Return how many values were lost, and where most of them came from."""
    lost = arguments[arguments.held < 1]
    if lost.empty:
        return "" if arguments.empty else f"Forgotten: none of {count(len(arguments), 'value')}."
    most = []
    for keys, words in ((lost.source, GIVEN_BY), (lost.age.map(age_of), AGE_LABELS)):
        counts = keys.value_counts()
        if counts.iloc[0] > len(lost) / 2:
            most.append(words[counts.index[0]])
    them = "most of them " if len(lost) > 1 else ""
    where = f", {them}{', '.join(most)}" if most else ""
    return f"Still forgotten: {len(lost):,} of {count(len(arguments), 'value')}{where}."


def _others_need(times: pd.Series, titles: Mapping[str, str], target: float, largest: int) -> str:
    """Return how many times the budget the others need to reach the target, if they do."""
    parts = []
    for factor, names in times[times > 1].groupby(times).groups.items():
        need = "needs" if len(names) == 1 else "need"
        who = listed([titles[name] for name in names])
        parts.append(f"{who} {need} {factor:g} times the budget")
    never = [titles[str(name)] for name in times.index[times.isna()]]
    if never:
        who = f"{listed(never)} {'does' if len(never) == 1 else 'do'} not reach"
        who = "no other policy reaches" if len(never) == len(times) > 1 else who
        parts.append(f"{who} {percent(target)} within {largest:,} entries")
    return sentence("; ".join(parts)) if parts else ""


def _pinning(paired: pd.Series, sign: int) -> str:
    """Return what pinning the system prompt changes, of the twin with or without it."""
    if not paired.significant:
        return "Pinning the system prompt makes no distinguishable difference."
    low, high = sorted(100 * sign * paired[end] for end in ("ci_low", "ci_high"))
    change = ranged(100 * sign * paired["mean_diff"], low, high, 1, signed)
    return f"Pinning the system prompt changes recall by {change} points."


def _caution(best: pd.Series) -> str:
    clusters = int(best["services"])
    over = f"{count(int(best['n']), 'dialog')} with calls, in {count(clusters, 'cluster')}"
    few = ""
    if clusters < MIN_CLUSTERS:
        few = f" An interval needs {MIN_CLUSTERS} clusters, so no policy is distinguishable."
    elif clusters < FEW_CLUSTERS:
        few = f" Fewer than {FEW_CLUSTERS} clusters may make intervals too narrow."
    return f"The verdict rests on {over}.{few} A replay runs no model. {RECALL_ONLY}"


def _saving(row: pd.Series, tokens: float, shape: ModelShape) -> str:
    """Return what a row of a plan saves at the end of a dialog of the mean length."""
    mean = f"a dialog of the mean length, {tokens:,.0f} tokens"
    if row["saved"] <= 0:
        return f"{mean}, fits into the cache, so nothing is saved"
    return (
        f"{written_bytes(row['bytes'])} instead of {written_bytes(tokens * shape.entry_bytes)} "
        f"({percent(row['saved'])} less) in {shape.name}, for {mean}"
    )
