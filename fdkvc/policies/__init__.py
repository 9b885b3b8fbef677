"""The registry of policies, in which everything else finds them by key."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from fdkvc.core.extensions import by_key, register_installed
from fdkvc.core.limits import MAX_POLICY_CHARACTERS
from fdkvc.core.parameters import (
    check_most,
    defaults_of,
    parameters_of,
    read_number,
    split_list,
)
from fdkvc.policies.ada_heads import AdaHeads
from fdkvc.policies.base import Policy as Policy
from fdkvc.policies.blocks import Blocks
from fdkvc.policies.clear_results import ClearResults
from fdkvc.policies.expected_attention import ExpectedAttention
from fdkvc.policies.fastgen import FastGen
from fdkvc.policies.fd_kvc import FDKVC
from fdkvc.policies.fd_kvc_adaptive import FDKVCAdaptive
from fdkvc.policies.fifo import Fifo
from fdkvc.policies.full import Full
from fdkvc.policies.h2o import H2O
from fdkvc.policies.h2o_mean import H2OMean
from fdkvc.policies.keydiff import KeyDiff
from fdkvc.policies.knorm import Knorm
from fdkvc.policies.learned import Learned
from fdkvc.policies.messages import Messages
from fdkvc.policies.oracle import Oracle
from fdkvc.policies.pyramid import Pyramid
from fdkvc.policies.random import Random
from fdkvc.policies.regions import Regions
from fdkvc.policies.registered import check_class, check_looks, checked
from fdkvc.policies.reread import Reread
from fdkvc.policies.scissorhands import Scissorhands
from fdkvc.policies.shift import Shift
from fdkvc.policies.sink import SinkWindow
from fdkvc.policies.sinks import Sinks
from fdkvc.policies.snapkv import SnapKV
from fdkvc.policies.surprisal import Surprisal
from fdkvc.policies.tova import Tova
from fdkvc.policies.turns import Turns
from fdkvc.policies.weighted_recency import WeightedRecency
from fdkvc.policies.whitelist import Whitelist
from fdkvc.policies.window import Window
from fdkvc.policies.wrapper import Wrapper

POLICIES: dict[str, type[Policy]] = by_key(
    Fifo,
    SinkWindow,
    Shift,
    ClearResults,
    Regions,
    H2O,
    FDKVC,
    FDKVCAdaptive,
    WeightedRecency,
    Surprisal,
    Learned,
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
"""Every policy by its key, in display order."""

BASELINE = "h2o"
"""The policy that others are compared with, as in the paper."""

PAPER_POLICIES = ("fifo", "sink", "h2o", "fd-kvc")
"""The policies that the paper compares."""

CANDIDATES = (
    "sinks(weighted-recency)",
    "sinks(learned)",
    "reread(messages(fifo))",
    "reread(clear-results)",
    "shift",
    "sinks(h2o)",
    *PAPER_POLICIES,
)
"""The policies that the card of dialogs compares: the best without attention, those of engines and
frameworks, the best with attention, and the paper's."""

WRAPPERS: dict[str, type[Wrapper]] = by_key(
    Sinks,
    Window,
    Whitelist,
    Messages,
    Turns,
    Blocks,
    AdaHeads,
    Pyramid,
    Reread,
)
"""Every wrapper by its key."""


def synthetic_policies() -> dict[str, type[Policy]]:
    """Return the policies for synthetic dialogs, by key: all that do not look at text."""
    by_words = {"words", "traits", "kinds"}
    return {
        key: kind for key, kind in POLICIES.items() if by_words.isdisjoint(kind().looks_at)
    }


AnyPolicy = TypeVar("AnyPolicy", bound=Policy)


