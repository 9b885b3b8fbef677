"""What caches answer and predict, token by token, and the recording that is shipped."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from benchmarks.recorded_answer import answer_json
from fdkvc.models.answer_causes import Attempt, Restoration, Span, grade_call
from fdkvc.models.cache_answers import (
    RECORDED,
    CacheAnswer,
    Predicted,
    read_recorded,
    shipped_answer,
)
from fdkvc.models.numpy.text_cache import read
from fdkvc.models.page import loading
from fdkvc.models.page.conversation import FULL, Conversation, begin, write
from fdkvc.models.page.forgotten_word import restored_headline
from fdkvc.models.page.restore import _summary
from fdkvc.models.report.answer import LOOPED, REPEATS, answers_html, headline
from fdkvc.policies import policy_named
from tests.examples import dialogs_of
from tests.hostile import HOSTILE
from tests.language_models import write_model


def answer(title: str, *words: tuple[str, bool]) -> CacheAnswer:
    predicted = tuple(Predicted(word, right, word if right else "tent") for word, right in words)
    return CacheAnswer(title, 4, 9, (("system", "hello"),), (), predicted)


def test_the_headline_is_the_word_that_most_caches_lose() -> None:
    full = answer("Full cache", ("sister", True), ("Rosalind", True), ("thirty", False))
    kept = answer("FIFO", ("sister", True), ("Rosalind", True), ("thirty", True))
    lost = answer("H2O", ("sister", True), ("Rosalind", False), ("thirty", False))
    worse = answer("FD-KVC", ("sister", False), ("Rosalind", False), ("thirty", False))

    assert headline([full, kept, lost, worse]) == (
        "“Rosalind” in the true answer: predicted with the full cache and FIFO; "
        "lost with H2O and FD-KVC"
    )
    assert headline([full, kept]) == (
        "With every cache, the model still predicts both content words of the true answer that "
        "the full cache predicts"
    )
    assert headline([full, kept], by_full=True).endswith("content words of the full cache's answer")
    assert headline([replace(full, held=9), replace(kept, held=9)]) == (
        "Nothing was evicted before this answer: every cache has all that came before"
    )
    others = [replace(full, held=9), kept, replace(kept, held=9)]
    assert headline(others).startswith("With every cache, "), "one of them has evicted"
    assert headline([answer("Full cache", ("a", False)), lost]).startswith("The full cache ")
    call = (grade_call("Find ; city = Rome", "Find ; city = Rome"),)
    wrong = (grade_call("Find ; city = Bonn", "Find ; city = Rome"),)
    called = [replace(full, calls=call), replace(lost, calls=wrong)]
    assert headline(called) == (
        "Find(Rome): the full cache makes the same call as in the dialog; H2O does not"
    )


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        ("I'm sorry for the\nconfusion. I'm sorry for the confusion. I'm", True),
        ("It is very very late, and I am sorry for it. I am sorry, too.", False),
        ("one two three one two threefold", False),
    ],
)
def test_a_full_cache_that_repeats_itself_is_named_first(text: str, repeats: bool) -> None:
    full = replace(answer("Full cache", ("sorry", True)), passages=(("system", text),))
    lost = answer("FIFO", ("sorry", False))

    assert headline([full, lost], by_full=True).startswith(REPEATS) == repeats
    assert headline([full, lost]).startswith("“sorry” in the true answer")
    assert headline([replace(full, note=LOOPED), lost], by_full=True).startswith(REPEATS)


def test_of_words_that_caches_lose_the_headline_names_one_that_they_evicted() -> None:
    full = answer("Full cache", ("glad", True), ("Rosalind", True))
    fifo = answer("FIFO", ("glad", False), ("Rosalind", False))
    glad, name = fifo.predicted
    evicted = replace(fifo, predicted=(glad, name._replace(evicted=True)))
    assert headline([full, fifo]).startswith("“glad” in ")
    assert headline([full, evicted]).startswith("“Rosalind” in ")


def test_agreement_with_the_full_cache_is_not_called_right() -> None:
    full, fifo, h2o = (replace(answer(title), predicted=()) for title in ("Full", "FIFO", "H2O"))
    booked, weather = "Book ; day = today", "GetWeather ; city = Rome"
    caches = [
        replace(cache, passages=(("call", text),), calls=(grade_call(text, booked, by_full=True),))
        for cache, text in ((full, booked), (fifo, booked), (h2o, weather))
    ]
    said = headline(caches, by_full=True)
    assert said == "Book(today): FIFO makes the same call as the full cache; H2O does not"
    assert headline([caches[0], caches[2]], by_full=True) == (
        "Book(today): H2O does not make the same call as the full cache"
    )
    html = answers_html(caches)
    assert not {*"✓✗"} & {*html}
    assert html.count("= Book") == 2
    assert "≠ GetWeather" in html
    assert [cache.verdict for cache in caches[1:]] == ["the same as the full cache's", "different"]
    assert "right" not in html + said

    silent = [replace(full, calls=()), *caches[1:]]
    assert headline(silent, by_full=True).endswith("makes no call, but FIFO and H2O do")
    assert "no other cache" in headline(caches[:1], by_full=True)


def test_restore_says_what_the_headline_says() -> None:
    right, city = "Find ; city = Rome", "Find ; city = Bonn"
    restored = Restoration("call", right, right, "", (Attempt((), right),))
    calls = (grade_call(right, right), grade_call(city, ""))
    fifo = replace(answer("FIFO"), passages=(("call", right), ("call", city)), calls=calls)
    assert "FIFO does not" in headline([replace(fifo, title="Full", calls=calls[:1]), fifo])
    assert "the calls are wrong, but the first is right" in _summary(fifo, restored, right, False)
    silent = replace(fifo, passages=(("system", "hello"),), calls=(grade_call("", right),))
    assert "**" not in _summary(silent, restored, right, True)
    assert "makes no call; once one is begun for it" in _summary(silent, restored, right, True)
    fifo = replace(fifo, calls=calls[:1])
    assert "the call is right" in _summary(fifo, restored, right, False)
    assert "the call is the same as the full cache's" in _summary(fifo, restored, right, True)


@pytest.mark.parametrize(
    ("together", "words"),
    [
        ("Find ; city = Rome", "Only all 2 restored together make the call right"),
        (
            "Find ; city = Bonn",
            "Restoring these 2 spans, alone or together, does not make the call right",
        ),
    ],
)
def test_it_is_said_whether_all_words_restored_together_are_enough(
    together: str, words: str
) -> None:
    right, wrong = "Find ; city = Rome", "Find ; city = Bonn"
    span = Mock(spec=Span)
    attempts = (Attempt((span,), wrong), Attempt((span,), wrong), Attempt((span, span), together))
    restored = Restoration("call", right, wrong, "", attempts)
    assert _summary(answer("FIFO"), restored, right, False) == f"**{words}.**"


def test_of_a_restored_word_it_is_said_what_each_answer_has() -> None:
    """FIFO's repeats the name: to say that it has not the word alone would look wrong."""
    recorded = shipped_answer()
    assert restored_headline(recorded) == (
        "With “Rosalind” back, FIFO only repeats it; H2O answers with it"
    )
    fifo = recorded.restored["fifo"]
    (attempt, *others) = fifo.attempts
    without = replace(fifo, attempts=(replace(attempt, written="It's a tent."), *others))
    lacking = replace(recorded, restored={**recorded.restored, "fifo": without})
    assert "FIFO still lacks it; " in restored_headline(lacking)


