"""The page Policies, and the words that its helps explain."""

from fdkvc.ui.glossary import WORDS, help_on
from fdkvc.ui.markdown import plain
from tests.app_pages import open_page


def test_a_help_explains_the_words_that_a_text_has_and_no_others() -> None:
    assert help_on("FIFO keeps the newest entries") is None
    assert help_on("a nation of wrapped klaxons") is None
    for word, meaning in WORDS.items():
        assert help_on(f"with {word.lower()}s.") == plain(f"{word}: {meaning}")
    app = open_page("policies", {"policies/all": True})
    assert any(WORDS["KL"][:30] in block.help for block in app.caption if block.help)
    assert any(WORDS["Cluster"][:30] in block.help for block in app.caption if block.help)
