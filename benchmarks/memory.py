"""What the server of the app holds after many page loads and many files that people bring.

Every load and every file is of a session of its own, which ends before the next begins; each load
draws a dialog of its own, and each file is another. Prints the server's resident memory as it goes.

    python -m benchmarks.memory [--loads 200] [--uploads 24]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, Page

from benchmarks.live_app import APP, open_chromium, resident, serve, settled

MINUTES = 5 * 60_000
WORDS = [f"word{place}" for place in range(5000)]


def conversations(seed: int, count: int = 400, turns: int = 20, words: int = 60) -> bytes:
    """Return a file of chats; those that are shown are of a size that a person may read."""
    random = np.random.default_rng(seed)
    said = random.integers(len(WORDS), size=(count, turns, words))
    chats = [
        [
            {
                "role": ("user", "assistant")[turn % 2],
                "content": " ".join(WORDS[word] for word in row),
                "topic": "AB"[turn // 4 % 2],
            }
            for turn, row in enumerate(chat)
        ]
        for chat in said
    ]
    return json.dumps(chats).encode()


def load(page: Page, app: str, seed: int) -> None:
    """Open the step page on a dialog of its own."""
    page.goto(f"{app}/?scenario=mixed&seed={seed}")
    page.locator(".figures").wait_for(timeout=MINUTES)
    settled(page)


def upload(page: Page, app: str, seed: int) -> None:
    """Bring a file to the dialogs page, and look at its first dialog."""
    page.goto(f"{app}/dialogs?file=own")
    name = f"chats{seed}.json"
    page.locator("input[type=file]").set_input_files(
        {"name": name, "mimeType": "application/json", "buffer": conversations(seed)}
    )
    page.locator(".said").first.wait_for(timeout=MINUTES)
    settled(page)


def watch(
    browser: Browser, app: str, visit: Callable[[Page, str, int], None], count: int, every: int
) -> None:
    """Visit the app so often, each time in a session that then ends; print the memory."""
    for number in range(1, count + 1):
        page = browser.new_page()
        visit(page, app, number)
        page.close()
        if number % every == 0 or number == 1:
            print(f"{visit.__name__} {number}: {resident(app):.0f} MB", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", type=int, default=200)
    parser.add_argument("--uploads", type=int, default=24)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        open_chromium() as browser,
        serve(APP, Path(folder) / "app.txt") as app,
    ):
        print(f"started: {resident(app):.0f} MB", flush=True)
        watch(browser, app, load, options.loads, 25)
        watch(browser, app, upload, options.uploads, 4)


if __name__ == "__main__":
    main()
