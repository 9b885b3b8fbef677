"""Logs of coding agents: what the model had in context, and what is left out and said."""

import copy
import json
import random
from typing import Any

import pytest

from fdkvc.conversations.formats import (
    EXAMPLES,
    agents,
    read_dialogs,
    read_sessions,
    read_transcripts,
)
from fdkvc.conversations.formats.agents import BOOKKEEPING, LEFT_BRANCH
from fdkvc.core import json_input
from tests.refusals import assert_one_sentence
from tests.session_lines import ClaudeCode, item, joined, said, spoken, texts

META = {"type": "session_meta", "payload": {"id": "s", "cwd": "/home/ida"}}


def unread(content: bytes) -> dict[str, int]:
    return dict(read_sessions(content)[0].unread)


# ------------------------------------------------------------------------------------ Claude Code


def test_lines_of_one_answer_are_one_message_whatever_stands_between() -> None:
    log = ClaudeCode()
    log.user("Look at both.")
    log.say("I look.", answer="m1")
    log.call("Read", "c1", answer="m1", path="a.py")
    log.result("c1", "one = 1")
    log.call("Read", "c2", answer="m1", path="b.py")
    log.result("c2", [{"type": "text", "text": "two"}, {"type": "text", "text": "= 2"}])
    log.say("Done.", answer="m2")
    (session,) = log.read()

    assert [message.turn.speaker for message in session.messages] == [
        *("user", "assistant", "tool", "tool", "assistant")
    ]
    answer = session.messages[1]
    assert [(call.method, call.arguments) for call in answer.calls] == [
        ("Read", {"path": "a.py"}),
        ("Read", {"path": "b.py"}),
    ]
    assert [session.messages[call.result].turn.text for call in answer.calls] == [
        *("one = 1", "two\n= 2")
    ]
    assert answer.turn.text.endswith("I look.")
    assert [message.turn.tool for message in session.messages] == ["", "", "Read", "Read", ""]
    assert not session.notes


def test_what_neither_a_person_nor_a_model_wrote_is_counted() -> None:
    log = ClaudeCode()
    log.rows.append({"type": "summary", "summary": "An old title", "leafUuid": "x"})
    log.rows.append({"type": "file-history-snapshot", "snapshot": {"note": "some words"}})
    log.user("Hello", isMeta=False)
    log.user("<system-reminder>Be brief.</system-reminder>", isMeta=True)
    log.line("attachment", attachment={"type": "todo", "content": "two words"})
    log.line("system", subtype="turn_duration", durationMs=7)
    thought = {"type": "thinking", "thinking": "They greet me.", "signature": "x"}
    log.line("assistant", message={"role": "assistant", "id": "m1", "content": [thought]})
    log.say("Hi", answer="m1")
    log.say("API Error: 529", isApiErrorMessage=True)
    (session,) = log.read()

    reminder = "<system-reminder>Be brief.</system-reminder>"
    assert texts(session) == ["Hello", reminder, "two words", "Hi"]
    assert [row.turn.tool for row in session.messages] == ["", "attachment", "attachment", ""]
    assert not session.notes
    assert dict(session.unread) == {
        "line of type 'summary'": 1,
        BOOKKEEPING: 2,
        "thinking": 1,
        "line marked 'isApiErrorMessage'": 1,
    }


def test_a_boundary_begins_a_context_with_the_summary_and_what_stayed() -> None:
    log = ClaudeCode()
    first = log.user("The code is QX-771.")
    log.say("Noted.")
    kept = log.user("Go on.")
    log.boundary(preTokens=900, postTokens=80, preservedMessages={"uuids": [kept, "elsewhere"]})
    log.summary("A code was given.")
    log.say("What is the code?")
    (session,) = log.read()
    (compaction,) = session.compactions

    assert texts(session) == ["The code is QX-771.", "Noted.", "Go on."]
    assert texts(session, 1) == ["A code was given.", "Go on.", "What is the code?"]
    assert compaction.place == "line 4"
    assert compaction.recorded == (900, 80)
    assert compaction.trigger == "auto"
    assert [session.messages[index].turn.text for index in compaction.summary] == [
        "A code was given."
    ]
    assert "1 of the lines that stayed" in compaction.note
    assert first not in texts(session, 1)
    assert [*session.context_names()] == ["session, context 1", "session, context 2"]
    asked = len(session.messages) - 1
    assert session.in_context(asked) == {2, 3, 4}


