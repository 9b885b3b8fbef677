"""Trace files: recordings as one ``.npz`` of plain arrays.

`SHAPES` lists the arrays: D dialogs with T turns, N tokens, Q demands and M mentions in all,
concatenated; H heads, K heads of keys. Integers have 64 bits, floats 16 or 32; computation uses
float32. Nothing is pickled. Dialogs, turns and demands count from 0.
"""

from __future__ import annotations

import io
import math
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fdkvc.core.limits import MAX_DIALOGS, MAX_TRACE_BYTES, MAX_TRACE_DIMENSIONS, MAX_TRACE_HEADS
from fdkvc.core.parameters import check_most
from fdkvc.core.recordings import Recording, Token
from fdkvc.core.transcripts import (
    Demand,
    Mention,
    Transcript,
    Turn,
    clean,
    clean_name,
    different_names,
)
from fdkvc.core.words import error_reason

VERSION = 1

Arrays = Mapping[str, NDArray[Any]]

SHAPES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "version": ("int", ()),  # 1
    "source": ("text", ()),  # origin of the vectors, such as a model and its layer
    "heads": ("int", ("H",)),  # number of each head in its layer
    "dialog_names": ("name", ("D",)),  # equal ones are numbered
    "dialog_clusters": ("name", ("D",)),  # task or service of each dialog, or empty
    "dialog_turns": ("int", ("D",)),  # turns of each dialog
    "missing": ("int", ("D",)),  # arguments of calls and values of states without a mention
    "turn_speakers": ("name", ("T",)),
    "turn_texts": ("text", ("T",)),
    "turn_topics": ("name", ("T",)),  # empty where a turn has none
    "turn_kinds": ("name", ("T",)),  # system for a prompt, result for a tool's result, or empty
    "turn_calls": ("int", ("T",)),  # characters at the start of each text that are calls
    "turn_tokens": ("int", ("T",)),  # tokens of each turn
    "token_texts": ("name", ("N",)),  # in the tokenizer's form
    "token_spans": ("int", ("N", "2")),  # characters of the turn's text, the end excluded
    "embeddings": ("float", ("N", "d")),
    "queries": ("float", ("H", "N", "h")),  # after positional rotation: q·k/√h is the logit
    "keys": ("float", ("K", "N", "h")),  # K is H, or where H / K query heads in a row share
    "values": ("float", ("K", "N", "h")),  # their keys and values, the number of these
    "demand_kinds": ("name", ("Q",)),  # call or state
    "demand_places": ("int", ("Q", "2")),  # dialog, and the turn that needs the value
    "demand_sources": ("name", ("Q",)),  # method, or service
    "demand_slots": ("name", ("Q",)),
    "demand_values": ("name", ("Q",)),
    "demand_carried": ("int", ("Q",)),  # 1: mentioned only for other services, else 0
    "demand_calls": ("int", ("Q",)),  # place of the call among the dialog's, 0 for a state
    "mentions": ("int", ("M", "4")),  # demand, turn, first character, end; oldest first
    "surprisal": ("float", ("N",)),  # −log of each token's probability, in nats
}
"""Type and axes of every array; a letter is the same length everywhere."""

_LATER = ("demand_carried", "demand_calls", "dialog_clusters", "turn_kinds", "turn_calls")
OPTIONAL = (*_LATER, "surprisal")
"""Arrays that may be absent."""

_KINDS: Mapping[str, tuple[str, str]] = {
    "int": ("i8", "whole numbers of 64 bits"),
    "float": ("f2 f4", "floats of 16 or 32 bits"),
    "text": ("U", "texts"),
    "name": ("U", "texts"),
}
"""NumPy's types of each kind, and their description."""

AXES: dict[str, tuple[str, int]] = {
    "D": ("dialogs", MAX_DIALOGS),
    "T": ("turns", 200_000),
    "N": ("tokens", 1_000_000),
    "Q": ("demands", 500_000),
    "M": ("mentions", 1_000_000),
    "H": ("heads", MAX_TRACE_HEADS),
    "K": ("heads of keys", MAX_TRACE_HEADS),
    "d": ("dimensions of an embedding", MAX_TRACE_DIMENSIONS),
    "h": ("dimensions of a head", MAX_TRACE_DIMENSIONS),
}
"""Name and largest length of each axis of `SHAPES`."""

