"""What those who hear the pages, or see them less well, get of them: axe finds nothing amiss."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, expect

from benchmarks.live_app import settled
from fdkvc.ui.kit.frame import PAGES

CHECK = """async (colours) => {
  await document.fonts.ready;
  const rules = colours ? {runOnly: ['color-contrast']} : {};
  const found = await axe.run({resultTypes: ['violations'], preload: false, ...rules});
  return found.violations.flatMap(({id, impact, nodes}) => nodes.map(
    ({target, any}) => [impact, id, target.join(' '), any[0]?.message ?? '']));
}"""


GLIDED = """() => !document.getAnimations().some(
  ({transitionProperty, playState}) => transitionProperty && playState === 'running')"""
"""Whether no colour is any more on its way to that of the other theme."""

APP = "document.querySelector('.stApp')"

NAMED = """() => ![...document.querySelectorAll('.stage [role=listbox]')].some(
  (each) => each.checkVisibility() && !each.querySelector('[role=option]'))"""
"""Whether the stage has come to writing out its entries, which it does once it is at rest."""


def amiss(page: Page, everything: bool) -> list[Any]:
    """Return what axe finds in the theme that is shown: of everything, or of colours alone."""
    settled(page)
    page.wait_for_function(GLIDED)
    page.wait_for_function(NAMED)
    found: list[Any] = page.evaluate(CHECK, not everything)
    return [
        each
        for each in found
        if not everything or each[0] in ("serious", "critical") or each[1] == "heading-order"
    ]


def test_every_page_can_be_heard_and_read_in_either_theme(page: Page) -> None:
    page.goto("/")
    page.evaluate(AXE_SCRIPT)
    themes = ["light", "dark"]
    for _, title, _ in PAGES:
        page.get_by_test_id("stSidebarNav").get_by_role("link", name=title, exact=True).click()
        page.get_by_role("heading", level=1, name=title).wait_for()
        expect(page).to_have_title(f"{title} · FD-KVC Lab")
        assert amiss(page, everything=True) == [], f"{title}, {themes[0]}"

        themes.reverse()  # the next page opens in this one
        page.emulate_media(color_scheme=themes[0])  # type: ignore[arg-type]
        page.wait_for_function(f"getComputedStyle({APP}).colorScheme === '{themes[0]}'")
        assert amiss(page, everything=False) == [], f"{title}, {themes[0]}"

        page.get_by_role("link", name="Policies").focus()
        page.keyboard.press("Tab")
        outlined = "() => getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(outlined) == "solid"
