"""The registry of policies: everything else finds them here and never by name."""

from __future__ import annotations

from collections.abc import Mapping

from fdkvc.parameters import defaults_of, parameters_of
from fdkvc.policies.base import Policy
from fdkvc.policies.expected_attention import ExpectedAttention
from fdkvc.policies.fastgen import FastGen
from fdkvc.policies.fd_kvc import FDKVC
from fdkvc.policies.fd_kvc_window import FDKVCWindow
from fdkvc.policies.fifo import Fifo
from fdkvc.policies.full import Full
from fdkvc.policies.h2o import H2O
from fdkvc.policies.h2o_decay import H2ODecay
from fdkvc.policies.h2o_mean import H2OMean
from fdkvc.policies.keydiff import KeyDiff
from fdkvc.policies.knorm import Knorm
from fdkvc.policies.oracle import Oracle
from fdkvc.policies.random import Random
from fdkvc.policies.scissorhands import Scissorhands
from fdkvc.policies.sink import SinkWindow
from fdkvc.policies.snapkv import SnapKV
from fdkvc.policies.tova import Tova

POLICIES: Mapping[str, type[Policy]] = {
    policy.key: policy
    for policy in (
        Fifo,
        SinkWindow,
        H2O,
        FDKVC,
        FDKVCWindow,
        H2ODecay,
        H2OMean,
        Tova,
        SnapKV,
        Scissorhands,
        FastGen,
        ExpectedAttention,
        KeyDiff,
        Knorm,
        Random,
        Oracle,
        Full,
    )
}
"""Every policy by its key, in the order in which people see them."""

PAPER_POLICIES = ("fifo", "sink", "h2o", "fd-kvc")
"""What the paper compares."""


def policy_named(key: str, /, **hyperparameters: float | int | str) -> Policy:
    """Make a policy from its key and hyperparameters.

    Raises
    ------
    ValueError
        If the policy or a hyperparameter is unknown or out of range; the sentence says what is
        allowed.

    Examples
    --------
    >>> policy_named("h2o-decay", forgetting=0.9)
    H2ODecay(window=0.5, queries='mean', forgetting=0.9)
    """
    if key not in POLICIES:
        raise ValueError(f"policy {key!r} is unknown: choose from {', '.join(POLICIES)}")
    known = parameters_of(POLICIES[key])
    for name in hyperparameters:
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise ValueError(f"{name!r} is not a hyperparameter of {key} (it has: {allowed})")
    return POLICIES[key](**hyperparameters)


def read_policy(name: str) -> Policy:
    """Make a policy from its name, as `Policy.name` writes it.

    Parameters
    ----------
    name : str
        A key, and hyperparameters after it; spaces or colons stand between them.

    Raises
    ------
    ValueError
        As `policy_named`, and where a hyperparameter has no value.

    Examples
    --------
    >>> read_policy("fd-kvc:gamma=0.8:w_c=0.3").name
    'fd-kvc gamma=0.8 w_c=0.3'
    """
    key, *settings = name.replace(":", " ").split() or [""]
    defaults = defaults_of(POLICIES[key]) if key in POLICIES else {}
    values: dict[str, float | int | str] = {}
    for setting in settings:
        field, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(
                f"{setting!r} in {name!r} is no hyperparameter: write NAME=VALUE, such as gamma=0.8"
            )
        if field in values:
            raise ValueError(f"{field!r} is given twice in {name!r}")
        kind = type(defaults.get(field, text))
        try:
            values[field] = kind(text)
        except ValueError:
            values[field] = text  # for the policy to refuse, in its own words
    return policy_named(key, **values)


__all__ = ["PAPER_POLICIES", "POLICIES", "Policy", "policy_named", "read_policy"]
