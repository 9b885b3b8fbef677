"""All pages have one frame: the same head, the same order of the sidebar, and room on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Page, ViewportSize, expect

from benchmarks.live_app import settled
from fdkvc.ui.kit.frame import PAGES

SCREEN: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}

SIDEBAR = {
    "Step through": ["Policy", "Around it", "Scenario", "Seed", "Budget"],
    "Compare": ["Policies", "Scenario", "Seed", "Budget"],
    "Dialogs": ["Policies", "File", "Budget"],
    "Answers": ["Policies", "Begin with", "Budget"],
    "Benchmark": ["Policies", "Scenarios", "Seed", "Budget", "Metrics"],
    "Ablation": ["Policy", "Around it", "Scenario", "Seed", "Budget", "Metrics"],
    "Policies": [],
    "About": [],
}
"""Labels of each page's sidebar in their order; there may be others between them."""

BOX = """(title) => {
  const { x, y, height } = title.getBoundingClientRect();
  return [x, y, height, getComputedStyle(title).fontSize];
}"""
OVERFLOW = "(main) => main.scrollWidth - main.clientWidth"
BELOW_SCREEN = "(part) => part.getBoundingClientRect().bottom - window.innerHeight"
LABELS = "(labels) => labels.map((label) => label.innerText.trim())"


def titles(page: Page) -> Iterator[tuple[str, Any]]:
    """Open each page from the navigation; yield its title, and the title's box and font size."""
    for _, title, _ in PAGES:
        link = page.get_by_test_id("stSidebarNav").get_by_text(title, exact=True)
        link.evaluate("(link) => link.click()")  # on a phone, it is off the screen
        heading = page.get_by_role("heading", level=1)
        expect(heading).to_have_text(title)
        settled(page)
        yield title, heading.evaluate(BOX)


def test_every_page_has_the_same_frame(page: Page) -> None:
    page.set_viewport_size(SCREEN)
    page.goto("/")
    boxes = []
    for title, box in titles(page):
        boxes.append(box)
        labels = page.get_by_test_id("stSidebar").get_by_test_id("stWidgetLabel")
        shown = labels.evaluate_all(LABELS)
        assert [label for label in shown if label in SIDEBAR[title]] == SIDEBAR[title], title
    assert boxes == [[*boxes[0][:3], "24px"]] * len(PAGES)


def test_no_page_scrolls_sideways_on_a_phone(page: Page) -> None:
    page.set_viewport_size(PHONE)
    page.goto("/")
    boxes = []
    for title, box in titles(page):
        boxes.append(box)
        assert page.get_by_test_id("stMain").evaluate(OVERFLOW) <= 0, title
    assert boxes == [boxes[0]] * len(PAGES)


def test_the_metrics_of_a_turn_are_on_the_first_screen(page: Page) -> None:
    page.set_viewport_size(SCREEN)
    page.goto("/")
    settled(page)

    figures = page.locator(".figures")
    for name in ("Alignment", "Retention", "Diversity", "Learning rate", "Ownership loss"):
        expect(figures).to_contain_text(name)
    assert figures.evaluate(BELOW_SCREEN) <= 0
    assert page.locator(".stage .frame").evaluate(BELOW_SCREEN) <= 0
