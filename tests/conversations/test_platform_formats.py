"""Exports and logs of platforms: each restates the same talk, and what is peculiar to it."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.conversations.formats import read_dialogs, read_transcripts
from fdkvc.conversations.tools import tools_text
from fdkvc.core.transcripts import Transcript
from fdkvc.explain.notes import not_read_notes
from tests.conversations.test_agent_formats import (
    ASKED,
    CHAT,
    CHECK,
    DONE,
    LOOK,
    ORDER,
    POLICY,
    REFUND,
    assert_read_or_counted,
    encoded,
    spans,
)
from tests.refusals import any_json, assert_read_or_refused

SCHEMA = {"type": "object", "properties": {"order_id": {"type": "string"}}}


def calls_of(name: str, arguments: str) -> list[list[dict[str, Any]]]:
    """Return the calls of each turn of the talk, their fields named so."""
    turns: list[list[tuple[str, Any]]] = [[("look", LOOK), ("check", CHECK)], [("refund", REFUND)]]
    return [[{"id": call, name: call, arguments: given} for call, given in turn] for turn in turns]


# ------------------------------------------------------------------------------- the same talk


def langchain() -> list[dict[str, Any]]:
    looked, refunded = calls_of("name", "args")
    return [
        {"type": "system", "content": POLICY, "additional_kwargs": {}},
        {"type": "human", "content": [ASKED], "response_metadata": {"model_name": "any model"}},
        {"type": "ai", "content": "", "tool_calls": looked, "invalid_tool_calls": []},
        {"type": "tool", "content": json.dumps(ORDER), "tool_call_id": "look", "name": "look"},
        {"type": "tool", "content": "gold", "tool_call_id": "check", "status": "success"},
        {
            "type": "ai",
            "content": [{"type": "text", "text": "One moment."}],
            "tool_calls": refunded,
        },
        {"type": "tool", "content": [{"type": "text", "text": "ok"}], "tool_call_id": "refund"},
        {"type": "ai", "content": DONE, "usage_metadata": {"input_tokens": 3}},
    ]


def constructed(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as the constructor of its class."""
    kind = {"human": "Human", "ai": "AI", "system": "System", "tool": "Tool"}[message["type"]]
    kwargs = {name: value for name, value in message.items() if name != "type"}
    path = ["langchain_core", "messages", f"{kind}Message"]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": kwargs}


def in_data(message: dict[str, Any]) -> dict[str, Any]:
    return {"type": message["type"], "data": message}


LOOKED, REFUNDED = calls_of("toolName", "input")
PAGE: list[dict[str, Any]] = [
    {"id": "1", "role": "system", "parts": [{"type": "text", "text": POLICY}]},
    {"id": "2", "role": "user", "parts": [{"type": "text", "text": ASKED, "state": "done"}]},
    {
        "id": "3",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {"type": "tool-look", "toolCallId": "a", "state": "output-available"}
            | {"input": LOOK, "output": ORDER},
            {
                "type": "dynamic-tool",
                "toolName": "check",
                "toolCallId": "b",
                "state": "output-error",
            }
            | {"input": CHECK, "errorText": "gold"},
            {"type": "step-start"},
            {"type": "text", "text": "One moment."},
            {"type": "tool-refund", "toolCallId": "c", "input": REFUND, "output": "ok"},
            {"type": "text", "text": DONE},
        ],
    },
]
PAGE_OF_4 = copy.deepcopy(PAGE)
for part in PAGE_OF_4[2]["parts"]:
    if "input" in part:  # as version 4 has it
        kind = part.pop("type")
        call = {
            "state": "result",
            "toolCallId": part["toolCallId"],
            "toolName": part.get("toolName", kind[5:]),
            "args": part["input"],
            "result": part.get("output", "gold"),
        }
        part.clear()
        part |= {"type": "tool-invocation", "toolInvocation": call}


