"""The compare page as a person meets it."""

import re
from pathlib import Path

import pandas as pd
from playwright.sync_api import Locator, Page, expect

from benchmarks.live_app import settled
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Trace
from fdkvc.policies import PAPER_POLICIES, POLICIES, policy_named
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import scenario_named
from tests.browser.address import downloaded, expect_linked, open_link

KEPT = re.compile(r"\btoken (\d+), topic [^,]+, from turn \d+, (?:new, evicted|evicted|(new|kept))")
SCENARIO = scenario_named("shift")
DIALOG = generate(SCENARIO, 1, 7)
LAST = len(SCENARIO.schedule) - 1


def open_compare(page: Page, **view: object) -> None:
    open_link(page, "Compare", **view)
    expect(lane(page, 1)).to_be_visible()
    settled(page)


def lanes(page: Page) -> Locator:
    return page.locator(".stage").get_by_role("region")


def lane(page: Page, number: int) -> Locator:
    return lanes(page).nth(number - 1)


def kept(page: Page, number: int) -> set[int]:
    """Read the cache of a lane off the names of its entries, as a screen reader would."""
    names = (
        lane(page, number)
        .get_by_role("option")
        .evaluate_all("all => all.map(each => each.getAttribute('aria-label'))")
    )
    told = (KEPT.search(name) for name in names)
    return {int(match[1]) for match in told if match and match[2]}


def entry(page: Page, number: int, token: int) -> Locator:
    return lane(page, number).get_by_role("option", name=re.compile(rf"^token {token},"))


def why(page: Page, label: str) -> Locator:
    """Return what is said of the entry in one lane."""
    said = page.get_by_role("complementary", name="Why").locator("section")
    return said.filter(has=page.get_by_role("heading", name=label, exact=True))


def decided(trace: Trace, turn: int) -> set[int]:
    return set(trace.kept_tokens[0, turn].tolist()) - {-1}


def expect_turn(page: Page, turn: int) -> None:
    """Expect that slider, link and every lane stand at this turn."""
    expect_linked(page, turn=turn)
    expect(page.get_by_role("slider", name="Turn")).to_have_value(f"{turn}")
    for locator in lanes(page).all():
        expect(locator.locator(".options")).to_have_attribute("data-turn", f"{turn}")


def test_four_policies_are_compared_in_step(page: Page) -> None:
    traces = [simulate(policy_named(key), DIALOG, 56) for key in PAPER_POLICIES]
    page.set_viewport_size({"width": 1440, "height": 900})
    open_compare(page, scenario="shift", seed=7)
    expect_turn(page, 4)  # the turn after B has come
    for number in range(1, 5):
        expect(lane(page, number)).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("complementary", name="Why")).to_be_in_viewport(ratio=1)
    below = page.get_by_role("heading", name="The whole run in figures")
    place = below.bounding_box()

    for key, turn in (("ArrowRight", 5), ("End", LAST), ("ArrowLeft", LAST - 1), ("Home", 0)):
        page.keyboard.press(key)
        expect_turn(page, turn)
    page.get_by_role("button", name="Last").click()
    expect_turn(page, LAST)
    assert below.bounding_box() == place  # nothing has moved

    for number, trace in enumerate(traces, 1):
        assert kept(page, number) == decided(trace, LAST)
    shared = len(decided(traces[2], LAST) & decided(traces[3], LAST))
    expect(page.get_by_text(f"After turn {LAST} both keep {shared} of the")).to_be_visible()

    page.keyboard.press("p")  # from the first again
    expect(page.get_by_role("slider", name="Turn")).to_have_value(re.compile("[1-5]"))
    page.get_by_text("Tokens and noise").click()
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    expect_turn(page, int(page.get_by_role("slider", name="Turn").input_value()))


