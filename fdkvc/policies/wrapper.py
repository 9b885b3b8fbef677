"""Wrappers: policies that wrap another one and change how it evicts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fdkvc.attention import Bools, Floats, Ints, Observation
from fdkvc.cache import Cache, Ties
from fdkvc.parameters import Field, parameters_of
from fdkvc.policies.base import Available, Look, Policy, Score, Step, Update


@dataclass(frozen=True)
class Wrapper(Policy):
    """A policy around another one, to which it forwards every method that it does not override.

    A wrapper is a file with a class derived from this one, and its name in `WRAPPERS`. It has
    hyperparameters of its own and calls ``self.policy`` for the wrapped policy. The wrapped policy
    sees the wrapper only through the `score` that `Policy.update` gets.

    Attributes
    ----------
    policy : Policy
        The wrapped one.
    """

    policy: Policy

    def __post_init__(self) -> None:
        """Check the hyperparameters, and that the wrapper can change the wrapped policy.

        Raises
        ------
        ValueError
            If the wrapped policy evicts nothing, stores everything, or has a hyperparameter of the
            same name.
        """
        super().__post_init__()
        if not self.policy.bounded:
            raise ValueError(f"{self.policy.name} evicts nothing, so {self.key} changes nothing")
        if self.policy.reads_afresh:
            raise ValueError(
                f"{self.policy.name} stores everything, so {self.key} has nothing to change"
            )
        for name in parameters_of(self).keys() & self.policy.settings.keys():
            raise ValueError(
                f"{self.policy.name} has {name!r} already, so {self.key} cannot stand around it"
            )

    @property
    def looks_at(self) -> tuple[Look, ...]:
        return self.policy.looks_at

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.policy.steps

    @property
    def bounded(self) -> bool:
        return self.policy.bounded

    @property
    def page_size(self) -> int:
        return self.policy.page_size

    @property
    def channels(self) -> tuple[str, ...]:
        return self.policy.channels

    @property
    def ties(self) -> Ties:
        return self.policy.ties

    @property
    def quantity_names(self) -> Mapping[str, str]:
        return self.policy.quantity_names

    def without_effect(self, available: Available) -> tuple[str, ...]:
        return self.policy.without_effect(available)

    def initial_state(self) -> Mapping[str, float]:
        return self.policy.initial_state()

    def capacity(self, budget: int, tokens: int) -> int:
        return self.policy.capacity(budget, tokens)

    def slots(self, budget: int, layers: int, heads: int) -> int:
        return self.policy.slots(budget, layers, heads)

    @property
    def reads_afresh(self) -> bool:
        return self.policy.reads_afresh

    def tier_places(self, budget: int, tokens: int) -> int:
        return self.policy.tier_places(budget, tokens)

    def recalls(self, cache: Cache, tier: Ints, turn: Observation) -> Bools:
        return self.policy.recalls(cache, tier, turn)

    def update(self, cache: Cache, turn: Observation, score: Score) -> Update:
        return self.policy.update(cache, turn, score)

    def init_channels(self, turn: Observation) -> Mapping[str, Floats]:
        return self.policy.init_channels(turn)

    def after_insert(self, cache: Cache, turn: Observation) -> Cache:
        return self.policy.after_insert(cache, turn)

    def terms(self, cache: Cache, turn: Observation) -> Mapping[str, Floats]:
        return self.policy.terms(cache, turn)

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        return self.policy.protects(cache, turn, budget)

    def budgets(self, budget: int, turn: Observation) -> int | Ints:
        return self.policy.budgets(budget, turn)

    def places(
        self, score: Floats, cache: Cache, protected: Bools, budgets: int | Ints, heads: int
    ) -> int | Ints:
        return self.policy.places(score, cache, protected, budgets, heads)

    def modulate(self, weights: Floats, cache: Cache) -> Floats:
        return self.policy.modulate(weights, cache)

    @property
    def core(self) -> Policy:
        return self.policy.core

    @property
    def name(self) -> str:
        """The wrapped policy and hyperparameters not at default, as `read_policy` reads them.

        Examples
        --------
        >>> from fdkvc.policies import read_policy
        >>> read_policy("recall(h2o window=0.25, tier=2)").name
        'recall(h2o window=0.25, tier=2.0)'
        """
        return f"{self.key}({', '.join([self.policy.name, *self._changed()])})"

    @property
    def title(self) -> str:
        return f"{self.label} ({', '.join([self.policy.title, *self._changed()])})"

    @property
    def settings(self) -> Mapping[str, Field]:
        return {**self.policy.settings, **super().settings}

    def is_a_variant_of(self, other: Policy) -> bool:
        if not (isinstance(other, Wrapper) and type(self) is type(other)):
            return False
        return self.policy.is_a_variant_of(other.policy)

    def variant(self, **changes: float | int | str) -> Policy:
        own = {name: changes.pop(name) for name in super().settings if name in changes}
        return dataclasses.replace(self, policy=self.policy.variant(**changes), **own)


def inside(policy: Policy) -> Iterator[Policy]:
    """Yield a policy, the one that it wraps, and so on."""
    yield policy
    if isinstance(policy, Wrapper):
        yield from inside(policy.policy)


def evicting(steps: tuple[Step, ...], equation: str, source: str) -> tuple[Step, ...]:
    """Return a policy's steps with one more equation in its eviction."""
    return tuple(
        dataclasses.replace(
            step,
            equation=rf"\begin{{gathered}} {step.equation} \\ {equation} \end{{gathered}}",
            source=f"{step.source}; {source}",
        )
        if step.kind == "evict"
        else step
        for step in steps
    )


def before_eviction(steps: tuple[Step, ...], *more: Step) -> tuple[Step, ...]:
    """Return a policy's steps with more steps before its eviction."""
    at = next(at for at, step in enumerate(steps) if step.kind == "evict")
    return (*steps[:at], *more, *steps[at:])