GROWING = "DTNQM"
"""Axes that grow with every recording."""


# ------------------------------------------------------------------------------- writing


def trace_bytes(recordings: Sequence[Recording]) -> bytes:
    """Return a trace file of recordings of the same heads and dimensions, with different names.

    Raises a ValueError if there are none, they differ in heads or source, or the file would be too
    large.
    """
    if not recordings:
        raise ValueError("there are no recordings to write")
    first = recordings[0]
    for recording in recordings:
        if recording.heads != first.heads or recording.source != first.source:
            raise ValueError("the recordings are not of the same heads of the same model")
        if (recording.surprisal is None) != (first.surprisal is None):
            raise ValueError("only some of the recordings have surprisal")
    arrays = _arrays_of(recordings)
    _size_of(arrays).check()
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


@dataclass(frozen=True)
class TraceSize:
    """The size of recordings in a trace file; sizes add up."""

    lengths: Mapping[str, int]
    """Of each axis."""
    widths: Mapping[str, int]
    """Bytes of an item of each array."""

    def __add__(self, other: TraceSize) -> TraceSize:
        lengths = {**self.lengths}
        for axis in GROWING:
            lengths[axis] += other.lengths[axis]
        widths = {name: max(width, other.widths[name]) for name, width in self.widths.items()}
        return TraceSize(lengths, widths)

    @property
    def bytes(self) -> int:
        """Bytes of all arrays together."""
        total = 0
        for name, width in self.widths.items():
            axes = SHAPES[name][1]
            shape = (int(axis) if axis.isdigit() else self.lengths[axis] for axis in axes)
            total += width * math.prod(shape)
        return total

    def check(self) -> None:
        """Raise a ValueError that says which limit is exceeded, if one is."""
        for axis, length in self.lengths.items():
            check_most("the trace has", length, *AXES[axis])
        check_most("the trace has", self.bytes, "bytes", MAX_TRACE_BYTES)


def trace_size(recording: Recording) -> TraceSize:
    """Return the size of a recording in a trace file."""
    return _size_of(_arrays_of([recording]))


def _size_of(arrays: Arrays) -> TraceSize:
    lengths: dict[str, int] = {}
    for name, array in arrays.items():
        sizes = zip(SHAPES[name][1], array.shape, strict=True)
        lengths |= {axis: length for axis, length in sizes if not axis.isdigit()}
    return TraceSize(lengths, {name: array.itemsize for name, array in arrays.items()})


