"""What a compaction forgot: worked by hand, and as any reader of the text would count it."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fdkvc import SCENARIOS, generate
from fdkvc.commands.main import main
from fdkvc.conversations import forgot as forgot_module
from fdkvc.conversations import forgot_history, rereading
from fdkvc.conversations.forgot import LISTED, NO_SUMMARY, WAYS, Forgot, forgot
from fdkvc.conversations.forgot_report import (
    failures_sentence,
    instruction,
    losses_rows,
    none_sentence,
    rules_lines,
    rules_sentence,
    sentence,
    ways_rows,
)
from fdkvc.conversations.formats import EXAMPLES, read_sessions
from fdkvc.conversations.formats.agents import BOOKKEEPING
from fdkvc.conversations.mentions import WordingSearch
from fdkvc.conversations.rereading import Reread
from fdkvc.conversations.session_text import ContextText
from fdkvc.conversations.sessions import Message, Session
from fdkvc.core.scripts import word_spans
from fdkvc.engine.fit import fit
from fdkvc.engine.simulate import simulate
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.policies import policy_named, read_policy, synthetic_policies
from tests.session_lines import ClaudeCode

EXAMPLE = EXAMPLES / "agent.jsonl"


def session_of(log: ClaudeCode) -> Session:
    (session,) = log.read()
    return session


def worked() -> ClaudeCode:
    """Return a session whose losses are plain: a code, a port, and a file that is read again."""
    log = ClaudeCode()
    log.user("The code is QX-771, for Veldmar.")
    log.call("Read", "c1", path="boats.txt")
    log.result("c1", "The port of the replica is 8315.")
    kept = log.user("Seats: twelve. Book them later.")
    log.boundary(preTokens=900, postTokens=80, preservedMessages={"uuids": [kept]})
    log.summary("A boat from Veldmar is wanted; boats.txt was read.")
    log.call("Read", "c2", path="boats.txt")
    log.result("c2", "The port of the replica is 8315.")
    log.call("book", "c3", code="QX-771", port=8315, place="Veldmar", seats="twelve")
    log.result("c3", "ok")
    log.call("book", "c4", code="QX-771", new="never said before")
    return log


def held(result: Forgot) -> dict[str, bool]:
    """Return whether the first way holds each value that was needed."""
    values = [need.value for need in result.needs]
    return dict(zip(values, result.ways[0].holds, strict=True))


def test_a_worked_compaction() -> None:
    ways = [read_policy(name) for name in ("reread(messages(fifo))", "fifo", "reread(sink)")]
    (result,) = forgot(session_of(worked()), ways)

    assert held(result) == {
        "boats.txt": True,  # in the summary
        "QX-771": False,
        "8315": False,
        "Veldmar": True,
        "twelve": True,  # in what stayed
    }
    code, port = result.lost()
    assert (code.value, code.source_kind, code.calls, code.giver) == ("QX-771", "user", 2, -1)
    assert (code.method, code.slot, code.age) == ("book", "code", 7)
    assert (port.value, port.source_kind, port.tool, port.calls) == ("8315", "result", "Read", 1)
    assert port.giver == result.session.contexts[1][3]
    assert result.ways[0].redone == Reread(calls=1, lines=1, tokens=8)
    assert result.calls == (3, 3)
    assert "2 values had left: 1 read or said again before use, 1 used without that." in sentence(
        result
    )
    assert "1 later result repeats 1 line that had left (8 tokens)" in sentence(result)
    summary = "A boat from Veldmar is wanted; boats.txt was read."
    stayed = len(word_spans(summary + "Seats: twelve. Book them later."))
    assert [(way.policy, way.tokens, way.read_again) for way in result.ways] == [
        ("", stayed, stayed),
        ("reread(messages(fifo))", 16, 16),
        ("fifo", stayed, 0),
        ("reread(sink)", stayed, stayed - 4),
        ("", 6, 6),
    ]


def by_hand(result: Forgot, keep: np.ndarray) -> list[bool]:
    """Return whether each needed value stands whole among the tokens that stay."""
    session, stands = result.session, []
    words = [
        (session.messages[index].turn.text, span)
        for index in result.compaction.context
        for span in word_spans(session.messages[index].turn.text)
    ]
    shown = "\0".join(
        text[start:end] if stays else "\1"
        for (text, (start, end)), stays in zip(words, keep, strict=True)
    )
    for need in result.needs:
        spelled = "\0".join(need.value[start:end] for start, end in word_spans(need.value))
        stands.append(bool(re.search(rf"(^|\0){re.escape(spelled)}(\0|$)", shown)))
    return stands


@pytest.mark.parametrize("name", [*WAYS, "fifo", "shift keep=8", "sinks(surprisal)"])
def test_what_a_way_holds_is_what_can_be_read_in_what_it_keeps(name: str) -> None:
    (session,) = read_sessions(EXAMPLE.read_bytes(), EXAMPLE.name)
    for result in forgot(session, [read_policy(name)]):
        way = result.ways[1]
        text = ContextText.of([session.messages[row] for row in result.compaction.context])
        keep = text.kept(read_policy(name), result.size)

        assert keep.sum() == way.tokens <= result.size == result.ways[0].tokens
        # A number within a time, such as 47 in 15:47, is no mention of it.
        plain = [not need.value.isdigit() for need in result.needs]
        assert sum(plain) >= 2
        assert (
            np.compress(plain, way.holds).tolist()
            == np.compress(plain, by_hand(result, keep)).tolist()
        )


def test_2_000_calls_alike_are_one_value_and_each_message_is_searched_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = ClaudeCode()
    log.user("The code is QX-771.")
    log.call("check", "c0", code="QX-771")
    for number in range(20):
        log.boundary()
        log.summary("Go on with QX-771.")
        for call in range(100):
            log.call("check", f"d{number}-{call}", code="QX-771")
    searched = Counter[str]()
    mentions = WordingSearch.mentions

    def counted(search: WordingSearch, text: str) -> Iterator[tuple[str, int, int]]:
        searched[text] += 1
        return mentions(search, text)

    read_lines = Counter[str]()
    lines_of = rereading._lines_of

    def counted_lines(message: Message) -> Iterator[tuple[int, int, int]]:
        read_lines[message.place] += 1
        return lines_of(message)

    monkeypatch.setattr(WordingSearch, "mentions", counted)
    monkeypatch.setattr(rereading, "_lines_of", counted_lines)
    session = session_of(log)
    results = [*forgot(session, ())]

    assert [[need.calls for need in result.needs] for result in results] == [[100]] * 20
    assert searched == Counter(message.turn.text for message in session.messages)
    assert max(read_lines.values()) <= 3


def test_a_value_counts_at_the_last_compaction_at_which_the_model_had_it() -> None:
    log = ClaudeCode()
    log.user("The codes are QX-771 and ZB-204.")
    log.boundary()
    log.summary("The code is QX-771.")
    log.say("Noted.")
    log.boundary()
    log.summary("A code was given.")
    log.call("check", "c1", code="QX-771")
    log.call("check", "c2", code="ZB-204")
    first, second = forgot(session_of(log))

    assert held(first) == {"ZB-204": False}
    assert held(second) == {"QX-771": False}
    (need,) = second.lost()
    assert need.source_kind == "summary"


def test_values_beyond_the_limits_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgot_history, "MAX_SESSION_VALUES", 2)
    log = ClaudeCode()
    log.user("one two three")
    log.boundary()
    log.summary("Go on.")
    log.call("check", "c1", a="one", b="two", c="three")
    (result,) = forgot(session_of(log), ())

    assert [need.value for need in result.needs] == ["one", "two"]
    assert result.notes == ("Values after the first 2 are not looked for: 1.",)


def test_a_session_is_counted_in_the_tokens_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    encoding = Encoding()
    words, session = session_of(worked()), session_of(worked()).in_tokens(encoding)
    assert session.unit == "tokens of SmolLM2"
    for message in session.messages:
        assert message.tokens == len(encoding.tokens.encode(message.turn.text)[0])
    (by_words,), (by_tokens,) = forgot(words), forgot(session)
    assert by_tokens.before > by_words.before
    assert [need.value for need in by_tokens.needs] == [need.value for need in by_words.needs]
    assert by_tokens.ways[0].holds == by_words.ways[0].holds, "the file says it, in any tokens"
    monkeypatch.setattr("fdkvc.conversations.sessions.MAX_SESSION_TOKENS", 20)
    with pytest.raises(ValueError, match=r"up to line 2, it has .* tokens, but at most 20"):
        session_of(worked()).in_tokens(encoding)
    with pytest.raises(ValueError, match="but at most 20"):
        [*forgot(words, ())]


def test_a_long_text_has_the_tokens_that_it_has_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "The port of the replica is 8315, in Veldmar – 東京. " * 20
    whole = Encoding().spans(text)
    assert whole.tolist() == [*map(list, Encoding().tokens.encode(text)[1])]
    monkeypatch.setattr("fdkvc.models.numpy.encoding.PART", 90)
    assert np.array_equal(Encoding().spans(text), whole)
    assert Encoding().spans("x" * 500)[-1, 1] == 500
    assert Encoding().spans("").shape == (0, 2)


def test_without_a_summary_what_was_forgotten_is_not_known() -> None:
    log = ClaudeCode()
    log.user("word " * 100 + "QX-771")
    log.boundary(preTokens=1000, postTokens=100)
    log.call("check", "c1", code="QX-771")
    stayed = log.user("Seats: twelve.")
    log.boundary(preservedMessages={"uuids": [stayed]})
    log.say("Go on.")
    log.boundary()
    first, second, third = forgot(session_of(log))

    assert (first.recorded, first.size, first.ways[0].tokens) == (None, 10, 10)
    assert "The summary" not in sentence(first)
    assert second.recorded is not None
    assert second.recorded.label == NO_SUMMARY
    assert third.ways == ()
    assert "not known" in sentence(third)
    assert any("no size" in note for note in third.notes)
    assert not second.needs


@pytest.mark.parametrize("names", [["full"], ["oracle"], ["fifo", "fifo"]])
def test_ways_that_cannot_be_compared_at_a_size_are_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match=r"given twice|cannot be compared"):
        next(forgot(session_of(worked()), [*map(read_policy, names)]))


def test_a_way_that_keeps_more_than_the_size_is_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ContextText, "kept", lambda text, *_: np.ones(len(text), np.bool_))
    (result,) = forgot(session_of(worked()), [read_policy("fifo")])

    assert [way.label for way in result.ways[1:]] == [LISTED]
    assert "it keeps 51 of 21" in result.notes[-1]


def test_other_ways_are_compared_at_the_last_compactions_of_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forgot_module, "MAX_COMPARED_COMPACTIONS", 2)
    log = ClaudeCode()
    log.user("The code is QX-771.")
    for number in range(3):
        log.call("check", f"c{number}", code="QX-771")
        log.boundary()
        log.summary("Go on with QX-771.")
    results = [*forgot(session_of(log), [read_policy("fifo")])]

    labels = [[way.label for way in result.ways[1:]] for result in results]
    assert labels == [[], ["FIFO", LISTED], ["FIFO", LISTED]]
    said = ["the last 2 compactions" in " ".join(result.notes) for result in results]
    assert said == [True, False, False]


def test_ways_that_need_vectors_keep_their_limit_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ways = [read_policy(name) for name in ("h2o", "weighted-recency", "shift")]
    (result,) = forgot(session_of(worked()), ways)
    assert [way.policy for way in result.ways[1:-1]] == ["h2o", "weighted-recency", "shift"]

    monkeypatch.setattr("fdkvc.conversations.session_text.MAX_SHOWN_TOKENS", 20)
    (result,) = forgot(session_of(worked()), ways)
    assert [way.policy for way in result.ways[1:-1]] == ["shift"]
    assert [" vectors" in note for note in result.notes] == [True, False]
    assert all("20" in note for note in result.notes)


def test_the_worst_loss_is_what_most_calls_need_and_then_the_oldest() -> None:
    log = ClaudeCode()
    log.user("OPS-1111, then OPS-2222.")
    log.say("Or OPS-3333.")
    log.boundary()
    log.summary("Tickets are closed.")
    for number, ticket in enumerate(("OPS-3333", "OPS-2222", "OPS-1111", "OPS-3333")):
        log.call("close", f"c{number}", ticket=ticket)
    (result,) = forgot(session_of(log), ())

    assert [need.value for need in result.lost()] == ["OPS-3333", "OPS-1111", "OPS-2222"]


def test_a_value_is_from_where_it_stood_last_and_came_back_where_it_was_given_last() -> None:
    log = ClaudeCode()
    log.user("The code is QX-771, the ticket OPS-1111.")
    log.call("note", "c1", code="QX-771")
    log.result("c1", "ok")
    log.user("Close OPS-1111.")
    log.boundary()
    log.summary("A code was noted.")
    log.user("It was QX-771.")
    log.say("So QX-771.")
    log.user("Yes, QX-771.")
    log.say("QX-771 and OPS-1111 it is.")
    log.call("check", "c2", code="QX-771", ticket="OPS-1111")
    log.user("QX-771 and OPS-1111, again.")
    (result,) = forgot(session_of(log), ())
    code, ticket = result.needs

    assert (code.source_kind, code.source) == ("call", 1)
    assert (ticket.source_kind, ticket.source) == ("user", 3)
    assert result.session.messages[code.giver].turn.text == "Yes, QX-771."
    assert ticket.giver == -1, "what the agent says itself gives nothing back"


def test_lines_come_back_whatever_the_call_and_not_where_their_result_stayed() -> None:
    lines = [f"row {number} of the port module" for number in range(6)]
    log = ClaudeCode()
    log.user("Mend it.")
    log.call("Read", "c1", file_path="/srv/port.py")
    log.result("c1", "\n".join(f"{number:4}\t{line}" for number, line in enumerate(lines)) + "\n}")
    call = log.call("Bash", "c2", command="make test")
    result = log.result("c2", "12 passed, 0 failed")
    log.boundary(preservedMessages={"uuids": [call, result]})
    log.summary("It is mended.")
    log.call("Bash", "c3", command="sed -n '2,4p' /srv/port.py")
    log.result("c3", "\n".join([*lines[1:4], "a line of another kind", "}"]))
    log.call("Grep", "c4", pattern="row", path="/srv")
    log.result("c4", f"/srv/port.py:3:{lines[3]}\n/srv/port.py:5:{lines[5]}")
    log.call("Bash", "c5", command="make test")
    log.result("c5", "12 passed, 0 failed")
    log.call("Edit", "c6", file_path="/srv/port.py")
    log.result("c6", lines[0])
    (result_of_it,) = forgot(session_of(log), ())

    redone = result_of_it.ways[0].redone
    assert (redone.calls, redone.lines) == (2, 4)
    assert redone.tokens == 3 * 6 + 2 * 15, "with the names and numbers before a line"
    assert result_of_it.calls_to_edit == 3


def test_lines_of_a_file_that_was_edited_since_are_counted_apart() -> None:
    log = ClaudeCode()
    log.user("Mend it.")
    for path in ("/srv/port.py", "/srv/zone.py"):
        log.call("Read", path, file_path=path)
        log.result(path, f"first row of {path}\nsecond row of {path}")
    log.boundary()
    log.summary("It was looked at.")
    log.call("Bash", "c1", command="sed -i 's/first/second/' /srv/port.py")
    log.result("c1", "")
    log.call("Read", "c2", file_path="/srv/port.py")
    log.result("c2", "second row of /srv/port.py")
    log.call("Bash", "c3", command="cat src/port.py zone.py")
    log.result("c3", "first row of /srv/zone.py")
    (result,) = forgot(session_of(log), ())
    redone = result.ways[0].redone

    assert (redone.lines, redone.tokens, redone.edited_tokens) == (2, 18, 9)
    assert result.calls_to_edit == 0


def test_calls_with_a_path_that_does_not_exist_are_said() -> None:
    log = ClaudeCode()
    log.user("Look at /srv/app/port.py.")
    log.boundary()
    log.summary("A file was looked at.")
    for number, (path, failed) in enumerate(
        [
            ("/srv/port.py", True),
            ("/srv/zone.py", True),
            ("/srv/app/port.py", True),
            ("a.py", False),
        ]
    ):
        log.call("Read", f"c{number}", file_path=path)
        part = {"type": "tool_result", "tool_use_id": f"c{number}", "is_error": failed}
        content = [{**part, "content": f"{path} does not exist"}]
        log.line("user", message={"role": "user", "content": content})
    (result,) = forgot(session_of(log), ())

    assert [failure.value for failure in result.failures] == ["/srv/port.py", "/srv/zone.py"]
    assert [failure.has_namesake for failure in result.failures] == [True, False]
    assert "2 calls failed" in failures_sentence(result)


def test_the_users_rules_stand_word_for_word_or_not() -> None:
    log = ClaudeCode()
    log.user("Mend zone.py. Never push to main, not even once. ```always = 1```")
    log.say("I always do.")
    log.user("You must\nname the ticket. Only use UTC times.")
    kept = log.user("<system-reminder>Never say so.</system-reminder>Do not touch config.py!")
    log.boundary(preservedMessages={"uuids": [kept]})
    log.summary("The user said: never  push to main, not even once. Times are in UTC.")
    log.say("Go on.")
    (result,) = forgot(session_of(log), ())

    assert {rule.text: rule.stands for rule in result.rules} == {
        "Never push to main, not even once.": True,
        "Only use UTC times.": False,
        "Do not touch config.py!": True,
    }
    assert "Of 3 sentences" in rules_sentence(result)
    assert rules_lines(result) == ["line 3: Only use UTC times."]


def test_spellings_of_a_path_are_one_need_and_the_working_folder_is_none() -> None:
    log = ClaudeCode()
    log.user("Mend /srv/app/src/port.py.", cwd="/srv/app")
    log.boundary()
    log.summary("It is mended.")
    log.call("Grep", "c1", pattern="rows", path="/srv/app")
    log.call("Bash", "c2", command="cat src/port.py")
    log.call("Read", "c3", file_path="/srv/app/src/port.py")
    (result,) = forgot(session_of(log), ())
    (need,) = result.needs

    assert (need.value, need.calls, need.method) == ("src/port.py", 2, "Bash")


def test_a_name_in_new_code_is_a_need_only_if_nothing_gave_it_since() -> None:
    log = ClaudeCode()
    log.user("Use low_water and high_water.")
    log.boundary()
    log.summary("Names were given.")
    log.call("Read", "c1", file_path="/srv/port.py")
    log.result("c1", "high_water = 3")
    log.call("Write", "c2", file_path="/srv/tide.py", content="print(low_water, high_water)")
    (result,) = forgot(session_of(log), ())

    assert [need.value for need in result.needs] == ["low_water"]


def test_what_the_agent_put_back_was_not_lost() -> None:
    log = ClaudeCode()
    log.user("Deploy to eu-west-7.")
    log.boundary()
    log.summary("Deploy.")
    log.line("attachment", attachment={"type": "memory", "path": "/a.md", "content": "eu-west-7"})
    log.call("deploy", "c1", region="eu-west-7")
    (result,) = forgot(session_of(log), ())

    assert held(result) == {"eu-west-7": True}


def test_what_was_compacted_before_the_file_begins_is_not_called_remembered() -> None:
    log = ClaudeCode()
    log.boundary(preTokens=180_000)
    log.summary("The port is 8443.")
    log.call("open", "c1", port=8443)
    session = session_of(log)

    assert not [*forgot(session)]
    assert "nothing was forgotten" not in none_sentence(session)
    assert "180,000 tokens before" in session.notes[0]


# -------------------------------------------------------------------------------- one decision


@pytest.mark.parametrize("name", ["fifo", "h2o"])
def test_a_budget_beyond_the_text_keeps_all(name: str) -> None:
    dialogs = generate(SCENARIOS["shift"])

    assert fit(read_policy(name), dialogs, dialogs.keys.shape[1] + 7).all()


@pytest.mark.parametrize("key", synthetic_policies())
def test_a_decision_at_once_is_that_of_a_run_with_room_until_its_last_turn(key: str) -> None:
    policy, dialogs = policy_named(key), generate(SCENARIOS["mixed"])
    tokens, last = dialogs.keys.shape[1], dialogs.turns - 1
    room = simulate(policy, dialogs, tokens, stop=last, entries=False).end_state
    trace = simulate(policy, dialogs, 40, start=(last, room), entries=False)
    kept = trace.kept_tokens[0, 0]

    assert np.flatnonzero(fit(policy, dialogs, 40)).tolist() == sorted(kept[kept >= 0])


# ---------------------------------------------------------------------------------- the command


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["forgot", *arguments]) == 0
    return capsys.readouterr().out


def test_the_example_is_printed_in_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(capsys, str(EXAMPLE))

    assert max(map(len, shown.splitlines())) <= 100
    assert shown.count("read again") == 2
    assert "tokens of SmolLM2" in shown
    assert "tide-07.example.net" in shown


def test_json_has_the_same_and_all_losses(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(printed(capsys, str(EXAMPLE), "--json"))
    (session,) = read_sessions(EXAMPLE.read_bytes(), EXAMPLE.name)
    results = [*forgot(session.in_tokens(Encoding()))]

    assert [row["ways"] for row in told["compactions"]] == [*map(ways_rows, results)]
    assert [row["losses"] for row in told["compactions"]] == [*map(losses_rows, results)]
    assert told["sessions"][0]["not_read"] == {BOOKKEEPING: 1}


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_report_without_words_has_none_of_the_session(
    capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    shown = printed(capsys, str(EXAMPLE), "--without-words", *more)
    (session,) = read_sessions(EXAMPLE.read_bytes(), EXAMPLE.name)
    needed = {need.value for result in forgot(session) for need in result.needs}

    assert len(needed) > 8
    assert not [value for value in needed if value in shown and not value.isdigit()]
    assert "path of 27 characters" in shown


def test_a_session_without_compactions_offers_the_ways_at_a_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = ClaudeCode()
    log.user("The code is QX-771. " + "word " * 60)
    log.say("Noted. " + "word " * 30)
    log.call("check", "c1", code="QX-771")
    path = tmp_path / "log.jsonl"
    path.write_bytes(log.content)

    assert "--at" in printed(capsys, str(path))
    shown = printed(capsys, str(path), "--at", "10")
    assert "Sink+Window" in shown
    assert "recorded" not in shown
    assert main(["forgot", str(path), "--at", "500"]) == 2
    assert "choose a smaller one" in capsys.readouterr().err


def test_the_other_ways_keep_as_much_as_one_asks(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(printed(capsys, str(EXAMPLE), "--at", "300", "--json"))
    for compaction in report["compactions"]:
        assert max(way["tokens"] for way in compaction["ways"][1:]) <= 300
    assert report["compactions"][0]["ways"][0]["tokens"] == 624


def test_a_list_has_the_rules_and_then_the_things_of_the_user_and_of_calls() -> None:
    log = ClaudeCode()
    log.user("Never close OPS-1111. See src/port.py.")
    log.call("Read", "c1", path="/srv/zone.py")
    log.result("c1", "It has /srv/other.py " + "word " * 40)
    log.boundary(postTokens=30)
    log.summary("Tickets are looked at, one after the other, as was said. " * 2)
    for number, path in enumerate(("src/port.py", "/srv/zone.py", "/srv/other.py")):
        log.call("Read", f"d{number}", path=path)
    log.call("close", "d4", ticket="OPS-1111")
    (result,) = forgot(session_of(log), [read_policy("shift")])
    listed = result.ways[-1]

    assert listed.label == LISTED
    assert [listed.holds[place] for place in range(4)] == [True, True, False, True]
    assert listed.rewrite is not None
    assert listed.rewrite.summary == listed.tokens
    assert "Lost: 3 paths, 1 id." in instruction(result)
    assert "it would have held 3 of 4 values" in instruction(result)


def test_what_a_list_would_have_held_is_said_only_if_it_holds_something() -> None:
    (result,) = forgot(session_of(worked()), [read_policy("fifo")])
    *others, listed = result.ways
    assert any(listed.holds)
    empty = replace(listed, holds=(False,) * len(listed.holds))

    assert "With such a list" in instruction(result)
    assert "With such a list" not in instruction(replace(result, ways=(*others, empty)))


def test_the_sessions_of_a_folder_are_summed_by_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, folder in enumerate(("/srv/boats", "/srv/boats", "/srv/tides")):
        log = worked()
        log.rows = [{**row, "cwd": folder} for row in log.rows if isinstance(row, dict)]
        (tmp_path / f"{number}.jsonl").write_bytes(log.content)
    (tmp_path / "chat.json").write_bytes((EXAMPLES / "chat.json").read_bytes())
    (tmp_path / "empty.json").write_text("")
    shown = printed(capsys, str(tmp_path))
    report = json.loads(printed(capsys, str(tmp_path), "--json"))

    assert "3 compactions in 3 sessions: 6 of 15 values" in shown
    assert "Not sessions of a coding agent: 1 file." in shown
    assert [row["project"] for row in report["projects"]] == ["/srv/boats", "/srv/tides"]
    assert [row["lost"] for row in report["projects"]] == [
        {"id": 2, "number": 2},
        {"id": 1, "number": 1},
    ]
    assert [row["came back"] for row in report["projects"]] == [2, 1]
    drawing = tmp_path / "losses.svg"
    printed(capsys, str(tmp_path), "--out", str(drawing))
    assert {"boats", "tides"} <= {*re.findall("boats|tides", drawing.read_text("utf-8"))}
    without_words = printed(capsys, str(tmp_path), "--without-words", "--out", str(drawing))
    assert "boats" not in without_words + drawing.read_text("utf-8")
    assert len(report["not read"]) == 1


def test_what_is_no_session_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forgot", str(EXAMPLES / "chat.json")]) == 2
    assert "not a session of a supported" in capsys.readouterr().err