def test_a_segment_stays_and_lines_written_again_after_it_stay_too() -> None:
    log = ClaudeCode()
    log.user("one")
    head = log.say("two")
    tail = log.user("three")
    log.say("four")
    copied = [*log.rows[3:4]]
    log.boundary(preservedSegment={"headUuid": head, "tailUuid": tail, "anchorUuid": "x"})
    log.summary("numbers")
    log.rows += copied
    log.user("five")
    log.rows += copied
    (session,) = log.read()

    assert texts(session, 1) == ["numbers", "two", "three", "four", "five"]
    assert dict(session.unread) == {"copy of an earlier line": 2}
    assert session.compactions[0].stayed == session.contexts[1][:4]


def test_tokens_are_those_of_the_answers_where_a_boundary_has_none() -> None:
    log = ClaudeCode()
    log.user("one")
    usage = {"input_tokens": 5, "cache_read_input_tokens": 700, "output_tokens": 20}
    answer: dict[str, Any] = {"role": "assistant", "content": [{"type": "text", "text": "two"}]}
    log.line("assistant", message=answer | {"usage": usage})
    log.boundary()
    log.summary("numbers")
    log.line("assistant", message=answer | {"usage": usage | {"cache_read_input_tokens": 60}})
    (session,) = log.read()

    assert session.compactions[0].recorded == (725, 85)


def test_subagents_are_conversations_of_their_own() -> None:
    log = ClaudeCode()
    log.user("Ask two agents.")
    log.user("Count the buoys.", agent="b1")
    log.user("Count the ships.", agent="s1")
    log.say("Four buoys.", agent="b1")
    log.boundary(agent="s1")
    log.say("I wait.")
    log.summary("Ships are counted.", agent="s1")
    log.say("Nine ships.", agent="s1")
    main, buoys, ships = log.read()

    assert texts(main) == ["Ask two agents.", "I wait."]
    assert texts(buoys) == ["Count the buoys.", "Four buoys."]
    assert texts(ships, 1) == ["Ships are counted.", "Nine ships."]
    assert (buoys.name, main.compactions, len(ships.compactions)) == ("subagent b1", (), 1)


def test_subagents_of_older_versions_are_told_apart_by_their_lines() -> None:
    def row(uuid: str, parent: str | None, text: str) -> dict[str, Any]:
        message = {"role": "user", "content": text}
        about = {"uuid": uuid, "parentUuid": parent, "isSidechain": uuid[0] != "m"}
        return {"type": "user", "message": message, **about}

    rows = [row("m1", None, "ask"), row("a1", None, "one"), row("b1", None, "two")]
    rows += [row("a2", "a1", "more of one"), row("b2", "b1", "more of two")]
    sessions = read_sessions(joined(rows))

    assert [texts(session) for session in sessions] == [
        ["ask"],
        ["one", "more of one"],
        ["two", "more of two"],
    ]


def test_going_back_to_an_earlier_message_takes_what_came_after_from_the_context() -> None:
    log = ClaudeCode()
    log.user("Paint the hull.")
    answer = log.say("Which colour?")
    log.user("Red.")
    log.say("It is red.")
    log.user("Blue.", parentUuid=answer)
    log.say("It is blue.")
    (session,) = log.read()

    assert texts(session) == ["Paint the hull.", "Which colour?", "Blue.", "It is blue."]
    assert sum(times for kind, times in session.unread if "went back" in kind) == 2


