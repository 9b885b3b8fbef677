"""What a run finds is counted from its verdicts, and two runs differ where these do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from fdkvc.paper.replication.claims import claim_results
from fdkvc.paper.replication.facts import facts
from fdkvc.paper.replication.finding import FEWEST_VARYING, changed_verdicts, finding, finding_text
from fdkvc.paper.shipped import papers_run
from fdkvc.paper.study import Study
from tests.studies import few_dialogs, other_budget, paper_study


@pytest.mark.parametrize("study_of", [lambda: papers_run().study, paper_study])
def test_a_headline_counts_the_verdicts(study_of: Callable[[], Study]) -> None:
    study = study_of()
    figures = Counter(fact.verdict for fact in facts(study) if fact.verdict is not None)
    claims = Counter(result.verdict for result in claim_results(study))
    head, more = finding(study)

    assert f"{claims['holds']} of {claims.total()} claims hold" in head
    assert head.endswith(f"Of {figures.total()} figures, {figures['open']} are open.")
    assert "alignment is not reproduced" in head
    assert f"{claims['does not hold']} do not hold" in more["Claims"]
    assert "size of alignments of unrelated vectors" in more["Alignment"]
    dialogs = study.results.benchmark.dialogs
    assert ("Open figures" in more) == (dialogs < FEWEST_VARYING), dialogs


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