def test_words_that_some_cache_loses_are_shown_and_stay_text() -> None:
    full = answer("Full cache", ("sister", True), (HOSTILE, True))
    html = answers_html([full, answer("FIFO", ("sister", True), (HOSTILE, False))])

    assert html.count("✓") == html.count("✗") == 1
    assert "sister" not in html
    assert HOSTILE not in html
    assert "instead: tent" in html


def test_predictions_are_those_of_each_cache_token_by_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(loading.MODELS, "mine", str(write_model(tmp_path, seed=3)))
    (dialog,) = dialogs_of("birthday")
    fifo = policy_named("fifo")
    about = "mine", "key", dialog.name, 7, (fifo,), 24, "head", (), ((0, 3),)
    conversation = Conversation(*about, dialog)
    *_, answered = write(begin(conversation, None, lambda share: None))
    tokens = answered.chat.model.tokens
    (passage,) = answered.true_passages()

    for name, shown in zip((FULL, "fifo"), answered.answers(), strict=True):
        cache = answered.context.caches[name].fork()
        likeliest = [int(read([cache], [token])[0, 0].argmax()) for token in passage.ids]
        text = slice(passage.start - 1, passage.stop - 1)
        words = [word.text for word in shown.predicted]
        assert words == ["Rosalind's", "birthday.", "turns", "thirty."]
        said = tokens.text(likeliest[text])
        assert all(word.instead in said for word in shown.predicted)


def test_a_value_of_several_words_is_evicted_once_one_of_them_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(loading.MODELS, "mine", str(write_model(tmp_path, seed=3)))
    dialog = dialogs_of("dialogues")[1]
    turn = dialog.calls[0].turn
    about = "mine", "key", dialog.name, turn, (policy_named("fifo"),), 8, "head", (), ((0, 3),)
    *_, answered = write(begin(Conversation(*about, dialog), None, lambda share: None))
    full, fifo = answered.answers()
    values = {word.text: word.evicted for word in fifo.predicted}
    assert any(values[text] for text in values if " " in text), values
    assert not any(word.evicted for word in full.predicted)


@pytest.mark.parametrize("example", ["birthday", "hotel"])
def test_a_shipped_answer_is_of_its_example_and_read_as_it_was_written(example: str) -> None:
    recorded = shipped_answer(example)
    (dialog,) = dialogs_of(recorded.file)

    assert (RECORDED / f"{example}.json").read_text("utf-8") == answer_json(recorded)
    assert read_recorded(answer_json(recorded)) == recorded
    assert recorded.turn == len(dialog.turns) - 1
    assert [*recorded.restored] == [*recorded.answers][1:]


def test_in_the_hotel_one_restored_word_mends_the_call() -> None:
    recorded = shipped_answer("hotel")
    right = 'bring(what="breakfast", room="417")'
    (mended,) = [
        row.spans
        for row in recorded.restored["h2o"].attempts
        if len(row.spans) == 1 and row.written == right
    ]
    assert [span.text for span in mended] == ["417."]
    texts = {name: row.passages[0][1] for name, row in recorded.answers.items()}
    assert [name for name, text in texts.items() if text == right] == ["all"]


def test_the_headline_says_which_caches_lose_another_word() -> None:
    assert headline([*shipped_answer("hotel").answers.values()]) == (
        "Lost of the 2 content words of the true answer that the full cache predicts: 1 with H2O "
        "and KeyDiff, 2 with FIFO and FD-KVC"
    )


def test_in_the_birthday_a_policy_loses_words_that_the_full_cache_predicts() -> None:
    recorded = shipped_answer()
    full, *others = recorded.answers.values()
    assert [word.text.strip(".") for word in full.predicted if word.right] == [
        "Rosalind's",
        "birthday",
        "thirty",
    ]
    assert [len([word for word in other.predicted if word.right]) for other in others][-1] == 3
