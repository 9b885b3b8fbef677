"""The oracle: it knows the rest of the dialog, which no real cache does."""

from dataclasses import dataclass

from fdkvc.core.attention import Columns, Observation
from fdkvc.core.cache import Cache
from fdkvc.policies.base import EVICTION, Policy, Step


@dataclass(frozen=True)
class Oracle(Policy):
    """Keep the entries that will get the most attention: greedy, with knowledge of the future.

    After Belady 1966, *A Study of Replacement Algorithms for a Virtual-Storage Computer*, whose
    rule evicts what will be needed again last. The score of an entry is the attention that the full
    cache pays to it from this turn to the end of the dialog; this turn counts, because its output
    is computed after eviction. Greedy is not optimal: a later entry may need the slot more than one
    that gets a little attention for many turns.
    """

    key = "oracle"
    label = "Oracle"
    idea = (
        "It sees the future: it keeps the entries that will receive the most attention, "
        "whatever their topic. Synthetic attention hardly depends on topics, so retention may "
        "be 0 %. It is greedy and therefore not optimal."
    )
    source = (
        "after Belady 1966, A Study of Replacement Algorithms for a Virtual-Storage Computer"
    )
    looks_at = ("future",)
    steps = (
        Step(
            "Attention to come",
            r"\begin{gathered} s_i = \sum_{t' \ge t} a_{t', i} \\ a_{t'} = \operatorname{softmax}"
            r"\!\left(\bar q_{t'}^\top K_{\le t'} / \sqrt d\right) \end{gathered}",
            "over all tokens so far, as if none had been evicted",
            writes=("attention to come",),
        ),
        EVICTION,
    )

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        return {"attention to come": turn.future_attention(cache.token)}
