"""Policies with the system prompt pinned, and those that a real cache can use."""

from dataclasses import dataclass

from fdkvc.policies import read_policy, usable, with_pinned_prompts
from fdkvc.policies.fifo import Fifo


@dataclass(frozen=True)
class Hoard(Fifo):
    """Keep everything, as a policy of another package may."""

    key = "hoard"
    label = "Hoard"
    bounded = False


def test_only_what_a_whitelist_can_wrap_is_pinned() -> None:
    names = ("fifo", "reread(fifo)", "whitelist(fifo)", "sinks(h2o)")
    policies = [Hoard(), *map(read_policy, names)]

    pinned = with_pinned_prompts(policies)[len(policies) :]

    assert [policy.name for policy in pinned] == [
        "whitelist(fifo, first=0, speaker=prompt)",
        "whitelist(sinks(h2o), first=0, speaker=prompt)",
    ]


def test_a_policy_of_another_package_that_keeps_everything_is_no_real_cache() -> None:
    assert usable([Hoard(), read_policy("fifo")]) == (read_policy("fifo"),)
