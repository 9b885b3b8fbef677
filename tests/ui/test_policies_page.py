"""The page Policies: which one in general, from the card of the example conversations."""

import pytest

from fdkvc.conversations.page.files import SHIPPED
from fdkvc.tour import policies
from fdkvc.ui.glossary import WORDS, help_on
from fdkvc.ui.markdown import plain
from fdkvc.verdict.plan import card_sentences
from tests.app_pages import html, open_page, settled


def test_a_help_explains_the_words_that_a_text_has_and_no_others() -> None:
    assert help_on("FIFO keeps the newest entries") is None
    assert help_on("a nation of wrapped klaxons") is None
    for word, meaning in WORDS.items():
        assert help_on(f"with {word.lower()}s.") == plain(f"{word}: {meaning}")
    app = open_page("policies")
    assert any(WORDS["KL"][:30] in block.help for block in app.markdown if block.help)
    assert any(WORDS["Cluster"][:30] in block.help for block in app.caption if block.help)


def test_it_has_the_card_of_the_examples_once_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "SHIPPED", {"chat": SHIPPED["chat"]})
    app = open_page("policies")
    assert "drop oldest messages" not in html(app)
    app.session_state["policies/general"] = True
    settled(app.run())
    lead, basis = card_sentences(policies._general_card())
    assert any(plain(lead) in block.value for block in app.markdown)
    assert any(plain(basis) in block.value for block in app.markdown)
    assert "drop oldest messages" in html(app)
