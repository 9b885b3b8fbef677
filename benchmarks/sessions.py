"""Waiting times while two browser sessions run batches and a third steps through dialogs.

Prints the time of a batch alone and of two at once, and the median time to another dialog on the
stage, before and during the batches.

    python -m benchmarks.sessions [--dialogs 2000] [--clicks 15]
"""

import re
import statistics
import time

from playwright.sync_api import Browser, Page

from benchmarks import options
from benchmarks.live_app import TIMING, app_in_chromium, settled

MINUTES = 5 * 60_000


def clicks(page: Page, count: int) -> list[float]:
    """Ask for another dialog and time it, `count` times."""
    return [float(settled(page).evaluate("timeAnotherDialog()")) for _ in range(count)]


def open_benchmark(browser: Browser, address: str, dialogs: int) -> Page:
    """Open the benchmark page in a new session, ready to run."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.goto(address)
    settled(page)
    page.get_by_role("link", name="Benchmark", exact=True).click()
    field = page.get_by_role("spinbutton", name=re.compile("Dialogs per scenario"))
    field.fill(str(dialogs))
    field.press("Enter")
    time.sleep(1)
    return settled(page)


def start(page: Page) -> float:
    """Press Run and return the time."""
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("button", name="Cancel").wait_for(timeout=MINUTES)
    return time.perf_counter()


def wait(page: Page, start_time: float) -> float:
    """Wait for the results and return the seconds since the start."""
    page.get_by_role("button", name="Cancel").wait_for(state="detached", timeout=MINUTES)
    page.get_by_text(re.compile("Shown: ")).wait_for(timeout=MINUTES)
    return time.perf_counter() - start_time


def main() -> None:
    """Measure and print."""
    arguments = options(__doc__, dialogs=2000, clicks=15)
    with app_in_chromium() as (browser, app, _):
        step = browser.new_page(viewport={"width": 1440, "height": 1000})
        step.goto(f"{app}/step?scenario=complex")
        step.locator(".stage[data-run]").wait_for()
        step.add_script_tag(path=TIMING)
        first, second = (open_benchmark(browser, app, arguments.dialogs) for _ in range(2))
        clicks(step, 3)
        quiet = clicks(step, arguments.clicks)
        single_run = wait(first, start(first))
        start_times = [start(page) for page in (first, second)]
        busy = clicks(step, arguments.clicks)
        together = [
            wait(page, start_time)
            for page, start_time in zip((first, second), start_times, strict=True)
        ]
    print(f"a run of {arguments.dialogs} dialogs per scenario alone: {single_run:.1f} s")
    print(f"two of them at once: {together[0]:.1f} s and {together[1]:.1f} s")
    print(
        f"another dialog: {statistics.median(quiet):.0f} ms alone, "
        f"{statistics.median(busy):.0f} ms beside them "
        f"(medians of {arguments.clicks}; slowest {max(busy):.0f} ms)"
    )


if __name__ == "__main__":
    main()
