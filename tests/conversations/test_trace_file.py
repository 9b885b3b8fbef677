"""Trace files give back what was written, and nothing else is read."""

from __future__ import annotations

import copy
import dataclasses
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from fdkvc.conversations import trace_file
from fdkvc.conversations.formats import EXAMPLES, read_file
from fdkvc.conversations.lexical import lexical_recording
from fdkvc.conversations.trace_file import read_trace_file, stored_bytes, trace_bytes
from fdkvc.core.limits import MAX_NAME_CHARACTERS
from fdkvc.core.recordings import Recording
from fdkvc.core.transcripts import Demand, Mention, Transcript, Turn
from fdkvc.engine.simulate import simulate
from fdkvc.explain.notes import not_read_notes
from fdkvc.policies import policy_named
from tests.refusals import any_json, assert_one_sentence, assert_read_or_refused

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
Edit = Callable[[dict[str, Any]], object]


def read(content: bytes, **settings: int) -> tuple[Recording, ...]:
    return read_trace_file(content, **settings)


def opened(content: bytes = CONTENT) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON of a trace and its other arrays, with the library alone."""
    arrays = load(content)
    return json.loads(arrays.pop("dialogs").tobytes()), arrays


def packed(document: object, arrays: dict[str, Any]) -> bytes:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    content: bytes = save({**arrays, "dialogs": np.frombuffer(text, np.uint8)})
    return content


def changed(**arrays: Any) -> bytes:
    """Return the trace with other arrays of its first dialog; None for none."""
    given = {**FULL[1], **{f"0.{name}": array for name, array in arrays.items()}}
    return packed(FULL[0], {name: array for name, array in given.items() if array is not None})


def edited(edit: Edit) -> bytes:
    """Return the trace with other JSON."""
    document = copy.deepcopy(FULL[0])
    edit(document)
    return packed(document, FULL[1])


def of_dialog(edit: Edit) -> bytes:
    """Return the trace with another transcript of the first dialog."""
    return edited(lambda document: edit(document["dialogs"][0]["transcript"]))


FULL = opened()


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
        # The file has what calls demand, and neither the calls nor the tools.
        assert dataclasses.replace(one.transcript, calls=(), tools=()) == other.transcript
        assert one.tokens == other.tokens
        assert (one.heads, one.source) == (other.heads, other.source)
        assert one.evidence == other.evidence
        for name in VECTORS:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)


def test_anyone_with_the_library_can_load_it_by_its_description() -> None:
    document, arrays = opened()

    assert (document["version"], document["heads"]) == (2, [0])
    names = ("spans", "embeddings", "queries", "keys", "values", "surprisal")
    assert {*arrays} == {f"{number}.{name}" for number in (0, 1) for name in names}
    dialog = document["dialogs"][0]
    count = sum(map(len, dialog["tokens"]))
    assert arrays["0.queries"].shape == arrays["0.keys"].shape == (1, count, 16)
    assert (arrays["0.embeddings"].shape, arrays["0.surprisal"].shape) == ((count, 64), (count,))
    first, turns = dialog["tokens"][0], dialog["transcript"]["turns"]
    cut = [turns[0]["text"][start:end] for start, end in arrays["0.spans"][: len(first)]]
    assert cut == first
    demand = dialog["transcript"]["demands"][0]
    turn, start, end = demand["mentions"][0]
    assert demand["value"] == turns[turn]["text"][start:end]


def test_a_file_may_lack_surprisal_and_a_policy_that_weighs_it_says_so() -> None:
    without = [dataclasses.replace(one, surprisal=None) for one in RECORDINGS]
    (first, second) = read(trace_bytes(without))

    assert (first.surprisal, second.surprisal) == (None, None)
    np.testing.assert_array_equal(first.keys, RECORDINGS[0].keys)
    assert simulate(policy_named("h2o"), first.dialogs, 48).turns == len(first.tokens)
    with pytest.raises(ValueError, match="needs the surprisal of every token"):
        simulate(policy_named("surprisal"), first.dialogs, 48)
    with pytest.raises(ValueError, match="only some of the recordings have surprisal"):
        trace_bytes([RECORDINGS[0], without[1]])
    with pytest.raises(ValueError, match="only some of the dialogs have surprisal"):
        read(changed(surprisal=None))


def test_vectors_of_half_precision_are_read_as_single() -> None:
    half = RECORDINGS[0].keys.astype(np.float16)
    (first, _) = read(changed(keys=half))

    np.testing.assert_array_equal(first.keys, half.astype(np.float32), strict=True)


def test_what_a_file_says_of_names_is_shown_on_one_line() -> None:
    def rename(transcript: dict[str, Any]) -> None:
        turn = transcript["turns"][0]
        turn["speaker"], turn["text"] = "Us\n er" + 200 * "x", "\u202e" + turn["text"][1:]

    turn = read(of_dialog(rename))[0].transcript.turns[0]
    assert turn.speaker == ("Us er" + 200 * "x")[:MAX_NAME_CHARACTERS]
    assert turn.text[0] == "\ufffd"


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
    _, arrays = opened(content)

    assert arrays["0.queries"].shape[0] == 4
    assert arrays["0.keys"].shape[0] == arrays["0.values"].shape[0] == stored
    for one, other in zip(recordings, read(content), strict=True):
        assert other.groups == groups
        for name in VECTORS:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)


def test_how_large_a_file_becomes_is_known_as_it_grows() -> None:
    for recordings in (RECORDINGS, RECORDINGS[:1], SMALL, shared((2, 2))):
        most = sum(map(stored_bytes, recordings))
        assert most - 1000 * len(recordings) < len(trace_bytes(recordings)) <= most


def test_what_could_not_be_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="the trace has 2,001 dialogs, but at most"):
        trace_bytes(2001 * SMALL[:1])
    with pytest.raises(ValueError, match="the trace has 129 heads, but at most 128 are"):
        trace_bytes(shared((129,)))
    monkeypatch.setattr(trace_file, "MAX_DIALOG_FILE_BYTES", 1000)
    with pytest.raises(ValueError, match=r"the texts of the trace have .* at most 1,000"):
        trace_bytes(RECORDINGS)
    monkeypatch.setattr(trace_file, "MAX_TRACE_BYTES", 100_000)
    with pytest.raises(ValueError, match=r"the trace has .* bytes, but at most"):
        trace_bytes(RECORDINGS)


def test_more_dialogs_than_allowed_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "MAX_DIALOGS", 1)
    with pytest.raises(ValueError, match="the trace has 2 dialogs, but at most 1 "):
        read(CONTENT)


def test_recordings_that_do_not_go_together_are_not_written() -> None:
    other = dataclasses.replace(RECORDINGS[0], source="another")
    with pytest.raises(ValueError, match="not of the same heads of the same model"):
        trace_bytes([RECORDINGS[1], other])
    with pytest.raises(ValueError, match="no recordings"):
        trace_bytes([])


# ------------------------------------------------------------------------------- what is refused

TOKENS = len(FULL[1]["0.spans"])
SPANS = FULL[1]["0.spans"]
KEYS = FULL[1]["0.keys"]


def one_of(array: Any, number: float) -> Any:
    """Return an array with another number in its fourth place."""
    other = array.copy()
    other.flat[3] = number
    return other


def demand(**fields: object) -> bytes:
    return of_dialog(lambda transcript: transcript["demands"][0].update(fields))


def test_a_name_that_is_given_again_is_numbered_as_in_other_files() -> None:
    def rename(document: dict[str, Any]) -> None:
        for dialog in document["dialogs"]:
            dialog["transcript"]["name"] = "a"

    transcripts = [recording.transcript for recording in read(edited(rename))]

    assert [transcript.name for transcript in transcripts] == ["a", "a (2)"]
    assert not_read_notes(transcripts) == ["Dialogs of the same name are numbered: a (2)."]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "the file is empty"),
        (b"PK\x03\x04 of version 1", r"a trace of version 1 \(\.npz\)"),
        (b"User: hello", "the file is not a trace"),
        (CONTENT[:-30], "the file cannot be read: "),
        (save({}), "the file has no array 'dialogs'"),
        (save({"dialogs": np.zeros(3, np.int64)}), "no array 'dialogs' of the type U8"),
        (save({"dialogs": np.zeros(3)}), "dialogs has numbers of the type F64"),
        (packed(b"\xff", {}), "'dialogs' is not UTF-8"),
        (packed(b"{", {}), "line 1 is not JSON at column 2"),
        (packed(b"[" * 40, {}), "line 1 is nested too deeply"),
        (packed([], {}), "'dialogs' is not an object"),
        (packed({}, {}), "its version is None, but only 2 can be read"),
        (packed({"version": 2}, {}), "it has only version"),
        (edited(lambda document: document.update(version=3)), "its version is 3, but only 2"),
        (edited(lambda document: document.update(more=1)), "invalid at more: it is unknown"),
        (edited(lambda document: document.update(heads=[0.0])), r"heads\[0\]: it is not a whole"),
        (edited(lambda document: document.update(heads=[-1])), "'heads' has a number beyond 0 to"),
        (edited(lambda document: document.update(heads=[2**31])), "'heads' has a number beyond"),
        (edited(lambda document: document.update(heads=[0, 0])), "0.queries has 1 heads, which"),
        (edited(lambda document: document.update(heads=[])), "0.queries has 1 heads, which"),
        (edited(lambda document: document.update(heads=[0] * 129)), "129 heads, but at most 128"),
        (edited(lambda document: document["dialogs"].pop()), "'1.embeddings' is of no dialog"),
        (packed(FULL[0], {**FULL[1], "x": KEYS}), "the array 'x' is of no dialog"),
        (changed(keys=None), "0.keys must be an array of floats with 3 axes"),
        (changed(keys=KEYS[0]), "0.keys must be an array of floats with 3 axes"),
        (changed(keys=SPANS[None]), "0.keys must be an array of floats with 3 axes"),
        (changed(keys=KEYS.astype("f8")), "keys has numbers of the type F64"),
        (changed(keys=KEYS[:, 1:]), r"0.keys has shape \(1, .*, 16\), other than"),
        (changed(keys=KEYS[..., 1:]), "0.keys has shape"),
        (changed(keys=KEYS[:0]), "0.keys has 0 heads, which must divide the 1"),
        (changed(keys=KEYS.repeat(2, axis=0)), "0.keys has 2 heads, which must divide the 1"),
        (changed(embeddings=np.zeros((TOKENS, 0), "f4")), "embeddings has no dimensions"),
        (changed(embeddings=np.zeros((3, 4), "f4")), f"embeddings are not those of {TOKENS} to"),
        (changed(keys=one_of(KEYS, np.nan)), "keys holds a number that is not finite"),
        (changed(keys=one_of(KEYS, 1e38)), r"keys holds a number beyond ±1e\+15"),
        (changed(surprisal=one_of(FULL[1]["0.surprisal"], -1)), "surprisal holds a number below 0"),
        (changed(spans=None), "spans must be I64 of shape"),
        (changed(spans=SPANS[1:]), "spans must be I64 of shape"),
        (changed(spans=SPANS.astype("f4")), "spans must be I64 of shape"),
        (changed(spans=one_of(SPANS, 999)), r"turn 0: spans has \d+ to 999"),
        (changed(spans=one_of(SPANS, -1)), r"turn 0: spans has \d+ to -1, but the text has"),
        (
            edited(lambda document: document["dialogs"][0]["tokens"][0].pop()),
            "spans must be I64 of shape",
        ),
        (
            edited(lambda document: document["dialogs"][0]["tokens"].append([])),
            "there are tokens of 21 turns",
        ),
        (of_dialog(lambda dialog: dialog.update(turns=[])), "it has no words"),
        (of_dialog(lambda dialog: dialog["turns"][0].pop("text")), "it has only speaker, topic"),
        (of_dialog(lambda dialog: dialog["turns"][0].update(text=1)), "text: it is not a text"),
        (
            of_dialog(lambda dialog: dialog["turns"][0].update(kind="wish")),
            r"turns\[0\]\.kind: it is 'wish', but must be",
        ),
        (demand(kind=["call"]), "but must be call or state"),
        (demand(turn=0), "demand 0: the dialog has no turn 0 that needs"),
        (demand(turn=99), "demand 0: the dialog has no turn 99 that"),
        (demand(mentions=[]), "demand 0: it needs mentions, oldest first"),
        (demand(mentions=[[1, 0, 1], [0, 0, 1]]), "demand 0: it needs mentions, oldest first"),
        (demand(mentions=[[0, 0]]), "it has 2 parts, but must have 3"),
        (demand(mentions=[[0, 0, 9000]]), "demand 0: a mention is not in a text before"),
        (demand(mentions=[[0, 1, 1]]), "demand 0: a mention is not in a text before"),
        (demand(mentions=[[35, 0, 1]]), "demand 0: a mention is not in a text before"),
    ],
)
def test_a_file_that_is_not_right_gets_one_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        read(content)
    assert_one_sentence(caught.value)


def test_sizes_are_checked_before_anything_is_computed() -> None:
    with pytest.raises(ValueError, match=r"the file has .* bytes, but at most 1,000"):
        read(CONTENT, most_bytes=1000)
    # 128 heads that share a long row of keys would take 128 times its memory.
    document, arrays = opened(trace_bytes(shared((128,))[:1]))
    shapes = {"keys": (1, 10_000, 100), "values": (1, 10_000, 100), "queries": (128, 1, 1)}
    arrays |= {f"0.{name}": np.zeros(shape, np.float32) for name, shape in shapes.items()}
    content = packed(document, arrays)
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"0\.keys has shape"):
        read(content)
    assert tracemalloc.get_traced_memory()[1] < 3 * len(content)
    tracemalloc.stop()
    header = (2_000_001).to_bytes(8, "little")
    with pytest.raises(ValueError, match="the file is not a trace"):
        read(header + 2_000_001 * b" ")


@given(st.data(), st.sampled_from([trace_bytes(SMALL)]))
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
    name = data.draw(st.sampled_from(["spans", *VECTORS]))
    array = FULL[1][f"0.{name}"]
    kind = data.draw(st.sampled_from(["i8", "f4", "f2", "u1", "?", array.dtype.str]))
    shape = data.draw(st.sampled_from([array.shape, (), (0,), (2, 2), (*array.shape, 1)]))
    number = data.draw(st.sampled_from([0, 1, -1, 2**40]))
    with np.errstate(all="ignore"):
        assert_read_or_refused(lambda: read(changed(**{name: np.full(shape, number).astype(kind)})))


SMALL_PARTS = opened(trace_bytes(SMALL))


@given(st.data())
def test_any_json_in_place_of_another_is_read_or_refused(data: st.DataObject) -> None:
    document: Any = copy.deepcopy(SMALL_PARTS[0])
    value, owner, key = document, document, ""
    while isinstance(value, dict | list) and value and (not key or data.draw(st.booleans())):
        owner = value
        key = data.draw(st.sampled_from([*owner] if isinstance(owner, dict) else range(len(owner))))
        value = owner[key]
    owner[key] = data.draw(any_json("name", "text", "turns", "kind") | st.integers(0, 3))
    content = packed(json.dumps(document).encode(), SMALL_PARTS[1])
    assert_read_or_refused(lambda: read(content))
