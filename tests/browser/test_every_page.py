"""All pages, on one walk: one frame, room on a phone, and nothing amiss that axe could find.

What it finds keeps those from a page who hear it, or see it less well.
"""

from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, ViewportSize, expect

from benchmarks.live_app import settled
from fdkvc.ui.frame import PAGES

SCREEN: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}

TITLES = [title for _, title, _ in PAGES]

SIDEBAR = {
    "Start": [],
    "Step through": ["Policy", "Wrapper", "Scenario", "Seed", "Budget"],
    "Compare": ["Policies", "Scenario", "Seed", "Budget"],
    "Dialogs": ["File", "Policies in the transcript"],
    "Answers": ["Policies", "Begin with", "Budget"],
    "Benchmark": ["Scenarios", "Seed", "Budget"],
    "Story": [],
    "Policies": [],
    "About": [],
}
"""Labels of each page's sidebar in their order; there may be others between them."""

BOX = """(title) => {
  const { x, y, height } = title.getBoundingClientRect();
  return [x, y, height, getComputedStyle(title).fontSize];
}"""
OVERFLOW = "(main) => main.scrollWidth - main.clientWidth"
LABELS = "(labels) => labels.map((label) => label.innerText.trim())"

CHECK = """async ([colours, inside]) => {
  await document.fonts.ready;
  const rules = colours ? {runOnly: ['color-contrast']} : {};
  const options = {resultTypes: ['violations'], preload: false, elementRef: true};
  const found = await axe.run(inside, {...options, ...rules});
  return found.violations.flatMap(({id, impact, nodes}) => nodes
    .map(({target, any}) => [impact, id, target.join(' '), any[0]?.message ?? '']));
}"""


GLIDED = """() => !document.getAnimations().some(
  ({transitionProperty, playState}) => transitionProperty && playState === 'running')"""
"""Whether no colour is any more on its way to that of the other theme."""

APP = "document.querySelector('.stApp')"

NAMED = """() => ![...document.querySelectorAll('.stage [role=listbox]')].some(
  (each) => each.checkVisibility() && !each.querySelector('[role=option]'))"""
"""Whether the stage has come to writing out its entries, which it does once it is at rest."""


POPOVER = "[data-testid=stPopoverBody]"

STREAMLITS = "presentation-role-conflict"
"""Of its file uploader."""


def amiss(page: Page, everything: bool, inside: str = "body") -> list[Any]:
    """Return what axe finds in the theme that is shown: of everything, or of colours alone."""
    settled(page)
    page.wait_for_function(GLIDED)
    page.wait_for_function(NAMED)
    violations: list[Any] = page.evaluate(CHECK, [not everything, inside])
    return [violation for violation in violations if violation[1] != STREAMLITS]


def amiss_in_popovers(page: Page, everything: bool) -> list[Any]:
    """Return the same of each popover of the page, opened one after the other."""
    violations = []
    for button in page.locator("[data-testid=stPopover] button:visible").all():
        button.click()
        page.locator(POPOVER).wait_for()
        violations += amiss(page, everything, POPOVER)
        page.keyboard.press("Escape")
        page.locator(POPOVER).wait_for(state="detached")
    return violations


def test_every_page_has_the_same_frame_and_can_be_heard_and_read_in_either_theme(
    page: Page,
) -> None:
    page.set_viewport_size(SCREEN)
    page.goto("/")
    page.evaluate(AXE_SCRIPT)
    themes = ["light", "dark"]
    boxes = []
    heading = page.get_by_role("heading", level=1)
    for title in TITLES:
        page.get_by_test_id("stSidebarNav").get_by_role("link", name=title, exact=True).click()
        expect(heading).to_have_text(title)
        expect(page).to_have_title(f"{title} · FD-KVC Lab")
        settled(page)
        boxes.append(heading.evaluate(BOX))
        labels = page.get_by_test_id("stSidebar").get_by_test_id("stWidgetLabel")
        shown = labels.evaluate_all(LABELS)
        assert [label for label in shown if label in SIDEBAR[title]] == SIDEBAR[title], title
        assert amiss(page, everything=True) == [], f"{title}, {themes[0]}"
        assert amiss_in_popovers(page, everything=True) == [], f"{title}, {themes[0]}"

        themes.reverse()  # the next page opens in this one
        page.emulate_media(color_scheme=themes[0])  # type: ignore[arg-type]
        page.wait_for_function(f"getComputedStyle({APP}).colorScheme === '{themes[0]}'")
        assert amiss(page, everything=False) == [], f"{title}, {themes[0]}"
        assert amiss_in_popovers(page, everything=False) == [], f"{title}, {themes[0]}"

        page.get_by_role("link", name="Policies").focus()
        page.keyboard.press("Tab")
        outlined = "() => getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(outlined) == "solid"
    assert boxes == [[*boxes[0][:3], "24px"]] * len(TITLES)


def test_no_page_scrolls_sideways_on_a_phone(page: Page) -> None:
    page.set_viewport_size(PHONE)
    page.goto("/")
    boxes = []
    heading = page.get_by_role("heading", level=1)
    for title in TITLES:
        link = page.get_by_test_id("stSidebarNav").get_by_text(title, exact=True)
        link.evaluate("(link) => link.click()")  # it is off the screen
        expect(heading).to_have_text(title)
        settled(page)
        boxes.append(heading.evaluate(BOX))
        assert page.get_by_test_id("stMain").evaluate(OVERFLOW) <= 0, title
    assert boxes == [boxes[0]] * len(TITLES)
