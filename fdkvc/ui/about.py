"""The method, how to cite it, its limitations, and what this project does not show."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable

import streamlit as st

from fdkvc.policies import Policy, policy_named
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.markdown import Markdown
from fdkvc.ui.kit.sidebar import POLICY

FIELDS = (POLICY,)
"""Every field of the page's view."""

CITATION = """@misc{ganguly-fdkvc,
  author = {Ganguly, Sukanta},
  title  = {Fractional Decay {KV}-Cache: Ownership-Aware Memory Management
            for Improved Inference Relevancy in Dialog Systems},
  note   = {NetApp Inc}
}"""

LIMITATIONS = (
    (
        "Synthetic evaluation",
        "All experiments use randomly projected 64-dimensional embeddings.",
        "The same world, drawn anew for any seed, with noise and tokens a turn to vary on the step "
        "page. The paper blames the random embeddings for the weak significance; with the topic "
        "projected by the value matrix the same embeddings give |t| from 15 to 53 (Benchmark, "
        "Alignment; 600 dialogs, seed 0). The Dialogs page replays real dialogs, with "
        "vectors of a language model where a trace file holds them.",
    ),
    (
        "Adaptation against persistence",
        "Decay trades long-term persistence for speed: on Topic Return FD-KVC is 39 % below H2O.",
        "On Topic Return FD-KVC's alignment is 27 % below H2O's, and its retention 45 points; it "
        "keeps all topics, H2O half of them (Benchmark, Claims and Compare two). The Ablation page "
        "draws the trade-off for any setting, with the front that nothing beats. Recall, an option "
        "of FD-KVC, brings evicted entries back: with a second tier as large as the cache, 32 % of "
        "a topic's earlier tokens are there at its first turn back, not 13 %, and alignment on "
        "Topic Return rises from 0.72 to 0.80 (600 dialogs, seed 0).",
    ),
    (
        "Single head",
        "Only single-head attention is evaluated.",
        Markdown(
            "One head in drawn dialogs, too. A recorded model's heads decide each by itself, or "
            "all together by the mean of their scores: the Dialogs page and the command `dialogs` "
            "compare the two."
        ),
    ),
    (
        "Hyperparameter sensitivity",
        "Seven hyperparameters; performance is said to be stable across a range.",
        "Six are free, because w_c and w_ρ add up to 1. Any one or two can be swept on the "
        "Ablation page: τ evicts nothing in its published range, and retention on Mixed falls from "
        "85 % to 26 % between γ = 0.85 and 0.92 (200 dialogs, seed 0), so it is not stable there.",
    ),
    (
        "Computational overhead",
        "A turn takes 0.105 ms, 3.9 times FIFO's.",
        "Measured at every run, single and batched, as a ratio to FIFO (Benchmark, Time and "
        "memory).",
    ),
    (
        "Proxy metrics",
        "Alignment, retention and diversity stand for the performance of a dialog system.",
        "The same proxies, with intervals. They disagree: FIFO leads on retention and comes last "
        "on diversity, so which policy is best depends on the proxy. More can be asked for, "
        "such as the error of the attention's output. In real dialogs, call-argument recall asks "
        "whether the cache still holds what a service call needs.",
    ),
    (
        "Static channel weights",
        "w_c and w_ρ are fixed during a dialog.",
        "Fixed in FD-KVC, too. FD-KVC adaptive lets them follow the query: w_c rises while it "
        "stays with what is recent, w_ρ while it moves away. With weight shift κ = 0.5, its "
        "retention on Mixed rises from 64 % to 69 %, and falls on Topic Return from 55 % to 49 % "
        "(600 dialogs, seed 0).",
    ),
)
"""The paper's Section 9 one by one: its title, what it says, what is shown here."""

_STYLE = """<style>
.st-key-method {align-items: flex-start;}
.st-key-method-code {flex: 1 1 440px; min-width: min(440px, 100%);}
.st-key-method-code code {font-size: .75rem; line-height: 1.45;}
.st-key-method-equations {gap: .25rem;}
.st-key-method-equations .katex-display {margin: .35rem 0;}
</style>"""

NOT_SHOWN = (
    "Whether any policy helps a large language model: the Answers page and the command `answers` "
    "judge what a small one writes, trained on service dialogs alone.",
    "The paper's own dialogs: its code and seeds are not at hand. Where it leaves a choice open "
    "(the split of Mixed, what a new entry starts with, when metrics are taken), the reading whose "
    "results match its tables is taken; another reading may match as well.",
    "That a published alignment is wrong: only that its differences are no larger than chance, and "
    "that another projection gives other numbers.",
    "Time on other hardware: latencies are NumPy's on the machine that runs this, where calls cost "
    "more than arithmetic. A kernel inside a model would have other ratios.",
    "The memory of the embeddings that FD-KVC needs beside keys and values.",
    "Positions: keys of drawn dialogs carry none. Those of a recorded model keep the positions "
    "that they had when nothing was evicted.",
)


def show_method(page: str) -> None:
    """Show one turn of a policy: its equations beside the code of its class."""
    policy = policy_named(fields.choice(page, POLICY, width=320))
    st.markdown(Markdown("{} :gray[{}.]").format(policy.idea, policy.source))
    st.html(_STYLE)
    with st.container(horizontal=True, key="method"):
        with st.container(border=True, key="method-equations", width=360):
            for number, step in enumerate(policy.steps, 1):
                st.markdown(
                    Markdown("**{}. {}** :gray[({})]").format(number, step.name, step.source)
                )
                st.latex(step.equation)
        with st.container(key="method-code"):
            st.code(code_of(type(policy)), language="python")


def code_of(policy: type[Policy]) -> str:
    """Return the methods of a policy's class and of those between it and `Policy`."""
    methods: dict[str, Callable[..., object]] = {}
    for each in reversed(policy.__mro__[: policy.__mro__.index(Policy)]):
        for name, member in vars(each).items():
            method = member.fget if isinstance(member, property) else member
            # Generated methods have another file, or none.
            if inspect.isfunction(method) and method.__code__.co_filename == inspect.getfile(each):
                methods[name] = method
    return "\n".join(textwrap.dedent(inspect.getsource(method)) for method in methods.values())


def show_citation() -> None:
    """Say how to cite the paper."""
    st.markdown(
        "Sukanta Ganguly (NetApp Inc), *Fractional Decay KV-Cache: Ownership-Aware Memory "
        "Management for Improved Inference Relevancy in Dialog Systems*. The text that this "
        "project follows carries no year or venue: add those of the copy that you have."
    )
    st.code(CITATION, language=None)


def show_limitations() -> None:
    """Say of each of the paper's limitations what it is, and what is shown of it."""
    st.caption("Slanted: what Section 9 of the paper says. Below it: what is shown of it here.")
    for title, says, shown in LIMITATIONS:
        st.markdown(Markdown("**{}.** *{}*  \n{}").format(title, says, shown))


def show_what_is_missing() -> None:
    """Say what this project does not show."""
    st.markdown(Markdown("- " + "\n- ".join(NOT_SHOWN)))
