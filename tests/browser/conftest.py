"""What every browser test stands on: the real app, Chromium, and a watch over both.

Without Chromium these tests skip; with FDKVC_REQUIRE_BROWSER=1 they fail instead. Every test gets
a browser context of its own. Whatever it looks at, it fails also when the page asks another machine
for anything, and when the app or the browser reports an error. A failed test leaves a picture of
each page in its `tmp_path`.

A machine that is shared may stand still for seconds: a test that failed is tried once more, and the
summary names it. FDKVC_SLOWDOWN=6 slows the browser down six times, which brings to light what only
holds on a fast machine.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from benchmarks.live_app import APP, HOST, NO_CHROMIUM, find_chromium, open_chromium, serve

HERE = Path(__file__).parent
BRIEF = "--js-flags=--no-opt --no-maglev"
"""A page lives for seconds here: compiling it well takes longer than it saves."""

FAILED = pytest.StashKey[bool]()

expect.set_options(timeout=20_000)  # a busy machine is slow, and no less right


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)
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
    with open_chromium(BRIEF) as browser:
        yield browser


@pytest.fixture(scope="package")
def app_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("app") / "log.txt"


@pytest.fixture(scope="package")
def app(chromium: Browser, app_log: Path) -> Iterator[str]:
    """Address of the running app; asks for Chromium first, so as not to start it in vain."""
    with serve(APP, app_log) as address:
        yield address


@pytest.fixture
def context(
    chromium: Browser, app: str, app_log: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[BrowserContext]:
    """Return a fresh browser window whose relative addresses are the app's."""
    context = chromium.new_context(base_url=app, viewport={"width": 1440, "height": 1000})
    context.set_default_timeout(20_000)
    if "FDKVC_SLOWDOWN" in os.environ:
        context.on("page", _slow_down)
    asked: list[str] = []
    troubles: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    context.on("weberror", lambda error: troubles.append(f"error in the browser: {error.error}"))
    said_before = len(app_log.read_text())

    yield context

    troubles += [f"request to another machine: {url}" for url in asked if not _stays(url)]
    for page in context.pages:
        for text in page.locator("[data-testid=stException]").all_inner_texts():
            troubles.append(f"exception on the page: {text}")
    said = app_log.read_text()[said_before:]
    if "Traceback" in said:
        troubles.append(f"error in the app: {said}")
    if troubles or request.node.stash.get(FAILED, False):
        for number, page in enumerate(context.pages):
            page.screenshot(path=tmp_path / f"page{number}.png")
    context.close()
    assert not troubles, "\n".join(troubles)


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


def _slow_down(page: Page) -> None:
    times = float(os.environ["FDKVC_SLOWDOWN"])
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": times})


def _stays(url: str) -> bool:
    """Whether a request stays on this machine; data: and blob: addresses have no host."""
    return urlsplit(url).hostname in {None, HOST, "127.0.0.1"}
