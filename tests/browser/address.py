"""What a page has at its address and writes into it, waited for, and its downloads."""

from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from playwright.sync_api import Page, TimeoutError, expect

from benchmarks.live_app import settled


def open_link(page: Page, title: str, **view: object) -> None:
    """Open a page by a link, a stage in full motion; what it leaves out is at its default."""
    name = title.split()[0].lower()
    page.goto(f"/{name}?" + "&".join(f"{part}={value}" for part, value in view.items()))
    expect(page.get_by_role("heading", level=1, name=title)).to_be_visible()
    settled(page)
    if page.locator(".stage").count():
        page.emulate_media(reduced_motion="no-preference")


def downloaded(page: Page, name: str, folder: Path) -> Path:
    """Return the file that the button with this name gives, in a folder."""
    with page.expect_download(timeout=90_000) as waiting:
        page.get_by_role("button", name=name, exact=True).click()
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def expect_linked(page: Page, **parts: object) -> None:
    """Expect these among the parts of the address.

    This hears of every address. Playwright's own expectation looks for it now and then, and writes
    out all of the page each time that it is not there yet.
    """
    asked = {name: str(text) for name, text in parts.items()}
    with suppress(TimeoutError):
        page.wait_for_url(lambda url: asked.items() <= _parts(url).items())
    there = _parts(page.url)
    assert {name: there.get(name) for name in asked} == asked


def _parts(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
