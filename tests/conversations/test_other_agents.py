"""Sessions of Copilot CLI, Gemini CLI and opencode: what the model had before and after."""

import json
from typing import Any

import pytest

from fdkvc.conversations.forgot import forgot
from fdkvc.conversations.formats import read_dialogs, read_sessions
from fdkvc.conversations.sessions import Session


def lines(*rows: dict[str, Any]) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def event(kind: str, agent: str = "", **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data} | ({"agentId": agent} if agent else {})


def texts(session: Session, context: int = -1) -> list[str]:
    return [session.messages[index].turn.text for index in session.contexts[context]]


CALL = {"toolCallId": "c1", "name": "view", "arguments": {"path": "/srv/port.py"}}
COPILOT = [
    event("session.start", context={"cwd": "/srv"}),
    event("system.message", role="system", content="You help."),
    event("user.message", content="Mend /srv/port.py, ticket QX-771."),
    event("assistant.message", content="I look.", toolRequests=[CALL]),
    event("tool.execution_start", toolCallId="c1", toolName="view"),
    event("tool.execution_complete", toolCallId="c1", success=True, result={"content": "a = 84"}),
    event("session.compaction_start"),
    event("assistant.message", content="Meanwhile.", toolRequests=[]),
    event(
        "session.compaction_complete",
        success=True,
        summaryContent="A port is mended.",
        preCompactionTokens=900,
        postCompactionTokens=90,
        trigger="threshold",
    ),
    event("user.message", content="Close it."),
    event(
        "assistant.message",
        content="",
        toolRequests=[{"toolCallId": "c2", "name": "close", "arguments": {"ticket": "QX-771"}}],
    ),
    event(
        "tool.execution_complete", toolCallId="c2", success=False, error={"message": "no such one"}
    ),
]


def test_copilot_keeps_what_the_user_said_beside_its_summary() -> None:
    (session,) = read_sessions(lines(*COPILOT), "events.jsonl")
    (compaction,) = session.compactions

    assert session.folder == "/srv"
    assert texts(session, 0)[-2:] == ["a = 84", "Meanwhile."]
    assert {session.messages[index].turn.text for index in compaction.stayed} == {
        "A port is mended.",
        "You help.",
        "Mend /srv/port.py, ticket QX-771.",
        "Meanwhile.",
    }
    assert (compaction.recorded, compaction.trigger) == ((900, 90), "auto")
    assert [message.failed for message in session.messages].count(True) == 1
    (result,) = forgot(session)
    assert [need.value for need in result.needs] == ["QX-771"]
    assert result.recorded is not None
    assert result.recorded.holds == (True,)


def test_a_second_summary_of_copilot_replaces_the_first() -> None:
    again = event("session.compaction_complete", success=True, summaryContent="All is done.")
    (session,) = read_sessions(lines(*COPILOT, again), "events.jsonl")
    stayed = {session.messages[index].turn.text for index in session.compactions[1].stayed}

    assert "All is done." in stayed
    assert "Close it." in stayed
    assert "A port is mended." not in stayed
    assert "Mend /srv/port.py, ticket QX-771." in stayed


def test_a_system_prompt_of_copilot_that_changed_replaces_the_one_before() -> None:
    same, changed = (event("system.message", content=text) for text in ("You help.", "You do."))
    (session,) = read_sessions(lines(*COPILOT[:6], same, changed), "events.jsonl")
    assert [text for text in texts(session) if text.startswith("You ")] == ["You do."]


def test_a_compaction_of_copilot_that_failed_is_none() -> None:
    failed = event("session.compaction_complete", success=False, error="Nothing to compact")
    (session,) = read_sessions(lines(*COPILOT[:6], failed), "events.jsonl")
    assert not session.compactions


def test_a_subagent_of_copilot_is_a_session_of_its_own() -> None:
    side = event("assistant.message", "a1", content="From the side.", toolRequests=[])
    main, other = read_sessions(lines(*COPILOT, side), "events.jsonl")
    assert texts(other) == ["From the side."]
    assert "From the side." not in texts(main)


