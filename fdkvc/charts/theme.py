"""Colours, marks and dashes, without charts: code that only names a colour does not load Altair.

The colours of charts, topics, policies and verdicts are here; other colours of a page are in
`ui/page.css` and `player/scene.css`. Topics have hues: those of Okabe and Ito (2008, *Color
Universal Design*), distinct for people with colour-vision deficiencies, and an eighth after Tol
(2021, *Colour Schemes*). A policy has one colour and one mark on every chart and page, FD-KVC a
hue that no topic has; a variant and a wrapped policy have the colour of the policy inside, with a
mark and a dash of their own. A letter, a dash, a shape or a pattern repeats what a colour says.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple
from zlib import crc32

Spec = dict[str, Any]

TOPICS = (
    "#0072B2",  # blue
    "#E69F00",  # orange
    "#009E73",  # bluish green
    "#CC79A7",  # reddish purple
    "#56B4E9",  # sky blue
    "#D55E00",  # vermillion
    "#F0E442",  # yellow
    "#AA4499",  # purple, where Okabe and Ito have black
)
"""The hues of topics; further topics begin again with the first, with a pattern."""

DARK_TOPICS = ("#0072B2", "#AA4499")  # white letters are readable on these

TOPICLESS = "#999999"

MET, UNMET = "#009E73", "#D55E00"
"""For what holds and what does not, always beside a sign or a word that says so."""

TINTS = {
    "neutral": f"{TOPICLESS}26",
    "good": f"{MET}26",
    "bad": f"{UNMET}33",
    "open": f"{TOPICS[1]}26",
}
"""Backgrounds of verdicts, by their tone; text shows on them on light and dark pages."""

FD_KVC = "FD-KVC"
"""The policy whose name is written in its hue; the titles of its variants begin with it."""

POLICIES = {
    "FIFO": ("#3f4652", "#d9dce4"),
    "Sink+Window": ("#8a6a1f", "#d3b46a"),
    "H2O": ("#a3293f", "#f08a9a"),
    FD_KVC: ("#5b35d5", "#a48cff"),
    "Surprisal": ("#4d7c0f", "#a3cf5b"),
    "Learned": ("#0e7490", "#5cc8e0"),
    "TOVA": ("#8f3d1c", "#e0a184"),
    "SnapKV": ("#5d7052", "#a7bd97"),
    "Random": ("#6b6e76", "#8d919b"),
    "Full cache": ("#55565c", "#b9bbc2"),
    "FD-KVC adaptive": ("#7f58e2", "#8a74ea"),
    "H2O mean": ("#b84f62", "#c56a7a"),
    "Scissorhands": ("#9a5b8f", "#cf9cc6"),
    "FastGen": ("#2f5d50", "#7fb8a4"),
    "Expected attention": ("#5f739c", "#93a8d6"),
    "KeyDiff": ("#6d6a2a", "#c2bd6b"),
    "Key norm": ("#7f6a5a", "#b8a696"),
    "Weighted recency": ("#0b61c4", "#6cb6ff"),
    "Oracle": ("#8c4a00", "#d8a15c"),
    "Context shift": ("#1f6f78", "#86cfc4"),
    "Clear tool results": ("#7a2e6f", "#d99ad0"),
    "By region": ("#2e6b34", "#8fcf96"),
    "": ("#6f7480", "#9aa0ad"),
}
"""The colour of each policy on light and dark pages; the last is that of any other name."""

SHAPES = (
    "M1,0A1,1,0,1,1,-1,0A1,1,0,1,1,1,0Z",  # a circle
    "M-1,-1H1V1H-1Z",  # a square
    "M0,-.87L-1,.87H1Z",  # a triangle that points up
    "M-1,0L0,-1L1,0L0,1Z",  # a diamond
    "M-1,-.4H-.4V-1H.4V-.4H1V.4H.4V1H-.4V.4H-1Z",  # a cross
    "M0,.87L-1,-.87H1Z",  # triangles that point down, to the right and to the left
    "M.87,0L-.87,-1V1Z",
    "M-.87,0L.87,-1V1Z",
    "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z",  # a slanted cross
    "M-1,-1L1,-1L-1,1L1,1Z",  # an hourglass
)
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 1], [1, 3])

# The longest name first: "FD-KVC adaptive" is not "FD-KVC".
_NAMED = re.compile(
    "|".join(sorted(filter(None, POLICIES), key=len, reverse=True)).replace("+", r"\+")
)


class Look(NamedTuple):
    """How a policy looks on every chart."""

    place: int
    """Index of its colour in `Theme.policies`."""
    shape: str
    dash: Sequence[int]


def looks(names: Collection[str]) -> list[Look]:
    """Return how each of these policies looks, which does not depend on the others.

    `names` are their titles, or other names with the titles that these stand for.

    Only if several would look the same, as variants of one policy or new names may, do the later
    ones get another shape, which a legend shows, or another dash.

    Examples
    --------
    >>> looks(["FIFO", "H2O + sinks"])[1] == looks(["H2O + sinks"])[0]
    True
    >>> policy, wrapped = looks(["H2O", "H2O + sinks"])
    >>> policy.place == wrapped.place, policy.shape == wrapped.shape
    (True, False)
    """
    chosen = []
    for name in names.values() if isinstance(names, Mapping) else names:
        match = _NAMED.search(name)
        policy = match.group() if match else ""
        place = list(POLICIES).index(policy)
        # A checksum gives a name without a policy the same look in every process.
        number = place if policy else crc32(name.encode())
        dash = number // len(SHAPES) % 3  # another dash for each round of the shapes
        if policy and policy != name:  # a variant or a wrapped policy
            dash += 2
            number += len(SHAPES) // 2
        # The preferred look first, then all others in a fixed order, wrapping around.
        order = product((DASHES * 2)[dash:], (SHAPES * 2)[number % len(SHAPES) :])
        candidates = [Look(place, shape, line) for line, shape in order]
        free = (look for look in candidates if look not in chosen)
        chosen.append(next(free, candidates[0]))
    return chosen


@dataclass(frozen=True)
class Theme:
    """Colours that depend on the page's background."""

    ink: str
    """Colour of text, cursors and outlines."""
    faint: str
    """Colour of grid lines and evicted entries."""
    paper: str
    """The background."""
    terms: tuple[str, ...]
    """Colours of score terms and quantities; none is a topic's."""
    policies: tuple[str, ...]
    """Colours of `POLICIES`, in their order."""


