"""What chats have under many names is read under each, and what is not read is counted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given

from fdkvc.conversations.formats import read_dialogs, read_transcripts
from fdkvc.conversations.formats.calls import THINKING_TAGS, UNKNOWN_CALL, cut_calls, cut_thinking
from fdkvc.core.json_input import parse_within
from fdkvc.core.limits import MAX_LITERAL_CHARACTERS, MAX_UNREAD_KINDS
from fdkvc.core.transcripts import Tool, Transcript
from fdkvc.core.unread import OTHERS, Unread, has_words
from fdkvc.explain.notes import not_read_notes, unread_kinds
from tests.refusals import any_json, assert_read_or_refused

ASKED = {"role": "user", "content": "Two bikes at Ostwald, please"}
GIVEN = {"place": "Ostwald", "bikes": "two"}
CALL = {"name": "rent", "arguments": GIVEN}
TEXT = json.dumps(CALL)


def read(*messages: Mapping[str, Any], **beside: Any) -> Transcript:
    """Read one chat."""
    (dialog,) = read_transcripts(json.dumps({"messages": messages, **beside}).encode())
    return dialog


def called(dialog: Transcript) -> list[tuple[str, dict[str, str]]]:
    return [
        (call.method, {argument.slot: argument.value for argument in call.arguments})
        for call in dialog.calls
    ]


@pytest.mark.parametrize(
    "message",
    [
        *({"role": role, "content": TEXT} for role in ("tool_call", "function-call", "toolCall")),
        {"role": "tool_call", "content": f"<tool_call>\n{TEXT}\n</tool_call>"},
        {"role": "tool_call", "content": json.dumps({**CALL, "arguments": json.dumps(GIVEN)})},
        {"role": "tool_call", "content": repr({**CALL, "arguments": json.dumps(GIVEN)})},
        {"role": "tool_call", "content": json.dumps([{"type": "function", "function": CALL}])},
        {"role": "tool_call", "content": CALL},
        {"role": "tool_use", "name": "rent", "input": GIVEN},
        {"role": "assistant", "content": f"<tool_call>{TEXT}</tool_call>"},
        {"role": "assistant", "content": f"<functioncall> {TEXT} </functioncall>"},
        {"role": "assistant", "content": [{"text": f"<tool_call>{TEXT}</tool_call>"}]},
        {"role": "assistant", "tool_calls": json.dumps([{"function": CALL}])},
        {"role": "assistant", "content": "", "tool_calls": CALL, "function_call": {}},
        {"role": "assistant", "content": [{"type": "tool_call", "value": TEXT}]},
        {"role": "assistant", "content": [{"type": "tool_call", "id": "1", **CALL}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "1", **CALL}]},
        {"role": "assistant", "tool_calls": [{"name": "rent", "args": GIVEN, "id": "1"}]},
        {"role": "assistant", "function_call": TEXT},
        {
            "role": "assistant",
            "content": "",
            "toolInvocations": [{"toolName": "rent", "args": GIVEN, "state": "call"}],
        },
    ],
)
def test_a_call_is_read_in_every_form(message: dict[str, Any]) -> None:
    dialog = read(ASKED, message)

    assert called(dialog) == [("rent", {"place": "Ostwald", "bikes": "two"})]
    assert {demand.mentions[0].turn for demand in dialog.demands} == {0}
    assert dialog.texts == (ASKED["content"], "")
    assert dialog.spoken_by == ("user", "system")
    assert not dialog.unread


MARKED = [
    f"<parameter{key}>\n{GIVEN[name]}\n</parameter>"
    for key, name in (("=place", "place"), (' name="bikes" string="true"', "bikes"))
]
GIVEN_TEXT = json.dumps(GIVEN)


@pytest.mark.parametrize(
    "words",
    [
        TEXT,
        json.dumps([{"name": "rent", "parameters": GIVEN}]),
        f"[TOOL_CALLS] [{TEXT}]",
        f"[TOOL_CALLS]rent[ARGS]{GIVEN_TEXT}",
        f"[TOOL_CALLS]rent[CALL_ID]abc12DEF3[ARGS]{GIVEN_TEXT}</s>",
        f"<|python_tag|>{TEXT}<|eom_id|>",
        f"<|tool_call|>[{TEXT}]",
        f"<tool_calls>[{TEXT}]</tool_calls>",
        "[rent(place='Ostwald', bikes='two')]",
        "<|tool_call_start|>[rent(place='Ostwald', bikes='two')]<|tool_call_end|>",
        f"<function=rent>{GIVEN_TEXT}</function>",
        f"<function=rent>{''.join(MARKED)}</function>",
        f"<tool_call>\n<function=rent>\n{''.join(MARKED)}\n</function>\n</tool_call>",
        f'<function_calls>\n<invoke name="rent">{"".join(MARKED)}</invoke>\n</function_calls>',
        f'<minimax:tool_call><invoke name="rent">{"".join(MARKED)}</invoke></minimax:tool_call>',
        "<tool_call>rent\n<arg_key>place</arg_key>\n<arg_value>Ostwald</arg_value>\n"
        "<arg_key>bikes</arg_key>\n<arg_value>two</arg_value>\n</tool_call>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>rent\n"
        f"```json\n{GIVEN_TEXT}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        f"<｜tool▁call▁begin｜>rent<｜tool▁sep｜>{GIVEN_TEXT}<｜tool▁call▁end｜>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.rent:0"
        f"<|tool_call_argument_begin|>{GIVEN_TEXT}<|tool_call_end|><|tool_calls_section_end|>",
        f"<functioncall> {{'name': 'rent', 'arguments': '{GIVEN_TEXT}'}} <|endoftext|>",
        f"Action: rent\nAction Input: {GIVEN_TEXT}\nObservation: so it is",
    ],
)
def test_a_call_is_read_as_any_model_writes_it(words: str) -> None:
    for text in (words, f"Gladly.\n{words}"):
        dialog = read(ASKED, {"role": "assistant", "content": text})
        if text == words or not words.startswith(("{", "[{", "[rent")):  # alone, or marked
            assert (called(dialog), dialog.unread) == ([("rent", GIVEN)], ())
            assert dialog.texts[1] == text.removesuffix(words).strip()
        else:
            assert (called(dialog), dialog.texts[1]) == ([], text)


def test_tags_of_coding_assistants_are_calls() -> None:
    """As Cline and Roo Code write them; others' tags, and what the user is told, stay words."""
    words = "<read_file>\n<path>src/app.ts</path>\n</read_file>"
    text, calls = cut_calls(f"I look.\n{words}\n<list_files><path>a</path></list_files>", Unread())
    assert text == "I look."
    assert [(call["name"], call["arguments"]) for call in calls] == [
        ("read_file", {"path": "src/app.ts"}),
        ("list_files", {"path": "a"}),
    ]
    files = "".join(f"<file><path>{path}</path></file>" for path in ("a.ts", "b.ts"))
    _, (call,) = cut_calls(f"<read_file><args>{files}</args></read_file>", Unread())
    assert call["arguments"] == {"args": {"file": [{"path": "a.ts"}, {"path": "b.ts"}]}}
    given = (
        '<use_mcp_tool><tool_name>rent</tool_name><arguments>{"n": 2}</arguments></use_mcp_tool>'
    )
    assert cut_calls(given, Unread())[1][0]["arguments"]["arguments"] == {"n": 2}
    page = "<write_to_file><path>a</path><content><p>hi</p></content></write_to_file>"
    assert cut_calls(page, Unread())[1][0]["arguments"]["content"] == "<p>hi</p>"

    for words in ("<p><b>hi</b></p>", "<attempt_completion><result>Done</result>"):
        assert cut_calls(words, Unread()) == (words, [])
    for words in ("Use <read_file> first.", "<read_file>a</read_file>", f"<read_file>{files}"):
        unread = Unread()
        assert (cut_calls(words, unread), [*unread]) == ((words, []), [UNKNOWN_CALL])


