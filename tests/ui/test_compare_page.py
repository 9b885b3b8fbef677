"""The compare page, driven without a browser."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from streamlit.testing.v1 import AppTest

from fdkvc.core.attention import Floats, Observation
from fdkvc.core.cache import Cache
from fdkvc.core.parameters import parameter
from fdkvc.engine.metrics import default_metrics, metric_named
from fdkvc.policies import PAPER_POLICIES, POLICIES, Policy, synthetic_policies
from fdkvc.policies.base import EVICTION
from fdkvc.ui.markdown import plain
from tests.app_pages import ROOT, html, link_of, open_page, press, settled, stage_of, told


def lanes(app: AppTest) -> list[str]:
    """Return the title of each lane."""
    return [lane["label"] for lane in stage_of(app)["lanes"]]


def fates(app: AppTest) -> dict[str, str]:
    """Return what the stage is told of its entry in each lane."""
    (view,) = [message for message in told(app) if message.get("what") == "view"]
    return dict(zip(lanes(app), view["sentences"], strict=True))


def shown(app: AppTest) -> str:
    """Return all text and tables of the page."""
    words = [element.value for kind in (app.markdown, app.caption) for element in kind]
    return "\n".join([*words, html(app)])


def errors(app: AppTest) -> list[str]:
    return [error.value for error in app.error]


# ------------------------------------------------------------------------------- what it shows


def test_it_compares_the_papers_policies_at_first() -> None:
    app = open_page("compare")

    titles = [POLICIES[key].label for key in PAPER_POLICIES]
    assert lanes(app) == titles
    (lane, *others) = stage_of(app)["lanes"]
    assert [line["label"] for line in lane["lines"]] == ["Alignment", "Retention", "Diversity"]
    assert len({row["shape"] for row in (lane, *others)}) == len(titles)
    assert not errors(app)


def test_a_link_brings_a_policy_around_a_policy() -> None:
    app = open_page("compare", policies="fifo,recall(h2o:window=0.25,tier=2.0)")

    assert lanes(app) == ["FIFO", "Recall (H2O window=0.25, tier=2.0)"]
    assert not app.exception
    assert not errors(app)


def test_a_policy_around_a_policy_is_chosen() -> None:
    app = open_page("compare", policies="fifo,turns(window(tova), picks=0.5)")
    app.selectbox(key="compare/variant/policy").set_value("fifo").run()
    app.selectbox(key="compare/variant/around").set_value("blocks").run()
    press(app, "Add Blocks (FIFO)")

    assert not errors(app)
    assert link_of(app)["policies"] == "fifo,turns(window(tova),picks=0.5),blocks(fifo)"


def test_a_link_brings_policies_and_variants_of_them() -> None:
    app = open_page(
        "compare", scenario="shift", seed=3, policies="fd-kvc:gamma=0.8:w_c=0.3,fd-kvc,h2o", turn=5
    )

    assert lanes(app) == ["H2O", "FD-KVC", "FD-KVC γ=0.8 w_c=0.3"]
    assert "After turn 5 they share" in shown(app)
    link = link_of(app)
    assert link["policies"] == "fd-kvc:gamma=0.8:w_c=0.3,fd-kvc,h2o"
    assert (link["one"], link["other"]) == ("fd-kvc", "fd-kvc:gamma=0.8:w_c=0.3")
    assert set(link) >= {"scenario", "seed", "budget", "turn", "fork", "pinned"}


def test_a_step_sends_the_stage_nothing_anew() -> None:
    app = open_page("compare", scenario="shift", policies="fifo,h2o,fd-kvc")
    before = stage_of(app)

    app.session_state["compare/turn"] = 1  # as the stage tells it
    settled(app.run())

    assert link_of(app)["turn"] == "1"
    assert stage_of(app) == before


def test_another_policy_leaves_the_lanes_of_those_before_it_as_they_were() -> None:
    before, after = (
        stage_of(open_page("compare", scenario="shift", policies=policies))["lanes"]
        for policies in ("fifo,h2o", "fifo,h2o,fd-kvc")
    )

    assert after[:2] == before


def test_more_policies_than_there_is_room_for_are_refused_in_a_sentence() -> None:
    app = open_page("compare", policies=",".join(list(POLICIES)[:7]))

    assert errors(app) == ["7 policies are chosen, but at most 6 run at once. Using the first 6."]
    assert len(lanes(app)) == 6


def test_the_figures_are_of_the_whole_run() -> None:
    app = open_page("compare", scenario="shift", policies="fifo,sink,h2o", metrics="memory,reads")

    (table,) = [text for text in shown(app).split("<div") if "late retention" in text]
    rows = [row.split("</td>") for row in table.split("<tr>")[2:]]
    cells = {
        row[0].removeprefix("<td>"): [cell.removeprefix("<td>") for cell in row] for row in rows
    }
    assert cells["FIFO"][2] == "100.0 %"
    assert {cells[name][4] for name in cells} == {cells[name][5] for name in cells}  # reads
    assert [cells[name][6] for name in cells] == ["2", "2", "&gt; 7"]
    assert {cells[name][7] for name in cells} == {"264"}


def test_an_entry_is_followed_through_all_lanes() -> None:
    app = open_page("compare", scenario="shift", policies="fifo,h2o", turn=4, entry=70)

    told_of = fates(app)
    gone = "Token 70 was evicted in turn 3 by the budget."
    assert told_of["FIFO"].startswith(gone)
    assert told_of["H2O"].startswith("Token 70")


def test_two_runs_to_compare_must_be_two() -> None:
    app = open_page("compare", policies="fifo,h2o", one="fifo", other="fifo")

    assert "Choose two different runs." in shown(app)


# ------------------------------------------------------------------------------- wrong links


@pytest.mark.parametrize(
    ("link", "sentence"),
    [
        ({"policies": "h2o,lru"}, "policy 'lru' is unknown: choose from"),
        ({"policies": "fd-kvc:gamma=7"}, "gamma is 7.0, but must be a number above 0"),
        ({"policies": "fifo,h2o", "one": "sink"}, "First run is 'sink', but must be one of fifo"),
        ({"turn": "soon"}, "Turn is 'soon', but must be a whole number"),
        ({"colour": "red"}, "it has an unknown parameter 'colour'"),
        ({"fork": "fd-kvc"}, "it does not name its turn"),
        ({"fork": "tova", "fork_turn": 3}, "tova is not among the policies"),
        ({"scenario": "shift", "fork": "h2o", "fork_turn": 9}, "turn 9 is the last one"),
        ({"fork": "fifo", "fork_turn": 5, "pinned": 2}, "token 2 cannot be protected"),
    ],
)
def test_a_wrong_link_is_explained_in_one_sentence(link: dict[str, str], sentence: str) -> None:
    app = open_page("compare", **link)

    (error,) = errors(app)
    assert sentence in error
    assert lanes(app)


# ------------------------------------------------------------------------------- what if


def test_a_fork_is_a_lane_beside_its_origin() -> None:
    app = open_page(
        "compare",
        scenario="shift",
        policies="h2o,fd-kvc",
        fork="fd-kvc",
        fork_turn=4,
        fork_policy="fd-kvc:gamma=0.6",
        other="fork",
        one="fd-kvc",
        turn=6,
    )

    assert lanes(app) == ["H2O", "FD-KVC", "fork of FD-KVC"]
    (line, *_) = stage_of(app)["lanes"][-1]["lines"]
    assert [level is None for level in line["values"][:6]] == [True] * 4 + [False] * 2
    assert "turn 4** with recency decay (γ) at 0.6 instead of" in shown(app)
    assert "FD-KVC** first diverge in **turn 5**" in shown(app)

    press(app, "Remove the fork")

    assert lanes(app) == ["H2O", "FD-KVC"]
    assert link_of(app)["fork"] == ""


@pytest.mark.parametrize(
    ("origin", "to", "told"),
    [
        ("h2o", "fd-kvc", "FD-KVC starts fresh: it treats the cached"),
        ("h2o", "h2o:queries=each", "H2O queries=each starts fresh"),
        ("fd-kvc", "fd-kvc:gamma=0.6", None),
        ("fd-kvc", "fifo", None),
    ],
)
def test_a_fork_says_whether_its_policy_starts_anew(origin: str, to: str, told: str | None) -> None:
    link = {"policies": "h2o,fd-kvc", "fork": origin, "fork_policy": to}
    words = shown(open_page("compare", scenario="shift", fork_turn=4, **link))

    assert "or the same one with another option, starts" in words  # before one forks
    if told is None:
        assert "starts fresh: it" not in words
    else:
        assert told in words


def test_a_fork_begins_at_the_turn_that_is_shown() -> None:
    app = open_page("compare", scenario="shift", policies="h2o,fd-kvc", turn=3)
    app.number_input(key="compare/draft/fd-kvc/budget").set_value(30).run()

    press(app, "Continue from here")

    assert lanes(app)[-1] == "fork of FD-KVC"
    assert "after turn 3** with budget 30 instead of 56" in shown(app)
    link = link_of(app)
    assert link["fork"] == "fd-kvc"
    assert (link["fork_turn"], link["fork_budget"]) == ("3", "30")
    assert (link["one"], link["other"]) == ("fd-kvc", "fork")
    assert link["turn"] == "4"  # the first that differs


@pytest.mark.parametrize(("verb", "words"), [("pin", "protected"), ("drop", "dropped")])
def test_the_pinned_entry_is_protected_or_dropped(verb: str, words: str) -> None:
    app = open_page("compare", scenario="shift", policies="fifo", turn=2, entry=95)
    app.session_state["compare/draft/entry"] = verb
    app.run()

    press(app, "Continue from here")

    assert f"with token 95 {words}." in shown(app)
    assert link_of(app)[{"pin": "pinned", "drop": "dropped"}[verb]] == "95"


def test_without_a_pinned_entry_a_sentence_asks_for_one() -> None:
    app = open_page("compare", scenario="shift", policies="fifo", turn=2)
    app.session_state["compare/draft/entry"] = "pin"
    app.run()

    press(app, "Continue from here")

    assert errors(app) == ["There is no entry to protect: click one in any lane first."]
    assert lanes(app) == ["FIFO"]


def test_a_dropped_entry_is_told_to_have_been_taken_out() -> None:
    app = open_page(
        "compare",
        scenario="shift",
        policies="h2o",
        fork="h2o",
        fork_turn=2,
        dropped=95,
        entry=95,
        turn=5,
    )

    assert fates(app)["fork of H2O"] == "The fork dropped token 95 after turn 2."


# ------------------------------------------------------------------------------- any policy


@dataclass(frozen=True)
class Nearest(Policy):
    """A policy that nobody has heard of."""

    key = "nearest"
    label = "Nearest"
    idea = "The entries most like the turn stay."
    source = "a test"
    looks_at = ("similarity",)
    channels = ("warmth",)
    steps = (EVICTION,)

    side: str = parameter("near", "Side", "Which end stays.", choices=("near", "far"))

    def terms(self, cache: Cache, turn: Observation) -> Mapping[str, Floats]:
        sign = 1 if self.side == "near" else -1
        return {"similarity": sign * turn.similarity(cache.token)}


def test_a_policy_that_does_not_exist_yet_is_compared_and_forked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(POLICIES, "nearest", Nearest)

    app = open_page(
        "compare",
        scenario="shift",
        policies="fifo,nearest:side=far",
        fork="fifo",
        fork_turn=3,
        fork_policy="nearest",
        turn=6,
    )

    assert lanes(app) == ["FIFO", "fork of FIFO", "Nearest side=far"]
    assert stage_of(app)["lanes"][1]["forks"] == [0, 3]
    assert "with Nearest instead of FIFO" in shown(app)
    assert not errors(app)


def test_the_page_names_no_policy() -> None:
    files = [ROOT / "pages" / "compare.py", *(ROOT / "fdkvc" / "ui" / "compare").glob("*.py")]
    files += [ROOT / "fdkvc" / "ui" / "lanes.py", ROOT / "fdkvc" / "charts" / "timeline.py"]
    names = {key for key in POLICIES if len(key) > 4} | {p.label for p in POLICIES.values()}
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        told = {
            ast.get_docstring(node, clean=False)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        }
        texts = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        assert not names & {word for text in texts - told for word in text.split()}, file


def test_what_the_figures_say_is_told_where_they_stand() -> None:
    app = open_page("compare", policies="fifo,oracle", metrics="attention_loss")

    (told,) = [text.value for text in app.markdown if text.value.startswith("- **Alignment:**")]
    for metric in (*default_metrics(), "attention_loss"):
        assert plain(metric_named(metric).help) in told
    assert plain(POLICIES["oracle"].idea) in told
    assert "retention may be 0 %" in POLICIES["oracle"].idea


def pair(app: AppTest) -> list[object]:
    return [app.selectbox(key=f"compare/{name}").value for name in ("one", "other")]


def test_where_they_differ_speaks_of_the_variant_that_was_just_added() -> None:
    app = open_page("compare")
    assert pair(app) == ["h2o", "fd-kvc"]
    for gamma in (0.6, 0.5):
        app.number_input(key="compare/variant/fd-kvc/gamma").set_value(gamma).run()
        app.button(key="compare/variant/add").click().run()
        assert pair(settled(app)) == ["fd-kvc", f"fd-kvc gamma={gamma}"]

    app.selectbox(key="compare/one").set_value("fifo").run()
    step = app.selectbox(key="compare/other").set_value("h2o").run()
    assert pair(settled(step.run())) == ["fifo", "h2o"]  # what a person chooses stays


def test_five_policies_are_offered_first_and_the_others_on_request() -> None:
    app = open_page("compare", policies="fifo,fd-kvc,keydiff")
    offered = app.button_group(key="compare/policies").options
    titles = [POLICIES[key].label for key in (*PAPER_POLICIES, "keydiff", "random")]
    assert sorted(offered) == sorted(titles)

    press(app, f"{len(synthetic_policies()) - len(titles)} more …")
    assert len(app.button_group(key="compare/policies").options) == len(synthetic_policies())
    press(app, "Fewer")
    assert lanes(app) == ["FIFO", "FD-KVC", "KeyDiff"]
