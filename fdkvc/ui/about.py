"""The method, how to cite it, its limitations, and what this project does not show."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from fdkvc.paper.tables import ABLATED_POLICY
from fdkvc.parameters import Parameter
from fdkvc.policies import POLICIES, Policy
from fdkvc.policies.base import Step
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.fields import Field
from fdkvc.ui.kit.frame import side_by_side
from fdkvc.ui.kit.markdown import Markdown, plain

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
        "Alignment; 600 dialogs, seed 0). The Dialogs page replays what people said, with "
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
        "on diversity, so which policy is best depends on the proxy. Four more can be asked for, "
        "such as the error of the attention's output. In real dialogs, call-argument recall asks "
        "whether the cache still holds what a service call needs.",
    ),
    (
        "Static channel weights",
        "w_c and w_ρ are fixed during a dialog.",
        "Fixed by default, too. Weight shift κ, an option of FD-KVC, lets them follow the query: "
        "w_c rises while it stays with what is recent, w_ρ while it moves away. With κ = 0.5, "
        "retention on Mixed rises from 64 % to 69 %, and falls on Topic Return from 55 % to 49 % "
        "(600 dialogs, seed 0).",
    ),
)
"""The paper's Section 9 one by one: its title, what it says, what is shown here."""

QUESTIONS = ("recalls", "update", "birth", "absorb", "terms", "protects", "modulate")
"""What a turn asks a policy, in this order."""

NOT_SHOWN = (
    "Whether any policy helps a language model: nothing here generates text, and no answer is "
    "judged.",
    "The paper's own dialogs: its code and seeds are not at hand. Where it leaves a choice open "
    "(the split of Mixed, what a new entry starts with, when metrics are taken), the reading whose "
    "results match its tables is taken; another reading may match as well.",
    "That a published alignment is wrong: only that it cannot be told from chance, and that "
    "another projection gives other numbers.",
    "Time on other hardware: latencies are NumPy's on the machine that runs this, where calls cost "
    "more than arithmetic. A kernel inside a model would have other ratios.",
    "The memory of the embeddings that FD-KVC needs beside keys and values.",
    "Positions: keys of drawn dialogs carry none. Those of a recorded model keep the positions "
    "that they had when nothing was evicted.",
)


@dataclass(frozen=True)
class Carrier:
    """The piece of code that carries an equation.

    Attributes
    ----------
    name : str
        The function, with its class.
    code : str
    """

    name: str
    code: str


def show_method(page: str) -> None:
    """Show a policy's turn: its equations beside the functions that carry them."""
    key = fields.choice(
        Field(page, "policy", ABLATED_POLICY, Parameter("Policy", "", choices=tuple(POLICIES))),
        {key: policy.label for key, policy in POLICIES.items()},
    )
    policy = POLICIES[key]
    st.markdown(Markdown("{} :gray[{}.]").format(policy.idea, policy.source))
    numbered = list(enumerate(policy.steps, 1))
    if all(_equations(step.source) for step in policy.steps):
        told: list[Carrier] = []
        with st.container(gap="xsmall"):
            for number, step in numbered:
                code = [carrier for carrier in carriers(policy, step) if carrier not in told]
                told += code
                with st.container(border=True, horizontal=True, key=f"{page}-step-{number}"):
                    with st.container():
                        _show_equation(number, step)
                    with st.container():
                        _show_code(code)
    else:
        with side_by_side("method"):
            with st.container(border=True):
                for number, step in numbered:
                    _show_equation(number, step)
            with st.container(border=True):
                _show_code(whole_carriers(policy))


def _show_equation(number: int, step: Step) -> None:
    st.markdown(Markdown("**{}. {}** :gray[({})]").format(number, step.name, step.source))
    st.latex(step.equation)


def _show_code(code: list[Carrier]) -> None:
    pieces = [f"# {carrier.name}\n{carrier.code}" for carrier in code]
    st.code("\n\n".join(pieces), language="python", wrap_lines=True)


def carriers(policy: type[Policy], step: Step) -> list[Carrier]:
    """Return the code of a policy that carries the numbered equations of a step.

    A line of code whose comment names an equation carries it; a function whose docstring names it
    carries it as a whole.
    """
    wanted = _equations(step.source)
    found = []
    for name, method in _own_methods(policy).items():
        source = _source(method)
        lines = [line.strip() for line in source.splitlines() if _comment_names(line, wanted)]
        if lines:
            found.append(Carrier(f"{policy.__name__}.{name}", "\n".join(lines)))
        elif wanted & _equations(inspect.getdoc(method) or ""):
            found.append(Carrier(f"{policy.__name__}.{name}", _body(source)))
    return found


def whole_carriers(policy: type[Policy]) -> list[Carrier]:
    """Return all functions of a policy that a turn asks."""
    return [
        Carrier(f"{policy.__name__}.{name}", _body(_source(method)))
        for name, method in _own_methods(policy).items()
    ]


def _own_methods(policy: type[Policy]) -> dict[str, Callable[..., object]]:
    """Return what a policy answers in its own way, of the questions that a turn asks it."""
    return {
        name: getattr(policy, name)
        for name in QUESTIONS
        if getattr(policy, name) is not getattr(Policy, name)
    }


def _source(method: Callable[..., object]) -> str:
    return textwrap.dedent(inspect.getsource(method))


def _equations(text: str) -> set[int]:
    """Return the numbers of the equations that a text names.

    Examples
    --------
    >>> _equations("Eqs. 5 to 7"), _equations("Eqs. 3 and 4"), _equations("Section 4.2")
    ({5, 6, 7}, {3, 4}, set())
    """
    numbers: set[int] = set()
    for first, word, last in re.findall(r"Eqs?\.? (\d+)(?: (to|and) (\d+))?", text):
        end = int(last or first)
        numbers |= set(range(int(first), end + 1)) if word == "to" else {int(first), end}
    return numbers


def _comment_names(line: str, wanted: set[int]) -> bool:
    _, mark, comment = line.partition("#")
    return bool(mark) and bool(_equations(comment) & wanted)


def _body(source: str) -> str:
    """Return a function's code without its docstring."""
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    first = function.body[1] if ast.get_docstring(function) else function.body[0]
    return textwrap.dedent("\n".join(source.splitlines()[first.lineno - 1 :]))


def show_citation() -> None:
    """Say how to cite the paper."""
    st.markdown(
        "Sukanta Ganguly (NetApp Inc), *Fractional Decay KV-Cache: Ownership-Aware Memory "
        "Management for Improved Inference Relevancy in Dialog Systems*. The text that this "
        "project follows carries no year or venue: add those of the copy that you have."
    )
    st.code(CITATION, language=None)


def show_limitations() -> None:
    """Show the paper's limitations one by one, with what is shown of each."""
    st.table(
        [
            {
                "Limitation": Markdown("**{}**").format(title),
                "The paper (Section 9)": plain(says),
                "Shown here": plain(shown),
            }
            for title, says, shown in LIMITATIONS
        ],
        hide_index=True,
        alt="The paper's limitations and what this project shows of each",
    )


def show_what_is_missing() -> None:
    """Say what this project does not show."""
    st.markdown(Markdown("- " + "\n- ".join(NOT_SHOWN)))