def test_calls_in_words_may_be_several_and_their_values_lists() -> None:
    two = f"[TOOL_CALLS]rent[ARGS]{GIVEN_TEXT}[TOOL_CALLS]pay[ARGS]{{}}"
    assert [call["name"] for call in cut_calls(two, Unread())[1]] == ["rent", "pay"]
    python = "[rent(place='Ostwald'), shop.pay(sums=[3, 4])]"
    assert [call["name"] for call in cut_calls(python, Unread())[1]] == ["rent", "shop.pay"]
    marked = (
        "<invoke name='x'>".replace("'", '"') + '<parameter name="sums">[3, 4]</parameter></invoke>'
    )
    assert cut_calls(marked, Unread())[1] == [{"name": "x", "arguments": {"sums": [3, 4]}}]
    for words in (
        "[rent(place)]",
        "[rent(place=now())]",
        "[rent(place=b'x')]",
        "[rent(**{})]",
        "[see (here)]",
        '{"name": "Ann"}',
        "[1]",
    ):
        assert cut_calls(words, Unread()) == (words, [])
    plain = {"role": "assistant", "content": "Action: rent\nAction Input: two bikes"}
    assert called(read(ASKED, plain)) == [("rent", {"input": "two bikes"})]


@pytest.mark.parametrize(
    "words",
    [
        "<tool_response>\nR-7\n</tool_response><tool_response>R-8</tool_response> And?",
        "[TOOL_RESULTS] R-7[/TOOL_RESULTS][TOOL_RESULTS]R-8[/TOOL_RESULTS] And?",
    ],
)
def test_results_in_a_users_words_are_results(words: str) -> None:
    dialog = read({"role": "user", "content": words, "mood": "in a hurry", "topic": "bikes"})
    turns = dialog.turns
    assert ({turn.topic for turn in turns}, len(dialog.unread)) == ({"bikes"}, 1)
    assert [(turn.kind, turn.text.strip()) for turn in turns] == [
        *(("result", "R-7"), ("result", "R-8"), (None, "And?"))
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "rent", "arguments": {"place": "Ost',
        "rent two bikes",
        '{"name": "rent"}',
        '{"arguments": {"place": "Ostwald"}}',
        "<tool_call>rent</tool_call>",
        f"<tool_call>{TEXT}",
        "<function=rent><parameter=place>Ostwald</function>",
    ],
)
@pytest.mark.parametrize("role", ["tool_call", "assistant"])
def test_what_is_no_call_stays_text_and_is_said_where_it_is_marked_as_one(
    text: str, role: str
) -> None:
    dialog = read(ASKED, {"role": role, "content": text})

    assert (dialog.texts[1], called(dialog)) == (text, [])
    marked = role == "tool_call" or text.startswith("<")
    assert [*dict(dialog.unread)] == [UNKNOWN_CALL] * marked


