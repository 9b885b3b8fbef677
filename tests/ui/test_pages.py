"""Every page of the app runs: opened from the app's navigation, it says its name and no error."""

import json
import re
from html import escape
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from fdkvc.conversations.lexical import lexical_recording
from fdkvc.conversations.page.file_choice import FILE
from fdkvc.conversations.page.files import shipped_file
from fdkvc.engine.metrics import metrics_of
from fdkvc.explain.tables import entries_table
from fdkvc.models.cache_answers import shipped_answer
from fdkvc.models.judged import SHIPPED, recommendation
from fdkvc.models.numpy import gguf_file
from fdkvc.models.numpy import language_model as loading
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.models.page.forgotten_word import LOSING, answers_of, restored_headline
from fdkvc.policies import POLICIES, policy_named
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import scenario_named
from fdkvc.tour.story import SCENE, story_chapters
from fdkvc.ui.frame import FIRST, PAGES
from fdkvc.ui.lanes import POLICIES as LANES
from fdkvc.ui.markdown import plain
from tests.app_pages import (
    check_specs,
    entry_of,
    html,
    link_of,
    message_of,
    new_session,
    open_page,
    rerun_until,
    settled,
    specs,
    stage_of,
    told,
)
from tests.command_line import ROOT

PAGE_CSS = ROOT / "fdkvc" / "ui" / "page.css"

PATHS = [path for path, *_ in PAGES]

every_page = pytest.mark.parametrize("path", PATHS)


def test_the_navigation_has_every_page_and_opens_the_first() -> None:
    app = new_session().run()

    files = [f"pages/{file.name}" for file in ROOT.glob("pages/*.py")]
    assert sorted(PATHS) == sorted(files)
    first = new_session().switch_page(FIRST).run()
    assert [title.value for title in app.title] == [first.title[0].value]


def test_the_first_page_says_what_was_lost_and_leads_on() -> None:
    app = new_session().run()
    (sentence,) = [text.value for text in app.markdown if " needs " in text.value]
    assert re.search(r"in turn \d+ needs .*: (part )?lost in turn \d+", sentence)
    assert stage_of(app)["kind"] == "transcript"
    assert not [*app.number_input, *app.selectbox, *specs(app)]
    assert f"turn {message_of(app)['turn']} " in sentence
    (said,) = message_of(app)["sentences"]
    assert "was evicted in turn" in said
    assert "The last kept entry scored" in said


def test_the_first_page_begins_with_a_word_that_a_click_brings_back() -> None:
    app = new_session().run()
    answers = html(app)
    assert app.header[0].value == "Two caches forgot whose birthday it is"
    (legend,) = [text.value for text in app.caption if "Dashed: " in text.value]
    assert "SmolLM2, a small language model (135 million parameters)" in legend
    assert "sister <s>Rosalind.</s>" in answers
    assert answers.count("<section") == len(LOSING) + 1
    lost = answers_of(shipped_answer(), restored=False)
    assert not any("Rosalind" in answer.passages[0][1] for answer in lost[1:])

    app.button(key="start/restore").click().run()
    assert app.header[0].value == restored_headline(shipped_answer())
    assert legend in [text.value for text in app.caption]
    assert "sister <mark>Rosalind.</mark>" in html(app)
    assert html(app).count("68 of 186 tokens kept") == len(LOSING)  # with the word's four
    found = answers_of(shipped_answer(), restored=True)
    assert all("Rosalind" in answer.passages[0][1] for answer in found)
    assert html(app).count("<mark>Rosalind</mark>") > 4  # as FIFO's cache then answers


@every_page
def test_a_page_opens_with_one_title_and_without_errors(path: str) -> None:
    app = new_session().switch_page(path).run()

    assert not app.exception
    assert not app.error
    assert len(app.title) == 1
    assert app.main.markdown[0].value.strip()
    check_specs(app)


