"""The step page as its script draws it: the policy's controls, and why an entry stays or goes."""

import re
import time
from io import StringIO
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from fdkvc.player.entry_files import trace_files
from fdkvc.player.run import DialogChoice, build_run
from fdkvc.policies import policy_named
from fdkvc.synthetic.scenarios import World, scenario_named
from fdkvc.ui.markdown import plain
from fdkvc.ui.step import stage
from fdkvc.ui.step.before import Ghost
from tests.app_pages import SECONDS, html, link_of, message_of, open_page, press, settled, stage_of


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "link", "sentence"),
    [
        ("step", {"gamma": 7}, "must be a number above 0 and below 1"),
        ("step", {"policy": "lru"}, "choose from fifo"),
        ("step", {"budget": 0}, "must be a whole number from 1 to"),
        ("step", {"colour": "red"}, "unknown parameter 'colour'"),
        ("compare", {"policies": "h2o,lru"}, "policy 'lru' is unknown: choose from"),
        ("compare", {"policies": "fd-kvc:gamma=7"}, "gamma is 7.0, but must be a number above 0"),
        (
            "compare",
            {"policies": "fifo,h2o", "one": "sink"},
            "One policy is 'sink', but must be one of fifo",
        ),
        ("compare", {"turn": "soon"}, "Turn is 'soon', but must be a whole number"),
        ("step", {"colour": "red", "size": 3, "shape": ""}, "unknown parameters 'colour' and"),
        ("compare", {"fork": "h2o", "dropped": "", "other": "fork"}, "Add a variant with"),
    ],
)
def test_a_wrong_link_is_explained_in_one_sentence_and_the_page_works(
    page: str, link: dict[str, object], sentence: str
) -> None:
    app = open_page(page, **link)

    (error,) = app.error
    assert error.value.startswith("This link has an error: ")
    assert sentence in error.value
    assert not press(app, "Another dialog").error
    assert app.session_state[f"{page}/seed"] == 8
    assert stage_of(app)["lanes"]


def answered(monkeypatch: pytest.MonkeyPatch, turn: int, entry: int, **link: object) -> Any:
    """Let the stage ask what would have decided otherwise on an entry, until it is told."""
    app = open_page("step", turn=turn, entry=entry, **link)
    question = {"run": message_of(app)["run"], "turn": turn, "entry": entry}
    monkeypatch.setattr(stage, "last_message", lambda key: question if "answer" in key else {})
    for _ in range(20 * SECONDS):
        answer = message_of(settled(app.run()), "answer")
        if answer["done"]:
            assert answer.items() >= question.items()
            return answer
        time.sleep(0.05)
    raise AssertionError("it was never answered")


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("fd-kvc", "Restore the paper's values"),
        ("fd-kvc-adaptive", "Restore the defaults"),
        ("h2o", "Restore the defaults"),
    ],
)
def test_what_is_restored_is_called_what_it_is(policy: str, words: str) -> None:
    assert open_page("step", policy=policy).button(key="step/restore").label == words


@pytest.mark.parametrize(
    ("page", "place", "link"),
    [
        ("step", "step/fd-kvc-adaptive", {"policy": "fd-kvc-adaptive"}),
        (
            "compare",
            "compare/variant/fd-kvc-adaptive",
            {"turn": 3, "policies": "fifo,fd-kvc-adaptive"},
        ),
    ],
)
def test_the_papers_hyperparameters_come_first(
    page: str, place: str, link: dict[str, object]
) -> None:
    app = open_page(page, **link)
    shown = [field.key for field in app.number_input]

    assert shown.index(f"{place}/kappa") > shown.index(f"{place}/gamma")
    assert app.number_input(key=f"{place}/gamma").value == 0.88


def test_hyperparameters_are_folded_and_what_differs_is_named_outside() -> None:
    app = open_page("step", policy="fd-kvc:gamma=0.8")
    (folded,) = [part for part in app.expander if part.label == "Hyperparameters"]

    assert "step/fd-kvc/gamma" in [field.key for field in folded.number_input]
    outside = {caption.value for caption in app.caption} - {c.value for c in folded.caption}
    assert plain("Recency decay (γ) at 0.8 instead of 0.88.") in outside


