"""Benchmark: the paper's tables, figures and claims, measured beside published."""

import streamlit as st

from fdkvc.ui.benchmark import choices, repeat, sections
from fdkvc.ui.kit import fields, past
from fdkvc.ui.kit.frame import enter_page, heading, problems, side_by_side
from fdkvc.ui.kit.run_panel import run_panel
from fdkvc.ui.kit.variants import tell_idle
from fdkvc.ui.kit.work import study_work

PAGE = "benchmark"
RUNS = choices.runs_of(PAGE)

enter_page()

wrong = fields.adopt_link(PAGE, [*choices.FIELDS, past.LINKED], fields.arriving_link())

heading(
    "Benchmark",
    "Every policy runs on the same dialogs; what comes out stands beside what the paper prints, "
    "with its 95 % interval and a verdict. The paper's own 600 dialogs a scenario take seconds.",
)
problems(wrong)
st.page_link("pages/dialogs.py", label="Run the dialogs of a file instead", icon=":material/forum:")
with st.sidebar:
    benchmark = choices.choose_benchmark(PAGE)

tell_idle(benchmark.policies)
run_panel(PAGE, "Run", study_work(benchmark), content=benchmark)
shown = past.at_hand(RUNS, benchmark)
with side_by_side("runs"):
    past.show_runs(RUNS, shown)
    repeat.choose_record(PAGE)

if shown is None:
    past.offer()
else:
    sections.about_run(shown, benchmark)
    repeat.tell_repeated(PAGE, shown.result)
    sections.show_sections(PAGE, shown.result)
fields.write_link(PAGE, [*choices.FIELDS, *past.linked(PAGE)])