@pytest.mark.parametrize("name", ["step", "compare"])
def test_metrics_that_are_asked_for_are_shown_and_stand_in_the_link(name: str) -> None:
    app = open_page(name)
    app.session_state[f"{name}/metrics"] = list(metrics_of(optional=True))
    app.run()

    assert not app.exception
    assert not app.error
    assert link_of(app)["metrics"] == ",".join(metrics_of(optional=True))
    written = f"{specs(app)} {html(app)}"
    assert all(
        metric.label.lower() in written.lower() for metric in metrics_of(optional=True).values()
    )
    (said,) = [text.value for text in app.markdown if text.value.startswith("- **Alignment:**")]
    assert all(plain(metric.help) in said for metric in metrics_of(optional=True).values())


@pytest.mark.parametrize("name", ["step", "compare"])
def test_no_control_is_moved_back_while_a_person_uses_it(name: str) -> None:
    """An answer that sets a control again would undo what was pressed or typed meanwhile."""
    app = open_page(name)
    step_to(app, name, 1)

    controls = [*app.number_input, *app.selectbox, *app.button_group]
    assert len(controls) > 6
    assert [control.label for control in controls if control.proto.set_value] == []


def test_a_metric_that_a_link_names_twice_is_shown_once() -> None:
    assert link_of(open_page("step", metrics="memory,memory"))["metrics"] == "memory"


def data_of(spec: Any) -> set[str]:
    """Return the names of the data that a spec, or a part of it, draws."""
    if isinstance(spec, list):
        return set().union(*map(data_of, spec))
    if not isinstance(spec, dict):
        return set()
    names = {spec["data"]["name"]} if "name" in (spec.get("data") or {}) else set()
    return names | data_of(list(spec.values()))


def test_every_chart_gets_just_the_data_that_it_draws() -> None:
    """The browser refuses all new data of a chart if it does not know the name of some."""
    (chart,) = open_page("policies").get("vega_lite_chart")
    sent = {table.name for table in chart.proto.datasets}
    assert sent == data_of(json.loads(chart.proto.spec))


def test_the_sentences_of_the_story_are_true_of_their_runs() -> None:
    """Every number of a scene is counted again in the table that is downloaded."""
    fills, misleads, returns, fails, back = chapters = story_chapters()[:5]
    runs = [chapter.run for chapter in chapters if chapter.run is not None]
    tables = [entries_table(run.trace, run.dialogs) for run in runs]
    kept = [table[~table["status"].str.contains("evicted")] for table in tables]

    def held(at: int, turn: int, topic: str = "") -> int:
        now = kept[at][kept[at]["turn"] == turn]
        return len(now[now["topic"] == topic] if topic else now)

    first, *words = (" ".join(chapter.sentences) for chapter in chapters)
    before = held(0, fills.turn - 1)
    new = tables[0].query("turn == @fills.turn")["status"].str.startswith("new").sum()
    assert "room for 56 entries" in first
    assert f"{before} are filled, and turn {fills.turn} adds {new}" in first
    assert held(0, fills.turn) == 56 > before
    gone = (tables[0]["turn"] == fills.turn) & tables[0]["status"].str.contains("evicted")
    assert f"evicts {gone.sum()}, which" in first

    assert "From turn 3 on, the topic is B" in words[0]
    assert f"{held(1, 9, 'A')} of its 56 entries are still" in words[0]
    assert tables[1].query("turn == 9")["protected"].sum() == 28  # the newest, in the other half
    assert "gives 50 % of its cache to the entries with" in words[0]
    scores = tables[1].query(f"token == {misleads.token}").set_index("turn")["score"]
    assert (
        f"got {100 * (scores[9] - scores[2]) / scores[9]:.0f} % of its score since then" in words[0]
    )

    assert f"Topic A comes back in turn {returns.turn}" in words[1]
    assert f"{held(2, 6, 'A')} of its 56 entries are still about topic A after turn 6" in words[1]
    course = tables[2].query("token == @returns.token").set_index("turn")
    recency, ranks = course["channel_recency"], course["rank"]
    assert recency[returns.turn] > recency[returns.turn - 1], "raised by its similarity"
    before, now = ranks[returns.turn - 1], ranks[returns.turn]
    assert "keeps the best 56: the marked one resembles the topic, and climbs" in words[1]
    assert f"from place {before} to place {now}." in words[1]
    assert returns.token in set(kept[2].query("turn == @returns.turn")["token"])

    (lost,) = tables[3].query("turn == @fails.turn and token == @fails.token").to_dict("records")
    assert "evicted" in lost["status"]
    assert f"Here, in turn {fails.turn}, FD-KVC evicts “9th”, a word of the date" in words[2]
    at = fails.token or 0
    needed = set(range(at - 2, at + 3))  # Friday the 9th of May
    in_cache = needed & set(kept[3].query("turn == @back.turn - 1")["token"])
    assert f"finds {len(in_cache)} of its 5 entries" in words[2]

    assert "its 5 entries stay" in words[3]
    assert all(
        needed <= set(kept[4].query("turn == @turn")["token"]) for turn in range(back.turn + 1)
    )
    assert f"still has {held(4, back.turn)} entries, none of them from the 18 tokens" in words[3]
    arrived = tables[4].query("turn == @back.turn")["status"].str.startswith("new")
    assert arrived.sum() == 18
    assert not kept[4].query("turn == @back.turn")["status"].str.startswith("new").any()
    assert "the call finds its argument" in words[3]


