"""Make the README's pictures from the running app: ``python -m benchmarks.pictures``.

Needs Chromium and the development requirements.
"""

from __future__ import annotations

import argparse
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

from benchmarks.live_app import APP, ROOT, open_chromium, serve, settled

VIEWS = {
    "step": "/?scenario=mixed&seed=7&policy=fd-kvc&turn=7&entry=116",
}
"""The link of each picture: here A has just come back, and what was kept of it meets the new."""

SIZE = (1440, 1000)
COLOURS = 128


def main() -> None:
    """Open each view, and write its picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "pictures", help="default: pictures/")
    folder: Path = parser.parse_args().out
    folder.mkdir(exist_ok=True)
    width, height = SIZE
    with (
        tempfile.TemporaryDirectory() as logs,
        serve(APP, Path(logs) / "log.txt") as address,
        open_chromium() as browser,
    ):
        page = browser.new_page(
            viewport={"width": width, "height": height}, color_scheme="light", base_url=address
        )
        for name, link in VIEWS.items():
            page.goto(link)
            picture = folder / f"{name}.png"
            picture.write_bytes(small_png(photograph(page)))
            print(f"{picture}, {picture.stat().st_size / 1024:.0f} KiB")


def photograph(page: Page) -> bytes:
    """Wait until the page and its charts stand, and take their picture."""
    page.get_by_role("heading", level=1).wait_for()
    settled(page)
    page.locator(".stage[data-run] .changes").wait_for()
    page.wait_for_load_state("networkidle")
    return page.screenshot(animations="disabled")


def small_png(png: bytes) -> bytes:
    """Return a PNG with as few colours as such a picture needs."""
    picture = Image.open(BytesIO(png)).convert("RGB").quantize(COLOURS)
    small = BytesIO()
    picture.save(small, "PNG", optimize=True)
    return small.getvalue()


if __name__ == "__main__":
    main()
