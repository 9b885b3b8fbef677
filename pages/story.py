"""Story: what a KV cache is and what eviction does, in seven scenes."""

from fdkvc.tour import story
from fdkvc.ui.frame import page

with page(
    "story",
    "What a language model remembers, what it forgets and what that costs.",
    story.FIELDS,
    staged=True,
) as shown:
    story.show(shown)
