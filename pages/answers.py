"""Answers: a language model with an evicting cache, and what it answers."""

import streamlit as st

from fdkvc.models.page import choices, scene, sections, why
from fdkvc.models.page.forgotten_word import show_instead
from fdkvc.models.page.loading import load_model
from fdkvc.ui.fields import is_new
from fdkvc.ui.frame import page

PAGE = "answers"

with page(
    PAGE,
    "A language model answers from what each policy left in its cache: see which words "
    "change, which service call goes wrong, and which evicted word would have made it right.",
    choices.fields_of,
    adopt=choices.adopt_link,
) as shown:
    with st.sidebar:
        name = choices.choose_model(PAGE)
        conversation = choices.choose_conversation(shown)
    if conversation and (recorded := choices.recording_of(PAGE, conversation)):
        missing = choices.why_recorded(name)
        # One element, in whose place live answers begin: nothing of it stays below them.
        with st.container():
            sections.show_model_note("", recorded.model)
            scene.show_recorded(PAGE, conversation, recorded, missing)
        scene.show_input(PAGE, conversation, missing)
    else:
        model = load_model(name, lambda: show_instead(PAGE, name))
        sections.show_model_note(name, model.name, model.tokens.note)
        if conversation is not None:
            choices.warn_of(PAGE, conversation.policies, model)
            top = st.container()
            # Nothing of another answer stays below one that is computed.
            is_other = is_new(f"{PAGE}/below", conversation)
            place = st.empty() if is_other else st.container()
            scene.show_input(PAGE, conversation)
            with top:
                answered = scene.answer(PAGE, conversation)
            if answered is not None:
                # Only now: a container made at once would reach the browser instead of the empty.
                with place.container() if is_other else place:
                    shown.show_problems(why.keep_to_answers(PAGE, answered, shown.link))
                    sections.open_section(PAGE, answered)
