"""What a run finds is counted from its verdicts, and two runs differ where these do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from fdkvc.paper.page.claims_html import claims_html
from fdkvc.paper.replication.claims import claim_results
from fdkvc.paper.replication.finding import FEWEST_VARYING, changed_verdicts, finding, finding_text
from fdkvc.paper.shipped import papers_run
from fdkvc.paper.study import Study
from tests.studies import few_dialogs, other_budget, paper_study


@pytest.mark.parametrize("study_of", [lambda: papers_run().study, paper_study])
def test_a_headline_counts_the_verdicts(study_of: Callable[[], Study]) -> None:
    study = study_of()
    claims = Counter(result.verdict for result in claim_results(study))
    head, more = finding(study)

    assert f"{claims['holds']} of {claims.total()} claims hold" in head
    assert "alignment is not reproduced" in head
    assert f"{claims['does not hold']} do not hold" in more["Claims"]
    assert "as small as between unrelated vectors" in more["Alignment"]
    dialogs = study.results.benchmark.dialogs
    assert ("Open figures" in more) == (dialogs < FEWEST_VARYING), dialogs


def test_claims_on_alignment_are_counted_with_each_matrix_that_the_paper_may_mean() -> None:
    study = papers_run().study
    results = {result.claim.key: result for result in claim_results(study)}
    tied = results["tied-shift"]
    in_keys = tied.other_matrices["key"]
    assert tied.measured is not None
    assert in_keys.measured is not None
    assert (tied.verdict, round(tied.measured.value, 1)) == ("does not hold", 52.9)
    assert (in_keys.verdict, round(in_keys.measured.value, 2)) == ("direction only", -0.66)

    about_alignment = [result for result in results.values() if result.other_matrices]
    holding = [[result.verdict for result in about_alignment].count("holds")]
    for matrix in ("key", "query"):
        verdicts = [result.other_matrices[matrix].verdict for result in about_alignment]
        holding.append(verdicts.count("holds"))
    head, _ = finding(study)
    assert f"at most {max(holding)} of {len(about_alignment)} claims on alignment" in head


def test_a_claim_shows_its_verdict_with_other_matrices() -> None:
    results = claim_results(papers_run().study)
    (tied,) = [result for result in results if result.claim.key == "tied-shift"]
    assert "with the key matrix" in claims_html([tied])
    assert "t = −0.66" in claims_html([tied])
    assert "measured: t = 52.86; up to 1.96 would be a tie" in claims_html([tied])


def test_without_a_verdict_nothing_is_found() -> None:
    for study in (few_dialogs(), other_budget()):
        assert finding(study) == ("", {})
        assert finding_text(study) == []


def test_two_runs_differ_where_their_verdicts_do() -> None:
    one, other = papers_run().study, paper_study()
    rows = changed_verdicts(one, other).rows

    assert rows
    assert all(row[3] != row[5] for row in rows)
    assert changed_verdicts(one, one).rows == []
    swapped = [[*row[:2], *row[4:], *row[2:4]] for row in changed_verdicts(other, one).rows]
    assert swapped == [list(row) for row in rows]
