"""Start: a forgotten word that comes back, what one may do here, and one eviction explained."""

from fdkvc.tour import start
from fdkvc.ui.frame import page

with page(
    start.PAGE,
    "A language model keeps what it reads in a cache. When the cache is full, a policy decides "
    "what it forgets. See what that costs, and choose a policy.",
    staged=True,
) as shown:
    start.show(shown)
