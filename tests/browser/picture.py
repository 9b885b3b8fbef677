"""The picture that the stage saves of a moment."""

from __future__ import annotations

from io import BytesIO

import pytest
from PIL import Image, ImageChops, ImageStat
from playwright.sync_api import Page

PIXELS, MARGIN = 3, 12
"""Of a picture: pixels to the unit, and units around it."""


def expect_picture(page: Page, name: str) -> None:
    """Expect that the stage saves what it shows, three times as large, and stays as it is."""
    page.mouse.move(0, 0)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save as picture").click()
    assert waiting.value.suggested_filename == name
    frame = page.locator(".stage .frame")
    box = frame.bounding_box()
    assert box is not None
    saved = Image.open(waiting.value.path()).convert("RGB")
    assert saved.width == pytest.approx(PIXELS * (box["width"] + 2 * MARGIN), abs=2)
    right, bottom = saved.width - PIXELS * MARGIN, saved.height - PIXELS * MARGIN
    left, top = right - PIXELS * box["width"], bottom - PIXELS * box["height"]
    shown = Image.open(BytesIO(frame.screenshot(animations="disabled"))).convert("RGB")
    again = saved.crop((round(left), round(top), right, bottom)).resize(shown.size)
    blank = Image.new("RGB", shown.size, saved.getpixel((0, 0)))
    assert _apart(shown, again) < 0.2 * _apart(shown, blank)
    as_before = "all => all.every(each => each.width === Math.round(each.clientWidth))"
    assert frame.locator("canvas").evaluate_all(as_before)


def _apart(one: Image.Image, other: Image.Image) -> float:
    """Return the mean difference of two pictures in the channel that differs most."""
    return max(ImageStat.Stat(ImageChops.difference(one, other)).mean)
