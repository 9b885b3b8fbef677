"""A coding agent's session on the page Dialogs, driven without a browser."""

import re

import pytest
from streamlit.testing.v1 import AppTest

from fdkvc.charts.theme import LIGHT
from fdkvc.conversations.forgot import forgot
from fdkvc.conversations.forgot_report import how_sure, lost_kinds, sentence
from fdkvc.conversations.formats import EXAMPLES, read_sessions
from fdkvc.conversations.formats.agents import BOOKKEEPING
from fdkvc.conversations.losses_chart import losses_chart
from fdkvc.conversations.page.files import DialogFile, read_dialog_file
from fdkvc.conversations.page.filling import columns_of, filling_html
from fdkvc.conversations.page.session import messages_html
from fdkvc.conversations.sessions import Session
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.ui.markdown import plain
from tests.app_pages import check_specs, html, open_page, press, run_until, settled, words_of
from tests.session_lines import ClaudeCode, long_log
from tests.ui.test_dialogs_page import no_stage, open_dialogs

EXAMPLE = EXAMPLES / "agent.jsonl"
SESSION = read_sessions(EXAMPLE.read_bytes(), EXAMPLE.name)[0].in_tokens(Encoding())
SHOWN = "Sizes are tokens of SmolLM2"
"""What stands below a card."""


def opened(file: DialogFile | None = None) -> AppTest:
    """Open the page with the example or an uploaded file, and wait for the cards."""
    app = open_page("dialogs", file="agent") if file is None else open_dialogs(file)
    return run_until(app, SHOWN)


def test_the_last_compaction_is_open_and_a_click_leads_to_another_or_to_a_moment() -> None:
    app = opened()
    first, second = forgot(SESSION)

    for compaction, opened_compaction in ((second, None), (first, "0"), (second, "1")):
        if opened_compaction is not None:
            (chosen,) = [row for row in app.button_group if row.label == "Compaction"]
            settled(chosen.set_value(opened_compaction).run())
        assert plain(sentence(compaction)) in words_of(app)
        assert plain(how_sure(compaction)) in words_of(app)

    worst = second.lost()[0]
    press(app, loss(app, worst.value))
    shown = html(app)
    assert shown.count(f"<mark>{worst.value}</mark>") == 2
    assert "Compaction 2".lower() in shown.lower()
    assert f"At message {worst.message + 1} " in words_of(app)


def compacted_log() -> ClaudeCode:
    log = long_log()
    log.boundary()
    log.summary("A code is to be checked.")
    return log


def test_a_session_has_its_own_question_alone() -> None:
    once = opened(read_dialog_file(compacted_log().content, "once.jsonl"))
    questions = (
        "compacted 2 times.** What did it forget?",
        "compacted once.** What did it forget?",
    )

    for app, question in zip((opened(), once), questions, strict=True):
        assert question in words_of(app)
        assert ".st-key-page-purpose { display: none }" in html(app)
        example = "Example: a coding agent's session, compacted twice. “My file” opens yours."
        assert (example in words_of(app)) == (app is not once)
    chat = html(open_page("dialogs", file="chat"))
    assert ".st-key-page-purpose { display: none }" not in chat
    assert 'class="session-bar"' not in chat


def loss(app: AppTest, value: str) -> str:
    """Return the label of the button that leads to a loss."""
    return next(row.label for row in app.button if row.label.startswith(f"**{plain(value)}** "))


def items(shown: str) -> dict[int, str]:
    """Return the mark of each message, by its number."""
    rows = re.findall(r'<li class="(\w+)(?: now)?"><small><b>[^<]*</b> ([\d,]+),', shown)
    return {int(number.replace(",", "")) - 1: mark for mark, number in rows}


@pytest.mark.parametrize("moment", [0, 15, 20, 30, len(SESSION.messages) - 1])
def test_the_transcript_marks_what_was_in_context(moment: int) -> None:
    context = SESSION.in_context(moment)
    shown = items(messages_html(SESSION, moment, range(len(SESSION.messages)), ""))

    assert [*shown] == [*range(len(SESSION.messages))]
    for index, mark in shown.items():
        assert mark == ("later" if index > moment else "in" if index in context else "out")


def test_the_columns_have_what_was_in_context_and_each_compaction() -> None:
    shown = filling_html(columns_of(SESSION), 20, {25})
    columns = shown.split('<span class="column')[1:]

    assert len(columns) == len(SESSION.messages)
    for moment, column in enumerate(columns):
        tokens = SESSION.tokens_of(tuple(SESSION.in_context(moment)))
        if moment not in SESSION.summaries:  # with one, what stayed is in context too
            assert f"message {moment + 1}: {tokens:,} token" in column
        assert (" later" in column) == (moment > 20)
        assert (" back" in column.split('"')[0]) == (moment == 25)
    assert re.findall(r"<b>(\d)</b><i", shown) == ["1", "2"]


def test_what_compactions_lost_is_shown_by_kind() -> None:
    app = opened()
    sent = {table.name for row in app.get("vega_lite_chart") for table in row.proto.datasets}
    assert "losses" in sent
    check_specs(app)

    lost = [lost_kinds(result.lost()) for result in forgot(SESSION)]
    table = losses_chart(dict(zip("ab", lost, strict=True)), LIGHT)["datasets"]["losses"]
    assert table.groupby("name").lost.sum().tolist() == [kinds.total() for kinds in lost]


def test_a_slider_leads_to_a_message() -> None:
    app = opened()
    last = len(SESSION.messages)
    (slider,) = app.slider
    settled(slider.set_value(last).run())
    assert f"At message {last} " in words_of(app)
    assert "repeats what had left" in html(app)


def test_what_a_session_says_is_shown_as_text() -> None:
    log = ClaudeCode()
    log.user("<img src=x onerror=alert(1)>")
    log.boundary()
    log.summary("<script>")
    log.say("yes")
    session: Session = log.read()[0]
    shown = messages_html(session, 1, (), "<img src=x") + filling_html(columns_of(session), 1, ())

    assert "<img" not in shown
    assert "<script" not in shown


def test_a_session_has_its_own_card_alone_also_if_its_contexts_are_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fdkvc.core.transcripts.MAX_TOKENS", 20)
    file = read_dialog_file(EXAMPLE.read_bytes(), "long.jsonl")
    assert file.transcripts == ()
    app = opened(file)

    assert not app.warning
    assert no_stage(app)
    assert BOOKKEEPING in words_of(app)
    assert plain(sentence([*forgot(SESSION)][-1])) in words_of(app)


def test_a_session_that_was_never_compacted_is_compared_at_a_size() -> None:
    file = read_dialog_file(long_log().content, "short.jsonl")
    app = opened(file)
    (size,) = [field for field in app.number_input if field.label == "Tokens that stay"]

    assert "nothing was forgotten" in words_of(app)
    assert size.value == 12
    assert "Sink+Window" in html(app)


def test_a_session_of_one_message_has_no_slider() -> None:
    log = ClaudeCode()
    log.user("Mend the tide table of the harbour. " * 20)
    app = opened(read_dialog_file(log.content, "one.jsonl"))

    assert not app.slider
    assert "had 1 message in context" in words_of(app)