def register(policy: type[AnyPolicy]) -> type[AnyPolicy]:
    """Register a policy or a wrapper of another package; usable as a class decorator.

    From then on pages and commands of this process find it by its key, and so do worker processes
    that can import its module. An installed package declares it as an entry point of the group
    ``fdkvc.policies``, which every process loads when it starts. Raises a ValueError if the key is
    taken or has characters other than lower-case letters, digits and hyphens, or the class lacks
    what every policy has; a TypeError if it is not a class derived from `Policy` with its own key.
    In use, terms of another shape and scores that are not finite raise a ValueError.
    """
    if not (isinstance(policy, type) and issubclass(policy, Policy) and "key" in vars(policy)):
        raise TypeError(f"{policy!r} is not a class derived from Policy with its own key")
    check_class(policy)
    if not re.fullmatch("[a-z][a-z0-9]*(-[a-z0-9]+)*", str(policy.key)):
        raise ValueError(
            f"policy key {policy.key!r} is not allowed: it has lower-case letters, digits and "
            "hyphens, and begins with a letter"
        )
    # The same class may come twice: from a decorator and from an entry point.
    if {**POLICIES, **WRAPPERS}.get(policy.key, policy) is not policy:
        raise ValueError(f"policy key {policy.key!r} is taken: choose another")
    registry: dict[str, Any] = WRAPPERS if issubclass(policy, Wrapper) else POLICIES
    if policy.key not in registry:
        policy.terms = checked(policy.terms)  # type: ignore[method-assign]
        registry[policy.key] = policy
    return policy


def policy_named(key: str, /, **hyperparameters: float | int | str) -> Policy:
    """Make a policy from its key and hyperparameters.

    Raises a ValueError if the policy or a hyperparameter is unknown or out of range.

    Examples
    --------
    >>> policy_named("h2o", forgetting=0.9)
    H2O(window=0.5, queries='mean', forgetting=0.9)
    """
    if key in WRAPPERS:
        raise ValueError(f"{key} is a wrapper: write {key}(POLICY), such as {key}(h2o)")
    if key not in POLICIES:
        raise ValueError(f"policy {key!r} is unknown: choose from {', '.join(POLICIES)}")
    _check_known(POLICIES[key], hyperparameters)
    policy = POLICIES[key](**hyperparameters)
    check_looks(policy)
    return policy


def wrapped(key: str, policy: Policy, /, **hyperparameters: float | int | str) -> Policy:
    """Put a wrapper around a policy.

    Raises a ValueError as `policy_named`, and if the two cannot be combined.

    Examples
    --------
    >>> wrapped("window", policy_named("tova"), share=0.25).name
    'window(tova, share=0.25)'
    """
    if key not in WRAPPERS:
        raise ValueError(f"{key!r} is not a wrapper: choose from {', '.join(WRAPPERS)}")
    _check_known(WRAPPERS[key], hyperparameters)
    return WRAPPERS[key](policy, **hyperparameters)


def usable(policies: Iterable[Policy]) -> tuple[Policy, ...]:
    """Return the policies that a real cache can use: not the full one, none that see the future.

    Examples
    --------
    >>> [policy.name for policy in usable(map(policy_named, ("full", "fifo", "oracle")))]
    ['fifo']
    """
    bounded = (policy for policy in policies if policy.bounded)
    return tuple(policy for policy in bounded if "future" not in policy.looks_at)


def with_pinned_prompts(policies: Sequence[Policy]) -> tuple[Policy, ...]:
    """Return the policies, and each again with the system prompt pinned, where that is possible.

    The prompt takes at most half of the budget. What a whitelist refuses stays as it is.

    Examples
    --------
    >>> policies = map(read_policy, ("fifo", "full", "reread(fifo)"))
    >>> [policy.name for policy in with_pinned_prompts([*policies])]
    ['fifo', 'full', 'reread(fifo)', 'whitelist(fifo, first=0, speaker=prompt)']
    """
    pinned = []
    for policy in policies:
        # It stores everything, reads again, or has a hyperparameter of the same name.
        with suppress(ValueError):
            pinned.append(Whitelist(policy, first=0, speaker="prompt"))
    return (*policies, *pinned)


def _check_known(kind: type[Policy], hyperparameters: Collection[str]) -> None:
    """Raise a ValueError that lists a policy's hyperparameters unless it has all of these."""
    allowed = parameters_of(kind)
    for name in hyperparameters:
        if name not in allowed:
            names = ", ".join(allowed) or "none"
            raise ValueError(
                f"{name!r} is not a hyperparameter of {kind.key} (it has: {names})"
            )


