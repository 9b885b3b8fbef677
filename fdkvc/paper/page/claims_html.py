"""The paper's claims as HTML: verdict, reason, and the evidence on a number line."""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from fdkvc.paper.claims import TIMES
from fdkvc.paper.replication.claims import (
    DEPENDS,
    MATRICES,
    ClaimResult,
    figure_words,
    found_words,
    measured_words,
    recomputed_words,
)

MARKS: dict[str | None, tuple[str, str]] = {
    "holds": ("✓", "hold"),
    "direction only": ("◐", "hold without their figure"),
    "does not hold": ("✗", "do not hold"),
    DEPENDS: ("~", "depend on the matrix"),
    "open": ("?", "are undecided"),
    None: ("–", "are not judged"),
}
"""The sign of each verdict on claims, and the verdict in words."""

NAMES: dict[str | None, str] = {
    "direction only": "holds without its figure",
    None: "no verdict",
}
"""Verdicts that need other words."""

STYLE = Path(__file__).with_name("claims.css").read_text("utf-8")


def name_of(verdict: str | None) -> str:
    """Return a verdict on a claim in words."""
    return NAMES.get(verdict, str(verdict))


def counted(results: Sequence[ClaimResult]) -> dict[str | None, int]:
    """Count the verdicts."""
    verdicts = [result.verdict for result in results]
    return {verdict: verdicts.count(verdict) for verdict in MARKS}  # type: ignore[arg-type]


def claims_html(results: Sequence[ClaimResult]) -> str:
    """Return claims as an HTML list, each with its evidence, which a click opens."""
    rows = "".join(map(_claim, results))
    return f'<ul class="claims">{rows}</ul>'


def _claim(result: ClaimResult) -> str:
    claim = result.claim
    verdict = result.verdict
    printed = "" if claim.published is None else claim.published.words
    measured = measured_words(result)
    if measured and result.measured is not None and result.measured.n:
        measured += f", {result.measured.n:,} dialogs"
    facts = {
        "published": printed,
        "from its own tables": recomputed_words(claim),
        "measured": measured,
    }
    for matrix, row in result.by_matrix.items():
        words = measured_words(row) or "a change from a number near zero"
        facts[f"with the {matrix} matrix"] = f"{words}: {name_of(row.verdict)}"
    facts["source"] = claim.source
    rows = ""
    for name, words in facts.items():
        if words:
            rows += f"<dt>{name}</dt><dd>{escape(words)}</dd>"
    found = found_words(result)
    measured = found if result.measured is None else f"measured: {found}"
    is_alignment = claim.measure.metric == MATRICES["value"]
    if is_alignment and result.measured is not None and verdict in (DEPENDS, None):
        measured = f"with the value matrix {found}"
    if result.refuted_by_paper:
        measured += "; the paper's own numbers say so too"
    if claim.measure.metric in TIMES:
        measured += "; not judged, as times depend on the machine"
    return (
        f'<li id="claim-{escape(claim.key)}"><details>'
        f'<summary><b role="img" aria-label="{name_of(verdict)}">{MARKS[verdict][0]}</b>'
        f"<span>{escape(claim.claim)}</span>"
        f"<small>{escape(measured)}</small></summary>"
        f'<div class="evidence"><p>{escape(claim.why)}</p>{line_html(result)}<dl>{rows}</dl></div>'
        "</details></li>"
    )


# ------------------------------------------------------------------------------- the evidence


def line_html(result: ClaimResult) -> str:
    """Draw a claim's numbers on a line; "" if they are all the same.

    A dot with its interval is the measured number, a diamond the published one, and a band the
    range in which the claim would be true.
    """
    claim = result.claim
    measured = result.measured
    if measured is None or math.isnan(measured.value):
        return ""
    bounds = []
    # A range of one number would be a band without a width.
    if claim.holds_when is not None and claim.holds_when.low < claim.holds_when.high:
        bounds = [claim.holds_when.low, claim.holds_when.high]
    printed = [] if claim.published is None else [claim.published.value]
    numbers = measured.value, measured.low, measured.high, *bounds, *printed
    finite = [*filter(math.isfinite, numbers)]
    low = min(finite, default=0.0)
    high = max(finite, default=0.0)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        return ""
    room = 0.08 * (high - low)
    low -= room
    high += room

    # Positions in percent of the line; a range may be infinite, so it is cut at the ends.
    def place(value: float) -> float:
        return 100 * (min(max(value, low), high) - low) / (high - low)

    def mark(kind: str, low_end: float, high_end: float) -> str:
        begin = place(low_end)
        width = place(high_end) - place(low_end)
        return f'<i class="{kind}" style="left:{begin:.2f}%;width:{width:.2f}%"></i>'

    # Later marks are drawn over earlier ones: the band first, then the interval, then the figures.
    marks = []
    label = f"measured {measured_words(result)}"
    if bounds:
        marks.append(mark("true", *bounds))
    if not measured.candidates:
        marks.append(mark("interval", measured.low, measured.high))
    marks += [
        mark("measured", value, value) for value in measured.candidates or (measured.value,)
    ]
    key = ["● measured, with its interval"]
    if claim.published is not None:
        marks.append(mark("printed", claim.published.value, claim.published.value))
        key.append("◇ published")
        label += f", published {claim.published.words}"
    if bounds:
        key.append("band: where the claim is true")
    low_words, high_words = (escape(figure_words(claim.measure, end)) for end in (low, high))
    return (
        f'<div class="line" role="img" aria-label="{escape(label)}">{"".join(marks)}</div>'
        f'<div class="ends"><span>{low_words}</span><span>{escape(" · ".join(key))}</span>'
        f"<span>{high_words}</span></div>"
    )
