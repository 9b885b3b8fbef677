"""The benchmark, ablation and about pages, driven without a browser."""

import dataclasses
import re
import shlex
import threading
import time
from html import escape
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

import fdkvc
from fdkvc.commands.parser import build_parser
from fdkvc.engine.metrics import metrics_of
from fdkvc.paper import study
from fdkvc.paper.benchmark import Benchmark, run_benchmark
from fdkvc.paper.claims import CLAIMS
from fdkvc.paper.page.ablation import ABLE, effects_sentence, sweep_command, values_of
from fdkvc.paper.page.choices import DIALOGS_HERE
from fdkvc.paper.page.claims import FAILING_FIRST, by_subject
from fdkvc.paper.page.sections import SECTION
from fdkvc.paper.replication.claims import claim_results
from fdkvc.paper.replication.finding import changed_verdicts, finding
from fdkvc.paper.results import BenchmarkRun, SweepRun
from fdkvc.paper.shipped import papers_run
from fdkvc.paper.study import run_study
from fdkvc.paper.sweep import Sweep, read_values, suggested_values, sweepable
from fdkvc.policies import POLICIES, policy_named
from fdkvc.runs.options import settings_from
from fdkvc.synthetic.scenarios import SCENARIOS
from fdkvc.ui.jobs import Report, Work
from fdkvc.ui.markdown import plain
from fdkvc.ui.run_panel import job_key, run_panel, shared_jobs
from tests.app_pages import SECONDS, html, link_of, open_page, press, run_until, settled

ABLATION = {"section": "ablation"}

SHOWN = "Shown: "
"""What stands above the figures of a run that has ended."""


@pytest.fixture(scope="module")
def ran() -> AppTest:
    """Return the benchmark page after a run of few dialogs, the first of this process."""
    shared_jobs.clear()
    app = open_page("benchmark", dialogs=3)
    assert any("There are no results of these settings" in info.value for info in app.info)
    return run_until(press(app, "Run"), f"{SHOWN}3 dialogs")


def section(app: AppTest, name: str) -> AppTest:
    (app.session_state["benchmark/section"],) = (
        section for section, label in SECTION.labels.items() if label == name
    )
    return settled(app.run())


def test_the_page_opens_on_the_papers_run_and_says_how_to_run_more() -> None:
    app = open_page("benchmark")
    assert app.title[0].value == "Benchmark"
    shown = shown_in(app)
    assert shown.startswith("Shown: 600 dialogs per scenario, seed 0")
    version, now = papers_run().version, fdkvc.__version__
    assert f"Measured on {papers_run().date} with version {version} of this project" in shown
    assert (f"(this is version {now})" in shown) == (version != now)
    assert f"At most {DIALOGS_HERE.high:,} dialogs per scenario run here" in " ".join(
        caption.value for caption in app.caption
    )
    assert "python -m fdkvc benchmark --all --dialogs 6000 --seed 0" in app.code[0].value


def test_the_page_opens_with_what_it_finds() -> None:
    app = open_page("benchmark")
    headline, numbers, more = finding(papers_run().study)
    shown = [text.value for text in (*app.markdown, *app.caption)]
    assert headline in shown
    assert any(all(plain(line) in text for line in numbers) for text in shown)
    said = [text.value for text in section(app, "Tables").markdown]
    assert any(
        all(f"**{subject}:** " in text for subject in more if subject != "Claims") for text in said
    )


def test_a_filter_shows_as_many_as_it_counts() -> None:
    app = open_page("benchmark")
    for name, verdict, one in (
        ("Claims", "does not hold", '<li id="claim-'),
        ("Tables", "differs", "<td class='differs'>"),
    ):
        section(app, name)
        options = app.segmented_control(key=f"benchmark/{name}/shown").options
        sign = {"does not hold": "✗", "differs": "≠"}[verdict]
        (count,) = [option.split()[1] for option in options if option.startswith(sign)]
        app.session_state[f"benchmark/{name}/shown"] = verdict
        settled(app.run())

        assert html(app).count(one) == int(count)
        assert html(app).count("<td class='") in (0, int(count))  # and no other cell


def test_a_run_shows_the_papers_tables(ran: AppTest) -> None:
    section(ran, "Tables")
    titles = [heading.value for heading in ran.header]
    assert [title.split(":")[0] for title in titles] == [f"Table {n}" for n in range(1, 8)]
    # Three dialogs have no verdict.
    assert "<td class=''>50.0<small>paper: 50.0 % (Δ 0.0)</small></td>" in html(ran)


