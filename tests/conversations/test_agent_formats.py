"""Layouts of agent conversations: each restates the same talk, and what is peculiar to it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from fdkvc.conversations.formats import read_dialogs, read_transcripts
from fdkvc.conversations.lexical import lexical_recording
from fdkvc.conversations.mentions import wordings_of
from fdkvc.conversations.tools import begin_with_tools
from fdkvc.conversations.trace_file import read_trace_file, trace_bytes
from fdkvc.core.limits import MAX_NAME_CHARACTERS
from fdkvc.core.transcripts import Mention, Transcript
from fdkvc.engine.evidence import Demands
from fdkvc.explain.notes import not_read_notes
from tests.growth import LINEAR, growth

POLICY = "Refund within 30 days."
ASKED = "Refund order #W12 of ann_lee_7, please."
ORDER = {"order": "#W12", "owner": "ann_lee_7", "total": 1250.0, "items": [{"id": "K-9"}]}
LOOK = {"order_id": "#W12"}
REFUND = {"order_id": "#W12", "items": ["K-9"], "total": 1250}
CHECK = {"user": "ann_lee_7"}
DONE = "Refunded."

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": POLICY},
    {"role": "user", "content": ASKED},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "1", "function": {"name": "look", "arguments": json.dumps(LOOK)}},
            {"id": "2", "function": {"name": "check", "arguments": json.dumps(CHECK)}},
        ],
    },
    {"role": "tool", "tool_call_id": "1", "name": "look", "content": json.dumps(ORDER)},
    {"role": "tool", "tool_call_id": "2", "name": "check", "content": "gold"},
    {
        "role": "assistant",
        "content": "One moment.",
        "tool_calls": [{"id": "3", "function": {"name": "refund", "arguments": REFUND}}],
    },
    {"role": "tool", "content": [{"type": "text", "text": "ok"}]},
    {"role": "assistant", "content": DONE},
]


def tau_calls(message: Mapping[str, Any], requestor: str = "assistant") -> dict[str, Any]:
    """Return a message with the calls of τ²-bench: no `function`, and arguments as objects."""
    calls = []
    for call in message.get("tool_calls", ()):
        function = call["function"]
        arguments = function["arguments"]
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
        calls.append({"id": "1", "name": function["name"], "arguments": parsed})
        calls[-1]["requestor"] = requestor
    content = message["content"]
    if isinstance(content, list):
        content = content[0]["text"]
    return {**message, "content": content, "tool_calls": calls or None, "turn_idx": 1}


TAU2 = [
    {"role": "user", "content": ASKED, "tool_calls": None},
    {"role": "user", "content": "plug", "tool_calls": [{"name": "plug", "arguments": {"a": "b"}}]},
    {"role": "tool", "content": "plugged", "requestor": "user", "id": "0"},
    tau_calls(CHAT[2]),
    {"role": "tool", "tool_messages": [tau_calls(CHAT[3]), tau_calls(CHAT[4])]},
    *map(tau_calls, CHAT[5:]),
]
TAU2_RESULTS = {
    "timestamp": "now",
    "info": {"environment_info": {"domain_name": "9", "policy": POLICY}},
    "tasks": [{"id": "4"}],
    "simulations": [
        {
            "id": "x",
            "task_id": "4",
            "trial": 1,
            "termination_reason": "user_stop",
            "messages": TAU2,
        },
        {"id": "y", "task_id": "4", "trial": 2, "termination_reason": "error", "messages": []},
    ],
}
ANTHROPIC = {
    "model": "any",
    "system": [{"type": "text", "text": POLICY}],
    "messages": [
        {"role": "user", "content": ASKED},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "1", "name": "look", "input": LOOK},
                {"type": "tool_use", "id": "2", "name": "check", "input": CHECK},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": json.dumps(ORDER)},
                {
                    "type": "tool_result",
                    "tool_use_id": "2",
                    "content": [{"type": "text", "text": "gold"}, {"type": "image", "source": {}}],
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "redacted_thinking", "data": "…"},
                {"type": "thinking", "thinking": "They want one.", "signature": "s"},
                {"type": "text", "text": "One moment."},
                {"type": "tool_use", "id": "3", "name": "refund", "input": REFUND},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "content": "ok", "is_error": False}]},
        {"role": "assistant", "content": [{"type": "text", "text": DONE}]},
    ],
}


def call_item(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call of the Responses API."""
    text = json.dumps(arguments)
    return {"type": "function_call", "call_id": "1", "name": name, "arguments": text}