def for_model(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": [*parts]}


FOR_MODEL = [
    {"role": "system", "content": POLICY},
    {"role": "user", "content": ASKED},
    for_model("assistant", *({"type": "tool-call", "toolCallId": "a", **call} for call in LOOKED)),
    for_model(
        "tool",
        {"type": "tool-result", "toolName": "look", "output": {"type": "json", "value": ORDER}},
        {"type": "tool-result", "toolName": "check", "output": {"type": "text", "value": "gold"}},
    ),
    for_model(
        "assistant",
        {"type": "text", "text": "One moment."},
        *({"type": "tool-call", "toolCallId": "c", **call} for call in REFUNDED),
    ),
    for_model("tool", {"type": "tool-result", "toolName": "refund", "result": "ok"}),
    {"role": "assistant", "content": DONE},
]


def converse() -> dict[str, Any]:
    looked, refunded = calls_of("name", "input")
    return {
        "modelId": "any",
        "system": [{"text": POLICY}],
        "messages": [
            {"role": "user", "content": [{"text": ASKED}]},
            {"role": "assistant", "content": [{"toolUse": call} for call in looked]},
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "1", "content": [{"json": ORDER}]}},
                    {"toolResult": {"toolUseId": "2", "content": [{"text": "gold"}]}},
                ],
            },
            {
                "role": "assistant",
                "content": [{"text": "One moment."}, {"toolUse": refunded[0]}],
            },
            {"role": "user", "content": [{"toolResult": {"content": [{"text": "ok"}]}}]},
            {"role": "assistant", "content": [{"text": DONE}]},
        ],
    }


def sample(**fields: Any) -> dict[str, Any]:
    looked, refunded = calls_of("function", "arguments")
    messages = [
        {"role": "system", "content": POLICY},
        {"role": "user", "content": ASKED, "source": "input"},
        {"role": "assistant", "content": "", "tool_calls": looked, "model": "any/model"},
        {"role": "tool", "content": json.dumps(ORDER), "function": "look"},
        {
            "role": "tool",
            "content": "",
            "function": "check",
            "error": {"type": "unknown", "message": "gold"},
        },
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "One moment."}],
            "tool_calls": refunded,
        },
        {"role": "tool", "content": [{"type": "text", "text": "ok"}], "function": "refund"},
        {"role": "assistant", "content": DONE},
    ]
    return {"id": "r1", "epoch": 1, "input": ASKED, "target": "7", "messages": messages} | fields


def log(*samples: dict[str, Any]) -> dict[str, Any]:
    return {"version": 2, "status": "success", "eval": {"task": "7"}, "samples": [*samples]}


TRAJECTORY = {
    "environment": "main",
    "trajectory": [{"action": "look", "observation": "…", "thought": "One moment."}],
    "history": [
        {
            **message,
            "agent": "main",
            "message_type": "observation" if message["role"] == "tool" else "",
        }
        for message in CHAT
    ],
    "info": {"model_stats": {"api_calls": 4}},
}

TALKS: dict[str, Any] = {
    "langchain": langchain(),
    "langchain state": {"messages": langchain()},
    "langchain data": [*map(in_data, langchain())],
    "langchain constructors": [*map(constructed, langchain())],
    "ai-sdk page": PAGE,
    "ai-sdk page of version 4": {"id": "1", "messages": PAGE_OF_4},
    "ai-sdk model": FOR_MODEL,
    "bedrock": converse(),
    "inspect": log(sample()),
    "inspect sample": sample(),
    "swe-agent": TRAJECTORY,
}


@pytest.mark.parametrize("calls", [False, True])
@pytest.mark.parametrize("key", TALKS)
def test_every_layout_gives_the_same_turns_spans_and_evidence(key: str, calls: bool) -> None:
    (dialog,), _ = read_dialogs(encoded(TALKS[key]), calls=calls)
    (chat,), _ = read_dialogs(encoded(CHAT), calls=calls)

    assert dialog.texts == chat.texts
    assert [spans(dialog, turn) for turn in range(8)] == [spans(chat, turn) for turn in range(8)]
    assert dialog.demands == chat.demands
    assert dialog.calls == chat.calls
    assert dialog.missing == dialog.malformed_calls == 0


def test_what_a_message_repeats_is_read_once() -> None:
    (chat,) = read_transcripts(encoded(CHAT))
    messages = langchain()
    use = {"type": "tool_use", "id": "refund", "name": "refund", "input": REFUND}
    messages[5]["content"].append(use)
    messages[2]["additional_kwargs"] = {"tool_calls": [{"function": {"name": "look"}}]}
    page = copy.deepcopy(PAGE_OF_4)
    invocations = [part["toolInvocation"] for part in page[2]["parts"] if "toolInvocation" in part]
    page[2] |= {"content": DONE, "toolInvocations": invocations}
    for talk in (messages, page):
        (dialog,) = read_transcripts(encoded(talk))
        assert (dialog.texts, dialog.calls) == (chat.texts, chat.calls)
        assert not_read_notes([dialog]) == []

    use["input"] = {"order_id": "#W13"}
    (dialog,) = read_transcripts(encoded(messages))
    assert len(dialog.calls) == len(chat.calls) + 1


