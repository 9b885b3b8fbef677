"""Start: a dialog with words, an entry whose eviction hurts, and three ways on."""

from fdkvc.tour import start
from fdkvc.ui.frame import page

with page(
    start.PAGE,
    "FD-KVC is a policy: it decides which words of a dialog a language model forgets when its "
    "cache is full. This lab shows what any such policy forgets and why, what an answer then "
    "lacks, and how much cache it takes to lose nothing that is needed.",
    staged=True,
) as shown:
    start.show(shown)
