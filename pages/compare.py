"""Compare: several policies over one dialog, in step, and what would have happened if."""

import streamlit as st

from fdkvc.ui.compare import scenes, what_if
from fdkvc.ui.kit import fields, sidebar
from fdkvc.ui.kit.frame import enter_page, heading, problems
from fdkvc.ui.kit.lanes import choose_lanes, load_lanes
from fdkvc.ui.kit.variants import tell_idle_in
from fdkvc.ui.stage.follow import nearly_kept, open_on

PAGE = "compare"

enter_page()

link = fields.arriving_link()
wrong = scenes.adopt_link(PAGE, link)

with st.container(horizontal=True, vertical_alignment="center", key="stage-head"):
    heading(
        "Compare",
        "Several policies read the same dialog, all at the same turn: see where their caches part.",
    )
    beside_title = st.container(horizontal=True, width="content")
problems(wrong)

with st.sidebar:
    dialog, budget = sidebar.choose_dialog(PAGE)
    policies = choose_lanes(PAGE)
    asked = sidebar.choose_metrics(PAGE)

runs = load_lanes(dialog, policies, budget, asked)
open_on(PAGE, link, lambda: nearly_kept(runs[-1].run))
problems(sidebar.keep_to_dialog(PAGE, runs[0].run.dialogs, link))
tell_idle_in(policies, runs[0].run.dialogs)

with beside_title:
    what_if.ask(PAGE, runs)
    files = st.container(width="content")
lanes = what_if.with_fork(PAGE, runs)
with files:
    scenes.downloads(PAGE, lanes)
follow = scenes.show(PAGE, lanes, fields.link_writer(PAGE, scenes.FIELDS, sidebar.MOVING))
follow()
