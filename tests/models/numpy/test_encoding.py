"""Tokens of a model without its weights: against the model's own reading."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from fdkvc.conversations.lexical import LexicalRecordings, lexical_recording
from fdkvc.conversations.tools import begin_with_tools
from fdkvc.models.numpy import BUNDLED
from fdkvc.models.numpy.encoding import Encoding, as_tokenizer
from fdkvc.models.numpy.head_recordings import count_tokens
from fdkvc.models.numpy.language_model import shared_language_model
from tests.examples import dialogs_of
from tests.refusals import refused

DIALOGS = dialogs_of()


def test_the_shipped_tokenizer_is_byte_level_and_has_the_marks_of_a_chat() -> None:
    tokens = Encoding().tokens
    ids, spans = tokens.encode("Tokens 42, 漢字")
    assert len(ids) == len(spans)
    assert tokens.text(ids) == "Tokens 42, 漢字"
    assert {"4", "2"} <= {tokens.text([token]) for token in ids}, "digits stand alone"
    assert tokens.text(tokens.encode("<|im_end|>")[0]) == "<|im_end|>", "text becomes no mark"
    turns = Encoding().turns(DIALOGS[0])
    assert len(turns) == len(DIALOGS[0].turns)
    for turn, tokens_of_turn in zip(DIALOGS[0].turns, turns, strict=True):
        covered = {at for token in tokens_of_turn for at in range(token.start, token.end)}
        assert {at for at, letter in enumerate(turn.text) if letter.strip()} <= covered


@pytest.mark.smollm2
def test_it_counts_what_smollm2_reads() -> None:
    model, encoding = shared_language_model("smollm2"), Encoding()
    for dialog in DIALOGS:
        assert encoding.tokens.encode_dialog(dialog) == model.tokens.encode_dialog(dialog)
    assert Encoding.of_model("smollm2").name == encoding.name


def test_a_models_own_tokenizer_counts_what_it_reads() -> None:
    model = shared_language_model(BUNDLED)
    encoding = Encoding.of_model(str(BUNDLED))
    for dialog in DIALOGS[:3]:
        count = sum(map(len, encoding.turns(dialog)))
        assert count == count_tokens(model, dialog) + len(model.tokens.first)


@pytest.mark.parametrize("encoding", [Encoding(), Encoding.of_model(str(BUNDLED))])
@pytest.mark.parametrize("tools", [False, True], ids=["without tools", "with tools"])
def test_tokens_are_counted_as_they_are_listed(encoding: Encoding, tools: bool) -> None:
    listing = [begin_with_tools(dialog) for dialog in DIALOGS if dialog.tools]
    for dialog in listing if tools else DIALOGS:
        assert encoding.sizes(dialog) == [*map(len, encoding.turns(dialog))]


def test_it_is_the_same_in_another_process() -> None:
    recordings = LexicalRecordings(DIALOGS[:1], 0, Encoding())
    again = pickle.loads(pickle.dumps(recordings))
    assert again.sizes == recordings.sizes
    recording = lexical_recording(DIALOGS[0], 0, Encoding())
    assert recording.source == "lexical embedding, seed 0, tokens of SmolLM2"
    assert recordings.sizes == [[len(turn) for turn in recording.tokens]]
    assert len(recording.evidence) == len(lexical_recording(DIALOGS[0]).evidence)


def test_a_tokenizer_of_ones_own_counts_lines() -> None:
    compact = {"first": [*"<Userytm:sSACLNagil \n"], "special": 0, "merges": []}
    content = json.dumps(as_tokenizer(compact)).encode()
    with pytest.raises(ValueError, match="cannot encode a line"):
        Encoding.of_file(content)
    path = Path(str(BUNDLED)) / "tokenizer.json"
    own = Encoding.of_file(path.read_bytes())
    bundled = Encoding.of_model(str(BUNDLED))
    assert own.name == "tokenizer.json"
    assert own.turns(DIALOGS[0]) == bundled.turns(DIALOGS[0])


@pytest.mark.parametrize("content", [b"[", b"{}", b'{"model": 3}', b"\xff"])
def test_what_is_no_tokenizer_gets_one_sentence(content: bytes) -> None:
    with refused(r"tokenizer\.json|model"):
        Encoding.of_file(content)


def test_a_tokenizer_beyond_the_limits_is_refused_wherever_it_comes_from(tmp_path: Path) -> None:
    content = {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 40}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    reads: list[Callable[[], Encoding]] = [
        lambda: Encoding.of_model(str(tmp_path)),
        lambda: Encoding.of_file(json.dumps(content).encode()),
    ]
    for read in reads:
        with refused("normalizer has 41 parts"):
            read()