def test_words_around_calls_stay() -> None:
    words = f"Gladly. <tool_call>{TEXT}</tool_call><tool_call>{TEXT}</tool_call> Wait."
    assert cut_calls(words, Unread()) == ("Gladly.  Wait.", [CALL, CALL])
    for more in ({}, {"name": "Anna"}):  # a user calls nothing
        assert read({"role": "user", "content": words, **more}).texts == (words,)


@pytest.mark.parametrize(
    "role",
    [
        *("tool", "function", "observation", "tool_response", "tool-response", "ipython"),
        *("function_response", "functionResponse", "tool_result", "Tool Output"),
    ],
)
def test_a_result_is_known_by_every_name(role: str) -> None:
    for message in ({"role": role, "content": "done"}, {"from": role, "value": "done"}):
        dialog = read(ASKED, message)
        assert [turn.kind for turn in dialog.turns] == [None, "result"]
        assert not not_read_notes([dialog])


def test_who_and_what_may_have_other_names() -> None:
    talk: list[dict[str, Any]] = [
        {"from": "user", "content": "hello"},
        {"role": "bot", "value": "hi"},
    ]
    talk += [{"role": "user", "text": "so"}, {"role": "bot", "content": {"text": "yes"}}]
    talk += [{"role": "tool", "content": ["on", "time"]}]
    talk += [{"role": "user", "content": [{"type": "text", "value": "go"}]}]
    assert read(*talk).texts == ("hello", "hi", "so", "yes", "on\ntime", "go")


THOUGHT = "They want two bikes."


