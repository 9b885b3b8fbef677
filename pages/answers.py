"""Answers: a language model whose cache forgets, and what it then says."""

import streamlit as st

from fdkvc.ui.answers import choices, scene, sections
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.frame import enter_page, heading, problems

PAGE = "answers"

enter_page()

link = fields.arriving_link()
wrong = choices.adopt_link(PAGE, link)

heading(
    "Answers",
    "A language model reads a dialog, and each policy evicts from its cache after every turn. Then "
    "it answers from what is left: see which words change, which call goes wrong, and which "
    "evicted word would have made it right.",
)
sections.tell_model()
said = st.container()
with said:
    problems(wrong)

with st.sidebar:
    conversation = choices.choose_conversation(PAGE, link)
if conversation is None:
    fields.write_link(PAGE, choices.FIELDS)
    st.stop()

if conversation.empty:
    scene.invite()
    answered = None
else:
    answered = scene.answer(PAGE, conversation)
scene.talk_on(PAGE, conversation)
if answered is not None:
    with said:
        problems(sections.keep_to_sections(PAGE, answered, link))
    sections.open_section(PAGE, answered)
fields.write_link(PAGE, choices.FIELDS)
