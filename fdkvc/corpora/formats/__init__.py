"""The registry of formats: files of dialogs, told apart by what is in them, read into transcripts.

Whatever a file holds, it is read within the bounds of this package, or refused in one sentence
that names the place.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fdkvc.corpora.formats import annotated, chat, plain
from fdkvc.corpora.formats.base import Format
from fdkvc.corpora.json_input import check_object, check_structure, parse_json
from fdkvc.corpora.transcripts import TooLargeError, Transcript
from fdkvc.extensions import register_installed
from fdkvc.limits import MAX_DIALOG_FILE_BYTES, MAX_DIALOGS

FORMATS: dict[str, Format] = {
    known.key: known
    for known in (annotated.FORMAT, chat.FORMAT, chat.SHARED, chat.REQUESTS, plain.FORMAT)
}
"""Every format by its key; a dialog of several is read as the first of them."""


def register(known: Format) -> Format:
    """Add a format of another package: what `FORMATS` has is read by pages and commands.

    An installed package names it as an entry point of the group ``fdkvc.formats``.

    Raises
    ------
    ValueError
        If its key, or the field by which its files are recognized, is taken.
    TypeError
        If it is no `Format`.
    """
    if not isinstance(known, Format):
        raise TypeError(f"{known!r} is no Format")
    others = [each for each in FORMATS.values() if each is not known]
    if known.key in (each.key for each in others):
        raise ValueError(f"format key {known.key!r} is taken: choose another")
    if known.field is not None and known.field in (each.field for each in others):
        raise ValueError(f"format field {known.field!r} is taken: choose another")
    FORMATS[known.key] = known
    return known


register_installed("fdkvc.formats", register)

EXAMPLES = Path(__file__).parent / "examples"
"""Short dialogs of this project's own writing, in each of the formats."""


def read_transcripts(content: bytes, name: str = "") -> tuple[Transcript, ...]:
    r"""Read all dialogs of a file; parameters and errors are those of `read_dialogs`.

    A dialog that is too large is an error too.

    Examples
    --------
    >>> (dialog,) = read_transcripts(b"User: hello\nSystem: hi there")
    >>> [turn.speaker for turn in dialog.turns]
    ['User', 'System']
    """
    dialogs, left = read_dialogs(content, name)
    if left:
        raise ValueError(left[0])
    return dialogs


def read_dialogs(
    content: bytes, name: str = "", calls: bool = False
) -> tuple[tuple[Transcript, ...], tuple[str, ...]]:
    """Read the dialogs of a file; return them, and why those that are too large are left out.

    Parameters
    ----------
    name : str
        The file's name: the ending of a text format, such as ``.txt``, is that format whatever it
        begins with, ``.jsonl`` has a JSON value on each line. Otherwise the content tells.
    calls : bool
        Whether the text of each call is put before the words of its turn, as a model reads it.

    Raises
    ------
    ValueError
        In a sentence that says what is wrong with it, and where; also if all are too large.
    """
    if len(content) > MAX_DIALOG_FILE_BYTES:
        raise ValueError(
            f"the file has {len(content):,} bytes, but at most {MAX_DIALOG_FILE_BYTES:,} are "
            "allowed"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} of the file is not UTF-8 text") from None
    ending = Path(name).suffix.lower().removeprefix(".")
    named = [known for known in FORMATS.values() if ending in known.endings]
    texts = [known for known in named or FORMATS.values() if known.field is None]
    if (named and texts) or not text.lstrip().startswith(("{", "[")):
        if not texts:
            raise ValueError("line 1 is not JSON: the file must begin with { or [")
        dialogs = list(texts[0].read(text, 0, calls))
    else:
        check_structure(content)
        dialogs = list(_conversations(text, ending == "jsonl", calls))
    found: dict[str, Transcript] = {}
    left: list[str] = []
    for number, dialog in enumerate(dialogs):
        if isinstance(dialog, TooLargeError):
            left.append(str(dialog))
            continue
        if dialog.name in found:
            raise ValueError(f"dialog {number}: the name {dialog.name!r} is given twice")
        found[dialog.name] = dialog
    if not found:
        raise ValueError(left[0] if left else "the file holds no dialogs")
    return tuple(found.values()), tuple(left)


def endings() -> list[str]:
    """Return what the name of a file of dialogs may end with."""
    return list(dict.fromkeys(each for known in FORMATS.values() for each in known.endings))


def read_file(path: str | Path) -> tuple[Transcript, ...]:
    """Read all dialogs of a file on disk; parameters and errors are those of `read_transcripts`."""
    return read_transcripts(read_bytes(path, MAX_DIALOG_FILE_BYTES), str(path))


def read_bytes(path: str | Path, most: int) -> bytes:
    """Read a file, or at most one byte more than is allowed.

    Raises
    ------
    ValueError
        If it cannot be read, or is a pipe, a device, or a file of the system that would be waited
        for.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"the file {str(path)!r} cannot be read: it is no regular file")
            content: bytes | None = file.read(most + 1)
    except IsADirectoryError:
        raise ValueError(f"the file {str(path)!r} cannot be read: it is no regular file") from None
    except OSError as error:
        raise ValueError(f"the file {str(path)!r} cannot be read: {error.strerror}") from None
    if content is None:  # one of the system's own, such as /proc/kmsg, that waits for more
        raise ValueError(f"the file {str(path)!r} cannot be read: it has nothing to read now")
    return content


def _open_at_once(path: str, flags: int) -> int:
    """Open a file so that nothing is waited for: neither the writer of a pipe nor its content."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _conversations(text: str, by_line: bool, calls: bool) -> Iterator[Transcript | TooLargeError]:
    values = _lines(text) if by_line or _is_lines(text) else parse_json(text)
    if isinstance(values, dict):
        inner = values.get("conversations", [values])
        if not isinstance(inner, list):
            raise ValueError("'conversations' is not a list")
        values = [values] if _are_messages(inner) else inner
    if _are_messages(values):
        values = [values]  # of one conversation
    if len(values) > MAX_DIALOGS:
        raise ValueError(
            f"the file holds {len(values):,} dialogs, but at most {MAX_DIALOGS:,} are allowed"
        )
    for number, value in enumerate(values):
        if isinstance(value, list):
            value = {"messages": value}
        value = check_object(value, f"dialog {number}")
        known = _format_of(value, number)
        try:
            yield from known.read(value, number, calls)
        except TooLargeError as error:
            yield error


def _are_messages(values: list[Any]) -> bool:
    return bool(values) and all(
        isinstance(value, dict) and ("role" in value or "from" in value) for value in values
    )


def _format_of(value: Mapping[str, Any], number: int) -> Format:
    formats = {known.field: known for known in FORMATS.values() if known.field is not None}
    for field, known in formats.items():
        if field in value:
            return known
    raise ValueError(f"dialog {number}: it has neither {' nor '.join(map(repr, sorted(formats)))}")


def _is_lines(text: str) -> bool:
    """Whether the first line is a JSON value by itself, and more lines follow."""
    first, _, rest = text.strip().partition("\n")
    if not rest or not first.rstrip().endswith(("}", "]")):
        return False
    try:
        parse_json(first)
    except ValueError:
        return False
    return True


def _lines(text: str) -> list[Any]:
    return [
        parse_json(line, number)
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]
