"""The full cache: nothing is evicted, and memory grows."""

from dataclasses import dataclass, replace

from fdkvc.policies.base import EVICTION
from fdkvc.policies.fifo import POSITION, Fifo


@dataclass(frozen=True)
class Full(Fifo):
    """Keep every token, whatever the budget: the upper reference.

    The standard cache of a transformer (Vaswani et al. 2017, *Attention Is All You Need*): keys
    and values of every token so far.
    """

    key = "full"
    label = "Full cache"
    idea = "The upper reference: nothing is ever evicted, so the cache grows with the dialog."
    source = "Vaswani et al. 2017, Attention Is All You Need"
    bounded = False
    steps = (
        POSITION,
        replace(
            EVICTION,
            name="Insertion",
            equation=r"\text{insert the new, keep all}",
            source="no budget",
        ),
    )
