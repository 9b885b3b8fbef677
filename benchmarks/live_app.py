"""A Streamlit app on a free port, and the system's Chromium to open it with.

The browser tests, the README's pictures and the measurements of the screen all start here.
"""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks import ROOT

TIMING = ROOT / "benchmarks" / "timing.js"
HOST = "localhost"
SECONDS_TO_START = 60
NO_CHROMIUM = "Chromium is not installed: get it with `apt-get install chromium`"

# Containers and root users have no sandbox; the rest prevents background traffic, and pages for the
# address bar in every new window.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,PaintHolding,HttpsUpgrades",
)


def find_chromium() -> str | None:
    """Return the path of the system's Chromium; None if there is none."""
    return shutil.which("chromium") or shutil.which("chromium", path="/usr/bin")


@contextmanager
def open_chromium(*flags: str) -> Iterator[Browser]:
    """Start Chromium without a window, or raise FileNotFoundError if it is not installed."""
    path = find_chromium()
    if path is None:
        raise FileNotFoundError(NO_CHROMIUM)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*FLAGS, *flags])
        yield browser
        browser.close()


@contextmanager
def serve(log: Path, root: Path = ROOT) -> Iterator[tuple[str, int]]:
    """Run the app of a checkout with its settings; yield its address and the server's process id.

    The server's output goes to the file `log`, and into the RuntimeError if it does not answer.
    """
    port = _free_port()
    command = [sys.executable, "-m", "streamlit", "run", str(root / "app.py")]
    command += ["--server.port", str(port), "--server.headless", "true"]
    address = f"http://{HOST}:{port}"
    with (
        log.open("w") as output,
        subprocess.Popen(command, cwd=root, stdout=output, stderr=subprocess.STDOUT) as server,
    ):
        try:
            _wait_for_health(server, address, log)
            yield address, server.pid
        finally:
            server.terminate()
            try:
                server.wait(timeout=10)
            except subprocess.TimeoutExpired:
                server.kill()


@contextmanager
def app_in_chromium() -> Iterator[tuple[Browser, str, int]]:
    """Serve the app; yield a browser for it, its address and the server's process id."""
    with (
        tempfile.TemporaryDirectory() as folder,
        open_chromium() as browser,
        serve(Path(folder) / "log.txt") as (address, server),
    ):
        yield browser, address, server


def settled(page: Page) -> Page:
    """Wait until the app's script has finished and the browser is idle; return the page.

    Right after a click the script may not have started yet: wait for the click's effect instead. A
    visible button may react to its key only once the browser is idle.
    """
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
    page.evaluate("() => new Promise(done => requestIdleCallback(() => done(), {timeout: 500}))")
    return page


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        port: int = free.getsockname()[1]
        return port


def _wait_for_health(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while server.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"{address}/_stcore/health", timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"the app did not start. Its output:\n{log.read_text()}")
