"""What a person asks of the step page: play, scrub, why, and what a wrong link says."""

import re

from playwright.sync_api import BrowserContext, Locator, Page, expect

from benchmarks.live_app import settled
from fdkvc.engine.simulate import simulate
from fdkvc.explain.counterfactual import counterfactual, nearest_first
from fdkvc.explain.decisions import explain, sentences, turn_view
from fdkvc.policies import POLICIES, WRAPPERS, policy_named, wrapped
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import scenario_named
from fdkvc.tour.chapters import TITLES, Chapter
from fdkvc.tour.story import story_chapters
from tests.browser.address import expect_linked, open_link
from tests.browser.test_every_page import PHONE
from tests.browser.test_history import choose
from tests.browser.test_step import cache, entry, expect_turn, why

DIALOG = generate(scenario_named("mixed"), 1, 7)


def test_playing_shows_every_turn_and_makes_no_entries_of_the_history(
    context: BrowserContext,
) -> None:
    page = context.new_page()  # has a history of its own
    open_link(page, "Step through", scenario="complex", seed=7, turn=0)
    before = page.evaluate("history.length")
    page.evaluate(
        """() => {
          const shown = new Set(); window.shownTurns = shown;
          const look = () => {
            shown.add(document.querySelector('.stage .where')?.textContent);
          };
          new MutationObserver(look).observe(document.body,
            {subtree: true, childList: true, characterData: true});
        }"""
    )
    page.get_by_role("combobox", name="Speed").select_option("10 turns a second")
    every = {f"{turn} of 19" for turn in range(1, 20)}
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_role("button", name="Play").wait_for(timeout=60_000)
    expect_turn(page, 19, 19)
    shown = set(page.evaluate("() => [...window.shownTurns]"))
    assert every <= shown
    assert page.evaluate("history.length") == before


ACTIVE = "list => document.getElementById(list.getAttribute('aria-activedescendant')).ariaLabel"


def seen(page: Page) -> str:
    """Return all text of the stage that is in sight: inside the window, and nothing over it."""
    text: str = page.locator(".stage").evaluate(
        """stage => {
          const walk = document.createTreeWalker(stage, NodeFilter.SHOW_TEXT), said = [];
          while (walk.nextNode()) {
            const range = document.createRange();
            range.selectNodeContents(walk.currentNode);
            for (const box of range.getClientRects()) {
              const inside = box.top >= 0 && box.bottom <= innerHeight && box.right <= innerWidth;
              const x = box.left + box.width / 2, y = box.top + box.height / 2;
              const top = inside && document.elementFromPoint(x, y);
              if (top && walk.currentNode.parentElement.contains(top)) {
                said.push(walk.currentNode.data);
                break;
              }
            }
          }
          return said.join(' ').replace(/\\s+/g, ' ');
        }"""
    )
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop") == 0
    return text


def test_both_questions_are_answered_within_three_actions_and_without_scrolling(page: Page) -> None:
    """Why was this entry evicted, and what would have kept it? Why did H2O keep the stale topic?"""
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/step")
    trace = simulate(policy_named("fd-kvc"), DIALOG, 56)
    expect_turn(page, 3, 11)
    (token,) = re.findall(r"token (\d+)", why(page).locator("header").inner_text())
    best = nearest_first(counterfactual(trace, DIALOG, 0, 3, int(token)))[0]
    expect(why(page).locator(".changes")).to_be_visible()
    text = seen(page)  # after no action at all
    for sentence in sentences(explain(trace, DIALOG, 0, 3, int(token))):
        assert sentence in text
    assert "What would have kept it?" in text
    assert f"{best.label} {best.current_value:g} → {best.reversing_value:g}" in text
    assert "recency" in text.lower().partition("margin")[2]
    assert "Where its score came from" in text

    choose(page, "Policy", "H2O")
    expect_linked(page, policy="h2o")
    expect_turn(page, 3, 11)
    stale = cache(page).get_by_role("option", name=re.compile("topic A, from turn 0, kept")).first
    stale.click()

    trace = simulate(policy_named("h2o"), DIALOG, 56)
    expect(why(page).locator("header")).to_contain_text("topic A · from turn 0")
    (token,) = re.findall(r"token (\d+)", why(page).locator("header").inner_text())
    expect(why(page).locator(".in-words")).to_contain_text("The best evicted entry scored")
    expect(why(page).locator(".changes")).to_be_visible()
    text = seen(page)
    assert "What would have evicted it?" in text
    for sentence in sentences(explain(trace, DIALOG, 0, 3, int(token))):
        assert sentence in text
    assert "built up over 4 turns" in text


