"""Damage: how much less likely a policy makes the text, by turn, by layer and head."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import streamlit as st

from fdkvc.attention import Floats
from fdkvc.charts.results import damage_chart
from fdkvc.charts.theme import Spec
from fdkvc.grid import html_table
from fdkvc.ui.answers.conversation import Answered, damage, head_damage, text_of
from fdkvc.ui.answers.why import choose_answer
from fdkvc.ui.kit.downloads import show_chart
from fdkvc.ui.kit.frame import page_theme, panel, show_grid, side_by_side
from fdkvc.ui.kit.markdown import plain
from fdkvc.words import signed

WRITERS = {"user": "user", "call": "tool calls", "system": "assistant"}


def show_damage(page: str, answered: Answered) -> Mapping[str, pd.DataFrame]:
    """Show the damage to the whole text; return its tables."""
    conversation = answered.conversation
    if not conversation.policies:
        return {}
    text = text_of(answered)
    table = damage(conversation, text)
    read = "the full cache's text" if conversation.messages else "the whole dialog"
    st.markdown(
        plain(
            f"Every cache reads {read} and evicts after each passage. Damage is how much less "
            "likely the next tokens become than with the full cache, in nats per token."
        )
    )
    with side_by_side("damage"):
        with panel("damage-turns"):
            show_chart(page, "damage", _chart(answered, table))
        with panel("damage-heads"):
            name = choose_answer(page, answered, evicting=True)
            heads = head_damage(conversation, name, text)
            st.html(_heads_html(heads))
            st.caption(
                "Nats per token if only one KV head evicts and all others hold the whole text. "
                "Below 0, the text became more likely."
            )
    show_grid(_by_writer(answered, table), "Damage by writer, in nats per token")
    rows = [(name, *place, float(heads[place])) for place in np.ndindex(heads.shape)]
    by_head = pd.DataFrame(rows, columns=["policy", "layer", "head", "damage"])
    return {"damage.csv": table, "damage_by_head.csv": by_head}


def _chart(answered: Answered, table: pd.DataFrame) -> Spec:
    titles = answered.conversation.titles
    rows = table.assign(policy=table.memory.map(titles), lost=table.damage * table.tokens)
    # A turn with a call and words counts all their tokens.
    turns = rows.groupby(["policy", "turn"], sort=False, as_index=False).agg(
        writer=("writer", " and ".join), tokens=("tokens", "sum"), lost=("lost", "sum")
    )
    turns["damage"] = turns.pop("lost") / turns.tokens
    policies = [policy.title for policy in answered.conversation.policies]
    return damage_chart(turns, policies, page_theme())


def _by_writer(answered: Answered, table: pd.DataFrame) -> dict[str, list[str]]:
    """Return a row for each policy: its damage over all tokens, and by writer."""
    columns: dict[str, list[str]] = {"policy": []}
    for policy in answered.conversation.policies:
        rows = table[table.memory == policy.name]
        columns["policy"].append(policy.title)
        parts = {"all": rows} | {words: rows[rows.writer == key] for key, words in WRITERS.items()}
        for words, part in parts.items():
            mean = np.average(part.damage, weights=part.tokens) if len(part) else np.nan
            columns.setdefault(words, []).append("–" if np.isnan(mean) else signed(mean, 3))
    return columns


def _heads_html(heads: Floats) -> str:
    top = max(float(heads.max()), 1e-9)
    rows = []
    for layer, row in enumerate(heads.tolist()):
        shares = [(max(lost, 0) / top, signed(lost, 3)) for lost in row]
        cells = [f'<td style="--share:{share:.2f}">{words}</td>' for share, words in shares]
        rows.append([f'<th scope="row">layer {layer}</th>', *cells])
    names = ["", *(f"head {at}" for at in range(heads.shape[1]))]
    return html_table(names, rows, "Damage by layer and head, in nats per token", "scrolls heat")
