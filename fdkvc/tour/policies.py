"""The policies of the registry: how they compare, idea, equations, parameters and source."""

from collections.abc import Sequence
from itertools import chain

import streamlit as st

from fdkvc.conversations.lexical import LexicalRecordings
from fdkvc.conversations.page.files import SHIPPED, shipped_file
from fdkvc.core.parameters import written
from fdkvc.models.judged import judged_sentence
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.models.report import judged
from fdkvc.policies import POLICIES, WRAPPERS, Policy, policy_named, wrapped
from fdkvc.policies.base import Step
from fdkvc.ui import fields
from fdkvc.ui.downloads import show_chart
from fdkvc.ui.frame import open_tab, page_theme, show_grid
from fdkvc.ui.glossary import WORDS, help_on
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import Markdown, plain
from fdkvc.verdict.model_shape import SHAPE, SHAPES
from fdkvc.verdict.plan import TARGET, Card, card_grid, card_sentences, ways_for
from fdkvc.verdict.results import ReplayRun


def show_judged(page: str) -> None:
    """Say what each policy costs a pretrained model."""
    words = judged_sentence()
    st.container(key="page-answer").markdown(plain(words), help=help_on(words))
    show_chart(page, "judged", judged.judged_chart(page_theme()))
    for title, grid in judged.judged_grids().items():
        with st.expander(plain(title)):
            show_grid(grid, title)
    st.caption(plain(judged.ABOUT), help=help_on(judged.ABOUT))


def show_general_card(page: str) -> None:
    """Say which way fits the example conversations, and lead to the card of one's own."""
    general = st.expander(
        "Which one in general: the ways to fit, on the example conversations",
        key=f"{page}/general",
        on_change="rerun",
    )
    if general.open:
        with general, st.spinner("Replaying the examples …", show_time=True):
            card = _general_card()
            lead, basis = card_sentences(card)
            st.markdown(Markdown("**{}** {}").format(lead, basis))
            show_grid(card_grid(card), "Ways to fit the example conversations")
    st.page_link(
        "pages/dialogs.py", label="The same for your conversations", icon=":material/forum:"
    )


@cached
def _general_card() -> Card:
    """Return the card of the example conversations."""
    texts = [*chain.from_iterable(shipped_file(key).transcripts for key in SHIPPED)]
    recordings = LexicalRecordings(texts, encoding=Encoding())
    about = {"digest": "", "target": int(TARGET.default) / 100, "searched": True}
    run = ReplayRun.measure(ways_for(recordings), recordings, about, workers=1)
    return run.card_for(SHAPES[SHAPE.default], run.target)


EVERY = [policy_named(key) for key in POLICIES]
WRAPPED = [wrapped(key, policy_named("fifo")) for key in WRAPPERS]
"""Each wrapper around FIFO, which protects no entries itself."""

SECTIONS = {"Policies one by one": EVERY, "Wrappers": WRAPPED}


def open_section(page: str) -> None:
    """Show the policies or the wrappers."""
    name, tab = open_tab(page, {name: name for name in SECTIONS}, "Policies one by one")
    with tab:
        if SECTIONS[name] is WRAPPED:
            st.caption(plain(WORDS["Wrapper"]))
        show_each(page, SECTIONS[name])


@st.fragment
def show_each(page: str, policies: Sequence[Policy]) -> None:
    """Show each policy's idea; its equations, parameters and source once it is opened."""
    for policy in policies:
        title = Markdown("**{}** · {}").format(type(policy).label, policy.idea)
        expander = st.expander(plain(title), key=f"{page}/{policy.key}", on_change="rerun")
        if expander.open:
            with expander:
                _show_policy(policy)


def option_steps(policy: Policy) -> dict[str, list[Step]]:
    """Return the steps that only an option brings, by what switches it on."""
    steps: dict[str, list[Step]] = {}
    seen = [step.equation for step in policy.steps]
    for name, field in policy.settings.items():
        # A numeric option is off at one end of its range and on at the other.
        for value in field.choices or (field.low, field.high):
            if not field.accepts(value, field.kind):
                continue
            for step in policy.variant(**{name: value}).steps:
                if step.equation not in seen:
                    label = f"{field.label}: {value}" if field.choices else field.label
                    steps.setdefault(label, []).append(step)
                    seen.append(step.equation)
    return steps


def _show_step(step: Step) -> None:
    st.markdown(Markdown("**{}** :gray[({})]").format(step.name, step.source))
    st.latex(step.equation)


def _show_policy(policy: Policy) -> None:
    for step in policy.steps:
        _show_step(step)
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
    for label, steps in option_steps(policy).items():
        st.markdown(Markdown("With *{}*:").format(label))
        for step in steps:
            _show_step(step)
    looks, remembers = policy.looks_at, map(policy.quantity_name, policy.channels)
    st.markdown(
        Markdown("Looks at: {}. Remembers: {}. Key: `{}`.  \n:gray[Source: {}.]").format(
            ", ".join(looks), ", ".join(remembers) or "nothing", policy.key, policy.source
        )
    )
