"""What a person asks of the step page: play, scrub, why, what if, and what a wrong link says."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from browser.test_step import cache, expect_turn, open_step
from fdkvc.dialogs import generate, scenario_named
from fdkvc.explain import explain, sentences
from fdkvc.policies import policy_named
from fdkvc.simulate import simulate

DIALOG = generate(scenario_named("mixed"), 1, 7)


def test_playing_shows_every_turn(page: Page) -> None:
    open_step(page, scenario="complex", seed=7)
    page.evaluate(
        """() => {
          const shown = new Set(); window.shownTurns = shown;
          const look = () => {
            const status = document.querySelector('[role=status] b');
            if (status) shown.add(status.textContent);
          };
          new MutationObserver(look).observe(document.body,
            {subtree: true, childList: true, characterData: true});
        }"""
    )
    page.get_by_role("combobox", name="Speed").click()
    page.get_by_role("option", name="5 turns a second").click()
    page.get_by_role("button", name="Play").click()

    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.get_by_role("button", name="Play")).to_be_visible(timeout=60_000)
    expect_turn(page, 19, 19)
    shown = page.evaluate("() => [...window.shownTurns]")
    assert {f"{turn} of 19" for turn in range(1, 20)} <= set(shown)


def test_the_slider_goes_to_any_turn(page: Page) -> None:
    open_step(page, scenario="mixed", seed=7)
    slider = page.get_by_role("slider", name="Turn")
    slider.focus()
    for _ in range(3):
        slider.press("ArrowRight")

    expect_turn(page, 3, 11)


def test_a_click_on_an_entry_tells_why_it_went(page: Page) -> None:
    trace = simulate(policy_named("fd-kvc"), DIALOG, 56)
    token = 11
    expected = sentences(explain(trace, DIALOG, 0, 5, token))
    open_step(page, scenario="mixed", seed=7, turn=5)

    cache(page).get_by_label(re.compile(rf"^token {token} ·")).first.click()

    expect(page.get_by_text(expected[0])).to_be_visible()
    expect(page).to_have_url(re.compile(rf"[?&]entry={token}(&|$)"))
    page.get_by_text("What would have kept it?").click()
    expect(
        page.get_by_text(re.compile("The smallest change|No change of a single"))
    ).to_be_visible()


def test_a_changed_hyperparameter_is_marked_and_restored(page: Page) -> None:
    open_step(page, scenario="mixed", seed=7, turn=11)
    gamma = page.get_by_role("spinbutton", name=re.compile("Recency decay"))
    gamma.fill("0.7")
    gamma.press("Enter")

    expect(page.get_by_text("changed from 0.88")).to_be_visible()
    expect(page).to_have_url(re.compile(r"[?&]gamma=0\.7(&|$)"))
    page.get_by_role("button", name="Restore the paper's").click()
    expect(page.get_by_text("changed from 0.88")).to_have_count(0)
    expect(gamma).to_have_value("0.88")


@pytest.mark.parametrize(
    ("link", "sentence"),
    [
        ("gamma=7", "must be a number above 0 and below 1"),
        ("policy=lru", "must be one of fifo"),
        ("budget=0", "must be a whole number from 1 to"),
        ("colour=red", "'colour' that means nothing here"),
    ],
)
def test_a_wrong_link_is_explained_and_the_page_works(page: Page, link: str, sentence: str) -> None:
    page.goto(f"/?{link}")

    expect(page.get_by_text(sentence)).to_be_visible()
    expect_turn(page, 0, 11)
    page.get_by_role("button", name="Next").click()
    expect_turn(page, 1, 11)


def test_bad_input_is_explained_at_its_control(page: Page) -> None:
    open_step(page, scenario="own", schedule="AAB", seed=7)
    schedule = page.get_by_role("textbox", name="Own schedule")
    schedule.fill("AA1")
    schedule.press("Enter")
    expect(page.get_by_text("must be letters A to Z")).to_be_visible()
    expect_turn(page, 0, 2)

    budget = page.get_by_role("spinbutton", name="Budget")
    budget.fill("0")
    budget.press("Enter")
    expect(page.get_by_text("Budget is 0, but must be a whole number from 1")).to_be_visible()
    page.get_by_role("button", name="Last").click()
    expect_turn(page, 2, 2)


def test_the_walk_leads_through_its_stops(page: Page) -> None:
    open_step(page, scenario="mixed", seed=3)
    page.get_by_role("button", name="Guided walk").click()
    for stop in range(1, 7):
        expect(page.get_by_text(f"Stop {stop} of 7.")).to_be_visible()
        page.get_by_role("button", name="Next stop").click()
    expect(page.get_by_text("Stop 7 of 7.")).to_be_visible()
    expect(page.locator(".figures")).to_contain_text("9 of 9")
    page.get_by_role("button", name="End the walk").click()
    expect(page.get_by_role("button", name="Guided walk")).to_be_visible()
