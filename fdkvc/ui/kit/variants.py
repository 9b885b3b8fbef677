"""Choosing several policies, variants of one with other hyperparameters among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import streamlit as st

from fdkvc.explain.idle import idle, known_of
from fdkvc.limits import MAX_BENCHMARK_POLICIES
from fdkvc.parameters import Field
from fdkvc.policies import PAPER_POLICIES, POLICIES, Policy, policy_named, read_policy
from fdkvc.policies.base import Available
from fdkvc.synthetic.batch import DialogBatch
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.fields import held, hold, key_of
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.sidebar import (
    LANES,
    POLICY,
    choose_around,
    choose_hyperparameters,
    read_name,
)

CHOSEN = Field("Policies", "", name=LANES, default=PAPER_POLICIES, read=read_name)
"""The names of the policies that are chosen, variants among them."""

DRAWN = Available()
"""What is known of drawn dialogs."""

LINE = Field(
    "Or in a line",
    "Policies around policies, such as blocks(window(tova), size=8).",
    name="line",
    default="",
)


def choose_policies(
    page: str, field: Field = CHOSEN, most: int = MAX_BENCHMARK_POLICIES
) -> tuple[Policy, ...]:
    """Show the controls; return the policies in the order in which people see them.

    Parameters
    ----------
    field : Field
        `CHOSEN`, or with other policies at first.
    most : int
        So many may be chosen.
    """
    if field.follows:
        _follow_one(page, field, most)
    known = _known(page, field)
    chosen = replace(field, choices={name: policy.title for name, policy in known.items()})
    names = fields.several(page, chosen)
    _add_variant(page, field)
    if len(names) > most:
        st.error(
            plain(
                f"{len(names)} policies are chosen, but at most {most} run at once. "
                f"The first {most} are taken."
            ),
            icon=":material/error:",
        )
    return tuple(known[name] for name in names[:most])


def _follow_one(page: str, field: Field, most: int) -> None:
    """Choose the policy, too, that a person comes from."""
    names, one = held(page, field), fields.following(page, POLICY.name, "")
    if one and one not in names and len(names) < most:
        hold(page, field, [*names, one])
    fields.follow(POLICY.name, "")


def tell_idle(policies: Iterable[Policy], available: Available = DRAWN) -> None:
    """Say what of these policies changes nothing where no more than this is known."""
    for said in idle([*policies], available):
        st.info(plain(said), icon=":material/do_not_disturb_on:")


def tell_idle_in(policies: Iterable[Policy], dialogs: DialogBatch) -> None:
    """Say what of these policies changes nothing in these dialogs."""
    tell_idle(policies, known_of(dialogs))


def _typed(line: str, other: Policy) -> Policy:
    return read_policy(line) if line.strip() else other


def _known(page: str, field: Field) -> dict[str, Policy]:
    """Return every policy that can be chosen, by name: variants, too, that once were chosen."""
    variants: dict[str, Policy]
    variants = st.session_state.setdefault(f"{key_of(page, field)}/variants", {})
    variants |= {name: read_policy(name) for name in held(page, field) if name not in POLICIES}
    return {key: policy_named(key) for key in POLICIES} | variants


def _add_variant(page: str, field: Field) -> None:
    """Let a person make a variant and choose it."""
    chosen = held(page, field)
    with st.popover("Add a variant …", icon=":material/tune:", width="stretch"):
        start = read_policy(chosen[-1]).core.key if chosen else next(iter(POLICIES))
        variant = edit_policy(f"{page}/variant", policy_named(start))
        variant = fields.text(f"{page}/variant", LINE, lambda line: _typed(line, variant))
        if st.button(
            plain(f"Add {variant.title}"),
            key=f"{page}/variant/add",
            disabled=variant.name in chosen,
            help="Change something first." if variant.name in chosen else None,
        ):
            fields.hold_and_rerun(page, [(field, [*chosen, variant.name])])


def edit_policy(page: str, start: Policy, columns: int = 2) -> Policy:
    """Show controls that change a policy and its hyperparameters; return what they make of it.

    Parameters
    ----------
    page : str
        Under which the session holds them.
    start : Policy
        What the controls begin with.
    columns : int
        How many hyperparameters stand side by side.
    """
    able = {start.key: start.title, **POLICIES}
    left, right = st.columns(2)
    with left:
        key = fields.choice(page, replace(POLICY, default=start.key, choices=able))
    with right:
        base = choose_around(page, start if key == start.key else policy_named(key))
    values, _ = choose_hyperparameters(page, tuple(base.settings.values()), columns)
    return base.variant(**values)