def test_going_back_takes_what_came_after_a_line_without_words_too() -> None:
    log = ClaudeCode()
    log.user("Paint the hull.")
    answer = log.say("Which colour?")
    log.line("system", subtype="turn_duration", durationMs=7)
    log.user("Red.")
    log.user("Blue.", parentUuid=answer)

    assert texts(log.read()[0]) == ["Paint the hull.", "Which colour?", "Blue."]


def test_results_belong_to_the_last_call_before_them_with_their_id() -> None:
    log = ClaudeCode()
    for text in ("one", "two"):
        log.call("Read", "c1", path=text)
        log.result("c1", text)
    (session,) = log.read()

    made = [call for message in session.messages for call in message.calls]
    assert [session.messages[call.result].turn.text for call in made] == ["one", "two"]


@pytest.mark.parametrize("named", [7, {"uuids": 7}, {"allUuids": [[7]], "uuids": {}}])
def test_lines_that_stay_in_another_form_are_none(named: Any) -> None:
    log = ClaudeCode()
    log.user("one")
    log.boundary(preservedMessages=named)
    log.summary("numbers")
    log.line("system", subtype="microcompact_boundary", microcompactMetadata={"preTokens": []})

    assert texts(log.read()[0], 1) == ["numbers"]


def test_results_of_calls_at_once_do_not_go_back() -> None:
    log = ClaudeCode()
    log.user("Look at both.")
    first = log.call("Read", "c1", answer="m1", path="a.py")
    second = log.call("Read", "c2", answer="m1", path="b.py")
    last = log.result("c2", "two", parentUuid=second)
    log.result("c1", "one", parentUuid=first)
    log.user("Go on.", parentUuid=last)
    (session,) = log.read()

    assert texts(session)[2:] == ["two", "one", "Go on."]


def test_a_message_that_waited_is_the_users_and_other_attachments_are_said() -> None:
    log = ClaudeCode()
    log.user("Paint the hull.")
    queued = {"type": "queued_command", "prompt": "In red.", "commandMode": "prompt"}
    log.line("attachment", attachment=queued)
    log.line("attachment", attachment=queued | {"commandMode": "task-notification"})
    log.boundary()
    log.summary("A hull is painted.")
    content = {"type": "text", "file": {"content": "the hull's plan"}}
    log.line("attachment", attachment={"type": "file", "filename": "a.md", "content": content})
    log.line("attachment", attachment={"type": "compact_file_reference", "filename": "b.md"})
    log.say("It is red.")
    log.line("attachment", attachment={"type": "file", "content": "later"})
    (session,) = log.read()

    assert texts(session) == ["Paint the hull.", "In red."]
    assert texts(session, 1)[1:] == ["a.md\nthe hull's plan", "It is red.", "later"]
    (compaction,) = session.compactions
    assert compaction.stayed == session.contexts[1][:2]
    assert compaction.note == "Put back, text not in the log: 1 item (b.md)."
    assert dict(session.unread) == {"line of type 'attachment'": 2}


def test_what_is_put_back_between_a_boundary_and_its_summary_stayed() -> None:
    log = ClaudeCode()
    log.user("Mend it.")
    log.boundary()
    log.line("attachment", attachment={"type": "file", "filename": "a.md", "content": "port 8443"})
    log.line("attachment", attachment={"type": "compact_file_reference", "filename": "b.md"})
    log.summary("It is mended.")
    log.say("Go on.")
    (session,) = log.read()
    (compaction,) = session.compactions

    assert [session.messages[index].turn.text for index in compaction.stayed] == [
        "It is mended.",
        "a.md\nport 8443",
    ]
    assert compaction.context == (0,)
    assert "text not in the log: 1 item (b.md)" in compaction.note


def test_a_fork_and_two_compactions_in_a_row_are_said() -> None:
    log = ClaudeCode()
    log.user("Mend it.", forkedFrom={"sessionId": "s"})
    for _ in range(2):
        log.boundary()
        log.summary("It is mended.")
    log.say("Go on.", timestamp="2026-03-14T08:00:01.500Z")
    (session,) = log.read()

    assert session.notes == ("It was forked from another session (line 1).",)
    assert [row.note for row in session.compactions] == [
        "",
        "Nothing was said since the compaction before it.",
    ]
    assert session.messages[0].time == 0
    assert session.messages[-1].time == 1773475201.5