def test_settings_that_cannot_keep_an_entry_say_what_was_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The nearest stand first; those that cannot, and what the run never reads, say so."""
    answer = answered(monkeypatch, 5, 11)
    changes = answer["changes"]
    reversing = sum(change["after"] != "" for change in changes)
    assert 0 < reversing < len(changes)
    assert all(change["after"] == "" for change in changes[reversing:])

    said = {change["label"]: change for change in changes}
    assert said["Recency decay (γ)"]["before"] == "0.88"
    labels = [change["label"] for change in changes[:3] if change["after"]]
    sentence = "With a larger γ recency fades more slowly."
    assert (sentence in answer["words"]) == ("Recency decay (γ)" in labels)
    assert answer["words"].startswith("Each of these alone is enough")
    assert answer["words"].endswith("Not every value was tried.")
    tried = [
        change["words"]
        for change in changes
        if not change["after"] and "uses" not in change["words"]
    ]
    assert tried
    assert all(" in steps of " in words for words in tried)
    assert "this run never uses it" in said["Modulation exponent (β)"]["words"]


def test_a_seed_is_no_setting_that_could_have_kept_an_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = answered(monkeypatch, 3, 1, policy="random", chance_seed=1500000000)

    assert [change["label"] for change in answer["changes"]] == ["Budget"]
    assert "Not every value" not in answer["words"]


def test_it_opens_after_a_change_of_topic_with_what_was_nearly_kept() -> None:
    link = link_of(open_page("step"))

    assert (link["turn"], link["entry"] != "") == ("3", True)


def test_a_policy_in_a_line_is_stepped_through_with_its_numbers_as_controls() -> None:
    app = open_page("step", policy="whitelist(window(tova,share=0.3),words=san+jose)", most=0.25)

    assert not app.error
    link = link_of(app)
    assert (link["policy"], link["around"]) == ("window(tova)", "whitelist")
    assert (link["share"], link["most"], link["words"]) == ("0.3", "0.25", "san+jose")
    assert any("Words are unknown here" in info.value for info in app.info)

    app.selectbox(key="step/policy").set_value("fd-kvc").run()
    app.selectbox(key="step/around").set_value("blocks").run()
    assert not app.error
    assert not app.info
    assert link_of(settled(app))["around"] == "blocks"
    app.number_input(key="step/blocks/size").set_value(8).run()
    assert link_of(app)["size"] == "8"
    offered = app.selectbox(key="step/around").options
    assert {"Blocks", "Window", "Sinks"} <= set(offered)
    again = open_page("step", **link_of(app))
    assert not again.error
    assert link_of(again) == link_of(app)


def test_a_link_to_what_does_not_go_together_is_explained() -> None:
    app = open_page("step", policy="blocks(full)")
    assert [error.value for error in app.error] == [
        "This link has an error: full stores everything, so blocks changes nothing. "
        "Using fd-kvc instead."
    ]
    for levels, reason in (
        (120, "window occurs more than once, but each wrapper is allowed once"),
        (1_000, "a policy's name has 8,003 characters, but at most 1,000 are allowed"),
        (2_000, "Policy has 16,003 characters, but at most 10,000 are allowed"),
    ):
        app = open_page("step", policy="window(" * levels + "h2o" + ")" * levels)
        assert [error.value for error in app.error] == [
            f"This link has an error: {reason}. Using fd-kvc instead."
        ]
    app = open_page("step", policy="full", around="blocks")
    (said,) = app.error
    assert "Wrapper is 'blocks', but must be one of" in said.value


def change(app: AppTest, **numbers: float) -> AppTest:
    for name, value in numbers.items():
        app.number_input(key=f"step/fd-kvc/{name}").set_value(value)
    return settled(app.run())


def test_a_download_has_the_run_that_is_compared_with() -> None:
    run = build_run(DialogChoice(scenario_named("shift"), 7, World()), policy_named("fifo"), 56)
    assert Ghost().named == {}
    runs = {"fd-kvc": run, **Ghost(run, "previous run").named}
    table = pd.read_csv(StringIO(str(trace_files(runs)["turns.csv"])))
    assert [*table.policy.unique()] == ["fd-kvc", "fifo (previous run)"]


def retention(app: AppTest) -> tuple[str, str]:
    """Return the retention of the turn that is shown, and that of the ghost."""
    (cell,) = re.findall("<small>On topic \\(retention\\)</small>(.*?)</div>", html(app))
    value, *past = re.findall("<b>(.*?)</b>", cell)
    return value, " ".join(past)


def test_a_change_of_a_setting_is_shown_beside_the_run_before_and_undone() -> None:
    app = open_page("step", turn=3)
    first = retention(app)
    assert (first[1], len(stage_of(app)["lanes"])) == ("", 1)
    assert "since turn 2" in html(app)

    change(app, gamma=0.6)
    second = retention(app)
    assert second == (second[0], first[0])
    head = stage_of(app)
    assert (head["before"], len(head["lanes"])) == ("previous run", 2)
    assert plain("Now recency decay (γ) at 0.6 instead of 0.88.") in " ".join(
        c.value for c in app.caption
    )

    change(app, gamma=0.5, w_c=0.3)
    assert retention(app)[1] == second[0]
    change(app, gamma=0.7)
    press(press(app, "Undo"), "Undo")
    assert retention(app) == second
    assert link_of(app)["gamma"] == "0.6"
    press(app, "Undo")
    assert (retention(app)[0], link_of(app)["turn"]) == (first[0], "3")
    assert "Undo" not in [button.label for button in app.button]


def test_the_papers_setting_stays_what_a_run_is_compared_with() -> None:
    app = open_page("step", turn=3)
    papers, _ = retention(app)
    change(app, gamma=0.6)
    app.button_group(key="step/compare-with").set_value("published").run()
    change(app, gamma=0.5)

    assert retention(app)[1] == papers
    assert stage_of(app)["before"] == "paper's setting"
    change(app, gamma=0.88)  # it is the paper's setting again
    assert stage_of(app)["before"] == "previous run"


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "value", "compared"),
    [
        ("seed", 8, True),
        ("budget", 40, True),
        ("policy", "h2o", True),
        ("noise", 0.2, True),
        ("scenario", "shift", False),
        ("tokens_per_turn", 6, False),
    ],
)
def test_a_dialog_of_other_turns_is_not_compared_turn_by_turn(
    what: str, value: object, compared: bool
) -> None:
    app = open_page("step", turn=3)
    app.session_state[f"step/{what}"] = value
    settled(app.run())

    assert len(stage_of(app)["lanes"]) == 1 + compared
    press(app, "Undo")
    assert link_of(app)[what] == link_of(open_page("step"))[what]
