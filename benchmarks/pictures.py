"""Make the documents' pictures, from the app and the gallery: ``python -m benchmarks.pictures``.

Needs Chromium and the development requirements. The moving picture shows the recorded answers of
SmolLM2, so the model need not be installed.
"""

import argparse
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from playwright.sync_api import Browser, FloatRect, Page, ViewportSize

from benchmarks import ROOT
from benchmarks.live_app import app_in_chromium, settled
from fdkvc.commands.main import main as command

GALLERY_PAGES = {"step": "scene3.html", "judged": "judged.html"}
"""The page of the gallery that each still picture shows."""

GALLERY_SIZE: ViewportSize = {"width": 1440, "height": 940}
COLOURS = 128

MOVING = "forgotten"
ANSWERS = "/answers?model=smollm2&file=birthday&policies=fifo,h2o&look=h2o"
ANSWERS_SIZE: ViewportSize = {"width": 1200, "height": 1500}
PIXELS = 2
"""Pixels of the moving picture for each of the page, for screens with fine pixels."""

MARGIN = 14.0
VISIBLE_ROWS = 3
"""Rows of the table of restored words in the moving picture, its heading among them."""

HIDE_RESTORED = """() => {
  const live = document.querySelector('.stMain .stButton button');
  const restored = [...document.querySelectorAll('tr')].slice(2);
  for (const part of [live, document.querySelector('p:has(strong em)'), ...restored]) {
    part.style.visibility = 'hidden';
  }
}"""
"""Hide what comes of restored words, and the button above them."""

HIDE_ANSWERS = """() => {
  for (const lane of document.querySelectorAll('.answers section')) {
    lane.style.minHeight = `${lane.offsetHeight}px`;
    lane.querySelectorAll('small:nth-of-type(n+2), .chips').forEach(
      (grade) => { grade.hidden = true; });
    const text = lane.querySelector('p');
    for (const node of [...text.childNodes].filter((child) => child.nodeType === Node.TEXT_NODE)) {
      node.replaceWith(...node.textContent.split(/(?<=\\s)/).map((word) => {
        const span = document.createElement('span');
        span.textContent = word;
        return span;
      }));
    }
    for (const word of text.children) word.style.visibility = 'hidden';
  }
}"""
"""Hide what the model writes, and its grades."""

SHOW_WORD = """(number) => document.querySelectorAll(
  `.answers p > :nth-child(${number})`).forEach((word) => { word.style.visibility = 'visible'; })"""
SHOW_RESTORED = """() => document.querySelectorAll('tr, p').forEach(
  (part) => { part.style.visibility = 'visible'; })"""


class Frame(NamedTuple):
    """A picture of the moving one."""

    png: bytes
    milliseconds: int


def main() -> None:
    """Take every picture and write it to the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "pictures", help="default: pictures/")
    folder: Path = parser.parse_args().out
    folder.mkdir(exist_ok=True)
    with app_in_chromium() as (browser, address, _):
        pictures = {f"{MOVING}.gif": moving_picture(forgotten_word(browser, address))}
        pictures |= {f"{name}.png": picture for name, picture in still_pictures(browser)}
    for name, picture in pictures.items():
        (folder / name).write_bytes(picture)
        print(f"{folder / name}, {len(picture) / 1024:.0f} KiB")


def still_pictures(browser: Browser) -> Iterator[tuple[str, bytes]]:
    """Write the gallery, open its pages, and yield the pictures with their names."""
    with tempfile.TemporaryDirectory() as gallery:
        if command(["report", "--gallery", gallery]):
            raise SystemExit("the gallery was not written")
        page = browser.new_page(viewport=GALLERY_SIZE, color_scheme="light")
        for name, file in GALLERY_PAGES.items():
            page.goto((Path(gallery) / file).as_uri())
            page.locator(".stage .where, .back, svg").first.wait_for()
            page.evaluate("() => new Promise(done => requestIdleCallback(() => done()))")
            subject = page.locator("section svg") if name == "judged" else page
            yield name, small_png(subject.screenshot(animations="disabled"))
        page.close()


def forgotten_word(browser: Browser, address: str) -> Iterator[Frame]:
    """Yield the frames: three caches answer a question, and one gets the evicted word back."""
    page = browser.new_page(
        viewport=ANSWERS_SIZE, color_scheme="light", base_url=address, device_scale_factor=PIXELS
    )
    page.goto(ANSWERS)
    page.locator(".answers p").last.wait_for()
    settled(page)
    answers = frame_around(page, ".message", ".answers")
    restored = frame_around(page, "h3 span", f"tr >> nth={VISIBLE_ROWS - 1}")
    height = max(answers["height"], restored["height"])

    def frame(top: float, milliseconds: int) -> Frame:
        clip: FloatRect = {**answers, "y": top, "height": height}
        return Frame(page.screenshot(clip=clip), milliseconds)

    page.evaluate(HIDE_RESTORED)
    yield frame(answers["y"], 3_500)  # a picture that stands still shows this
    steps = 8
    for step in range(1, steps + 1):
        yield frame(answers["y"] + (restored["y"] - answers["y"]) * step / steps, 60)
    yield frame(restored["y"], 2_000)
    page.evaluate(SHOW_RESTORED)
    yield frame(restored["y"], 5_000)
    page.evaluate(HIDE_ANSWERS)
    yield frame(answers["y"], 1_000)
    words = page.locator(".answers p").all()
    for number in range(1, 1 + max(text.locator("> *").count() for text in words)):
        page.evaluate(SHOW_WORD, number)
        yield frame(answers["y"], 160)
    yield frame(answers["y"], 1_200)
    page.close()


def frame_around(page: Page, first: str, last: str) -> FloatRect:
    """Return the rectangle from one element of the page to another, with a margin."""
    upper = page.locator(first).first.bounding_box()
    lower = page.locator(last).last.bounding_box()
    assert upper is not None
    assert lower is not None
    left = min(upper["x"], lower["x"])
    right = max(upper["x"] + upper["width"], lower["x"] + lower["width"])
    bottom = lower["y"] + lower["height"]
    return {
        "x": left - MARGIN,
        "y": upper["y"] - MARGIN,
        "width": right - left + 2 * MARGIN,
        "height": bottom - upper["y"] + 2 * MARGIN,
    }


def moving_picture(frames: Iterator[Frame]) -> bytes:
    """Return a GIF that repeats the frames."""
    images, durations = [], []
    for frame in frames:
        images.append(Image.open(BytesIO(frame.png)).convert("RGB"))
        durations.append(frame.milliseconds)
    palette = stacked(images[0], images[len(images) // 2]).quantize(COLOURS)
    drawn = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    picture = BytesIO()
    options = {"save_all": True, "append_images": drawn[1:], "duration": durations, "loop": 0}
    drawn[0].save(picture, "GIF", optimize=True, **options)
    return picture.getvalue()


def stacked(*images: Image.Image) -> Image.Image:
    """Return pictures of one size below each other."""
    width, height = images[0].size
    whole = Image.new("RGB", (width, height * len(images)))
    for number, image in enumerate(images):
        whole.paste(image, (0, height * number))
    return whole


def small_png(png: bytes) -> bytes:
    """Return a PNG with as few colours as such a picture needs."""
    picture = Image.open(BytesIO(png)).convert("RGB").quantize(COLOURS)
    small = BytesIO()
    picture.save(small, "PNG", optimize=True)
    return small.getvalue()


if __name__ == "__main__":
    main()
