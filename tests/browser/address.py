"""What a page writes into its address, waited for."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import parse_qsl, urlsplit

from playwright.sync_api import Page, TimeoutError


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
