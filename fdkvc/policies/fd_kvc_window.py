"""FD-KVC with a window, and what lets old and new entries compete for the rest."""

from __future__ import annotations

from dataclasses import dataclass

from fdkvc.parameters import with_default
from fdkvc.policies.fd_kvc import FDKVC


@dataclass(frozen=True)
class FDKVCWindow(FDKVC):
    """FD-KVC with a window, an averaged recency, and relevance by attention.

    The options are those of `FDKVC`; of the paper's parameters only w_c has another default. They
    show what a window does for FD-KVC on real dialogs: most of what it loses there comes back, and
    no more than the same window brings H2O. ``fdkvc/policies/README.md`` has the numbers.
    """

    key = "fd-kvc-window"
    label = "FD-KVC with window"
    idea = (
        "FD-KVC with three quarters of the budget for the newest entries; recency is an average "
        "of attention, so that old and new entries compete for the rest on the same scale."
    )
    source = "this project; tuned on the Schema-Guided Dialogue dataset"

    w_c: float = with_default(FDKVC, "w_c", 0.1)
    window: float = with_default(FDKVC, "window", 0.75)
    reinforcement: str = with_default(FDKVC, "reinforcement", "averaged")
    relevance: str = with_default(FDKVC, "relevance", "attention")
