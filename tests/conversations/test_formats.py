"""Files of dialogs are read within bounds, and refused in one sentence that names the place."""

import copy
import gzip
import json
import os
import stat
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.commands.main import main
from fdkvc.conversations import formats
from fdkvc.conversations.formats import FORMATS, base, endings, read_dialogs, read_transcripts
from fdkvc.conversations.formats.base import Format
from fdkvc.conversations.formats.calls import cut_calls, cut_thinking
from fdkvc.conversations.lexical import lexical_recording
from fdkvc.conversations.mentions import MentionFinder
from fdkvc.conversations.page.file_choice import formats_read
from fdkvc.core import json_input
from fdkvc.core.json_input import check_structure, parse_within, read_bytes
from fdkvc.core.limits import (
    MAX_DIALOG_FILE_BYTES,
    MAX_JSON_DEPTH,
    MAX_LITERAL_CHARACTERS,
    MAX_MENTIONS,
    MAX_NAME_CHARACTERS,
    MAX_TOKENS,
    MAX_TOPICS,
    MAX_TURN_TOKENS,
    MAX_TURNS,
    MAX_UNREAD_KINDS,
)
from fdkvc.core.transcripts import Transcript, Turn
from fdkvc.core.unread import OTHERS, Unread, has_words
from fdkvc.explain.notes import not_read_notes, unread_kinds
from tests.app_pages import open_page
from tests.command_line import ROOT
from tests.conversations.test_format_cases import LAYOUTS, TRIALS, spans, values_of
from tests.examples import dialogs_of
from tests.growth import LINEAR, growth
from tests.refusals import any_json, assert_read_or_refused

((FLIGHT,),) = values_of("an_annotated_dialogue_has_topics_and_demands")
CHAT = LAYOUTS[0]
PACKED = {".gz", ".bz2", ".xz", ".zip"}
ASKED = {"role": "user", "content": "Two bikes at Ostwald, please"}


def frame(service: str, **parts: Any) -> dict[str, Any]:
    return {"service": service, "slots": [], "actions": [], **parts}


def said(speaker: str, utterance: str, *frames: dict[str, Any]) -> dict[str, Any]:
    return {"speaker": speaker, "utterance": utterance, "frames": list(frames)}


def span(slot: str, start: int, end: int) -> dict[str, Any]:
    return {"slot": slot, "start": start, "exclusive_end": end}


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def read(*messages: Mapping[str, Any]) -> Transcript:
    """Read one chat."""
    (dialog,) = read_transcripts(encoded({"messages": messages}))
    return dialog


def test_of_many_annotated_spans_the_newest_count() -> None:
    # The finder takes neither half of a word for a mention, so these are the annotated ones.
    named = [
        said("USER", "Bedoux", frame("food", slots=[span("name", 0, 5)]))
        for _ in range(MAX_MENTIONS + 5)
    ]
    call = {"method": "Find", "parameters": {"name": "Bedou"}}
    dialogue = {"turns": [*named, said("SYSTEM", "Done", frame("food", service_call=call))]}
    (dialog,) = read_transcripts(encoded(dialogue))

    assert [mention.turn for mention in dialog.demands[0].mentions] == [*range(5, len(named))]


def test_the_projects_own_dialogs_have_topics_that_return_and_old_evidence() -> None:
    dialogs = dialogs_of("chat", "dialogues", "errands", "evening", "rental")

    assert len(dialogs) == 6
    for dialog in dialogs:
        assert len(dialog.topics) >= 2
        changes = [one.topic != other.topic for one, other in pairwise(dialog.turns)]
        assert sum(changes) >= len(dialog.topics)
        assert any(demand.kind == "call" and demand.age > 6 for demand in dialog.demands)
        assert not dialog.missing


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


def test_each_word_of_a_recording_has_the_kind_of_its_span() -> None:
    (dialog,), _ = read_dialogs(encoded(TRIALS), calls=True)
    recording = lexical_recording(dialog)

    assert recording.transcript.services == "task 4"
    ends = (*(start for start, _ in recording.spans[1:]), len(recording.words))
    spans = zip(recording.spans, ends, strict=True)
    kinds = {word: kind for (at, kind), end in spans for word in recording.words[at:end]}
    assert {word: kinds[word] for word in ("days", "look", "moment", "gold", "please")} == {
        "days": "system",
        "look": "call",
        "moment": "assistant",
        "gold": "result",
        "please": "user",
    }