@pytest.mark.parametrize("name", SECTION.labels.values())
def test_every_section_opens(ran: AppTest, name: str) -> None:
    section(ran, name)
    assert ran.markdown
    assert not ran.error


def test_two_runs_are_compared_by_their_verdicts(ran: AppTest) -> None:
    section(ran, "Two runs")
    rows = changed_verdicts(run_study(Benchmark(dialogs=3)), papers_run().study).rows
    assert any(f"{len(rows)} verdicts" in text.value for text in ran.markdown)
    assert html(ran).count("<td>no verdict</td>") == len(rows) > 80
    alone = section(open_page("benchmark"), "Two runs")
    assert "Two runs" not in [tab.label for tab in alone.tabs], "there is no other run"
    assert link_of(alone)["section"] == "claims"


def test_all_claims_are_shown_by_subject_and_failed_ones_come_first() -> None:
    groups = by_subject(claim_results(papers_run().study))
    assert next(iter(groups)) == "Alignment"
    for group in groups.values():
        places = [FAILING_FIRST.index(result.verdict) for result in group]
        assert places == sorted(places)
    app = open_page("benchmark")
    assert [header.value for header in app.header] == [*groups]
    keys = re.findall(r'<li id="claim-([^"]+)"', html(app))
    assert keys == [result.claim.key for group in groups.values() for result in group]
    assert sorted(keys) == sorted(claim.key for claim in CLAIMS)
    assert all(escape(claim.why) in html(app) for claim in CLAIMS)


@pytest.mark.long
def test_the_figures_are_drawn(ran: AppTest) -> None:
    section(ran, "Figures")
    for figure, charts in zip(
        ran.segmented_control(key="benchmark/shown-figure").options, (3, 2, 2, 4), strict=True
    ):
        ran.session_state["benchmark/shown-figure"] = figure
        assert len(settled(ran.run()).get("vega_lite_chart")) == charts, figure


def test_files_are_offered(ran: AppTest) -> None:
    labels = [button.proto.label for button in ran.get("download_button")]
    for name in ("Everything as a ZIP", "run.json", "summary.csv", "claims.csv", "tables.md"):
        assert name in labels


def shown_in(app: AppTest) -> str:
    """Return what the page says of the run that it shows."""
    (said,) = [caption.value for caption in app.caption if SHOWN in caption.value]
    return said


def test_the_result_stays_after_another_page_or_a_reload_and_in_another_session(
    ran: AppTest,
) -> None:
    ran.switch_page("pages/about.py").run()
    ran.switch_page("pages/benchmark.py").run()
    again = open_page("benchmark", **link_of(ran))
    for app in (ran, again):
        assert shown_in(app).startswith("Shown: 3 dialogs per scenario, seed 0")
        assert not app.error


def test_a_link_says_all_that_was_chosen_and_what_is_wrong_with_it() -> None:
    link = {"scenarios": "return,mixed", "policies": "h2o,fd-kvc:gamma=0.8"}
    link |= {"metrics": "retention", "dialogs": "7", "seed": "3", "budget": "40"}
    app = open_page("benchmark", **link)
    assert not app.error
    assert link_of(app) == {"section": "claims"} | link
    app = open_page("benchmark", **link | {"dialogs": "2001"}, past="0123abcd,none")
    wrong, unknown = app.error
    assert "error: it has an unknown parameter 'past'." in unknown.value
    assert "Dialogs per scenario is 2001" in wrong.value
    assert "past" not in link_of(app)


def test_a_link_to_a_sweep_says_all_that_was_chosen() -> None:
    link = {"policy": "h2o", "first": "window", "values": "0 0.5"}
    link |= {"scenario": "return", "metrics": "retention"}
    link |= {"around": "", "dialogs": "7", "seed": "3", "budget": "40"}
    app = open_page("benchmark", **ABLATION, **link)
    assert not app.error
    assert link_of(app) == ABLATION | link
    paged = {"policy": "blocks(h2o,size=8)", "first": "size", "values": "4 8", "dialogs": "2"}
    app = open_page("benchmark", **ABLATION, **paged)
    assert not app.error
    assert "--policy 'blocks(h2o,size=8)' --parameter size" in app.code[0].value
    assert {name: link_of(app)[name] for name in paged} == paged
    app = run_until(press(app, "Run"), f"{SHOWN}page size (b) of Blocks (H2O, size=8) on")
    assert len(app.get("vega_lite_chart")) == 3