def said(dialog: Transcript) -> list[tuple[str, str]]:
    """Return the kind and words of each turn."""
    return [
        (dialog.turns[at].kind or dialog.span_kind(at, 0), text)
        for at, text in enumerate(dialog.texts)
    ]


def demanded(dialog: Transcript) -> list[tuple[int, str, str, str]]:
    return [(demand.turn, demand.source, demand.slot, demand.value) for demand in dialog.demands]


# ------------------------------------------------------------------------------- exports of chats


def node(key: str, parent: str | None, role: str = "", **message: Any) -> dict[str, Any]:
    """Return a node of ChatGPT's tree; its content is a text, or has a type."""
    content = message.pop("content", None)
    if isinstance(content, str):
        content = {"content_type": "text", "parts": [content]}
    whole = {"id": key, "author": {"role": role, "name": None, "metadata": {}}, "content": content}
    whole |= {"status": "finished_successfully", "recipient": "all", "metadata": {}, **message}
    return {"id": key, "message": whole if role else None, "parent": parent, "children": []}


def chatgpt(*nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    mapping = {item["id"]: item for item in nodes}
    whole = {"title": "To Veldmar", "mapping": mapping, "current_node": nodes[-1]["id"]}
    return whole | {"default_model_slug": "some-model", "moderation_results": []} | fields


HIDDEN = {"is_visually_hidden_from_conversation": True}
INSTRUCTIONS = {
    "content_type": "user_editable_context",
    "user_profile": "Lives in Veldmar.",
    "user_instructions": "Short answers.",
}
EXPORT = chatgpt(
    node("root", None),
    node("a", "root", "system", content="", metadata=HIDDEN),
    node("b", "a", "user", content=INSTRUCTIONS, metadata=HIDDEN),
    node("other", "b", "user", content="A train to Lonwick"),
    node("lost", "other", "assistant", content="No trains."),
    node(
        "c",
        "b",
        "user",
        content={
            "content_type": "multimodal_text",
            "parts": [
                {"content_type": "image_asset_pointer", "asset_pointer": "file://x"},
                {"content_type": "audio_transcription", "text": "A boat for 3,"},
                "code QX-771.",
            ],
        },
    ),
    node(
        "d", "c", "assistant", content={"content_type": "thoughts", "thoughts": [{"content": "hm"}]}
    ),
    node(
        "e",
        "d",
        "assistant",
        content={
            "content_type": "code",
            "language": "json",
            "text": '{"code": "QX-771", "seats": 3}',
        },
        recipient="boats.book",
    ),
    node("f", "e", "tool", content={"content_type": "execution_output", "text": "ticket TK-5502"}),
    node(
        "g", "f", "assistant", content={"content_type": "code", "text": "2 + 2"}, recipient="python"
    ),
    node(
        "h",
        "g",
        "tool",
        content={"content_type": "tether_browsing_display", "result": "It sails.", "summary": ""},
    ),
    node("i", "h", "system", content="Do not say so.", metadata=HIDDEN),
    node("j", "i", "assistant", content=""),
    node("k", "j", "assistant", content="Booked: TK-5502."),
)


def test_chatgpt_is_read_along_the_current_branch() -> None:
    for talk in (EXPORT, [EXPORT]):
        (dialog,) = read_transcripts(encoded(talk))
        assert dialog.name == "To Veldmar"
        assert said(dialog) == [
            ("system", "Lives in Veldmar.\nShort answers."),
            ("user", "A boat for 3,\ncode QX-771."),
            ("assistant", ""),
            ("assistant", ""),
            ("result", "ticket TK-5502"),
            ("assistant", ""),
            ("result", "It sails."),
            ("assistant", "Booked: TK-5502."),
        ]
        assert demanded(dialog) == [
            (3, "boats.book", "code", "QX-771"),
            (3, "boats.book", "seats", "3"),
        ]
        assert not_read_notes([dialog]) == [
            "The arguments of 1 tool call are not a JSON object: they are read as text, and none "
            "of them is checked.",
            "Not read: hidden message (1×), message of another branch (2×), part of type "
            "'image_asset_pointer' (1×), thinking (1×).",
        ]
    (called,), _ = read_dialogs(encoded(EXPORT), calls=True)
    assert called.texts[5] == '{"name": "python", "arguments": "2 + 2"}'


def test_the_branch_is_the_one_that_was_open() -> None:
    (dialog,) = read_transcripts(encoded({**EXPORT, "current_node": "lost"}))
    assert [text for _, text in said(dialog)][1:] == ["A train to Lonwick", "No trains."]
    two, skipped = read_dialogs(encoded([EXPORT, {**EXPORT, "current_node": "root"}, EXPORT]))
    assert [dialog.name for dialog in two] == ["To Veldmar", "To Veldmar (2)"]
    (reason,) = skipped
    assert reason.startswith("To Veldmar: its words are not read")


def test_a_branch_of_thousands_of_nodes_is_followed() -> None:
    nodes = [node("0", None, "user", content="hi")]
    nodes += [node(str(at), str(at - 1)) for at in range(1, 5_000)]
    (dialog,) = read_transcripts(encoded(chatgpt(*nodes)))
    assert dialog.texts == ("hi",)


CLAUDE = {
    "uuid": "7",
    "name": "To Veldmar",
    "account": {"uuid": "8"},
    "chat_messages": [
        {
            "uuid": "1",
            "sender": "human",
            "text": "Book it.",
            "content": [{"type": "text", "text": "Book it.", "citations": []}],
            "attachments": [
                {"file_name": "plan.txt", "file_type": "txt", "extracted_content": "Code QX-771."}
            ],
            "files": [{"file_name": "plan.txt"}, {"file_name": "boat.png"}],
        },
        {
            "uuid": "2",
            "sender": "assistant",
            "text": "",
            "content": [
                {"type": "thinking", "thinking": "A boat, then."},
                {"type": "text", "text": "One moment."},
                {"type": "tool_use", "id": "9", "name": "book", "input": {"code": "QX-771"}},
                {
                    "type": "tool_result",
                    "tool_use_id": "9",
                    "content": [{"type": "knowledge", "title": "", "text": "Ticket TK-5502"}],
                },
                {"type": "text", "text": "Booked."},
            ],
        },
        {"uuid": "3", "sender": "human", "text": "Thanks", "content": None},
    ],
}


def test_claude_has_what_its_tools_returned() -> None:
    for talk in ([CLAUDE], {"conversations": [CLAUDE]}):
        (dialog,) = read_transcripts(encoded(talk))
        assert dialog.name == "To Veldmar"
        assert said(dialog) == [
            ("user", "Code QX-771.\nBook it."),
            ("assistant", "One moment."),
            ("result", "Ticket TK-5502"),
            ("assistant", "Booked."),
            ("user", "Thanks"),
        ]
        assert demanded(dialog) == [(1, "book", "code", "QX-771")]
        assert not_read_notes([dialog]) == [
            "Not read: part of type 'file' (1×), thinking (1×).",
        ]


@pytest.mark.parametrize(("leaf", "words"), [(None, "cd"), ("2", "ab"), ("nowhere", "cd")])
def test_claude_is_read_along_the_current_branch(leaf: str | None, words: str) -> None:
    messages = [
        {"uuid": key, "parent_message_uuid": parent, "sender": "human", "text": text}
        for key, parent, text in (
            *(("1", "root", "a"), ("2", "1", "b")),
            *(("3", "root", "c"), ("4", "3", "d")),
        )
    ]
    talk = {"chat_messages": messages, "current_leaf_message_uuid": leaf}
    (dialog,) = read_transcripts(encoded([talk]))
    assert dialog.texts == tuple(words)
    assert dict(dialog.unread) == {"message of another branch": 2}


# ------------------------------------------------------------------------------- Gemini


GEMINI = {
    "systemInstruction": {"parts": {"text": POLICY}},
    "contents": [
        {"role": "user", "parts": [{"text": ASKED}, {"inlineData": {"mimeType": "image/png"}}]},
        {
            "role": "model",
            "parts": [
                {"text": "So it is.", "thought": True},
                {"functionCall": {"name": "look", "args": LOOK}, "thoughtSignature": "c2ln"},
                {"functionCall": {"name": "check", "args": CHECK}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "look", "response": ORDER}},
                {"functionResponse": {"name": "check", "response": {"result": "gold"}}},
            ],
        },
        {
            "role": "model",
            "parts": [
                {"text": "One moment."},
                {"executableCode": {"language": "PYTHON", "code": "1250 * 2"}},
                {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2500"}},
                {"functionCall": {"name": "refund", "args": REFUND}},
            ],
        },
        {"role": "function", "parts": [{"functionResponse": {"response": {"done": True}}}]},
        {"role": "model", "parts": [{"text": DONE}]},
    ],
    "tools": [{"functionDeclarations": [{"name": "look", "parameters": SCHEMA}, {"name": "ping"}]}],
}


def snake(value: Any) -> Any:
    """Return a value of JSON with fields as Python's client names them, empty ones too."""
    names = {
        "functionCall": "function_call",
        "functionResponse": "function_response",
        "systemInstruction": "system_instruction",
        "functionDeclarations": "function_declarations",
        "executableCode": "executable_code",
        "codeExecutionResult": "code_execution_result",
        "inlineData": "inline_data",
    }
    if isinstance(value, list):
        return [*map(snake, value)]
    if not isinstance(value, dict):
        return value
    named = {names.get(key, key): snake(inner) for key, inner in value.items()}
    if isinstance(value.get("parts"), list):
        named["parts"] = [{"text": None, "file_data": None, **part} for part in named["parts"]]
    return named


def test_gemini_has_parts_without_a_type() -> None:
    (chat,) = read_transcripts(encoded(CHAT))
    for talk in (GEMINI, {**snake(GEMINI), "system_instruction": POLICY}):
        (dialog,) = read_transcripts(encoded(talk))
        assert said(dialog) == [
            ("system", POLICY),
            ("user", ASKED),
            ("assistant", ""),
            ("result", json.dumps(ORDER)),
            ("result", '{"result": "gold"}'),
            ("assistant", "One moment."),
            ("result", "2500"),
            ("assistant", ""),
            ("result", '{"done": true}'),
            ("assistant", DONE),
        ]
        assert [call.arguments for call in dialog.calls[:2]] == [
            call.arguments for call in chat.calls[:2]
        ]
        assert [demand[1:] for demand in demanded(dialog)] == [
            demand[1:] for demand in demanded(chat)
        ]
        assert tools_text(dialog.tools) == "tools look ( order_id ) ; ping ( )"
        assert dialog.malformed_calls == 1  # the code
        data = "inlineData" if talk is GEMINI else "inline_data"
        assert dict(dialog.unread) == {f"part of type {data!r}": 1, "thinking": 1}


def test_gemini_contents_stand_alone_too() -> None:
    contents = [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"text": "so"}]},
    ]
    (dialog,) = read_transcripts(encoded(contents))
    assert said(dialog) == [("user", "hi"), ("assistant", "so")]
    (dialog,) = read_transcripts(encoded({"contents": "hi"}))
    assert said(dialog) == [("user", "hi")]
    (dialog,) = read_transcripts(encoded({"contents": ["hi", {"parts": {"text": "so"}}]}))
    assert dialog.texts == ("hi", "so")