ITEMS: list[dict[str, Any]] = [
    {"role": "developer", "content": [{"type": "input_text", "text": POLICY}]},
    {"type": "message", "role": "user", "content": ASKED},
    call_item("look", LOOK),
    call_item("check", CHECK),
    {"type": "function_call_output", "call_id": "1", "output": json.dumps(ORDER)},
    {
        "type": "function_call_output",
        "call_id": "2",
        "output": [{"type": "input_text", "text": "gold"}],
    },
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "One moment."}],
    },
    call_item("refund", REFUND),
    {"type": "function_call_output", "call_id": "3", "output": "ok"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": DONE}]},
]
SHARED = [
    {"from": "human", "value": ASKED},
    {
        "from": "function-call",
        "value": "".join(
            f"<tool_call>{json.dumps({'name': name, 'arguments': json.dumps(given)})}</tool_call>"
            for name, given in (("look", LOOK), ("check", CHECK))
        ),
    },
    {"from": "observation", "value": json.dumps(ORDER)},
    {"from": "Function Response", "value": "gold"},
    {
        "from": "gpt",
        "value": "<think>Two of them.</think>One moment.\n<tool_call>\n"
        f"{json.dumps({'name': 'refund', 'parameters': REFUND})}\n</tool_call>",
    },
    {"from": "toolResult", "value": "ok"},
    {"from": "gpt", "value": DONE},
]
TALKS: dict[str, Any] = {
    "chat": CHAT,
    "chat in a text": {"messages": json.dumps(CHAT)},
    "shared": {"conversations": SHARED, "system": POLICY},
    "preferences": {"prompt": CHAT[:-1], "chosen": CHAT[-1], "rejected": "No."},
    "preferred": {"input": {"messages": CHAT[:-1]}, "preferred_output": CHAT[-1:]},
    "tau-bench": [{"task_id": 4, "trial": 1, "reward": 1.0, "info": {}, "traj": CHAT}],
    "tau2-bench": TAU2_RESULTS,
    "tau2-simulation": {**TAU2_RESULTS["simulations"][0], "policy": POLICY},  # type: ignore[index]
    "anthropic": ANTHROPIC,
    "responses": ITEMS,
    "request": {"input": ITEMS[1:], "instructions": POLICY},
    "response": {"input": ITEMS[1:5], "instructions": [ITEMS[0]], "output": ITEMS[5:]},
}


TOOLTALK: dict[str, Any] = {
    "name": "Alarm-easy",
    "suites_used": ["Messages", "Alarm"],
    "metadata": {"location": "New York", "session_token": "98a5-b404", "username": None},
    "conversation": [
        {"index": 0, "role": "user", "text": "Wake me at 6:30"},
        {
            "index": 1,
            "role": "assistant",
            "text": "Done",
            "apis": [
                {
                    "request": {
                        "api_name": "Add",
                        "parameters": {"session_token": "98a5-b404", "time": "6:30"},
                    },
                    "response": {"alarm_id": "5bff-dd80"},
                    "exception": None,
                },
                {
                    "request": {"api_name": "Ring", "parameters": {"id": "5bff-dd80"}},
                    "response": None,
                    "exception": "no such bell",
                },
            ],
        },
    ],
}
ANNOTATED = {
    "dialogue_id": "1",
    "services": ["Boats"],
    "turns": [
        {
            "speaker": "USER",
            "utterance": "to Elba",
            "frames": [
                {
                    "service": "Boats",
                    "slots": [{"slot": "to", "start": 3, "exclusive_end": 7}],
                    "actions": [{"act": "INFORM", "slot": "to", "values": ["Elba"]}],
                    "state": {"active_intent": "Find", "slot_values": {"to": ["Elba"]}},
                    "service_call": {"method": "Find", "parameters": {"to": "Elba"}},
                }
            ],
        }
    ],
}


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("key", TALKS)
def test_every_layout_gives_the_same_turns_spans_and_evidence(key: str) -> None:
    for calls in (False, True):
        (dialog, *_), _ = read_dialogs(encoded(TALKS[key]), calls=calls)
        (chat,), _ = read_dialogs(encoded(CHAT), calls=calls)

        assert dialog.texts == chat.texts
        assert [spans(dialog, turn) for turn in range(8)] == [
            spans(chat, turn) for turn in range(8)
        ]
        assert dialog.demands == chat.demands
        assert dialog.calls == chat.calls


