"""Make the documents' pictures, from the app and its results: ``python -m benchmarks.pictures``.

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
from fdkvc.charts.picture import picture
from fdkvc.charts.theme import LIGHT
from fdkvc.models.report.judged import judged_chart
from fdkvc.player.payload import pack
from fdkvc.player.scene import scene_html, sentences_of
from fdkvc.tour.chapters import TITLES
from fdkvc.tour.story import story_chapters

SCENE = 2
"""The index of the story's scene that the picture of *Step through* shows."""

STILL_SIZE: ViewportSize = {"width": 1440, "height": 940}
CHART_WIDTH = 560
COLOURS = 128

MOVING = "forgotten"
MOVING_SIZE: ViewportSize = {"width": 1240, "height": 900}
PIXELS = 2
"""Pixels of the moving picture for each of the page, for screens with fine pixels."""

MARGIN = 14.0

RESTORED = ".message mark"
"""The word on *Start* once it is back."""


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
        pictures |= {f"{name}.png": png for name, png in still_pictures(browser)}
    for name, content in pictures.items():
        (folder / name).write_bytes(content)
        print(f"{folder / name}, {len(content) / 1024:.0f} KiB")


def still_pictures(browser: Browser) -> Iterator[tuple[str, bytes]]:
    """Yield pictures of a scene, as the app saves it, and of a chart, with their names."""
    scene = story_chapters()[SCENE]
    assert scene.run is not None
    sentences = sentences_of([scene.run], scene.token)
    packed = pack(scene.run, "scene")
    files = {
        "step.html": scene_html(TITLES[SCENE], packed, scene.turn, scene.token, sentences),
        "judged.svg": picture(judged_chart(LIGHT), LIGHT, CHART_WIDTH),
    }
    with tempfile.TemporaryDirectory() as folder:
        page = browser.new_page(viewport=STILL_SIZE, color_scheme="light")
        for name, text in files.items():
            file = Path(folder) / name
            file.write_text(text, "utf-8")
            page.goto(file.as_uri())
            page.locator(".stage .where, svg").first.wait_for()
            page.evaluate("() => new Promise(done => requestIdleCallback(() => done()))")
            subject = page.locator("svg").first if file.suffix == ".svg" else page
            yield file.stem, small_png(subject.screenshot(animations="disabled"))
        page.close()


def forgotten_word(browser: Browser, address: str) -> Iterator[Frame]:
    """Yield the frames: two of three caches answer wrong, and a click gives the word back."""
    page = browser.new_page(
        viewport=MOVING_SIZE, color_scheme="light", base_url=address, device_scale_factor=PIXELS
    )
    page.goto("/")
    settled(page)
    button = page.locator(".st-key-start-restore button")
    clip = frame_around(page, "h2", ".st-key-start-restore button")
    clip["width"] = frame_around(page, ".answers", ".answers")["width"]
    yield Frame(page.screenshot(clip=clip), 5_000)  # a picture that stands still shows this
    button.focus()
    yield Frame(page.screenshot(clip=clip), 1_500)
    button.click()
    page.locator(RESTORED).wait_for()
    settled(page)
    page.mouse.move(0, 0)
    yield Frame(page.screenshot(clip=clip), 7_000)
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
    palette = stacked(images[0], images[-1]).quantize(COLOURS)
    drawn = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    animation = BytesIO()
    options = {"save_all": True, "append_images": drawn[1:], "duration": durations, "loop": 0}
    drawn[0].save(animation, "GIF", optimize=True, **options)
    return animation.getvalue()


def stacked(*images: Image.Image) -> Image.Image:
    """Return pictures of one size below each other."""
    width, height = images[0].size
    whole = Image.new("RGB", (width, height * len(images)))
    for number, image in enumerate(images):
        whole.paste(image, (0, height * number))
    return whole


def small_png(png: bytes) -> bytes:
    """Return a PNG with as few colours as such a picture needs."""
    image = Image.open(BytesIO(png)).convert("RGB").quantize(COLOURS)
    small = BytesIO()
    image.save(small, "PNG", optimize=True)
    return small.getvalue()


if __name__ == "__main__":
    main()
