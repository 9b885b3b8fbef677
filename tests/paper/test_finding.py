"""What a run finds is counted from its verdicts, and two runs differ where these do."""

from collections import Counter
from collections.abc import Callable

import pytest

from fdkvc.paper.page.claims_html import claims_html
from fdkvc.paper.published import LATE_ALIGNMENT
from fdkvc.paper.replication.claims import DEPENDS, claim_results, found_words, measured_words
from fdkvc.paper.replication.facts import facts
from fdkvc.paper.replication.finding import (
    FEWEST_VARYING,
    Finding,
    changed_verdicts,
    finding,
    finding_text,
)
from fdkvc.paper.shipped import papers_run
from fdkvc.paper.study import Study
from tests.studies import few_dialogs, other_budget, paper_study


@pytest.mark.parametrize("study_of", [lambda: papers_run().study, paper_study])
def test_a_headline_counts_the_verdicts(study_of: Callable[[], Study]) -> None:
    study = study_of()
    claims = Counter(result.verdict for result in claim_results(study))
    headline, numbers, more = finding(study)

    assert f"{claims['does not hold']} of {claims.total()} claims do not hold" in headline
    assert "alignment cannot be checked" in headline
    head = " ".join(numbers)
    assert f"Claims in the text: {claims['holds']} hold" in head
    assert "Alignment, with the value matrix: none of 42 figures come out (" in head
    assert f"{claims['does not hold']} do not hold" in head
    assert "as unrelated vectors do, and the value matrix" in head
    dialogs = study.results.benchmark.dialogs
    assert ("Open figures" in more) == (dialogs < FEWEST_VARYING), dialogs


def test_a_headline_says_what_the_figures_are_that_are_not_reproduced() -> None:
    head = " ".join(finding(papers_run().study).numbers)
    remarks = "35 differ; 6 published too close to zero to judge; 1 open"
    assert f"none of 42 figures come out ({remarks})" in head


def test_a_headline_counts_what_the_paper_says_of_itself() -> None:
    """Table 4 prints FD-KVC third, Table 2 more than twice FIFO's turns."""
    study = papers_run().study
    refuted_claims = [result for result in claim_results(study) if result.refuted_by_paper]
    refuted = {result.claim.key: found_words(result) for result in refuted_claims}
    assert refuted == {
        "heuristics-alignment": "FD-KVC takes place 3 of 4",
        "heuristics-retention": "FD-KVC takes place 3 of 4",
        "adaptation-fifo": "FD-KVC takes 2.27× FIFO's turns",
        "fixed-point": "the highest is 1.36",
        "hyperparameters": "6 can be set freely",
    }
    assert {result.verdict for result in refuted_claims} == {"does not hold"}
    words = finding(study).details["Claims"]
    assert f"{len(refuted)} of them contradict" in words


def test_a_headline_counts_the_figures_of_the_papers_own_policy() -> None:
    study = papers_run().study
    rows = [
        row for row in facts(study) if row.policy.startswith("fd-kvc") and row.verdict is not None
    ]
    own = [row.verdict for row in rows if "alignment" not in row.metric]
    assert f"of FD-KVC's own {own.count('reproduced')} of {len(own)}" in finding(study).numbers[0]


def test_the_span_of_published_alignments_names_the_table_that_it_is_of() -> None:
    """Tables 5 and 6 print −0.0062 and +0.0603, outside of it."""
    figures = [figure.value for figure in LATE_ALIGNMENT.values()]
    span = f"{min(figures):.3f} to {max(figures):.3f}"
    assert f"Its Table 1 has {span};" in finding(papers_run().study).numbers[1]


def test_a_claim_depends_on_the_matrix_unless_all_agree_or_the_paper_refutes_it() -> None:
    study = papers_run().study
    results = {result.claim.key: result for result in claim_results(study)}
    tied = results["tied-shift"].by_matrix
    figures = {name: (row.verdict, measured_words(row)) for name, row in tied.items()}
    assert figures == {
        "value": ("does not hold", "t = 52.86"),
        "key": ("direction only", "t = −0.6601"),
        "query": ("direction only", "t = 1.219"),
    }
    about_alignment = [result for result in results.values() if result.by_matrix]
    assert len(about_alignment) == 11
    for result in about_alignment:
        verdicts = {row.verdict for row in result.by_matrix.values()}
        assert len(verdicts) > 1
        refuted = result.claim.key == "heuristics-alignment"
        assert result.verdict == ("does not hold" if refuted else DEPENDS)
    assert "10 depend on the matrix" in finding(study).numbers[-1]


def test_a_change_from_a_number_near_zero_is_not_shown() -> None:
    results = {result.claim.key: result for result in claim_results(papers_run().study)}
    in_keys = results["alignment-shift"].by_matrix["key"]
    assert (in_keys.verdict, measured_words(in_keys)) == ("open", "")
    assert "a change from a number near zero: open" in claims_html([results["alignment-shift"]])


def test_a_claim_shows_its_verdict_with_other_matrices() -> None:
    results = claim_results(papers_run().study)
    (tied,) = [result for result in results if result.claim.key == "tied-shift"]
    assert "with the key matrix" in claims_html([tied])
    assert "t = −0.66" in claims_html([tied])
    assert (
        "with the value matrix FD-KVC − H2O is +0.31 (± 0.01), a tie would include 0"
        in claims_html([tied])
    )


def test_without_a_verdict_nothing_is_found() -> None:
    for study in (few_dialogs(), other_budget()):
        assert finding(study) == Finding("", (), {})
        assert finding_text(study) == []


def test_two_runs_differ_where_their_verdicts_do() -> None:
    one, other = papers_run().study, paper_study()
    rows = changed_verdicts(one, other).rows

    assert rows
    assert all(row[3] != row[5] for row in rows)
    assert changed_verdicts(one, one).rows == []
    swapped = [[*row[:2], *row[4:], *row[2:4]] for row in changed_verdicts(other, one).rows]
    assert swapped == [list(row) for row in rows]
