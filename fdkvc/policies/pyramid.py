"""Pyramid: lower layers have more places than upper ones, in all as many as with equal budgets."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fdkvc.attention import Ints, Observation
from fdkvc.parameters import parameter
from fdkvc.policies.base import Available, Step
from fdkvc.policies.wrapper import Wrapper, evicting


@dataclass(frozen=True)
class Pyramid(Wrapper):
    """Give each layer a budget of its own, in an arithmetic sequence from the first to the last.

    Cai et al. 2024, *PyramidKV: Dynamic KV Cache Compression based on Pyramidal Information
    Funneling*. Where there is one layer its budget is the equal one; drawn and recorded dialogs
    have one, a language model has several.
    """

    key = "pyramid"
    label = "Pyramid"
    idea = (
        "A model's lower layers, which look at much, have larger budgets, and its upper ones "
        "smaller, in an arithmetic sequence whose mean is the budget."
    )
    source = "Cai et al. 2024, PyramidKV"

    last: float = parameter(
        0.5,
        "Last layer",
        "The last layer's budget as a share of the equal one; the first has 2 less that.",
        symbol=r"\lambda",
        low=0,
        high=2,
    )

    @property
    def steps(self) -> tuple[Step, ...]:
        """Say at the eviction how large the budgets are."""
        budget = r"B_l = B \left(2 - \lambda - \tfrac{2\,(1 - \lambda)\, l}{L - 1}\right)"
        return evicting(self.policy.steps, budget, "of layer l of L, rounded to L·B in all")

    def without_effect(self, available: Available) -> tuple[str, ...]:
        """Have equal budgets where there is one layer."""
        alone = "There is one layer here, so that pyramid gives it the equal budget."
        return (*super().without_effect(available), *([alone] if available.layers == 1 else []))

    def slots(self, budget: int, layers: int, heads: int) -> int:
        """Return what the largest layer may hold."""
        largest = budget if layers == 1 else math.ceil(max(self.last, 2 - self.last) * budget) + 1
        return self.policy.slots(largest, layers, heads)

    def budgets(self, budget: int, turn: Observation) -> int | Ints:
        """Return the budget of each row's layer."""
        layers = turn.layers
        if layers == 1:
            return self.policy.budgets(budget, turn)
        share = np.linspace(2 - self.last, self.last, layers)
        # Rounded as they add up, so that their sum is that of equal budgets.
        ends = np.rint(np.cumsum(share) * budget).astype(np.intp)
        of_layer = np.diff(ends, prepend=0)
        row = np.arange(len(turn.new)) // turn.heads % layers
        return np.asarray(of_layer[row][:, None])
