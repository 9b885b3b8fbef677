"""What a policy costs: time of a turn and bytes of a cache, beside the paper's."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st

from fdkvc.experiments.study import Study
from fdkvc.replication.tables import cost_table
from fdkvc.ui.kit.markdown import plain


def show_cost(page: str, study: Study) -> None:
    """Show latency and memory."""
    if not study.latencies:
        st.info("The run was cancelled before latency and memory were measured.")
        return
    budget = study.results.benchmark.budget
    titles = {policy.name: policy.title for policy in study.results.benchmark.policies}
    table = cost_table(study)
    table = table.assign(policy=table.policy.map(lambda name: titles.get(name, name)))
    st.header("Time of a turn", anchor=False)
    st.markdown(
        "Scores, eviction and output; drawing and metrics are left out. After a warm-up, the "
        "median over many turns, the policies taking turns so that a busy machine is unfair to "
        "none. Milliseconds are this machine's; the ratio to FIFO travels better, and the paper's "
        "is 3.9 for FD-KVC. Batched: 100 dialogs go through a turn together."
    )
    _show(
        f"{page}/latency",
        table,
        ms_per_turn=("ms, one dialog", "%.3f"),
        published_ms=("published ms", "%.3f"),
        ratio_to_fifo=("× FIFO", "%.2f"),
        published_ratio=("published × FIFO", "%.2f"),
        ms_per_turn_batched=("ms a dialog, batched", "%.4f"),
        batched_ratio_to_fifo=("× FIFO, batched", "%.2f"),
    )
    st.header("Memory and reads", anchor=False)
    st.markdown(
        plain(
            f"Bytes of a cache of {budget} entries, and of all keys and values of a dialog of "
            "Mixed 3-Topic if nothing were evicted. The paper counts 8 bytes of scores an entry "
            "for FD-KVC (Appendix B); the embeddings that relevance is computed from are kept as "
            "well, and are not counted there or here."
        )
    )
    _show(
        f"{page}/memory",
        table[table.key_bytes > 0],
        key_bytes=("keys", "%d"),
        value_bytes=("values", "%d"),
        score_bytes=("scores", "%d"),
        score_bytes_per_entry=("scores, an entry", "%g"),
        full_cache_bytes=("full cache", "%d"),
        read_bytes=("read in a turn", "%d"),
    )


def _show(key: str, table: pd.DataFrame, **columns: tuple[str, str]) -> None:
    """Show these columns for each policy, each under a name and in a format of its own.

    A column of which nothing is known, such as published ones where nothing is, is left out.
    """
    known = {name: looks for name, looks in columns.items() if table[name].notna().any()}
    formats: dict[str, str | Callable[[object], str] | None] = {
        name: form.__mod__ for name, (_, form) in known.items()
    }
    st.dataframe(
        table[["policy", *known]].style.format(formats, na_rep=""),
        hide_index=True,
        key=key,
        height="content",
        column_config={
            name: st.column_config.NumberColumn(plain(label)) for name, (label, _) in known.items()
        },
    )
