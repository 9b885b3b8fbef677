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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from tokenize import TokenError
from typing import IO, Any, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fdkvc.attention import Floats
from fdkvc.corpora.recordings import Recording, Token
from fdkvc.corpora.transcripts import (
    Demand,
    Mention,
    Transcript,
    Turn,
    check_size,
    clean,
    clean_name,
    different_names,
)
from fdkvc.limits import MAX_DIALOGS, MAX_TRACE_BYTES, MAX_TRACE_DIMENSIONS, MAX_TRACE_HEADS
from fdkvc.parameters import check_most

VERSION = 1


LARGEST_HALF = float(np.finfo(np.float16).max)
"""The largest 16-bit float: 65,504."""


Arrays = Mapping[str, NDArray[Any]]

SHAPES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "version": ("int", ()),  # 1
    "source": ("str", ()),  # origin of the vectors, such as a model and its layer
    "heads": ("int", ("H",)),  # number of each head in its layer
    "dialog_names": ("str", ("D",)),  # equal ones are numbered
    "dialog_clusters": ("str", ("D",)),  # task or service of each dialog, or empty
    "dialog_turns": ("int", ("D",)),  # turns of each dialog
    "missing": ("int", ("D",)),  # arguments of calls and values of states without a mention
    "turn_speakers": ("str", ("T",)),
    "turn_texts": ("str", ("T",)),
    "turn_topics": ("str", ("T",)),  # empty where a turn has none
    "turn_kinds": ("str", ("T",)),  # system for a prompt, result for a tool's result, or empty
    "turn_calls": ("int", ("T",)),  # characters at the start of each text that are calls
    "turn_tokens": ("int", ("T",)),  # tokens of each turn
    "token_texts": ("str", ("N",)),  # in the tokenizer's form
    "token_spans": ("int", ("N", "2")),  # characters of the turn's text, the end excluded
    "embeddings": ("float", ("N", "d")),
    "queries": ("float", ("H", "N", "h")),  # after positional rotation: q·k/√h is the logit
    "keys": ("float", ("K", "N", "h")),  # K is H, or where H / K query heads in a row share
    "values": ("float", ("K", "N", "h")),  # their keys and values, the number of these
    "demand_kinds": ("str", ("Q",)),  # call or state
    "demand_places": ("int", ("Q", "2")),  # dialog, and the turn that needs the value
    "demand_sources": ("str", ("Q",)),  # method, or service
    "demand_slots": ("str", ("Q",)),
    "demand_values": ("str", ("Q",)),
    "demand_carried": ("int", ("Q",)),  # 1: mentioned only for other services, else 0
    "demand_calls": ("int", ("Q",)),  # place of the call among the dialog's, 0 for a state
    "mentions": ("int", ("M", "4")),  # demand, turn, first character, end; oldest first
    "surprisal": ("float", ("N",)),  # −log of each token's probability, in nats
}
"""Type and axes of every array; a letter is the same length everywhere."""

OPTIONAL = (
    *("demand_carried", "demand_calls", "surprisal"),
    *("dialog_clusters", "turn_kinds", "turn_calls"),
)
"""Arrays that may be absent."""

_KINDS: Mapping[str, tuple[str, str]] = {
    "int": ("i8", "whole numbers of 64 bits"),
    "str": ("U", "texts"),
    "float": ("f2 f4", "floats of 16 or 32 bits"),
}
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


def trace_bytes(recordings: Sequence[Recording], half: bool = False) -> bytes:
    """Return a trace file of recordings of the same heads and dimensions, with different names.

    `half` rounds vectors to 16 bits, for half the size; arrays with larger numbers keep 32. Raises
    a ValueError if there are none, they differ in heads or source, or the file would be too large.
    """
    if not recordings:
        raise ValueError("there are no recordings to write")
    first = recordings[0]
    for recording in recordings:
        if recording.heads != first.heads or recording.source != first.source:
            raise ValueError("the recordings are not of the same heads of the same model")
        if (recording.surprisal is None) != (first.surprisal is None):
            raise ValueError("only some of the recordings have surprisal")
    arrays = _arrays_of(recordings, half)
    _size_of(arrays).check()
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


@dataclass(frozen=True)
class TraceSize:
    """The size of recordings in a trace file; sizes add up."""

    lengths: Mapping[str, int]
    widths: Mapping[str, int]
    """Bytes of an item of each array."""

    def __add__(self, other: TraceSize) -> TraceSize:
        mine, theirs = self.lengths, other.lengths
        return TraceSize(
            {axis: mine[axis] + (theirs[axis] if axis in GROWING else 0) for axis in mine},
            {name: max(width, other.widths[name]) for name, width in self.widths.items()},
        )

    @property
    def bytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(
            width
            * math.prod(
                int(axis) if axis.isdigit() else self.lengths[axis] for axis in SHAPES[name][1]
            )
            for name, width in self.widths.items()
        )

    def check(self) -> None:
        """Raise a ValueError that says which limit is exceeded, if one is."""
        for axis, length in self.lengths.items():
            check_most("the trace has", length, *AXES[axis])
        check_most("the trace has", self.bytes, "bytes", MAX_TRACE_BYTES)


