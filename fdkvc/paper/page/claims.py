"""The paper's claims, with reasons and evidence."""

from collections.abc import Mapping, Sequence

import streamlit as st

from fdkvc.paper.benchmark import matches_paper
from fdkvc.paper.page.claims_html import MARKS, STYLE, claims_html, counted
from fdkvc.paper.replication.claims import DEPENDS, ClaimResult, claim_results
from fdkvc.paper.replication.finding import Finding, finding
from fdkvc.paper.replication.rules import FEWEST_DIALOGS
from fdkvc.paper.study import Study
from fdkvc.ui.fields import segments
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import Markdown, plain

EVERY = "all"

SUBJECTS = {
    **dict.fromkeys(("latency", "seconds", "score_bytes"), "Time and memory"),
    **dict.fromkeys(
        ("ownership_loss", "learning_rate", "highest_score"), "How the policy behaves"
    ),
    **dict.fromkeys(("same_entries", "parameters", "threshold_evictions"), "Hyperparameters"),
}
"""What claims are about, by their metric; by default the metric's own name."""

FAILING_FIRST = ("does not hold", DEPENDS, "open", "direction only", "holds", None)
"""The order of verdicts."""


@cached
def finding_of(study: Study) -> Finding:
    """Return what a run finds, in words."""
    return finding(study)


@cached
def results_of(study: Study) -> list[ClaimResult]:
    """Return the verdict of a run on each claim."""
    return claim_results(study)


def show_answer(study: Study) -> None:
    """Say in a sentence what the run finds."""
    if not matches_paper(study.results.benchmark):
        return
    headline, numbers, _ = finding_of(study)
    if headline:
        st.markdown(plain(headline))
        st.caption(Markdown("  \n").join(map(plain, numbers)))
    else:
        words = f"Verdicts need at least {FEWEST_DIALOGS} dialogs per scenario; this run has fewer."
        st.info(plain(words), icon=":material/balance:")


def choose_verdict(
    page: str,
    section: str,
    counts: Mapping[str | None, int],
    marks: Mapping[str | None, tuple[str, str]],
) -> str:
    """Show the filter of a section: `EVERY`, or one verdict, with its mark, count and words."""
    names = {EVERY: f"{EVERY.capitalize()} {sum(counts.values())}"}
    for verdict, number in counts.items():
        if number:
            sign, words = marks[verdict]
            names[str(verdict)] = f"{sign} {number} {words}"
    return segments(f"{page}/{section}/shown", "Show", names)


@st.fragment
def show_claims(page: str, study: Study) -> None:
    """Show the claims, all or those with one verdict."""
    results = results_of(study)
    verdict = choose_verdict(page, "Claims", counted(results), MARKS)
    st.caption(
        "Click a claim for the reason, and for how sure the measurement is. Of Topic Shift the "
        "paper claims both that FD-KVC and H2O are tied and that FD-KVC is above H2O: at most one "
        "holds."
    )
    chosen = [result for result in results if verdict in (EVERY, str(result.verdict))]
    st.html(f"<style>{STYLE}</style>")
    for subject, group in by_subject(chosen).items():
        st.header(plain(subject), anchor=False)
        st.html(claims_html(group))


def by_subject(results: Sequence[ClaimResult]) -> dict[str, list[ClaimResult]]:
    """Group claims by what they are about; those that fail come first, also of the groups."""
    groups = dict[str, list[ClaimResult]]()
    for result in sorted(results, key=lambda result: FAILING_FIRST.index(result.verdict)):
        metric = result.claim.measure.metric.removeprefix("late_")
        groups.setdefault(SUBJECTS.get(metric, metric.capitalize()), []).append(result)
    return groups
