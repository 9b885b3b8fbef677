"""Back and Forward move between what a person chose, and the page follows."""

import re

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect
from streamlit.proto.BackMsg_pb2 import BackMsg

from benchmarks.live_app import settled
from fdkvc.policies import POLICIES
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.browser.address import expect_linked
from tests.browser.conftest import choose_option

# The browser names its session when it comes again; here it does not, so that the server begins
# another, as it does after a restart.
FORGET = """
window.sockets = [];
window.WebSocket = class extends WebSocket {
  said = [];
  heard = 0;
  constructor(url, protocols) {
    super(url, protocols.slice(0, 2));
    this.addEventListener('message', () => { this.heard += 1; });
    sockets.push(this);
  }
  send(said) { this.said.push(said); super.send(said); }
};
"""


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """Return a tab whose history begins with the test."""
    return context.new_page()


def entries(page: Page) -> int:
    """Return how many entries the browser's history has."""
    return int(page.evaluate("history.length"))


def control(page: Page, label: str) -> Locator:
    """Return one of the sidebar's lists."""
    return page.get_by_test_id("stSidebar").get_by_role("combobox", name=label, exact=True)


def choose(page: Page, label: str, option: str) -> None:
    box = control(settled(page), label)
    choose_option(box, page.get_by_role("option", name=option, exact=True))


def step_to(page: Page, *turns: int) -> None:
    """Press Next, and expect one turn after the other."""
    for turn in turns:
        page.get_by_role("button", name="Next", exact=True).click()
        expect_linked(page, turn=turn)


def expect_view(page: Page, turn: int, scenario: str, policy: str) -> None:
    """Expect the page to show this, its controls to say so, and its address to be of it."""
    expect_linked(page, turn=turn, scenario=scenario, policy=policy)
    expect(page.locator(".stage .where")).to_have_text(re.compile(f"^{turn} of "))
    expect(page.locator(".figures")).to_have_attribute(
        "aria-label", re.compile(f"^Turn {turn} of ")
    )
    expect(control(page, "Scenario")).to_have_value(SCENARIOS[scenario].label)
    expect(control(page, "Policy")).to_have_value(POLICIES[policy].label)


def test_back_and_forward_move_between_what_was_chosen_also_after_a_reload(page: Page) -> None:
    page.goto("/step?turn=4&embed_options=light_theme")
    settled(page)
    before = entries(page)
    step_to(page, 5)
    assert entries(page) == before

    choose(page, "Policy", "H2O")
    expect_view(page, 5, "mixed", "h2o")
    choose(page, "Scenario", SCENARIOS["shift"].label)
    expect_view(page, 5, "shift", "h2o")
    step_to(page, 6)
    assert entries(page) == before + 2

    page.go_back()
    expect_view(page, 5, "mixed", "h2o")
    page.go_back()
    expect_view(page, 5, "mixed", "fd-kvc")
    page.go_forward()
    expect_view(page, 5, "mixed", "h2o")
    page.go_forward()
    expect_view(page, 6, "shift", "h2o")
    assert entries(page) == before + 2

    page.go_back()
    expect_view(page, 5, "mixed", "h2o")
    step_to(page, 6)
    choose(page, "Policy", "FIFO")
    expect_view(page, 6, "mixed", "fifo")
    page.reload()
    expect_view(page, 6, "mixed", "fifo")
    expect_linked(page, embed_options="light_theme")
    page.go_back()
    expect_view(page, 6, "mixed", "h2o")


def test_back_and_forward_go_from_page_to_page(page: Page) -> None:
    page.goto("/step?scenario=shift&policy=h2o&turn=3")
    expect_view(page, 3, "shift", "h2o")
    before = entries(page)
    page.get_by_role("link", name="Compare", exact=True).click()
    expect_linked(page, policies="fifo,sink,h2o,fd-kvc", scenario="shift", turn=3)
    choose(page, "Scenario", SCENARIOS["return"].label)
    expect_linked(page, scenario="return")
    page.get_by_role("link", name="About", exact=True).click()
    expect(page.get_by_role("heading", name="About")).to_be_visible()
    assert entries(page) == before + 3

    page.go_back()
    expect(page.get_by_role("heading", name="Compare")).to_be_visible()
    expect(control(page, "Scenario")).to_have_value(SCENARIOS["return"].label)
    page.go_back()
    expect_linked(page, policies="fifo,sink,h2o,fd-kvc", scenario="shift")
    expect(control(page, "Scenario")).to_have_value(SCENARIOS["shift"].label)
    page.go_back()
    expect_view(page, 3, "shift", "h2o")
    settled(page).go_forward()
    expect(page.get_by_role("heading", name="Compare")).to_be_visible()
    expect_linked(page, policies="fifo,sink,h2o,fd-kvc", scenario="shift")
    assert entries(page) == before + 3


