"""The compare page, driven without a browser."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from streamlit.testing.v1 import AppTest

from fdkvc.core.attention import Floats, Observation
from fdkvc.core.cache import Cache
from fdkvc.core.parameters import parameter
from fdkvc.policies import PAPER_POLICIES, POLICIES, Policy, synthetic_policies
from fdkvc.policies.base import EVICTION
from tests.app_pages import html, link_of, message_of, open_page, press, settled, stage_of, words_of


def lanes(app: AppTest) -> list[str]:
    return [lane["label"] for lane in stage_of(app)["lanes"]]


def fates(app: AppTest) -> dict[str, str]:
    """Return what the stage is told of its entry in each lane."""
    return dict(zip(lanes(app), message_of(app)["sentences"], strict=True))


def shown(app: AppTest) -> str:
    """Return all text and tables of the page."""
    return f"{words_of(app)}\n{html(app)}"


def errors(app: AppTest) -> list[str]:
    return [error.value for error in app.error]


def test_it_compares_the_papers_policies_at_first() -> None:
    app = open_page("compare")

    titles = [POLICIES[key].label for key in PAPER_POLICIES]
    assert lanes(app) == titles
    (lane, *others) = stage_of(app)["lanes"]
    assert [line["label"] for line in lane["lines"]] == [
        "Alignment",
        "On topic (retention)",
        "Diversity",
    ]
    assert len({row["shape"] for row in (lane, *others)}) == len(titles)
    assert not errors(app)


def test_a_policy_around_a_policy_is_chosen() -> None:
    app = open_page("compare", policies="fifo,turns(window(tova), picks=0.5)")
    assert lanes(app) == ["FIFO", "Turn by turn (Window (TOVA), picks=0.5)"]
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
    assert "After turn 5 both keep" in shown(app)
    table = shown(app).partition("Entries that only one of the two keeps")[2]
    assert '<th scope="col">evicted by</th><th scope="col">in turn</th>' in table
    keeper, *_, loser, _ = re.findall(r"<td[^>]*>([^<]*)", table.partition("</tr><tr>")[0])
    assert {keeper, loser} == {"FD-KVC", "FD-KVC γ=0.8 w_c=0.3"}
    link = link_of(app)
    assert link["policies"] == "fd-kvc:gamma=0.8:w_c=0.3,fd-kvc,h2o"
    assert (link["one"], link["other"]) == ("fd-kvc", "fd-kvc:gamma=0.8:w_c=0.3")
    assert set(link) >= {"scenario", "seed", "budget", "turn", "entry"}


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
    app = open_page("compare", scenario="shift", policies="fifo,sink,h2o", metrics="memory")

    (table,) = [text for text in shown(app).split("<div") if "late retention" in text]
    rows = [row.split("</td>") for row in table.split("<tr>")[2:]]
    cells = {
        row[0].removeprefix("<td>"): [cell.removeprefix("<td>") for cell in row] for row in rows
    }
    assert cells["FIFO"][2] == "100.0 %"
    assert len({cells[name][4] for name in cells}) == 1  # memory
    assert [cells[name][5] for name in cells] == ["2", "2", "&gt; 7"]


def test_an_entry_is_followed_through_all_lanes() -> None:
    app = open_page("compare", scenario="shift", policies="fifo,h2o", turn=4, entry=70)

    told_of = fates(app)
    gone = "Token 70 was evicted in turn 3 because the cache was full."
    assert told_of["FIFO"].startswith(gone)
    assert told_of["H2O"].startswith("Token 70")


def test_two_runs_to_compare_must_be_two() -> None:
    app = open_page("compare", policies="fifo,h2o", one="fifo", other="fifo")

    assert "Choose two different runs." in shown(app)


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


def test_a_policy_that_does_not_exist_yet_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "nearest", Nearest)

    app = open_page("compare", scenario="shift", policies="fifo,nearest:side=far,nearest", turn=6)

    assert lanes(app) == ["FIFO", "Nearest side=far", "Nearest"]
    assert not errors(app)


def pair(app: AppTest) -> list[object]:
    return [app.selectbox(key=f"compare/{name}").value for name in ("one", "other")]


@pytest.mark.long
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
