"""The registry of formats; reads files of dialogs into transcripts.

Formats are recognized by content. Any file is either read within the limits of `fdkvc.core.limits`
or rejected with one sentence that names the place.
"""

import json
import re
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from fdkvc.conversations.file_text import decoded, unpacked
from fdkvc.conversations.formats import (
    annotated,
    chat,
    chatgpt,
    claude,
    claude_code,
    codex,
    copilot_cli,
    gemini_cli,
    general,
    inspect_log,
    markdown,
    opencode,
    pi,
    plain,
    preferences,
    responses,
    rows,
    swe_agent,
    tau_bench,
    tooltalk,
)
from fdkvc.conversations.formats.base import Dialogs, Format, read_each, restated
from fdkvc.conversations.formats.messages import is_message
from fdkvc.conversations.formats.responses import is_item_type
from fdkvc.conversations.formats.trees import PARENTS, field_of
from fdkvc.conversations.formats.unknown import seems_to_be
from fdkvc.conversations.sessions import Session
from fdkvc.core.extensions import by_key, register_installed
from fdkvc.core.json_input import (
    JsonObject,
    check_object,
    check_structure,
    of_kind,
    only,
    parse_json,
    read_bytes,
)
from fdkvc.core.limits import (
    MAX_DIALOG_FILE_BYTES,
    MAX_DIALOG_FILE_LINES,
)
from fdkvc.core.parameters import check_most
from fdkvc.core.transcripts import SkippedError, Transcript, different_names
from fdkvc.core.unread import Unread
from fdkvc.core.words import name_list

FORMATS: dict[str, Format] = by_key(
    annotated.FORMAT,
    tau_bench.TRIAL,
    tau_bench.RESULTS,
    tau_bench.SIMULATION,
    inspect_log.FORMAT,
    inspect_log.SAMPLE,
    swe_agent.FORMAT,
    tooltalk.FORMAT,
    rows.ROW,
    rows.ARENA,
    chatgpt.FORMAT,
    claude.FORMAT,
    rows.GEMINI,
    rows.COPILOT,
    *preferences.FORMATS,
    preferences.HISTORY,
    chat.FORMAT,
    chat.SHARED,
    responses.REQUESTS,
    responses.FORMAT,
    responses.OUTPUT,
    claude_code.FORMAT,
    codex.FORMAT,
    pi.FORMAT,
    copilot_cli.FORMAT,
    gemini_cli.FORMAT,
    opencode.FORMAT,
    markdown.FORMAT,
    plain.FORMAT,
)
"""Formats by key; a dialog that fits several is read as the first of them."""


def register(format: Format) -> Format:
    """Add a format of another package, for pages and commands.

    An installed package declares it as an entry point of the group ``fdkvc.formats``. Raises a
    ValueError if its key or field is taken, a TypeError if it is not a `Format`.
    """
    if not isinstance(format, Format):
        raise TypeError(f"{format!r} is not a Format")
    if FORMATS.get(format.key, format) is not format:
        raise ValueError(f"format key {format.key!r} is taken: choose another")
    by_field = [row for row in FORMATS.values() if row.field and row.recognizes is None]
    fields = {row.field for row in by_field if row is not format}
    if format.recognizes is None and format.field in fields:
        raise ValueError(f"format field {format.field!r} is taken: choose another")
    FORMATS[format.key] = format
    return format


register_installed("fdkvc.formats", register)

TABLES = name_list("csv tsv yaml yml xml html htm")
"""Endings of files whose colons do not follow the name of a speaker."""

MARK = "<|im_start|>"
"""What begins a message of ChatML."""

SEQUELS = {"inputs": "outputs", "input": "output", "request": "response"}
"""Fields of a request, and that of its response."""

EXAMPLES = Path(__file__).parent / "examples"
"""Short dialogs written for this project."""


def read_transcripts(content: bytes, name: str = "") -> tuple[Transcript, ...]:
    r"""Read all dialogs of a file; one that would be left out is an error. See `read_dialogs`.

    Examples
    --------
    >>> (dialog,) = read_transcripts(b"User: hello\nSystem: hi there")
    >>> [turn.speaker for turn in dialog.turns]
    ['User', 'System']
    """
    dialogs, skipped = read_dialogs(content, name)
    if skipped:
        raise ValueError(skipped[0])
    return dialogs


