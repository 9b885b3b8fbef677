"""Old names of policies and of their hyperparameters, each with what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

POLICIES: Mapping[str, str] = MappingProxyType(
    {
        "fd-kvc-salience": "is now surprisal",
        "fd-kvc-window": "is gone: h2o window=0.75 retains as much",
        "h2o-decay": "is now a setting of h2o: write h2o forgetting=0.88",
    }
)
"""By the old key."""

_WINDOW = "write window(fd-kvc, share=0.5)"
_RECALL = "write recall(fd-kvc, tier=1.0, page_match=0.7)"
_ADAPTIVE = "write fd-kvc-adaptive kappa=0.5 theta=0.5"
_SURPRISAL = "write surprisal decay=0.8 redundancy=0.75"
_GONE = "it was removed, because it improved nothing"

SETTINGS: Mapping[tuple[str, str], tuple[float | str, str]] = MappingProxyType(
    {
        ("fd-kvc", "window"): (0.0, _WINDOW),
        ("fd-kvc", "recall"): (0.0, _RECALL),
        ("fd-kvc", "page_match"): (0.7, _RECALL),
        ("fd-kvc", "kappa"): (0.0, _ADAPTIVE),
        ("fd-kvc", "theta"): (0.5, _ADAPTIVE),
        ("fd-kvc", "salience"): (0.0, _SURPRISAL),
        ("fd-kvc", "salience_decay"): (0.88, _SURPRISAL),
        ("fd-kvc", "redundancy"): (0.0, _SURPRISAL),
        ("fd-kvc", "reinforcement"): ("added", _GONE),
        ("fd-kvc", "relevance"): ("similarity", _GONE),
    }
)
"""By policy and old hyperparameter: the value that changed nothing, and what to do instead."""


def check_current(key: str, hyperparameters: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the new spelling, if a name is an old one."""
    if key in POLICIES:
        raise ValueError(f"policy {key!r} {POLICIES[key]}")
    for name in hyperparameters:
        if (key, name) in SETTINGS:
            raise ValueError(instead_of(name))


def instead_of(name: str) -> str:
    """Return what to write instead of an old hyperparameter, in words; nothing if it is none."""
    found = [(key, instead) for (key, old), (_, instead) in SETTINGS.items() if old == name]
    return " or ".join(
        f"{name!r} is no longer a hyperparameter of {key}: {instead}" for key, instead in found
    )


def without_idle(key: str, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's hyperparameters without old ones at the value that changed nothing."""
    return {
        name: value
        for name, value in hyperparameters.items()
        if SETTINGS.get((key, name), (None,))[0] != value
    }
