"""Trace files: recordings as one file of *safetensors*, with their texts as JSON within it.

The array ``dialogs`` (U8) is a `_Document`: JSON in UTF-8. Dialog i, from 0, has N tokens and these
arrays of floats of 16 or 32 bits: ``i.embeddings`` (N, d), ``i.queries`` (H, N, h), ``i.keys`` and
``i.values`` (K, N, h) and, in all dialogs or none, ``i.surprisal`` (N,). K is H, or fewer where
H / K query heads in a row share their keys and values. A row of ``i.spans`` (N, 2, I64) has the
characters of its turn's text that a token covers, the end excluded.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.arrays import read_safetensors
from fdkvc.core.json_input import check_object, check_structure, parse_json
from fdkvc.core.limits import (
    MAX_DIALOG_FILE_BYTES,
    MAX_DIALOGS,
    MAX_TRACE_BYTES,
    MAX_TRACE_HEADER_BYTES,
    MAX_TRACE_HEADS,
)
from fdkvc.core.parameters import check_most
from fdkvc.core.recordings import Recording, Token
from fdkvc.core.transcripts import Transcript, clean, clean_name, different_names
from fdkvc.runs.record import as_values, read_value

VERSION = 2

ENDING = ".safetensors"

_HEADER_BYTES = 1000
"""More than what lists a dialog's arrays."""

_LARGEST = 2**31
"""Every number of the JSON is below this."""

_TYPES = {"F32": "<f4", "F16": "<f2", "I64": "<i8", "U8": "u1"}
"""The types of arrays, and NumPy's names for them."""

_VECTORS = {"embeddings": 2, "queries": 3, "keys": 3, "values": 3, "surprisal": 1}
"""The arrays of floats of a dialog, and the number of their axes."""


@dataclass(frozen=True)
class _Dialog:
    transcript: Transcript
    """The dialog without its tools, and without calls: its demands have what they need."""
    tokens: tuple[tuple[str, ...], ...]
    """The texts of each turn's tokens, in the tokenizer's form."""


@dataclass(frozen=True)
class _Document:
    version: int
    source: str
    """Origin of the vectors, such as a model and its layer."""
    heads: tuple[int, ...]
    """The number of each head in its layer."""
    dialogs: tuple[_Dialog, ...]


# ------------------------------------------------------------------------------- writing


def trace_bytes(recordings: Sequence[Recording]) -> bytes:
    """Return a trace file of recordings of the same heads, with different names.

    Raises a ValueError if there are none, they differ in heads or source, or the file would be too
    large.
    """
    from safetensors.numpy import save

    if not recordings:
        raise ValueError("there are no recordings to write")
    first = recordings[0]
    for recording in recordings:
        if recording.heads != first.heads or recording.source != first.source:
            raise ValueError("the recordings are not of the same heads of the same model")
        if (recording.surprisal is None) != (first.surprisal is None):
            raise ValueError("only some of the recordings have surprisal")
    check_most("the trace has", len(recordings), "dialogs", MAX_DIALOGS)
    check_most("the trace has", sum(map(stored_bytes, recordings)), "bytes", MAX_TRACE_BYTES)
    document = _Document(VERSION, first.source, first.heads, tuple(map(_dialog_of, recordings)))
    text = _json(document)
    _check_json(text)
    arrays = {"dialogs": np.frombuffer(text, np.uint8)}
    for number, recording in enumerate(recordings):
        for name, array in _arrays_of(recording).items():
            # A broadcast or sliced array would be saved wrongly.
            arrays[f"{number}.{name}"] = np.ascontiguousarray(array)
    content: bytes = save(arrays)
    return content


def stored_bytes(recording: Recording) -> int:
    """Return the most bytes that a recording adds to a file. Raises a ValueError if it cannot."""
    check_most("the trace has", len(recording.heads), "heads", MAX_TRACE_HEADS)
    arrays = sum(array.nbytes for array in _arrays_of(recording).values())
    return arrays + len(_json(_dialog_of(recording))) + _HEADER_BYTES


def _json(content: _Document | _Dialog) -> bytes:
    # Python has bytes of a folder's name that are not UTF-8 as \udc80 to \udcff: write them so.
    return json.dumps(as_values(content), ensure_ascii=False).encode(errors="backslashreplace")


def _check_json(text: bytes) -> None:
    check_most("the texts of the trace have", len(text), "bytes", MAX_DIALOG_FILE_BYTES)
    check_structure(text)


def _dialog_of(recording: Recording) -> _Dialog:
    transcript = replace(recording.transcript, calls=(), tools=())
    return _Dialog(transcript, tuple(tuple(row.text for row in turn) for turn in recording.tokens))


def _arrays_of(recording: Recording) -> dict[str, NDArray[Any]]:
    spans = [(token.start, token.end) for turn in recording.tokens for token in turn]
    arrays: dict[str, NDArray[Any]] = {"spans": np.array(spans, np.int64)}
    for name in _VECTORS:
        if getattr(recording, name) is not None:
            arrays[name] = np.asarray(getattr(recording, name), np.float32)
    # Where all groups of heads have the same size and share keys and values, store these once.
    size, *others = {*recording.groups}
    shared = arrays["values"][::size]
    if not others and np.array_equal(arrays["values"], shared.repeat(size, axis=0)):
        arrays |= {"keys": arrays["keys"][::size], "values": shared}
    return arrays


# ------------------------------------------------------------------------------- reading


