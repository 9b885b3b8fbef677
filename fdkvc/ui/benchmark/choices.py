"""What the benchmark runs: scenarios, policies and dialogs of the sidebar, or of a run.json."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial

import streamlit as st

from fdkvc.experiments.benchmark import Benchmark, matches_paper
from fdkvc.files.options import options_of
from fdkvc.files.record import Record
from fdkvc.files.repeat import compare, comparison_sentence
from fdkvc.files.shipped import papers_run
from fdkvc.kinds.benchmark import BenchmarkRun, StudyRun
from fdkvc.limits import MAX_BENCHMARK_POLICIES
from fdkvc.parameters import DIALOGS, SEED, Field, check_most
from fdkvc.synthetic.scenarios import SCENARIOS, World
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.downloads import brought_run, files_of, versions_of
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.past import Kind
from fdkvc.ui.kit.run_panel import show_command, start_run
from fdkvc.ui.kit.sidebar import BUDGET_HERE, MEASURED
from fdkvc.ui.kit.variants import CHOSEN, choose_policies, warn_no_effect
from fdkvc.words import command_line, count, sentence

ALL_SCENARIOS = Field("Scenarios", name="scenarios", default=tuple(SCENARIOS), choices=SCENARIOS)
DIALOGS_HERE = replace(DIALOGS, high=2000)
"""Dialogs per scenario of a run on the page."""

NUMBERS = (DIALOGS_HERE, SEED, replace(BUDGET_HERE, follows=False))

FIELDS = [ALL_SCENARIOS, CHOSEN, MEASURED, *NUMBERS]
"""Every field of the address."""


def choose_benchmark(page: str) -> Benchmark:
    """Show the controls and return the benchmark."""
    policies = choose_policies(page)
    warn_no_effect(policies)
    scenarios = fields.several(page, ALL_SCENARIOS)
    numbers = fields.numbers(page, NUMBERS)
    metrics = fields.several(page, MEASURED)
    chosen = Benchmark(
        tuple(SCENARIOS[key] for key in scenarios), policies, metrics=metrics, **numbers
    )
    more = command_line("benchmark --all", options_of(replace(chosen, dialogs=6000)))
    show_command(f"At most {DIALOGS_HERE.high:,} dialogs per scenario", more)
    return chosen


def _link(benchmark: Benchmark) -> Mapping[str, str]:
    values = {
        ALL_SCENARIOS.name: tuple(scenario.key for scenario in benchmark.scenarios),
        CHOSEN.name: tuple(policy.name for policy in benchmark.policies),
        MEASURED.name: benchmark.metrics,
        **{field.name: getattr(benchmark, field.name) for field in NUMBERS},
    }
    return {field.name: field.written(values[field.name]) for field in FIELDS}


def _described(benchmark: Benchmark) -> str:
    """Return the settings of a run in words."""
    return (
        f"{count(benchmark.dialogs, 'dialog')} per scenario, seed {benchmark.seed}, "
        f"budget {benchmark.budget}, {count(len(benchmark.policies), 'policy', 'policies')}, "
        f"{count(len(benchmark.scenarios), 'scenario')}"
    )


def _unfinished(run: StudyRun) -> str:
    """Say what a run lacks that was cancelled after its dialogs had finished."""
    study, benchmark = run.study, run.settings
    if study.seconds and not (matches_paper(benchmark) and study.probes is None):
        return ""
    return "What follows them (ablations, times, memory, probes) is not."


@cache
def kind_of(page: str) -> Kind:
    """Return what the page runs."""
    return Kind(
        page,
        Benchmark,
        StudyRun.measure,
        choose_benchmark,
        _link,
        lambda *_: FIELDS,
        _described,
        shipped=[StudyRun(papers_run().study)],
        rest=_unfinished,
    )


# ------------------------------------------------------------------------------- repeat


def choose_record(page: str) -> None:
    """Offer to repeat the run of a run.json file."""
    with st.popover("Repeat a run from its run.json", icon=":material/replay:"):
        label = "run.json (add its tables to compare with numbers from another processor)"
        try:
            record = brought_run(f"{page}/record/file", label, "benchmark", "study")
            if record is None:
                return
        except ValueError as error:
            fields.problems(f"This file cannot be repeated: {error}.")
            return
        try:
            check_fits(record.benchmark)
        except ValueError as error:
            fields.problems(
                f"This run cannot be repeated here: {error}. "
                "Use the command python -m fdkvc repeat run.json."
            )
            return
        benchmark = record.benchmark
        st.markdown(plain(f"{_described(benchmark)}. It ran with {versions_of(record)}."))

        def repeat() -> None:
            st.session_state[f"{page}/record"] = record
            start_run(page, partial(StudyRun.measure, benchmark), benchmark)

        st.button("Repeat this run", key=f"{page}/record/run", on_click=repeat)


def show_repeated(page: str, run: StudyRun) -> None:
    """Show whether a repeated run gave the same numbers."""
    record: Record | None = st.session_state.get(f"{page}/record")
    if record is None or record.benchmark != run.settings:
        return
    if not run.results.complete:
        st.warning("Cancelled: the run was only repeated in part.", icon=":material/replay:")
        return
    files = files_of(run)
    if record.kind == BenchmarkRun.kind:
        files = BenchmarkRun(run.study, record.baseline).files
    comparison = compare(record, files)
    words = sentence(f"repeated: {comparison_sentence(record, comparison)}")
    tell = st.success if comparison.repeated else st.error if comparison.anything else st.warning
    ran = f" The first run used {versions_of(record)}." * (tell is st.error)
    tell(plain(words + ran), icon=":material/replay:")


def check_fits(benchmark: Benchmark) -> None:
    """Raise a ValueError if the page could not be set to a benchmark."""
    link = _link(benchmark)
    for field in FIELDS:
        field.parse(link[field.name])
    check_most("it has", len(benchmark.policies), "policies", MAX_BENCHMARK_POLICIES)
    if benchmark.world != World() or not {*benchmark.scenarios} <= {*SCENARIOS.values()}:
        raise ValueError("its scenarios or its world differ from the paper's")
