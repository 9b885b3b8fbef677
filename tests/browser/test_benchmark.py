"""The benchmark and ablation pages as a person meets them."""

import io
import json
import re
import zipfile
from pathlib import Path
from urllib.parse import urljoin

import pandas as pd
from playwright.sync_api import Browser, Locator, Page, expect

from benchmarks.live_app import settled
from fdkvc.paper.benchmark import Benchmark
from fdkvc.paper.results import StudyRun
from fdkvc.paper.study import run_study
from tests.browser.address import downloaded, open_link

SECONDS = 90_000
"""Milliseconds that a run may take on a busy machine."""


def choose_dialogs(page: Page, dialogs: int) -> None:
    field = page.get_by_role("spinbutton", name=re.compile("Dialogs per scenario"))
    field.fill(str(dialogs))
    field.press("Enter")
    settled(page)


def run_button(page: Page) -> Locator:
    return page.get_by_role("button", name="Run", exact=True)


def run(page: Page, dialogs: int) -> None:
    """Run so many dialogs, which are chosen, and wait for the results."""
    run_button(page).click()
    page.get_by_text(re.compile(rf"Shown: .*{dialogs:,} dialogs")).wait_for(timeout=SECONDS)
    settled(page)


def look_at_claims_and_figures(page: Page) -> None:
    """The figures draw every policy."""
    answer = page.locator(".st-key-page-answer")
    expect(answer).to_contain_text(re.compile(r"Claims in the text: [1-9] hold"))
    expect(page.get_by_role("radio", name=re.compile(r"[1-9]\d do not hold"))).to_be_visible()
    claim = page.locator("#claim-peak-gamma")
    expect(claim).to_contain_text("the decay rate has little effect")
    claim.locator("summary").click()
    expect(claim.locator(".line")).to_have_attribute("aria-label", re.compile("0.7 or 0.85"))
    page.get_by_role("tab", name="Figures").click()
    expect(page.get_by_role("tabpanel")).to_contain_text("Alignment turn by turn (Figure 1)")
    drawn = page.locator("[data-testid=stVegaLiteChart] [aria-label*='policy: FD-KVC']")
    expect(drawn.nth(20)).to_be_attached()
    page.get_by_text("Ablation curves (Figure 4)").click()
    expect(page.locator("[aria-label*='published: 84.7']").first).to_be_attached()


def look_at_the_tables(page: Page) -> None:
    """Each cell has the published figure and its verdict."""
    page.get_by_role("tab", name="Tables").click()
    printed = page.get_by_role("region", name="Table 3: ")
    expect(printed.get_by_role("cell", name="72.1 ± 0.8 ✓ paper: 72.1 %")).to_be_visible()


def test_the_papers_run_is_shown_at_once(page: Page) -> None:
    open_link(page, "Benchmark")
    expect(page.get_by_text("Shown: 600 dialogs per scenario, seed 0")).to_be_visible()
    look_at_claims_and_figures(page)
    look_at_the_tables(page)


def test_a_run_is_kept_and_downloaded(page: Page, tmp_path: Path) -> None:
    open_link(page, "Benchmark", dialogs=20)
    run(page, 20)
    page.reload()
    page.get_by_text(re.compile("Shown: 20 dialogs")).wait_for()
    settled(page)
    page.get_by_role("button", name="Download", exact=True).click()
    with zipfile.ZipFile(downloaded(page, "Everything as a ZIP", tmp_path)) as archive:
        assert archive.testzip() is None
        files = {name: archive.read(name) for name in archive.namelist()}
    expected = StudyRun(run_study(Benchmark(dialogs=20))).files
    assert set(files) == {*expected, "README.md"}
    for name in json.loads(expected["run.json"])["files"]:
        assert files[name] == expected[name].encode(), name
    ran, again = (json.loads(content) for content in (files["run.json"], expected["run.json"]))
    assert (ran["parameters"], ran["files"]) == (again["parameters"], again["files"])
    assert len(pd.read_csv(io.BytesIO(files["claims.csv"]))) > 30

    assert json.loads(downloaded(page, "run.json", tmp_path).read_text())["files"] == ran["files"]


def test_a_run_begins_as_typed_goes_on_unseen_and_may_be_cancelled(
    page: Page, chromium: Browser
) -> None:
    # So many take minutes, where there are many cores and a slow browser, too.
    policies = "fifo,sink,h2o,fd-kvc,fd-kvc-adaptive,h2o-mean,tova,scissorhands,fastgen,oracle"
    open_link(page, "Benchmark", budget=300, policies=policies)
    field = page.get_by_role("spinbutton", name=re.compile("Dialogs per scenario"))
    field.fill("2000")
    run_button(page).click()
    progress = page.get_by_text(re.compile("Benchmark, [1-9][0-9]* of 2000 dialogs"))
    progress.wait_for(timeout=SECONDS)
    expect(run_button(page)).to_be_disabled()
    seen = progress.inner_text()

    page.get_by_role("link", name="About", exact=True).click()
    expect(page.get_by_role("heading", level=1, name="About")).to_be_visible()
    page.get_by_role("link", name="Benchmark", exact=True).click()
    expect(progress).to_be_visible(timeout=SECONDS)
    expect(progress).not_to_have_text(seen, timeout=SECONDS)
    expect(field).to_have_value("2000")

    page.reload()
    expect(page.get_by_text("These settings are being measured")).to_be_visible(timeout=SECONDS)
    expect(progress).to_be_visible(timeout=SECONDS)
    page.get_by_role("button", name="Cancel").click()
    cut_short = re.compile(r"Cancelled: results of [\d,]+ of 2,000 dialogs of each scenario")
    page.get_by_text(cut_short).wait_for(timeout=SECONDS)
    expect(page.get_by_role("tab", name="Tables")).to_be_visible()
    expect(run_button(page)).to_be_enabled()
    expect(page.get_by_role("button", name="Runs (2)")).to_be_visible()

    anothers = chromium.new_context(base_url=urljoin(page.url, "/")).new_page()
    open_link(anothers, "Benchmark")
    expect(anothers.get_by_role("button", name="Runs (1)")).to_be_visible()
    anothers.context.close()


def test_a_sweep_of_one_has_curves_with_the_published_points(page: Page) -> None:
    open_link(page, "Benchmark", section="ablation")
    expect(page.get_by_role("tab", name="Ablation", selected=True)).to_be_visible()
    expect(page.get_by_role("heading", name="The paper's other sweep")).to_be_visible()
    choose_dialogs(page, 6)
    expect(page.get_by_text("The settings differ from this run's")).to_be_visible()
    run(page, 6)
    curve = page.locator(".st-key-panel-sweep-late_retention")
    expect(curve.get_by_label(re.compile("published: 84.7")).first).to_be_attached()