# ------------------------------------------------------------------------------- others


def test_bedrock_counts_blocks_that_are_not_text_and_lists_its_tools() -> None:
    talk = converse()
    talk["messages"][0]["content"] += [
        {"image": {"format": "png"}},
        {"cachePoint": {"type": "default"}},
        {"guardContent": {"text": {"text": "Really."}}},
    ]
    talk["messages"][1]["content"].insert(
        0, {"reasoningContent": {"reasoningText": {"text": "hm"}}}
    )
    spec = {"name": "look", "description": "Looks.", "inputSchema": {"json": SCHEMA}}
    talk["toolConfig"] = {"tools": [{"toolSpec": spec}, {"cachePoint": {"type": "default"}}]}
    (dialog,) = read_transcripts(encoded(talk))
    assert dialog.texts[1] == f"{ASKED}\nReally."
    assert tools_text(dialog.tools) == "tools look ( order_id )"
    kinds = {"part of type 'image'": 1, "thinking": 1, "description of a tool": 1}
    assert dict(dialog.unread) == kinds


def test_the_ai_sdk_counts_what_is_neither_text_nor_tool() -> None:
    parts = [
        {"type": "reasoning", "text": "They want a boat."},
        {"type": "text", "text": "On it."},
        {
            "type": "tool-call",
            "toolCallId": "1",
            "state": "input-available",
            "input": {"to": "Elba"},
        },
        {"type": "source-url", "sourceId": "s", "url": "https://a.example/boats"},
        {"type": "file", "mediaType": "image/png", "url": "data:"},
        {"type": "data-weather", "data": {"sky": "clear"}},
    ]
    talk = [
        {"role": "user", "parts": [{"type": "text", "text": "A boat to Elba"}]},
        {"role": "assistant", "parts": parts},
    ]
    (dialog,) = read_transcripts(encoded(talk))
    assert dialog.texts == ("A boat to Elba", "On it.")
    assert demanded(dialog) == [(1, "call", "to", "Elba")]
    assert dict(dialog.unread) == {
        "thinking": 1,
        "part of type 'source-url'": 1,
        "part of type 'file'": 1,
        "part of type 'data-weather'": 1,
    }