def trace_size(recording: Recording, half: bool = False) -> TraceSize:
    """Return the size of a recording in a trace file; for `half` see `trace_bytes`."""
    return _size_of(_arrays_of([recording], half))


def _size_of(arrays: Arrays) -> TraceSize:
    lengths = {
        axis: length
        for name, array in arrays.items()
        for axis, length in zip(SHAPES[name][1], array.shape, strict=True)
        if not axis.isdigit()
    }
    return TraceSize(lengths, {name: array.itemsize for name, array in arrays.items()})


def _arrays_of(recordings: Sequence[Recording], half: bool) -> dict[str, Any]:
    transcripts = [recording.transcript for recording in recordings]
    turns = [turn for transcript in transcripts for turn in transcript.turns]
    tokens = [token for recording in recordings for turn in recording.tokens for token in turn]
    demands = [
        (at, demand) for at, transcript in enumerate(transcripts) for demand in transcript.demands
    ]
    mentions = [
        (at, mention.turn, mention.start, mention.end)
        for at, (_, demand) in enumerate(demands)
        for mention in demand.mentions
    ]

    def texts(values: Sequence[str]) -> NDArray[np.str_]:
        return np.array(values, np.str_)

    def ints(values: Any, *shape: int) -> NDArray[np.int64]:
        return np.array(values, np.int64).reshape(shape or -1)

    def joined(name: str, axis: int, step: int = 1) -> NDArray[Any]:
        parts = [getattr(recording, name)[::step] for recording in recordings]
        fits = half and max(float(np.abs(part).max()) for part in parts) <= LARGEST_HALF
        return np.concatenate(parts, axis=axis).astype(np.float16 if fits else np.float32)

    surprisal = {} if recordings[0].surprisal is None else {"surprisal": joined("surprisal", 0)}
    sharing = _sharing(recordings)
    return {
        "version": np.int64(VERSION),
        "source": np.str_(recordings[0].source),
        "heads": ints(recordings[0].heads),
        "dialog_names": texts([transcript.name for transcript in transcripts]),
        "dialog_clusters": texts([transcript.cluster for transcript in transcripts]),
        "dialog_turns": ints([len(transcript.turns) for transcript in transcripts]),
        "missing": ints([transcript.missing for transcript in transcripts]),
        "turn_speakers": texts([turn.speaker for turn in turns]),
        "turn_texts": texts([turn.text for turn in turns]),
        "turn_topics": texts([turn.topic or "" for turn in turns]),
        "turn_kinds": texts([turn.kind or "" for turn in turns]),
        "turn_calls": ints([turn.call_characters for turn in turns]),
        "turn_tokens": ints([len(turn) for recording in recordings for turn in recording.tokens]),
        "token_texts": texts([token.text for token in tokens]),
        "token_spans": ints([(token.start, token.end) for token in tokens], -1, 2),
        "embeddings": joined("embeddings", 0),
        "queries": joined("queries", 1),
        "keys": joined("keys", 1, sharing),
        "values": joined("values", 1, sharing),
        "demand_kinds": texts([demand.kind for _, demand in demands]),
        "demand_places": ints([(at, demand.turn) for at, demand in demands], -1, 2),
        "demand_sources": texts([demand.source for _, demand in demands]),
        "demand_slots": texts([demand.slot for _, demand in demands]),
        "demand_values": texts([demand.value for _, demand in demands]),
        "demand_carried": ints([demand.carried for _, demand in demands]),
        "demand_calls": ints([demand.call_number for _, demand in demands]),
        "mentions": ints(mentions, -1, 4),
        **surprisal,
    }


def _sharing(recordings: Sequence[Recording]) -> int:
    """Return how many consecutive heads share keys and values, in all recordings."""
    size, *others = {size for recording in recordings for size in recording.groups}
    if others or size == 1:
        return 1
    values = (recording.values for recording in recordings)
    same = (np.array_equal(each, each[::size].repeat(size, axis=0)) for each in values)
    return size if all(same) else 1


# ------------------------------------------------------------------------------- reading


