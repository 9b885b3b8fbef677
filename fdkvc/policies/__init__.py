"""The registry of policies: everything else finds them here and never by name."""

from __future__ import annotations

from collections.abc import Mapping

from fdkvc.parameters import parameters_of
from fdkvc.policies.base import Policy
from fdkvc.policies.fd_kvc import FDKVC
from fdkvc.policies.fifo import Fifo
from fdkvc.policies.h2o import H2O
from fdkvc.policies.sink import SinkWindow

POLICIES: Mapping[str, type[Policy]] = {
    policy.key: policy for policy in (Fifo, SinkWindow, H2O, FDKVC)
}
"""Every policy by its key, in the order in which people see them."""

PAPER_POLICIES = ("fifo", "sink", "h2o", "fd-kvc")
"""What the paper compares."""


def policy_named(key: str, **hyperparameters: float | int | str) -> Policy:
    """Make a policy from its key and hyperparameters.

    Raises
    ------
    ValueError
        If the policy or a hyperparameter is unknown or out of range; the sentence says what is
        allowed.

    Examples
    --------
    >>> policy_named("fd-kvc", gamma=0.8)
    FDKVC(gamma=0.8, alpha_0=0.3, mu=0.4, tau=0.02, beta=0.25, w_c=0.45)
    """
    if key not in POLICIES:
        raise ValueError(f"policy {key!r} is unknown: choose from {', '.join(POLICIES)}")
    known = parameters_of(POLICIES[key])
    for name in hyperparameters:
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise ValueError(f"{name!r} is not a hyperparameter of {key} (it has: {allowed})")
    return POLICIES[key](**hyperparameters)


__all__ = ["PAPER_POLICIES", "POLICIES", "Policy", "policy_named"]
