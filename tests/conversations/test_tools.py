"""A dialog may begin with its tools, as a turn that policies may evict or keep."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdkvc.commands.main import main
from fdkvc.conversations.formats import read_transcripts
from fdkvc.conversations.tools import begin_with_tools, tools_text, with_tools
from fdkvc.core.limits import MAX_TURNS
from fdkvc.core.transcripts import Tool
from fdkvc.models.numpy import BUNDLED
from fdkvc.models.numpy.language_model import load_language_model
from fdkvc.models.numpy.model_text import model_text
from fdkvc.models.numpy.text_cache import read
from fdkvc.policies import read_policy
from tests.examples import dialogs_of

PROPERTIES = {"properties": {"place": {"type": "string"}, "day": {"type": "string"}}}
BOOK = Tool("book", ("day", "place"))


def conversation(**more: Any) -> bytes:
    call = {"function": {"name": "book", "arguments": {"place": "Trieste", "day": "Friday"}}}
    messages = [
        {"role": "user", "content": "to Trieste on Friday", "topic": "Trains"},
        {"role": "assistant", "content": "done", "tool_calls": [call], "topic": "Hotels"},
    ]
    return json.dumps({"messages": messages, **more}).encode()


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "book", "parameters": PROPERTIES}},
        {"type": "function", "name": "book", "parameters": PROPERTIES},
        {"name": "book", "input_schema": PROPERTIES},
    ],
    ids=["OpenAI chat", "OpenAI responses", "Anthropic"],
)
def test_listed_tools_begin_the_dialog(tool: dict[str, Any]) -> None:
    (plain,) = read_transcripts(conversation())
    (dialog,) = read_transcripts(conversation(tools=[tool, {"type": "web_search"}]))

    assert plain.tools == ()
    assert dialog.turns == plain.turns
    assert dialog.tools == (BOOK,)
    begun = begin_with_tools(dialog)
    assert begun.turns[0].text == "tools book ( day , place )"
    assert begun.turns[1:] == dialog.turns
    assert begun.spoken_by == ("system", "user", "system")
    assert begun.span_kind(0, 0) == "system"
    assert begun.services == dialog.services
    assert [passage.text for passage in model_text(begun)] == [
        begun.turns[0].text,
        *(passage.text for passage in model_text(dialog)),
    ]
    (call,), (before,) = begun.calls, dialog.calls
    assert call.turn == before.turn + 1
    assert [begun.wording(argument) for argument in call.arguments] == ["Friday", "Trieste"]
    assert [(demand.turn, demand.age, demand.slot) for demand in begun.demands] == [
        (demand.turn + 1, demand.age, demand.slot) for demand in dialog.demands
    ]
    assert begun.source_note == ", beginning with its tools"


@pytest.mark.parametrize("tools", [None, {}, "x", [3, {"name": 5}, {"function": {}}]])
def test_what_is_no_tool_is_left_out(tools: Any) -> None:
    (dialog,) = read_transcripts(conversation(tools=tools))

    assert dialog.tools == ()
    with pytest.raises(ValueError, match=r"^dialog 0: its file lists no tools$"):
        begin_with_tools(dialog)


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "book"}},
        {"type": "function", "name": "book", "parameters": None},
        {"name": "book", "input_schema": {"type": "object"}},
    ],
)
def test_a_function_may_have_no_parameters(tool: dict[str, Any]) -> None:
    (dialog,) = read_transcripts(conversation(tools=[tool]))
    assert begin_with_tools(dialog).turns[0].text == "tools book ( )"


def test_a_dialog_that_its_tools_make_too_long_is_left_out_and_said() -> None:
    tools = [{"name": "book", "input_schema": PROPERTIES}]
    filler = [{"role": "user", "content": "on"}] * MAX_TURNS
    long = {"id": "long", "messages": filler, "tools": tools}
    short = {"id": "short", "messages": filler[:2], "tools": tools}
    none = {"id": "none", "messages": filler[:2]}
    dialogs = read_transcripts(json.dumps([long, short, none]).encode())

    begun, skipped = with_tools(dialogs)
    assert [(dialog.name, dialog.tools_in_text) for dialog in begun] == [
        ("short", True),
        ("none", False),
    ]
    (sentence,) = skipped
    assert sentence.startswith("long: it has 8,193 turns, but at most 8,192 are allowed")
    with pytest.raises(ValueError, match=r"^long: it has 8,193 turns"):
        with_tools(dialogs[:1])
    with pytest.raises(ValueError, match=r"^none: its file lists no tools"):
        with_tools(dialogs[2:])


def test_a_policy_evicts_the_tools_and_the_whitelist_keeps_them() -> None:
    model = load_language_model(BUNDLED)
    dialog = begin_with_tools(dialogs_of("errands")[0])
    passages = [model.tokens.encode_passage(unencoded) for unencoded in model_text(dialog)]
    budget, tools = 96, len(passages[0].ids)

    for spec, kept in (("fifo", 0), ("whitelist(fifo,first=1,most=1)", tools)):
        cache = model.evicting(read_policy(spec), budget)
        for passage in passages:
            read([cache], passage.ids)
            cache.end_turn()
        assert cache.attended is not None
        there = (cache.attended >= 0) & (cache.attended < tools)
        assert (np.count_nonzero(there, axis=2) == kept).all()


def test_the_command_begins_dialogs_with_their_tools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "dialogs.json", tmp_path / "out"
    file.write_bytes(conversation())
    few = ["answers", "--policies", "fifo", "--budgets", "8", "--dialogs", str(file)]

    assert main([*few, "--tools", "--out", str(out)]) == 2
    assert capsys.readouterr().err == "fdkvc: dialog 0: its file lists no tools\n"
    file.write_bytes(conversation(tools=[{"name": "book", "input_schema": PROPERTIES}]))
    assert main([*few, "--tools", "--out", str(out)]) == 0
    repeat = ["repeat", str(out / "run.json"), "--dialogs", str(file)]
    capsys.readouterr()
    assert main(repeat) == 2
    assert "if it began with its tools, add --tools" in capsys.readouterr().err
    assert main([*repeat, "--tools"]) == 0


def test_a_text_of_tools_has_no_empty_brackets() -> None:
    assert tools_text([BOOK, Tool("stop", ())]) == "tools book ( day , place ) ; stop ( )"
