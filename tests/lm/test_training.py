"""The training of the bundled model continues after an interruption, and can begin with tools."""

from __future__ import annotations

import json
import lzma
import os
import random
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from conftest import NO_TRANSFORMERS

if os.environ.get("FDKVC_REQUIRE_CAPTURE") == "1":
    import torch
else:
    torch = pytest.importorskip("torch", reason=NO_TRANSFORMERS)

from safetensors.torch import load_file

from benchmarks.research.train_bundled_model import SYNONYMS, Corpus, Settings, Training
from fdkvc.corpora.formats import EXAMPLES
from fdkvc.corpora.model_text import read_call
from fdkvc.corpora.tools import Schema
from fdkvc.corpora.transcripts import Tool
from fdkvc.lm import BUNDLED
from fdkvc.lm.language_model import load_language_model

SETTINGS = Settings(tokens=6e3, held_out=1, batch=1, told_every=2, told_of=1, rising_steps=2)


@pytest.fixture(scope="module")
def dialogues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("training") / "train.json.xz"
    path.write_bytes(lzma.compress((EXAMPLES / "dialogues.json").read_bytes()))
    return path


def schema_of(path: Path) -> Schema:
    """Return the tools that are called, by service; and one service that is not used."""
    slots: dict[str, dict[str, set[str]]] = {"Parks": {"FindPark": {"city", "type"}}}
    for dialog in json.loads(lzma.decompress(path.read_bytes())):
        for service in dialog["services"]:
            slots.setdefault(service, {})
        for turn in dialog["turns"]:
            for frame in turn["frames"]:
                if call := frame.get("service_call"):
                    methods = slots[frame["service"]]
                    methods.setdefault(call["method"], set()).update(call["parameters"])
    return {
        service: tuple(Tool(method, tuple(sorted(own))) for method, own in methods.items())
        for service, methods in slots.items()
    }


def train(dialogues: Path, folder: Path, interrupted_at: int | None = None) -> Mapping[str, Any]:
    folder.mkdir(exist_ok=True)
    shutil.copy(BUNDLED / "tokenizer.json", folder)
    corpus = Corpus(dialogues, folder, SETTINGS, schema_of(dialogues))
    training = Training(corpus, folder, SETTINGS, BUNDLED)
    save = training._save

    def interrupt() -> None:
        save()
        if training.step == interrupted_at:
            raise KeyboardInterrupt

    training._save = interrupt  # type: ignore[method-assign]
    training.run()
    weights: Mapping[str, Any] = load_file(folder / "model.safetensors")
    return weights


def test_an_interrupted_training_gives_the_same_model(dialogues: Path, tmp_path: Path) -> None:
    whole = train(dialogues, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(dialogues, tmp_path / "parts", interrupted_at=4)
    parts = train(dialogues, tmp_path / "parts")

    start = load_file(BUNDLED / "model.safetensors")
    assert whole.keys() == parts.keys() == start.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert not all(torch.equal(whole[name], start[name]) for name in whole)
    assert load_language_model(tmp_path / "whole").decoder.shape.positions == SETTINGS.longest


def test_tools_and_calls_have_the_same_names(dialogues: Path, tmp_path: Path) -> None:
    shutil.copy(BUNDLED / "tokenizer.json", tmp_path)
    corpus = Corpus(dialogues, tmp_path, SETTINGS, schema_of(dialogues))
    (dialog,), (passages,) = corpus.dialogs, corpus.passages
    called = [passage for passage in passages if passage.writer == "call"]

    seen = set()
    for seed in range(20):
        tools, *others = corpus._with_tools(dialog, passages, random.Random(seed))
        listed = {
            method: slots.split(" , ")
            for method, slots in re.findall(r"(\w+) \( (.*?) \)", tools.text)
        }
        assert tools.writer == "system"
        assert len(others) == len(passages)
        calls = [passage for passage in others if passage.writer == "call"]
        for call, before in zip(calls, called, strict=True):
            method, arguments = read_call(call.text)
            assert set(arguments) <= set(listed[method])
            assert list(arguments) == sorted(arguments)
            assert sorted(arguments.values()) == sorted(read_call(before.text)[1].values())
            seen.add(method)
    assert len(seen) > len({read_call(call.text)[0] for call in called})


def test_no_word_stands_for_two() -> None:
    others = [word for found in SYNONYMS.values() for word in found]

    assert len(set(others)) == len(others)
    assert not set(others) & set(SYNONYMS)
