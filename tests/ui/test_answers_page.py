"""The answers page, driven without a browser, with the model that comes with the project."""

import json
import re
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from html import escape
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from fdkvc.conversations.formats import EXAMPLES
from fdkvc.conversations.page.files import UPLOADS, read_dialog_file
from fdkvc.core.limits import MAX_TURNS, MAX_WRITTEN_TOKENS
from fdkvc.models.answer_causes import grade_call
from fdkvc.models.cache_answers import CacheAnswer, shipped_answer
from fdkvc.models.numpy.chat import Chat
from fdkvc.models.numpy.model_text import WRITERS
from fdkvc.models.page import choices, conversation, scene
from fdkvc.models.page.conversation import FULL, Answered, answer_of
from fdkvc.models.page.restore import TWO_WORDS
from fdkvc.models.page.why import _first_other
from fdkvc.models.report.answer import REPEATS, answers_html, call_html
from fdkvc.ui.fields import hold
from fdkvc.ui.lru import STORE
from tests.app_pages import html, link_of, open_page, press, settled, words_of
from tests.hostile import HOSTILE


def headline(app: AppTest) -> str:
    return app.header[0].value


def lanes(app: AppTest) -> dict[str, str]:
    """Return what stands under each cache's name."""
    shown = next(line for line in html(app).split("\n") if line.startswith('<div class="answers"'))
    sections = re.findall(r'<section aria-label="([^"]*)">(.*?)</section>', shown)
    return {name: re.sub("<[^>]*>", " ", content) for name, content in sections}


def earlier(app: AppTest) -> str:
    """Return the folded earlier turns."""
    (details,) = re.findall('<details class="earlier">.*?</details>', html(app))
    return str(details)


def say(app: AppTest, text: str) -> AppTest:
    return settled(app.chat_input[0].set_value(text).run())


def test_it_opens_with_a_call_that_one_policy_gets_right_and_another_wrong() -> None:
    app = open_page("answers")

    said = headline(app)
    same, different = said.split("make the same call as in the dialog; ")
    assert same.startswith("GetWeather(San Jose, March 5th): the full cache")
    assert "FIFO" in different
    assert "FIFO" not in same
    shown = lanes(app)
    assert list(shown) == ["Full cache", "FIFO", "H2O", "FD-KVC", "KeyDiff"]
    assert "✓ city = San Jose" in shown["Full cache"]
    assert "✗ city" in shown["FIFO"]
    assert "not San Jose" in shown["FIFO"]
    assert "✓ date = March 5th" in shown["FIFO"]
    assert "The bundled model is small" in words_of(app)
    assert link_of(app).items() >= {"file": "evening", "turn": "15", "look": "fifo"}.items()


def test_why_says_what_a_word_would_have_looked_at_and_when_that_was_evicted() -> None:
    app = open_page("answers", section="why", look="fifo")

    told = next(
        markdown.value
        for markdown in app.markdown
        if "of its attention would have gone" in markdown.value
    )
    assert told.startswith("FIFO wrote *")
    assert "they received 0\u00a0%" in told
    shown = html(app)
    assert '<b class="chosen">' in shown
    assert re.search(
        r'<s [^>]*title="0\.0 % of the attention, [\d.]+ % if it were cached; '
        r'evicted in turns? \d+[^"]* from every attention head',
        shown,
    )
    assert '<th scope="col">evicted by</th>' in shown
    app.selectbox(key="answers/look").set_value(FULL).run()
    assert "Nothing was evicted before Full cache wrote" in words_of(settled(app))
    assert link_of(app)["look"] == FULL


def test_why_names_who_wrote_each_passage() -> None:
    (rows,) = re.findall(
        "<table><tbody>(<tr.*?)</tbody>", html(open_page("answers", section="why"))
    )
    writers = re.findall(r'<th scope="row"><i>\d+</i> ([^<]+)</th>', rows)

    assert set(writers) == {*WRITERS.values()}


def test_what_was_evicted_is_restored_and_the_call_is_right() -> None:
    app = open_page("answers", section="back", look="fifo")

    cause = "**With *San Jose* (turn 11) restored, the call is right.**"
    assert cause in [text.value for text in app.markdown]
    table = next(line for line in html(app).split("\n") if "scrolls back" in line)
    # Names, nothing, five spans, all eight. The call of turn 11 has the city, not its sentence.
    assert table.count("<tr>") == 1 + 1 + 5 + 1
    assert "from the call in turn 11, evicted by all 8 heads in turn 14" in table
    assert TWO_WORDS not in words_of(app), "the headline is about calls"
    assert "the same with “Jose?” (turn 0), “Casa Aurora?” (turn 3) and “hungry,” (turn 0)" in table


