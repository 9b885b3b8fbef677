"""Pyramid: lower layers get larger budgets than upper ones, with the same total."""

import math
from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import Ints, Observation
from fdkvc.core.parameters import parameter
from fdkvc.policies.base import Available, Steps
from fdkvc.policies.wrapper import Wrapper, evicting


@dataclass(frozen=True)
class Pyramid(Wrapper):
    """Give each layer a budget of its own, in an arithmetic sequence from the first to the last.

    Cai et al. 2024, *PyramidKV: Dynamic KV Cache Compression based on Pyramidal Information
    Funneling*. With one layer the budget does not change: synthetic and recorded dialogs have
    one layer, a language model has several.
    """

    key = "pyramid"
    label = "Pyramid"
    idea = (
        "Lower layers of a model, whose attention is spread, get larger budgets than upper "
        "ones; the budgets form an arithmetic sequence whose mean is the budget."
    )
    source = "Cai et al. 2024, PyramidKV"

    last: float = parameter(
        0.5,
        "Last layer",
        "The last layer's budget as a multiple λ of the mean; the first layer's is 2 − λ.",
        symbol=r"\lambda",
        low=0,
        high=2,
    )

    @property
    def steps(self) -> Steps:
        budget = r"B_l = B \left(2 - \lambda - \tfrac{2\,(1 - \lambda)\, l}{L - 1}\right)"
        return evicting(self.policy.steps, budget, "of layer l of L, rounded to L·B in all")

    def without_effect(self, available: Available) -> tuple[str, ...]:
        sentences = super().without_effect(available)
        if available.layers == 1:
            sentences += ("There is one layer here, so pyramid changes nothing.",)
        return sentences

    def slots(self, budget: int, layers: int, heads: int) -> int:
        """Return what the largest layer may hold; + 1, since `budgets` rounds running sums."""
        largest = (
            budget if layers == 1 else math.ceil(max(self.last, 2 - self.last) * budget) + 1
        )
        return self.policy.slots(largest, layers, heads)

    def budgets(self, budget: int, turn: Observation) -> int | Ints:
        layers = turn.tokens.layers
        if layers == 1:
            return self.policy.budgets(budget, turn)
        share = np.linspace(2 - self.last, self.last, layers)
        # The running sums are rounded, so that the total is that of equal budgets.
        layer_ends = np.rint(np.cumsum(share) * budget).astype(np.intp)
        of_layer = np.diff(layer_ends, prepend=0)
        # Rows run through the heads of a layer, then through the layers, then through the dialogs.
        row = turn.tokens.first_layer + np.arange(len(turn.new)) // turn.tokens.heads
        return of_layer[row % layers][:, None]