def test_former_sessions_of_copilot_are_read_without_compactions() -> None:
    said = [{"role": "user", "content": "Mend it."}, {"role": "assistant", "content": "Done."}]
    content = {"sessionId": "s", "startTime": "t", "chatMessages": said}
    (session,) = read_sessions(json.dumps(content).encode(), "session.json")
    assert texts(session) == ["Mend it.", "Done."]
    assert "records no compactions" in session.notes[0]


def said(key: str, role: str, *parts: dict[str, Any], **info: Any) -> dict[str, Any]:
    return {"info": {"id": key, "sessionID": "ses_1", "role": role, **info}, "parts": [*parts]}


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def read_call(key: str, output: str, **state: Any) -> dict[str, Any]:
    state = {"status": "completed", "input": {"path": "/srv/port.py"}, "output": output, **state}
    return {"type": "tool", "tool": "read", "callID": key, "state": state}


def export(*rows: dict[str, Any]) -> bytes:
    return json.dumps({"info": {"id": "ses_1", "directory": "/srv"}, "messages": [*rows]}).encode()


OPENCODE = [
    said("m1", "user", words("Mend /srv/port.py, ticket QX-771."), summary={"diffs": []}),
    said("m2", "assistant", read_call("c1", "port = 8443")),
    said("m3", "user", words("Go on.")),
    said("m4", "user", {"type": "compaction", "auto": True, "tail_start_id": "m3"}),
    said("m5", "assistant", words("A port."), parentID="m4", summary=True, finish="stop"),
    said("m6", "assistant", read_call("c2", "port = 8443", status="error", error="it is gone")),
]


@pytest.mark.parametrize("indent", [None, 1])
def test_opencode_keeps_the_end_of_a_session_beside_its_summary(indent: int | None) -> None:
    content = json.dumps(json.loads(export(*OPENCODE)), indent=indent).encode()
    (session,) = read_sessions(content, "session.json")
    (compaction,) = session.compactions

    assert session.folder == "/srv"
    assert [session.messages[index].turn.text for index in compaction.stayed] == [
        "A port.",
        "Go on.",
    ]
    assert compaction.trigger == "auto"
    assert [message.failed for message in session.messages].count(True) == 1


def test_a_summary_of_opencode_without_a_tail_keeps_nothing_else() -> None:
    rows = [*OPENCODE[:3], said("m5", "assistant", words("A port."), summary=True, finish="stop")]
    (session,) = read_sessions(export(*rows), "session.json")
    assert [session.messages[index].turn.text for index in session.compactions[0].stayed] == [
        "A port."
    ]


def test_a_summary_of_opencode_that_was_not_finished_is_none() -> None:
    rows = [*OPENCODE[:4], said("m5", "assistant", words("A"), parentID="m4", summary=True)]
    (session,) = read_sessions(export(*rows), "session.json")
    assert not session.compactions


def test_a_message_of_opencode_has_no_time_but_its_own() -> None:
    cleared = read_call("c1", "port = 8443", time={"compacted": 5000})
    rows = [
        said("m1", "assistant", cleared),
        {**said("m2", "user", words("Hm.")), "timestamp": "x"},
    ]
    (session,) = read_sessions(export(*rows), "session.json")
    assert texts(session)[-1] == "Hm."
    assert not session.compactions


def test_results_that_opencode_cleared_left_when_it_says() -> None:
    rows = [
        said("m1", "user", words("Mend it."), time={"created": 1000}),
        said(
            "m2",
            "assistant",
            read_call("c1", "port = 8443", time={"compacted": 5000}),
            time={"created": 2000},
        ),
        said("m3", "user", words("And?"), time={"created": 4000}),
        said("m4", "user", words("So?"), time={"created": 6000}),
    ]
    (session,) = read_sessions(export(*rows), "session.json")
    (compaction,) = session.compactions
    assert compaction.kind == "cleared"
    assert compaction.place == "message 4"
    assert len(compaction.context) - len(compaction.stayed) == 1
    assert session.messages[0].time == 1.0