def test_langchain_keeps_calls_that_its_parser_refused() -> None:
    talk = [
        {"type": "human", "content": "A boat to Elba", "name": None},
        {
            "type": "AIMessageChunk",
            "content": [{"type": "image_url", "image_url": "x"}, "Hm."],
            "invalid_tool_calls": [{"name": "book", "args": '{"to": "El', "error": "cut off"}],
            "additional_kwargs": {"reasoning_content": "a boat"},
        },
        {"type": "ai", "content": "", "additional_kwargs": {"function_call": OLD_CALL}},
        {"type": "function", "name": "book", "content": "done"},
        {"type": "chat", "role": "captain", "content": "Ahoy"},
    ]
    (dialog,) = read_transcripts(encoded(talk))
    assert [turn.speaker for turn in dialog.turns] == [
        *("user", "assistant", "assistant", "function", "captain")
    ]
    assert dialog.texts == ("A boat to Elba", "Hm.", "", "done", "Ahoy")
    assert demanded(dialog) == [(2, "book", "to", "Elba")]
    assert dialog.malformed_calls == 1
    assert {*dict(dialog.unread)} >= {"thinking", "part of type 'image_url'"}


OLD_CALL = {"name": "book", "arguments": '{"to": "Elba"}'}


def test_rows_of_conversations_are_not_those_of_tooltalk() -> None:
    rows = [
        {
            "conversation_id": "c1",
            "model": "some-model",
            "conversation": [
                {"content": "hi", "role": "user"},
                {"content": "hello", "role": "assistant"},
            ],
            "turn": 1,
            "language": "English",
            "openai_moderation": [{"categories": {"hate": False}}],
            "redacted": False,
        },
        {
            "conversation_hash": "h2",
            "conversation": [
                {"content": "so", "role": "user", "country": "Northland", "hashed_ip": "ab12cd"},
                {"content": None, "role": "assistant", "toxic": False},
            ],
        },
        {
            "question_id": "q3",
            "winner": "model_a",
            "conversation_a": [{"role": "user", "content": "left"}],
            "conversation_b": [{"role": "user", "content": "right"}],
        },
    ]
    content = "\n".join(map(json.dumps, rows)).encode()
    dialogs = read_transcripts(content, "rows.jsonl")
    assert [(dialog.name, dialog.texts) for dialog in dialogs] == [
        ("c1", ("hi", "hello")),
        ("h2", ("so", "")),
        ("q3 a", ("left",)),
        ("q3 b", ("right",)),
    ]
    assert [dialog.services for dialog in dialogs] == ["c1", "h2", "q3", "q3"]
    assert not_read_notes(dialogs) == []


