"""Choosing several policies, including variants with other hyperparameters."""

from collections.abc import Iterable
from dataclasses import replace

import streamlit as st

from fdkvc.core.limits import MAX_BENCHMARK_POLICIES
from fdkvc.core.parameters import Field
from fdkvc.explain.notes import no_effect_notes
from fdkvc.policies import (
    PAPER_POLICIES,
    POLICIES,
    Policy,
    policy_named,
    read_policy,
    synthetic_policies,
)
from fdkvc.policies.base import Available
from fdkvc.ui import fields
from fdkvc.ui.fields import held, hold, key_of
from fdkvc.ui.markdown import plain
from fdkvc.ui.sidebar import LANES, POLICY, choose_around, choose_hyperparameters, read_name

CHOSEN = Field(
    "Policies",
    name=LANES,
    default=PAPER_POLICIES,
    choices=synthetic_policies(),
    read=read_name,
)
"""The names of the chosen policies, including variants; `choices` are offered."""

CHANCE = "random"
"""The policy that is always on offer beside the paper's."""

DRAWN = Available()
"""What policies may observe in synthetic dialogs."""


def choose_policies(
    page: str, field: Field = CHOSEN, max_policies: int = MAX_BENCHMARK_POLICIES
) -> tuple[Policy, ...]:
    """Show the controls; return at most `max_policies` in the order on screen."""
    if field.follows:  # before the widget is drawn
        _follow_one(page, field, max_policies)
    policies = _policies(page, field)
    key = f"{key_of(page, field)}/all"
    first = {*field.default, *PAPER_POLICIES, CHANCE, *held(page, field)}
    show_all = bool(st.session_state.get(key))
    # Until all are asked for, only the usual ones, the chosen ones and variants.
    titles = {}
    for name, policy in policies.items():
        if show_all or name in first or name not in field.choices:
            titles[name] = policy.title
    names = fields.several(page, replace(field, choices=titles))
    if show_all or len(titles) < len(policies):
        st.button(
            "Fewer" if show_all else plain(f"{len(policies) - len(titles)} more …"),
            key=f"{key}/button",
            type="tertiary",
            on_click=st.session_state.__setitem__,
            args=(key, not show_all),
        )
    _add_variant(page, field)
    if len(names) > max_policies:
        fields.problems(
            f"{len(names)} policies are chosen, but at most {max_policies} run at once. "
            f"Using the first {max_policies}."
        )
    return tuple(policies[name] for name in names[:max_policies])


def _follow_one(page: str, field: Field, max_policies: int) -> None:
    """Also choose the policy of the previous page."""
    names = held(page, field)
    name = fields.shared(page).get(POLICY.name)
    if name and name not in names and len(names) < max_policies:
        hold(page, field, [*names, name])
    # Once: a reader who removes it does not get it again.
    fields.share(POLICY.name, "")


def warn_no_effect(policies: Iterable[Policy], available: Available = DRAWN) -> None:
    """Say which settings of these policies have no effect, given what they may observe."""
    for note in no_effect_notes([*policies], available):
        st.info(plain(note), icon=":material/do_not_disturb_on:")


def _policies(page: str, field: Field) -> dict[str, Policy]:
    """Return every policy that can be chosen by name, including variants chosen earlier."""
    variants: dict[str, Policy]
    variants = st.session_state.setdefault(f"{key_of(page, field)}/variants", {})
    variants |= {
        name: read_policy(name) for name in held(page, field) if name not in field.choices
    }
    return {str(key): policy_named(str(key)) for key in field.choices} | variants


@st.fragment  # a draft does not run the page
def _add_variant(page: str, field: Field) -> None:
    """Show the controls of a draft: one of the offered policies with other hyperparameters."""
    chosen = held(page, field)
    draft = f"{page}/variant"
    with st.popover("Add a variant …", icon=":material/tune:", width="stretch"):
        start = read_policy(chosen[-1]).core.key if chosen else next(iter(POLICIES))
        choices = {start: POLICIES[start], **{key: POLICIES[key] for key in field.choices}}
        left_column, right_column = st.columns(2)
        with left_column:
            key = fields.choice(draft, replace(POLICY, default=start, choices=choices))
        with right_column:
            base = choose_around(draft, policy_named(key))
        variant = base.variant(**choose_hyperparameters(draft, base.settings.values(), 3))
        present = variant.name in chosen
        if st.button(
            plain(f"Add {variant.title}"),
            key=f"{draft}/add",
            disabled=present,
            help="Change something first." if present else None,
        ):
            fields.hold_and_rerun(page, [(field, [*chosen, variant.name])])
