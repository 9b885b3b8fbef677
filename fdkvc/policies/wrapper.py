"""Wrappers: policies that wrap another one and change how it evicts."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fdkvc.core.attention import Bools, Columns, Ints, Observation
from fdkvc.core.cache import Cache, Pages
from fdkvc.core.parameters import Field, changed, parameters_of
from fdkvc.policies.base import Looks, Policy, PolicyCard, Score, Step, Steps, Update, within


class _Forwarded:
    """An attribute of the wrapped policy."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, wrapper: Wrapper | None, owner: type) -> Any:
        return self if wrapper is None else getattr(wrapper.policy, self._name)


@dataclass(frozen=True)
class Wrapper(Policy):
    """A policy around another one, to which it forwards every method that it does not override.

    A wrapper is a file with a class derived from this one, and its name in `WRAPPERS`. It has
    hyperparameters of its own and calls ``self.policy`` for the wrapped policy. The wrapped policy
    sees the wrapper only through the `score` that `Policy.update` gets.
    """

    policy: Policy
    """The wrapped policy."""

    def __post_init__(self) -> None:
        """Check the hyperparameters, and that the wrapper can change the wrapped policy.

        Raises a ValueError if the wrapped policy has this wrapper already, stores everything, or
        has a hyperparameter of the same name; with the wrapper's own `refusal`, if any.
        """
        super().__post_init__()
        # Links, options and `variant` find a setting by its name alone, so each name occurs once:
        # here, and for those of the wrapped policy below.
        if any(type(policy) is type(self) for policy in inside(self.policy)):
            raise ValueError(
                f"{self.key} occurs more than once, but each wrapper is allowed once"
            )
        if not self.policy.bounded:
            raise ValueError(
                f"{self.policy.name} stores everything, so {self.key} changes nothing"
            )
        if self.policy.reads_again:
            raise ValueError(
                f"{self.policy.key} must be the outermost wrapper, so {self.key} cannot wrap it"
            )
        if refusal := self.refusal():
            raise ValueError(refusal)
        for name in parameters_of(self).keys() & self.policy.settings.keys():
            raise ValueError(
                f"{self.policy.name} has {name!r} already, so {self.key} cannot wrap it"
            )

    def refusal(self) -> str:
        """Say why it cannot wrap this policy; empty if it can."""
        return ""

    @property
    def also_looks_at(self) -> Looks:
        """What the wrapper decides by itself; see `Look`."""
        return ()

    @property
    def looks_at(self) -> Looks:
        return tuple(dict.fromkeys((*self.policy.looks_at, *self.also_looks_at)))

    def update(self, cache: Cache, turn: Observation, score: Score) -> Update:
        update = self.policy.update(cache, turn, score)
        if update.stale is None:
            return update
        stale = self.threshold_evicts(update.stale, cache, turn)
        return dataclasses.replace(update, stale=stale)

    def threshold_evicts(self, stale: Bools, cache: Cache, turn: Observation) -> Bools:
        """Return which entries below the wrapped policy's threshold it evicts (B, C)."""
        return stale

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        return self.policy.terms(cache, turn)

    def room(self, budget: int, turn: Observation) -> int | Ints:
        return np.minimum(self.budgets(budget, turn), self.policy.room(budget, turn))

    @property
    def name(self) -> str:
        """The wrapped policy and changed hyperparameters, as `read_policy` reads them."""
        return f"{self.key}({', '.join([self.policy.name, *changed(self)])})"

    @property
    def title(self) -> str:
        return f"{self.label} ({', '.join([self.policy.title, *changed(self, letters=True)])})"

    @property
    def settings(self) -> Mapping[str, Field]:
        return {**self.policy.settings, **super().settings}

    def variant(self, **changes: float | int | str) -> Policy:
        # Names are unique across the wrapped policies, so what is not ours belongs further inside.
        settings = {name: changes.pop(name) for name in super().settings if name in changes}
        return dataclasses.replace(self, policy=self.policy.variant(**changes), **settings)


# Whatever a policy has and a wrapper does not define is that of the wrapped policy. `__getattr__`
# would not do: it is asked only for names that no base class defines.
for _name in (vars(PolicyCard) | vars(Policy)).keys() - vars(Wrapper).keys():
    if not _name.startswith("_"):
        setattr(Wrapper, _name, _Forwarded(_name))


class Protecting(Wrapper):
    """A wrapper that lists entries which neither the budget nor a threshold evicts."""

    @abstractmethod
    def listed(self, cache: Cache, turn: Observation) -> Bools:
        """Mark the entries that stay (B, C)."""

    def most_listed(self, budget: int) -> int | Ints:
        """Return how many of the listed entries, the oldest, may stay (B, 1)."""
        return budget

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        listed = self.listed(cache, turn)
        pages = self.pages(cache, turn)
        listed &= np.cumsum(listed, axis=1) <= self.most_listed(budget)
        # Whole messages (size 0) stay if they fit; pages of fixed size are completed by `select`.
        if pages is not None and not pages.size:
            whole_pages = pages.of_whole(listed, cache)
            listed = np.where(
                whole_pages.sum(axis=1, keepdims=True) <= budget, whole_pages, listed
            )
        return within(budget, lambda rest: listed | self.policy.protects(cache, turn, rest))

    def threshold_evicts(self, stale: Bools, cache: Cache, turn: Observation) -> Bools:
        """Exempt listed entries, and those on their pages."""
        listed = self.listed(cache, turn)
        pages = self.pages(cache, turn)
        return stale & ~(listed if pages is None else pages.of_whole(listed, cache))


class Paging(Wrapper):
    """A wrapper under which entries leave only in groups, which `pages` returns."""

    def refusal(self) -> str:
        if any(policy.key == "ada-heads" for policy in inside(self.policy)):
            return f"{self.policy.name} allocates single places, but {self.key} whole pages"
        if self.policy.page_size != 1:
            return (
                f"{self.policy.name} evicts whole pages already, so {self.key} cannot wrap it"
            )
        return ""

    @abstractmethod
    def pages(self, cache: Cache, turn: Observation) -> Pages:
        """Return which entries share a page."""

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        """Return the mean of each term over the entry's page, whose scores are then equal."""
        return self.pages(cache, turn).mean(cache, self.policy.terms(cache, turn))

    def threshold_evicts(self, stale: Bools, cache: Cache, turn: Observation) -> Bools:
        """Evict only whole pages: those without any entry above the threshold."""
        return cache.present & ~self.pages(cache, turn).of_whole(~stale, cache)


def inside(policy: Policy) -> Iterator[Policy]:
    """Yield a policy, the policy that it wraps, and so on inwards."""
    yield policy
    if isinstance(policy, Wrapper):
        yield from inside(policy.policy)


def evicting(steps: Steps, equation: str, source: str) -> Steps:
    """Return a policy's steps with one more equation in its eviction."""
    changed_steps = [*steps]
    for index, step in enumerate(steps):
        if step.kind == "evict":
            both = rf"\begin{{gathered}} {step.equation} \\ {equation} \end{{gathered}}"
            sources = f"{step.source}; {source}"
            changed_steps[index] = dataclasses.replace(step, equation=both, source=sources)
    return tuple(changed_steps)


def before_eviction(steps: Steps, *inserted: Step) -> Steps:
    """Return a policy's steps with others inserted before its eviction."""
    kinds = [step.kind for step in steps]
    # An extension may name none.
    index = kinds.index("evict") if "evict" in kinds else len(steps)
    return (*steps[:index], *inserted, *steps[index:])
