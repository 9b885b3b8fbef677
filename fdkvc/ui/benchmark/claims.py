"""The paper's claims as a table: published, recomputed, measured, and whether each holds."""

from __future__ import annotations

import streamlit as st

from fdkvc.judged.claims import Judged, judged_claims, measured_words, recomputed_words
from fdkvc.measured.study import Study
from fdkvc.ui.kit.markdown import Markdown, plain

_SIGNS = {"holds": "✓", "direction only": "◐", "does not hold": "✗", "open": "?", None: "·"}
_MEANINGS = {
    "holds": "the measured interval agrees with it",
    "direction only": "true as a direction, but not the printed size",
    "does not hold": "the measured interval excludes it",
    "open": "the interval does not decide",
    None: "this run did not measure what it needs",
}
EVERY = "all"


def show_claims(page: str, study: Study) -> None:
    """Show the claims, all or those with one verdict."""
    judged = judged_claims(study)
    counts = {verdict: sum(each.verdict == verdict for each in judged) for verdict in _SIGNS}
    st.markdown(
        Markdown(
            "What the paper claims, what its own printed cells give when they are computed again, "
            "and what was measured here, with its 95 % interval.  \n{}"
        ).format(
            Markdown(" · ").join(
                Markdown("{} {} (**{}**): {}").format(
                    _SIGNS[verdict], _name(verdict), count, _MEANINGS[verdict]
                )
                for verdict, count in counts.items()
                if count
            )
        )
    )
    _list(page, judged, [verdict for verdict, count in counts.items() if count])


@st.fragment
def _list(page: str, judged: list[Judged], verdicts: list[str | None]) -> None:
    names = {EVERY: "all", **{str(verdict): _name(verdict) for verdict in verdicts}}
    wanted = st.segmented_control(
        "Show",
        list(names),
        format_func=lambda key: plain(names[key]),
        default=EVERY,
        required=True,
        key=f"{page}/claims/shown",
        label_visibility="collapsed",
    )
    st.table(
        [
            {
                "Claim": Markdown("{} :gray[({})]").format(each.claim.claim, each.claim.source),
                "Published": plain(each.claim.published.printed if each.claim.published else ""),
                "From its own cells": plain(recomputed_words(each.claim)),
                "Measured": plain(measured_words(each)),
                "Verdict, and why": Markdown("{} **{}**. {}").format(
                    _SIGNS[each.verdict], _name(each.verdict), each.claim.why
                ),
            }
            for each in judged
            if wanted in (EVERY, str(each.verdict))
        ],
        hide_index=True,
        alt="The paper's claims and whether they hold",
    )


def _name(verdict: str | None) -> str:
    return verdict or "not measured"
