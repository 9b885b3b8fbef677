"""What a person asks of the step page: play, scrub, why, what if, and what a wrong link says."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect
from test_step_page import WRONG

from benchmarks.live_app import settled
from browser.test_step import cache, expect_turn, open_step
from fdkvc.dialogs.draw import generate
from fdkvc.dialogs.scenarios import scenario_named
from fdkvc.policies import POLICIES, policy_named
from fdkvc.run.simulate import simulate
from fdkvc.told.explain import explain, sentences
from fdkvc.ui.policies import option_steps

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
    every = {f"{turn} of 19" for turn in range(1, 20)}
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.get_by_role("button", name="Play")).to_be_visible(timeout=60_000)
    expect_turn(page, 19, 19)
    shown = set(page.evaluate("() => [...window.shownTurns]"))
    assert every <= shown


def test_the_slider_goes_to_any_turn(page: Page) -> None:
    open_step(page, scenario="mixed", seed=7)
    slider = page.get_by_role("slider", name="Turn")
    slider.focus()
    for _ in range(3):
        slider.press("ArrowRight")

    expect_turn(page, 3, 11)
    page.get_by_role("button", name="Next").click()
    expect_turn(page, 4, 11)
    slider.press("End")
    page.get_by_role("button", name="Back").click()
    expect_turn(page, 10, 11)


def test_the_views_follow_the_slider_while_it_is_dragged(page: Page) -> None:
    open_step(page, scenario="mixed", seed=7)
    slider = page.get_by_role("slider", name="Turn")
    box = slider.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2

    page.mouse.move(box["x"] + 8, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, middle, steps=8)
    expect(page.get_by_role("status").first).to_contain_text(re.compile("[56] of 11"))
    page.mouse.move(box["x"] + box["width"] + 20, middle, steps=8)
    expect_turn(page, 11, 11)
    page.mouse.up()

    expect_turn(page, 11, 11)


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


def test_another_dialog_and_policy_after_an_entry_was_picked(page: Page) -> None:
    """Every view follows, also where a policy has no states: as in a page opened anew."""
    open_step(page, scenario="complex", seed=7, policy="snapkv", turn=5, entry=100)
    page.get_by_role("button", name="Another dialog").click()
    expect(page.get_by_role("spinbutton", name="Seed")).to_have_value("8")
    page.get_by_role("button", name="Next").click()
    expect_turn(page, 6, 19)
    page.get_by_role("combobox", name="Policy").click()
    page.get_by_role("option", name="H2O", exact=True).click()
    expect(page).to_have_url(re.compile("policy=h2o"))
    expect_turn(page, 6, 19)
    settled(page)
    fresh = page.context.new_page()
    fresh.goto(page.url)
    expect_turn(fresh, 6, 19)
    settled(fresh)

    drawn = "marks => marks.map(mark => mark.getAttribute('d') + mark.getAttribute('fill')).sort()"
    shown, again = (
        window.locator(".st-key-panel-timeline svg path").evaluate_all(drawn)
        for window in (page, fresh)
    )
    assert len(shown) > 50
    assert shown == again


def widths(equations: Locator) -> dict[str, float]:
    """Return how wide each equation is by itself, whatever room it has."""
    measured: dict[str, float] = equations.evaluate_all(
        """all => Object.fromEntries(all.map(each => {
          const boxes = [...each.querySelectorAll('.base')].map(b => b.getBoundingClientRect());
          const left = Math.min(...boxes.map(box => box.left));
          return [each.textContent, Math.max(...boxes.map(box => box.right)) - left];
        }))"""
    )
    return measured


def test_no_equation_is_cut_and_no_number_broken_on_a_small_screen(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    open_step(page, turn=4, policy="fd-kvc", kappa=1, recall=1, window=0.5)
    algorithm = page.locator(".st-key-algorithm")
    expect(algorithm.locator(".numbers span").first).to_be_attached()
    equations = algorithm.locator(".katex-display")
    expect(equations).to_have_count(9)
    room = equations.first.evaluate("each => each.clientWidth")
    shown = widths(equations)
    assert equations.evaluate_all("all => all.every(each => each.scrollWidth <= each.clientWidth)")
    assert algorithm.locator(".numbers span").evaluate_all(
        "all => all.every(each => each.getClientRects().length == 1)"
    )

    page.goto("/policies")  # which sets out all equations of all policies, as large
    settled(page)
    page.locator("summary").evaluate_all("all => all.forEach(each => each.click())")
    everywhere = page.locator("details .katex-display")
    policies = [policy_named(key) for key in POLICIES]
    options = [each for policy in policies for each in option_steps(policy).values()]
    expect(everywhere).to_have_count(
        sum(map(len, options)) + sum(len(policy.steps) for policy in policies)
    )
    expect(everywhere.last).to_be_visible()
    shown |= widths(everywhere)
    assert min(shown.values()) > 0
    assert {name: wide for name, wide in shown.items() if wide > room} == {}


def test_a_wrong_link_is_explained_and_the_page_works(page: Page) -> None:
    page.goto("/?" + "&".join(f"{name}={value}" for name, value, _ in WRONG))

    for _, _, sentence in WRONG:
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
