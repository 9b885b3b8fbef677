"""The scorecard of a run, and the paper's claims, each with why and its evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from fdkvc.experiments.benchmark import matches_paper
from fdkvc.experiments.study import Study
from fdkvc.replication.cells import (
    MeasuredTable,
    measured_tables,
    reproduced_sentence,
    verdicts_of,
)
from fdkvc.replication.claims import ClaimResult, judged_claims
from fdkvc.replication.rules import FEWEST_DIALOGS, SIGNS, power
from fdkvc.report.claims import MEANINGS, STYLE, claims_html, counted, name_of
from fdkvc.report.claims import SIGNS as CLAIM_SIGNS
from fdkvc.ui.kit.frame import side_by_side
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.markdown import Markdown, plain

EVERY = "all"


@cached
def claims_of(study: Study) -> tuple[ClaimResult, ...]:
    """Return the claims judged by a study, once for all that show them."""
    return tuple(judged_claims(study))


def show_scorecard(page: str, study: Study) -> None:
    """Say how many published figures come out, and which claims hold; each leads to its own."""
    if not matches_paper(study.results.benchmark):
        return
    tables = measured_tables(study)
    figures = verdicts_of(tables)
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
        _card(page, "Published figures", "Tables", figures, SIGNS, _reproduced(tables))
        _card(page, "Claims", "Claims", claims, CLAIM_SIGNS)


def _reproduced(tables: list[MeasuredTable]) -> str:
    """Say what kinds of figures are reproduced, and how to read those that are open."""
    return (
        f"{reproduced_sentence(tables)} Open is no evidence against a figure: of varying figures "
        "whose two samples are of one population and equally large, "
        f"{100 * power(600, 600):.0f} % are reproduced."
    )


def _card(
    page: str,
    title: str,
    section: str,
    counts: Mapping[Any, int],
    signs: Mapping[Any, str],
    note: str = "",
) -> None:
    """Count the verdicts; a click on one opens the section with those that have it."""

    def lead(verdict: str) -> None:
        st.session_state[f"{page}/sections"] = section
        st.session_state[_shown(page, section)] = verdict

    with st.container(border=True, gap="xxsmall"):
        st.markdown(Markdown("**{}** :gray[({})]").format(title, sum(counts.values())))
        with st.container(horizontal=True, gap="small", key=f"verdicts-{section}"):
            for verdict, count in counts.items():
                if count:
                    st.button(
                        Markdown("{}\u00a0{} **{}**").format(
                            signs[verdict], name_of(verdict), count
                        ),
                        key=f"{page}/scorecard/{section}/{verdict}",
                        type="tertiary",
                        on_click=lead,
                        args=(str(verdict),),
                    )
        if note:
            st.caption(plain(note))


def _shown(page: str, section: str) -> str:
    """Return where the session holds the verdict that a section shows."""
    return f"{page}/{section}/shown"


def choose_verdict(page: str, section: str, verdicts: Iterable[str | None]) -> str:
    """Let a person choose what a section shows: `EVERY`, or those with one verdict."""
    names = {EVERY: "all", **{str(verdict): name_of(verdict) for verdict in verdicts}}
    key = _shown(page, section)
    if st.session_state.get(key) not in names:
        st.session_state[key] = EVERY
    chosen = st.segmented_control(
        "Show",
        list(names),
        format_func=lambda name: plain(names[name]),
        required=True,
        key=key,
        label_visibility="collapsed",
    )
    return chosen or EVERY


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
def _list(page: str, judged: tuple[ClaimResult, ...], verdicts: list[str | None]) -> None:
    wanted = choose_verdict(page, "Claims", verdicts)
    chosen = [each for each in judged if wanted in (EVERY, str(each.verdict))]
    st.html(f"<style>{STYLE}</style>{claims_html(chosen, opened=False)}")
