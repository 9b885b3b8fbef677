"""The paper's tables, measured and published."""

import streamlit as st

from fdkvc.paper.page.claims import EVERY, choose_verdict
from fdkvc.paper.replication.cells import MeasuredTable, measured_tables, verdicts_of
from fdkvc.paper.replication.rules import LEGEND, POWER
from fdkvc.paper.report.tables import STYLE, measured_html
from fdkvc.paper.study import Study
from fdkvc.ui.glossary import show_glossary
from fdkvc.ui.markdown import Markdown, plain

EXPECTED = (
    "Open is not evidence against a figure: if the paper's 600 dialogs and 600 of ours come from "
    f"one population, only {POWER} % of the varying figures are expected to be reproduced."
)


def show_tables(page: str, study: Study) -> None:
    """Show every table of the paper."""
    _show_all(page, measured_tables(study))
    if any(policy.key == "random" for policy in study.results.benchmark.policies):
        st.info(
            "**Random eviction** does well here: the paper's three metrics depend on the topics in "
            "the cache, not on the tokens, so a random sample of the dialog holds much. Attention "
            "loss depends on the tokens that get attention; in synthetic dialogs attention is "
            "nearly uniform, so policies hardly differ. In recorded dialogs they do.",
            icon=":material/casino:",
        )
    show_glossary(study.results.benchmark.metrics)


@st.fragment
def _show_all(page: str, tables: list[MeasuredTable]) -> None:
    """Show the tables with all cells or those of one verdict."""
    counts = verdicts_of(tables)
    verdict = EVERY
    with st.container(horizontal=True, vertical_alignment="center", key="table-choices"):
        if any(counts.values()):
            verdict = choose_verdict(page, "Tables", counts)
        with st.popover("Verdicts", icon=":material/help:"):
            st.markdown(Markdown("1. " + "\n1. ".join(LEGEND)))
            st.markdown(plain(EXPECTED))
    st.caption(
        "Measured ± half-width of its 95 % interval; below it, verdict, published figure and "
        "(measured − published)."
    )
    st.html(f"<style>{STYLE}</style>")
    if verdict != EVERY:
        tables = [table.of_verdict(verdict) for table in tables]
    for table in filter(lambda table: table.cells, tables):
        st.header(plain(table.heading), anchor=False)
        st.html(measured_html(table))