def test_a_result_of_a_call_that_failed_is_marked() -> None:
    log = ClaudeCode()
    log.call("Read", "c1", path="a.md")
    content = {"type": "tool_result", "tool_use_id": "c1", "is_error": True, "content": "No file."}
    log.line("user", message={"role": "user", "content": [content]})
    log.call("Read", "c2", path="b.md")
    log.result("c2", "text")
    (session,) = log.read()

    assert [message.failed for message in session.messages] == [False, True, False, False]


def test_a_stream_of_events_has_the_same_in_other_words() -> None:
    def event(kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": kind, "session_id": "s", "parent_tool_use_id": None, **fields}

    message = {"role": "user", "content": "Paint the hull."}
    segment = {"trigger": "auto", "pre_tokens": 700, "post_tokens": 60}
    summary = {"role": "user", "content": "A hull is painted."}
    rows = [
        event("system", subtype="init", tools=["Read"]),
        event("user", message=message),
        event("user", message={"role": "user", "content": "Look."}, parent_tool_use_id="t1"),
        event("system", subtype="compact_boundary", compact_metadata=segment),
        event("user", message=summary, isSynthetic=True),
    ]
    main, subagent = read_sessions(joined(rows))

    assert [texts(main, context) for context in (0, 1)] == [
        *(["Paint the hull."], ["A hull is painted."])
    ]
    assert main.compactions[0].recorded == (700, 60)
    assert texts(subagent) == ["Look."]


def test_results_that_were_cleared_leave_the_context() -> None:
    log = ClaudeCode()
    log.user("Look.")
    log.call("Read", "c1", path="a.py")
    log.result("c1", "a long result")
    about = {"preTokens": 500, "tokensSaved": 200, "compactedToolIds": ["c1"], "trigger": "auto"}
    log.line("system", subtype="microcompact_boundary", microcompactMetadata=about)
    log.say("I have looked.")
    (session,) = log.read()

    assert "a long result" not in texts(session, 1)
    assert (session.compactions[0].kind, session.compactions[0].recorded) == ("cleared", (500, 300))


# ------------------------------------------------------------------------------------------ Codex

CODEX: list[Any] = [
    META,
    said("developer", "Be brief."),
    said("user", "The code is QX-771."),
    {"type": "event_msg", "payload": {"type": "user_message", "message": "The code is QX-771."}},
    item("reasoning", summary=[{"type": "summary_text", "text": "I think"}]),
    item("function_call", name="book", arguments='{"code": "QX-771"}', call_id="c1"),
    item("local_shell_call", call_id="c2", action={"type": "exec", "command": ["ls", "src"]}),
    item("function_call_output", call_id="c1", output='{"output": "ok", "metadata": {}}'),
    item("function_call_output", call_id="c2", output="main.py"),
    item("custom_tool_call", name="apply_patch", input="*** Begin", call_id="c3"),
    item("custom_tool_call_output", call_id="c3", output="Done!"),
    item("ghost_snapshot", ghost_commit={"id": "x", "files": ["a path"]}),
    {
        "type": "event_msg",
        "payload": {"type": "token_count", "info": {"last_token_usage": {"total_tokens": 4000}}},
    },
]
AFTER = [said("user", "Go on."), said("assistant", "Booked.")]


def test_items_of_codex_are_messages_and_events_are_not_read_twice() -> None:
    (session,) = read_sessions(joined(CODEX))

    assert [message.turn.kind or message.turn.speaker for message in session.messages] == [
        *("system", "user", "assistant", "result", "result", "assistant", "result")
    ]
    assert [message.turn.tool for message in session.messages if message.turn.tool] == [
        *("book", "local_shell", "apply_patch")
    ]
    assert session.messages[3].turn.text == '{"output": "ok", "metadata": {}}'
    assert dict(session.unread) == {
        "line of type 'session_meta'": 1,
        BOOKKEEPING: 1,
        "thinking": 1,
        "part of type 'ghost_snapshot'": 1,
    }


def test_a_replacement_is_the_new_context_and_what_it_repeats_stays() -> None:
    history = [spoken("developer", "Be brief."), spoken("user", "The code is QX-771.")]
    history.append(spoken("user", "Summary: one was booked."))
    compacted = {"message": "one was booked", "replacement_history": history}
    rows = [*CODEX, {"type": "compacted", "payload": compacted}, *AFTER]
    (session,) = read_sessions(joined(rows))
    (compaction,) = session.compactions

    assert texts(session, 1)[-3:] == ["The code is QX-771.", "Go on.", "Booked."]
    assert {"Be brief.", "Summary: one was booked."} < {*texts(session, 1)}
    assert len(compaction.stayed) == 3
    assert len(compaction.summary) == 1
    assert compaction.recorded == (4000, None)


def test_without_a_replacement_the_users_messages_and_the_summary_stay() -> None:
    rows = [*CODEX, {"type": "compacted", "payload": {"message": "one was booked"}}, *AFTER]
    (session,) = read_sessions(joined(rows))

    assert texts(session, 1) == [
        *("one was booked", "Be brief.", "The code is QX-771.", "Go on.", "Booked.")
    ]


def test_calls_and_results_that_a_replacement_repeats_stay() -> None:
    history = [row["payload"] for row in CODEX[5:9] if row["payload"]["type"] != "local_shell_call"]
    history = [*history[:2], spoken("user", "Summary: one was booked.")]
    payload = {"message": "", "replacement_history": history}
    log = [row for row in CODEX if row["payload"].get("call_id") != "c2"]
    (session,) = read_sessions(joined([*log, {"type": "compacted", "payload": payload}, *AFTER]))
    (compaction,) = session.compactions

    stayed = [session.messages[index] for index in compaction.stayed]
    assert [message.turn.kind or message.turn.speaker for message in stayed] == [
        *("user", "assistant", "result")
    ]
    assert len(compaction.summary) == 1


def test_lines_of_the_first_versions_are_bare_items() -> None:
    first = {"id": "s", "timestamp": "t", "instructions": "Be brief."}
    items = [row["payload"] for row in CODEX[2:9] if row["type"] == "response_item"]
    for state in ([], [{"record_type": "state"}]):
        (session,) = read_sessions(joined([first, *state, *items]))
        assert [message.turn.tool for message in session.messages if message.turn.tool] == [
            *("book", "local_shell")
        ]


def test_turns_that_were_rolled_back_leave_the_context() -> None:
    rolled = {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}
    begun = [META, said("user", "<environment_context> x"), said("user", "one")]
    rows = [*begun, said("assistant", "yes"), said("user", "two"), said("assistant", "no"), rolled]
    (session,) = read_sessions(joined([*rows, said("user", "three")]))
    assert texts(session) == ["<environment_context> x", "one", "yes", "three"]
    assert dict(session.unread)[LEFT_BRANCH] == 2

    (session,) = read_sessions(joined([*rows, rolled, rolled, said("user", "three")]))
    assert texts(session) == ["<environment_context> x", "three"]


def test_a_later_summary_replaces_an_earlier_one() -> None:
    rows: list[Any] = [META, said("user", "one")]
    for summary in ("the first summary", "the second summary"):
        rows += [{"type": "compacted", "payload": {"message": summary}}, said("assistant", "yes")]
    (session,) = read_sessions(joined(rows))
    assert texts(session, 2) == ["the second summary", "one", "yes"]


def test_an_encrypted_summary_is_said() -> None:
    history = [spoken("user", "Go on."), {"type": "compaction", "encrypted_content": "AbCd"}]
    payload = {"message": "", "replacement_history": history}
    (session,) = read_sessions(joined([*CODEX, {"type": "compacted", "payload": payload}, *AFTER]))

    assert "encrypted" in session.compactions[0].note


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("content", [(EXAMPLES / "agent.jsonl").read_bytes(), joined(CODEX)])
def test_a_list_of_the_lines_is_the_same_session(content: bytes) -> None:
    rows = [json.loads(line) for line in content.splitlines()]
    for text in (json.dumps(rows), f"\n {json.dumps(rows, indent=1)}"):
        for given, read in zip(read_sessions(content), read_sessions(text.encode()), strict=True):
            assert (texts(read), read.contexts) == (texts(given), given.contexts)
            assert read.messages[0].place == given.messages[0].place.replace("line", "item")
    cut = json.dumps(rows)[:-20].encode()
    (session, *_) = read_sessions(cut)
    assert any(f"item {len(rows)}, which is not JSON" in kind for kind, _ in session.unread)


def test_a_boundary_without_a_summary_and_a_summary_without_a_boundary_are_said() -> None:
    log = ClaudeCode()
    log.user("one")
    log.boundary()
    log.say("two")
    log.summary("a summary")
    log.say("three")
    log.boundary()
    (session,) = log.read()
    first, second, third = session.compactions

    assert [texts(session, context) for context in range(4)] == [
        *(["one"], ["two"], ["a summary", "three"], [])
    ]
    assert "not its summary" in first.note
    assert "not its boundary" in second.note
    assert (first.place, second.place, third.place) == ("line 2", "line 4", "line 6")


def test_a_session_may_begin_with_a_summary_or_in_its_middle() -> None:
    log = ClaudeCode()
    log.boundary()
    log.summary("What was said elsewhere.")
    log.result("c0", "a result of a call elsewhere", parentUuid="elsewhere")
    (session,) = log.read()

    assert session.compactions == ()
    assert texts(session) == ["What was said elsewhere.", "a result of a call elsewhere"]
    assert session.resumed
    assert any("before the file begins (line 1)" in note for note in session.notes)
    assert any("without a call" in note for note in session.notes)


def test_a_line_that_cannot_be_read_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_input, "MAX_JSON_TEXT_BYTES", 3000)
    log = ClaudeCode()
    log.rows += ['ent": "begins in a line"}]}}', "[1, 2]"]
    log.user("Hello")
    log.result("c1", "far too long " * 300)
    log.say("Hi")
    log.rows.append(json.dumps(log.rows[-1])[:60])
    (session,) = log.read()

    assert texts(session) == ["Hello", "Hi"]
    kinds = [kind for kind, _ in session.unread]
    assert [kind.split(",")[0] for kind in kinds] == [*("line 1", "line 2", "line 4"), kinds[3]]
    assert "3,900 bytes" in kinds[2]
    assert dict(session.unread)["more lines that cannot be read"] == 1


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "assistant", "content": 7}, "line 2"),
        ({"role": "assistant", "content": ["text"]}, "line 2"),
        ({"role": "assistant", "content": [{"type": "text", "text": 3}]}, "line 2"),
        ({"role": 5, "content": [{"type": "text", "text": "x"}]}, "line 2"),
        ({"role": "assistant", "content": [{"type": "tool_use", "input": {}}]}, "line 2"),
    ],
)
def test_a_message_of_another_form_is_named(message: Any, place: str) -> None:
    log = ClaudeCode()
    log.user("Hello")
    log.line("assistant", message=message)
    log.say("Hi")

    assert texts(log.read()[0]) == ["Hello", "Hi"]
    assert any(place in kind for kind in unread(log.content))


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (item("message", role="user", content="yes", tool_calls=3), "'tool_calls' is missing"),
        (item("message", role="user", content="yes", tool_calls=["book"]), "a call is not an"),
    ],
)
def test_an_item_with_calls_of_another_form_is_named(row: Any, kind: str) -> None:
    compacted = {"type": "compacted", "payload": {"message": "one was booked"}}
    (session,) = read_sessions(joined([*CODEX, row, compacted, *AFTER]))
    assert any(kind in what for what in dict(session.unread))


