"""A folder that is no model is refused by its files alone, before anything is loaded."""

import json
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fdkvc.models.numpy import model_folder
from fdkvc.models.numpy.gguf_tokenizer import PATTERNS, bpe_tokenizer
from fdkvc.models.numpy.model_folder import check_model_folder, check_tokenizer
from tests.refusals import any_json, assert_one_sentence, refused

CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": None}
ARRAY = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def safetensors(header: Any, content: bytes = bytes(24)) -> bytes:
    written = json.dumps(header).encode()
    return len(written).to_bytes(8, "little") + written + content


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "tokenizer.json").write_text("{}")
    header = {"__metadata__": {"format": "pt"}, "a": ARRAY}
    (tmp_path / WEIGHTS).write_bytes(safetensors(header))
    return tmp_path


def test_the_numbers_of_the_weights_are_counted(folder: Path) -> None:
    assert check_model_folder(folder) == 6
    os.rename(folder / WEIGHTS, folder / "one.safetensors")
    (folder / "two.safetensors").write_bytes((folder / "one.safetensors").read_bytes())
    shards = {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}
    (folder / INDEX).write_text(json.dumps({"weight_map": shards}))
    assert check_model_folder(folder) == 12


def config(**changes: Any) -> Callable[[Path], object]:
    return lambda folder: (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))


def holds(name: str, content: bytes | str) -> Callable[[Path], object]:
    plain = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(plain)


def header(**arrays: Any) -> Callable[[Path], object]:
    return holds(WEIGHTS, safetensors(arrays))


def indexed(content: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / WEIGHTS).unlink()
        (folder / INDEX).write_text(content)

    return change


def pickled(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({}))


def piped(name: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return change


UNREADABLE = "model.safetensors cannot be read: Error while deserializing header"

BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "no such file or directory"),
    "a deep config": (holds("config.json", "[" * 100_000), "config.json cannot be read: line 1 is"),
    "a null config": (holds("config.json", "null"), "its content is not an object"),
    "a list as config": (holds("config.json", "[]"), "its content is not an object"),
    "a binary config": (holds("config.json", b"\xff\xfe\x00"), "config.json cannot be read"),
    "a cut config": (holds("config.json", '{"model_type"'), "config.json cannot be read"),
    "a piped config": (piped("config.json"), "it is not a regular file"),
    "no model type": (config(model_type=None), "'model_type' is missing or not a text"),
    "no heads": (config(num_attention_heads=0), "config.json is 0, but must be a whole number"),
    "heads below 0": (config(num_key_value_heads=-2), "config.json is -2, but must be a whole"),
    "heads as text": (config(num_attention_heads="2"), "config.json is '2', but must be a whole"),
    "a million layers": (config(num_hidden_layers=10**6), "is 1000000, but must be a whole number"),
    "a million layers of text": (config(text_config={"n_layer": 10**6}), "n_layer in config.json"),
    "no width": (config(hidden_size=0), "hidden_size in config.json is 0"),
    "too many words": (config(vocab_size=10**12), "vocab_size in config.json is 1000000000000"),
    "a null tokenizer": (holds("tokenizer.json", "null"), "tokenizer.json cannot be read"),
    "a deep tokenizer": (holds("tokenizer_config.json", "[" * 99_999), "tokenizer_config.json can"),
    "a piped tokenizer": (piped("tokenizer.json"), "it is not a regular file"),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), "it has no weights"),
    "empty weights": (holds(WEIGHTS, b""), UNREADABLE),
    "cut weights": (holds(WEIGHTS, safetensors({"a": ARRAY}, bytes(9))), UNREADABLE),
    "longer weights": (holds(WEIGHTS, safetensors({"a": ARRAY}, bytes(25))), UNREADABLE),
    "a huge header": (holds(WEIGHTS, b"\xff" * 8 + b"{}"), UNREADABLE),
    "a cut header": (holds(WEIGHTS, b"\x02" + bytes(7) + b"{,"), UNREADABLE),
    "a null header": (holds(WEIGHTS, safetensors(None)), UNREADABLE),
    "a deep header": (header(a=[[[[[[ARRAY]]]]]]), UNREADABLE),
    "no shape": (header(a={**ARRAY, "shape": None}), UNREADABLE),
    "a shape below 0": (header(a={**ARRAY, "shape": [-1, 2]}), UNREADABLE),
    "a shape of many axes": (header(a={**ARRAY, "shape": [9] * 99}), UNREADABLE),
    "a place of one": (header(a={**ARRAY, "data_offsets": [24]}), UNREADABLE),
    "piped weights": (piped(WEIGHTS), "there is no file model.safetensors"),
    "pickled weights": (pickled, "its weights are pickled, which is not supported"),
    "a null index": (indexed("null"), "its content is not an object"),
    "an index of nothing": (indexed("{}"), "'weight_map' is missing or not an object"),
    "an index of what is missing": (indexed('{"weight_map": {"a": "b"}}'), "there is no file b"),
    "an index of another folder": (
        indexed('{"weight_map": {"a": "../b.safetensors"}}'),
        "names '../b.safetensors', which is not a file of the folder",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_model_gets_one_sentence(folder: Path, what: str) -> None:
    change, sentence = BROKEN[what]
    change(folder)
    with refused(re.escape(sentence)):
        check_model_folder(folder)


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="neither a folder nor a GGUF"):
        check_model_folder(tmp_path / "file")
    with pytest.raises(ValueError, match="no such folder or file"):
        check_model_folder(tmp_path / "nowhere")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(any_json("model_type", "hidden_size", "shape", "data_offsets", "a"), st.booleans())
def test_any_other_content_is_refused_in_a_sentence_or_counted(
    folder: Path, content: Any, weights: bool
) -> None:
    name = WEIGHTS if weights else "config.json"
    before = (folder / name).read_bytes()
    written = safetensors(content) if weights else json.dumps(content).encode()
    (folder / name).write_bytes(written)
    try:
        assert check_model_folder(folder) >= 0
    except ValueError as error:
        assert_one_sentence(error)
    finally:
        (folder / name).write_bytes(before)


@pytest.mark.parametrize("name", PATTERNS)
def test_the_patterns_of_files_are_tried_here_and_start_no_process_in_use(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_folder.check_patterns((PATTERNS[name],))
    monkeypatch.setattr(model_folder, "check_patterns", None)
    check_tokenizer(bpe_tokenizer(["a", "b"], [], {}, name))
