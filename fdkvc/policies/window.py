"""Window: a share of the budget is reserved for the newest entries."""

from dataclasses import dataclass, replace

from fdkvc.core.attention import Bools, Observation
from fdkvc.core.cache import Cache
from fdkvc.policies.base import RECENT_WINDOW, Steps, window, window_parameter, within
from fdkvc.policies.wrapper import Wrapper, before_eviction


@dataclass(frozen=True)
class Window(Wrapper):
    """Reserve a share of the budget for the newest entries; a policy decides on the rest.

    Like the window of Zhang et al. 2023, *H2O*; entries that the wrapped policy protects also stay.
    """

    key = "window"
    label = "Window"
    idea = (
        "The newest entries always stay; the wrapped policy decides on the rest of the budget."
    )
    source = "after Zhang et al. 2023, H2O"
    also_looks_at = ("positions",)

    share: float = window_parameter(0.5)

    @property
    def steps(self) -> Steps:
        return before_eviction(self.policy.steps, replace(RECENT_WINDOW, name="Window"))

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        # The window stays; the wrapped policy protects as much as fits beside it.
        newest = window(cache, budget, self.share)
        return within(
            budget, lambda places: newest | self.policy.protects(cache, turn, places)
        )