def test_the_scene_of_the_first_token_is_told_from_shipped_results() -> None:
    table = pd.read_csv(SHIPPED).query("data == 'SGD' and budget == 128 and metric == 'same_best'")
    rows = table.set_index("policy")
    changed = 100 * (1 - rows["mean"])
    _, evicted, healed = story_chapters()[5].sentences

    assert f"{changed['fifo']:.0f} % of SmolLM2's likeliest next tokens change" in evicted
    assert f"keeps the first 4, and {changed['sink']:.0f} % change" in healed
    assert f"({rows.n['fifo']} dialogs, room for 128 tokens in each head)" in healed
    app = open_page("story", scene=6)
    assert {"scene": "6"}.items() <= link_of(app).items()
    assert len(specs(app)) == 1
    assert "<table" not in html(app)


def test_without_its_package_a_model_is_seen_in_its_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "_SHARED", {})
    monkeypatch.setattr(gguf_file, "NAMED_MODELS", {"smollm2": "no_such_package"})
    tried = open_page("answers", model="smollm2", file="evening")

    assert [error.value for error in tried.error] == [
        plain("The model 'smollm2' cannot be loaded: " + gguf_file.NO_MODEL + ".")
    ]
    assert "Recorded with SmolLM2" in " ".join(caption.value for caption in tried.caption)
    forgotten = html(tried)
    tried.button(key="answers/restore").click().run()
    assert html(settled(tried)) != forgotten


@pytest.mark.long
def test_a_call_of_another_model_is_seen_in_its_recording() -> None:
    app = open_page("answers", file="hotel")
    said = " ".join(caption.value for caption in app.caption)
    assert "Recorded with Qwen2.5-Coder-0.5B-Instruct" in said
    assert "Choose a model of yours" in said
    assert "answers/run-live" not in {button.key for button in app.button}
    assert "your room" in html(app)
    assert app.selectbox(key="answers/look").value == "h2o", "which a restored word mends"
    assert "Recorded" not in " ".join(
        row.value for row in open_page("answers", file="chat").caption
    )


def test_the_last_scene_says_what_to_use_from_the_shipped_results() -> None:
    finding, still = story_chapters()[6].sentences
    assert finding == recommendation()
    assert still.startswith("Still open: ")
    assert len(specs(open_page("story", scene=7))) == 1


@pytest.mark.parametrize("scene", [*SCENE.choices][:5])
def test_a_scene_opens_where_it_says_and_offers_something_to_try(scene: str) -> None:
    app = open_page("story", scene=scene)
    chapter = story_chapters()[int(scene) - 1]
    assert link_of(app)["turn"] == str(chapter.turn)
    shown = re.sub("</?mark[^>]*>", "", html(app))
    assert all(escape(words) in shown for words in (*chapter.sentences, chapter.task))
    assert stage_of(app)["shows"] == chapter.shows
    for phrase, target in chapter.lights.items():
        named = target.isdecimal() or target in (*chapter.shows.split(), "gone-title")
        assert named or phrase not in " ".join(chapter.sentences)
    tried = open_page(chapter.page, **chapter.link)
    assert not tried.error
    assert chapter.link.items() <= link_of(tried).items()