def test_without_calls_the_cache_that_lost_a_word_is_shown() -> None:
    """A recording stands for an answer whose calls are all right, as it has none."""
    recorded = shipped_answer().answers
    for names in (["keydiff", "fifo"], ["keydiff", "h2o", "fifo"], ["fifo", "keydiff"]):
        titles = {name: recorded[name].title for name in (FULL, *names)}
        answers = [recorded[name] for name in titles]
        answered: Any = SimpleNamespace(
            conversation=SimpleNamespace(titles=titles),
            answers=partial(list, answers),
            as_expected=recorded.__contains__,
        )
        shown = recorded[_first_other(answered, titles)]
        assert shown.title == next(name for name in names if name != "keydiff").upper()
        assert any("Rosalind" in word.text and not word.right for word in shown.predicted)


@pytest.mark.long
def test_a_talk_begins_with_nothing_and_every_cache_goes_on_with_its_own_answers() -> None:
    app = open_page("answers", file="nothing", budget=24, policies="fifo,h2o")
    assert "Write as the user" in words_of(app)

    say(app, "I am looking for a restaurant in San Jose.")
    assert "says" not in headline(app)
    assert list(lanes(app)) == ["Full cache", "FIFO", "H2O"]
    first = lanes(app)["FIFO"]
    say(app, "Something Italian, please.")

    assert link_of(app)["said"].split("\n") == [
        "I am looking for a restaurant in San Jose.",
        "Something Italian, please.",
    ]
    assert re.split("kept|writes:", first)[-1].strip() in re.sub("<[^>]*>", "", earlier(app))
    again = open_page("answers", **link_of(app))
    assert lanes(again) == lanes(app)

    press(app, "Take it back")
    assert lanes(app)["FIFO"] == first
    for section in ("back", "why"):
        app.session_state["answers/section"] = section
        assert not settled(app.run()).error


@pytest.mark.long
def test_a_dialog_goes_on_as_a_talk() -> None:
    app = open_page("answers", policies="fifo")
    say(app, "Thank you. Is there a movie playing there?")

    assert "Thank you. Is there a movie playing there?" in html(app)
    assert "call is right" not in headline(app) or "FindMovies" in headline(app)
    assert "GetWeather" in earlier(app)


def forget_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    for stored in (STORE, conversation.TEXTS):
        monkeypatch.setattr(stored, "_held", OrderedDict())


@pytest.mark.long
def test_an_answer_is_stopped_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_answers(monkeypatch)
    begun = {"policies": "fifo", "budget": 70}
    whole = lanes(open_page("answers", **begun))
    forget_answers(monkeypatch)
    answer, clicks, stops = Chat.answer, list[Thread](), list[Answered | None]()

    def stopping(chat: Chat, most: int) -> Iterator[dict[str, int]]:
        for step in answer(chat, most):
            yield step
            if chat.steps == 3:  # a click, and the next run
                monkeypatch.setattr(Chat, "answer", answer)
                stored: list[Any] = [*STORE._held]
                keys = [key for shelf, key in stored if shelf is conversation.ANSWERS]
                clicks.append(Thread(target=stops.extend, args=[map(answer_of, keys)]))
                clicks[0].start()  # waits until this run ends
                hold("answers", choices.STOPS, "0:3")
                st.rerun()

    monkeypatch.setattr(Chat, "answer", stopping)
    app = open_page("answers", **begun)

    clicks[0].join()
    assert stops[0] is not None
    assert stops[0].chat.steps == 3
    assert "✗" in lanes(app)["Full cache"]
    assert lanes(app)["Full cache"].endswith("Not finished. ")
    assert link_of(app)["stops"] == "0:3"
    assert lanes(open_page("answers", **link_of(app))) == lanes(app)
    press(app, "Go on")
    assert lanes(app) == whole
    assert link_of(app)["stops"] == f"0:{3 + MAX_WRITTEN_TOKENS}"
    stopped = open_page("answers", **begun, stops="0:3")
    say(stopped, "And now?")
    assert "And now?" in html(stopped)
    assert link_of(stopped)["stops"] == "0:3"
    stopped.session_state["answers/section"] = "back"
    assert "scrolls back" in html(settled(stopped.run()))
    settled(stopped.selectbox(key="answers/file").set_value("dialogues").run())
    assert link_of(stopped)["stops"] == ""