@pytest.mark.parametrize("named", ["preservedMessages", "preservedSegment"])
def test_a_line_that_stayed_may_be_written_after_the_boundary(named: str) -> None:
    log = ClaudeCode()
    log.user("one")
    head = log.say("two")
    segment = {"headUuid": head, "tailUuid": "u5"}
    about: Any = {"preservedMessages": {"allUuids": [head, "u5"]}, "preservedSegment": segment}
    log.boundary(**{named: about[named]})
    log.summary("a summary")
    log.call("Read", "c1", path="a.py")  # u5
    log.user("three")
    (session,) = log.read()
    (compaction,) = session.compactions
    assert [session.messages[index].place for index in compaction.stayed] == [
        *("line 3", "line 2", "line 5")
    ]
    assert (compaction.note, session.messages[-1].turn.text) == ("", "three")

    log.rows[4]["uuid"] = "u9"  # type: ignore[index]
    (session,) = log.read()
    assert "1 of the lines that stayed" in session.compactions[0].note


def test_results_of_any_id_may_be_cleared() -> None:
    log = ClaudeCode()
    log.call("Read", "c1", path="a.py")
    log.result(["c1"], "a long result")  # type: ignore[arg-type]
    log.line("system", subtype="microcompact_boundary", microcompactMetadata={})
    assert texts(log.read()[0])[-1] == "a long result"