def test_a_log_of_inspect_has_epochs_attachments_and_tools() -> None:
    event = {"event": "model", "tools": [{"name": "look", "parameters": SCHEMA}]}
    first = sample(attachments={"ab": ASKED}, events=[{"event": "state"}, event])
    first["messages"][1]["content"] = "attachment://ab"
    asked = sample(id=7, epoch=2, messages=[], input="Only asked", target="x")
    served = {
        "role": "assistant",
        "content": [
            {"type": "reasoning", "reasoning": "hm"},
            {"type": "tool_use", "name": "search", "arguments": '{"q": "Elba"}', "result": "found"},
            {"type": "text", "text": "There."},
        ],
    }
    inputs = [{"role": "user", "content": "Elba?"}]
    third = sample(id=7, epoch=1, input=inputs, messages=[*inputs, served])
    dialogs = read_transcripts(encoded(log(first, asked, third)))
    assert [(dialog.name, dialog.services) for dialog in dialogs] == [
        ("sample r1, epoch 1", "sample r1"),
        ("sample 7, epoch 2", "sample 7"),
        ("sample 7, epoch 1", "sample 7"),
    ]
    assert dialogs[0].texts[1] == ASKED
    assert tools_text(dialogs[0].tools) == "tools look ( order_id )"
    assert said(dialogs[1]) == [("user", "Only asked")]
    assert said(dialogs[2]) == [
        ("user", "Elba?"),
        ("assistant", ""),
        ("result", "found"),
        ("assistant", "There."),
    ]
    assert demanded(dialogs[2]) == [(1, "search", "q", "Elba")]
    assert dict(dialogs[2].unread) == {"thinking": 1}


