"""Make the README's pictures from the gallery: ``python -m benchmarks.pictures``.

Needs Chromium and the development requirements.
"""

import argparse
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image

from benchmarks import ROOT
from benchmarks.live_app import open_chromium
from fdkvc.commands.main import main as command

PICTURES = {"step": "scene3.html", "answer": "answer.html", "judged": "judged.html"}
"""The page of the gallery that each picture shows."""

SIZE = {"width": 1440, "height": 940}
COLOURS = 128


def main() -> None:
    """Write the gallery, open its pages, and write their pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "pictures", help="default: pictures/")
    folder: Path = parser.parse_args().out
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as gallery, open_chromium() as browser:
        if command(["report", "--gallery", gallery]):
            raise SystemExit("the gallery was not written")
        page = browser.new_page(viewport=SIZE, color_scheme="light")  # type: ignore[arg-type]
        for name, shown in PICTURES.items():
            page.goto((Path(gallery) / shown).as_uri())
            page.locator(".stage .where, .back, svg").first.wait_for()
            page.evaluate("() => new Promise(done => requestIdleCallback(() => done()))")
            picture = folder / f"{name}.png"
            shown_part = page.locator("section svg") if name == "judged" else page
            picture.write_bytes(small_png(shown_part.screenshot(animations="disabled")))
            print(f"{picture}, {picture.stat().st_size / 1024:.0f} KiB")


def small_png(png: bytes) -> bytes:
    """Return a PNG with as few colours as such a picture needs."""
    picture = Image.open(BytesIO(png)).convert("RGB").quantize(COLOURS)
    small = BytesIO()
    picture.save(small, "PNG", optimize=True)
    return small.getvalue()


if __name__ == "__main__":
    main()
