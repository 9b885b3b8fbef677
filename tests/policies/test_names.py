"""The name of a policy means the same in every version: it leaves out what is at its default."""

import re

import pytest

from fdkvc.core.parameters import parameters_of
from fdkvc.policies import POLICIES, WRAPPERS, baseline_of, read_policy

NAMES = {
    "fifo",
    "sink sinks=4",
    "shift keep=0",
    "h2o window=0.5 queries=mean forgetting=1.0",
    "fd-kvc gamma=0.88 alpha_0=0.3 mu=0.4 tau=0.02 beta=0.25 w_c=0.45",
    "fd-kvc-adaptive gamma=0.88 alpha_0=0.3 mu=0.4 tau=0.02 beta=0.25 w_c=0.45 kappa=0.5 theta=0.5",
    "weighted-recency window=0.25 decay=0.9 base=24.0",
    "surprisal window=0.5 decay=0.8 redundancy=0.75",
    "learned window=0.75",
    "h2o-mean queries=mean",
    "tova",
    "snapkv window=0.25 kernel=5",
    "scissorhands history=8 threshold=1.0 window=0.1 queries=mean",
    "fastgen recovery=0.9 sinks=4 frequent=0.3 local=0.3 queries=mean",
    "expected-attention sinks=4",
    "keydiff",
    "knorm",
    "clear-results keep=3 trigger=0 clear_at_least=0 clear_tool_inputs=no",
    "regions system=1.0 system_half_life=168.0 user=1.0 user_half_life=50.0 assistant=1.0 "
    "assistant_half_life=15.0 call=1.0 call_half_life=50.0 result=1.0 result_half_life=50.0",
    "random chance_seed=0",
    "oracle",
    "full",
    "sinks(h2o, n=4)",
    "window(h2o, share=0.5)",
    "whitelist(h2o, first=1, at_turn=-1, speaker=nobody, most=0.5)",
    "messages(h2o, prompt=stays, begins=anywhere)",
    "turns(h2o, picks=0.25)",
    "blocks(h2o, size=16, score=mean)",
    "ada-heads(h2o, safe=0.2)",
    "pyramid(h2o, last=0.5)",
    "reread(fifo)",
}
"""Every policy and wrapper with its hyperparameters at default, but for texts."""


@pytest.mark.parametrize("name", sorted(NAMES))
def test_what_a_short_name_leaves_out_stays_as_it_is(name: str) -> None:
    policy = read_policy(name)
    short = f"{policy.key}({policy.core.name})" if "(" in name else policy.key
    assert policy.name == short
    assert policy == read_policy(short)
    texts = {"words", "exclude_tools", "placeholder"}
    assert {*re.findall(r"(\w+)=", name)} == {*parameters_of(policy)} - texts


def test_every_policy_and_wrapper_is_among_them() -> None:
    assert {read_policy(name).key for name in NAMES} == {*POLICIES, *WRAPPERS}


@pytest.mark.parametrize(
    ("names", "baseline"),
    [("fifo h2o sink", "h2o"), ("sink fd-kvc", "sink"), ("fd-kvc", "fd-kvc")],
)
def test_the_baseline_is_h2o_or_else_the_first_policy(names: str, baseline: str) -> None:
    assert baseline_of([read_policy(name) for name in names.split()]) == baseline