def test_words_that_differ_are_marked_while_the_model_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget_answers(monkeypatch)
    monkeypatch.setattr(scene, "DRAWN", -1.0)  # each token is drawn
    draw, drawn = answers_html, list[str]()

    def recording(answers: list[CacheAnswer], *, writing: bool = False) -> str:
        shown = draw(answers, writing=writing)
        if writing:
            drawn.append(shown)
        return shown

    monkeypatch.setattr(scene, "answers_html", recording)
    said = "I am looking for a restaurant in San Jose."
    app = open_page("answers", file="nothing", policies="fifo,h2o", budget=8, said=said)

    final = re.findall(r"<section.*?</section>", html(app))
    assert len(drawn) > 5
    assert any("<mark>" in shown for shown in drawn[:-2])
    for shown in drawn:
        full, *others = re.findall(r"<section.*?</section>", shown)
        assert "<mark>" not in full
        for lane, last in zip(others, final[1:], strict=True):
            words = re.sub("<[^>]*>", "", lane.partition("</small>")[2]).split()
            whole = re.sub("<[^>]*>", "", last.rpartition("writes:</small>")[2]).split()
            assert words[:-1] == whole[: len(words) - 1]
            assert not lane.endswith("</mark></p></section>")  # the last word may be incomplete


def test_a_link_to_what_these_answers_do_not_have_is_told() -> None:
    app = open_page("answers", section="damage", turn=2, look="snapkv", word=5000)

    wrong = "This link has an error: "
    gone, *others = [error.value for error in app.error]
    assert gone.startswith(wrong + "Section is 'damage'")
    assert others == [
        wrong + "Cache is 'snapkv', but must be one of all, fifo, h2o, fd-kvc, keydiff. "
        "Using fifo instead.",
        wrong + "Word is 5000, but must be a whole number from 0 to 23 in this answer. "
        "Using 4 instead.",
        wrong + "no answer begins in turn 2 of this dialog. Using 15 instead.",
    ]
    assert link_of(app).items() >= {"look": "fifo", "section": "back"}.items()


def test_what_is_too_long_or_sees_the_future_is_said() -> None:
    app = open_page("answers", policies="fifo,oracle,full")
    assert "it needs the future of the dialog" in app.error[0].value
    assert list(lanes(app)) == ["Full cache", "FIFO"]

    more = open_page("answers", file="nothing", said="x1" * 1200)
    assert "over 2,000 characters" in more.error[0].value
    full = open_page("answers", file="nothing", said="\n".join(["1" * 600] * 3))
    assert full.error[0].value.startswith("The text has ")
    assert full.error[0].value.endswith("tokens, but the model holds at most 1,024.")


def test_a_message_that_is_too_long_is_refused_and_stays_in_the_input() -> None:
    app = say(open_page("answers", file="nothing", policies="fifo"), "x" * 2001)

    assert "2,001 characters, but only 2,000 of 2,000 are" in app.error[0].value
    assert app.chat_input[0].proto.value == "x" * 2001
    assert link_of(app)["said"] == ""


def test_an_answer_that_repeats_itself_is_stopped_and_compared_up_to_there() -> None:
    begun = {"file": "nothing", "policies": "fifo,h2o", "budget": 8, "section": "why"}
    app = say(open_page("answers", **begun), "a" * 22)

    no_word = "The full cache's answer has no content word: nothing to compare"
    assert headline(app) == f"{REPEATS} {no_word}"
    assert "Stopped: the model repeats itself." in lanes(app)["Full cache"]
    assert len(lanes(app)["Full cache"]) < 150
    assert "<mark>whether</mark> i i i" in html(app)
    assert "✗" not in html(app)


def test_a_dialog_of_one_turn_is_answered() -> None:
    app = open_page("answers", file="own", policies="fifo")
    settled(app.text_area(key="answers/pasted").set_value("User: hello").run(timeout=60))

    assert not app.exception
    assert not app.error
    assert {"Full cache", "FIFO"} <= lanes(app).keys()


QUESTION = "User: My name is Bob.\nBot: Hi Bob.\nUser: What is my name?"


def test_a_last_message_without_an_answer_is_answered() -> None:
    """Also after a longer dialog, which has an answer in the turn that was answered before."""
    app = open_page("answers", file="own", policies="fifo")
    for dialog in (QUESTION, f"{QUESTION}\nBot: It is Bob.\nUser: And yours?"):
        settled(app.text_area(key="answers/pasted").set_value(dialog).run(timeout=60))

        *earlier_turns, last = dialog.split("\nUser: ")
        assert f'<div class="message"><b>{2 * len(earlier_turns)} · user</b> {last}' in html(app)
        assert app.selectbox(key="answers/turn").options[-1] == "after the last turn"
        assert "true answer" not in headline(app)
    for section in ("back", "why"):
        app.session_state["answers/section"] = section
        assert not settled(app.run()).error