def read_policy(name: str) -> Policy:
    """Make a policy from its name, as `Policy.name` writes it.

    A name is a key and its hyperparameters, separated by spaces or colons. That of a wrapper has
    parentheses with a policy and the wrapper's hyperparameters, separated by commas.

    Raises a ValueError as `policy_named` and `wrapped`, and if a hyperparameter has no value, a
    wrapper is used twice, or the name exceeds `MAX_POLICY_CHARACTERS`.

    Examples
    --------
    >>> read_policy("fd-kvc:gamma=0.8:w_c=0.3").name
    'fd-kvc gamma=0.8 w_c=0.3'
    >>> read_policy("sinks(h2o window=0.25, n=4)").name
    'sinks(h2o window=0.25)'
    """
    check_most("a policy's name has", len(name), "characters", MAX_POLICY_CHARACTERS)
    return _parsed(name.replace(":", " ").strip(), name)


def _parsed(text: str, name: str) -> Policy:
    """Make a policy from a part of a name: KEY SETTINGS, or WRAPPER(PART, SETTINGS)."""
    wrapper, parenthesis, inside = text.partition("(")
    if not parenthesis:
        key, *settings = text.split() or [""]
        return policy_named(key, **_values(POLICIES.get(key), settings, name))
    if not inside.endswith(")"):
        raise ValueError(
            f"{text!r} needs a closing parenthesis at its end, such as sinks(h2o)"
        )
    inside, *settings = map(str.strip, split_list(inside[:-1]))
    key = wrapper.strip()
    return wrapped(key, _parsed(inside, name), **_values(WRAPPERS.get(key), settings, name))


def _values(
    kind: type[Policy] | None, settings: Iterable[str], name: str
) -> dict[str, float | int | str]:
    """Read NAME=VALUE of each hyperparameter, as the type of its default; `name` is for errors."""
    defaults = defaults_of(kind) if kind else {}
    values: dict[str, float | int | str] = {}
    for setting in settings:
        field, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(
                f"{setting!r} in {name!r} is not a hyperparameter: write NAME=VALUE, such as "
                "gamma=0.8"
            )
        if field in values:
            raise ValueError(f"{field!r} is given twice in {name!r}")
        kind_of_value = type(defaults.get(field, text))
        # A text that is not a number is refused by the policy, which names the range.
        values[field] = text if kind_of_value is str else read_number(text, kind_of_value)
    return values


def as_record(policy: Policy) -> dict[str, Any]:
    """Return a policy as files store it; `recorded_policy` reads it."""
    wrapped_policy = (
        {"policy": as_record(policy.policy)} if isinstance(policy, Wrapper) else {}
    )
    return {
        "key": policy.key,
        **wrapped_policy,
        **{name: getattr(policy, name) for name in parameters_of(policy)},
    }


def recorded_policy(
    key: str, policy: Mapping[str, Any] | None = None, **values: Any
) -> Policy:
    """Make a policy from its record.

    Raises a ValueError as `policy_named` and `wrapped`.

    Examples
    --------
    >>> recorded_policy(**as_record(read_policy("sinks(fifo)"))).name
    'sinks(fifo)'
    """
    if policy is None:
        return policy_named(key, **values)
    if not isinstance(policy, Mapping):
        raise ValueError(f"the policy in {key} is {policy!r:.60}, but must be an object")
    # Without a key it is refused as an unknown policy.
    return wrapped(key, recorded_policy(**{"key": "", **policy}), **values)


def baseline_of(policies: Sequence[Policy], chosen: str | None = None) -> str:
    """Return the policy to compare others with: the chosen one, else H2O, or else the first.

    Raises a ValueError if the chosen one is not among the policies.
    """
    names = [policy.name for policy in policies]
    if chosen is None:
        return BASELINE if BASELINE in names else names[0]
    if chosen not in names:
        raise ValueError(
            f"baseline {chosen!r} is not among the policies: choose from {', '.join(names)}"
        )
    return chosen


# Last, since these packages import what is above.
register_installed("fdkvc.policies", register)