def test_what_a_subagent_says_does_not_leave_when_the_user_goes_back() -> None:
    log = ClaudeCode()
    first = log.user("one")
    log.line("user", "a1", message={"role": "user", "content": "look"}, parentUuid=first)
    for text in ("two", "three"):
        log.user(text)
    log.user("four", parentUuid=log.rows[-1]["uuid"])  # type: ignore[index]
    main, side = log.read()
    assert texts(main) == ["one", "two", "three", "four"]
    assert texts(side) == ["look"]


def test_the_contexts_of_a_session_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "MAX_CONTEXT_MESSAGES", 5)
    log = ClaudeCode()
    for text in ("one", "two"):
        log.user(text)
        log.say("yes")
        log.boundary()
        log.summary("a summary")
    assert len(log.read()[0].compactions) == 2
    log.boundary()
    with pytest.raises(ValueError, match=r"session, line 9: .*at most 5 are"):
        log.read()


def test_an_answer_of_many_lines_compares_no_part_with_all_others() -> None:
    class Part(dict[str, Any]):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Part.compared += 1
            return dict.__eq__(self, other)

        __hash__ = None

    thread = agents.Thread("session")
    thread.add({"content": [Part(text="0")], "tool_calls": []}, "line 1")
    for number in range(50):
        thread.join(0, {"content": [Part(text=str(number))]})
    assert [part["text"] for part in thread.messages[0][0]["content"]] == [*map(str, range(50))]
    assert Part.compared <= 50