@pytest.mark.parametrize("installed", [True, False])
def test_a_chat_of_ones_own_is_not_left_to_the_bundled_model(
    installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choices, "why_missing", lambda name: "" if installed else "missing")
    app = open_page("answers", policies="fifo")
    assert choices.OTHER_CHATS not in words_of(app)
    settled(app.selectbox(key="answers/file").set_value("own").run())
    model = app.selectbox(key="answers/model")
    assert model.value == ("smollm2" if installed else "bundled")
    settled(model.set_value("bundled").run())
    settled(app.text_area(key="answers/pasted").set_value(QUESTION).run(timeout=60))

    assert model.value == "bundled", "what a person chooses stays"
    assert choices.OTHER_CHATS in words_of(app)


def test_a_system_prompt_leaves_the_user_a_user() -> None:
    app = open_page("answers", file="own", policies="fifo")
    messages = [("system", "Be kind."), ("user", "hi"), ("assistant", "hello")]
    dialog = json.dumps([{"role": role, "content": words} for role, words in messages])
    settled(app.text_area(key="answers/pasted").set_value(dialog).run(timeout=60))

    assert app.selectbox(key="answers/turn").options == ["turn 2"]


def test_a_session_that_is_too_long_as_a_whole_is_said_to_be_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fdkvc.core.transcripts.MAX_TOKENS", 20)
    file = read_dialog_file((EXAMPLES / "agent.jsonl").read_bytes(), "long.jsonl")
    assert file.transcripts == ()
    UPLOADS.put((file.name, file.digest), file)
    state = {"answers/uploaded": (file.name, file.digest)}
    app = open_page("answers", state, file="own", sha=file.digest[:16])

    (warning,) = app.warning
    assert warning.value.startswith("1 dialog is left out: session, context 1: it has ")


@pytest.mark.long
def test_tools_that_make_every_dialog_too_long_are_left_out_and_said() -> None:
    tools = [{"name": "book", "input_schema": {"properties": {"day": {}}}}]
    messages = [{"role": "user", "content": "on"}] * MAX_TURNS
    app = open_page("answers", file="own", policies="fifo", tools="listed")
    content = json.dumps([{"id": "long", "messages": messages, "tools": tools}])
    settled(app.text_area(key="answers/pasted").set_value(content).run(timeout=60))

    assert not app.exception
    (error,) = [alert.value for alert in app.error if alert.value.startswith("long: ")]
    assert error.startswith("long: it has 8,193 turns, but at most")
    assert error.endswith("The dialogs are shown without their tools.")


def test_where_the_full_cache_fails_nothing_is_marked_against_it() -> None:
    app = open_page("answers", file="dialogues", dialog=0, turn=7)

    assert TWO_WORDS in words_of(app)
    assert "of the true answer" in headline(app) or "in the true answer" in headline(app)
    shown = next(line for line in html(app).split("\n") if '<div class="answers"' in line)
    assert "<mark>" not in shown


def test_what_a_person_says_is_text() -> None:
    app = say(open_page("answers", file="nothing", policies="fifo"), HOSTILE)

    assert escape(HOSTILE) in html(app)
    assert HOSTILE not in html(app)


@pytest.mark.parametrize(
    ("written", "signs"),
    [
        ("A ; b = 1", "✓ A ✓ b = 1"),
        ("A ; b = 2", "✓ A ✗ b = 2 not 1"),
        ("A ; c = 1", "✓ A ✗ b missing: 1 ✗ c = 1 not expected"),
        ("C ; b = 1", "✗ C not A ✓ b = 1"),
        ("", "✗ no call of A"),
    ],
)
def test_a_call_is_chips_with_right_and_wrong_arguments(written: str, signs: str) -> None:
    shown = call_html(grade_call(written, "A ; b = 1"))

    assert " ".join(re.sub("<[^>]*>", " ", shown).split()) == signs


@pytest.mark.long
@pytest.mark.parametrize("page", ["answers", "dialogs"])
def test_a_dialog_begins_with_its_tools_on_request(page: str) -> None:
    policies = "fifo,whitelist(fifo,first=1,most=1)"
    without = open_page(page, file="errands", policies=policies)
    listed = open_page(page, file="errands", policies=policies, tools="listed")

    assert not listed.exception
    assert not listed.error
    assert link_of(listed)["tools"] == "listed"
    assert link_of(without)["tools"] == "silent"
    if page == "answers":
        shown = "tools RentLocker ( size , station , until ) ; BookKiln"
        assert shown in re.sub("<[^>]*>", "", earlier(listed))
        assert shown not in re.sub("<[^>]*>", "", earlier(without))
