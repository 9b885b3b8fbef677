"""Trace files give back what was written, and nothing else is read."""

from __future__ import annotations

import dataclasses
import io
import re
import struct
import tracemalloc
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.conversations import trace_file
from fdkvc.conversations.formats import EXAMPLES, read_file
from fdkvc.conversations.lexical import lexical_recording
from fdkvc.conversations.trace_file import (
    OPTIONAL,
    SHAPES,
    read_trace_file,
    trace_bytes,
    trace_size,
)
from fdkvc.core.recordings import Recording
from fdkvc.core.transcripts import Demand, Mention, Transcript, Turn
from fdkvc.engine.simulate import simulate
from fdkvc.explain.notes import not_read_notes
from fdkvc.policies import policy_named
from tests.refusals import assert_one_sentence, assert_read_or_refused

RECORDINGS = [lexical_recording(dialog) for dialog in read_file(EXAMPLES / "dialogues.json")]
SMALL = [
    lexical_recording(
        Transcript(name, (Turn("User", "a b\n", "A"), Turn("Bot", ""), Turn("é", "c")))
    )
    for name in ("one", "two")
]
CARRIED = Demand("state", 2, "B", "slot", "a", (Mention(0, 0, 1),), carried=True)
CONTENT = trace_bytes(RECORDINGS)
VECTORS = ("embeddings", "queries", "keys", "values", "surprisal")


def read(content: bytes, **settings: int) -> tuple[Recording, ...]:
    return read_trace_file(content, **settings)


def arrays() -> dict[str, Any]:
    with np.load(io.BytesIO(CONTENT), allow_pickle=False) as loaded:
        return dict(loaded)


def archive(members: dict[str, Any], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Write arrays, or bytes as they are, into an archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as made:
        for name, value in members.items():
            if not isinstance(value, bytes):
                buffer = io.BytesIO()
                np.save(buffer, value, allow_pickle=True)
                value = buffer.getvalue()
            made.writestr(f"{name}.npy", value)
    return file.getvalue()


def encrypted(content: bytes) -> bytes:
    """Mark every member of an archive as encrypted, in its central directory."""
    head, entries = content[: (at := content.index(b"PK\x01\x02"))], content[at:]
    return head + re.sub(rb"(?s)(PK\x01\x02.{4}).", lambda match: match[1] + b"\x01", entries)


def changed(**members: Any) -> bytes:
    return archive({**arrays(), **members})


def header(shape: str, descr: str = "<f4", data: bytes = b"", order: str = "False") -> bytes:
    """Write an array whose header says what it likes."""
    text = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


# ------------------------------------------------------------------------------- what is written


@pytest.mark.parametrize(
    "recordings",
    [
        RECORDINGS,
        RECORDINGS[1:],
        SMALL,
        [
            dataclasses.replace(
                recording, transcript=dataclasses.replace(recording.transcript, demands=(CARRIED,))
            )
            for recording in SMALL
        ],
    ],
)
def test_what_was_written_is_read_again(recordings: list[Recording]) -> None:
    reread = read(trace_bytes(recordings))

    assert len(reread) == len(recordings)
    for one, other in zip(recordings, reread, strict=True):
        # The file has what calls demand, and not the calls, which only a model writes.
        assert dataclasses.replace(one.transcript, calls=()) == other.transcript
        assert one.tokens == other.tokens
        assert (one.heads, one.source) == (other.heads, other.source)
        assert one.evidence == other.evidence
        for name in VECTORS:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)


def test_anyone_with_numpy_can_load_it_by_its_description() -> None:
    loaded = arrays()

    assert set(loaded) == set(SHAPES)
    lengths: dict[str, int] = {}
    for name, (_, axes) in SHAPES.items():
        for axis, length in zip(axes, loaded[name].shape, strict=True):
            assert lengths.setdefault(axis, length) == length
    assert (lengths["D"], lengths["H"], lengths["d"], lengths["h"]) == (2, 1, 64, 16)
    first = loaded["turn_tokens"][0]
    text = loaded["turn_texts"][0]
    cut = [text[start:end] for start, end in loaded["token_spans"][:first]]
    assert cut == loaded["token_texts"][:first].tolist()
    demand, turn, start, end = loaded["mentions"][0]
    assert loaded["demand_values"][demand] == loaded["turn_texts"][turn][start:end]


def test_a_file_may_lack_surprisal_and_a_policy_that_weighs_it_says_so() -> None:
    older = archive({name: array for name, array in arrays().items() if name not in OPTIONAL})
    (first, second) = read(older)
    without = [dataclasses.replace(one, surprisal=None) for one in RECORDINGS]

    assert (first.surprisal, second.surprisal) == (None, None)
    assert read(trace_bytes(without))[0].surprisal is None
    np.testing.assert_array_equal(first.keys, RECORDINGS[0].keys)
    assert simulate(policy_named("h2o"), first.dialogs, 48).turns == len(first.tokens)
    with pytest.raises(ValueError, match="needs the surprisal of every token"):
        simulate(policy_named("surprisal"), first.dialogs, 48)
    with pytest.raises(ValueError, match="only some of the recordings have surprisal"):
        trace_bytes([RECORDINGS[0], without[1]])