def read_dialogs(
    content: bytes, name: str = "", calls: bool = False
) -> tuple[tuple[Transcript, ...], tuple[str, ...]]:
    """Read the dialogs of a file; return them, and why others are left out.

    The ending of a text format in the file's name, such as ``.txt``, selects that format, and
    ``.jsonl`` means a JSON value on each line; otherwise the content decides. With `calls`, the
    text of each call is put before the words of its turn, as models read it. The file may be
    compressed; `fdkvc.conversations.file_text` says how. A ValueError says what
    is wrong and where; also if all dialogs are left out.
    """
    text, ending = _text_of(content, name)
    texts = [row for row in FORMATS.values() if row.field is None and not row.recognizes]
    by_name = next((format for format in texts if ending in format.endings), None)
    log = None if by_name else _log_format(text)
    text_format = by_name or log
    if text_format is None and not text.lstrip().startswith(("{", "[")):
        _check_ending(ending)
        text_format = texts[0]
    if text_format is not None:
        dialogs = list(text_format.read(text, 0, calls))
        reading = ""
    else:
        check_structure(text.encode())
        dialogs, reading = _conversations(text, ending == "jsonl", calls)
    skipped = tuple(map(str, only(dialogs, SkippedError)))
    transcripts = only(dialogs, Transcript)
    if not transcripts:
        if skipped and log and log.sessions:  # a session of one long context, say
            raise SkippedError(skipped[0])
        nothing = EMPTY_LOG if log else "the file has no dialogs"
        raise ValueError(skipped[0] if skipped else nothing)
    transcripts[0] = replace(transcripts[0], reading=reading)
    names = different_names([dialog.name for dialog in transcripts])
    return tuple(map(Transcript.with_name, transcripts, names)), skipped


def _check_ending(ending: str) -> None:
    """Raise a ValueError if a file's name promises no text whose lines name their speakers."""
    if ending in markdown.FORMAT.endings:
        raise ValueError(
            "the file names no speakers: begin each turn with a heading, such as '## User' and "
            "'## Assistant'"
        )
    if ending in endings():
        raise ValueError("line 1 is not JSON: the file must begin with { or [")
    if ending in TABLES:
        raise ValueError(f"a .{ending} file is not read: give JSON, or text in a .txt file")


def read_sessions(content: bytes, name: str = "") -> tuple[Session, ...]:
    """Read the sessions of a coding agent's log: its own, and those of its subagents.

    There are none in a file of another kind. Raises a ValueError as `read_dialogs` does, and if
    nobody says anything.
    """
    text, _ = _text_of(content, name)
    log = _log_format(text)
    if log is None or log.sessions is None:
        return ()
    sessions = log.sessions(text)
    if not sessions:
        raise ValueError(EMPTY_LOG)
    return tuple(sessions)


def is_agents_log(content: bytes, name: str) -> bool:
    """Whether a file is a log of a coding agent; a ValueError as of `read_dialogs`."""
    log = _log_format(_text_of(content, name)[0])
    return log is not None and log.sessions is not None


EMPTY_LOG = "the file is a log of a coding agent, but nobody says anything in it"


def _text_of(content: bytes, name: str) -> tuple[str, str]:
    """Return the text of a file, and the ending of its name."""
    check_most("the file has", len(content), "bytes", MAX_DIALOG_FILE_BYTES)
    content, name = unpacked(content, name)
    text = decoded(content).rstrip()
    # As plain text, "data" would be the speaker of each line.
    if re.match(r'\s*(?:(?:event|id|retry)?:.*\n\s*)*data:\s*[\[{]+\s*["}\]]', text):
        raise ValueError(
            "the file is a stream of events, which is not read: give its request and answer as "
            "messages"
        )
    if not text:
        raise ValueError("the file is empty")
    if text.startswith(MARK):  # a dialog from each system prompt on
        parts = re.split(rf"(?!\A)(?={re.escape(MARK)}system\n)", text)
        return json.dumps([{"text": part} for part in parts]), ""
    return text, Path(name).suffix.lower().removeprefix(".")


def _log_format(text: str) -> Format | None:
    """Return the format of logs that recognizes a text, if any does."""
    logs = (
        format for format in FORMATS.values() if format.field is None and format.recognizes
    )
    return next(
        (format for format in logs if format.recognizes and format.recognizes(text)), None
    )


def endings() -> list[str]:
    """Return the endings of files of dialogs."""
    return [*dict.fromkeys(chain.from_iterable(format.endings for format in FORMATS.values()))]


def read_file(path: str | Path) -> tuple[Transcript, ...]:
    """Read all dialogs of a file on disk; see `read_transcripts`."""
    return read_transcripts(read_bytes(path, MAX_DIALOG_FILE_BYTES), str(path))


def _conversations(
    text: str, by_line: bool, calls: bool
) -> tuple[list[Transcript | SkippedError], str]:
    """Return the dialogs of JSON, and how they are read if no format fits them."""
    values = _lines(text) if by_line or _is_lines(text) else parse_json(text)
    dialogs, file_unread = _dialogs_in(values)
    formats = [*map(_format_of, only(dialogs, dict))]
    if formats and not any(formats):
        return general.read_any(values, calls)
    try:
        transcripts = [*read_each(_read, dialogs, "dialog", 0, calls, file_unread)]
        # By the exact type: dialogs that are only too large were read as their format.
        if transcripts and all(type(dialog) is SkippedError for dialog in transcripts):
            raise ValueError(str(transcripts[0]))
    except ValueError as error:
        if any(format and format.recognizes for format in formats):
            raise
        try:  # it has the field of a format, but another shape
            return general.read_any(values, calls)
        except ValueError:
            raise error from None
    return transcripts, ""


