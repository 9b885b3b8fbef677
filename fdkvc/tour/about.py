"""The method, how to cite it, its limitations, and what this project does not show."""

import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path

import streamlit as st

from fdkvc.policies import Policy, policy_named
from fdkvc.ui.markdown import Markdown, plain, sections


def show_method() -> None:
    """Show one turn of FD-KVC: its equations beside the code of its class."""
    policy = policy_named("fd-kvc")
    st.markdown(Markdown("{} :gray[{}.]").format(policy.idea, policy.source))
    with st.container(horizontal=True, key="method"):
        with st.container(border=True, key="method-equations"):
            for number, step in enumerate(policy.steps, 1):
                title = Markdown("**{}. {}** :gray[({})]").format(number, step.name, step.source)
                st.markdown(plain(title))
                st.latex(step.equation)
        with st.container(key="method-code"):
            st.code(code_of(type(policy)), language="python")


def code_of(policy: type[Policy]) -> str:
    """Return the methods of a policy's class and of those between it and `Policy`."""
    methods: dict[str, Callable[..., object]] = {}
    # From the base class down, so that the last definition of a method wins.
    for owner in reversed(policy.__mro__[: policy.__mro__.index(Policy)]):
        for name, member in vars(owner).items():
            method = member.fget if isinstance(member, property) else member
            # Generated methods have another file, or none.
            if inspect.isfunction(method) and method.__code__.co_filename == inspect.getfile(owner):
                methods[name] = method
    return "\n".join(textwrap.dedent(inspect.getsource(method)) for method in methods.values())


def show_text() -> None:
    """Show how to cite the paper, its limitations, and what this project does not show."""
    for title, body in sections(Path(__file__).with_name("about.md")):
        st.header(plain(title), anchor=False)
        st.markdown(plain(body))
