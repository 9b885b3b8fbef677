"""What must be in sight is, on every screen; what is written is whole and covers nothing."""

import numpy as np
from playwright.sync_api import Locator, Page, ViewportSize, expect

from benchmarks.live_app import settled
from tests.browser.test_every_page import APP, GLIDED, OVERFLOW, PHONE, SCREEN

SMALL: tuple[ViewportSize, ...] = (
    {"width": 1024, "height": 768},
    PHONE,
    {"width": 720, "height": 450},  # 1440 × 900 at 200 %
)

BELOW_SCREEN = "(part) => part.getBoundingClientRect().bottom - window.innerHeight"
CUT_OFF = "(all) => Math.max(...all.map((each) => each.scrollWidth - each.clientWidth))"
TOP = "(part) => part.getBoundingClientRect().top"
PLACES = """(panel) => [...panel.querySelectorAll('h3, .in-words, canvas')].map(
  (part) => part.getBoundingClientRect().top)"""
DRAWN = """() => {
  const canvas = document.querySelector('canvas.course');
  return canvas.clientWidth && canvas.width === Math.round(canvas.clientWidth * devicePixelRatio);
}"""
BOX = """(part) => {
  const {x, y, width, height} = part.getBoundingClientRect();
  return [x, y, width, height];
}"""
FRAMES = """() => ['', '::before'].map((part) => {
  const {outlineStyle, boxShadow} = getComputedStyle(document.activeElement, part);
  return `${document.activeElement.id} ${outlineStyle} ${boxShadow}`;
})"""
RUNNING = """(header) => {
  const mark = document.createElement('div');
  mark.dataset.testid = 'stStatusWidget';
  mark.style.cssText = 'width: 92px; height: 26px';
  header.lastElementChild.lastElementChild.prepend(mark);
}"""
COLOURS = """(button) => {
  const {color, backgroundColor} = getComputedStyle(button);
  return [color, backgroundColor].map((colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(Number));
}"""


def contrast(button: Locator) -> float:
    """Return the WCAG 2 contrast of a button's text, once its colours rest."""
    button.page.wait_for_function(GLIDED)
    light, dark = sorted(
        (
            sum(
                weight * (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4)
                for weight, x in zip((0.2126, 0.7152, 0.0722), np.divide(colour, 255), strict=True)
            )
            for colour in button.evaluate(COLOURS)
        ),
        reverse=True,
    )
    return float((light + 0.05) / (dark + 0.05))


def test_step_shows_its_metrics_and_why_does_not_move_when_its_search_ends(page: Page) -> None:
    page.set_viewport_size(SCREEN)
    page.goto("/step")
    settled(page)

    figures = page.locator(".figures")
    for name in (
        "Alignment",
        "On topic (retention)",
        "Diversity",
        "Learning rate",
        "Ownership loss",
    ):
        expect(figures).to_contain_text(name)
    assert figures.evaluate(BELOW_SCREEN) <= 0
    assert page.locator(".stage .decision").evaluate(BELOW_SCREEN) <= 0

    why = page.get_by_role("region", name="Why")
    page.get_by_role("listbox", name="Entries of this turn").focus()
    for key in ("End", "Enter"):
        page.keyboard.press(key)
    expect(why.locator(".search .busy")).to_be_visible()
    expect(why.locator(".in-words")).to_contain_text("was evicted")
    searching = why.evaluate(PLACES)
    expect(why.locator(".search details")).to_be_visible()
    assert np.abs(np.subtract(why.evaluate(PLACES), searching)).max() <= 1
    page.add_style_tag(content=".stage .why * {font-family: monospace !important;}")  # a wide font
    assert why.evaluate("(box) => box.scrollWidth - box.clientWidth") <= 0

    page.mouse.wheel(0, 600)
    expect(page.get_by_role("heading", level=1)).to_be_in_viewport(ratio=1)
    page.get_by_test_id("stSidebarNav").get_by_text("Story").click()
    button = page.get_by_role("button", name="Next scene")
    button.hover()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(f"getComputedStyle({APP}).colorScheme === '{scheme}'")
        assert contrast(button) >= 4.5, scheme


def overlap(one: Locator, other: Locator) -> bool:
    (x, y, wide, high), (left, top, width, height) = one.evaluate(BOX), other.evaluate(BOX)
    return bool(x < left + width and left < x + wide and y < top + height and top < y + high)