@pytest.mark.parametrize("long", [1, 200])
def test_a_name_that_is_given_again_is_numbered(long: int) -> None:
    name = "a" * long
    chats = [
        {"id": chat_id, "messages": [ASKED]} for chat_id in (name, f"{name} (2)", name, name, "b")
    ]
    dialogs, skipped = read_dialogs(encoded(chats))

    names = [dialog.name for dialog in dialogs]
    assert len({*names}) == 5
    assert not skipped
    assert max(map(len, names)) <= MAX_NAME_CHARACTERS
    if long == 1:
        assert names == ["a", "a (2)", "a (3)", "a (4)", "b"]
        assert not_read_notes(dialogs) == ["Dialogs of the same name are numbered: a (3), a (4)."]


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


def test_words_are_no_ids() -> None:
    assert not has_words({"id": "call_9a", "toolCallId": "call 9", "n": [1, None, True], "x": "…"})
    assert has_words({"paid": "twelve"})


def changed(path: str, value: Any) -> bytes:
    """Return the annotated dialogue with one value replaced, or dropped where it is `...`."""
    dialogue = copy.deepcopy(FLIGHT)
    at: Any = dialogue
    *names, last = (int(name) if name.isdigit() else name for name in path.split("."))
    for name in names:
        at = at[name]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return encoded([dialogue])


def chatted(**message: Any) -> bytes:
    return encoded([{"role": "user", "content": "hello"}, {"role": "user", **message}])


def of_slots(count: int) -> bytes:
    return changed("turns.0.frames.0.slots", [span("a", 0, 9)] * (4 * count))


def of_arguments(arguments: Any) -> bytes:
    return chatted(tool_calls=[{"function": {"name": "f", "arguments": arguments}}])


LARGE = (
    (of_slots(30_000), "7_00001: its slots have 1,080,.* characters, but at most 1,000,000"),
    (of_arguments({"a": "b" * 4_000_001}), "demands 4,000,001 characters, of values"),
    (of_arguments({"k" * 1_000_000: [1] * 4097}), "it demands 4,097 values, but at most 4,096"),
    (b"{}\n" * 1_000_001, "the file has 1,000,001 lines, but at most 1,000,000"),
)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\n[" * 100_000, "line 34 is nested too deeply: at most 32"),
        (b'{"a":' * 100_000, "line 1 is nested too deeply"),
        (b"[" + b"{}," * 1000 + b"{}]", "dialog 0: it has no fields"),
        (b'[{"role": ' + b"9" * 5000 + b"}]", "the file has a number that cannot be read"),
        (encoded([[{"role": "a", "content": "b"}] * (MAX_TURNS + 1)]), "it has 8,193 turns"),
        (b"A: yes\n" * 9000, "dialog 0: it has 9,000 turns, but at most"),
        (b"A: " + b"a " * (MAX_TURN_TOKENS + 1), "dialog 0, turn 0: it has 32,769 tokens"),
        (b"User: hi\n\xff\xfe", "line 2 of the file is not UTF-8 text"),
        (
            encoded([{"role": "a", "content": "b", "topic": str(at)} for at in range(40)]),
            f"it has 40 topics, but at most {MAX_TOPICS}",
        ),
        (
            changed("turns.0.frames", [{"service": f"S{at}"} for at in range(40)]),
            "7_00001: it has 4. services, but at most 32",
        ),
        *(pytest.param(*case, marks=pytest.mark.long) for case in LARGE),
    ],
)
def test_a_file_beyond_a_limit_gets_one_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_transcripts(content)


@pytest.mark.parametrize(
    "content",
    [
        encoded(
            [
                [{"role": "a", "content": text}]
                for text in ("hi", "a " * (MAX_TURN_TOKENS + 1), "there")
            ]
        ),
        b"A: hi\n---\nA: " + b"a " * (MAX_TURN_TOKENS + 1) + b"\n---\nA: there",
    ],
)
def test_a_dialog_that_is_too_large_is_left_out_and_said(content: bytes) -> None:
    dialogs, left = read_dialogs(content)

    assert [(dialog.name, *dialog.texts) for dialog in dialogs] == [
        ("dialog 0", "hi"),
        ("dialog 2", "there"),
    ]
    (reason,) = left
    assert reason.startswith("dialog 1, turn 0: it has 32,769 tokens, but at most 32,768 are")
    assert "fdkvc forgot" in reason
    with pytest.raises(ValueError, match="dialog 1, turn 0: it has 32,769 tokens"):
        read_transcripts(content)


