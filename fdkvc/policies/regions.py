"""Regions: priority and decay by who or what wrote a token."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fdkvc.core.attention import KINDS, Columns, Observation
from fdkvc.core.cache import EXACT, Cache
from fdkvc.core.parameters import parameter
from fdkvc.policies.base import EVICTION, Available, Looks, Policy, Step, Steps

_NAMES = {
    "system": "the system prompt",
    "user": "the user",
    "assistant": "the assistant",
    "call": "tool calls",
    "result": "tool results",
}


def _priority(kind: str) -> Any:
    return parameter(
        1.0,
        f"Priority of {_NAMES[kind]}",
        f"What a new token of {_NAMES[kind]} is worth.",
        low=0,
        high=1000,
        open_low=True,
    )


def _half_life(default: float, kind: str) -> Any:
    return parameter(
        default,
        f"Half-life of {_NAMES[kind]}",
        f"Tokens after which a token of {_NAMES[kind]} is worth half.",
        low=0,
        high=1e6,
        open_low=True,
    )


@dataclass(frozen=True)
class Regions(Policy):
    """Keep the tokens with the most worth left: each kind has its own priority and half-life.

    After Matam and Kim 2026, *MemDecay: Region-Aware KV Cache Eviction for Efficient LLM Agent
    Inference* (arXiv 2607.10582). Worth halves with each half-life, counted in tokens; its
    logarithm is the score. The half-lives of the system prompt and of the assistant are measured
    there: 148 to 189 decoding steps of system tokens, 14 to 16 of the scratchpad. Its table of
    priorities was not available to this project: priorities are equal, and the other half-lives are
    the geometric mean of these two. MemDecay also raises the worth of tokens that get attention;
    here text alone decides. It evicts pages and pins regions: so do ``blocks(regions)`` and
    ``whitelist(regions, first=0, speaker=prompt)``.
    """

    key = "regions"
    label = "By region"
    idea = (
        "System prompt, user, assistant, tool calls and tool results each have a priority and a "
        "half-life; the tokens with the most worth left stay."
    )
    source = "after Matam and Kim 2026, MemDecay"
    looks_at: ClassVar[Looks] = ("positions", "kinds")
    quantity_names: ClassVar[Mapping[str, str]] = {"priority": "logarithm of the priority"}
    ties = EXACT
    steps: ClassVar[Steps] = (
        Step(
            "Worth by region",
            r"s_i = \log_2 p_{r(i)} - (N_t - i) / h_{r(i)}",
            "region r has the priority p and the half-life h; N is the newest position",
            writes=("priority", "decay"),
        ),
        EVICTION,
    )

    system: float = _priority("system")
    system_half_life: float = _half_life(168.0, "system")
    user: float = _priority("user")
    user_half_life: float = _half_life(50.0, "user")
    assistant: float = _priority("assistant")
    assistant_half_life: float = _half_life(15.0, "assistant")
    call: float = _priority("call")
    call_half_life: float = _half_life(50.0, "call")
    result: float = _priority("result")
    result_half_life: float = _half_life(50.0, "result")

    def without_effect(self, available: Available) -> tuple[str, ...]:
        if not available.kinds:
            return ("Who wrote the tokens is unknown here, so all decay as the user's.",)
        missing = [kind for kind in ("call", "result") if kind not in available.kinds]
        named = " or ".join(_NAMES[kind] for kind in missing)
        return (f"No {named} are marked here, so none decay as such.",) if missing else ()

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        """Return the logarithm of the priority, and minus the half-lives that have passed."""
        # Logarithms, since 2^(−age / half-life) of an old token would be rounded to 0.
        position = turn.position(cache.token).astype(np.float64)
        age = position.max(axis=1, keepdims=True) - position
        # Tokens of an unknown kind count as the user's.
        priority = np.full(age.shape, np.log2(self.user))
        half_life = np.full(age.shape, self.user_half_life)
        for kind in KINDS:
            marked = turn.is_kind(cache.token, kind)
            priority[marked] = np.log2(getattr(self, kind))
            half_life[marked] = getattr(self, f"{kind}_half_life")
        with np.errstate(over="ignore"):
            passed = np.minimum(age / half_life, 1e30)  # more would exceed single precision
        return {"priority": priority.astype(np.float32), "decay": -passed.astype(np.float32)}
