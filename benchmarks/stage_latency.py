"""Latencies in the browser: the first load, between pages, and of the stage.

For a small run, a large one, four lanes and a long dialog: the time from a link, or from the file
of the long dialog, to the first drawn run, each time in a new session without a cache; keys are
pressed alternately at rest and during the previous step's transition; a short run is played at ten
turns a second; another policy is chosen, or another long dialog. Then each page of the app is
opened from the one before.

    python -m benchmarks.stage_latency [--keys 40] [--rounds 3]
"""

import json
import math
import statistics
from collections.abc import Sequence
from time import perf_counter

from playwright.sync_api import Browser, Page, ViewportSize

from benchmarks import options
from benchmarks.live_app import TIMING, app_in_chromium, settled
from fdkvc.ui.frame import PAGES

LINK_OF_LONG = "dialogs?file=own&policies=fifo,h2o,fd-kvc&budget=8192"
VIEWS = {
    "56 + 32 entries, 20 turns": "step?scenario=complex&turn=0",
    "512 + 32 entries, 60 turns": "step?scenario=own&schedule="
    + "AAABBBCCCDDDEEEBBBAA" * 3
    + "&budget=512&turn=0",
    "four lanes of 56 + 32 entries": "compare?scenario=complex&turn=0",
    "100,000 words in 500 turns, 8,192 entries, three policies": LINK_OF_LONG,
    "the same side by side": f"{LINK_OF_LONG}&view=lanes",
}


def long_dialog(name: str, shift: int) -> dict[str, object]:
    """Return a dialog of 500 turns with 200 words each; another for another `shift`."""
    turns = (
        " ".join(f"word{(shift * turn + place * place) % 1499}" for place in range(200))
        for turn in range(500)
    )
    return {"id": name, "messages": [{"role": "user", "content": text} for text in turns]}


LONG = json.dumps([long_dialog("first", 31), long_dialog("second", 37)])

PLAYED = 100
"""Turns from which on a dialog is not played to its end."""

SCREEN: ViewportSize = {"width": 1440, "height": 900}


def measure(browser: Browser, address: str, keys: int) -> dict[str, list[float]]:
    """Open a view and measure it."""
    page, began = browser.new_page(viewport=SCREEN), perf_counter()
    page.goto(address)
    if "file=own" in address:
        chooser = page.locator("input[type=file]")
        chooser.wait_for(state="attached")
        began = perf_counter()
        chooser.set_input_files(
            {"name": "a.json", "mimeType": "application/json", "buffer": LONG.encode()}
        )
    page.locator(".stage[data-run]").wait_for(timeout=60_000)
    first = 1e3 * (perf_counter() - began)
    settled(page).wait_for_timeout(3000)
    page.add_script_tag(path=TIMING)
    steps = page.evaluate("timeKeys", keys)
    last = int(page.get_by_role("slider", name="Turn").get_attribute("max") or 0)
    times = {"link or file to first drawn run": [first], "key to painted turn": steps}
    if last < PLAYED:
        times["between turns at ten a second"] = page.evaluate("timePlay", last)
    choices = {"Policy": ("FIFO", "H2O", "FD-KVC"), "Dialog": ("second",)}
    for label, names in choices.items():
        if page.get_by_role("combobox", name=label, exact=True).count():
            page.evaluate("watchRuns")
            times["choice to drawn run"] = [_drawn(page, label, name) for name in names]
    page.close()
    return times


def _drawn(page: Page, label: str, name: str) -> float:
    """Choose a policy or dialog; return the milliseconds until its run is drawn."""
    page.wait_for_timeout(2000)  # until the server has heard of the last turn
    settled(page).evaluate("window.drawn = null")
    choice = page.get_by_role("combobox", name=label, exact=True)
    choice.evaluate("each => each.scrollIntoView({ block: 'center' })")  # its list needs room
    choice.fill(name)
    page.get_by_role("option", name=name, exact=True).wait_for()
    choice.press("Enter")
    page.wait_for_function("window.drawn !== null && window.drawn !== undefined")
    return float(page.evaluate("window.drawn"))


def navigate(browser: Browser, address: str) -> dict[str, list[float]]:
    """Open each page from the one before; return the milliseconds until it is complete."""
    page, times = browser.new_page(viewport=SCREEN), {}
    page.goto(address)
    settled(page)
    for title in [title for _, title, _ in PAGES][::-1]:
        began = perf_counter()
        page.get_by_test_id("stSidebarNav").get_by_role("link", name=title, exact=True).click()
        page.get_by_role("heading", level=1, name=title, exact=True).wait_for()
        settled(page)
        times[f"to {title}"] = [1e3 * (perf_counter() - began)]
    page.close()
    return times


def _summary(times: Sequence[float]) -> str:
    worst = sorted(times)[math.ceil(0.95 * len(times)) - 1]
    return f"median {statistics.median(times):.1f} ms, 95 % below {worst:.1f} ms"


def main() -> None:
    """Measure and print."""
    arguments = options(__doc__, keys=40, rounds=3)
    all_times: dict[str, dict[str, list[float]]] = {}
    with app_in_chromium() as (browser, address, _):
        for _ in range(arguments.rounds):
            measured = {
                name: measure(browser, f"{address}/{link}", arguments.keys)
                for name, link in VIEWS.items()
            }
            for name, view_times in (*measured.items(), ("pages", navigate(browser, address))):
                for label, times in view_times.items():
                    all_times.setdefault(name, {}).setdefault(label, []).extend(times)
    for name, view_times in all_times.items():
        print(name)
        for label, times in view_times.items():
            print(f"  {label}: {_summary(times)}")


if __name__ == "__main__":
    main()
