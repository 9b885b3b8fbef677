"""Explanations beside words and below figures: of terms, metrics and policies."""

import re
from collections.abc import Iterable, Mapping
from itertools import starmap
from types import MappingProxyType

import streamlit as st

from fdkvc.engine.metrics import METRICS
from fdkvc.policies import Policy
from fdkvc.ui.markdown import Markdown, plain

WORDS = {
    "Nats": "The unit of natural logarithms. A change of 0.69 nats halves or doubles a "
    "probability; 0 changes nothing.",
    "KL": "Kullback-Leibler divergence: how far a model's predictions are from those with the full "
    "cache. At 1 nat, what the full cache predicts gets on average a probability 2.7 times "
    "smaller.",
    "Cluster": "Dialogs with the same services are alike, so for an interval they count as one.",
    "Wrapper": "A rule around a policy that changes how it evicts, such as protecting the first "
    "tokens or evicting whole blocks; the policy's scores stay.",
    "Tool calls not part of the text": "A call that an assistant made is shown, but its words take "
    "no room in the cache: only its values are needed. Where a model's tokens are counted, it is "
    "read as that model's template writes it.",
    "Read again": "The model computes keys and values anew from the text that stays, and so "
    "without what was evicted; kept ones were computed when all of it was there.",
}
"""Words of this project, explained."""


def help_on(text: str) -> Markdown | None:
    """Explain the words of this project that a text has, for the help beside it."""
    words = [word for word in WORDS if re.search(rf"(?i)\b{word}s?\b", text)]
    return plain(" ".join(f"{word}: {WORDS[word]}" for word in words)) if words else None


def show_glossary(
    metrics: Iterable[str],
    policies: Iterable[Policy] = (),
    further: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Explain these metrics, `further` words and policies behind a click."""
    entries = [(METRICS[key].label, METRICS[key].help) for key in metrics]
    entries += further.items()
    show_entries(entries + [(policy.title, policy.idea) for policy in policies])


def show_entries(
    entries: Iterable[tuple[str, str]], title: str = "What these figures mean"
) -> None:
    """Explain names behind a click."""
    with st.expander(plain(title), icon=":material/help:"):
        lines = starmap(Markdown("- **{}:** {}").format, entries)
        st.markdown(Markdown("\n").join(lines))