def _arrays_of(recordings: Sequence[Recording]) -> dict[str, Any]:
    transcripts = [recording.transcript for recording in recordings]
    turns = [*chain.from_iterable(transcript.turns for transcript in transcripts)]
    turn_tokens = [*chain.from_iterable(recording.tokens for recording in recordings)]
    tokens = [*chain.from_iterable(turn_tokens)]
    demands: list[tuple[int, Demand]] = []
    for dialog, transcript in enumerate(transcripts):
        demands += [(dialog, demand) for demand in transcript.demands]
    mentions: list[tuple[int, ...]] = []
    for number, (_, demand) in enumerate(demands):
        mentions += [(number, *mention) for mention in demand.mentions]

    def joined(name: str, axis: int, step: int = 1) -> NDArray[Any]:
        parts = [getattr(recording, name)[::step] for recording in recordings]
        return np.concatenate(parts, axis=axis).astype(np.float32)

    sharing = _sharing(recordings)
    columns: dict[str, Any] = {
        "version": VERSION,
        "source": recordings[0].source,
        "heads": recordings[0].heads,
        "dialog_names": [transcript.name for transcript in transcripts],
        "dialog_clusters": [transcript.cluster for transcript in transcripts],
        "dialog_turns": [len(transcript.turns) for transcript in transcripts],
        "missing": [transcript.missing for transcript in transcripts],
        "turn_speakers": [turn.speaker for turn in turns],
        "turn_texts": [turn.text for turn in turns],
        "turn_topics": [turn.topic or "" for turn in turns],
        "turn_kinds": [turn.kind or "" for turn in turns],
        "turn_calls": [turn.call_characters for turn in turns],
        "turn_tokens": [*map(len, turn_tokens)],
        "token_texts": [token.text for token in tokens],
        "token_spans": [(token.start, token.end) for token in tokens],
        "embeddings": joined("embeddings", 0),
        "queries": joined("queries", 1),
        "keys": joined("keys", 1, sharing),
        "values": joined("values", 1, sharing),
        "demand_kinds": [demand.kind for _, demand in demands],
        "demand_places": [(dialog, demand.turn) for dialog, demand in demands],
        "demand_sources": [demand.source for _, demand in demands],
        "demand_slots": [demand.slot for _, demand in demands],
        "demand_values": [demand.value for _, demand in demands],
        "demand_carried": [demand.carried for _, demand in demands],
        "demand_calls": [demand.call_number for _, demand in demands],
        "mentions": mentions,
    }
    if recordings[0].surprisal is not None:
        columns["surprisal"] = joined("surprisal", 0)
    for name, values in columns.items():
        kind, axes = SHAPES[name]
        if kind != "float":
            shape = [int(axis) if axis.isdigit() else -1 for axis in axes]
            dtype = np.int64 if kind == "int" else np.str_
            columns[name] = np.array(values, dtype).reshape(shape)
    return columns


def _sharing(recordings: Sequence[Recording]) -> int:
    """Return how many consecutive heads share keys and values, in all recordings."""
    size, *others = set[int]().union(*(recording.groups for recording in recordings))
    if others or size == 1:
        return 1
    values = (recording.values for recording in recordings)
    shared = (np.array_equal(array, array[::size].repeat(size, axis=0)) for array in values)
    return size if all(shared) else 1


# ------------------------------------------------------------------------------- reading


