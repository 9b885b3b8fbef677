"""Damage: how much worse a policy's cache predicts the text, word by word, by turn and by head."""

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from fdkvc.charts.results import damage_chart
from fdkvc.core.attention import Floats
from fdkvc.core.limits import MAX_DAMAGE_TOKENS
from fdkvc.core.words import lost_likelihood, sentence
from fdkvc.models.damage import Damage, Text, chat_text, dialog_text, read_damage, shipped_damage
from fdkvc.models.page.choices import choose_cache
from fdkvc.models.page.conversation import FULL, Answered
from fdkvc.models.page.why import choose_answer
from fdkvc.models.report.damage import (
    attended_columns,
    damage_html,
    damage_sentences,
    worst_columns,
)
from fdkvc.policies import Policy, read_policy
from fdkvc.ui.downloads import show_chart
from fdkvc.ui.fields import problems
from fdkvc.ui.frame import page_theme, panel, show_grid, side_by_side
from fdkvc.ui.glossary import help_on
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import plain

WORST = "The most damaged words"

MEANING = (
    "Damage is the KL divergence of a cache's predictions from those of the full cache, in nats: "
    "0 where eviction changed nothing; at 1, what the full cache expects becomes "
    f"{lost_likelihood(1)} less likely. A word has the sum over its tokens."
)


def show_damage(page: str, answered: Answered) -> Mapping[str, pd.DataFrame]:
    """Show the damage to the whole text; return its tables."""
    conversation = answered.conversation
    if not conversation.policies:
        return {}
    read = "the full cache's text" if conversation.messages else "the whole dialog"
    words = f"Every cache reads {read} and evicts after each passage. {MEANING}"
    st.markdown(plain(words), help=help_on(words))
    name = choose_answer(page, answered, evicting=True)
    if (tokens := len(_text(answered).ids)) > MAX_DAMAGE_TOKENS:
        words = f"This text has {tokens:,} tokens: damage is shown up to {MAX_DAMAGE_TOKENS:,}."
        st.info(plain(words))
        return {}
    try:
        damage = _damage(answered, name)
    except ValueError as error:
        problems(sentence(str(error)))
        return {}
    show_grid(worst_columns(damage.text, damage.of_words, damage.hurt), WORST)
    show_words(damage, conversation.titles[name])
    damages = {policy: _damage(answered, policy.name) for policy in conversation.policies}
    show_turns(page, damages)
    by_token = [damage.by_token().assign(policy=policy.name) for policy, damage in damages.items()]
    return {"damage.csv": pd.concat(by_token).reset_index()}


def show_words(damage: Damage, title: str) -> None:
    """Show the damage of a policy of this title on the words."""
    st.markdown(plain(" ".join(damage_sentences(damage, title))))
    st.html(damage_html(damage, title))


def show_instead(page: str, model: str) -> None:
    """Show the recording of a model that could not be loaded, if there is one."""
    if model == "smollm2":
        recorded = shipped_damage()
        read = f"{recorded.model} read the dialog “{recorded.dialog}”"
        words = f"{len(recorded.text.ids):,} tokens, with {recorded.budget:,} entries in each head"
        st.markdown(plain(f"Recorded: {read}, {words}. {MEANING}"), help=help_on(MEANING))
        show_recorded(page, [*recorded.damages])


def show_recorded(page: str, names: Sequence[str]) -> None:
    """Show the shipped recording, for some of its policies."""
    recorded = shipped_damage()
    policies = {name: read_policy(name) for name in names}
    titles = {name: policy.title for name, policy in policies.items()}
    damages = {policy: recorded.damages[name] for name, policy in policies.items()}
    with side_by_side("recorded"):
        with panel("recorded-attention"):
            show_grid(attended_columns(recorded), "Entries that get most attention")
            st.caption(
                "Attention with the full cache: the mean over all later tokens, layers and heads, "
                "and over the heads of the layer where it is largest. The last tenth of the text "
                "is left out."
            )
        with panel("recorded-turns"):
            show_turns(page, damages)
    name = choose_cache(page, titles)
    show_words(recorded.damages[name], titles[name])


def show_turns(page: str, damages: Mapping[Policy, Damage]) -> None:
    """Show the damage of several policies over the turns."""
    turns = [damage.by_turn().assign(policy=policy.title) for policy, damage in damages.items()]
    titles = [policy.title for policy in damages]
    show_chart(page, "damage", damage_chart(pd.concat(turns), titles, page_theme()))


@cached
def _text(answered: Answered) -> Text:
    """Return the whole dialog, or the full cache's text of a chat."""
    conversation, chat = answered.conversation, answered.chat
    if conversation.transcript is not None and not conversation.messages:
        return dialog_text(chat.model.tokens, conversation.transcript)
    return chat_text(chat.model.tokens, chat.caches[FULL].ids, chat.passages[FULL])


@cached
def _damage(answered: Answered, name: str) -> Damage:
    """Return a policy's damage; show progress and the most damaged words so far meanwhile."""
    conversation, bar, place = answered.conversation, st.empty(), st.empty()
    words = f"Reading the text with {conversation.titles[name]}"
    model, cache, text = answered.chat.model, conversation.caches()[name], _text(answered)

    def show_worst(kl: Floats) -> None:
        with place:
            show_grid(worst_columns(text, kl), f"{WORST}, so far")

    damage = read_damage(
        model, cache, text, lambda share: bar.progress(share, plain(words)), show_worst
    )
    bar.empty()
    place.empty()
    return damage