def spans(dialog: Transcript, turn: int) -> list[str]:
    """Return the kind of each character of a turn, each once."""
    characters = range(len(dialog.texts[turn]))
    return [*dict.fromkeys(dialog.span_kind(turn, at) for at in characters)]


def test_spans_and_sources_of_evidence() -> None:
    (dialog,), _ = read_dialogs(encoded(CHAT), calls=True)

    assert [spans(dialog, turn) for turn in range(8)] == [
        ["system"],
        ["user"],
        ["call"],
        ["result"],
        ["result"],
        ["call", "assistant"],
        ["result"],
        ["assistant"],
    ]
    evidence = {
        (demand.turn, demand.source, demand.slot): demand.mentions for demand in dialog.demands
    }
    kinds = {
        key: [dialog.span_kind(mention.turn, mention.start) for mention in mentions]
        for key, mentions in evidence.items()
    }
    assert kinds == {
        (2, "look", "order_id"): ["user"],
        (2, "check", "user"): ["user"],
        (5, "refund", "order_id"): ["user", "call", "result"],
        (5, "refund", "items.0"): ["result"],
        (5, "refund", "total"): ["result"],
    }
    # An id is one mention with all its characters, and a number is found as the result writes it.
    (said,) = evidence[5, "refund", "items.0"]
    assert dialog.texts[3][said.start : said.end] == "K-9"
    (said,) = evidence[5, "refund", "total"]
    assert dialog.texts[3][said.start : said.end] == "1250.0"


def test_a_trace_file_keeps_spans_and_clusters() -> None:
    (dialog,), _ = read_dialogs(encoded(TALKS["tau-bench"]), calls=True)
    recording = lexical_recording(dialog)
    (reread,) = read_trace_file(trace_bytes([recording]))

    assert reread.transcript.services == "task 4"
    assert reread.transcript.turns == dialog.turns
    assert reread.spans == recording.spans
    ends = (*(start for start, _ in reread.spans[1:]), len(reread.words))
    spans = zip(reread.spans, ends, strict=True)
    kinds = {word: kind for (at, kind), end in spans for word in reread.words[at:end]}
    assert {word: kinds[word] for word in ("days", "look", "moment", "gold", "please")} == {
        "days": "system",
        "look": "call",
        "moment": "assistant",
        "gold": "result",
        "please": "user",
    }


def test_tasks_and_suites_are_clusters_and_empty_trials_are_left_out() -> None:
    dialogs, skipped = read_dialogs(encoded(TAU2_RESULTS))
    assert [(dialog.name, dialog.services) for dialog in dialogs] == [("task 4, trial 1", "task 4")]
    assert skipped == ("task 4, trial 2: it has no words",)

    trials = [{"task_id": 1, "trial": at, "traj": CHAT * (1 - at)} for at in range(2)]
    dialogs, skipped = read_dialogs(encoded(trials))
    assert ([dialog.name for dialog in dialogs], skipped) == (
        ["task 1, trial 0"],
        ("task 1, trial 1: it has no words",),
    )


COUNTED = frozenset(("image", "redacted_thinking", "thinking", "plug", "plugged", "error"))
"""Values of objects that are counted as a whole, or of a dialog that is left out."""


def planted(value: Any, name: str) -> list[Any]:
    """Return the value again and again, each time with words in another of its objects."""
    if isinstance(value, list):
        return [
            [*value[:at], other, *value[at + 1 :]]
            for at, inner in enumerate(value)
            for other in planted(inner, name)
        ]
    if not isinstance(value, dict) or COUNTED.intersection(map(str, value.values())):
        return []
    inside = [
        {**value, key: other}
        for key, inner in value.items()
        if key != "slot_values"  # whose values are demands
        for other in planted(inner, name)
    ]
    return [{**value, name: "words of nobody else"}, *inside]