def test_a_choice_is_told_again_when_its_words_change() -> None:
    """The browser knows it by its words: it would go on to show, and send, those before."""
    app = open_page("compare", one="fifo", other="h2o")
    first = app.selectbox(key="compare/one")
    assert first.format_func("fifo") == "FIFO"
    assert not settled(app.run()).selectbox(key="compare/one").proto.set_value

    app.session_state["pending"] = "compare", [(LANES, ["sink", "fifo", "h2o", "fd-kvc gamma=0.8"])]
    settled(app.run())

    first = app.selectbox(key="compare/one")
    assert first.proto.set_value
    assert first.proto.raw_value == "FIFO"


def test_what_a_lagging_browser_sends_of_another_dialog_is_not_taken() -> None:
    app = open_page(
        "compare", {"compare/turn": 6, "compare/entry": "“three” · token 200 · A · from turn 6"}
    )

    assert app.session_state["compare/entry"] is None


def step_to(app: AppTest, page: str, turn: int) -> None:
    """Step as the stage tells it, which speaks only in a browser."""
    app.session_state[f"{page}/turn"] = turn
    settled(app.run())


@pytest.mark.long
@pytest.mark.parametrize("page", ["step", "compare", "dialogs"])
def test_a_choice_makes_an_entry_of_the_history_and_a_step_makes_none(page: str) -> None:
    app = open_page(page, turn=2)
    assert entry_of(app) == 0

    step_to(app, page, 3)
    step_to(app, page, 11)
    assert entry_of(app) == 0

    app.number_input(key=f"{page}/budget").set_value(50).run()
    step_to(app, page, 0)
    assert entry_of(app) == 1
    assert link_of(app).items() >= {"budget": "50", "turn": "0"}.items()