@pytest.mark.parametrize(
    "message",
    [
        *(
            {"role": "assistant", "content": "Here.", name: THOUGHT}
            for name in ("reasoning_content", "reasoning", "thinking", "reasoningContent")
        ),
        *(
            {"role": "assistant", "content": f"{begin}{THOUGHT}{end}\n\nHere."}
            for begin, end in THINKING_TAGS
        ),
        {"role": "assistant", "content": f"{THOUGHT}</think>Here."},
        *(
            {
                "role": "assistant",
                "content": [{"type": kind, "text": THOUGHT}, {"type": "text", "text": "Here."}],
            }
            for kind in ("thinking", "reasoning", "redacted_thinking", "thought")
        ),
        {
            "role": "assistant",
            "content": "Here.",
            "reasoning": THOUGHT,
            "reasoning_details": [{"type": "reasoning.text", "text": THOUGHT}],
        },
    ],
)
def test_thinking_is_counted_and_not_read(message: dict[str, Any]) -> None:
    dialog = read(ASKED, message)

    assert dialog.texts == (ASKED["content"], "Here.")
    assert dialog.unread == (("thinking", 1),)


def test_a_turn_of_thinking_is_no_turn_and_prose_is_no_thinking() -> None:
    thought = [{"role": "thinking", "content": THOUGHT}]
    thought += [{"role": "assistant", "channel": "analysis", "content": THOUGHT}]
    dialog = read(ASKED, *thought)
    assert (dialog.texts, dialog.unread) == ((ASKED["content"],), (("thinking", 2),))

    unread = Unread()
    for words in ("the tag <think> begins it", "a < b", ""):
        assert cut_thinking(words, unread) == words
    assert cut_thinking("<think>\n\n</think>\n\nHere.", unread) == "Here."
    assert not unread
    assert cut_thinking("<think> cut off", unread) == ""
    assert dict(unread) == {"thinking": 1}


def test_blocks_of_an_assistants_words_take_linear_time() -> None:
    """Each tag is sought from where the last was found: twice the text is twice the search."""

    class Counted(str):
        seen = 0

        def find(self, tag: Any, start: Any = 0, end: Any = None, /) -> int:
            at = str.find(self, tag, start)
            Counted.seen += (len(self) if at < 0 else at) - start
            return at

    for text in ("<think>" * 4000, "<tool_call>{" * 4000, "<tool_call></tool_call>" * 4000):
        Counted.seen = 0
        cut_calls(Counted(text), Unread())
        cut_thinking(Counted(text), Unread())
        assert Counted.seen <= 8 * len(text)


def test_parts_of_a_trace_are_read() -> None:
    said = {"role": "user", "parts": [{"type": "text", "content": "hello"}]}
    done = {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": "1", "response": ["R-7"]}],
    }
    dialog = read(said, done)
    assert [(turn.kind, turn.text) for turn in dialog.turns] == [
        *((None, "hello"), ("result", '["R-7"]'))
    ]
    assert not dialog.unread


@pytest.mark.parametrize("content", [[], [{"type": "text", "text": "Gladly."}]])
@pytest.mark.parametrize("beside", [{}, {"system": "Be kind"}])
def test_calls_beside_parts_are_read_in_every_format(
    content: list[Any], beside: dict[str, str]
) -> None:
    said = {"role": "assistant", "content": content, "tool_calls": [{"function": CALL}]}
    result = {"role": "tool", "content": "R-7"}
    dialog = read(ASKED, said, result, **beside)
    assert (called(dialog), len(dialog.demands)) == ([("rent", GIVEN)], 2)
    assert dialog.texts[-1] == "R-7"


def test_results_of_invocations_are_turns_before_the_words() -> None:
    done = {"toolName": "rent", "args": GIVEN, "state": "result", "mood": "in a hurry"}
    said = {"role": "assistant", "content": "Rented.", "toolInvocations": [{**done, "result": [7]}]}
    dialog = read(ASKED, said)

    kinds = [(turn.kind, turn.text) for turn in dialog.turns[1:]]
    assert kinds == [(None, ""), ("result", "[7]"), (None, "Rented.")]
    assert called(dialog) == [("rent", GIVEN)]
    assert dialog.unread == (("field 'mood'", 1),)
    both = read(ASKED, {**said, "tool_calls": [{"function": {"name": "look", "arguments": {}}}]})
    assert {method for method, _ in called(both)} == {"look", "rent"}
    for wrong, sentence in (
        ([done, 3], r"turn 1: a call is not an object$"),
        ([done, {"args": {}}], r"turn 1: 'name' is missing"),
    ):
        with pytest.raises(ValueError, match=sentence):
            read(ASKED, {**said, "toolInvocations": wrong})