def read_trace_file(content: bytes, most_bytes: int = MAX_TRACE_BYTES) -> tuple[Recording, ...]:
    """Read a trace file.

    Names, sizes, shapes and types are checked before an array is read. `most_bytes` limits the
    file, and all its arrays together. Raises a ValueError that names the array, or the dialog and
    turn, and the problem.
    """
    arrays = _read_arrays(content, most_bytes)
    if int(arrays["version"]) != VERSION:
        raise ValueError(f"version is {int(arrays['version'])}, but only {VERSION} can be read")
    turns = _counts("dialog_turns", arrays["dialog_turns"], len(arrays["turn_texts"]), "turns")
    _counts("turn_tokens", arrays["turn_tokens"], len(arrays["token_texts"]), "tokens")
    names = arrays["dialog_names"].tolist()
    heads, kv_heads = len(arrays["heads"]), len(arrays["keys"])
    if heads % kv_heads:
        raise ValueError(
            f"there are {kv_heads} heads of keys, but they must divide the {heads} of queries"
        )
    for turn, kind in enumerate(arrays["turn_kinds"].tolist()):
        if kind not in ("", "system", "result"):
            raise ValueError(
                f"turn {turn} has the kind {kind[:40]!r}, but must have system or result"
            )
    demands = _demands(arrays, turns)
    token_starts = np.concatenate([[0], np.cumsum(arrays["turn_tokens"])]).tolist()
    recordings, first = [], 0
    for dialog, name in enumerate(different_names(names)):
        last = first + turns[dialog]
        columns = (
            arrays[f"turn_{column}"][first:last].tolist()
            for column in ("speakers", "texts", "topics", "kinds", "calls")
        )
        transcript = Transcript(
            names[dialog],
            tuple(
                Turn(speaker, text, topic or None, kind or None, calls)
                for speaker, text, topic, kind, calls in zip(*columns, strict=True)
            ),
            tuple(demands[dialog]),
            int(arrays["missing"][dialog]),
            cluster=arrays["dialog_clusters"][dialog],
        ).with_name(name)
        low, high = token_starts[first], token_starts[last]
        vectors = {
            vector: arrays[vector][..., low:high, :].astype(np.float32)
            for vector in ("embeddings", "queries", "keys", "values")
        }
        for vector in ("keys", "values"):  # query heads may share them
            vectors[vector] = vectors[vector].repeat(heads // kv_heads, axis=0)
        surprisal = arrays.get("surprisal")
        recordings.append(
            Recording(
                transcript,
                tuple(_tokens(arrays, transcript, token_starts[first : last + 1])),
                **vectors,
                heads=tuple(arrays["heads"].tolist()),
                source=arrays["source"].item(),
                surprisal=None if surprisal is None else surprisal[low:high].astype(np.float32),
            )
        )
        first = last
    return tuple(recordings)


def _read_arrays(content: bytes, most_bytes: int) -> dict[str, NDArray[Any]]:
    """Check names, sizes, shapes and types, then read every array."""
    if not content:
        raise ValueError("the file is empty")
    check_most("the file has", len(content), "bytes", most_bytes)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = _members(archive)
            declared = sum(info.file_size for info in members.values())
            check_most("the file declares", declared, "bytes", most_bytes)
            lengths: dict[str, int] = {}
            for name, info in members.items():
                _check_header(archive, info, name, lengths)
            arrays = {name: _read_array(archive, info, name) for name, info in members.items()}
    except (zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise ValueError(f"the file is not an .npz archive: {error_reason(error)}") from None
    except (EOFError, NotImplementedError, zlib.error) as error:
        raise ValueError(f"the archive is broken: {error_reason(error)}") from None
    for name in {*OPTIONAL} - {*arrays, "surprisal"}:
        kind, (axis,) = SHAPES[name]
        empty = np.zeros(lengths[axis], np.int64 if kind == "int" else np.str_)
        arrays[name] = empty.astype(np.object_)
    return arrays


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the archive member of each array; none may be missing, repeated or unknown."""
    members = archive.infolist()
    names = [info.filename for info in members]
    wanted = [name for name in SHAPES if name not in OPTIONAL or f"{name}.npy" in names]
    for name in wanted:
        if names.count(f"{name}.npy") != 1:
            raise ValueError(f"the file must have one array {name}")
    if len(names) != len(wanted):
        raise ValueError(f"the file has {len(names)} arrays, but a trace has {len(wanted)}")
    for info in members:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{info.filename} has an unsupported compression")
        if info.flag_bits & 1:
            raise ValueError(f"{info.filename} is encrypted")
    return {name: archive.getinfo(f"{name}.npy") for name in wanted}


def _check_header(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, lengths: dict[str, int]
) -> None:
    """Check an array's shape, type and size by its header alone."""
    try:
        with archive.open(info) as member:
            version = npy.read_magic(member)
            read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
            shape, fortran_order, dtype = read(member)
            start = member.tell()
    except (ValueError, KeyError, SyntaxError, TypeError, TokenError, RecursionError, MemoryError):
        raise ValueError(f"{name} is not an array in NumPy's format") from None
    if dtype.hasobject or dtype.fields is not None or fortran_order:
        raise ValueError(f"{name} must be a plain array in C order")
    if any(not isinstance(length, int) or length < 0 for length in shape):
        raise ValueError(f"{name} has an impossible shape")
    kind, axes = SHAPES[name]
    types, allowed = _KINDS[kind]
    if (dtype.kind if types == "U" else dtype.str[1:]) not in types.split():
        raise ValueError(f"{name} has the type {dtype.str}, but must be {allowed}")
    if len(shape) != len(axes):
        raise ValueError(f"{name} has {len(shape)} axes, but must have {len(axes)}")
    for axis, length in zip(axes, shape, strict=True):
        wanted = int(axis) if axis.isdigit() else lengths.setdefault(axis, length)
        if length != wanted:
            raise ValueError(f"{name} has shape {shape}, but its {axis} must be {wanted}")
        if not axis.isdigit() and length > AXES[axis][1]:
            raise ValueError(f"{name} has shape {shape}, but {axis} is at most {AXES[axis][1]:,}")
        if not length and axis not in ("Q", "M"):
            raise ValueError(f"{name} has shape {shape}, but {axis} is at least 1")
    if start + math.prod(shape) * dtype.itemsize != info.file_size:
        raise ValueError(f"the size of {name} differs from its shape and type")


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> NDArray[Any]:
    with archive.open(info) as member:
        try:
            array: NDArray[Any] = npy.read_array(member, allow_pickle=False)
        except ValueError as error:
            raise ValueError(f"{name} cannot be read: {error_reason(error)}") from None
    if array.dtype.kind != "U":
        return array
    codes = np.frombuffer(array.tobytes(), f"{array.dtype.str[0]}u4")
    if codes.max(initial=0) > sys.maxunicode:
        raise ValueError(f"{name} has an invalid character")
    cleaned = np.vectorize(clean if SHAPES[name][0] == "text" else clean_name, [np.object_])
    return np.asarray(cleaned(np.array(array.tolist(), np.object_)))  # as str, without padding


def _counts(name: str, counts: NDArray[Any], total: int, what: str) -> list[int]:
    """Return counts that must not be negative and must add up."""
    numbers: list[int] = counts.tolist()
    if min(numbers, default=0) < 0 or sum(numbers) != total:
        raise ValueError(f"{name} does not add up to the {total} {what} in the file")
    return numbers


def _tokens(
    arrays: Arrays, transcript: Transcript, starts: Sequence[int]
) -> Iterator[tuple[Token, ...]]:
    """Yield the tokens of each turn of a dialog."""
    for turn, (text, low, high) in enumerate(
        zip(transcript.texts, starts, starts[1:], strict=False)
    ):
        spans = arrays["token_spans"][low:high].tolist()
        for start, end in spans:
            if not 0 <= start <= end <= len(text):
                raise ValueError(
                    f"{transcript.name}, turn {turn}: token_spans has {start} to {end}, but the "
                    f"text has {len(text)} characters"
                )
        names = arrays["token_texts"][low:high]
        yield tuple(Token(name, *span) for name, span in zip(names, spans, strict=True))


def _demands(arrays: Arrays, turns: Sequence[int]) -> list[list[Demand]]:
    count = len(arrays["demand_kinds"])
    mentions: list[list[Mention]] = [[] for _ in range(count)]
    for demand, *place in arrays["mentions"].tolist():
        if not 0 <= demand < count:
            raise ValueError(f"mentions has demand {demand}, but there are {count}")
        mentions[demand].append(Mention(*place))
    texts = np.split(arrays["turn_texts"], np.cumsum(turns)[:-1])
    demands: list[list[Demand]] = [[] for _ in turns]
    names = ("kinds", "sources", "slots", "values", "carried", "calls")
    columns = (arrays[f"demand_{name}"].tolist() for name in names)
    places = arrays["demand_places"].tolist()
    for number, ((dialog, turn), *row) in enumerate(zip(places, *columns, strict=True)):
        (kind, source, slot, value, carried, call), place = row, f"demand {number}"
        if kind not in ("call", "state"):
            raise ValueError(f"{place}: its kind is {kind[:40]!r}, but must be call or state")
        if not (0 <= dialog < len(turns) and 1 <= turn <= turns[dialog]):
            raise ValueError(f"{place}: there is no dialog {dialog} that has a turn {turn}")
        mentioned = tuple(mentions[number])
        if not mentioned or [*mentioned] != sorted(mentioned):
            raise ValueError(f"{place}: it needs mentions, oldest first")
        for mention in mentioned:
            if not (
                0 <= mention.turn < turn
                and 0 <= mention.start < mention.end <= len(texts[dialog][mention.turn])
            ):
                raise ValueError(f"{place}: a mention is not in a text before turn {turn}")
        demand = Demand(kind, turn, source, slot, value, mentioned, bool(carried), call)
        demands[dialog].append(demand)
    return demands
