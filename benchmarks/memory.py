"""The memory of the app's server after many page loads and many uploads.

Every load and upload has its own session, which ends before the next begins, and its own dialog or
file. Prints the server's resident memory, its growth over the second half of the visits, and what
remains once the sessions expired.

    python -m benchmarks.memory [--loads 400] [--uploads 40]
"""

import json
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from playwright.sync_api import Browser, Page

from benchmarks import memory, options
from benchmarks.live_app import app_in_chromium, settled

SECONDS_KEPT = 15
"""How long the server keeps an ended session: see .streamlit/config.toml."""

WORDS = [f"word{place}" for place in range(5000)]


def conversations(seed: int, count: int = 400, turns: int = 20, words: int = 60) -> bytes:
    """Return a file of random chats."""
    choices = np.random.default_rng(seed).integers(len(WORDS), size=(count, turns, words))
    chats = [
        [
            {
                "role": ("user", "assistant")[turn % 2],
                "content": " ".join(WORDS[word] for word in row),
                "topic": "AB"[turn // 4 % 2],
            }
            for turn, row in enumerate(chat)
        ]
        for chat in choices
    ]
    return json.dumps(chats).encode()


def load(page: Page, seed: int) -> None:
    """Open the step page on a new dialog."""
    page.goto(f"/step?scenario=mixed&seed={seed}")


def upload(page: Page, seed: int) -> None:
    """Upload a file on the dialogs page, which shows its first dialog."""
    page.goto("/dialogs?file=own&view=cache")
    chats = {"name": "chats.json", "mimeType": "application/json", "buffer": conversations(seed)}
    page.locator("input[type=file]").set_input_files(chats)  # type: ignore[arg-type]


def visit(
    browser: Browser, app: str, server: int, action: Callable[[Page, int], None], seed: int
) -> float:
    """Visit the app in a new session, until a run is drawn; return the server's memory in MB."""
    with browser.new_context(base_url=app) as session:
        page = session.new_page()
        action(page, seed)
        page.locator(".stage[data-run]").wait_for()
        settled(page)
    return memory("VmRSS", server) / 2**20


def watch(one_visit: Callable[[int], float], name: str, count: int, interval: int) -> None:
    """Visit the app `count` times; print the memory."""
    sizes = []
    for number in range(1, count + 1):
        sizes.append(one_visit(number))
        if number % interval == 0 or number == 1:
            print(f"{name} {number}: {sizes[-1]:.0f} MB", flush=True)
    late = sizes[count // 2 :]
    if len(late) > 1:
        slope = np.polyfit(range(len(late)), late, 1)[0]
        print(f"the second half grows by {slope:+.2f} MB a visit", flush=True)


def main() -> None:
    """Measure and print."""
    arguments = options(__doc__, loads=400, uploads=40)
    with app_in_chromium() as app:
        loaded, uploaded = (partial(visit, *app, action) for action in (load, upload))
        watch(loaded, "load", arguments.loads, 25)
        watch(uploaded, "upload", arguments.uploads, 4)
        time.sleep(SECONDS_KEPT + 5)
        loaded(0)  # expired sessions go when the next one ends
        print(f"after the sessions expired: {uploaded(0):.0f} MB")


if __name__ == "__main__":
    main()
