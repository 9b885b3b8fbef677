"""A new server whose first request is for a page that is not the first."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from benchmarks.live_app import serve


def test_a_link_to_any_page_may_be_the_first_that_a_server_sees(
    chromium: Browser, tmp_path: Path
) -> None:
    with serve(tmp_path / "log.txt") as (address, _):
        page = chromium.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}/compare?scenario=shift&turn=5&budget=0")

        expect(page.get_by_role("link", name="Step through")).to_be_visible()
        expect(page.get_by_role("heading", level=1, name="Compare")).to_be_visible()
        expect(page.get_by_text("must be a whole number from 1")).to_be_visible()
        expect(page.get_by_role("slider", name="Turn")).to_have_value("5")
        budget = page.get_by_role("spinbutton", name="Budget").first
        budget.fill("1e9")
        budget.press("Enter")
        expect(page.get_by_text("Budget is 1000000000, but must be")).to_be_visible()
        expect(page.get_by_text("Still using 56")).to_be_visible()
        assert all(url.startswith((address, "ws", "data:", "blob:")) for url in asked), asked
        page.close()