def read_trace_file(content: bytes, most_bytes: int = MAX_TRACE_BYTES) -> tuple[Recording, ...]:
    """Read a trace file of at most `most_bytes`.

    Sizes and types are checked before anything is computed. Raises a ValueError that names the
    array, or the dialog and turn, and the problem.
    """
    if not content:
        raise ValueError("the file is empty")
    check_most("the file has", len(content), "bytes", most_bytes)
    if content.startswith(b"PK"):
        raise ValueError(
            "the file is a trace of version 1 (.npz), which only earlier versions of this project "
            "read: record the dialogs again with capture"
        )
    if int.from_bytes(content[:8], "little") > MAX_TRACE_HEADER_BYTES:
        raise ValueError("the file is not a trace: it does not begin as safetensors does")
    arrays = read_safetensors(content, _TYPES, "the file")
    document = _read_document(arrays.pop("dialogs", None))
    names = different_names(dialog.transcript.name for dialog in document.dialogs)
    recordings = []
    for number, (dialog, name) in enumerate(zip(document.dialogs, names, strict=True)):
        transcript = replace(dialog.transcript.with_name(name), calls=(), tools=())
        _check_demands(transcript)
        recordings.append(
            Recording(
                transcript,
                _tokens(dialog, arrays.pop(f"{number}.spans", None)),
                **_vectors(arrays, number, len(document.heads)),
                heads=document.heads,
                source=document.source,
            )
        )
    if arrays:
        raise ValueError(f"the array {min(arrays)[:80]!r} is of no dialog")
    if len({recording.surprisal is None for recording in recordings}) > 1:
        raise ValueError("only some of the dialogs have surprisal")
    return tuple(recordings)


def _read_document(text: NDArray[Any] | None) -> _Document:
    if text is None or text.dtype != np.uint8:
        raise ValueError("the file has no array 'dialogs' of the type U8, JSON in UTF-8")
    content = text.tobytes()
    _check_json(content)
    try:
        value = check_object(parse_json(content.decode()), "'dialogs'")
    except UnicodeDecodeError:
        raise ValueError("the array 'dialogs' is not UTF-8") from None
    if value.get("version") != VERSION:
        version = str(value.get("version"))[:40]
        raise ValueError(f"its version is {version}, but only {VERSION} can be read")
    for name, most in (("dialogs", MAX_DIALOGS), ("heads", MAX_TRACE_HEADS)):
        if isinstance(value.get(name), list):  # before each of them is read
            check_most("the trace has", len(value[name]), name, most)
    document: _Document = read_value(_Document, _cleaned(value, ""), "")
    return document


def _cleaned(value: Any, name: str) -> Any:
    """Return a JSON value with safe texts, on one line unless of this name; check its numbers."""
    if isinstance(value, str):
        return clean(value) if name in ("text", "source") else clean_name(value)
    if isinstance(value, list):
        return [_cleaned(part, name) for part in value]
    if isinstance(value, dict):
        return {key: _cleaned(part, key) for key, part in value.items()}
    if isinstance(value, int) and not 0 <= value < _LARGEST:
        raise ValueError(f"{name[:40]!r} has a number beyond 0 to {_LARGEST - 1:,}")
    return value


def _check_demands(transcript: Transcript) -> None:
    texts = transcript.texts
    for number, demand in enumerate(transcript.demands):
        place = f"{transcript.name}, demand {number}"
        if not 1 <= demand.turn <= len(texts):
            raise ValueError(f"{place}: the dialog has no turn {demand.turn} that needs a value")
        if not demand.mentions or [*demand.mentions] != sorted(demand.mentions):
            raise ValueError(f"{place}: it needs mentions, oldest first")
        for turn, start, end in demand.mentions:
            if not (turn < demand.turn and start < end <= len(texts[turn])):
                raise ValueError(f"{place}: a mention is not in a text before turn {demand.turn}")


def _tokens(dialog: _Dialog, spans: NDArray[Any] | None) -> tuple[tuple[Token, ...], ...]:
    name, count = dialog.transcript.name, sum(map(len, dialog.tokens))
    if spans is None or spans.dtype.kind != "i" or spans.shape != (count, 2):
        raise ValueError(f"{name}: spans must be I64 of shape ({count}, 2), for each of its tokens")
    rows, turns = iter(spans.tolist()), []
    lengths = [*map(len, dialog.transcript.texts)]
    for turn, texts in enumerate(dialog.tokens):
        turns.append(tuple(Token(text, *next(rows)) for text in texts))
        length = lengths[turn] if turn < len(lengths) else 0
        for _, start, end in turns[turn]:
            if not 0 <= start <= end <= length:
                raise ValueError(
                    f"{name}, turn {turn}: spans has {start} to {end}, but the text has {length} "
                    "characters"
                )
    return tuple(turns)


def _vectors(arrays: dict[str, NDArray[Any]], number: int, heads: int) -> dict[str, Any]:
    """Take the vectors of a dialog, with keys and values for each head that shares them."""
    vectors: dict[str, Any] = {}
    for name, axes in _VECTORS.items():
        array = arrays.pop(key := f"{number}.{name}", None)
        if array is None and name == "surprisal":
            continue
        if array is None or array.dtype.kind != "f" or array.ndim != axes:
            raise ValueError(f"{key} must be an array of floats with {axes} axes")
        if axes == 3:
            count, *shape = array.shape
            if shape != [*vectors.get("queries", array).shape[1:]]:
                raise ValueError(f"{key} has shape {array.shape}, other than that of its queries")
            if not count or heads % count or (name == "queries" and count != heads):
                raise ValueError(f"{key} has {count} heads, which must divide the {heads} heads")
            array = array.repeat(heads // count, axis=0)
        vectors[name] = array.astype(np.float32, copy=False)
    return vectors