def test_attachments_are_put_back_up_to_the_length_of_a_dialog() -> None:
    parts = [{"type": "text", "text": "attachment://a"}] * 3
    messages = [{"role": "user", "content": parts}]
    long = sample(attachments={"a": "so " * 200_000}, messages=messages)
    with pytest.raises(
        ValueError, match=r"epoch 1: it has 1,200,000 characters, but at most 1,000"
    ):
        read_transcripts(encoded(log(long)))


def test_the_history_of_swe_agent_has_results_by_what_they_follow() -> None:
    turns: list[tuple[str, str | None, dict[str, Any]]] = [
        ("system", "Mend it.", {}),
        ("user", "A demonstration", {"is_demo": True}),
        ("user", "The issue", {"message_type": "observation"}),
        ("assistant", "I look.\n```\nls\n```", {"thought": "I look.", "action": "ls\n"}),
        ("user", "a.py", {}),
        ("assistant", "Another agent", {"agent": "helper"}),
        ("assistant", None, {"thought": "Done.", "action": "submit"}),
        ("user", "submitted", {"message_type": "observation"}),
    ]
    history = [
        {"role": role, "content": text, "agent": "primary", **more} for role, text, more in turns
    ]
    talk = {"trajectory": [], "history": history, "info": {}}
    (dialog,) = read_transcripts(encoded(talk), "issue.traj")
    assert said(dialog) == [
        ("system", "Mend it."),
        ("user", "A demonstration"),
        ("user", "The issue"),
        ("assistant", "I look.\n```\nls\n```"),
        ("result", "a.py"),
        ("assistant", "Done.\nsubmit"),
        ("result", "submitted"),
    ]
    assert dict(dialog.unread) == {
        "message of another agent": 1,
        "arguments of an action in the assistant's words": 2,
    }


ROW = {"conversation": [{"role": "user", "content": "hi"}]}
QUESTIONS = {
    "contents": [content for at, content in enumerate(GEMINI["contents"]) if at not in (0, 1)]
}
SHORT = chatgpt(
    node("a", None, "user", content=INSTRUCTIONS, metadata=HIDDEN),
    node("b", "a", "user", content={"content_type": "text", "parts": [{"text": "hi"}]}),
    node("c", "b", "assistant", content='{"a": "hi"}', recipient="look"),
    node("d", "c", "tool", content={"content_type": "execution_output", "text": "so"}),
    node("e", "d", "assistant", content=""),
)
MAPPED = {**TALKS, "row": [ROW] * 4, "gemini": QUESTIONS, "claude": CLAUDE, "chatgpt": SHORT}


@pytest.mark.parametrize("key", MAPPED)
def test_words_in_any_field_are_read_or_counted(key: str) -> None:
    assert_read_or_counted(MAPPED[key])


# ------------------------------------------------------------------------------- malformed


def without(key: str, **fields: Any) -> dict[str, Any]:
    talk = copy.deepcopy(EXPORT) | fields
    talk["mapping"].pop(key, None)
    return talk


