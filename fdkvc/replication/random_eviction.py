"""Chance: which policies keep no better entries than blind eviction would."""

from __future__ import annotations

from collections.abc import Sequence

from fdkvc.experiments.benchmark import COMPOSITE, Results
from fdkvc.experiments.statistics import significant
from fdkvc.policies import Policy
from fdkvc.replication.judge import fact_of
from fdkvc.replication.tables import comparisons
from fdkvc.run.metrics import late_metric
from fdkvc.words import listed, number, percent

CHANCE = "random"
"""The policy that evicts at random."""

FEW = 4
"""So many that are behind are named one by one."""


def has_random(policies: Sequence[Policy]) -> bool:
    """Return whether one of the policies evicts at random, for the others to be compared with."""
    return any(policy.name == CHANCE for policy in policies)


def behind_random(results: Results) -> list[str]:
    """Say in a sentence for each metric which policies are below random eviction.

    Only significant differences count, by paired tests whose p is adjusted for all that are made
    here: of every policy in every metric. The numbers are means over the five benchmark scenarios;
    without all of those, or without a run of random eviction, nothing is said.

    Examples
    --------
    >>> from fdkvc.experiments.benchmark import Benchmark, run_benchmark
    >>> from fdkvc.policies import policy_named
    >>> three = tuple(policy_named(key) for key in ("random", "fifo", "h2o"))
    >>> benchmark = Benchmark(policies=three, dialogs=8, metrics=("retention", "diversity"))
    >>> for words in behind_random(run_benchmark(benchmark)):  # doctest: +ELLIPSIS
    ...     print(words)
    Late retention: random eviction (7... %) is ahead of H2O (63.3 %).
    Late diversity: random eviction (9... %) is ahead of all others.
    """
    if not has_random(results.benchmark.policies):
        return []
    behind: dict[str, list[str]] = {}
    compared = [each for each in comparisons(results, CHANCE) if each[0] == COMPOSITE]
    sure = significant([difference for *_, difference in compared])
    for (_, name, policy, difference), apart in zip(compared, sure, strict=True):
        if apart and (difference.mean > 0) == late_metric(name).lower_is_better:
            behind.setdefault(name, []).append(policy)
    return [
        f"{late_metric(name).title}: random eviction ({_mean(results, CHANCE, name)}) is ahead of "
        f"{_whom(results, name, policies)}."
        for name, policies in behind.items()
        if not late_metric(name).cost
    ]


def _whom(results: Results, name: str, behind: Sequence[str]) -> str:
    """Name those behind with their numbers, or, where they are many, those that are not."""
    titles = {policy.name: policy.title for policy in results.benchmark.policies}
    others = [name for name in titles if name not in (CHANCE, *behind)]
    if not others:
        return "all others"
    if len(behind) > FEW:
        return f"all others but {listed([titles[policy] for policy in others])}"
    return listed([f"{titles[policy]} ({_mean(results, policy, name)})" for policy in behind])


def _mean(results: Results, policy: str, name: str) -> str:
    fact = fact_of(results, COMPOSITE, policy, name)
    mean = float("nan") if fact is None else fact.mean
    return percent(mean, 1) if late_metric(name).percent else number(mean)
