"""A run again from its run.json, and whether its numbers are the same."""

from functools import partial

import streamlit as st

from fdkvc.files.record import Record
from fdkvc.files.repeat import compare, comparison_sentence
from fdkvc.kinds.benchmark import BenchmarkRun, StudyRun
from fdkvc.limits import MAX_BENCHMARK_POLICIES
from fdkvc.synthetic.scenarios import SCENARIOS, World
from fdkvc.ui.benchmark.choices import DIALOGS_HERE, described
from fdkvc.ui.kit.fields import problems
from fdkvc.ui.kit.files import brought_run, files_of, versions_of
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.run_panel import start_run
from fdkvc.ui.kit.sidebar import BUDGET_HERE
from fdkvc.words import sentence


def choose_record(page: str) -> None:
    """Offer to repeat the run of a run.json file."""
    with st.popover("Repeat a run from its run.json", icon=":material/replay:"):
        label = "run.json (add its tables to compare with numbers from another processor)"
        try:
            record = brought_run(f"{page}/record/file", label, "benchmark", "study")
            if record is None:
                return
            _check_size(record)
        except ValueError as error:
            problems(f"This file cannot be repeated: {error}.")
            return
        benchmark = record.benchmark
        st.markdown(plain(f"{described(benchmark)}. It ran with {versions_of(record)}."))

        def repeat() -> None:
            st.session_state[f"{page}/record"] = record
            start_run(page, partial(StudyRun.measure, benchmark), benchmark)

        st.button("Repeat this run", key=f"{page}/record/run", on_click=repeat)


def show_comparison(page: str, run: StudyRun) -> None:
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
    if comparison.repeated:
        st.success(plain(words), icon=":material/replay:")
    elif comparison.anything:
        ran = versions_of(record)
        st.error(plain(f"{words} The first run used {ran}."), icon=":material/replay:")
    else:
        st.warning(plain(words), icon=":material/replay:")


def _check_size(record: Record) -> None:
    """Raise a ValueError if the run is too large for this page, or not in the paper's world."""
    benchmark = record.benchmark
    elsewhere = "use `python -m fdkvc repeat run.json`"
    if benchmark.dialogs > DIALOGS_HERE.high:
        raise ValueError(
            f"it has {benchmark.dialogs:,} dialogs per scenario, but at most "
            f"{DIALOGS_HERE.high:,} run here: {elsewhere}"
        )
    if benchmark.budget > BUDGET_HERE.high or len(benchmark.policies) > MAX_BENCHMARK_POLICIES:
        raise ValueError(
            f"it has a budget of {benchmark.budget} and {len(benchmark.policies)} policies, but at "
            f"most {BUDGET_HERE.high} and {MAX_BENCHMARK_POLICIES} run here: {elsewhere}"
        )
    own = [each.key for each in benchmark.scenarios if SCENARIOS.get(each.key) != each]
    if own or benchmark.world != World():
        raise ValueError(
            f"its scenarios or its world differ from the paper's, which alone run here: {elsewhere}"
        )