def changed(key: str, **fields: Any) -> dict[str, Any]:
    talk = copy.deepcopy(EXPORT)
    talk["mapping"][key] |= fields
    return talk


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (without("d"), r"dialog 0: 'mapping' has no node 'd'"),
        (without("k"), r"dialog 0: 'mapping' has no node 'k'"),
        (without("", current_node=None), "dialog 0: 'current_node' is missing"),
        (changed("root", parent="f"), "dialog 0: message 'f|k|root' is its own"),
        (changed("c", message=3), "dialog 0, node 'c': 'message' is missing"),
        (changed("c", message={"author": None}), "node 'c': 'author' is missing"),
        (changed("c", parent=3), r"dialog 0: 'parent' is missing or not a text"),
        ({"mapping": [], "current_node": "a"}, "dialog 0: 'mapping' is missing"),
        ({"mapping": {"a": 3}, "current_node": "a"}, r"dialog 0, node 'a' is not an object"),
        ({"chat_messages": 3}, "dialog 0: 'chat_messages' is missing"),
        ({"chat_messages": [{"text": "hi"}]}, r"dialog 0, message 0: 'sender' is missing"),
        (
            {"chat_messages": [{"sender": "human", "content": [3]}]},
            "a part of 'content' is not an object",
        ),
        ({"contents": 3}, r"dialog 0: 'contents' is missing or not a list"),
        ({"contents": [3]}, r"dialog 0, content 0 is not an object"),
        ({"contents": [{"parts": 3}]}, "dialog 0, content 0: 'parts' is missing"),
        ({"contents": [{"parts": [{"text": 3}]}]}, r"content 0: a part of 'content': 'text' is"),
        ({"contents": [{"parts": [{"functionCall": {}}]}]}, r"content 0: 'name' is missing or not"),
        ({"contents": [{"role": "user", "parts": None}]}, r"dialog 0: it has no words"),
        (
            {"messages": [{"role": "user", "content": [{"toolUse": 3}]}]},
            "turn 0: 'toolUse' is not an",
        ),
        (
            {"messages": [{"role": "user", "content": [{"text": None}]}]},
            "turn 0: a part of 'content': 'text' is missing",
        ),
        (
            {"messages": [{"role": "user", "parts": [{"type": "text", "text": None}]}]},
            "a part of 'content': 'text' is missing",
        ),
        ([{"type": "human", "content": 3}], "dialog 0, turn 0: 'content' is missing"),
        ([{"type": "human"}], "dialog 0, turn 0: 'content' is missing"),
        (
            [{"type": "human", "data": 3}],
            "dialog 0, turn 0: 'content' is missing",
        ),
        ([{"type": "ai", "tool_calls": [3]}], r"dialog 0, turn 0: a call is not an object"),
        ({"conversation": [{"content": "hi"}]}, r"dialog 0, turn 0: 'role' is missing"),
        (
            {"conversation": [{"content": 3, "role": "user"}]},
            r"dialog 0, turn 0: 'content' is miss",
        ),
        ({"samples": None}, r"the file: 'samples' is missing or not a list"),
        ({"samples": [3]}, r"sample 0 is not an object"),
        ({"samples": [{"messages": [{}]}]}, r"sample 0, message 0: 'role' is missing"),
        ({"samples": [{}]}, r"sample 0: 'messages' is missing or not a list"),
        ({"history": 3, "trajectory": []}, r"dialog 0: 'history' is missing or not a list"),
        ({"history": [{"role": None}]}, "dialog 0, message 0: 'role' is missing"),
    ],
)
def test_a_file_that_is_not_right_gets_one_sentence(value: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_transcripts(encoded(value))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, inner in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value if isinstance(value, list) else ())
    ):
        yield from places(inner, (*path, key))


EXAMPLES = [*TALKS.values(), EXPORT, [CLAUDE], GEMINI]


NAMES = ("role", "content", "parts", "type", "text", "parent", "input", "function", "name", "id")


@given(st.data(), any_json(*NAMES))
def test_anything_in_any_place_is_read_or_refused(data: st.DataObject, other: Any) -> None:
    value = copy.deepcopy(data.draw(st.sampled_from(EXAMPLES)))
    path = data.draw(st.sampled_from([*places(value)][1:]))
    owner = value
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = other
    assert_read_or_refused(lambda: read_transcripts(encoded(value)))
