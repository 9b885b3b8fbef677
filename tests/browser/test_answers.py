"""The answers page as a person meets it: a talk, what brings it back, and why it went wrong."""

import re

from playwright.sync_api import Page, expect

from benchmarks.live_app import settled
from tests.browser.address import expect_linked
from tests.browser.conftest import choose_option
from tests.browser.test_design import SMALL, TOP
from tests.browser.test_every_page import SCREEN

BOTTOM = "(box) => box.getBoundingClientRect().bottom"

NEWEST_IN_SIGHT = """() => {
  const [field, message] = ['[data-testid=stChatInput]', '.message'].map(
    (each) => document.querySelector(each)?.getBoundingClientRect());
  return field && message && innerHeight - 80 < field.bottom && field.bottom <= innerHeight &&
    0 <= message.top && message.top < field.top;
}"""


STALE = """() => {
  window.stale = [];
  const look = () => {
    const text = document.body.innerText;
    if (/Answering with words restored to|The model answers …/.test(text))
      stale.push(/restored, the call is|evicted nothing yet/.test(text) ||
        document.querySelector('[aria-label="Answers after restoring words"]') !== null);
    requestAnimationFrame(look);
  };
  look();
}"""
"""Notes whether words restored to another answer are shown while one is computed, or its own."""


def test_nothing_of_another_answer_is_shown_while_one_is_computed(page: Page) -> None:
    page.goto("/answers?look=fifo")
    page.get_by_text("restored, the call is right").wait_for()
    settled(page).evaluate(STALE)
    h2o = page.get_by_role("option", name="H2O")
    choose_option(page.get_by_role("combobox", name="Cache"), h2o)
    expect_linked(page, look="h2o")
    settled(page)
    box = page.get_by_placeholder("Write as the user")
    box.fill("Thank you. Are there any movies around there?")
    box.press("Enter")
    expect(page.locator(".message")).to_contain_text("any movies around there?")
    settled(page)
    assert {*page.evaluate("stale")} == {False}


def test_a_person_asks_why_a_call_lost_its_city_and_goes_on_talking(page: Page) -> None:
    page.goto("/answers")
    page.get_by_role("heading", name=re.compile("make the same call as in the dialog")).wait_for()
    fifo = page.get_by_role("region", name="FIFO", exact=True)
    expect(fifo.locator(".unmet")).to_contain_text("not San Jose")
    expect(page.get_by_text("restored, the call is right")).to_contain_text("San Jose")
    page.set_viewport_size({"width": 1440, "height": 900})
    restored = page.get_by_role("region", name="Answers after restoring words")
    changed = restored.get_by_role("row", name="San Jose from the call")
    assert changed.evaluate(BOTTOM) <= page.get_by_test_id("stChatInput").evaluate(TOP)

    page.get_by_role("tab", name="Why this answer").click()
    expect(page.get_by_role("region", name="Attention behind the word")).to_be_visible()
    expect_linked(page, section="why")

    box = page.get_by_placeholder("Write as the user")
    box.hover()
    page.mouse.wheel(0, 5000)  # to the end of the sections
    box.fill("Thank you. Are there any <b>movies</b> around there?")
    box.press("Enter")
    expect(page.locator(".message")).to_contain_text("any <b>movies</b> around there?")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    expect(page.locator(".earlier")).to_contain_text("GetWeather")
    settled(page)
    expect(page).to_have_url(re.compile("said=Thank"))

    page.wait_for_function(NEWEST_IN_SIGHT)  # once the page has scrolled to it

    for screen in (SCREEN, *SMALL):  # what is written next stands at the bottom of every screen
        page.set_viewport_size(screen)
        expect(box).to_be_in_viewport(ratio=1)
        assert screen["height"] - 100 < box.evaluate(BOTTOM)

    page.go_back()
    expect(page.locator(".message")).to_contain_text("What will the weather be like")
