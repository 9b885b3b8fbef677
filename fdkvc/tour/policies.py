"""The policies of the registry: which to use, and each one's idea, equations and parameters."""

import streamlit as st

from fdkvc.core.parameters import written
from fdkvc.models.judged import ABOUT_RESULTS, judged_notes, recommendation, results_grid
from fdkvc.models.report import judged
from fdkvc.policies import POLICIES, WRAPPERS, Policy, policy_named, wrapped
from fdkvc.ui import fields
from fdkvc.ui.downloads import show_chart
from fdkvc.ui.frame import page_theme, show_grid
from fdkvc.ui.glossary import help_on
from fdkvc.ui.markdown import Markdown, plain

FIRST = ("regions", "sink", "weighted-recency", "h2o", "messages", "fd-kvc")
"""Keys of the policies that are shown at first, in the order of the picture."""

PICTURED = (*FIRST, "surprisal", "turns", "shift", "random", "tova")
"""Those of the picture."""


def show_judged(page: str) -> None:
    """Say which policy to use, and show what each costs a pretrained model."""
    st.markdown(Markdown("**{}**").format(recommendation()))
    st.page_link("pages/dialogs.py", label="Judge your own dialogs", icon=":material/forum:")
    show_chart(page, "judged", judged.judged_chart(page_theme()))
    st.caption(Markdown("  \n").join(map(plain, judged_notes())))
    st.markdown(plain(ABOUT_RESULTS))
    show_grid(results_grid(), ABOUT_RESULTS)
    expander = st.expander("All measurements", key=f"{page}/all", on_change="rerun")
    if not expander.open:
        return
    with expander:
        st.caption(plain(judged.ABOUT), help=help_on(judged.ABOUT))
        for title, grid in judged.judged_grids().items():
            st.markdown(Markdown("**{}**").format(title))
            show_grid(grid, title)


def show_each(page: str) -> None:
    """Show the idea of a policy; what it consists of once it is opened; all once asked for."""
    # Wrappers are shown around FIFO, which protects no entries itself.
    everything = [*map(policy_named, POLICIES)]
    everything += [wrapped(key, policy_named("fifo")) for key in WRAPPERS]
    by_key = {policy.key: policy for policy in everything}
    in_order = [*dict.fromkeys((*PICTURED, *by_key))]
    for key in in_order[: len(FIRST)]:
        _show_policy(page, by_key[key])
    rest = f"{len(in_order) - len(FIRST)} more, others of the picture first"
    if st.toggle(plain(rest), key=f"{page}/more"):
        for key in in_order[len(FIRST) :]:
            _show_policy(page, by_key[key])


def _show_policy(page: str, policy: Policy) -> None:
    title = Markdown("**{}** · {}").format(type(policy).label, policy.idea)
    expander = st.expander(plain(title), key=f"{page}/{policy.key}", on_change="rerun")
    # The browser takes long to typeset equations: only those that a reader opens.
    if not expander.open:
        return
    with expander:
        for step in policy.steps:
            st.markdown(Markdown("**{}** :gray[({})]").format(step.name, step.source))
            st.latex(step.equation)
        if policy.settings:
            st.table(
                [
                    {
                        "Parameter": plain(fields.label(field)),
                        "Default": plain(written(field.default)),
                        "Allowed": plain(field.allowed(field.kind)),
                        "What it does": plain(field.help),
                    }
                    for field in policy.settings.values()
                ]
            )
        looks = policy.looks_at
        remembers = map(policy.quantity_name, policy.channels)
        st.markdown(
            Markdown("Looks at {}. Stores {}. Named `{}`.  \n:gray[{}.]").format(
                ", ".join(looks), ", ".join(remembers) or "nothing", policy.key, policy.source
            )
        )
