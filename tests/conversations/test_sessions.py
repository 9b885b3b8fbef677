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
from fdkvc.core import json_input
from fdkvc.core.unread import Unread
from tests.conversations.test_format_cases import CASES, values_of
from tests.refusals import assert_one_sentence
from tests.session_lines import ClaudeCode, joined, texts

LOGS = (
    EXAMPLES / "agent.jsonl",
    CASES / "without_a_replacement_the_users_messages_and_the_summary_stay.jsonl",
)
"""Sessions of Claude Code and of Codex."""

COPILOT, *_ = values_of("copilot_cli_keeps_what_the_user_said_beside_its_summary")
GEMINI_CLI, *_ = values_of("gemini_cli_names_what_its_context_became")
OPENCODE, *_ = values_of("opencode_keeps_the_end_of_a_session_beside_its_summary")


@pytest.mark.parametrize("content", [path.read_bytes() for path in LOGS])
def test_a_list_of_the_lines_is_the_same_session(content: bytes) -> None:
    rows = [json.loads(line) for line in content.splitlines()]
    for text in (json.dumps(rows), f"\n {json.dumps(rows, indent=1)}"):
        for given, read in zip(read_sessions(content), read_sessions(text.encode()), strict=True):
            assert (texts(read), read.contexts) == (texts(given), given.contexts)
            assert read.messages[0].place == given.messages[0].place.replace("line", "item")
    cut = json.dumps(rows)[:-20].encode()
    (session, *_) = read_sessions(cut)
    assert any(f"item {len(rows)}, which is not JSON" in kind for kind, _ in session.unread)


def test_an_export_may_be_written_in_many_lines() -> None:
    one, many = (read_sessions(json.dumps(OPENCODE, indent=n).encode()) for n in (None, 1))
    assert one == many != ()


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

    thread = agents.Thread("session", Unread())
    thread.add({"content": [Part(text="0")], "tool_calls": []}, "line 1")
    for number in range(50):
        thread.join(0, {"content": [Part(text=str(number))]})
    assert [part["text"] for part in thread.messages[0][0]["content"]] == [*map(str, range(50))]
    assert Part.compared <= 50


def test_any_value_in_a_line_is_read_or_named() -> None:
    """Whatever stands in place of a value: a session, or one sentence."""
    agent, codex = ([*map(json.loads, path.read_text("utf-8").splitlines())] for path in LOGS)
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
    for content in ([*agent[:12], *agent[18:24]], codex, COPILOT, GEMINI_CLI, OPENCODE["messages"]):
        for _ in range(25):
            changed = copy.deepcopy(content)
            for row in drawn.sample(changed, 3):
                replace_any(row, drawn, drawn.choice(others))
            try:
                exported = json.dumps({**OPENCODE, "messages": changed}).encode()
                is_export = content is OPENCODE["messages"]
                sessions = read_sessions(exported if is_export else joined(changed))
            except ValueError as error:
                assert_one_sentence(error)
            else:
                assert all(session.messages for session in sessions)


def replace_any(row: Any, drawn: random.Random, value: Any) -> None:
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


def test_the_contexts_of_the_example_are_dialogs_of_one_cluster() -> None:
    path = EXAMPLES / "agent.jsonl"
    dialogs = read_transcripts(path.read_bytes(), path.name)
    spoken = read_dialogs(path.read_bytes(), path.name, calls=True)[0]
    (session,) = read_sessions(path.read_bytes(), path.name)

    numbers = range(1, len(session.contexts) + 1)
    assert [dialog.name for dialog in dialogs] == [f"session, context {n}" for n in numbers]
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


def test_a_long_text_with_fields_of_a_session_is_searched_once() -> None:
    text = "{" + '"projectHash" "messages" : ' * 40_000
    with pytest.raises(ValueError, match="line 1"):
        read_dialogs(text.encode(), "")
    assert not read_sessions(text.encode(), "")