HEADER = {"sessionId": "s", "projectHash": "abc", "startTime": "2026-11-01T10:00:00Z"}


def gemini(key: str, kind: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"id": key, "type": kind, "content": content, **fields}


READ = {"id": "c1", "name": "read_file", "args": {"path": "/srv/port.py"}}
RESPONSE = {"functionResponse": {"id": "c1", "response": {"output": "port = 8443"}}}
GEMINI_CLI = [
    HEADER,
    gemini("1", "user", "Mend /srv/port.py, ticket QX-771."),
    gemini("2", "gemini", "I look."),
    gemini("2", "gemini", "I look.", toolCalls=[READ]),
    {"$set": {"lastUpdated": "t"}},
    gemini("2", "gemini", "I look.", toolCalls=[{**READ, "result": [RESPONSE]}]),
    gemini("3", "user", [{"text": "Go on."}]),
]


def test_a_record_of_gemini_cli_that_is_written_again_is_one_message() -> None:
    (session,) = read_sessions(lines(*GEMINI_CLI), "session.jsonl")
    kinds = [message.turn.kind == "result" for message in session.messages]
    assert kinds == [False, False, True, False]
    (call,) = session.messages[1].calls
    assert (call.method, call.result) == ("read_file", 2)


def test_gemini_cli_names_what_its_context_became() -> None:
    rows = [
        gemini("9", "user", [{"text": "A port is mended."}]),
        gemini("3", "user", [{"text": "Go on."}]),
    ]
    (session,) = read_sessions(lines(*GEMINI_CLI, {"$set": {"messages": rows}}), "session.jsonl")
    (compaction,) = session.compactions
    stayed = [session.messages[index].turn.text for index in compaction.stayed]
    assert stayed == ["A port is mended.", "Go on."]
    assert [session.messages[index].turn.text for index in compaction.summary] == stayed[:1]


def test_a_context_of_gemini_cli_that_only_grew_is_no_compaction() -> None:
    rows = [gemini(row["id"], row["type"], row["content"]) for row in GEMINI_CLI[1:3]]
    rows += [
        gemini("7", "user", [RESPONSE]),
        GEMINI_CLI[-1],
        gemini("8", "user", [{"text": "And?"}]),
    ]
    (session,) = read_sessions(lines(*GEMINI_CLI, {"$set": {"messages": rows}}), "session.jsonl")
    assert not session.compactions
    assert texts(session)[-2:] == ["Go on.", "And?"]


def test_a_session_of_gemini_cli_that_goes_on_without_a_summary_is_not_compacted() -> None:
    began = gemini("0", "user", [{"text": "<session_context> Tuesday"}])
    now = gemini("5", "user", [{"text": "<session_context> Wednesday"}])
    answered = gemini("2_response", "user", [RESPONSE])
    rows = [now, GEMINI_CLI[1], GEMINI_CLI[5], answered]
    content = lines(HEADER, began, *GEMINI_CLI[1:], {"$set": {"messages": rows}}, GEMINI_CLI[-1])
    (session,) = read_sessions(content, "session.jsonl")
    assert not session.compactions
    assert "<session_context> Tuesday" not in texts(session)
    assert "<session_context> Wednesday" in texts(session)


def test_what_a_person_took_back_in_gemini_cli_leaves() -> None:
    (session,) = read_sessions(lines(*GEMINI_CLI, {"$rewindTo": "3"}), "session.jsonl")
    assert "Go on." not in texts(session)


@pytest.mark.parametrize("content", [lines(*COPILOT), export(*OPENCODE), lines(*GEMINI_CLI)])
def test_they_are_dialogs_too(content: bytes) -> None:
    dialogs, skipped = read_dialogs(content, "session.jsonl")
    assert not skipped
    assert all(dialog.turns for dialog in dialogs)
