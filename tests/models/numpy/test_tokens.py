"""A tokenizer from elsewhere: read, or refused in one sentence, whatever its library does."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdkvc.core.words import as_value_error
from fdkvc.models.numpy import BUNDLED, model_folder
from fdkvc.models.numpy import tokens as tokens_module
from fdkvc.models.numpy.language_model import load_language_model
from fdkvc.models.numpy.model_folder import check_tokenizer
from fdkvc.models.numpy.tokens import load_tokens, read_tokens
from tests.language_models import write_model
from tests.refusals import refused


def replace(old: str, new: str, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


def normalizers(*parts: Any) -> dict[str, Any]:
    return {"normalizer": {"type": "Sequence", "normalizers": list(parts)}}


def template(*single: Any, **tokens: Any) -> dict[str, Any]:
    sequence = {"type": "TemplateProcessing", "single": list(single), "pair": []}
    return {"post_processor": {**sequence, "special_tokens": tokens}}


def bpe(**changes: Any) -> dict[str, Any]:
    return {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"], **changes}}


NESTED = normalizers(*[replace("a", "a" * 10)] * 9)["normalizer"]
TOO_MUCH: dict[str, tuple[dict[str, Any], str]] = {
    "nested replacements": ({"normalizer": NESTED}, "up to 1,000,000,000 times as long"),
    "one in another": (
        normalizers(normalizers(NESTED)["normalizer"]),
        "times as long, but at most 16",
    ),
    "replacements without a type": (
        {"normalizer": {"normalizers": [{**replace("a", "aaaa"), "type": None}] * 3}},
        "normalizer makes a text up to 64 times as long",
    ),
    "replacements of nothing": (normalizers(*[replace("", "aa", "Regex")] * 3), "up to 27 times"),
    "replacements where it writes": (
        {"decoder": {"type": "Sequence", "decoders": [replace("a", "a" * 17)]}},
        "decoder makes a text up to 17 times as long",
    ),
    "many parts": (normalizers(*[{"type": "NFC"}] * 40), "normalizer has 41 parts, but at most"),
    "a long prefix": (
        {"normalizer": {"type": "Prepend", "prepend": "x" * 65}},
        "normalizer inserts 65 characters at once, but at most 64 are allowed",
    ),
    "a long template": (
        template(*[{"SpecialToken": {"id": "z", "type_id": 0}}] * 1_000),
        r"a part of post_processor has \d\d,\d{3} characters, but at most 20,000 are allowed",
    ),
    "long added tokens": (
        {"added_tokens": [{"id": 0, "content": "x" * 1_000_001}]},
        "added tokens have 1,000,001 characters, but at most 1,000,000 are allowed",
    ),
    "a long unigram vocabulary": (
        {"model": {"type": "Unigram", "vocab": [["x" * 2_500_001, 0.0]]}},
        "tokens have 2,500,001 characters, but at most 2,500,000 are allowed",
    ),
    # The library ends the process.
    "a prefix within merges": (bpe(continuing_subword_prefix="x"), "merges with a continuing_sub"),
    "a search of too many steps": (
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"(\w+\s?)*$"}}},
        "its regular expressions cannot be used, or take too many steps",
    ),
    "a step of another kind": ({"normalizer": {"normalizers": 1}}, "'normalizers' is missing or"),
    "tokens of another kind": ({"added_tokens": {}}, "'added_tokens' is missing or not a list"),
    "a model of another kind": ({"model": []}, "'model' is missing or not an object"),
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_what_would_be_too_much_is_refused_before_it_is_loaded(what: str) -> None:
    changes, sentence = TOO_MUCH[what]
    with refused(sentence):
        check_tokenizer(changes)


def test_a_search_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_folder, "MAX_PATTERN_SECONDS", 0.01)
    endless = {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(.*o){22}"}}}
    with refused("its regular expressions take more than"):
        check_tokenizer(endless)


def test_merges_are_not_left_out_by_chance() -> None:
    vocabulary = {letter: token for token, letter in enumerate("UsersytmalCAin:b\n")}
    changes = bpe(vocab=vocabulary | {"a": 30, "ab": 31}, dropout=0.9)
    tokens = read_tokens(json.dumps(changes).encode())
    assert tokens.encode("ab" * 99)[0] == (31,) * 99


def test_the_check_comes_before_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path)
    _change(tmp_path, TOO_MUCH["nested replacements"][0])
    monkeypatch.setattr("tokenizers.Tokenizer.from_file", None)
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot be read"):
        load_language_model(tmp_path)


@pytest.mark.parametrize(
    "parts",
    [
        [{"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")],
        [replace("``", '"'), replace("''", '"'), {"type": "NFKD"}, {"type": "StripAccents"}],
        [{"type": "NFC"}, replace(r"\s+", " ", "Regex"), {"type": "Lowercase"}],
        [{"type": "Precompiled", "precompiled_charsmap": "A" * 400_000}],
    ],
)
def test_the_normalizers_of_known_models_are_within_the_bounds(parts: list[Any]) -> None:
    check_tokenizer(normalizers(*parts))


PANICS: dict[str, dict[str, Any]] = {
    "an empty map of characters": {
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}
    },
    "a broken map of characters": {
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "CAAAAP//////////"}
    },
    "an empty pattern": {"normalizer": replace("", "a")},
    "a length of 0": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "a sequence that is not there": template({"Sequence": {"id": "B", "type_id": 0}}),
    "a token that is not there": template({"SpecialToken": {"id": "z", "type_id": 0}}),
    "more taken away than there is": {
        "decoder": {"type": "Strip", "content": "a", "start": 9, "stop": 9}
    },
    "another type": {"normalizer": {"type": "Nobody"}},
    "an open parenthesis": {"normalizer": replace("(", "a", "Regex")},
    "no token for what is unknown": {"model": {"type": "WordLevel", "vocab": {}, "unk_token": "u"}},
}


@pytest.mark.parametrize("what", PANICS)
def test_a_panic_of_the_library_ends_in_one_sentence(
    what: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_model(tmp_path)
    _change(tmp_path, PANICS[what])

    with refused(r"^the model .* cannot be loaded"):
        load_language_model(tmp_path)

    assert capfd.readouterr().err == ""


def test_a_text_that_makes_the_library_panic_is_named(tmp_path: Path) -> None:
    write_model(tmp_path)
    _change(tmp_path, {"normalizer": replace("(b+)+$", "b", "Regex")})
    tokens = load_tokens(tmp_path, vocabulary=300)

    assert tokens.encode("abc")
    with refused("the model's tokenizer cannot read 'bbbbb"):
        tokens.encode("b" * 60 + "c")


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_the_process_passes_through(end: type[BaseException]) -> None:
    with pytest.raises(end), as_value_error("it cannot be read"):
        raise end


def test_stderr_is_there_again(capfd: pytest.CaptureFixture[str]) -> None:
    import os

    with model_folder.stderr_silenced():
        os.write(2, b"a panic\n")
    os.write(2, b"a sentence\n")
    assert capfd.readouterr().err == "a sentence\n"


def _change(folder: Path, changes: dict[str, Any]) -> None:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_tokens_of_a_long_text_end_where_they_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = load_language_model(BUNDLED).tokens
    ids, _ = tokens.encode("A table in São José at 6 p.m. for Zoë, please. " * 12)
    monkeypatch.setattr(tokens_module, "BLOCK", len(ids))
    whole = tokens.features(ids, tokens_module.TOKEN_FEATURES)
    monkeypatch.setattr(tokens_module, "BLOCK", 7)
    again = tokens.features(ids, tokens_module.TOKEN_FEATURES)
    assert again.keys() == whole.keys() == {*tokens_module.TOKEN_FEATURES, "tools"}
    for name, column in whole.items():
        np.testing.assert_array_equal(again[name], column)