RENTED = ("rent", ["2"], "R-7")


@pytest.mark.parametrize("key", [*TALKS, "tooltalk", "annotated"])
def test_words_in_any_field_are_read_or_counted(key: str) -> None:
    assert_read_or_counted({**TALKS, "tooltalk": TOOLTALK, "annotated": ANNOTATED}[key])


def assert_read_or_counted(talk: Any) -> None:
    """Whatever object has a field of its own: its words are in a turn or a call, or in the note."""
    values = planted(talk, "own_words")
    if "mapping" in talk:  # whose values are objects alone
        values = [value for value in values if "own_words" not in value["mapping"]]
    assert values
    before = not_read_notes(read_dialogs(encoded(talk))[0])
    for value in values:
        dialogs, _ = read_dialogs(encoded(value))
        notes = not_read_notes(dialogs)
        calls = [argument.value for call in dialogs[0].calls for argument in call.arguments]
        said = [*dialogs[0].texts, *calls]
        assert any("words of nobody else" in text for text in said) != (notes != before)


@pytest.mark.parametrize(
    ("item", "method", "arguments", "result"),
    [
        ({"type": "mcp_call", "name": "rent", "arguments": '{"n": 2}', "output": "R-7"}, *RENTED),
        ({"type": "web_search_call", "action": {"query": "bikes"}}, "web_search", ["bikes"], None),
        ({"type": "shell_call", "action": {"commands": ["ls a"]}}, "shell", ["ls a"], None),
        ({"type": "apply_patch_call", "operation": {"path": "a"}}, "apply_patch", ["a"], None),
        ({"type": "file_search_call", "queries": ["bikes"]}, "file_search", ["bikes"], None),
        (
            {
                "type": "code_interpreter_call",
                "code": "1 + 1",
                "outputs": [{"type": "logs", "logs": "2"}],
            },
            *("code_interpreter", ["1 + 1"], "2"),
        ),
        ({"type": "custom_tool_call", "name": "note", "input": "at 5"}, "note", ["at 5"], None),
    ],
)
def test_a_call_of_any_type_is_a_call_and_what_it_returned_a_result(
    item: dict[str, Any], method: str, arguments: list[str], result: str | None
) -> None:
    (dialog,) = read_transcripts(encoded([{"role": "user", "content": "Two bikes"}, item]))

    (call,) = dialog.calls
    assert (call.method, [row.value for row in call.arguments]) == (method, arguments)
    assert [turn.text for turn in dialog.turns if turn.kind == "result"] == [result] * bool(result)
    assert not dialog.unread


def test_results_have_any_type_and_blocks_of_a_server_are_read() -> None:
    shell = {"type": "shell_call_output", "call_id": "s", "output": [{"stdout": "a b"}]}
    screen = {"type": "computer_call_output", "output": {"type": "input_image", "image_url": "x"}}
    (dialog,) = read_transcripts(encoded([{"role": "user", "content": "Look"}, shell, screen]))
    assert [turn.kind for turn in dialog.turns] == [None, "result", "result"]
    assert dialog.texts[1:] == ('{"stdout": "a b"}', "")
    assert dialog.unread == (("part of type 'input_image'", 1),)

    used = {"type": "mcp_tool_use", "id": "m", "name": "rent", "input": {"n": 2}}
    made = {
        "type": "mcp_tool_result",
        "tool_use_id": "m",
        "content": [{"type": "text", "text": "R-7"}],
    }
    run = {"type": "code_execution_tool_result", "content": {"stdout": "4"}}
    (dialog,) = read_transcripts(
        encoded(
            [{"role": "user", "content": "2"}, {"role": "assistant", "content": [used, made, run]}]
        )
    )
    assert dialog.texts == ("2", "", "R-7", '{"stdout": "4"}')
    assert [(call.method, call.arguments[0].mention) for call in dialog.calls] == [
        ("rent", Mention(0, 0, 1))
    ]


