"""How long a step takes that the server draws: from the click to the last change on the page.

Runs the app beside an app that is nothing but an empty fragment, clicks Next in each in turn, and
prints medians and their difference.

    python -m benchmarks.step_latency [--page "dialogs?turn=3"] [--clicks 15] [--rounds 3]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, Page

from benchmarks.live_app import APP, open_chromium, serve, settled

EMPTY = """
import streamlit as st

@st.fragment
def nothing():
    st.button("Next", key="next")
    st.session_state["n"] = st.session_state.get("n", 0) + 1
    st.markdown(st.session_state["n"])

nothing()
"""

# Resolves to the milliseconds from the click to the last change of the page's content that followed
# it; that the app then marks itself as idle is not part of it.
CLICK = """async () => {
  const begun = performance.now(); let last = begun;
  const watch = new MutationObserver(() => { last = performance.now(); });
  watch.observe(document.querySelector('[data-testid=stMainBlockContainer]'),
    {subtree: true, childList: true, attributes: true, characterData: true});
  document.querySelector('[class*="next"] button').click();
  await new Promise(done => {
    const timer = setInterval(() => {
      if (performance.now() - Math.max(last, begun) > 400) { clearInterval(timer); done(); }
    }, 10);
  });
  watch.disconnect();
  return last - begun;
}"""


def open_page(browser: Browser, address: str) -> Page:
    """Open an address and wait until nothing moves."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.goto(address)
    page.wait_for_selector('[class*="next"] button', timeout=60_000)
    settled(page)
    time.sleep(2)
    return page


def clicks(page: Page, count: int) -> list[float]:
    """Click Next and time it, `count` times."""
    return [float(page.evaluate(CLICK)) for _ in range(count)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--page", default="dialogs?turn=3", help="a page and its link")
    options = parser.parse_args()
    floor: list[float] = []
    step: list[float] = []
    with tempfile.TemporaryDirectory() as folder, open_chromium() as browser:
        script, log = Path(folder) / "empty.py", Path(folder) / "log.txt"
        script.write_text(EMPTY)
        with serve(script, log) as empty, serve(APP, Path(folder) / "app.txt") as app:
            for _ in range(options.rounds):
                for address, times in ((empty, floor), (f"{app}/{options.page}", step)):
                    page = open_page(browser, address)
                    times += clicks(page, options.clicks)
                    page.close()
    low, high = statistics.median(floor), statistics.median(step)
    print(f"empty fragment {low:.0f} ms, step {high:.0f} ms, difference {high - low:.0f} ms")
    print(f"(medians of {len(step)} clicks; slowest step {max(step):.0f} ms)")


if __name__ == "__main__":
    main()
