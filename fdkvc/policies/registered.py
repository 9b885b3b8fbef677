"""What is checked of a policy of another package or file: its class, and its scores."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, get_args

import numpy as np

from fdkvc.core.attention import Columns, Observation
from fdkvc.core.cache import Cache
from fdkvc.core.words import listed
from fdkvc.policies.base import Look, Policy, total

Terms = Callable[[Any, Cache, Observation], Columns]
"""The method `Policy.terms`."""


def check_class(policy: type[Policy]) -> None:
    """Raise a ValueError for a class that lacks what every policy has."""
    undefined = sorted(getattr(policy, "__abstractmethods__", ()))
    if inspect.isabstract(policy):
        raise ValueError(f"{policy.__name__} does not define {listed(undefined)}")
    for name in ("label", "idea", "source"):
        if not isinstance(getattr(policy, name, None), str):
            raise ValueError(
                f"{policy.__name__} needs a {name}: a text, as other policies have"
            )


def check_looks(policy: Policy) -> None:
    """Raise a ValueError if a policy looks at what has no such name."""
    looks_known = get_args(Look)
    looks = policy.looks_at
    if not isinstance(looks, tuple) or not {*looks_known}.issuperset(looks):
        raise ValueError(
            f"{policy.key} has looks_at = {looks!r:.100}, but it must be a tuple of names from "
            f"{', '.join(looks_known)}"
        )


def checked(terms: Terms) -> Any:
    """Return the method `Policy.terms`, whose terms are checked each time."""

    @wraps(terms)
    def checked_terms(policy: Policy, cache: Cache, turn: Observation) -> Columns:
        named = terms(policy, cache, turn)
        problem = _problem(named, cache)
        if problem:
            raise ValueError(
                f"{policy.name} cannot be used: in turn {turn.turn} its {problem}"
            )
        return named

    return checked_terms


def _problem(named: Columns, cache: Cache) -> str:
    """Say what is wrong with the terms of entries; empty if nothing is."""
    shape = cache.token.shape
    if not isinstance(named, Mapping) or not named:
        return f"terms are {named!r:.60}, but must be named arrays, one at least"
    for name, term in named.items():
        array = np.asarray(term)
        if array.shape != shape or array.dtype.kind not in "fiub":
            return (
                f"term {name!r} has the shape {array.shape} and the type {array.dtype}, but must "
                f"have {shape}, a number for each entry"
            )
    finite = np.isfinite(total(named)) | ~cache.present
    if not finite.all():
        return (
            f"scores must be finite, but {np.count_nonzero(~finite):,} of "
            f"{finite.size:,} are not"
        )
    return ""