def test_a_file_is_not_parsed_beyond_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(json_input, "MAX_JSON_VALUES", 1000)
    monkeypatch.setattr(formats, "parse_json", never)
    for content, sentence in (
        (b"[" * (MAX_JSON_DEPTH + 1), "nested too deeply"),
        (b"[" + b"0," * 1001 + b"0]", "the file has 1,002 values, but at most 1,000"),
        (b"[" + b" " * MAX_DIALOG_FILE_BYTES, "50,000,001 bytes, but at most 50,000,000"),
    ):
        with pytest.raises(ValueError, match=sentence):
            read_transcripts(content)


def of_many_arguments(count: int) -> bytes:
    """Return a dialog with a call whose arguments' wordings stand nearly everywhere."""
    arguments = {f"s{at}": "a " * 30 + str(at) for at in range(count)} | {"found": "a"}
    calls = [{"function": {"name": "f", "arguments": arguments}}]
    messages = [{"role": "user", "content": "a " * count} for _ in range(8)]
    return encoded([*messages, {"role": "user", "content": "", "tool_calls": calls}])


def test_evidence_of_many_wordings_is_found_in_linear_time() -> None:
    (dialog,) = read_transcripts(of_many_arguments(1000))

    assert (len(dialog.demands), dialog.missing) == (1, 1000)
    assert sum(len(text.split()) for text in dialog.texts) <= MAX_TOKENS
    assert growth(read_transcripts, of_many_arguments, 125) < LINEAR


def test_sizes_are_checked_before_values_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("values were looked for")

    monkeypatch.setattr(MentionFinder, "__init__", never)
    long = "a " * (MAX_TURN_TOKENS + 1)
    for content in (chatted(content=long), changed("turns.0.utterance", long)):
        with pytest.raises(ValueError, match=r"it has 32,.* tokens, but at most 32,768"):
            read_transcripts(content)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'["' + b'\\"' * 5_000_000 + b'"]', ""),
        (b"[" + b"\n" * 10_000_000 + b"]", ""),
        (b"]" * 10_000_000, ""),  # that the parser refuses
        (b"]" * 300 + b"[" * 10_000, ""),
        (b"[" * 300 + b"]" * 300, "line 1 is nested too deeply: at most 32"),
        (b'["a", "' + b"b" * 12_000_000 + b'"]', ""),
        (b'["a", "' + b"b" * 12_000_001 + b'"]', "a text of the file has 12,000,001 bytes"),
        (b'["a"' + b" " * 12_000_001 + b', "b"]', ""),
        (b'["]",\n[' + b"[" * 300, "line 2 is nested too deeply: at most 32"),
    ],
)
def test_the_structure_of_json_is_checked_in_little_memory(content: bytes, sentence: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=sentence) if sentence else nullcontext():
            check_structure(content)
        assert tracemalloc.get_traced_memory()[1] < 6 * len(content) + 20_000
    finally:
        tracemalloc.stop()


def of_calls(count: int) -> bytes:
    calls = [{"type": "function_call", "name": "f", "arguments": "{}"}] * count
    return encoded({"input": calls, "output": [{"role": "user", "content": "hi"}]})