# ------------------------------------------------------------------------------- beside messages

RENT = {"name": "rent", "description": "Rents bikes", "parameters": {"properties": {"place": {}}}}


@pytest.mark.parametrize(
    "beside",
    [
        {"tools": [RENT]},
        {"tools": json.dumps([RENT])},
        {"tools": [json.dumps({"type": "function", "function": RENT})]},
        {"functions": [RENT]},
        {"functions": json.dumps([{**RENT, "parameters": {"place": {"type": "string"}}}])},
        {"tools": [{**RENT, "parameters": json.dumps(RENT["parameters"])}], "functions": [RENT]},
    ],
)
def test_tools_may_be_a_text_and_have_their_old_name(beside: dict[str, Any]) -> None:
    for dialog in (
        read(ASKED, **beside),
        read({"role": "system", "content": "Be kind", **beside}, ASKED),
        *read_transcripts(
            json.dumps({"conversations": [{"from": "human", "value": "hi"}], **beside}).encode()
        ),
    ):
        assert dialog.tools == (Tool("rent", ("place",)),)
        assert [*dict(dialog.unread)] == ["description of a tool"]


@pytest.mark.parametrize("properties", [[3], [["a"]], 3, None, "place"])
def test_a_tool_whose_properties_are_no_object_has_no_slots(properties: Any) -> None:
    dialog = read(ASKED, tools=[{"name": "rent", "parameters": {"properties": properties}}])
    assert dialog.tools == (Tool("rent", ()),)


@pytest.mark.parametrize("tools", ['[{"name": "rent"', "rent bikes", {"rent": {"place": "a text"}}])
def test_tools_of_no_known_form_are_said(tools: Any) -> None:
    dialog = read(ASKED, tools=tools)
    assert (dialog.tools, dialog.unread) == ((), (("field 'tools'", 1),))


def test_a_system_prompt_beside_the_messages_is_the_first_turn() -> None:
    for field in ("system", "system_prompt"):
        for messages in ("messages", "conversations"):
            content = json.dumps({messages: [ASKED], field: "Never more than nine."}).encode()
            (dialog,) = read_transcripts(content)
            assert (dialog.turns[0].kind, dialog.texts[0]) == ("system", "Never more than nine.")
            assert len(dialog.turns) == 2
    twice = read({"role": "system", "content": "Be kind"}, ASKED, system_prompt="Be kind")
    assert twice.texts == ("Be kind", ASKED["content"])
    with pytest.raises(ValueError, match=r"^dialog 0, system prompt: 'content'"):
        read(ASKED, system_prompt=3)


def test_names_in_a_group_are_kept() -> None:
    people = [{"role": "user", "name": name, "content": "on"} for name in ("Anna", "Ben")]
    desk = {"role": "assistant", "name": "desk", "content": "yes"}
    result = {"role": "tool", "name": "rent", "content": "yes"}
    dialog = read(*people, desk, result)

    assert [turn.speaker for turn in dialog.turns] == [
        *("user (Anna)", "user (Ben)", "assistant (desk)", "tool")
    ]
    assert dialog.roles == ("user (Anna)", "user (Ben)", "assistant (desk)", "tool result")
    assert dialog.spoken_by == ("user", "user", "system", "system")
    assert not not_read_notes([dialog])


@pytest.mark.parametrize(
    ("speakers", "users", "said"),
    [
        (["Ann", "Ben", "Assistant"], ["Ann", "Ben"], []),
        (["Ann", "Ben"], ["Ann"], []),
        (["Ann", "Ben", "Cy"], ["Ann"], ["Unknown roles are read as the assistant: Ben, Cy."]),
        (["User", "Ben"], ["User"], ["Unknown roles are read as the assistant: Ben."]),
    ],
)
def test_a_group_of_any_names_has_users(
    speakers: Sequence[str], users: list[str], said: list[str]
) -> None:
    text = "\n".join(f"{name}: hello" for name in [*speakers, *speakers])
    (dialog,) = read_transcripts(text.encode())

    pairs = zip(dialog.turns, dialog.spoken_by, strict=True)
    assert [*dict.fromkeys(turn.speaker for turn, by in pairs if by == "user")] == users
    assert not_read_notes([dialog]) == said


