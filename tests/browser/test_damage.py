"""Damage on the words: opened by click and key, on a phone and in the dark."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlencode

from playwright.sync_api import Page, expect

from benchmarks.live_app import settled
from fdkvc.models.damage import shipped_damage
from fdkvc.tour.story import story_chapters
from tests.browser.test_every_page import APP, PHONE

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def test_a_hurt_word_says_why_at_a_click_or_key(page: Page) -> None:
    page.set_viewport_size(PHONE)
    damage = shipped_damage().damages["fifo"]
    by_place = sorted(damage.hurt, key=lambda hurt: hurt.word)
    at = next(at for at, hurt in enumerate(by_place) if hurt.restored is not None)
    link = {**story_chapters()[5].link, "look": "fifo"}
    page.goto(f"/answers?{urlencode(link)}")
    text = page.get_by_role("region", name="Damage to each word with FIFO")
    words, opened = text.locator("summary"), text.locator("details[open]")
    expect(words).to_have_count(len(damage.hurt))
    settled(page)

    words.nth(at).click()
    expect(opened).to_contain_text(f"{by_place[at].restored:.2f} if the turn is read again")
    page.keyboard.press("Tab")  # to the next word that opens
    expect(words.nth(at + 1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(opened).to_have_count(1)
    expect(opened).to_contain_text(f"KL {damage.of_words[by_place[at + 1].word]:.2f} nats")
    page.keyboard.press("Enter")
    expect(opened).to_have_count(0)

    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0
    assert text.evaluate("(region) => region.scrollWidth - region.clientWidth") <= 0
    inks = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(f"getComputedStyle({APP}).colorScheme === '{scheme}'")
        tint, ink = words.nth(0).evaluate(
            "(word) => [getComputedStyle(word).backgroundColor, getComputedStyle(word).color]"
        )
        assert tint not in {"rgba(0, 0, 0, 0)", ink}
        inks.append(ink)
    assert len({*inks}) == len(SCHEMES)
