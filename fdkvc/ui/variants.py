"""Choosing several policies, variants of one with other hyperparameters among them."""

from __future__ import annotations

import streamlit as st

from fdkvc.parameters import Parameter, defaults_of, parameters_of
from fdkvc.policies import PAPER_POLICIES, POLICIES, Policy, policy_named
from fdkvc.ui import fields
from fdkvc.ui.fields import Field

MOST_POLICIES = 8
"""As many as there are colours."""


def choose_policies(page: str, default: tuple[str, ...] = PAPER_POLICIES) -> tuple[Policy, ...]:
    """Show the controls; return the policies in the order in which people see them.

    Parameters
    ----------
    page : str
    default : tuple of str
        Names of the policies that are chosen at first.
    """
    known = _known(page)
    chosen_field = Field(page, "policies", default, Parameter("Policies", ""))
    names = fields.several(chosen_field, {name: policy.title for name, policy in known.items()})
    _add_variant(page, chosen_field)
    if len(names) > MOST_POLICIES:
        st.error(
            f"{len(names)} policies are chosen, but at most {MOST_POLICIES} run at once. "
            f"The first {MOST_POLICIES} are taken.",
            icon=":material/error:",
        )
    return tuple(known[name] for name in names[:MOST_POLICIES])


def _known(page: str) -> dict[str, Policy]:
    """Return every policy that can be chosen, by name."""
    policies = [policy_named(key) for key in POLICIES]
    variants: list[Policy] = st.session_state.get(_variants_key(page), [])
    return {policy.name: policy for policy in [*policies, *variants]}


def _variants_key(page: str) -> str:
    return f"{page}/variants"


def _add_variant(page: str, chosen: Field) -> None:
    """Let a person make a variant and choose it."""
    can_vary = [key for key, policy in POLICIES.items() if parameters_of(policy)]
    with st.popover("Add a variant …", icon=":material/tune:", width="stretch"):
        key = fields.choice(
            Field(
                f"{page}/variant",
                "policy",
                can_vary[-1],
                Parameter("Policy", "", choices=tuple(can_vary)),
            ),
            {key: POLICIES[key].label for key in can_vary},
        )
        defaults = defaults_of(POLICIES[key])
        values = {
            name: fields.number(Field(f"{page}/variant/{key}", name, defaults[name], parameter))
            for name, parameter in parameters_of(POLICIES[key]).items()
        }
        variant = policy_named(key, **values)
        known = _known(page)

        def add() -> None:
            variants = st.session_state.setdefault(_variants_key(page), [])
            if variant.name not in known:
                variants.append(variant)
            if variant.name not in chosen.value:
                chosen.set([*chosen.value, variant.name])

        st.button(
            f"Add {variant.title}",
            key=f"{page}/variant/add",
            on_click=add,
            disabled=variant.name in known,
            help="Change a hyperparameter first." if variant.name in known else None,
        )
