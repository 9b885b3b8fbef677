"""Choosing several policies, variants of one with other hyperparameters among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from fdkvc.parameters import Parameter, parameters_of
from fdkvc.policies import PAPER_POLICIES, POLICIES, Policy, policy_named, read_policy
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.fields import Field
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.sidebar import choose_hyperparameters

MOST_POLICIES = 12
"""More lines than this cannot be told apart."""


@dataclass(frozen=True)
class PoliciesField(Field):
    """The names of the chosen policies; in a link ``h2o,fd-kvc:gamma=0.8``."""

    def parse(self, text: str) -> Any:
        """Read the names from a link."""
        return list(dict.fromkeys(read_policy(part).name for part in text.split(",")))

    def written(self, value: Any) -> str:
        """Return the names as they stand in a link."""
        return ",".join(linked(name) for name in value)

    def set(self, value: Any) -> None:
        """Let the session hold these names, and know the variants among them."""
        _remember(self.page, (read_policy(name) for name in value if name not in POLICIES))
        super().set(value)


@dataclass(frozen=True)
class PolicyField(Field):
    """The name of one policy, or nothing; in a link ``fd-kvc:gamma=0.8``."""

    def parse(self, text: str) -> Any:
        """Read the name from a link."""
        return read_policy(text).name if text else ""

    def written(self, value: Any) -> str:
        """Return the name as it stands in a link."""
        return linked(value)


def linked(name: str) -> str:
    """Return a policy's name as it stands in a link, without spaces."""
    return name.replace(" ", ":")


def policies_field(page: str, default: tuple[str, ...] = PAPER_POLICIES) -> PoliciesField:
    """Return the field that holds the chosen policies."""
    return PoliciesField(page, "policies", default, Parameter("Policies", ""))


def choose_policies(
    page: str, default: tuple[str, ...] = PAPER_POLICIES, most: int = MOST_POLICIES
) -> tuple[Policy, ...]:
    """Show the controls; return the policies in the order in which people see them.

    Parameters
    ----------
    page : str
    default : tuple of str
        Names of the policies that are chosen at first.
    most : int
        So many may be chosen.
    """
    chosen_field = policies_field(page, default)
    known = _known(page)
    names = fields.several(chosen_field, {name: policy.title for name, policy in known.items()})
    _add_variant(page, chosen_field)
    if len(names) > most:
        st.error(
            plain(
                f"{len(names)} policies are chosen, but at most {most} run at once. "
                f"The first {most} are taken."
            ),
            icon=":material/error:",
        )
    return tuple(known[name] for name in names[:most])


def _known(page: str) -> dict[str, Policy]:
    """Return every policy that can be chosen, by name."""
    policies = [policy_named(key) for key in POLICIES]
    variants: list[Policy] = st.session_state.get(_variants_key(page), [])
    return {policy.name: policy for policy in [*policies, *variants]}


def _remember(page: str, variants: Iterable[Policy]) -> None:
    """Let these variants be among those that can be chosen."""
    known = st.session_state.setdefault(_variants_key(page), [])
    known.extend(policy for policy in dict.fromkeys(variants) if policy not in known)


def _variants_key(page: str) -> str:
    return f"{page}/variants"


def _add_variant(page: str, chosen: Field) -> None:
    """Let a person make a variant and choose it."""
    can_vary = [key for key, policy in POLICIES.items() if parameters_of(policy)]
    with st.popover("Add a variant …", icon=":material/tune:", width="stretch"):
        keys = [read_policy(name).key for name in reversed(chosen.value)]
        start = next((key for key in keys if key in can_vary), can_vary[0])
        variant = edit_policy(f"{page}/variant", policy_named(start), can_vary)

        if st.button(
            plain(f"Add {variant.title}"),
            key=f"{page}/variant/add",
            disabled=variant.name in chosen.value,
            help="Change something first." if variant.name in chosen.value else None,
        ):
            fields.set_and_rerun([(chosen, [*chosen.value, variant.name])])


def edit_policy(
    page: str, start: Policy, keys: Sequence[str] = tuple(POLICIES), columns: int = 2
) -> Policy:
    """Show controls that change a policy and its hyperparameters; return what they make of it.

    Parameters
    ----------
    page : str
        Under which the session holds them.
    start : Policy
        What the controls begin with.
    keys : sequence of str
        The policies to choose from.
    columns : int
        How many hyperparameters stand side by side.
    """
    known = Parameter("Policy", "", choices=tuple(keys))
    key = fields.choice(
        Field(page, "policy", start.key, known), {key: POLICIES[key].label for key in keys}
    )
    base = start if key == start.key else policy_named(key)
    values, _ = choose_hyperparameters(
        [
            Field(f"{page}/{key}", name, getattr(base, name), parameter)
            for name, parameter in parameters_of(base).items()
        ],
        columns,
    )
    return policy_named(key, **values)