# ------------------------------------------------------------------------------- preferences

HELLO = [{"role": "user", "content": "hello"}]
HI = [{"role": "assistant", "content": "hi there"}]
NO = [{"role": "assistant", "content": "go away"}]


@pytest.mark.parametrize(
    "value",
    [
        {"prompt": "hello", "chosen": "hi there", "rejected": "go away"},
        {"prompt": HELLO, "chosen": HI, "rejected": NO},
        {"chosen": HELLO + HI, "rejected": HELLO + NO},
        {"prompt": "hello", "messages": HELLO + HI, "chosen": HELLO + HI, "rejected": HELLO + NO},
        {"instruction": "hello", "input": "", "chosen": "hi there", "rejected": "go away"},
        {
            "conversations": [{"from": "human", "value": "hello"}],
            "chosen": {"from": "gpt", "value": "hi there"},
            "rejected": {"from": "gpt", "value": "go away"},
        },
        {
            "chosen": "\n\nHuman: hello\n\nAssistant: hi there",
            "rejected": "\n\nHuman: hello\n\nAssistant: go away",
        },
        {"input": {"messages": HELLO}, "preferred_output": HI, "non_preferred_output": NO},
    ],
)
def test_the_chosen_answer_is_read_and_the_rejected_one_is_said(value: dict[str, Any]) -> None:
    (dialog,) = read_transcripts(json.dumps([value]).encode())

    assert dialog.texts == ("hello", "hi there")
    assert dialog.spoken_by == ("user", "system")
    assert dialog.unread == (("rejected answer", 1),)


def test_preferences_may_have_a_system_prompt_and_a_prompt_of_their_own() -> None:
    value: dict[str, Any] = {"system": "Be kind", "question": "hello", "chosen": "hi there"}
    (dialog,) = read_transcripts(json.dumps(value).encode())
    assert dialog.texts == ("Be kind", "hello", "hi there")

    value = {"prompt": "another prompt", "chosen": HELLO + HI}
    (dialog,) = read_transcripts(json.dumps(value).encode())
    assert dialog.unread == (("field 'prompt'", 1),)
    (dialog,) = read_transcripts(json.dumps({"prompt": HELLO, "completion": HI}).encode())
    assert (dialog.texts, dialog.unread) == (("hello", "hi there"), ())
    wrong: Any
    for wrong in ({"prompt": 3, "chosen": "a"}, {"chosen": [3]}, {"chosen": True}, {"chosen": []}):
        with pytest.raises(ValueError, match=r"^(dialog 0|the file)"):
            read_transcripts(json.dumps(wrong).encode())


# ------------------------------------------------------------------------------- what is not read


def test_fields_with_words_are_counted_and_labels_are_not() -> None:
    more = {"mood": "in a hurry", "annotations": [{"title": "A page"}], "id": "msg_7", "n": 3}
    part = {"type": "text", "text": "yes", "citations": [{"cited_text": "so it is"}]}
    call = {"function": {**CALL, "comment": "to be sure"}, "type": "function"}
    dialog = read(
        {**ASKED, **more},
        {"role": "assistant", "content": [part, {"image": {"n": 3}}], "tool_calls": [call]},
        summary="About bikes",
        created="2026-01-31T10:00:00Z",
    )
    assert unread_kinds([dialog]) == {
        **{f"field {name!r}": 1 for name in ("annotations", "citations", "comment", "mood")},
        **{"field 'summary'": 1, "part of type 'image'": 1},
    }


def test_words_beside_a_list_of_dialogs_are_counted_once() -> None:
    value = {"conversations": [{"messages": [ASKED]}] * 3, "remarks": "all of one day"}
    dialogs = read_transcripts(json.dumps(value).encode())
    assert not_read_notes(dialogs)[0] == "Not read: field 'remarks' (1×)."


