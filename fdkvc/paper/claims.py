"""The paper's claims: the quantity that decides each, and its value from the printed cells."""

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fdkvc.paper.published import Published, Range, read_printed

Comparison = Literal["change", "ratio", "difference", "share", "t", "p"]
Kind = Comparison | Literal["value", "rank", "peak", "settles", "growth", "swing"]


@dataclass(frozen=True, slots=True)
class Measure:
    """The quantity that decides a claim, measured with the paper's settings."""

    kind: Kind
    """- ``value``: the policy's mean over dialogs, or the value of a metric of a run;
    - ``change``, ``ratio``, ``difference``: the policy's mean as a relative change from the
      baseline's, as a multiple of it, or minus it;
    - ``rank``: the policy's rank by its mean among the paper's four, 1 for the highest;
    - ``share``: of dialogs in which the policy is above the baseline, 0 to 1;
    - ``t``, ``p``: of the paired t-test of the policy against the baseline;
    - ``peak``: the value in the published sweep of `parameter` with the highest mean;
    - ``settles``: turns until the turn's mean stays within a tenth of the last turn's;
    - ``growth``: the relative change of the turn's mean from turn 1 (the cache is empty before
      turn 0) to the last;
    - ``swing``: (highest − lowest) / highest of the turns' means from turn 1 on.
    """
    metric: str
    """- of a dialog: ``late_alignment``, ``late_retention``, ``late_diversity`` (fractions),
      ``adaptation`` (turns), ``latency`` (milliseconds a turn);
    - of a turn: ``retention``, ``ownership_loss``, ``learning_rate``, ``highest_score`` (the
      highest hybrid score in the cache after eviction) and ``same_entries`` (share of turns after
      which FD-KVC and H2O hold the same entries, 0 to 1);
    - of a run: ``threshold_evictions`` (entries evicted by τ), ``seconds`` (wall clock of 600
      dialogs of a scenario under all policies, the mean over the scenarios), ``score_bytes`` (of
      an entry), ``parameters`` (number of free ones).
    """
    scenario: str | None = None
    """Its key; None for all five scenarios, or if the quantity does not depend on them."""
    policy: str = "fd-kvc"
    """The policy's name."""
    baseline: str | None = None
    """The baseline's key, if two policies are compared."""
    turn: int | None = None
    """The turn of a metric of a turn; −1 is the last."""
    parameter: str | None = None
    """Of kind ``peak``."""


ClaimVerdict = Literal[
    "holds", "direction only", "does not hold", "open", "depends on the matrix"
]

TIMES = ("latency", "seconds")
"""Metrics that depend on the machine, so there is no verdict on them."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper about its method, and the quantity that decides it."""

    key: str
    """Its name in code and in a page's address."""
    claim: str
    """What the paper claims, in our words."""
    source: str
    """Its place in the paper."""
    measure: Measure
    """The quantity that decides it."""
    why: str
    """Why the measured quantity is as it is."""
    found: str = "{}"
    """What was measured in plain words, around the figure."""
    published: Published | None = None
    """The printed figure; None if the claim is verbal."""
    holds_when: Range | None = None
    """The range of the measured quantity in which the claim is true; None if the claim is the
    printed figure."""
    recomputed: tuple[float, float, float] | None = None
    """The same quantity from the paper's own cells, if they give it: the lowest that their rounding
    allows, that of the printed figures, and the highest."""
    bound: bool = False
    """Whether the printed figure is a bound, such as "under 60 seconds"."""

    def verdict(self, low: float, high: float, size: str | None = None) -> ClaimVerdict:
        """Return the verdict on the claim, by what was measured.

        `low` and `high` are the measured quantity's 95 % interval, or the quantity twice; NaN if
        undefined. `size` is the verdict on the printed figure by the rules of all figures, such as
        ``reproduced``; by default, whether the interval overlaps the figure.

        The verdict is ``holds``; ``direction only`` (true, but the printed figure is not
        confirmed); ``does not hold``; or ``open`` (the measurement does not decide it or is
        undefined).

        Examples
        --------
        >>> shift = claim("alignment-shift")
        >>> shift.verdict(1.26, 1.28), shift.verdict(0.40, 0.45), shift.verdict(-0.3, -0.1)
        ('holds', 'direction only', 'does not hold')
        >>> shift.verdict(-0.1, 0.3), shift.verdict(1.26, 1.28, size="open")
        ('open', 'direction only')
        """
        if math.isnan(low) or math.isnan(high):
            return "open"
        measured = Range(low, high)
        # 1. The direction: the claim is true in all of the interval, in none or in a part of it.
        if self.holds_when is not None:
            if not self.holds_when.overlaps(measured):
                return "does not hold"
            if not self.holds_when.contains(measured):
                return "open"
        # 2. The size, where a figure is printed that is no bound.
        if self.published is None or self.bound:
            return "holds"
        if size is None:
            size = "reproduced" if self.published.range.overlaps(measured) else "differs"
        if size == "reproduced":
            return "holds"
        if self.holds_when is not None:
            return "direction only"
        return "open" if size == "open" else "does not hold"


_BY_PROJECTION = (
    "The printed alignments are close to those of unrelated vectors, and the paper's own tests "
    "find no clear difference. Measured with the value matrix, which makes the output of attention."
)


def _read_claims() -> tuple[Claim, ...]:
    text = Path(__file__).with_name("claims.toml").read_text("utf-8")
    claims = []
    for row in tomllib.loads(text)["claim"]:
        row["measure"] = Measure(**row["measure"])
        if row["why"] == "projection":
            row["why"] = _BY_PROJECTION
        if "published" in row:
            row["published"] = read_printed(**{"source": row["source"], **row["published"]})
        if "holds_when" in row:
            row["holds_when"] = Range(*row["holds_when"])
        if "recomputed" in row:
            row["recomputed"] = tuple(row["recomputed"])
        claims.append(Claim(**row))
    return tuple(claims)


CLAIMS = _read_claims()
"""The paper's claims, headlines first, from ``claims.toml``."""


def claim(key: str) -> Claim:
    """Return a claim by its key, or raise a KeyError."""
    return {claim.key: claim for claim in CLAIMS}[key]
