"""The step page as a person meets it."""

import re

from playwright.sync_api import Locator, Page, expect

from benchmarks.live_app import settled
from tests.browser.address import expect_linked, open_link


def expect_turn(page: Page, turn: int, last: int) -> None:
    """Expect that the stage stands at this turn, its entries say so, and the link holds it."""
    expect_linked(page, turn=turn)
    expect(page.locator(".stage").get_by_role("status")).to_contain_text(f"Turn {turn}: ")
    expect(page.get_by_role("slider", name="Turn")).to_have_value(f"{turn}")
    expect(page.locator(".stage .where")).to_have_text(f"{turn} of {last}")
    expect(cache(page).locator(".options")).to_have_attribute("data-turn", f"{turn}")


def cache(page: Page) -> Locator:
    return page.get_by_role("listbox", name="Entries of this turn")


def entry(page: Page, token: int) -> Locator:
    """Return one of the turn's entries, as whoever hears the page is told of it."""
    return cache(page).get_by_role("option", name=re.compile(rf"^token {token},"))


def why(page: Page) -> Locator:
    return page.get_by_role("region", name="Why")


def test_keys_buttons_and_the_slider_step(page: Page) -> None:
    open_link(page, "Step through", schedule="AAABBBCC", scenario="own", turn=0)
    expect_turn(page, 0, 7)

    for key, turn in (
        ("ArrowLeft", 0),
        ("]", 3),
        ("ArrowRight", 4),
        ("[", 3),
        ("End", 7),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        expect_turn(page, turn, 7)

    slider = page.get_by_role("slider", name="Turn")
    slider.focus()
    slider.press("ArrowRight")
    expect_turn(page, 1, 7)
    page.get_by_role("button", name="Next", exact=True).click()
    expect_turn(page, 2, 7)
    slider.press("End")
    page.get_by_role("button", name="Back").click()
    expect_turn(page, 6, 7)

    box = slider.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 8, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, middle, steps=8)
    expect(page.locator(".stage .where")).to_have_text(re.compile("[34] of 7"))
    page.mouse.move(box["x"] + box["width"] + 20, middle, steps=8)
    page.mouse.up()
    expect_turn(page, 7, 7)


def test_a_changed_setting_is_seen_beside_the_run_before(page: Page) -> None:
    """The river is pixels: it is drawn anew, and as before once the change is undone."""
    open_link(page, "Step through", turn=3, gamma=0.88)
    page.get_by_text("Hyperparameters", exact=True).click()
    gamma = page.get_by_role("spinbutton", name="Recency decay")
    before = page.locator(".stage .of-before").first
    river = page.locator(".stage .river .base")

    def drawn() -> str:
        settled(page)
        return str(river.evaluate("(canvas) => canvas.toDataURL()"))

    alone = drawn()

    gamma.fill("0.6")
    gamma.press("Enter")

    expect(before).to_contain_text("the previous run")
    expect(page.locator(".stage .headline")).to_contain_text("the previous run lacks")
    beside = drawn()
    page.get_by_text("nothing", exact=True).click()
    expect(before).to_be_hidden()
    assert len({alone, beside, drawn()}) == 3

    page.get_by_role("button", name="Undo").click()
    expect_linked(page, gamma=0.88)
    expect(page.locator(".stage .headline")).not_to_contain_text("previous run")
    assert drawn() == alone