def test_a_file_cannot_make_the_note_long() -> None:
    dialogs = [read(ASKED | {f"own {at} {on}": "words" for on in range(40)}) for at in range(9)]
    kinds = unread_kinds(dialogs)
    assert len(kinds) == MAX_UNREAD_KINDS + 1
    assert sum(kinds.values()) == 360
    assert kinds[OTHERS] == 360 - MAX_UNREAD_KINDS


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ({"role": "user", "content": [{"type": "blob", "data": "many words"}]}, "type 'blob'"),
        ({"role": "user", "content": "", "transcription": "many words"}, "field 'transcription'"),
        ({"role": "assistant", "tool_calls": [{"function": CALL}]}, "call, which is text on"),
        ({"role": "assistant", "thinking": "many words", "content": None}, "thinking"),
    ],
)
def test_nothing_is_without_words_that_has_some(message: dict[str, Any], kind: str) -> None:
    with pytest.raises(ValueError, match=rf"^dialog 0: its words are not read: .*{kind}"):
        read(message)


def test_items_of_an_unknown_type_with_words_are_refused() -> None:
    item = {"type": "begin_call", "name": "f", "arguments": "{}"}
    note = {"type": "note", "more": ["yes"]}
    for items in ([item, note, ASKED], [ASKED, item, note]):
        with pytest.raises(ValueError, match="of the type 'note', which is not"):
            read_dialogs("\n".join(map(json.dumps, items)).encode(), "own.jsonl")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            {"instruction": "Rent bikes", "input": "", "output": "Rented"},
            "'output', so it seems to be .*Alpaca",
        ),
        ({"question": "Bikes?", "answer": "Yes"}, "a single question with its answer"),
        ({"words": "Two bikes"}, "^dialog 0: it has 'words'; no list in it has objects with"),
    ],
)
def test_a_file_of_no_known_format_is_named_by_its_fields(value: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        read_transcripts(json.dumps([value]).encode())
    assert len(str(caught.value)) < 400


def test_a_literal_is_read_within_its_bound() -> None:
    assert parse_within("{'a': 'b', 'c': (1, None)}") == {"a": "b", "c": [1, None]}
    wrong = ["{'a'", "{1: 2}", "[b'a']", "[{'a'}]", f"[{'-' * 9000}1]", "[lambda: 1]", "{'a': 1j}"]
    for text in (*wrong, f"['{'a' * MAX_LITERAL_CHARACTERS}']"):
        assert parse_within(text) is None


def test_words_are_no_ids() -> None:
    assert not has_words({"id": "call_9a", "toolCallId": "call 9", "n": [1, None, True], "x": "…"})
    assert has_words({"paid": "twelve"})


CHAT = any_json(
    *("messages", "conversations", "role", "from", "content", "value", "text", "type", "name"),
    *("tool_calls", "function", "arguments", "toolInvocations", "toolName", "args", "result"),
    *("chosen", "rejected", "prompt", "input", "preferred_output", "completion", "system", "tools"),
    *("functions", "thinking", "channel", "payload", "message", "parameters", "properties"),
)


@given(CHAT)
def test_any_spelling_of_a_chat_is_read_or_refused_in_a_sentence(value: Any) -> None:
    assert_read_or_refused(lambda: read_dialogs(json.dumps(value).encode())[0])


def test_calls_and_results_of_several_apis_may_stand_in_one_conversation() -> None:
    given = {"name": "rent", "input": GIVEN}
    calls = [
        {"type": "tool_use", "id": "a", **given},
        {"toolUse": {"toolUseId": "b", **given}},
        {"functionCall": {"name": "rent", "args": GIVEN}},
        {"type": "tool-rent", "toolCallId": "c", "input": GIVEN, "output": "R-7"},
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": "R-1"},
        {"toolResult": {"toolUseId": "b", "content": [{"json": {"id": "R-2"}}]}},
        {"functionResponse": {"name": "rent", "response": {"id": "R-3"}}},
    ]
    dialog = read(
        ASKED, {"role": "assistant", "content": calls}, {"role": "user", "content": results}
    )
    assert called(dialog) == [("rent", GIVEN)] * 4
    returned = [turn.text for turn in dialog.turns if turn.kind == "result"]
    assert returned == ["R-7", "R-1", '{"id": "R-2"}', '{"id": "R-3"}']
    assert not dialog.unread