LIGHT = Theme(
    "#262730",
    "#d5d7dd",
    "#ffffff",
    ("#5b5f6b", "#b06cc9", "#8a6d3b", "#3b8a83"),
    tuple(light for light, _ in POLICIES.values()),
)
DARK = Theme(
    "#fafafa",
    "#41444e",
    "#171614",
    ("#a9adb9", "#c98be0", "#c9a86b", "#6bc9c0"),
    tuple(dark for _, dark in POLICIES.values()),
)


def _numbered(
    kind: str, light: Sequence[str], dark: Sequence[str]
) -> dict[str, tuple[str, str]]:
    pairs = zip(light, dark, strict=True)
    return {f"{kind}-{place}": colours for place, colours in enumerate(pairs)}


VARIABLES = {
    "ink": (LIGHT.ink, DARK.ink),
    "faint": (LIGHT.faint, DARK.faint),
    "paper": (LIGHT.paper, DARK.paper),
    **_numbered("terms", LIGHT.terms, DARK.terms),
    **_numbered("policies", LIGHT.policies, DARK.policies),
}
"""CSS variables of pages and saved scenes by name: a colour on light pages and one on dark ones."""

_rules = [
    f"--{name}: light-dark({light}, {dark}); " for name, (light, dark) in VARIABLES.items()
]
ROOT = f":root {{{''.join(_rules)}--met: {MET}; --unmet: {UNMET}; --attended: {TOPICS[0]};}}\n"
"""CSS that defines the variables."""


def hue_of(name: str) -> str:
    """Return the HTML attribute that gives a cell the hue of FD-KVC, if the cell names it."""
    return " data-policy" if name.upper().startswith(FD_KVC) else ""


def letter_ink(colour: str) -> str:
    """Return black or white, whichever is readable on a colour of a topic."""
    return "#ffffff" if colour in DARK_TOPICS else "#000000"


def policy_tints(policies: Collection[str], theme: Theme) -> list[str]:
    """Return the colour of each of these policies."""
    return [theme.policies[place] for place, *_ in looks(policies)]
