"""The scorecard of a run, and the paper's claims, each with why and its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from fdkvc.judged.cells import measured_tables, verdicts_of
from fdkvc.judged.claims import Judged, judged_claims
from fdkvc.judged.rules import FEWEST_DIALOGS, SIGNS
from fdkvc.measured.benchmark import is_the_papers
from fdkvc.measured.study import Study
from fdkvc.report.claims import MEANINGS, STYLE, claims_html, counted, name_of
from fdkvc.report.claims import SIGNS as CLAIM_SIGNS
from fdkvc.ui.kit.frame import side_by_side
from fdkvc.ui.kit.markdown import Markdown, plain
from fdkvc.ui.kit.memory import kept

EVERY = "all"


@kept
def claims_of(study: Study) -> tuple[Judged, ...]:
    """Return the claims judged by a study, once for all that show them."""
    return tuple(judged_claims(study))


def show_scorecard(study: Study) -> None:
    """Say in two lines how many published figures come out, and which claims hold."""
    if not is_the_papers(study.results.benchmark):
        return
    figures = verdicts_of(measured_tables(study))
    if not any(figures.values()):
        st.info(
            plain(
                f"With fewer than {FEWEST_DIALOGS} dialogs a scenario nothing is said about what "
                "is published."
            ),
            icon=":material/balance:",
        )
        return
    claims = counted(claims_of(study))
    with side_by_side("scorecard"):
        for title, total, parts in (
            ("Published figures", sum(figures.values()), _parts(figures, SIGNS)),
            ("Claims", sum(claims.values()), _parts(claims, CLAIM_SIGNS)),
        ):
            with st.container(border=True):
                st.markdown(
                    Markdown("**{}** :gray[({})]  \n{}").format(
                        title, total, Markdown(" · ").join(parts)
                    )
                )


def _parts(
    counts: Mapping[Any, int],
    signs: Mapping[Any, str],
) -> list[Markdown]:
    return [
        Markdown("{}\u00a0{} **{}**").format(signs[verdict], name_of(verdict), count)
        for verdict, count in counts.items()
        if count
    ]


def show_claims(page: str, study: Study) -> None:
    """Show the claims, all or those with one verdict."""
    judged = claims_of(study)
    counts = counted(judged)
    st.markdown(
        Markdown(
            "What the paper claims, whether it holds, and why; behind each, the numbers.\n{}"
        ).format(
            Markdown("\n").join(
                Markdown("- {} **{}**, {}: {}").format(
                    CLAIM_SIGNS[verdict], name_of(verdict), count, MEANINGS[verdict]
                )
                for verdict, count in counts.items()
                if count
            )
        )
    )
    _list(page, judged, [verdict for verdict, count in counts.items() if count])


@st.fragment
def _list(page: str, judged: tuple[Judged, ...], verdicts: list[str | None]) -> None:
    names = {EVERY: "all", **{str(verdict): name_of(verdict) for verdict in verdicts}}
    wanted = st.segmented_control(
        "Show",
        list(names),
        format_func=lambda key: plain(names[key]),
        default=EVERY,
        required=True,
        key=f"{page}/claims/shown",
        label_visibility="collapsed",
    )
    chosen = [each for each in judged if wanted in (EVERY, str(each.verdict))]
    st.html(f"<style>{STYLE}</style>{claims_html(chosen, opened=False)}")