def test_an_address_that_the_browser_went_back_to_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else in what a browser sends tells it from a click that was late."""
    app = open_page("step", policy="h2o", turn=3)
    app.selectbox(key="step/policy").set_value("fifo").run()
    assert (entry_of(app), link_of(app)["policy"]) == (1, "fifo")

    visited = {"policy": "h2o", "turn": "3", "budget": "0"}
    monkeypatch.setattr("fdkvc.ui.address.follow", lambda page: visited)
    settled(app.run())

    assert app.selectbox(key="step/policy").value == "h2o"
    assert link_of(app).items() >= {"policy": "h2o", "turn": "3", "budget": "56"}.items()
    assert entry_of(app) == 1
    assert "Using 56 instead" in app.error[0].value


def test_dialog_policy_turn_and_entry_follow_from_page_to_page() -> None:
    app = open_page("step", scenario="return", seed=11, budget=40, turn=5, entry=70, policy="tova")
    app.query_params.clear()  # as a browser does when it goes to another page
    settled(app.switch_page("pages/about.py").run())
    settled(app.switch_page("pages/compare.py").run())

    same = {"scenario": "return", "seed": "11", "budget": "40", "turn": "5", "entry": "70"}
    assert not app.error
    assert link_of(app).items() >= same.items()
    assert link_of(app)["policies"] == "fifo,sink,h2o,fd-kvc,tova"

    # As "Add a variant" does: a browser knows of no variant that it was not shown.
    app.session_state["pending"] = "compare", [(LANES, ["sink", "fd-kvc gamma=0.8"])]
    step_to(settled(app.run()), "compare", 6)
    settled(app.switch_page("pages/step.py").run())

    assert link_of(app).items() >= {**same, "turn": "6", "policy": "fd-kvc"}.items()
    assert app.number_input(key="step/fd-kvc/gamma").value == 0.8

    settled(app.switch_page("pages/compare.py").run())
    assert link_of(app)["policies"] == "sink,fd-kvc:gamma=0.8"


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "key", "typed", "said", "goes_on"),
    [
        ("step", "budget", 1e9, "Budget is 1000000000, but must be", "40"),
        ("step", "budget", 2.5, "Budget is 2.5, but must be a whole number", "40"),
        ("step", "fd-kvc/gamma", 7, "Recency decay is 7.0, but must be", "0.88"),
        ("compare", "seed", -1, "Seed is -1, but must be a whole number", "7"),
    ],
)
def test_what_is_refused_stays_to_be_mended_and_what_runs_is_said(
    page: str, key: str, typed: float | None, said: str, goes_on: str
) -> None:
    app = open_page(page, budget=40)
    assert type(app.number_input(key=f"{page}/{key}").step) is float  # or 1e9 would be read as 1

    app.number_input(key=f"{page}/{key}").set_value(typed).run()

    (error,) = settled(app).error
    assert error.value.startswith(said)
    assert error.value.endswith(f"Still using {goes_on}.")
    assert app.number_input(key=f"{page}/{key}").value == typed
    assert link_of(app)[key.rpartition("/")[2]] == goes_on


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "section"),
    [
        ("answers", {}),
        ("benchmark", {}),
        ("benchmark", {"section": "ablation"}),
        ("compare", {}),
        ("dialogs", {}),
    ],
)
def test_a_choice_that_must_not_be_empty_keeps_its_last_one(
    page: str, section: dict[str, str]
) -> None:
    """What is lit, what runs, what the address says and what is said are one thing on all pages."""
    opened = open_page(page, **section)  # the address of Dialogs follows its card
    app = rerun_until(opened, lambda app: any("link" in data for data in told(app)))
    values = {str(group.key): group.value for group in app.button_group}
    chosen = {key: value for key, value in values.items() if isinstance(value, list) and value}
    assert chosen
    labels = dict[str, str]()
    for key, (*_, last) in chosen.items():
        control, name = app.button_group(key=key), key.rpartition("/")[2]
        settled(control.set_value([last]).run())
        settled(app.button_group(key=key).set_value([]).run())

        (error,) = app.error
        assert error.value.startswith(f"{control.label} is empty: choose at least one. Still using")
        assert app.button_group(key=key).value == [last]
        assert link_of(app)[name] == last
        labels[name] = control.label
    link = link_of(app)
    assert [error.value for error in open_page(page, **link).error] == []
    emptied = open_page(page, **link | dict.fromkeys(labels, ""))
    for label, error in zip(labels.values(), emptied.error, strict=True):
        assert f"error: {label} is empty: choose at least one. Using" in error.value


def test_a_symbol_is_read_aloud_as_a_letter() -> None:
    labels = [field.label for field in open_page("step").number_input]

    assert {"Recency decay (γ)", "Initial learning rate (α₀)", "Cumulative weight (w_c)"} <= {
        *labels
    }
    assert not [label for label in labels if "$" in label or "\\" in label]


@pytest.mark.long
@pytest.mark.parametrize("page", ["step", "compare", "dialogs"])
def test_a_link_past_the_end_of_its_dialog_is_told(page: str) -> None:
    if page == "dialogs":
        transcript = shipped_file(FILE.default).transcripts[0]
        dialogs = lexical_recording(transcript, encoding=Encoding()).dialogs
    else:
        dialogs = generate(scenario_named("mixed"), 1, 7)
    turn, token = dialogs.turns - 1, int(dialogs.bounds[0, -1]) - 1

    app = open_page(page, turn=turn + 1, entry=token + 1)

    assert [error.value for error in app.error] == [
        f"This link has an error: {name} is {last + 1}, but must be a whole number from 0 "
        f"to {last:,} in this dialog. Using {instead} instead."
        for name, last, instead in (("Turn", turn, turn), ("Entry", token, "none"))
    ]
    assert app.session_state[f"{page}/turn"] == turn


def test_the_policies_page_shows_the_equations_of_every_policy() -> None:
    opened: dict[str, Any] = {f"policies/{key}": True for key in (*POLICIES, "more")}
    shown = {latex.value for latex in open_page("policies", opened).latex}

    steps = [step for key in POLICIES for step in policy_named(key).steps]
    assert {step.name for step in steps} >= {"Adaptive channel weights", "Protection"}
    assert all(any(step.equation in text for text in shown) for step in steps)


def test_no_rule_makes_each_insertion_restyle_all_around_it() -> None:
    before = re.findall(r"([^\s,{}>+~(]*):has\(", PAGE_CSS.read_text("utf-8"))
    assert before
    assert all(re.search(r"[.#[]", selector) for selector in before)