GEMINI = {
    "projectHash": "abc",
    "messages": [
        {"type": "user", "content": "Mend /srv/port.py."},
        {
            "type": "gemini",
            "content": "I look.",
            "toolCalls": [{"id": "a", "name": "read_file", "args": {"path": "/srv/port.py"}}],
        },
    ],
}
OPENCODE = {
    "info": {"id": "ses_1"},
    "messages": [
        {
            "info": {"sessionID": "ses_1", "role": "user"},
            "parts": [{"type": "text", "text": "Mend /srv/port.py."}],
        },
        {
            "info": {"sessionID": "ses_1", "role": "assistant"},
            "parts": [
                {
                    "type": "tool",
                    "tool": "read_file",
                    "callID": "c",
                    "state": {"input": {"path": "/srv/port.py"}, "output": "port = 8443"},
                }
            ],
        },
    ],
}


@pytest.mark.parametrize("content", [GEMINI, OPENCODE])
def test_a_session_of_another_agent_has_its_calls_and_no_compactions(content: Any) -> None:
    (session,) = read_sessions(json.dumps(content).encode(), "session.json")
    calls = [call for message in session.messages for call in message.calls]

    assert [(call.method, call.arguments) for call in calls] == [
        ("read_file", {"path": "/srv/port.py"})
    ]
    assert "not read" in session.notes[0]
    assert [call.result >= 0 for call in calls] == [content is OPENCODE]


