"""The stage's latency in the browser: from key to painted turn, and to a new run.

For a small and a large run and for four lanes: keys are pressed alternately at rest and during the
previous step's transition; the run is played at ten turns a second; with a single policy, another
is chosen.

    python -m benchmarks.stage_latency [--keys 40] [--rounds 3]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser, Page

from benchmarks.live_app import APP, TIMING, open_chromium, serve, settled

VIEWS = {
    "56 + 32 entries, 20 turns": "?scenario=complex&turn=0",
    "512 + 32 entries, 60 turns": "?scenario=own&schedule="
    + "AAABBBCCCDDDEEEBBBAA" * 3
    + "&budget=512&turn=0",
    "four lanes of 56 + 32 entries": "compare?scenario=complex&turn=0",
}


def measure(browser: Browser, address: str, keys: int) -> dict[str, list[float]]:
    """Open a view and measure it."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(address)
    page.locator(".stage[data-run]").wait_for(timeout=60_000)
    settled(page).wait_for_timeout(3000)
    page.add_script_tag(path=TIMING)
    steps = page.evaluate("timeKeys", keys)
    last = int(page.get_by_role("slider", name="Turn").get_attribute("max") or 0)
    played = page.evaluate("timePlay", last)
    found = {"key to painted turn": steps, "between turns at ten a second": played}
    if page.get_by_role("combobox", name="Policy").count():
        page.evaluate("watchRuns")
        chosen = [_drawn(page, name) for name in ("FIFO", "H2O", "FD-KVC")]
        found["choice to drawn run"] = chosen
    page.close()
    return found


def _drawn(page: Page, policy: str) -> float:
    """Choose a policy; return the milliseconds until its run is drawn."""
    page.wait_for_timeout(2000)  # until the server has heard of the last turn
    settled(page).evaluate("window.drawn = null")
    choice = page.get_by_role("combobox", name="Policy")
    choice.evaluate("each => each.scrollIntoView({ block: 'center' })")  # its list needs room
    choice.fill(policy)
    page.get_by_role("option", name=policy, exact=True).wait_for()
    choice.press("Enter")
    page.wait_for_function("window.drawn !== null && window.drawn !== undefined")
    return float(page.evaluate("window.drawn"))


def _summary(times: Sequence[float]) -> str:
    worst = sorted(times)[int(0.95 * (len(times) - 1))]
    return f"median {statistics.median(times):.1f} ms, 95 % below {worst:.1f} ms"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {name: {} for name in VIEWS}
    with (
        tempfile.TemporaryDirectory() as folder,
        open_chromium() as browser,
        serve(APP, Path(folder) / "log.txt") as address,
    ):
        for _ in range(options.rounds):
            for name, link in VIEWS.items():
                for what, times in measure(browser, f"{address}/{link}", options.keys).items():
                    found[name].setdefault(what, []).extend(times)
    for name, measured in found.items():
        print(name)
        for what, times in measured.items():
            print(f"  {what}: {_summary(times)}")


if __name__ == "__main__":
    main()
