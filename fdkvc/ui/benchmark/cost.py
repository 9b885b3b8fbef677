"""Time per turn and bytes of a cache by policy, beside the paper's."""

from typing import Any

import pandas as pd
import streamlit as st

from fdkvc.kinds.benchmark import StudyRun
from fdkvc.replication.tables import cost_table
from fdkvc.ui.kit.markdown import plain


def show_cost(page: str, run: StudyRun) -> None:
    """Show latency and memory."""
    study = run.study
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
    _show(
        f"{page}/latency",
        table,
        ms_per_turn=("ms, one dialog", "%.3f"),
        published_ms=("published ms", "%.3f"),
        ratio_to_fifo=("× FIFO", "%.2f"),
        published_ratio=("published × FIFO", "%.2f"),
        ms_per_turn_batched=("ms per dialog, batched", "%.4f"),
        batched_ratio_to_fifo=("× FIFO, batched", "%.2f"),
    )
    st.header("Memory and reads", anchor=False)
    st.markdown(
        plain(
            f"Bytes of a cache of {budget} entries, and of all keys and values of a Mixed 3-Topic "
            "dialog without eviction. The paper counts 8 bytes of scores per entry for FD-KVC "
            "(Appendix B). Neither count includes the embeddings that relevance needs."
        )
    )
    _show(
        f"{page}/memory",
        table[table.key_bytes > 0],
        key_bytes=("keys", "%d"),
        value_bytes=("values", "%d"),
        score_bytes=("scores", "%d"),
        score_bytes_per_entry=("scores per entry", "%g"),
        full_cache_bytes=("full cache", "%d"),
        read_bytes=("read per turn", "%d"),
    )


def _show(key: str, table: pd.DataFrame, **columns: tuple[str, str]) -> None:
    """Show these columns with their labels and formats; empty ones are left out."""
    labels = {"policy": "policy"} | {name: label for name, (label, _) in columns.items()}
    shown = table[[*labels]].dropna(axis="columns", how="all").rename(columns=labels)
    formats: dict[str, Any] = {label: form.__mod__ for label, form in columns.values()}
    style = shown.style.format({name: formats[name] for name in shown.columns[1:]}, na_rep="")
    st.dataframe(style, hide_index=True, key=key, height="content")