def _dialogs_in(values: Any) -> tuple[list[Any], Unread]:
    """Return the dialogs of a file, and what stands beside them."""
    file_unread = Unread()
    listed = _dialogs_of(values, file_unread) if isinstance(values, dict) else values
    if _are_messages(listed):
        listed = [listed]  # one conversation
    return [*map(_dialog, listed)], file_unread


def _dialogs_of(value: JsonObject, file_unread: Unread) -> list[Any]:
    """Return the dialogs of an object: it is one, or fields have them; count what is beside."""
    contents = value.get("conversations", [value])
    if isinstance(contents, dict):
        contents = _dialogs_by_id(contents)
    if not isinstance(contents, list):
        raise ValueError("'conversations' is not a list")
    if value.keys() & {*preferences.PREFERRED} or _are_messages(contents):
        return [value]
    if "conversations" in value:
        file_unread.fields(value, {"conversations"})
        return contents
    names = [] if _format_of(value) else [name for name in value if _has_dialogs(value[name])]
    for request, response in SEQUELS.items():
        if {request} <= {*names} <= {request, response} and _has_message(value.get(response)):
            names = []  # both are read
    if len(names) == len(value) > 1:
        return _dialogs_by_id(value)
    if not names:
        return [value]
    contents = value[names[0]]
    file_unread.fields(value, names[:1])
    return contents if isinstance(contents, list) else [contents]


def _dialogs_by_id(value: JsonObject) -> list[Any]:
    """Return the dialogs of an object that names each by its id, or the one that it is."""
    if _format_of(value) is not None:
        return [value]
    dialogs = []
    for key, content in value.items():
        dialog = _dialog(content)
        dialogs.append({"id": key, **dialog} if isinstance(dialog, dict) else dialog)
    return dialogs


def _read(value: JsonObject, number: int, calls: bool) -> Dialogs:
    format = _format_of(check_object(value, f"dialog {number}"))
    if format is None:
        place = seems_to_be(f"dialog {number}", value)
        raise ValueError(f"{place}, and no field of the format of the others")
    return format.read(value, number, calls)


def _dialog(value: Any) -> Any:
    """Return a dialog as an object, also if it is a list of messages or items, or ChatML."""
    text = of_kind(value.get("text"), str) if isinstance(value, dict) else ""
    if text.startswith(MARK):
        pieces = (
            piece.partition("\n") for piece in text.replace("<|im_end|>", "").split(MARK)
        )
        turns = [
            {"role": role, "content": words.strip()}
            for role, _, words in pieces
            if words.strip()
        ]
        return restated(value, "text", messages=turns)
    if not isinstance(value, list):
        return value
    has_items = any(isinstance(item, dict) and _is_item(item) for item in value)
    return {"input" if has_items else "messages": value}


def _are_messages(values: list[Any]) -> bool:
    """Whether the first of a list is a message or an item of a response."""
    first = values[0] if values else None
    if not isinstance(first, dict) or _format_of(first) or field_of(first, PARENTS):
        return False
    has_parents = (
        len(values) > 1 and isinstance(values[1], dict) and field_of(values[1], PARENTS)
    )
    return not has_parents and (is_message(first) or _is_item(first))


def _is_item(value: JsonObject) -> bool:
    """Whether an object is an item of a response other than a message, such as a call."""
    is_typed = isinstance(value.get("type"), str) and is_item_type(value["type"])
    return is_typed and not is_message(value)


def _format_of(value: JsonObject) -> Format | None:
    """Return the format that fits an object, None if none does."""
    return next((format for format in FORMATS.values() if format.fits(value)), None)


def _has_dialogs(value: Any) -> bool:
    """Whether a field holds dialogs, or one, in a known format."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and _format_of(first) is not None and not is_message(first)


def _has_message(value: Any, depth: int = 4) -> bool:
    """Whether there is a message in a value, at most so deep."""
    if isinstance(value, dict):
        if is_message(value):
            return True
        value = [*value.values()]
    if not isinstance(value, list) or not depth:
        return False
    return any(_has_message(part, depth - 1) for part in value)


def _is_lines(text: str) -> bool:
    """Whether the first of several lines is a JSON value."""
    first, _, following_lines = text.lstrip().partition("\n")
    if not following_lines or not first.rstrip().endswith(("}", "]")):
        return False
    try:
        parse_json(first)
    except ValueError:
        return False
    return True


def _lines(text: str) -> list[Any]:
    check_most("the file has", text.count("\n") + 1, "lines", MAX_DIALOG_FILE_LINES)
    lines = enumerate(text.split("\n"), start=1)
    return [parse_json(line, number) for number, line in lines if line.strip()]
