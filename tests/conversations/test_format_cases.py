"""Files in `cases/` are read as the text beside each says: turns, calls, evidence and notes.

A ``.json`` has several files in a list. After a change that is meant, write the texts again with
``python -m tests.conversations.test_format_cases`` and read what changed.
"""

import copy
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.conversations.formats import read_dialogs, read_sessions, read_transcripts
from fdkvc.core.transcripts import Demand, SkippedError, Transcript
from fdkvc.explain.notes import not_read_notes
from tests.refusals import any_json, assert_read_or_refused, refused

CASES = Path(__file__).parent / "cases"
REFUSED = CASES / "refused.json"
FILES_OF_CASES = [path for path in sorted(CASES.iterdir()) if path.suffix != ".expected"]
PATHS = [path for path in FILES_OF_CASES if path != REFUSED]


def contents(path: Path) -> list[bytes]:
    if path.suffix != ".json":
        return [path.read_bytes()]
    return [json.dumps(value).encode() for value in json.loads(path.read_text("utf-8"))]


def written(path: Path) -> str:
    """Return how the files of a case are read."""
    blocks = []
    for content in contents(path):
        try:
            dialogs, skipped = read_dialogs(content, path.name)
        except ValueError as error:
            blocks.append(f"refused: {error}")
            continue
        lines = [line for dialog in dialogs for line in dialog_lines(dialog)]
        lines += [f"skipped: {reason}" for reason in skipped]
        lines += [f"note: {note}" for note in not_read_notes(dialogs)]
        blocks.append("\n".join([*lines, *session_lines(content, path.name)]))
    return "\n\n".join(blocks).encode("utf-8", "backslashreplace").decode() + "\n"


def dialog_lines(dialog: Transcript) -> Iterator[str]:
    """Yield a dialog: its turns, and below each the calls it makes and the values it needs."""
    yield f"{dialog.name} ({dialog.services}), {dialog.missing} missing"
    for tool in dialog.tools:
        yield f"  tool {tool.method} {', '.join(tool.slots)}"
    for number, turn in enumerate(dialog.turns):
        about = [part for part in (turn.topic, turn.tool and f"of {turn.tool}") if part]
        kind = dialog.span_kind(number, turn.call_characters)
        yield f"  {turn.speaker} [{', '.join([kind, *about])}] {turn.text!r}"
        for call in dialog.calls:
            if call.turn == number:
                values = [f"{argument.slot}={argument.value!r}" for argument in call.arguments]
                yield f"    calls {call.method}({', '.join(values)})"
        yield from (demand_line(row) for row in dialog.demands if row.turn == number)
    yield from (demand_line(row) for row in dialog.demands if row.turn == len(dialog.turns))


def demand_line(demand: Demand) -> str:
    places = [f"{row.turn}:{row.start}-{row.end}" for row in demand.mentions]
    carried = " carried" if demand.carried else ""
    return f"    needs {demand.slot}={demand.value!r}{carried}, said at {' '.join(places)}"


def session_lines(content: bytes, name: str) -> Iterator[str]:
    """Yield the contexts of a coding agent's sessions, and what is recorded of compactions."""
    for session in read_sessions(content, name):
        resumed = ", resumed" if session.resumed else ""
        folder = f" in {session.folder}" if session.folder else ""
        yield f"{session.name}{folder}{resumed}: contexts {session.contexts}"
        for row in session.compactions:
            kept = f"{row.stayed} stayed, summary {row.summary}, tokens {row.recorded}"
            yield f"  {row.kind} at {row.place} {row.trigger}: {kept} {row.note}"
        for number, message in enumerate(session.messages):
            if message.failed or message.time:
                yield f"  {number}: failed {message.failed}, time {message.time}"
            linked = [f"{call.method} of {number} by {call.result}" for call in message.calls]
            yield from (f"  answered: {call}" for call in linked)
        yield from (f"  {note}" for note in session.notes)
        yield from (f"  {times} unread: {kind}" for kind, times in session.unread)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_file_is_read_as_is_written_beside_it(path: Path) -> None:
    assert written(path) == Path(f"{path}.expected").read_text("utf-8")


@pytest.mark.parametrize(("value", "sentence"), json.loads(REFUSED.read_text("utf-8")))
def test_a_file_that_is_not_right_gets_one_sentence(value: Any, sentence: str) -> None:
    content = value.encode() if isinstance(value, str) else json.dumps(value).encode()
    with refused(re.escape(sentence)):
        read_transcripts(content)


def values_of(*names: str) -> list[Any]:
    return [value for name in names for value in json.loads((CASES / f"{name}.json").read_text())]


LAYOUTS = values_of(
    "every_layout_gives_the_same_turns_spans_and_evidence",
    "every_layout_gives_the_same_turns_spans_and_evidence_platforms",
)
"""The same talk in many layouts."""

TRIALS = next(value for value in LAYOUTS if isinstance(value, list) and "traj" in value[0])
"""That of τ-bench."""


