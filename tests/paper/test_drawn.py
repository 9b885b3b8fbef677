"""Claims, tables and figures as the page Benchmark draws them."""

import html
import re

import pytest

from fdkvc.charts.theme import LIGHT
from fdkvc.core.limits import MAX_DRAWN_POLICIES
from fdkvc.paper.benchmark import Benchmark
from fdkvc.paper.page.claims_html import claims_html, line_html
from fdkvc.paper.page.figures import series_chart, series_rows
from fdkvc.paper.page.tables import measured_html
from fdkvc.paper.replication.cells import measured_tables
from fdkvc.paper.replication.claims import claim_results
from fdkvc.paper.replication.tables import series_table
from fdkvc.paper.study import run_study
from fdkvc.policies import POLICIES, policy_named
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.studies import paper_study


def test_a_claims_numbers_are_drawn_where_they_lie() -> None:
    for results in claim_results(paper_study()):
        places = [float(place) for place in re.findall(r"left:([\d.]+)%", line_html(results))]
        widths = [float(width) for width in re.findall(r"width:([\d.]+)%", line_html(results))]
        assert all(0 <= place <= 100 for place in places)
        assert all(0 <= a + b <= 100.1 for a, b in zip(places, widths, strict=True))
    (shift,) = [
        result for result in claim_results(paper_study()) if result.claim.key == "alignment-shift"
    ]
    at = {
        kind: float(place)
        for kind, place in re.findall(r'class="(\w+)" style="left:([\d.]+)%', line_html(shift))
    }
    assert at["true"] < at["interval"] < at["measured"] < at["printed"]  # 0, 45 % and 127 %


def test_every_claim_says_why_at_a_click() -> None:
    results = claim_results(paper_study())
    text = html.unescape(claims_html(results))
    assert all(result.claim.why in text for result in results)
    assert text.count("<details>") == len(results)


def test_a_table_names_published_figures_only_where_there_are_some() -> None:
    policies = (policy_named("fd-kvc"), policy_named("tova"))
    study = run_study(Benchmark((SCENARIOS["shift"],), policies, dialogs=2), is_whole=False)
    table = measured_html(measured_tables(study)[0])
    rows = re.findall(r"<tr>.*?</tr>", table)
    assert len(rows) == 3  # the heading and two policies: H2O did not run
    assert ["<small>" in row for row in rows] == [False, True, False]
    assert "nan" not in table.lower()
    assert "None" not in table


@pytest.mark.long
def test_a_figure_names_only_what_it_draws_and_no_more_than_can_be_told_apart() -> None:
    every = tuple(map(policy_named, POLICIES))[:12]
    study = run_study(Benchmark((SCENARIOS["mixed"],), every, dialogs=2, metrics=("retention",)))
    table = series_table(study.results)

    def named(quantity: str) -> list[str]:
        rows = series_rows(study, table, "mixed", quantity)
        chart = series_chart(study, rows, "mixed", quantity, LIGHT)
        return sorted(set(chart["datasets"]["series"].policy))

    assert len(named("retention")) == MAX_DRAWN_POLICIES
    learn = {policy.title for policy in every if "learning_rate" in policy.initial_state()}
    assert "FD-KVC" in learn < {policy.title for policy in every}
    assert set(named("learning_rate")) <= learn
