"""What the figures of a page say: each metric as it is declared, each policy in a sentence."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from fdkvc.policies import Policy
from fdkvc.run.metrics import metric_named
from fdkvc.ui.kit.markdown import Markdown


def show_glossary(metrics: Iterable[str], policies: Iterable[Policy] = ()) -> None:
    """Say behind a click what these metrics are, and by what these policies decide.

    Parameters
    ----------
    metrics : iterable of str
        Keys of `fdkvc.run.metrics.METRICS`.
    policies : iterable of Policy
    """
    declared = [metric_named(key, None) for key in metrics]
    said = [(metric.label, metric.help) for metric in declared]
    said += [(policy.title, policy.idea) for policy in policies]
    with st.expander("What these figures say", icon=":material/help:"):
        st.markdown(
            Markdown("\n").join(Markdown("- **{}:** {}").format(name, help) for name, help in said)
        )