def test_any_value_in_a_line_is_read_or_named() -> None:
    """Whatever stands in place of a value: a session, or one sentence."""
    rows = [json.loads(line) for line in (EXAMPLES / "agent.jsonl").read_text().splitlines()]
    drawn = random.Random(7)
    others: tuple[Any, ...] = (
        None,
        7,
        True,
        "text",
        [],
        {},
        ["text"],
        [{"type": 3}],
        {"role": "user"},
    )
    for content in ([*rows[:12], *rows[18:24]], [*CODEX, *AFTER]):
        for _ in range(25):
            changed = copy.deepcopy(content)
            for row in drawn.sample(changed, 3):
                replace_any(row, drawn, drawn.choice(others))
            try:
                sessions = read_sessions(joined(changed))
            except ValueError as error:
                assert_one_sentence(error)
            else:
                assert all(session.messages for session in sessions)


def replace_any(row: Any, drawn: random.Random, value: Any) -> None:
    """Put a value in place of any that a line has."""
    while True:
        keys = [*row] if isinstance(row, dict) else [*range(len(row))]
        if not keys:
            return
        key = drawn.choice(keys)
        if not isinstance(row[key], dict | list) or drawn.random() < 0.3:
            row[key] = value
            return
        row = row[key]


def test_a_log_in_which_nobody_speaks_is_refused() -> None:
    log = ClaudeCode()
    log.user("<system-reminder>", isMeta=True)
    for read in (read_sessions, read_dialogs):
        with pytest.raises(ValueError, match="nobody says anything"):
            read(log.content, "log.jsonl")


# ---------------------------------------------------------------------------------------- dialogs


def test_the_contexts_of_the_example_are_dialogs_of_one_cluster() -> None:
    path = EXAMPLES / "agent.jsonl"
    dialogs = read_transcripts(path.read_bytes(), path.name)
    spoken = read_dialogs(path.read_bytes(), path.name, calls=True)[0]
    (session,) = read_sessions(path.read_bytes(), path.name)

    assert [dialog.name for dialog in dialogs] == [*session.context_names()]
    assert {dialog.services for dialog in dialogs} == {"session"}
    assert [len(dialog.turns) for dialog in dialogs] == [*map(len, session.contexts)]
    assert all(dialog.calls for dialog in dialogs)
    assert not any('"arguments"' in text for dialog in dialogs for text in dialog.texts)
    for context, dialog in enumerate(spoken):
        assert [*dialog.texts] == texts(session, context)


def test_a_context_beyond_a_limit_is_left_out_and_the_session_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fdkvc.core.transcripts.MAX_TOKENS", 20)
    log = ClaudeCode()
    log.user("far too long " * 30)
    log.boundary()
    log.summary("a summary")
    log.say("three")
    dialogs, skipped = read_dialogs(log.content)

    assert [dialog.name for dialog in dialogs] == ["session, context 2"]
    assert skipped[0].startswith("session, context 1: it has 90 tokens")
    assert len(log.read()[0].contexts) == 2


def test_a_message_of_several_turns_is_in_context_as_a_whole() -> None:
    message = {"type": "message", "role": "user"}
    words = "<tool_response>R-7</tool_response> And now?"
    item = {**message, "content": [{"type": "input_text", "text": words}]}
    lines = [{"type": "session_meta", "payload": {"id": "1"}}]
    lines += [{"type": "response_item", "payload": {**message, "content": words}}]
    lines += [{"type": "response_item", "payload": item}]
    (session,) = read_sessions("\n".join(map(json.dumps, lines)).encode(), "a.jsonl")
    assert session.contexts == (tuple(range(len(session.messages))),)
    assert [row.turn.text.strip() for row in session.messages][:2] == ["R-7", "And now?"]