def test_an_entry_is_picked_in_one_lane_followed_in_all_and_pinned(page: Page) -> None:
    open_compare(page, scenario="shift", seed=7, policies="fifo,h2o", turn=2)

    entry(page, 1, 70).hover()
    expect(why(page, "FIFO")).to_contain_text("kept")
    expect(why(page, "FIFO")).not_to_contain_text("Token 70")  # it is not held yet
    entry(page, 1, 70).click()
    for label in ("FIFO", "H2O"):
        expect(why(page, label)).to_contain_text("Token 70")
    for number in (1, 2):
        expect(entry(page, number, 70)).to_have_attribute("aria-selected", "true")
    expect_linked(page, entry=70)
    page.keyboard.press("ArrowRight")
    expect(why(page, "FIFO")).to_contain_text(
        re.compile("evicted in this turn.*because the cache was full")
    )
    page.keyboard.press("ArrowRight")
    expect(why(page, "FIFO")).to_contain_text("evicted in turn 3rank 58 of 88")
    page.keyboard.press("Escape")
    expect_linked(page, entry="")

    expect(page.get_by_role("heading", name="Kept in turn 4, by topic")).to_be_visible()
    for _ in range(2):
        page.keyboard.press("ArrowLeft")
    expect_turn(page, 2)
    box = page.get_by_role("listbox", name="Entries in H2O")
    box.focus()
    page.keyboard.press("End")  # the last of the lane, by the keys alone
    chosen = box.get_attribute("aria-activedescendant")
    page.keyboard.press("Enter")
    expect(box.locator(f"#{chosen}")).to_have_attribute("aria-selected", "true")
    entry(page, 1, 70).click()
    expect_linked(page, entry=70)


def test_the_link_of_a_comparison_opens_it_in_another_window_where_it_downloads_as_one_table(
    page: Page, tmp_path: Path
) -> None:
    open_compare(page, scenario="shift", seed=7, policies="h2o,fd-kvc:gamma=0.8,fd-kvc", turn=4)
    page.get_by_role("button", name="Next", exact=True).click()
    expect_turn(page, 5)
    seen = [kept(page, number) for number in (1, 2, 3)]

    other = page.context.new_page()
    other.goto(page.url)

    expect(lanes(other)).to_have_count(3)
    expect_turn(other, 5)
    assert [kept(other, number) for number in (1, 2, 3)] == seen

    settled(other)
    other.get_by_role("button", name="Download", exact=True).click()
    table = pd.read_csv(downloaded(other, "entries.csv", tmp_path))
    names = ["h2o", "fd-kvc", "fd-kvc gamma=0.8"]
    assert list(table)[:6] == ["policy", "dialog", "budget", "version", "turn", "token"]
    assert table["policy"].unique().tolist() == names
    stays = table[table["status"].isin(["kept", "new"])]
    trace = simulate(policy_named("fd-kvc", gamma=0.8), DIALOG, 56)
    for turn in range(LAST + 1):
        rows = stays[(stays["policy"] == names[2]) & (stays["turn"] == turn)]
        assert set(rows["token"]) == decided(trace, turn)

    other.goto(downloaded(other, "Save this scene", tmp_path).as_uri())
    expect(other.locator('.options[data-turn="5"]')).to_have_count(3)
    assert [kept(other, number) for number in (1, 2, 3)] == seen


def test_on_a_narrow_window_nothing_runs_over_the_edge(page: Page) -> None:
    page.set_viewport_size({"width": 800, "height": 1000})
    policies = [*list(POLICIES)[:5], "blocks(fifo,size=24)"]
    open_compare(page, scenario="complex", policies=",".join(policies), turn=5)

    for width in (800, 390):
        page.set_viewport_size({"width": width, "height": 1000})
        settled(page)
        shown = page.locator(".stage, .stage .cells, [data-testid=stVegaLiteChart], .scrolls")
        right = "all => Math.max(...all.map(each => each.getBoundingClientRect().right))"
        assert shown.evaluate_all(right) <= width
    paged = "2 of 2 pages of 24 · no slots empty in them · 8 of the budget left over"
    expect(lane(page, 6)).to_contain_text(paged)
    rows: dict[str, set[float]] = {}
    for option in lane(page, 6).get_by_role("option", name=re.compile("page [67],")).all():
        name, box = option.get_attribute("aria-label"), option.bounding_box()
        assert name is not None
        assert box is not None
        rows.setdefault(name.split(", ")[-2], set()).add(box["y"])
    assert list(rows) == ["page 6", "page 7"]
    assert max(rows["page 6"]) < min(rows["page 7"])  # each by itself
    entry(page, 2, 150).click()
    sheet = page.get_by_role("complementary", name="Why")
    expect(sheet.locator("header")).to_be_in_viewport(ratio=1)  # beside the entry, no scrolling
    expect(why(page, "FIFO")).not_to_be_visible()
    page.get_by_role("button", name="Show why in each lane").click()
    expect(why(page, "FIFO")).to_be_in_viewport()
    assert sheet.evaluate("each => each.getBoundingClientRect().height <= innerHeight / 3")
