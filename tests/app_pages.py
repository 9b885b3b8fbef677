"""Open and use the app's pages without a browser."""

import json
import time
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, wait
from functools import cache
from typing import Any

import altair as alt
import numpy as np
import pytest
from numpy.typing import NDArray
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from fdkvc.ui.run_panel import shared_jobs
from tests.command_line import ROOT

SECONDS = 120
"""Timeout; long, because a busy machine is slow."""

# Every run of a page would look for components in all packages that are installed.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)


def new_session() -> AppTest:
    """Return the app before its first run."""
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=SECONDS)


def open_page(page: str, state: Mapping[str, object] | None = None, /, **link: object) -> AppTest:
    """Open a page by a link in a new session with this state."""
    app = new_session()
    app.switch_page(f"pages/{page}.py")
    for name, value in (state or {}).items():
        app.session_state[name] = value
    for name, part in link.items():
        app.query_params[name] = str(part)
    return settled(app.run())


def settled(app: AppTest) -> AppTest:
    """Return the page, or raise its exception."""
    assert not app.exception, app.exception[0].value
    return app


def press(app: AppTest, label: str) -> AppTest:
    """Press the one button with this label."""
    (button,) = [button for button in app.button if button.label == label]
    return settled(button.click().run())


def run_until(app: AppTest, words: str) -> AppTest:
    """Rerun the page until its background work has ended and it shows these words."""

    def has_words(app: AppTest) -> bool:
        return any(words in said.value for said in (*app.caption, *app.warning, *app.error))

    return rerun_until(app, has_words, f"it never said {words!r}")


def rerun_until(
    app: AppTest, holds: Callable[[AppTest], bool], failure: str = "it never held"
) -> AppTest:
    """Rerun the page until this holds of it, each time once background work has gone on.

    A page that is run again and again takes the time of what it waits for.
    """
    for _ in range(10 * SECONDS):
        if holds(app):
            return app
        running = [job.future for job in [*shared_jobs()._jobs.values()] if not job.finished]
        if running:
            wait(running, timeout=1, return_when=FIRST_COMPLETED)
        else:
            time.sleep(0.1)
        settled(app.run())
    pytest.fail(failure)


def specs(app: AppTest) -> list[dict[str, Any]]:
    """Return the specification of each chart."""
    return [json.loads(chart.proto.spec) for chart in app.get("vega_lite_chart")]


def check_specs(app: AppTest) -> None:
    """Check every chart of a page against the Vega-Lite schema."""
    for spec in specs(app):
        alt.Root.validate(spec)
        check_legends(spec)


def check_legends(node: Any) -> None:
    """Check that of the layers' legends with one domain, which become one, all or none are shown.

    Of others, the browser would say that they are in conflict.
    """
    if isinstance(node, list):
        for child in node:
            check_legends(child)
    elif isinstance(node, dict):
        shown: dict[str, set[bool]] = {}
        for encoding in _encodings(node) if "layer" in node else []:
            match encoding:
                case {"scale": {"domain": domain}, "legend": legend}:
                    shown.setdefault(json.dumps(domain), set()).add(legend is not None)
        assert all(len(ways) == 1 for ways in shown.values()), shown
        check_legends(list(node.values()))


def _encodings(node: dict[str, Any]) -> list[Any]:
    channels = list(node.get("encoding", {}).values())
    return channels + [channel for layer in node.get("layer", []) for channel in _encodings(layer)]


def link_of(app: AppTest) -> dict[str, str]:
    """Return the query parameters that the page has set."""
    link: dict[str, str] = _written(app)["link"]
    return link


def entry_of(app: AppTest) -> int:
    """Return how many browser history entries the session has made."""
    return int(_written(app)["entry"])


def _written(app: AppTest) -> dict[str, Any]:
    (written,) = [data for data in told(app) if "link" in data]
    return written


def told(app: AppTest) -> list[dict[str, Any]]:
    """Return the JSON arguments of each component."""
    protos = (component.proto for component in app.get("bidi_component"))
    return [json.loads(proto.json) for proto in protos if proto.json]


def message_of(app: AppTest, name: str = "view") -> dict[str, Any]:
    """Return the one message to the stage with this name: what it shows."""
    (message,) = [message for message in told(app) if message.get("what") == name]
    return message


def words_of(app: AppTest) -> str:
    """Return everything that is shown as Markdown."""
    kinds = (app.markdown, app.caption, app.error, app.info, app.warning)
    return "\n".join(element.value for kind in kinds for element in kind)


def unpacked(packed: bytes) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """Read the payload of a stage as the browser does."""
    whole = zlib.decompress(packed)
    end = 4 + int.from_bytes(whole[:4], "little")
    head, columns = json.loads(whole[4:end]), []
    for kind, count in head["columns"]:
        size = np.dtype(kind).itemsize
        planes = np.frombuffer(whole[end : end + count * size], np.uint8).reshape(size, count)
        columns.append(np.ascontiguousarray(planes.T).view(f"<{kind}").ravel())
        end += count * size
    assert end == len(whole)
    return head, columns


def stage_of(app: AppTest) -> dict[str, Any]:
    """Return the payload of the page's stage without the entries."""
    protos = (component.proto for component in app.get("bidi_component"))
    (packed,) = [proto.bytes for proto in protos if proto.bytes]
    return unpacked(packed)[0]


def html(app: AppTest) -> str:
    return "\n".join(str(element.proto.body) for element in app.get("html"))
