"""Sinks: the first tokens of the dialog are never evicted; a policy decides on the rest."""

from dataclasses import dataclass, replace

from fdkvc.core.attention import Bools, Observation
from fdkvc.core.cache import Cache
from fdkvc.core.parameters import changed, parameter
from fdkvc.policies.base import SINKS_STAY, Steps, first_tokens
from fdkvc.policies.wrapper import Protecting, before_eviction

STEP = replace(SINKS_STAY, name="Sinks", equation=r"i < n \;\Rightarrow\; \text{keep}")


@dataclass(frozen=True)
class Sinks(Protecting):
    """Protect the attention sinks, the dialog's first tokens, under any policy.

    After Xiao et al. 2024, *Efficient Streaming Language Models with Attention Sinks*: pretrained
    models attend to the first tokens whatever they say. These count within the budget, and neither
    the budget nor a threshold of the wrapped policy evicts them.
    """

    key = "sinks"
    label = "Sinks"
    idea = (
        "The dialog's first tokens, to which pretrained models attend whatever the tokens say, are "
        "never evicted; the wrapped policy decides on the rest of the budget."
    )
    source = "after Xiao et al. 2024, Efficient Streaming Language Models with Attention Sinks"
    also_looks_at = ("positions",)

    n: int = parameter(
        4, "First tokens", "First tokens of the dialog that are never evicted.", low=0, high=64
    )

    @property
    def title(self) -> str:
        return " ".join([f"{self.policy.title} + sinks", *changed(self, letters=True)])

    @property
    def steps(self) -> Steps:
        return before_eviction(self.policy.steps, STEP)

    def listed(self, cache: Cache, turn: Observation) -> Bools:
        return first_tokens(cache, turn, self.n)