def read_trace_file(file: IO[bytes], most_bytes: int = MAX_TRACE_BYTES) -> tuple[Recording, ...]:
    """Read a trace file that is able to seek.

    Names, sizes, shapes and types are checked before an array is read. `most_bytes` limits the
    file, and all its arrays together. Raises a ValueError that names the array, or the dialog and
    turn, and the problem.
    """
    arrays = _read_arrays(file, most_bytes)
    if int(arrays["version"]) != VERSION:
        raise ValueError(f"version is {int(arrays['version'])}, but only {VERSION} can be read")
    turns = _counts("dialog_turns", arrays["dialog_turns"], len(arrays["turn_texts"]), "turns")
    _counts("turn_tokens", arrays["turn_tokens"], len(arrays["token_texts"]), "tokens")
    names = [clean_name(str(name)) for name in arrays["dialog_names"]]
    different = different_names(names)
    heads, kv_heads = len(arrays["heads"]), len(arrays["keys"])
    if heads % kv_heads:
        raise ValueError(
            f"there are {kv_heads} heads of keys, but they must divide the {heads} of queries"
        )
    demands = _demands(arrays, turns)
    token_starts = np.concatenate([[0], np.cumsum(arrays["turn_tokens"])])
    kinds = arrays.get("turn_kinds", np.zeros(sum(turns), "U1"))
    called = arrays.get("turn_calls", np.zeros(sum(turns), np.int64))
    clusters = arrays.get("dialog_clusters", np.zeros(len(names), "U1"))
    found, first = [], 0
    for dialog, (name, count) in enumerate(zip(names, turns, strict=True)):
        own = range(first, first + count)
        lengths = arrays["turn_tokens"][first : first + count].tolist()
        check_size(name, lengths)
        own_turns = tuple(
            Turn(
                clean_name(str(arrays["turn_speakers"][at])),
                clean(str(arrays["turn_texts"][at])),
                clean_name(str(arrays["turn_topics"][at])) or None,
                _kind(str(kinds[at]), at),
                int(called[at]),
            )
            for at in own
        )
        missing = int(arrays["missing"][dialog])
        cluster = clean_name(str(clusters[dialog]))
        transcript = Transcript(name, own_turns, tuple(demands[dialog]), missing, cluster=cluster)
        transcript = transcript.with_name(different[dialog])
        low, high = int(token_starts[first]), int(token_starts[first + count])
        tokens = tuple(_tokens(arrays, token_starts, at, at - first, transcript) for at in own)
        found.append(
            Recording(
                transcript,
                tokens,
                embeddings=arrays["embeddings"][low:high].astype(np.float32),
                queries=arrays["queries"][:, low:high].astype(np.float32),
                keys=_of_heads(arrays["keys"][:, low:high], heads),
                values=_of_heads(arrays["values"][:, low:high], heads),
                heads=tuple(arrays["heads"].tolist()),
                source=clean(str(arrays["source"])),
                surprisal=(
                    arrays["surprisal"][low:high].astype(np.float32)
                    if "surprisal" in arrays
                    else None
                ),
            )
        )
        first += count
    return tuple(found)


