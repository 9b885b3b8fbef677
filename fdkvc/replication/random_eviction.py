"""Which policies are worse than random eviction."""

from collections.abc import Sequence

from fdkvc.experiments.benchmark import COMPOSITE, Results
from fdkvc.experiments.statistics import significant
from fdkvc.policies import Policy
from fdkvc.replication.judge import fact_of
from fdkvc.replication.tables import comparisons
from fdkvc.run.metrics import late_metric
from fdkvc.words import listed

CHANCE = "random"
"""The policy that evicts at random."""

FEW = 4
"""Up to this many policies are listed with their numbers."""


def has_random(policies: Sequence[Policy]) -> bool:
    """Whether random eviction is one of the policies."""
    return any(policy.name == CHANCE for policy in policies)


def behind_random(results: Results) -> list[str]:
    """Return one sentence for each metric that lists the policies worse than random eviction.

    Only significant differences count, by paired tests of every policy in every metric with
    adjusted p. The numbers are means over the five benchmark scenarios; without all of those or
    without random eviction the list is empty.

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
    compared = [row for row in comparisons(results, CHANCE) if row[0] == COMPOSITE]
    differs = significant([difference for *_, difference in compared])
    for (_, name, policy, difference), differ in zip(compared, differs, strict=True):
        if differ and (difference.mean > 0) == late_metric(name).lower_is_better:
            behind.setdefault(name, []).append(policy)
    return [
        f"{late_metric(name).title}: random eviction ({_mean(results, CHANCE, name)}) is ahead of "
        f"{_whom(results, name, policies)}."
        for name, policies in behind.items()
        if not late_metric(name).cost
    ]


def _whom(results: Results, name: str, behind: Sequence[str]) -> str:
    """List the policies behind with their numbers, or, if they are many, the others."""
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
    return late_metric(name).with_unit(mean)