def of_ticks(count: int) -> bytes:
    many = [*range(count // 10)]
    ids = [[at, *many] for at in (1, 2) for _ in range(20)] + [[1]] * count
    ticks = [{"agent_chunk": {"content": "so ", "utterance_ids": some}} for some in ids]
    return encoded({"simulations": [{"ticks": ticks}]})


def test_joined_calls_and_ticks_are_all_there() -> None:
    (called,) = read_transcripts(of_calls(600))
    (spoken,) = read_transcripts(of_ticks(300))
    assert len(called.calls) == 600
    assert spoken.texts == ("so " * 340,)


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


def test_a_file_cannot_make_the_note_long() -> None:
    dialogs = [read(ASKED | {f"own {at} {on}": "words" for on in range(40)}) for at in range(9)]
    kinds = unread_kinds(dialogs)
    assert len(kinds) == MAX_UNREAD_KINDS + 1
    assert sum(kinds.values()) == 360
    assert kinds[OTHERS] == 360 - MAX_UNREAD_KINDS


def test_a_literal_is_read_within_its_bound() -> None:
    assert parse_within("{'a': 'b', 'c': (1, None)}") == {"a": "b", "c": [1, None]}
    wrong = ["{'a'", "{1: 2}", "[b'a']", "[{'a'}]", f"[{'-' * 9000}1]", "[lambda: 1]", "{'a': 1j}"]
    for text in (*wrong, f"['{'a' * MAX_LITERAL_CHARACTERS}']"):
        assert parse_within(text) is None


def test_a_branch_of_thousands_of_nodes_is_followed() -> None:
    message = {"author": {"role": "user"}, "content": {"parts": ["hi"]}}
    nodes = {str(at): {"parent": str(at - 1), "message": None} for at in range(1, 5_000)}
    tree = {"0": {"parent": None, "message": message}, **nodes}
    (dialog,) = read_transcripts(encoded({"mapping": tree, "current_node": "4999"}))
    assert dialog.texts == ("hi",)


def test_attachments_are_put_back_up_to_the_length_of_a_dialog() -> None:
    parts = [{"type": "text", "text": "attachment://a"}] * 3
    sample = {"epoch": 1, "target": "", "id": 1, "messages": [{"role": "user", "content": parts}]}
    long = {"samples": [{**sample, "attachments": {"a": "so " * 900_000}}]}
    with pytest.raises(ValueError, match=r"epoch 1: it has .*00,000 characters, but at most"):
        read_transcripts(encoded(long))


def of_lists(count: int) -> bytes:
    said = [{"kind": kind, "says": "one two"} for kind in ("user", "assistant")] * count
    return encoded({"deep": [[said], {"beside": [{"a": [1]}] * count}]})


def of_places(count: int) -> bytes:
    return encoded(
        {f"at{number}": [{"role": "user", "content": "one two"}] for number in range(count)}
    )


def of_details(count: int) -> bytes:
    words = "<details " * (20 * count)
    return encoded({"deep": [{"kind": "user", "says": words}, {"kind": "bot", "says": "one two"}]})


def of_long_names(count: int) -> bytes:
    inside = {f"in{number}": 1 for number in range(count)}
    said = [
        {"kind": kind, "says": "one two", "k" * 100 * count: inside} for kind in ("user", "bot")
    ]
    return encoded({"a" * 100 * count: said * 10})


def of_runs(count: int) -> bytes:
    said = [{"kind": kind, "says": "one two"} for kind in ("user", "bot")]
    return encoded({"runs": [{"inputs": said, "outputs": said}] * count})


def test_lists_anywhere_are_read() -> None:
    (dialog,) = read_transcripts(of_lists(20))
    assert len(dialog.turns) == 40
    assert [len(run.turns) for run in read_transcripts(of_runs(3))] == [4, 4, 4]


@pytest.mark.long
@pytest.mark.parametrize(
    ("content", "size"),
    [
        *((of_lists, 100), (of_places, 100), (of_details, 100), (of_long_names, 40), (of_runs, 40)),
        *((of_calls, 500), (of_ticks, 500), (of_slots, 125)),
        (lambda count: of_arguments({"a": "b" * (1000 * count)}), 125),
        (lambda count: of_arguments({"k" * count: [1] * count}), 125),
        (lambda count: b"\n" * (1000 * count) + chatted(content="a"), 125),
    ],
)
def test_reading_takes_linear_time(content: Callable[[int], bytes], size: int) -> None:
    assert growth(read_transcripts, content, size) < LINEAR


def test_the_search_for_messages_has_a_bound() -> None:
    with pytest.raises(ValueError, match="lists of objects at 10,001 places, but at most 10,000"):
        read_transcripts(of_places(10_001))


JSON = any_json(
    *("turns", "speaker", "utterance", "frames", "service", "slots", "state", "slot_values"),
    *("messages", "role", "content", "tool_calls", "function", "name", "arguments", "topic"),
    *("function_call", "refusal", "type", "custom", "input", "instructions", "output"),
    *("conversations", "from", "value", "body"),
    *("service_call", "parameters", "method", "toolInvocations", "toolName", "args", "result"),
    *("chosen", "rejected", "prompt", "preferred_output", "completion", "system", "tools"),
    *("functions", "thinking", "channel", "payload", "message", "properties", "text"),
)


@given(JSON, st.sampled_from(["", "a.jsonl", "a.txt"]), st.booleans())
def test_any_json_is_read_or_refused_in_a_sentence(value: Any, name: str, calls: bool) -> None:
    assert_read_or_refused(lambda: read_dialogs(json.dumps(value).encode(), name, calls)[0])


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8")))
def test_any_bytes_are_read_or_refused_in_a_sentence(content: bytes) -> None:
    assert_read_or_refused(lambda: read_transcripts(content))


def test_every_format_stands_in_the_documentation_and_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    documented = (ROOT / "fdkvc/conversations/formats.md").read_text("utf-8").splitlines()
    heading = next(at for at, line in enumerate(documented) if line.startswith("|"))
    table = list(takewhile(lambda line: line.startswith("|"), documented[heading:]))
    assert len(table[2:]) == len({file_format.label for file_format in FORMATS.values()})
    main(["dialogs", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert all(file_format.label in said for file_format in FORMATS.values())
    uploaded = formats_read()
    assert all(file_format.label in uploaded for file_format in FORMATS.values())
    assert uploaded.count("(.json, .jsonl)") == 1


@pytest.mark.parametrize("name", ["a.yaml", "a.csv", "a.yaml.gz"])
def test_a_table_is_not_read_as_a_talk(name: str) -> None:
    content = b"messages:\n- role: user\n  content: hello\n"
    packed = gzip.compress(content) if name.endswith("gz") else content
    with pytest.raises(ValueError, match=r"^a .\w+ file is not read: give"):
        read_transcripts(packed, name)
    (dialog,) = read_transcripts(b'{"messages": [{"role": "user", "content": "hi"}]}', "a.yaml")
    assert dialog.texts == ("hi",)


def test_a_new_format_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_tabs(text: str, number: int, calls: bool) -> Iterator[Transcript]:
        said = (line.split("\t") for line in text.splitlines())
        yield Transcript(f"dialog {number}", tuple(Turn(who, words) for who, words in said))

    def read_pairs(value: dict[str, Any], number: int, calls: bool) -> Iterator[Transcript]:
        yield Transcript(f"dialog {number}", tuple(Turn(*pair) for pair in value["exchange"]))

    new = (
        Format("tabs", "tables", ("tsv",), None, read_tabs),
        Format("pairs", "pairs of a name and words", ("json",), "exchange", read_pairs),
    )
    for file_format in new:
        monkeypatch.setitem(FORMATS, file_format.key, file_format)

    for content, name in (
        (b"User\thello", "own.tsv"),
        (b'[{"exchange": [["User", "hello"]]}]', "own.json"),
        (b"User: hello", "own.txt"),
        (b"User: hello", ""),
    ):
        (dialog,) = read_transcripts(content, name)
        assert dialog.turns == (Turn("User", "hello"),)
    for content in (
        b'{"talk": {"exchange": [["User", "hello"]]}}',
        b'{"items": [{"role": "User", "content": "hello"}]}',
    ):
        (dialog,) = read_transcripts(content)
        assert dialog.texts == ("hello",)
    assert endings() == ["json", "jsonl", "traj", "md", "txt", "tsv"]
    assert "tables (.tsv); pairs of a name and words (.json)." in formats_read()
    (upload, *_) = open_page("dialogs", file="own").get("file_uploader")
    assert {*upload.proto.type} == {*(f".{ending}" for ending in endings())} | PACKED


def test_a_file_of_the_system_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "kmsg")
    writer = os.open(tmp_path / "kmsg", os.O_RDWR)
    try:
        with pytest.raises(ValueError, match="kmsg' cannot be read: it is not a regular"):
            read_bytes(tmp_path / "kmsg", 10)
        monkeypatch.setattr(stat, "S_ISREG", lambda mode: True)  # as /proc/kmsg says of itself
        with pytest.raises(ValueError, match=r"kmsg' cannot be read: it has no content now$"):
            read_bytes(tmp_path / "kmsg", 10)
        os.write(writer, b"a message")
        assert read_bytes(tmp_path / "kmsg", 10) == b"a message"
    finally:
        os.close(writer)


def test_of_too_many_dialogs_a_sample_drawn_by_a_seed_is_read_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chats = [[{"role": "user", "content": f"number {number}"}] for number in range(30)]
    as_text = "\n---\n".join(f"User: number {number}" for number in range(30)).encode()
    every_dialog = read_transcripts(encoded(chats))
    monkeypatch.setattr(base, "MAX_DIALOGS", 12)
    for content in (encoded(chats), as_text):
        sample = read_transcripts(content)
        again = read_transcripts(content)

        assert [dialog.texts for dialog in sample] == [dialog.texts for dialog in again]
        places = [int(dialog.name.split()[-1]) for dialog in sample]
        assert len({*places}) == 12
        assert [dialog.texts for dialog in sample] == [
            every_dialog[place].texts for place in places
        ]
        assert max(places[:6]) >= 12  # its beginning is a sample, too
        (note,) = not_read_notes(sample)
        assert "dialogs beside a sample of 12 drawn by seed 0 (18×)" in note