def shared(groups: tuple[int, ...], values_too: bool = True) -> list[Recording]:
    """Return recordings with heads of which these groups have the same keys."""
    copies = []
    for recording in RECORDINGS:
        factors = np.repeat(np.arange(len(groups), dtype=np.float32), groups)[:, None, None] + 1
        every = np.arange(len(factors), dtype=np.float32)[:, None, None] + 1
        vectors: dict[str, Any] = {
            "queries": recording.queries * every,
            "keys": recording.keys * factors,
            "values": recording.values * (factors if values_too else every),
        }
        heads = tuple(range(len(factors)))
        copies.append(dataclasses.replace(recording, heads=heads, **vectors))
    return copies


@pytest.mark.parametrize(
    ("groups", "values_too", "stored"),
    [((2, 2), True, 2), ((4,), True, 1), ((1, 3), True, 4), ((2, 2), False, 4)],
)
def test_what_heads_share_is_stored_once(
    groups: tuple[int, ...], values_too: bool, stored: int
) -> None:
    recordings = shared(groups, values_too)
    content = trace_bytes(recordings)
    with np.load(io.BytesIO(content)) as loaded:
        assert loaded["queries"].shape[0] == 4
        assert loaded["keys"].shape[0] == loaded["values"].shape[0] == stored

    grown = trace_size(recordings[0]) + trace_size(recordings[1])
    with np.load(io.BytesIO(content)) as loaded:
        assert grown.bytes == sum(array.nbytes for array in loaded.values())
    for one, other in zip(recordings, read(content), strict=True):
        assert other.groups == groups
        for name in VECTORS:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)


def test_how_large_a_file_becomes_is_known_as_it_grows() -> None:
    grown = trace_size(RECORDINGS[0]) + trace_size(RECORDINGS[1])

    assert grown.bytes == sum(array.nbytes for array in arrays().values())
    assert grown.lengths["D"] == 2
    grown.check()
    many = sum([trace_size(RECORDINGS[0])] * 2000, trace_size(RECORDINGS[0]))
    with pytest.raises(ValueError, match=r"^the trace has 2,001 dialogs, but at most"):
        many.check()


def test_what_could_not_be_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "MAX_TRACE_BYTES", 100_000)
    with pytest.raises(ValueError, match=r"the trace has .* bytes, but at most"):
        trace_bytes(RECORDINGS)
    monkeypatch.setattr(trace_file, "MAX_TRACE_BYTES", 1_000_000)
    monkeypatch.setitem(trace_file.AXES, "N", ("tokens", 100))
    with pytest.raises(ValueError, match="the trace has 657 tokens, but at most"):
        trace_bytes(RECORDINGS)


def test_recordings_that_do_not_go_together_are_not_written() -> None:
    other = dataclasses.replace(RECORDINGS[0], source="another")
    with pytest.raises(ValueError, match="not of the same heads of the same model"):
        trace_bytes([RECORDINGS[1], other])
    with pytest.raises(ValueError, match="no recordings"):
        trace_bytes([])


# ------------------------------------------------------------------------------- what is refused

FULL = arrays()
WRONG_SPANS = np.where(np.arange(FULL["token_spans"].size).reshape(-1, 2) == 3, 999, 0)
TOKENS = len(FULL["token_texts"])


def nudged(name: str, at: tuple[int, ...], value: int) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = FULL[name].copy()
    array[at] = value
    return array