def test_every_entry_is_reached_by_keys_says_what_it_is_and_why_it_went(page: Page) -> None:
    trace = simulate(policy_named("fd-kvc"), DIALOG, 56)
    token = 11
    expected = sentences(explain(trace, DIALOG, 0, 5, token))
    best = nearest_first(counterfactual(trace, DIALOG, 0, 5, token))[0]
    open_link(page, "Step through", scenario="mixed", seed=7, turn=5)
    page.emulate_media(reduced_motion="reduce")
    expect(why(page)).to_contain_text("Turn 5 by topic")

    entry(page, token).hover()
    expect(why(page).locator("header")).to_contain_text(f"token {token}")
    entry(page, token).click()

    for sentence in expected:
        expect(why(page)).to_contain_text(sentence)
    expect_linked(page, entry=token)
    expect(why(page).locator(".changes")).to_contain_text(best.label)
    why(page).get_by_text("All settings").click()
    expect(why(page)).to_contain_text(best.words)
    page.keyboard.press("Escape")
    expect(why(page)).to_contain_text("Turn 5 by topic")
    expect_linked(page, entry="")

    expect(cache(page).get_by_role("option")).to_have_count(88)
    names = (
        cache(page)
        .get_by_role("option")
        .evaluate_all("all => all.map(each => each.getAttribute('aria-label'))")
    )
    made = turn_view(trace, DIALOG, 0, 5)
    ranks = dict(zip(made.token, made.rank, strict=True))
    for name in names:
        token = int(name.split()[1].strip(","))
        assert name.endswith(f"rank {ranks[token]} of 88")

    cache(page).focus()
    heard = set()
    for key in ["Home", *["ArrowRight"] * 87, "ArrowUp", "ArrowLeft", "ArrowDown"]:
        page.keyboard.press(key)
        heard.add(cache(page).evaluate(ACTIVE))
    assert heard == set(names)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"[?&]entry=\d+(&|$)"))
    expect_turn(page, 5, 11)


def test_another_dialog_and_policy_after_an_entry_was_picked(page: Page) -> None:
    """What is said follows, also where a policy has no states: as in a page opened anew.

    Entries and curves have the previous run beside them, which a page opened anew has not.
    """
    open_link(page, "Step through", scenario="complex", seed=7, policy="snapkv", turn=5, entry=100)
    seed = page.get_by_role("spinbutton", name="Seed")
    seed.fill("8")
    seed.press("Enter")
    expect_linked(page, seed=8)
    page.get_by_role("button", name="Next", exact=True).click()
    expect_turn(page, 6, 19)
    choose(page, "Policy", "H2O")
    expect_linked(page, policy="h2o")
    expect_turn(page, 6, 19)
    settled(page)
    fresh = page.context.new_page()
    fresh.goto(page.url)
    expect_turn(fresh, 6, 19)
    settled(fresh)

    for window in (page, fresh):
        expect(why(window).locator(".changes")).to_be_visible()
        expect(why(window).locator(".in-words")).to_contain_text("token 100", ignore_case=True)
    course = "canvas => canvas.toDataURL()"
    shown, again = (
        [why(window).locator("canvas.course").evaluate(course), why(window).inner_text()]
        for window in (page, fresh)
    )
    assert shown == again
    said, alone = (window.locator(".stage .headline").inner_text() for window in (page, fresh))
    assert said.startswith(alone.removesuffix("."))


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
    open_link(page, "Step through", turn=4, policy="window(fd-kvc-adaptive)")
    algorithm = page.locator(".st-key-algorithm")
    expect(algorithm.locator(".numbers span").first).to_be_attached()
    expect(algorithm.get_by_text("Eq. 1", exact=True)).to_be_visible()
    expect(algorithm.locator(".katex-display")).to_have_count(0)  # closed, a line each
    algorithm.locator("summary").evaluate_all("all => all.forEach(each => each.click())")
    equations = algorithm.locator(".katex-display")
    expect(equations).to_have_count(8)
    room = equations.first.evaluate("each => each.clientWidth")
    shown = widths(equations)
    assert equations.evaluate_all("all => all.every(each => each.scrollWidth <= each.clientWidth)")
    assert algorithm.locator(".numbers span").evaluate_all(
        "all => all.every(each => each.getClientRects().length == 1)"
    )

    page.goto("/policies")  # which sets out all equations of all policies, as large
    settled(page)
    page.get_by_test_id("stMain").locator("label", has_text=re.compile(r"\d+ more")).click()
    settled(page)
    page.locator("summary").evaluate_all("all => all.forEach(each => each.click())")
    everywhere = page.locator("details .katex-display")
    policies = [policy_named(key) for key in POLICIES]
    policies += [wrapped(key, policy_named("fifo")) for key in WRAPPERS]
    expect(everywhere).to_have_count(sum(len(policy.steps) for policy in policies))
    expect(everywhere.last).to_be_visible()
    shown |= widths(everywhere)
    assert min(shown.values()) > 0
    assert {name: wide for name, wide in shown.items() if wide > room} == {}


