"""How much of the paper a run reproduces, and the paper's claims with reasons and evidence."""

from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any

import streamlit as st

from fdkvc.paper.benchmark import matches_paper
from fdkvc.paper.page.claims_html import MARKS, STYLE, claims_html, counted, name_of
from fdkvc.paper.replication.claims import ClaimResult, claim_results
from fdkvc.paper.replication.finding import finding
from fdkvc.paper.replication.rules import FEWEST_DIALOGS
from fdkvc.paper.study import Study
from fdkvc.ui.fields import segments
from fdkvc.ui.markdown import Markdown, plain

EVERY = "all"

SUBJECTS = {
    **dict.fromkeys(("latency", "seconds", "score_bytes"), "Time and memory"),
    **dict.fromkeys(("ownership_loss", "learning_rate", "highest_score"), "How the policy behaves"),
    **dict.fromkeys(("same_entries", "parameters", "threshold_evictions"), "Hyperparameters"),
}
"""What claims are about, by their metric; by default the metric's own name."""

FAILING_FIRST = ("does not hold", "open", "direction only", "holds", None)
"""The order of verdicts."""


def show_answer(study: Study) -> None:
    """Say in a sentence what the run finds."""
    if not matches_paper(study.results.benchmark):
        return
    head, _ = finding(study)
    if head:
        st.markdown(plain(head))
    else:
        words = f"Verdicts need at least {FEWEST_DIALOGS} dialogs per scenario; this run has fewer."
        st.info(plain(words), icon=":material/balance:")


def choose_verdict(page: str, section: str, counts: Mapping[Any, int]) -> str:
    """Show the filter of a section with its counts: `EVERY`, or one verdict."""
    names = {EVERY: f"{EVERY} {sum(counts.values())}"}
    for verdict, number in counts.items():
        if number:
            names[str(verdict)] = f"{name_of(verdict)} {number}"
    return segments(f"{page}/{section}/shown", "Show", names)


@st.fragment
def show_claims(page: str, study: Study) -> None:
    """Show what is reproduced, and the claims, all or those with one verdict."""
    _, details = finding(study)
    details.pop("Claims", None)  # which the filter counts
    lines = starmap(Markdown("- **{}:** {}").format, details.items())
    st.markdown(Markdown("\n").join(lines))
    results = claim_results(study)
    counts = counted(results)
    st.session_state.setdefault(f"{page}/Claims/shown", FAILING_FIRST[0])
    verdict = choose_verdict(page, "Claims", counts)
    marks = {name_of(key): MARKS[key] for key, number in counts.items() if number}
    legend = " · ".join(f"{sign} {name}: {meaning}" for name, (sign, meaning) in marks.items())
    st.caption(plain(f"{legend} · click a claim for its numbers"))
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
