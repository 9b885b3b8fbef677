"""What those who hear the pages, or see them less well, get of them: axe finds nothing amiss."""

from __future__ import annotations

from typing import Any

import pytest
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


@pytest.mark.parametrize(("path", "title"), [(path, title) for path, title, _ in PAGES])
def test_a_page_can_be_heard_and_read_in_either_theme(page: Page, path: str, title: str) -> None:
    first, *_ = PAGES[0]
    page.goto("/" if path == first else path.removeprefix("pages/").removesuffix(".py"))
    expect(page.get_by_role("heading", level=1, name=title)).to_be_visible()
    settled(page)
    expect(page).to_have_title(f"{title} · FD-KVC Lab")

    page.evaluate(AXE_SCRIPT)
    light: list[Any] = page.evaluate(CHECK, False)
    assert [each for each in light if each[0] in ("serious", "critical")] == []
    assert [each for each in light if each[1] == "heading-order"] == []

    page.emulate_media(color_scheme="dark")
    expect(page.locator(".stApp")).to_have_css("color-scheme", "dark")
    settled(page)
    page.wait_for_function(GLIDED)
    assert page.evaluate(CHECK, True) == []

    page.get_by_role("link", name="Policies").focus()
    page.keyboard.press("Tab")
    outlined = "() => getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outlined) == "solid"