def test_back_comes_from_a_file_that_is_not_there_yet(page: Page) -> None:
    page.goto("/dialogs?budget=40")
    expect_linked(page, file="rental", budget=40)
    choose(page, "File", "A file of my own …")
    expect_linked(page, file="own")

    page.go_back()

    expect_linked(page, file="rental", budget=40)
    expect(control(page, "File")).to_have_value("Example: an agent at a bike rental")
    expect(page.get_by_role("listbox", name="Transcript")).to_be_visible()


def test_neither_a_server_that_forgot_nor_a_late_step_takes_anything_back(page: Page) -> None:
    page.add_init_script(FORGET)
    page.goto("/step?scenario=shift&turn=3")
    expect_view(page, 3, "shift", "fd-kvc")
    step_to(page, 4)
    choose(page, "Policy", "H2O")
    expect_view(page, 4, "shift", "h2o")
    before = entries(page)

    page.evaluate("sockets.at(-1).close()")
    page.wait_for_function("sockets.length > 1 && sockets.at(-1).readyState === WebSocket.OPEN")
    choose(page, "Policy", "FIFO")
    page.wait_for_function("sockets.at(-1).said.length > 1")  # the choice, and the address
    settled(page)
    expect_view(page, 4, "shift", "h2o")
    assert entries(page) == before

    step_to(page, 5)
    settled(page).evaluate("socket = sockets.at(-1), late = socket.said.at(-1)")
    choose(page, "Policy", "FIFO")
    expect_view(page, 5, "shift", "fifo")
    settled(page).evaluate("heard = socket.heard, socket.send(late)")
    page.wait_for_function("socket.heard > heard")
    settled(page)
    expect_linked(page, policy="fifo")


def test_the_stage_says_nothing_more_while_another_page_opens(page: Page) -> None:
    page.add_init_script(FORGET)
    page.goto("/step?scenario=mixed&seed=3")
    expect(page.locator(".stage .why")).to_contain_text("All settings and the values tried")
    settled(page).evaluate(
        """() => {
          const socket = sockets.at(-1), { answer: { run, turn, entry }, tell } = fdkvcStage;
          socket.send = (page) => {
            delete socket.send;
            socket.send(page);
            setTimeout(() => tell.answer({ run, turn, entry: entry + 1 }), 10);
          };
        }"""
    )
    page.get_by_role("link", name="Story").first.click()
    expect(page.get_by_role("heading", name="Story", level=1)).to_be_visible()
    page.wait_for_timeout(1_000)
    expect(page.locator(".stage .where")).to_be_visible()
    expect(page.get_by_role("heading", name="Story", level=1)).to_be_visible()


def test_what_a_person_asked_does_not_follow_them_to_the_next_page(page: Page) -> None:
    """A run of the page before that begins after the next page's leaves the window blank."""
    asked: list[str | bytes] = []  # a bound method is no handler
    page.on("websocket", lambda socket: socket.on("framesent", lambda sent: asked.append(sent)))
    page.goto("/")
    expect(page.locator(".why header")).to_contain_text("evicted in turn 4")  # not "0 of 1"
    page.get_by_role("button", name="Put “Rosalind” back").click()
    expect(page.get_by_label("H2O").get_by_text("Rosalind's birthday")).to_be_visible()
    settled(page)
    asked.clear()
    page.get_by_test_id("stMain").get_by_role("link", name="Check the paper").click()
    expect(page.get_by_role("heading", level=1, name="Benchmark")).to_be_visible()
    expect_linked(page, section="claims", budget=56)
    pages = [message.rerun_script.page_script_hash for message in map(BackMsg.FromString, asked)]
    assert len({*pages}) == 1
