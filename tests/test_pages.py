"""Every page of the app runs: opened from the app's navigation, it says its name and no error."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from fdkvc.metrics import ASKED_METRICS
from fdkvc.ui.frame import PAGES

ROOT = Path(__file__).parents[1]
SECONDS = 30

every_page = pytest.mark.parametrize("path", [path for path, *_ in PAGES])


def open_page(path: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=SECONDS).run()
    app.query_params.clear()  # as a browser does when it goes to another page
    return app.switch_page(path).run()


def test_the_navigation_has_every_page_and_opens_the_first() -> None:
    paths = [path for path, *_ in PAGES]
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=SECONDS).run()

    assert sorted(paths) == sorted(f"pages/{file.name}" for file in ROOT.glob("pages/*.py"))
    assert [title.value for title in app.title] == [open_page(paths[0]).title[0].value]


@every_page
def test_a_page_opens_with_one_title_and_without_errors(path: str) -> None:
    app = open_page(path)

    assert not app.exception
    assert not app.error
    assert len(app.title) == 1
    assert app.main.markdown[0].value.strip()


@pytest.mark.parametrize("name", ["step", "compare"])
def test_metrics_that_are_asked_for_are_shown_and_stand_in_the_link(name: str) -> None:
    app = open_page(f"pages/{name}.py")
    app.session_state[f"{name}/metrics"] = list(ASKED_METRICS)
    app.run()

    assert not app.exception
    assert not app.error
    assert app.query_params["metrics"] == ",".join(ASKED_METRICS)
    charts = "".join(chart.proto.spec for chart in app.get("vega_lite_chart"))
    written = charts + "".join(element.proto.body for element in app.get("html"))
    assert all(metric.label.lower() in written.lower() for metric in ASKED_METRICS.values())


@pytest.mark.parametrize("name", ["step", "compare"])
def test_no_control_is_moved_back_while_a_person_uses_it(name: str) -> None:
    """An answer that sets a control again would undo what was pressed or typed meanwhile."""
    app = open_page(f"pages/{name}.py")
    app.slider[0].set_value(3).run()

    controls = [*app.slider, *app.number_input, *app.selectbox, *app.button_group]
    assert len(controls) > 6
    assert [control.label for control in controls if control.proto.set_value] == []