def test_what_is_not_read_is_counted() -> None:
    (tau2, *_), _ = read_dialogs(encoded(TAU2_RESULTS))
    (claude,), _ = read_dialogs(encoded(ANTHROPIC))
    searched = [
        *ITEMS,
        {"type": "mcp_list_tools", "id": "w"},
        {"type": "reasoning", "summary": []},
    ]
    (items,), _ = read_dialogs(encoded(searched))

    assert not_read_notes([tau2]) == [
        "Not read: message between the simulated user and its own tools (2×)."
    ]
    assert not_read_notes([claude, claude]) == [
        "Not read: part of type 'image' (2×), thinking (4×)."
    ]
    assert not_read_notes([items]) == [
        "Not read: part of type 'mcp_list_tools' (1×), thinking (1×)."
    ]
    assert not_read_notes(read_transcripts(encoded(CHAT))) == []


@pytest.mark.parametrize("long", [1, 200])
def test_a_name_that_is_given_again_is_numbered(long: int) -> None:
    name = "a" * long
    chats = [
        {"id": chat_id, "messages": CHAT} for chat_id in (name, f"{name} (2)", name, name, "b")
    ]
    dialogs, skipped = read_dialogs(encoded(chats))

    names = [dialog.name for dialog in dialogs]
    assert len({*names}) == 5
    assert not skipped
    assert max(map(len, names)) <= MAX_NAME_CHARACTERS
    if long == 1:
        assert names == ["a", "a (2)", "a (3)", "a (4)", "b"]
        assert not_read_notes(dialogs) == ["Dialogs of the same name are numbered: a (3), a (4)."]


def test_tooltalk_has_each_response_before_the_next_call() -> None:
    for value in (TOOLTALK, [TOOLTALK]):
        (dialog,) = read_transcripts(encoded(value))
        assert dialog.texts == (
            "location: New York\nsession_token: 98a5-b404",
            "Wake me at 6:30",
            "",
            '{"response": {"alarm_id": "5bff-dd80"}, "exception": null}',
            "",
            '{"response": null, "exception": "no such bell"}',
            "Done",
        )
        assert (dialog.name, dialog.services) == ("Alarm-easy", "Alarm + Messages")
        demands = [(demand.turn, demand.slot, demand.mentions[0].turn) for demand in dialog.demands]
        assert demands == [(2, "session_token", 0), (2, "time", 1), (4, "id", 3)]


def test_speech_in_ticks_is_joined_to_messages() -> None:
    def chunk(text: str, words: list[str], **more: Any) -> dict[str, Any]:
        return {"content": text, "utterance_ids": words, **more}

    call = {"id": "1", "name": "look", "arguments": {"order_id": "#W12"}, "requestor": "assistant"}
    ticks = [
        {"tick_id": 0, "user_chunk": chunk("Order ", ["a"])},
        {"tick_id": 1, "user_chunk": chunk("#W12.", ["a"]), "agent_chunk": None},
        {"tick_id": 2, "user_chunk": chunk("Please", ["b"])},
        {
            "tick_id": 3,
            "user_chunk": chunk("UklGR", [], is_audio=True, audio_script_gold="!"),
            "agent_tool_calls": [call],
            "agent_tool_results": [{"role": "tool", "id": "1", "content": '{"order": "#W12"}'}],
        },
        {"tick_id": 4, "agent_chunk": chunk("Found.", ["c"])},
        {"tick_id": 5, "user_tool_calls": [call], "user_tool_results": []},
    ]
    simulation = {"id": "s", "task_id": "9", "trial": None, "messages": None, "ticks": ticks}
    (dialog,) = read_transcripts(encoded({"simulations": [simulation]}))

    assert [(turn.speaker, turn.text) for turn in dialog.turns] == [
        ("user", "Order #W12. Please"),
        ("assistant", ""),
        ("tool", '{"order": "#W12"}'),
        ("user", "!"),
        ("assistant", "Found."),
    ]
    assert [(demand.turn, demand.value) for demand in dialog.demands] == [(1, "#W12")]
    assert dialog.unread == (("message between the simulated user and its own tools", 1),)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Zoë", '{"name": "Zo\\u00eb"}'),
        ('a "b"', json.dumps({"note": 'a "b"'})),
        ('a "b"', json.dumps({"result": json.dumps({"note": 'a "b"'})})),
        ("1250", "it costs $1,250."),
        ("54.0", '{"price": 54}'),
        ("54.5", "$54.50"),
        ("1250.5", "1,250.50"),
        ("1e-05", "0.00001"),
        ("Dear Bob,\nsee you", "Dear Bob,\n\tsee  you"),
        ("0", '{"bags": 0}'),
    ],
)
def test_a_value_is_found_as_results_write_it(value: str, text: str) -> None:
    talk = [
        {"role": "tool", "content": text},
        {
            "role": "assistant",
            "tool_calls": [{"function": {"name": "f", "arguments": {"x": value}}}],
        },
    ]
    (dialog,) = read_transcripts(encoded(talk))
    (demand,) = dialog.demands
    (mention,) = demand.mentions
    said = text[mention.start : mention.end]
    assert " ".join(said.split()) in [" ".join(wording.split()) for wording in wordings_of(value)]


