"""The page Policies: which one in general, from the card of the example conversations."""

import pytest

from fdkvc.conversations.page.files import SHIPPED
from fdkvc.tour import policies
from fdkvc.ui.markdown import plain
from fdkvc.verdict.plan import card_sentences
from tests.app_pages import html, open_page, settled


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
