"""Blocks: entries are evicted by pages, as in paged attention."""

from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import Bools, Columns, Observation
from fdkvc.core.cache import Cache, Pages
from fdkvc.core.parameters import parameter
from fdkvc.policies.base import Steps, total, within
from fdkvc.policies.wrapper import Paging, evicting

_EQUATION = {
    "mean": r"s_i \leftarrow \operatorname{mean}_{j \in p(i)} s_j,\quad ",
    "largest": r"s_i \leftarrow \max_{j \in p(i)} s_j,\quad ",
}


@dataclass(frozen=True)
class Blocks(Paging):
    """Evict whole pages of neighbouring entries.

    After Kwon et al. 2023, *Efficient Memory Management for Large Language Model Serving with
    PagedAttention*, which allocates memory in pages, and Chitty-Venkata et al. 2025,
    *PagedEviction*, which evicts by pages. A page is `size` consecutive positions of the dialog;
    the budget holds ⌊B/size⌋ pages, and a partly filled page takes the slots of a full one. A
    budget below one page holds part of a page.
    """

    key = "blocks"
    label = "Blocks"
    idea = (
        "Memory is allocated in pages of neighbouring entries. A page has the mean or the "
        "largest score of its entries and is evicted as a whole; slots of a partly filled page "
        "are wasted."
    )
    source = (
        "after Kwon et al. 2023, PagedAttention, and Chitty-Venkata et al. 2025, PagedEviction"
    )
    also_looks_at = ("positions",)

    size: int = parameter(16, "Page size", "Places on a page.", symbol="b", low=1, high=256)
    score: str = parameter(
        "mean",
        "Page score",
        "Score of a page: the mean score of its entries, or the largest.",
        choices=tuple(_EQUATION),
    )

    @property
    def steps(self) -> Steps:
        pages = _EQUATION[self.score] + r"p(i) = \lfloor i / b \rfloor \\ "
        pages += r"\text{whole pages leave: at most } \lfloor B / b \rfloor \text{ stay}"
        return evicting(self.policy.steps, pages, "pages of b places")

    @property
    def page_size(self) -> int:
        return self.size

    def pages(self, cache: Cache, turn: Observation) -> Pages:
        return Pages(turn.position(cache.token) // self.size, self.size)

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        """Return the terms of each entry's page."""
        if self.score == "mean":
            return super().terms(cache, turn)
        # The maximum of a sum is not a sum of maxima: each entry of a page gets the terms of its
        # leader, the oldest entry with the page's largest score.
        terms = self.policy.terms(cache, turn)
        pages = self.pages(cache, turn)
        score = total(terms)
        largest = pages.over(cache, np.maximum, score, start=-np.inf) == score
        slot = np.where(largest, np.arange(score.shape[1]), score.shape[1])
        leader = pages.over(cache, np.minimum, slot, start=score.shape[1])
        leader = np.minimum(leader, score.shape[1] - 1)  # an empty slot has none
        return {name: np.take_along_axis(term, leader, axis=1) for name, term in terms.items()}

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        """Protect the pages of entries that the wrapped policy protects, as far as they fit."""
        if budget < self.size:  # part of a page stays, entry by entry
            return self.policy.protects(cache, turn, budget)
        pages = self.pages(cache, turn)
        first = pages.first(cache)

        # Memory is counted in pages here: `frames` pages have room for frames × size entries.
        def protected_pages(frames: int) -> Bools:
            protected = self.policy.protects(cache, turn, frames * self.size)
            return pages.of_whole(protected, cache) & first  # one entry counts for its page

        return pages.of_whole(within(budget // self.size, protected_pages), cache)