def test_a_name_that_is_given_again_is_numbered_as_in_other_files() -> None:
    transcripts = [
        recording.transcript for recording in read(changed(dialog_names=np.array(["a", "a"])))
    ]

    assert [transcript.name for transcript in transcripts] == ["a", "a (2)"]
    assert not_read_notes(transcripts) == ["Dialogs of the same name are numbered: a (2)."]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "the file is empty"),
        (b"PK\x03\x04 nothing", "the file is not an .npz archive"),
        (CONTENT[:-30], "the file is not an .npz archive"),
        (archive({}), "the file must have one array version"),
        (changed(extra=np.zeros(3)), "the file has 29 arrays, but a trace has 28"),
        (archive(FULL, zipfile.ZIP_BZIP2), "has an unsupported compression"),
        (encrypted(archive(FULL)), "version.npy is encrypted"),
        (changed(version=np.int64(2)), "version is 2, but only 1 can be read"),
        (changed(version=np.array([1])), "version has 1 axes, but must have 0"),
        (changed(heads=np.array([0.0])), "heads has the type <f8, but must be whole numbers"),
        (changed(keys=FULL["keys"].astype("f8")), "keys has the type <f8, but must be floats of"),
        (changed(source=np.array({})), "source must be a plain array in C order"),
        (changed(source=np.void(b"abc")), r"source has the type \|V3, but must be texts"),
        (changed(source=b"nonsense"), "source is not an array in NumPy's format"),
        (changed(source=header("(3")), "source is not an array in NumPy's format"),
        (changed(source=header("()", "<U-3")), "source is not an array in NumPy's format"),
        (changed(keys=header("(1, -4, 16)")), "keys has an impossible shape"),
        (
            changed(
                **{name: FULL[name].repeat(3, axis=0) for name in ("keys", "values")},
                queries=FULL["queries"].repeat(4, axis=0),
                heads=np.arange(4),
            ),
            "but they must divide the 4 of queries",
        ),
        (changed(keys=header("(1, 10, 16)")), f"keys has shape .*, but its N must be {TOKENS}"),
        (
            changed(embeddings=header(f"({TOKENS}, {2**60})")),
            "embeddings has .*, but d is at most 16,384",
        ),
        (
            changed(embeddings=header(f"({TOKENS}, 64)")),
            "the size of embeddings differs from its shape",
        ),
        (
            changed(embeddings=header(f"({TOKENS}, 64)", order="True")),
            "embeddings must be a plain array in C order",
        ),
        (changed(heads=np.array([-1])), "the heads are -1, but must be"),
        (changed(heads=np.zeros(0, np.int64)), r"heads has shape \(0,\), but H is at least 1"),
        (
            changed(token_texts=header(f"({TOKENS},)", "<U1", b"\xff\xff\xff\x7f" * TOKENS)),
            "token_texts has an invalid character",
        ),
        (changed(token_spans=WRONG_SPANS), "token_spans has 0 to 999|has 999 to"),
        (changed(turn_tokens=FULL["turn_tokens"] + 1), "turn_tokens does not add up to the"),
        (
            changed(turn_tokens=nudged("turn_tokens", (0,), -1)),
            "turn_tokens does not add up to the",
        ),
        (
            changed(dialog_turns=FULL["dialog_turns"][::-1] - [1, 0]),
            "dialog_turns does not add up to the 36 turns",
        ),
        (changed(demand_kinds=np.full(len(FULL["demand_kinds"]), "wish")), "demand 0: its kind is"),
        (
            changed(demand_places=nudged("demand_places", (0, 0), 7)),
            "demand 0: there is no dialog 7 that has a",
        ),
        (
            changed(demand_places=nudged("demand_places", (0, 1), 0)),
            "demand 0: there is no dialog 0 that has a",
        ),
        (changed(mentions=nudged("mentions", (0, 0), -1)), "mentions has demand -1, but there are"),
        (changed(mentions=nudged("mentions", (0, 0), 5)), "it needs mentions, oldest first"),
        (changed(mentions=nudged("mentions", (0, 3), 900)), "demand 0: a mention is not in"),
        (changed(mentions=nudged("mentions", (0, 1), 1)), "demand 0: "),
        (
            changed(keys=np.where(np.arange(16) == 3, np.nan, FULL["keys"]).astype("f4")),
            "keys holds a number that is not finite",
        ),
        (
            changed(surprisal=np.where(np.arange(TOKENS) == 3, -1, FULL["surprisal"]).astype("f4")),
            "surprisal holds a number below 0",
        ),
        (
            changed(keys=np.where(np.arange(16) == 3, 1e38, FULL["keys"]).astype("f4")),
            r"keys holds a number beyond ±1e\+15",
        ),
    ],
)
def test_a_file_that_is_not_right_gets_one_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        read(content)
    assert_one_sentence(caught.value)


def test_sizes_are_checked_before_anything_is_read() -> None:
    with pytest.raises(ValueError, match=r"the file has .* bytes, but at most 1,000"):
        read(CONTENT, most_bytes=1000)
    bomb = changed(values=header(f"(1, {TOKENS}, 16)", data=bytes(40_000_000)))
    assert len(bomb) < 1_000_000
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"the file declares .* bytes, but at most"):
        read(bomb, most_bytes=30_000_000)
    with pytest.raises(ValueError, match="the size of values differs from its shape and"):
        read(bomb)
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()


def test_nothing_pickled_is_run() -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (pytest.fail, ("it was run",))

    trap = np.empty((), object)
    trap[()] = Trap()
    with pytest.raises(ValueError, match="source must be a plain array"):
        read(changed(source=trap))


STORED = archive({**{name: FULL[name] for name in SHAPES}}, zipfile.ZIP_STORED)


@given(st.data(), st.sampled_from([trace_bytes(SMALL), STORED]))
def test_a_file_overwritten_or_cut_anywhere_is_read_or_refused(
    data: st.DataObject, content: bytes
) -> None:
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(start + 8, len(content))))
    assert_read_or_refused(
        lambda: read(content[:start] + data.draw(st.binary(max_size=8)) + content[end:])
    )


@given(st.data())
def test_any_array_in_place_of_another_is_read_or_refused(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(list(SHAPES)))
    array = FULL[name]
    kind = data.draw(st.sampled_from(["i8", "f4", "f2", "U3", "U0", "S2", "?", array.dtype.str]))
    shape = data.draw(st.sampled_from([array.shape, (), (0,), (2, 2), (*array.shape, 1)]))
    number = data.draw(st.sampled_from([0, 1, -1, 2**40]))
    with np.errstate(all="ignore"):
        assert_read_or_refused(lambda: read(changed(**{name: np.full(shape, number).astype(kind)})))