@pytest.mark.parametrize("number", range(len(LAYOUTS)))
@pytest.mark.parametrize("calls", [False, True])
def test_every_layout_gives_the_same_turns_spans_and_evidence(number: int, calls: bool) -> None:
    (dialog, *_), _ = read_dialogs(json.dumps(LAYOUTS[number]).encode(), calls=calls)
    (chat, *_), _ = read_dialogs(json.dumps(LAYOUTS[0]).encode(), calls=calls)

    assert dialog.texts == chat.texts
    turns = range(len(chat.turns))
    assert [spans(dialog, turn) for turn in turns] == [spans(chat, turn) for turn in turns]
    assert (dialog.demands, dialog.calls, dialog.missing) == (chat.demands, chat.calls, 0)


def spans(dialog: Transcript, turn: int) -> list[str]:
    """Return the kind of each character of a turn, each once."""
    characters = range(len(dialog.texts[turn]))
    return [*dict.fromkeys(dialog.span_kind(turn, place) for place in characters)]


COUNTED = frozenset(("image", "redacted_thinking", "thinking", "plug", "plugged", "error", "True"))
"""Values of objects that are counted as a whole, or of a dialog that is left out."""

PLANTED = [
    *LAYOUTS,
    *values_of(
        "tooltalk_has_each_response_before_the_next_call",
        "claude_has_what_its_tools_returned",
        "an_annotated_dialogue_has_topics_and_demands",
    ),
]


def planted(value: Any, name: str) -> list[Any]:
    """Return the value again and again, each time with words in another of its objects."""
    if isinstance(value, list):
        return [
            [*value[:number], changed, *value[number + 1 :]]
            for number, inner in enumerate(value)
            for changed in planted(inner, name)
        ]
    if not isinstance(value, dict) or COUNTED.intersection(map(str, value.values())):
        return []
    inside = [
        {**value, key: changed}
        for key, inner in value.items()
        if key != "slot_values"  # whose values are demands
        for changed in planted(inner, name)
    ]
    return [{**value, name: "words of nobody else"}, *inside]


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(PLANTED)))
def test_words_in_any_field_are_read_or_counted(number: int) -> None:
    talk = PLANTED[number]
    notes = not_read_notes(read_dialogs(json.dumps(talk).encode())[0])
    for value in planted(talk, "own_words"):
        dialogs, _ = read_dialogs(json.dumps(value).encode())
        values = [argument.value for call in dialogs[0].calls for argument in call.arguments]
        is_read = any("words of nobody else" in text for text in (*dialogs[0].texts, *values))
        assert is_read != (not_read_notes(dialogs) != notes)


NAMES = ("role", "content", "parts", "type", "text", "parent", "input", "function", "name", "id")
FILES = [value for path in PATHS if path.suffix == ".json" for value in values_of(path.stem)]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    named: Any = enumerate(value) if isinstance(value, list) else ()
    for key, inner in value.items() if isinstance(value, dict) else named:
        yield from places(inner, (*path, key))


@given(st.data(), any_json(*NAMES))
def test_anything_in_any_place_is_read_or_refused(data: st.DataObject, other: Any) -> None:
    value = copy.deepcopy(data.draw(st.sampled_from(FILES)))
    *path, last = data.draw(st.sampled_from([*places(value)][1:]))
    owner = value
    for key in path:
        owner = owner[key]
    owner[last] = other
    assert_read_or_refused(lambda: read_transcripts(json.dumps(value).encode()))


def remove_parts(value: Any, random: Random, share: float) -> Any:
    """Return a value of JSON without some of its fields and items."""
    if isinstance(value, dict):
        names = [name for name in value if random.random() > share]
        return {name: remove_parts(value[name], random, share) for name in names}
    if isinstance(value, list):
        items = [item for item in value if random.random() > share]
        return [remove_parts(item, random, share) for item in items]
    return value


def read_or_skipped(content: bytes, name: str) -> Sequence[object]:
    """Read the dialogs of a file; return the reason if none has words."""
    try:
        return read_transcripts(content, name)
    except SkippedError as error:
        return [str(error)]


@pytest.mark.long
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_file_that_lacks_parts_is_read_or_refused(path: Path) -> None:
    random = Random(path.name)
    for content in contents(path):
        lines = content.splitlines() if path.suffix == ".jsonl" else [content]
        if path.suffix not in (".json", ".jsonl"):
            lines = [json.dumps(row).encode() for row in content.decode("utf-8").splitlines()]
        for share in (0.02, 0.05, 0.1, 0.3):
            left = [remove_parts(json.loads(line), random, share) for line in lines if line.strip()]
            changed = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in left)
            assert_read_or_refused(partial(read_or_skipped, changed.encode(), path.name))
            with suppress(ValueError):
                read_sessions(changed.encode(), path.name)


@given(st.data())
def test_a_file_cut_or_overwritten_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    content = json.dumps(data.draw(st.sampled_from(FILES))).encode()
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(start + 20, len(content))))
    changed = content[:start] + data.draw(st.binary(max_size=6)) + content[end:]
    assert_read_or_refused(lambda: read_transcripts(changed))


if __name__ == "__main__":
    for path in PATHS:
        Path(f"{path}.expected").write_text(written(path), "utf-8")
