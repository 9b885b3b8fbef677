"""The paper's tables, measured and published, and costs."""

import pandas as pd
import streamlit as st

from fdkvc.paper.page.claims import EVERY, choose_verdict
from fdkvc.paper.replication.cells import (
    MeasuredTable,
    measured_tables,
    reproduced_sentence,
    verdicts_of,
)
from fdkvc.paper.replication.rules import LEGEND, POWER
from fdkvc.paper.replication.tables import cost_table
from fdkvc.paper.report.tables import STYLE, measured_html
from fdkvc.paper.study import Study
from fdkvc.ui.frame import show_grid
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
    else:
        st.caption("To compare with random eviction, add the policy Random and run again.")
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
            st.markdown(plain(f"{reproduced_sentence(tables)} {EXPECTED}"))
    st.caption(
        "Measured ± half-width of its 95 % interval; below it, verdict, published figure and "
        "(measured − published)."
    )
    st.html(f"<style>{STYLE}</style>")
    if verdict != EVERY:
        tables = [shown for table in tables if (shown := table.of_verdict(verdict)).cells]
    for table in tables:
        st.header(plain(table.heading), anchor=False)
        st.html(measured_html(table))


# ------------------------------------------------------------------------------- time and memory


def show_cost(page: str, study: Study) -> None:
    """Show latency and memory."""
    if not study.latencies:
        st.info("The run was cancelled before latency and memory were measured.")
        return
    budget = study.results.benchmark.budget
    titles = {policy.name: policy.title for policy in study.results.benchmark.policies}
    table = cost_table(study)
    table = table.assign(policy=table.policy.map(lambda name: titles.get(name, name)))
    st.header("Time per turn", anchor=False)
    st.markdown(
        "Median time to score, evict and compute the output, after a warm-up. Policies alternate, "
        "so other load slows all of them alike. Times are of this machine; the ratio to FIFO is "
        "easier to compare (3.9 for FD-KVC in the paper). Batched: 100 dialogs at once."
    )
    times = _columns(
        table,
        ms_per_turn=("ms, one dialog", "%.3f"),
        published_ms=("published ms", "%.3f"),
        ratio_to_fifo=("× FIFO", "%.2f"),
        published_ratio=("published × FIFO", "%.2f"),
        ms_per_turn_batched=("ms per dialog, batched", "%.4f"),
        batched_ratio_to_fifo=("× FIFO, batched", "%.2f"),
    )
    show_grid(times, "Time per turn")
    st.header("Memory and reads", anchor=False)
    st.markdown(
        plain(
            f"Bytes of a cache of {budget} entries, and of all keys and values of a Mixed 3-Topic "
            "dialog without eviction. The paper counts 8 bytes of scores per entry for FD-KVC "
            "(Appendix B). Neither count includes the embeddings that relevance needs."
        )
    )
    sizes = _columns(
        table[table.key_bytes > 0],
        key_bytes=("keys", "%d"),
        value_bytes=("values", "%d"),
        score_bytes=("scores", "%d"),
        score_bytes_per_entry=("scores per entry", "%g"),
        full_cache_bytes=("full cache", "%d"),
        read_bytes=("read per turn", "%d"),
    )
    show_grid(sizes, "Bytes of a cache")


def _columns(table: pd.DataFrame, **columns: tuple[str, str]) -> dict[str, list[str]]:
    """Return these columns with their labels and formats; empty ones are left out."""
    words = {
        label: ["" if pd.isna(value) else form % value for value in table[name]]
        for name, (label, form) in columns.items()
    }
    return {
        "policy": table.policy.tolist(),
        **{name: cells for name, cells in words.items() if any(cells)},
    }