def test_values_that_prove_nothing_are_no_evidence() -> None:
    talk = [
        {"role": "user", "content": "No, it is free. In Oslo, with none"},
        called("f", insurance="no", price="free", city="Oslo", note="", more="None"),
    ]
    (dialog,) = read_transcripts(encoded(talk))
    assert [demand.slot for demand in dialog.demands] == ["city"]
    assert dialog.missing == 0
    assert [argument.slot for argument in dialog.calls[0].arguments] == [
        *("city", "insurance", "more", "note", "price")
    ]


def test_a_number_too_large_for_any_is_no_word() -> None:
    talk = encoded([{"role": "user", "content": "inf, 2"}, called("f", x=2, y=0, z=10**400)])
    (dialog,) = read_transcripts(talk.replace(b'"y": 0', b'"y": 1e999'))
    assert [demand.slot for demand in dialog.demands] == ["x"]


def test_parallel_calls_of_one_method_are_several_calls() -> None:
    calls = [{"function": {"name": "f", "arguments": {"x": value}}} for value in ("ab", "cd")]
    talk = [{"role": "user", "content": "ab cd"}, {"role": "assistant", "tool_calls": calls}]
    (dialog,) = read_transcripts(encoded(talk))
    assert [(demand.value, demand.call_number) for demand in dialog.demands] == [
        ("ab", 0),
        ("cd", 1),
    ]
    assert Demands("call").weights(dialog.demands).tolist() == [0.5, 0.5]
    two = replace(dialog.demands[1], call_number=0)
    three = (*dialog.demands, replace(dialog.demands[0], slot="y"))
    assert Demands("call").weights(three).tolist() == [0.25, 0.5, 0.25]
    assert Demands("call").weights((dialog.demands[0], two)).tolist() == [0.5, 0.5]
    (reread,) = read_trace_file(trace_bytes([lexical_recording(dialog)]))
    assert reread.transcript.demands == dialog.demands


