"""What links, files and people say stays text in a real browser, and asks no other machine.

That no request leaves the machine is what every browser test watches over; here the words try.
"""

from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Page, expect

from benchmarks.live_app import settled
from tests.hostile import HOST, HOSTILE, hostile_dialogs, refused_dialogs

SAID = "[Your session expired]"  # its brackets are to be seen, as nothing was made of them
MADE = f"img[src*='{HOST}'], a[href*='{HOST}'], image[href*='{HOST}']"


def expect_text(page: Page) -> None:
    """Expect hostile words on the page, as they are, and nothing that they could have made."""
    expect(page.get_by_text(SAID).locator("visible=true").first).to_be_visible()
    expect(page.locator(MADE)).to_have_count(0)


def test_a_hostile_link_is_told_as_text(page: Page) -> None:
    names = ["policy", "policies", "metrics", "turn", "seed", "scenario", "file", "look", HOSTILE]
    for path in ("", "compare", "dialogs", "policies"):
        page.goto(f"/{path}?{urlencode(dict.fromkeys(names, HOSTILE))}")

        told = page.get_by_role("alert").filter(has_text="smile: ")
        expect(told.first).to_contain_text("$x^2$ **b**")
        expect_text(page)


def test_a_hostile_file_is_shown_and_refused_as_text(page: Page, tmp_path: Path) -> None:
    said, refused = tmp_path / "![x](y).json", tmp_path / "refused.json"
    said.write_bytes(hostile_dialogs())
    refused.write_bytes(refused_dialogs())
    page.goto("/dialogs?file=own&budget=8&turn=2")
    page.locator("input[type=file]").set_input_files(said)
    expect(page.get_by_role("listbox", name="Transcript")).to_be_visible()
    expect_text(settled(page))

    for view, shown in (
        ("One cache", page.get_by_role("listbox", name="Entries of this turn")),
        ("Side by side", page.locator(".stage .lane").first),
    ):
        page.get_by_role("radio", name=view).click()
        expect(shown).to_be_visible()
        expect_text(settled(page))
    page.locator("input[type=file]").set_input_files(refused)

    expect(page.get_by_role("alert")).to_contain_text(SAID)
    expect_text(settled(page))
