"""What every browser test stands on: the real app, Chromium, and a watch over both.

Without Chromium these tests skip; with FDKVC_REQUIRE_BROWSER=1 they fail instead. One tab of one
window stays open for all of them, since reading the app's scripts anew takes half of a page's time;
what a test stored or set in it is gone before the next, but for the entries of its history. It asks
for less motion, since drawing Streamlit's moving icons takes a fifth of all time; the tests of the
stage ask for all motion once their page is there.
Whatever a test looks at, it fails also when the page asks another machine for anything, and when
the app or the browser reports an error. A failed test leaves a picture of each page in its
`tmp_path`.

A machine that is shared may stand still for seconds: a test that failed is tried once more, and the
summary names it. FDKVC_SLOWDOWN=6 slows the browser down six times, which brings to light what only
holds on a fast machine.
"""

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    ViewportSize,
    expect,
)

from benchmarks.live_app import HOST, NO_CHROMIUM, find_chromium, open_chromium, serve

BRIEF = ("--process-per-site",)
"""All pages share one process, which knows the scripts already."""
WIDE: ViewportSize = {"width": 1440, "height": 1000}

FAILED = pytest.StashKey[bool]()

PATIENCE = 40_000
"""Milliseconds for whatever is waited for: a busy machine is slow, and no less right."""

expect.set_options(timeout=PATIENCE)

NEXT_FRAME = "() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"


def choose_option(box: Locator, option: Locator) -> None:
    """Choose an option of a list.

    An open list closes when the page scrolls, and the browser tells of that only with its next
    frame: so the list is in sight, and a frame passes, before it is opened.
    """
    box.scroll_into_view_if_needed()
    box.page.evaluate(NEXT_FRAME)
    box.click()
    option.click()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/browser/"):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    if find_chromium() is None:
        if os.environ.get("FDKVC_REQUIRE_BROWSER") == "1":
            pytest.fail(NO_CHROMIUM)
        pytest.skip(NO_CHROMIUM)
    with open_chromium(*BRIEF) as browser:
        yield browser


@pytest.fixture(scope="package")
def app_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("app") / "log.txt"


@pytest.fixture(scope="package")
def app(chromium: Browser, app_log: Path) -> Iterator[str]:
    """Address of the running app; asks for Chromium first, so as not to start it in vain."""
    with serve(app_log) as (address, _):
        yield address


@pytest.fixture(scope="package")
def window(chromium: Browser, app: str) -> Iterator[BrowserContext]:
    """The window of all tests, whose relative addresses are the app's, with the tab of all."""
    window = chromium.new_context(base_url=app, viewport=WIDE, reduced_motion="reduce")
    # The browser reads all scripts at first, and the app imports what a page needs. On a busy
    # machine nothing takes longer, and no test should wait for it.
    window.set_default_timeout(6 * PATIENCE)
    tab = window.new_page()
    tab.goto("/dialogs?file=own")
    tab.get_by_role("heading", level=1).wait_for()
    _as_new(window)
    window.set_default_timeout(PATIENCE)
    yield window
    window.close()


@pytest.fixture
def context(
    window: BrowserContext, app_log: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[BrowserContext]:
    """Return the window as if it were new, under watch."""
    troubles: list[str] = []
    watch: dict[str, Callable[[Any], None]] = {
        "request": lambda asked: (
            None if _stays(asked.url) else troubles.append(f"asked another machine: {asked.url}")
        ),
        "weberror": lambda error: troubles.append(f"error in the browser: {error.error}"),
        "console": lambda said: (
            troubles.append(f"the browser says: {said.text}") if _is_error(said) else None
        ),
    }
    if "FDKVC_SLOWDOWN" in os.environ:
        watch["page"] = _slow_down
    for event, heard in watch.items():
        window.on(event, heard)  # type: ignore[call-overload]
    said_before = len(app_log.read_text())

    yield window

    for page in window.pages:
        exceptions = page.locator("[data-testid=stException]").all_inner_texts()
        troubles += [f"exception on the page: {text}" for text in exceptions]
    said = app_log.read_text()[said_before:]
    if "Traceback" in said:
        troubles.append(f"error in the app: {said}")
    if troubles or request.node.stash.get(FAILED, False):
        for number, page in enumerate(window.pages):
            page.screenshot(path=tmp_path / f"page{number}.png")
    for event, heard in watch.items():
        window.remove_listener(event, heard)
    _as_new(window)
    assert not troubles, "\n".join(troubles)


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """Return the tab of all tests."""
    return context.pages[0]


def _as_new(window: BrowserContext) -> None:
    """Leave nothing in the window of what a test opened, stored and set."""
    tab, *others = window.pages
    for page in others:
        page.close()
    tab.goto("/_stcore/health")
    tab.evaluate("localStorage.clear(), sessionStorage.clear()")
    tab.set_viewport_size(WIDE)
    tab.emulate_media(color_scheme="light", reduced_motion="reduce")
    window.clear_cookies()


def _slow_down(page: Page) -> None:
    times = float(os.environ["FDKVC_SLOWDOWN"])
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": times})


def _is_error(said: ConsoleMessage) -> bool:
    """Whether something went wrong; Streamlit asks a page's folder in vain for what is its own."""
    return said.type == "error" and not said.text.startswith("Failed to load resource")


def _stays(url: str) -> bool:
    """Whether a request stays on this machine; data: and blob: addresses have no host."""
    return urlsplit(url).hostname in {None, HOST, "127.0.0.1"}
