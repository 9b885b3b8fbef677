"""The scorecard of a run, and the paper's claims with their reasons and evidence."""

from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from fdkvc.experiments.benchmark import matches_paper
from fdkvc.experiments.study import Study
from fdkvc.kinds.benchmark import StudyRun
from fdkvc.replication.cells import measured_tables, reproduced_by_spread, verdicts_of
from fdkvc.replication.claims import ClaimResult, judged_claims
from fdkvc.replication.rules import FEWEST_DIALOGS, POWER, REPRODUCED, SIGNS
from fdkvc.report.claims import MEANINGS, STYLE, claims_html, counted, name_of
from fdkvc.report.claims import SIGNS as CLAIM_SIGNS
from fdkvc.ui.kit.fields import segments
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.markdown import Markdown, plain
from fdkvc.words import count

EVERY = "all"


@cached
def claims_of(study: Study) -> list[ClaimResult]:
    """Return the verdicts on the claims of a study, made once."""
    return judged_claims(study)


def show_scorecard(page: str, study: Study) -> None:
    """Count the verdicts on figures and on claims; a click shows those with that verdict."""
    if not matches_paper(study.results.benchmark):
        return
    tables = measured_tables(study)
    figures = verdicts_of(tables)
    if not any(figures.values()):
        st.info(
            plain(
                f"Verdicts need at least {FEWEST_DIALOGS} dialogs per scenario; this run has fewer."
            ),
            icon=":material/balance:",
        )
        return
    spreads = reproduced_by_spread(tables)
    details = (
        f" ({spreads['varying']} varying, {count(spreads['constant'], 'constant')}, "
        f"{count(spreads['percentile'], 'percentile')})"
    )
    note = (
        "A constant is the same in every dialog. Open is not evidence against a figure: if the "
        "paper's 600 dialogs and 600 of ours come from one population, only "
        f"{POWER} % of the varying figures are expected to be reproduced."
    )
    claims = counted(claims_of(study))
    with st.container(key="scorecard", gap="xxsmall"):
        _verdicts(page, "Published figures", "Tables", figures, SIGNS, details, note)
        _verdicts(page, "Claims", "Claims", claims, CLAIM_SIGNS, "", "")


def _verdicts(
    page: str,
    title: str,
    section: str,
    counts: Mapping[Any, int],
    signs: Mapping[Any, str],
    details: str,
    note: str,
) -> None:
    def open_section(verdict: str) -> None:
        st.session_state[f"{page}/sections"] = section
        st.session_state[_shown(page, section)] = verdict

    with st.container(horizontal=True, gap="small", key=f"verdicts-{section}"):
        words = Markdown("**{}** :gray[({})]").format(title, sum(counts.values()))
        st.markdown(plain(words), width="content", help=plain(note) or None)
        for verdict, number in counts.items():
            if number:
                st.button(
                    Markdown("{}\u00a0{} **{}**{}").format(
                        signs[verdict],
                        name_of(verdict),
                        number,
                        details if verdict == REPRODUCED else "",
                    ),
                    key=f"{page}/scorecard/{section}/{verdict}",
                    type="tertiary",
                    on_click=open_section,
                    args=(str(verdict),),
                )


def _shown(page: str, section: str) -> str:
    return f"{page}/{section}/shown"


def choose_verdict(page: str, section: str, verdicts: Iterable[str | None]) -> str:
    """Show the filter of a section: `EVERY`, or one verdict."""
    names = {EVERY: "all", **{str(verdict): name_of(verdict) for verdict in verdicts}}
    return segments(_shown(page, section), "Show", names)


@st.fragment
def show_claims(page: str, run: StudyRun) -> None:
    """Show the claims, all or those with one verdict."""
    study = run.study
    results = claims_of(study)
    verdicts = [verdict for verdict, number in counted(results).items() if number]
    wanted = choose_verdict(page, "Claims", verdicts)
    legend = " · ".join(f"{CLAIM_SIGNS[verdict]} {MEANINGS[verdict]}" for verdict in verdicts)
    st.caption(plain(f"{legend} · click a claim for its numbers"))
    chosen = [result for result in results if wanted in (EVERY, str(result.verdict))]
    st.html(f"<style>{STYLE}</style>{claims_html(chosen, opened=False)}")