def _of_heads(vectors: NDArray[Any], heads: int) -> Floats:
    """Repeat vectors of KV heads (K, n, h) for the query heads that share them (H, n, h)."""
    return vectors.astype(np.float32).repeat(heads // len(vectors), axis=0)


def _read_arrays(file: IO[bytes], most_bytes: int) -> dict[str, NDArray[Any]]:
    """Check names, sizes, shapes and types, then read every array."""
    size = file.seek(0, io.SEEK_END)
    if not size:
        raise ValueError("the file is empty")
    check_most("the file has", size, "bytes", most_bytes)
    try:
        with zipfile.ZipFile(file) as archive:
            members = _members(archive)
            declared = sum(info.file_size for info in members.values())
            check_most("the file declares", declared, "bytes", most_bytes)
            lengths: dict[str, int] = {}
            for name, info in members.items():
                _check_header(archive, info, name, lengths)
            return {name: _read_array(archive, info, name) for name, info in members.items()}
    except (zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise ValueError(f"the file is not an .npz archive: {_reason(error)}") from None
    except (EOFError, OSError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise ValueError(f"the archive is broken: {_reason(error)}") from None


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the archive member of each array; none may be missing, repeated or unknown."""
    found = archive.infolist()
    names = [info.filename for info in found]
    wanted = [name for name in SHAPES if name not in OPTIONAL or f"{name}.npy" in names]
    for name in wanted:
        if names.count(f"{name}.npy") != 1:
            raise ValueError(f"the file must have one array {name}")
    if len(names) != len(wanted):
        raise ValueError(f"the file has {len(names)} arrays, but a trace has {len(wanted)}")
    for info in found:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{info.filename} has an unsupported compression")
    return {name: archive.getinfo(f"{name}.npy") for name in wanted}


def _check_header(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, lengths: dict[str, int]
) -> None:
    """Check an array's shape, type and size by its header alone."""
    kind, axes = SHAPES[name]
    with archive.open(info) as member:
        shape, dtype, start = _header(member, name)
    types, allowed = _KINDS[kind]
    if (dtype.kind if kind == "str" else dtype.str[1:]) not in types.split():
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


def _header(member: IO[bytes], name: str) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    try:
        version = npy.read_magic(member)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, fortran_order, dtype = read(member)
    except (ValueError, KeyError, SyntaxError, TypeError, TokenError, RecursionError, MemoryError):
        raise ValueError(f"{name} is not an array in NumPy's format") from None
    if dtype.hasobject or dtype.fields is not None or fortran_order:
        raise ValueError(f"{name} must be a plain array in C order")
    if any(not isinstance(length, int) or length < 0 for length in shape):
        raise ValueError(f"{name} has an impossible shape")
    return shape, dtype, member.tell()


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> NDArray[Any]:
    with archive.open(info) as member:
        try:
            array: NDArray[Any] = npy.read_array(member, allow_pickle=False)
        except ValueError as error:
            raise ValueError(f"{name} cannot be read: {_reason(error)}") from None
    if array.dtype.kind != "U":
        return array
    codes = np.frombuffer(array.tobytes(), f"{array.dtype.str[0]}u4")
    if codes.max(initial=0) > sys.maxunicode:
        raise ValueError(f"{name} has an invalid character")
    return np.array(array.tolist(), np.object_)  # as str, which need no padding


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _counts(name: str, counts: NDArray[Any], total: int, what: str) -> list[int]:
    """Return counts that must not be negative and must add up."""
    found = [int(count) for count in counts]
    if min(found, default=0) < 0 or sum(found) != total:
        raise ValueError(f"{name} does not add up to the {total} {what} in the file")
    return found


def _kind(kind: str, turn: int) -> Literal["system", "result"] | None:
    match kind:
        case "":
            return None
        case "system" | "result":
            return kind
    raise ValueError(f"turn {turn} has the kind {kind[:40]!r}, but must have system or result")


def _tokens(
    arrays: Arrays, starts: NDArray[Any], at: int, turn: int, transcript: Transcript
) -> tuple[Token, ...]:
    size, own = len(transcript.turns[turn].text), slice(*starts[at : at + 2].tolist())
    found = []
    spans = arrays["token_spans"][own].tolist()
    for text, (start, end) in zip(arrays["token_texts"][own], spans, strict=True):
        if not 0 <= start <= end <= size:
            raise ValueError(
                f"{transcript.name}, turn {turn}: token_spans has {start} to {end}, but the text "
                f"has {size} characters"
            )
        found.append(Token(clean_name(text), start, end))
    return tuple(found)


def _demands(arrays: Arrays, turns: Sequence[int]) -> list[list[Demand]]:
    count = len(arrays["demand_kinds"])
    mentions: list[list[Mention]] = [[] for _ in range(count)]
    for demand, *place in arrays["mentions"].tolist():
        if not 0 <= demand < count:
            raise ValueError(f"mentions has demand {demand}, but there are {count}")
        mentions[demand].append(Mention(*place))
    texts = np.split(arrays["turn_texts"], np.cumsum(turns)[:-1])
    zeros = np.zeros(count, np.int64)
    carried, calls = (arrays.get(f"demand_{name}", zeros) for name in ("carried", "calls"))
    found: list[list[Demand]] = [[] for _ in turns]
    for at, (dialog, turn) in enumerate(arrays["demand_places"].tolist()):
        place = f"demand {at}"
        kind = str(arrays["demand_kinds"][at])
        if kind not in ("call", "state"):
            raise ValueError(f"{place}: its kind is {kind[:40]!r}, but must be call or state")
        if not (0 <= dialog < len(turns) and 1 <= turn <= turns[dialog]):
            raise ValueError(f"{place}: there is no dialog {dialog} that has a turn {turn}")
        own = mentions[at]
        if not own or own != sorted(own):
            raise ValueError(f"{place}: it needs mentions, oldest first")
        for mention in own:
            if not (
                0 <= mention.turn < turn
                and 0 <= mention.start < mention.end <= len(texts[dialog][mention.turn])
            ):
                raise ValueError(f"{place}: a mention is not in a text before turn {turn}")
        source, slot, value = (
            clean_name(str(arrays[f"demand_{name}"][at])) for name in ("sources", "slots", "values")
        )
        demanded = (turn, source, slot, value, tuple(own), bool(carried[at]), int(calls[at]))
        found[dialog].append(Demand(kind, *demanded))  # type: ignore[arg-type]
    return found
