"""Seconds until pages are settled: opened cold, a tab, and a changed setting; of two checkouts.

Each page is opened in a new session; then a tab of Benchmark is opened, and the recency decay on
Step through is changed. The checkouts take turns, so that what else the machine does slows both.
An app of one title, one number and two tabs takes turns with them: no page can be faster.

    python -m benchmarks.page_latency BEFORE [--rounds 3]
"""

import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

from playwright.sync_api import Browser, Error, Page

from benchmarks import ROOT, options
from benchmarks.live_app import open_chromium, serve, settled
from benchmarks.stage_latency import SCREEN
from fdkvc.ui.frame import PAGES

TABS = ("Tables", "Alignment")
DECAYS = ("0.8", "0.85", "0.9")

EMPTY = """
import streamlit as st

st.title("Empty")
st.text(f"number {st.number_input('Number', value=0.0)}")
tabs = dict(zip(("One", "Two"), st.tabs(["One", "Two"], key="tab", on_change="rerun")))
tabs[st.session_state.tab].text(f"tab {st.session_state.tab}")
"""
"""The smallest app in which there is something to wait for."""


def _until_settled(page: Page, began: float) -> float:
    settled(page)
    return perf_counter() - began


def measure(browser: Browser, address: str) -> dict[str, list[float]]:
    """Return the seconds of each page, tab and setting; those that a checkout lacks are missing."""
    times: dict[str, list[float]] = {}
    for path, title, _ in PAGES:
        context, name = browser.new_context(viewport=SCREEN), Path(path).stem
        page = context.new_page()
        page.set_default_timeout(20_000)
        began = perf_counter()
        page.goto(f"{address}/{name if name != 'start' else ''}")
        page.get_by_role("heading", level=1, name=title, exact=True).wait_for()
        times[title] = [_until_settled(page, began)]
        try:
            if name == "benchmark":
                times["a tab of Benchmark"] = [_tab_seconds(page, tab) for tab in TABS]
            if name == "step":
                times["recency decay on Step through"] = _decay_seconds(page)
        except Error as error:
            print(f"{address}, {title}: {error.message.splitlines()[0]}")
        context.close()
    return times


def measure_empty(browser: Browser, address: str) -> dict[str, list[float]]:
    """Return the seconds of the smallest app."""
    context = browser.new_context(viewport=SCREEN)
    page = context.new_page()
    began = perf_counter()
    page.goto(address)
    page.get_by_role("heading", level=1, name="Empty").wait_for()
    times = {"an empty app": [_until_settled(page, began)]}
    changes: dict[str, list[float]] = {"a number in it": [], "a tab of it": []}
    field = page.get_by_label("Number")
    for value, tab in zip(DECAYS, ("Two", "One", "Two"), strict=True):
        page.wait_for_timeout(1500)
        field.fill(value)
        began = perf_counter()
        field.press("Enter")
        page.get_by_text(f"number {value}").wait_for()
        changes["a number in it"].append(_until_settled(page, began))
        began = perf_counter()
        page.get_by_role("tab", name=tab, exact=True).click()
        page.get_by_text(f"tab {tab}").wait_for()
        changes["a tab of it"].append(_until_settled(page, began))
    context.close()
    return times | changes


def _tab_seconds(page: Page, name: str) -> float:
    tab, began = page.get_by_role("tab", name=name, exact=True), perf_counter()
    tab.click()
    page.locator("[role=tabpanel]:not([hidden]) :is(table, canvas, svg)").first.wait_for()
    return _until_settled(page, began)


def _decay_seconds(page: Page) -> list[float]:
    page.get_by_text("Hyperparameters", exact=True).click()
    field, stage, times = page.locator("input[aria-label^='Recency decay']"), ".stage", []
    for value in DECAYS:
        page.wait_for_timeout(1500)
        previous_run = page.locator(stage).get_attribute("data-run")
        field.fill(value)
        began = perf_counter()
        field.press("Enter")
        page.locator(f"{stage}:not([data-run='{previous_run}'])").wait_for()
        times.append(_until_settled(page, began))
    return times


def main() -> None:
    """Measure and print."""
    arguments = options(__doc__, "before", rounds=3)
    roots = {"before": arguments.before, "now": ROOT}
    all_times: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        browser = stack.enter_context(open_chromium())
        apps = {
            name: stack.enter_context(serve(folder / name, root))[0] for name, root in roots.items()
        }
        empty = folder / "empty"
        empty.mkdir()
        (empty / "app.py").write_text(EMPTY)
        smallest, _ = stack.enter_context(serve(folder / "log.txt", empty))
        for _ in range(arguments.rounds):
            rows = [("now", measure_empty(browser, smallest))]
            rows += [(name, measure(browser, address)) for name, address in apps.items()]
            for name, measured in rows:
                for label, times in measured.items():
                    all_times.setdefault(label, {}).setdefault(name, []).extend(times)
    for label, by_root in all_times.items():
        medians = [f"{name} {statistics.median(times):.2f} s" for name, times in by_root.items()]
        firsts = [f"{name} {times[0]:.2f} s" for name, times in by_root.items()]
        print(f"{label}: {', '.join(medians)}; first of all: {', '.join(firsts)}")


if __name__ == "__main__":
    main()