def test_nothing_covers_what_is_beside_it_and_nothing_keeps_an_old_size(page: Page) -> None:
    page.set_viewport_size({"width": 1024, "height": 768})
    page.goto("/step?entry=3&turn=4")
    course = page.locator("canvas.course")
    for width in (1024, 2200, 390):
        page.set_viewport_size({"width": width, "height": 900})
        expect(course).to_be_visible()
        page.wait_for_function(DRAWN)

    page.set_viewport_size(SCREEN)
    page.goto("/dialogs?policies=fifo&entry=30&view=lanes")
    header = page.locator(".stage .why header")
    expect(header.locator(".fate b")).to_be_visible()
    headline = page.locator(".st-key-headline")
    assert headline.evaluate("(box) => box.scrollHeight - box.clientHeight") <= 0
    for width in (390, 1024, 1440, 2200):
        page.set_viewport_size({"width": width, "height": 900})
        settled(page)
        assert not overlap(header.locator(".close"), header.locator(".fate b"))

    page.set_viewport_size(SCREEN)
    page.get_by_test_id("stHeader").evaluate(RUNNING)
    mark = page.get_by_test_id("stStatusWidget")
    for button in page.locator(".st-key-page-head button").all():
        assert not overlap(mark.first, button)

    page.mouse.click(310, SCREEN["height"] - 10)
    page.keyboard.press("x")
    assert page.evaluate(FRAMES) == ["stMain none none"] * 2

    page.set_viewport_size(SMALL[0])
    page.goto("/benchmark")
    settled(page).get_by_role("tab", name="Tables").click()
    table = page.get_by_role("region", name="Table 1")
    assert table.evaluate("(table) => table.scrollWidth > table.clientWidth")
    shadows = table.evaluate("(table) => getComputedStyle(table).backgroundAttachment")
    assert shadows == "local, local, scroll, scroll"


def test_a_topic_whose_name_has_no_room_above_the_stage_is_its_letter(page: Page) -> None:
    page.set_viewport_size(PHONE)
    page.goto("/story?scene=4")
    names = page.locator(".stage .turns span")
    expect(names.nth(2)).to_have_text("C")
    assert names.evaluate_all(CUT_OFF) <= 0
    page.set_viewport_size(SCREEN)
    expect(names.nth(2)).to_have_text("Weather")


def test_a_small_or_zoomed_screen_shows_a_lane_or_the_verdict_on_arrival(page: Page) -> None:
    why = page.get_by_role("complementary", name="Why")
    for address, shown, least in (
        ("/compare", ".stage .lane .cells", 50),
        ("/dialogs?policies=random,sink,h2o,fifo,tova,fd-kvc", ".st-key-panel-verdict-words p", 30),
        ("/dialogs", ".st-key-panel-verdict-words p", 60),
    ):
        page.set_viewport_size(SMALL[0])
        page.goto(address)
        expect(why.locator("header")).to_be_visible()
        settled(page)
        for screen in SMALL:
            page.set_viewport_size(screen)
            settled(page)
            top = page.locator(shown).first.evaluate(TOP)
            sheet = min(why.evaluate(TOP), screen["height"])
            assert sheet - top >= least, (address, screen)
            assert screen["height"] - sheet <= screen["height"] / 3, (address, screen)
            purpose, head = page.locator(".st-key-page-purpose"), page.locator("h1")
            assert not purpose.is_visible() or purpose.evaluate(TOP) > head.evaluate(TOP)


def test_a_run_and_its_first_claim_are_on_the_first_screen(page: Page) -> None:
    page.set_viewport_size(SCREEN)
    page.goto("/benchmark")
    settled(page)
    for part in (
        page.get_by_role("button", name="Run", exact=True),
        page.locator(".st-key-page-answer"),
        page.locator(".claims details").first,
    ):
        assert part.evaluate(BELOW_SCREEN) <= 0

    page.get_by_text("Policies and metrics").click()
    settled(page)
    page.get_by_role("button", name="Add a variant").click()
    variant = page.get_by_test_id("stPopoverBody")
    expect(variant.get_by_role("button", name="Add FD-KVC")).to_be_visible()
    assert variant.evaluate(BELOW_SCREEN) <= 0
    assert variant.evaluate("(box) => box.scrollHeight - box.clientHeight") <= 0
    assert variant.evaluate("(box) => box.getBoundingClientRect().top") >= 0


def test_a_link_to_a_section_shows_that_section(page: Page) -> None:
    page.set_viewport_size(SCREEN)
    page.goto("/story?scene=5")
    page.get_by_role("link", name="let a language model answer").click()
    page.locator(".back tbody").wait_for()
    expect(settled(page).get_by_role("tab", name="Restore evicted words")).to_be_in_viewport()


def test_equations_stand_whole(page: Page) -> None:
    page.set_viewport_size(SCREEN)
    page.goto("/about")
    settled(page)
    equations = page.locator(".st-key-panels-method .katex-display")
    expect(equations).not_to_have_count(0)
    for screen in (SCREEN, *SMALL):
        page.set_viewport_size(screen)
        assert page.get_by_test_id("stMain").evaluate(OVERFLOW) <= 0
        cut = equations.evaluate_all(CUT_OFF)
        assert cut <= 1 or screen == PHONE, screen  # on a phone, they scroll
