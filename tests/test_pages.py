"""Every page of the app runs: opened from the app's navigation, it says its name and no error."""

from __future__ import annotations

import pytest
from app_pages import ROOT, html, new_session, open_page, specs
from streamlit.testing.v1 import AppTest

from fdkvc.metrics import ASKED_METRICS
from fdkvc.ui.frame import PAGES

every_page = pytest.mark.parametrize("path", [path for path, *_ in PAGES])


def go_to(path: str) -> AppTest:
    """Open a page from the app's first one."""
    app = new_session().run()
    app.query_params.clear()  # as a browser does when it goes to another page
    return app.switch_page(path).run()


def test_the_navigation_has_every_page_and_opens_the_first() -> None:
    paths = [path for path, *_ in PAGES]
    app = new_session().run()

    assert sorted(paths) == sorted(f"pages/{file.name}" for file in ROOT.glob("pages/*.py"))
    assert [title.value for title in app.title] == [go_to(paths[0]).title[0].value]


@every_page
def test_a_page_opens_with_one_title_and_without_errors(path: str) -> None:
    app = go_to(path)

    assert not app.exception
    assert not app.error
    assert len(app.title) == 1
    assert app.main.markdown[0].value.strip()


@pytest.mark.parametrize("name", ["step", "compare"])
def test_metrics_that_are_asked_for_are_shown_and_stand_in_the_link(name: str) -> None:
    app = open_page(name)
    app.session_state[f"{name}/metrics"] = list(ASKED_METRICS)
    app.run()

    assert not app.exception
    assert not app.error
    assert app.query_params["metrics"] == ",".join(ASKED_METRICS)
    written = f"{specs(app)} {html(app)}"
    assert all(metric.label.lower() in written.lower() for metric in ASKED_METRICS.values())


@pytest.mark.parametrize("name", ["step", "compare"])
def test_no_control_is_moved_back_while_a_person_uses_it(name: str) -> None:
    """An answer that sets a control again would undo what was pressed or typed meanwhile."""
    app = open_page(name)
    app.slider[0].set_value(3).run()

    controls = [*app.slider, *app.number_input, *app.selectbox, *app.button_group]
    assert len(controls) > 6
    assert [control.label for control in controls if control.proto.set_value] == []