def test_a_link_of_an_earlier_version_with_two_hyperparameters_opens_the_first() -> None:
    link = {"policy": "fd-kvc", "first": "gamma", "values": "0.8 0.9"}
    app = open_page("benchmark", **ABLATION, **link, second="–")
    assert not app.error
    app = open_page("benchmark", **ABLATION, **link, second="w_c", second_values="0.2 0.4")
    (wrong,) = app.error
    assert "two hyperparameters at once, which this version does not do" in wrong.value
    assert {name: link_of(app)[name] for name in link} == link
    assert "second" not in link_of(app)


def listed(app: AppTest) -> list[str]:
    """Return what the runs are called that the page lists."""
    (runs,) = (radio for radio in app.radio if radio.label == "Shown")
    return [str(option) for option in runs.options]


MINE, ANOTHERS = {"address/browser": "mine"}, {"address/browser": "another person's"}


@pytest.mark.long
def test_runs_are_listed_and_shown_again() -> None:
    app = open_page("benchmark", MINE, dialogs=4)
    run_until(press(app, "Run"), f"{SHOWN}4 dialogs")
    app.number_input(key="benchmark/dialogs").set_value(600).run()
    assert shown_in(app).startswith("Shown: 600 dialogs")  # at hand, and shown at once
    assert listed(app)[0].startswith("The paper's run: 600 dialogs")
    described = listed(app)[-1].split("per scenario, ")[1]
    assert re.match(r"Run at \d\d \w{3} \d\d:\S*\d\d:\S*\d\d: 4 dialogs", listed(app)[-1])

    again = open_page("benchmark", MINE, **link_of(app))  # as a reload or another tab does
    assert listed(again)[0].startswith("The paper's run: 600 dialogs per scenario")
    assert listed(again)[-1].endswith(": 4 dialogs per scenario, " + described)
    other = open_page("benchmark", ANOTHERS, **link_of(app) | {"dialogs": "4"})
    assert shown_in(other).startswith("Shown: 4 dialogs")  # equal settings have equal results
    assert [name for name in listed(other) if not name.startswith("The paper's run")] == []

    last = shared_jobs().results(Benchmark)[-1]
    app.radio(key="benchmark/runs").set_value(last.name).run()
    assert shown_in(app).startswith("Shown: 4 dialogs")
    assert link_of(app)["dialogs"] == "4"
    assert not app.exception


def test_a_run_that_goes_on_is_shown_after_a_reload_and_to_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = threading.Event()

    def wait(benchmark: Benchmark, **how: Any) -> study.Study:
        assert gate.wait(SECONDS)
        return study.Study(run_benchmark(benchmark))

    monkeypatch.setattr("fdkvc.paper.results.run_study", wait)
    app = open_page("benchmark", MINE, dialogs=2, seed=80)
    app.button(key="benchmark/run").click().run()

    reloaded = open_page("benchmark", MINE, **link_of(app))
    for same in (app, reloaded):
        assert same.button(key="benchmark/run").disabled
        assert same.button(key="benchmark/cancel").label == "Cancel"
        assert [info.value for info in same.info] == [
            "These settings are being measured: the results will be shown here."
        ]
    elsewhere = open_page("benchmark", MINE, **link_of(app) | {"dialogs": "7"})
    assert elsewhere.button(key="benchmark/cancel")
    assert "another run is going on" in elsewhere.info[0].value
    other = open_page("benchmark", ANOTHERS, **link_of(app))
    assert not other.button(key="benchmark/run").disabled
    assert "press Run to measure them" in other.info[0].value

    gate.set()
    run_until(reloaded, f"{SHOWN}2 dialogs")
    assert not any("measured" in info.value for info in reloaded.info)


@pytest.mark.long
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_run_that_ends_while_the_page_is_drawn_is_listed_once_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    """The list is drawn after the panel, which may have found the run still under way."""
    app = open_page("benchmark", dialogs=2, seed=90 + cancelled)
    gate = threading.Event()

    def slow(page: str, name: str, work: Work, *more: Any) -> None:
        def gated(**how: Any) -> object:
            assert gate.wait(SECONDS)
            return work(**how)

        run_panel(page, name, gated, *more)
        if job := shared_jobs().find(st.session_state.get(job_key(page))):
            if cancelled:
                job.cancelled.set()
            gate.set()
            job.future.result(SECONDS)

    monkeypatch.setattr("fdkvc.paper.page.past.run_panel", slow)
    before = listed(app)
    app.button(key="benchmark/run").click().run()
    for _ in range(3):
        said = [caption.value for caption in app.caption if f"{SHOWN}2 dialogs" in caption.value]
        assert len(listed(app)) == len(before) + len(said)
        app.run()
    assert said


