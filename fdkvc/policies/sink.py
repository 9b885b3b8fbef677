"""Sink+Window: the first tokens of the dialog and the newest ones stay."""

from dataclasses import dataclass

from fdkvc.core.attention import Bools, Observation
from fdkvc.core.cache import Cache
from fdkvc.core.parameters import parameter
from fdkvc.policies.base import EVICTION, SINKS_STAY, first_tokens
from fdkvc.policies.fifo import POSITION, Fifo


@dataclass(frozen=True)
class SinkWindow(Fifo):
    """Keep the attention sinks, the dialog's first tokens, and a window of the newest.

    Xiao et al. 2024, *Efficient Streaming Language Models with Attention Sinks*; with the four
    sinks of the FD-KVC paper's Section 4.2.
    """

    key = "sink"
    label = "Sink+Window"
    idea = "The dialog's first tokens, the attention sinks, always stay; the rest is FIFO."
    source = "Xiao et al. 2024, Efficient Streaming Language Models with Attention Sinks"
    steps = (POSITION, SINKS_STAY, EVICTION)

    sinks: int = parameter(
        4, "Sinks", "First tokens of the dialog that are never evicted.", low=0, high=64
    )

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        # A budget smaller than the sinks holds the first of them.
        return first_tokens(cache, turn, min(self.sinks, budget))
