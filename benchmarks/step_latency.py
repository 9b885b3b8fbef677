"""How long a step takes in the browser: from the click to the last change on the page.

Runs the app beside an app that is nothing but an empty fragment, clicks Next in each in turn, and
prints medians and their difference. Needs Chromium and the development requirements.

    python benchmarks/step_latency.py [--clicks 15] [--rounds 3]
"""

from __future__ import annotations

import argparse
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[1]

EMPTY = """
import streamlit as st

@st.fragment
def nothing():
    st.button("Next", key="next")
    st.session_state["n"] = st.session_state.get("n", 0) + 1
    st.markdown(st.session_state["n"])

nothing()
"""

# Resolves to the milliseconds from the click to the last change of the page that followed it.
CLICK = """async () => {
  const begun = performance.now(); let last = begun;
  const watch = new MutationObserver(() => { last = performance.now(); });
  watch.observe(document.body,
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

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


@contextmanager
def serve(script: Path) -> Iterator[str]:
    """Run a Streamlit script on a free port and give its address."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    address = f"http://localhost:{port}"
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(port)]
    command += ["--server.headless", "true", "--browser.gatherUsageStats", "false"]
    command += ["--runner.postScriptGC", "false", "--server.address", "localhost"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        try:
            for _ in range(120):
                try:
                    urllib.request.urlopen(f"{address}/_stcore/health", timeout=1)
                    break
                except (urllib.error.URLError, OSError):
                    time.sleep(0.25)
            yield address
        finally:
            process.terminate()


def open_page(browser: Browser, address: str) -> Page:
    """Open an address and wait until nothing moves."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.goto(address)
    page.wait_for_selector('[class*="next"] button', timeout=60_000)
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
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
    parser.add_argument("--path", default="?scenario=complex", help="the page and its link")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or "/usr/bin/chromium"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        script = Path(folder) / "empty.py"
        script.write_text(EMPTY)
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        with serve(script) as empty, serve(ROOT / "app.py") as app:
            floor: list[float] = []
            step: list[float] = []
            for _ in range(options.rounds):
                nothing = open_page(browser, empty)
                floor += clicks(nothing, options.clicks)
                nothing.close()
                page = open_page(browser, f"{app}/{options.path}")
                step += clicks(page, options.clicks)
                page.close()
        browser.close()
    low, high = statistics.median(floor), statistics.median(step)
    print(f"empty fragment {low:.0f} ms, step {high:.0f} ms, difference {high - low:.0f} ms")
    print(f"(medians of {len(step)} clicks; slowest step {max(step):.0f} ms)")


if __name__ == "__main__":
    main()