@pytest.mark.long
@pytest.mark.parametrize("done", [0, 2, 4])
def test_a_cancelled_run_says_so_and_runs_of_equal_settings_differ_by_their_time(
    monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    few = {"scenarios": "shift", "policies": "fifo,h2o"}
    app = open_page("benchmark", dialogs=4, seed=70 + done, **few)
    run_until(press(app, "Run"), f"{SHOWN}4 dialogs")
    assert not app.warning
    whole = listed(app)

    def cancel(
        benchmark: Benchmark, on_progress: Report, cancelled: threading.Event
    ) -> study.Study:
        cancelled.set()
        part = run_benchmark(dataclasses.replace(benchmark, dialogs=done or 1))
        measured = part.measured if done else {scenario: {} for scenario in part.measured}
        return study.Study(dataclasses.replace(part, benchmark=benchmark, measured=measured))

    monkeypatch.setattr("fdkvc.paper.results.run_study", cancel)
    time.sleep(max(0.0, 1 - time.time() % 1))  # the next second begins
    app = run_until(press(app, "Run"), "Cancelled")

    expected = f"Cancelled: results of {done} of 4 dialogs of each scenario."
    assert [warning.value for warning in app.warning] == [expected]
    assert listed(app)[:-1] == whole
    assert f", cancelled after {done} of 4 dialogs: 4 dialogs" in listed(app)[-1]
    assert listed(app)[-1].split(",")[0] != whole[-1].split(": ")[0]
    assert listed(app)[-1].split(",")[0].removeprefix("Run at ") in shown_in(app)


def test_changed_settings_are_pointed_out(ran: AppTest) -> None:
    ran.number_input(key="benchmark/seed").set_value(5).run()
    assert any("settings differ from this run's" in info.value for info in ran.info)
    ran.number_input(key="benchmark/seed").set_value(0).run()
    assert not any("settings differ from this run's" in info.value for info in ran.info)


def test_a_failed_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import fdkvc.paper.results

    def fail(*_: object, **__: object) -> None:
        raise ValueError("the noise is too loud")

    monkeypatch.setattr(fdkvc.paper.results, "run_study", fail)
    app = press(open_page("benchmark"), "Run")
    run_until(app, "the noise is too loud")
    assert [error.value for error in app.error] == ["The run failed: the noise is too loud."]


@pytest.mark.long
def test_every_metric_that_is_asked_for_is_shown() -> None:
    link = {"scenarios": "return", "metrics": ",".join(metrics_of())}
    app = open_page("benchmark", dialogs=2, **link)
    run_until(press(app, "Run"), f"{SHOWN}2 dialogs")
    assert f"--metrics {' '.join(list(metrics_of()))} --out" in app.code[0].value
    section(app, "Tables")
    titles = [heading.value for heading in app.header]
    assert [title.split(", %")[0] for title in titles[-len(metrics_of(optional=True)) :]] == [
        metric.title for metric in metrics_of(optional=True).values()
    ]


def test_a_sweep_is_drawn_and_gives_its_files() -> None:
    app = open_page("benchmark", **ABLATION, dialogs=3)
    run_until(press(app, "Run"), SHOWN)
    assert [heading.value for heading in app.header] == []
    assert len(app.get("vega_lite_chart")) == 3
    labels = [button.proto.label for button in app.get("download_button")]
    assert labels == ["Everything as a ZIP", "run.json", "sweep.csv"]


@pytest.mark.long
def test_bad_values_get_a_sentence_and_the_last_good_ones() -> None:
    app = open_page("benchmark", **ABLATION)
    app.text_input(key="benchmark/fd-kvc/gamma/values").set_value("0.5 2").run()
    (error,) = app.error
    assert error.value == (
        "gamma is 2.0, but must be a number above 0 and below 1. "
        "Still using 0.7 0.75 0.8 0.85 0.88 0.92."
    )


@pytest.mark.parametrize("key", ABLE)
def test_the_values_that_are_suggested_can_be_read(key: str) -> None:
    for name in sweepable(key):
        suggested = suggested_values(key, name)
        assert read_values(values_of(key, name).default, key, name, 7) == suggested


def test_a_metric_that_is_undefined_in_a_scenario_is_named() -> None:
    # No topic returns in Topic Shift.
    shift = SCENARIOS["shift"]
    metrics = ("retention", "return_recall")
    sweep = Sweep(scenario=shift, metrics=metrics[1:], dialogs=2)
    run = SweepRun.measure(sweep, workers=1)
    words = "Not shown, as some dialogs have no value of it: return recall on Topic Shift."
    assert run.text == effects_sentence([run]) == words
    benchmark = Benchmark((shift, SCENARIOS["return"]), metrics=metrics, dialogs=2)
    assert words in BenchmarkRun(run_study(benchmark, is_whole=False, workers=1)).text


def test_the_command_of_a_sweep_has_all_digits_of_a_value() -> None:
    sweep = Sweep(policy="fd-kvc", parameter="gamma", values=(0.88123456,))
    assert "--values 0.88123456 " in sweep_command(sweep)


@pytest.mark.parametrize("key", POLICIES)
def test_the_command_of_a_sweep_names_all_that_was_chosen(key: str) -> None:
    for name in sweepable(key):
        value = getattr(POLICIES[key](), name)
        sweep = Sweep(policy=key, parameter=name, values=(value,))
        asked = build_parser().parse_args(shlex.split(sweep_command(sweep))[3:])
        assert (asked.parameter, asked.values) == (name, [f"{value:g}"])
        again = settings_from(Sweep, asked, values=sweep.values)
        assert again == dataclasses.replace(sweep, dialogs=2000)


@pytest.mark.long
@pytest.mark.parametrize("page", ["benchmark", "ablation"])
def test_the_command_that_a_page_shows_is_one_that_the_command_line_takes(page: str) -> None:
    policies = ["h2o", "fd-kvc gamma=0.8 w_c=0.3", "pyramid(fifo, last=1.5)"]
    link = ABLATION if page == "ablation" else {}
    app = open_page("benchmark", {} if link else {"benchmark/policies": policies}, **link)
    place = "benchmark" if page == "benchmark" else "benchmark/ablation"
    app.number_input(key=f"{place}/seed").set_value(3)
    app.number_input(key=f"{place}/budget").set_value(40)
    app.session_state[f"{place}/metrics"] = ["retention", "attention_loss"]

    program, module, name, *arguments = shlex.split(settled(app.run()).code[0].value)

    assert (program, module, name) == ("python", "-m", "fdkvc")
    asked = build_parser().parse_args(arguments)
    assert (asked.seed, asked.budget, asked.metrics) == (3, 40, ["retention", "attention_loss"])
    if page == "benchmark":
        benchmark = settings_from(Benchmark, asked)
        assert [policy.name for policy in benchmark.policies] == policies
        assert [scenario.key for scenario in benchmark.scenarios] == list(SCENARIOS)
    else:
        assert (asked.policy, asked.scenario) == ("fd-kvc", "mixed")
        assert asked.parameter == "gamma"
        assert [float(value) for value in asked.values] == [0.7, 0.75, 0.8, 0.85, 0.88, 0.92]


def test_the_method_has_its_steps() -> None:
    app = open_page("about")
    equations = [step.equation for step in policy_named("fd-kvc").steps]
    assert [latex.value.strip("$\n") for latex in app.latex] == equations


def test_the_citation_and_all_seven_limitations_are_there() -> None:
    shown = [text.value for text in open_page("about").markdown]
    assert any("Sukanta Ganguly (NetApp Inc), *Fractional Decay" in words for words in shown)
    (limitations,) = (words for words in shown if "Section 9" in words)
    assert len(re.findall(r"^- \*\*.*\.\*\* \*", limitations, re.MULTILINE)) == 7


@pytest.mark.long
def test_ablation_opens_with_the_same_metric_for_both_settings() -> None:
    texts = [text.value for text in open_page("benchmark", **ABLATION).markdown]
    (answer,) = [text for text in texts if "the default" in text]
    assert answer == plain(
        "Recency decay (γ): late retention is 85.7\u00a0% at 0.7, 84.7\u00a0% at 0.85, 64.1\u00a0% "
        "at 0.88 (the default) and 26.5\u00a0% at 0.92. Cumulative weight (w_c): late retention is "
        "77.4\u00a0% at 0.1 and 0.1\u00a0% at 0.9."
    )