def called(method: str, **arguments: object) -> dict[str, Any]:
    """Return an assistant's message with one call."""
    call = {"function": {"name": method, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@pytest.mark.parametrize(
    ("roles", "kinds"),
    [
        (("assistant", "tool", "assistant"), ["assistant", "result", "assistant"]),
        (("assistant", "customer"), ["assistant", "user"]),
        (("ai", "human"), ["assistant", "user"]),
        (("Jo", "agent", "jo"), ["user", "assistant", "user"]),
        (("Jo", "Kim"), ["user", "assistant"]),
        (("System", "USER", "Assistant", "Tool"), ["system", "user", "assistant", "result"]),
    ],
)
def test_kinds_of_span_follow_the_roles_of_any_file(
    roles: tuple[str, ...], kinds: list[str]
) -> None:
    tools = [{"name": "book", "input_schema": {}}]
    messages = [{"role": role, "content": "on"} for role in roles]
    (dialog,) = read_transcripts(encoded({"messages": messages, "tools": tools}))

    assert [dialog.span_kind(turn, 0) for turn in range(len(roles))] == kinds
    begun = begin_with_tools(dialog)
    assert [begun.span_kind(turn, 0) for turn in range(1 + len(roles))] == ["system", *kinds]


def test_a_role_with_a_typo_is_said() -> None:
    talk = [{"role": role, "content": "on"} for role in ("user", "asistant", "assistant", "Bot")]
    dialogs = read_transcripts(encoded(talk))
    assert not_read_notes(dialogs) == ["Unknown roles are read as the assistant: asistant."]
    assert not_read_notes(read_transcripts(b"Jo: hi\nKim: hello")) == []


def test_what_is_spoken_is_read_and_what_is_not_read_is_counted() -> None:
    talk = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "hello"}},
        {"role": "assistant", "content": None, "audio": {"id": "b"}},
        {"role": "assistant", "content": "so", "reasoning_content": "hm"},
    ]
    (dialog,) = read_transcripts(encoded(talk))
    assert dialog.texts == ("hi", "hello", "", "so")
    assert dict(dialog.unread) == {"part of type 'audio'": 1, "thinking": 1}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"traj": 3}, "dialog 0: 'traj' is missing or not a list"),
        ({"simulations": 3}, "the file: 'simulations' is missing"),
        ({"simulations": [3]}, "simulation 0 is not an object"),
        ({"simulations": [{"messages": None}]}, "simulation 0: 'ticks' is missing"),
        ({"simulations": [{"messages": [{}]}]}, "simulation 0, message 0: 'role' is missing"),
        ({"conversation": [{"role": "user"}]}, "dialog 0, turn 0: 'content' is missing"),
        ({"conversation": [{"apis": [{}]}]}, "dialog 0, turn 0, api 0: 'request' is missing"),
        ({"system": 3, "messages": []}, "dialog 0, system prompt: 'content' is missing"),
        ({"input": 3}, "dialog 0: 'input' is missing or not a list"),
        ({"output": [{"type": "function_call"}]}, "dialog 0, item 0: 'name' is missing"),
    ],
)
def test_a_file_that_is_not_right_gets_one_sentence(value: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_transcripts(encoded(value))


def of_calls(count: int) -> bytes:
    calls = [{"type": "function_call", "name": "f", "arguments": "{}"}] * count
    return encoded({"input": calls, "output": [{"role": "user", "content": "hi"}]})


def of_ticks(count: int) -> bytes:
    many = [*range(count // 10)]
    ids = [[at, *many] for at in (1, 2) for _ in range(20)] + [[1]] * count
    ticks = [{"agent_chunk": {"content": "so ", "utterance_ids": some}} for some in ids]
    return encoded({"simulations": [{"ticks": ticks}]})


@pytest.mark.parametrize("content", [of_calls, of_ticks])
def test_joined_calls_and_ticks_take_linear_time(content: Callable[[int], bytes]) -> None:
    assert growth(read_transcripts, content, 500) < LINEAR


def test_joined_calls_and_ticks_are_all_there() -> None:
    (called,) = read_transcripts(of_calls(600))
    (spoken,) = read_transcripts(of_ticks(300))
    assert len(called.calls) == 600
    assert spoken.texts == ("so " * 340,)


def test_results_of_parallel_calls_belong_to_the_calls_that_they_name() -> None:
    made: list[dict[str, Any]] = [
        {"id": key, "name": name, "arguments": {}} for key, name in (("a", "f"), ("b", "g"))
    ]
    swapped = [made[1], made[0]]
    openai = [
        {"role": "assistant", "tool_calls": [{"id": row["id"], "function": row} for row in made]},
        *({"role": "tool", "tool_call_id": row["id"], "content": "ok"} for row in swapped),
    ]
    anthropic = [
        {
            "role": "assistant",
            "content": [{**row, "type": "tool_use", "input": {}} for row in made],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": row["id"], "content": "ok"}
                for row in swapped
            ],
        },
    ]
    items = [
        *({**row, "type": "function_call", "call_id": row["id"]} for row in made),
        *(
            {"type": "function_call_output", "call_id": row["id"], "output": "ok"}
            for row in swapped
        ),
    ]
    for talk in (openai, anthropic, items):
        (dialog,) = read_transcripts(encoded([{"role": "user", "content": "hi"}, *talk]))
        assert dialog.tool_names == ((), ("f", "g"), ("g",), ("f",))
    named = [openai[0], {**openai[1], "tool_call_id": "b"}, {"role": "tool", "content": "ok"}]
    (dialog,) = read_transcripts(encoded(named))
    assert dialog.tool_names == (("f", "g"), ("g",), ("f",))  # by order where there is no id