def expect_scene(page: Page, chapter: Chapter) -> None:
    """Expect the panels of the scene in sight, and phrases that light up what they name."""
    expect(page.locator(".stage .where")).to_have_text(re.compile(f"^{chapter.turn} of "))
    panels = page.locator(".stage .panel:not([hidden])")
    expect(panels).to_have_count(len(chapter.shows.split()))
    for panel in chapter.shows.split():
        expect(page.locator(f".stage .{panel}")).to_be_visible()
    if "why" in chapter.shows:
        expect(page.locator(".stage .why header")).to_contain_text(f"token {chapter.token}")
    frame = page.locator(".stage .frame").bounding_box()
    assert frame is not None
    assert frame["y"] + frame["height"] <= 900
    for phrase in page.locator("mark[data-lights]").all():
        name = phrase.get_attribute("data-lights") or ""
        phrase.focus()
        if not name.isdecimal():
            expect(page.locator(f".stage .{name}.lit")).to_have_count(1)
    page.get_by_role("button", name="Next scene").focus()
    expect(page.locator(".stage .lit")).to_have_count(0)


def test_the_story_leads_through_its_scenes_by_keyboard_and_fits_the_window(page: Page) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    open_link(page, "Step through", scenario="mixed", seed=3)
    page.get_by_test_id("stSidebarNav").get_by_role("link", name="Story").click()
    ahead, places = page.get_by_role("button", name="Next scene"), []
    for number, chapter in enumerate(story_chapters(), 1):
        page.get_by_role("heading", name=f"{number} of 7 · {TITLES[number - 1]}").wait_for()
        page.get_by_text(chapter.sentences[0]).wait_for()
        settled(page)
        places.append(ahead.bounding_box())
        if chapter.run is not None:
            expect_scene(page, chapter)
        if number < len(story_chapters()):
            ahead.focus()
            page.keyboard.press("Enter")
    expect(ahead).to_be_disabled()
    assert places == places[:1] * len(places), "the button that leads on stays where it is"
    page.get_by_test_id("stSidebarNav").get_by_text("Step through").click()
    expect_linked(page, scenario="mixed", seed=3)  # as it was before

    page.set_viewport_size(PHONE)
    page.goto("/story?scene=2")
    page.get_by_role("heading", name="2 of 7").wait_for()
    settled(page)
    trial = page.get_by_test_id("stMain").get_by_role("link").first
    assert trial.evaluate("(link) => link.scrollWidth - link.clientWidth") <= 0
    places = []
    for _ in range(4):
        page.keyboard.press("Tab")
        places.append(page.evaluate("document.activeElement.closest('.stSidebar')?.tagName"))
    assert places == [None] * 4, "what is out of sight takes no focus"
