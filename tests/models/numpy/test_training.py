"""The training of the bundled model continues after an interruption."""

import lzma
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from benchmarks.research.train_bundled_model import Corpus, Settings, Training
from fdkvc.conversations.formats import EXAMPLES
from fdkvc.models.numpy import BUNDLED
from fdkvc.models.numpy.language_model import load_language_model

SETTINGS = Settings(tokens=6e3, held_out=1, batch=1, told_every=2, told_of=1, rising_steps=2)


@pytest.fixture(scope="module")
def dialogues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("training") / "train.json.xz"
    path.write_bytes(lzma.compress((EXAMPLES / "dialogues.json").read_bytes()))
    return path


def train(dialogues: Path, folder: Path, interrupted_at: int | None = None) -> Mapping[str, Any]:
    folder.mkdir(exist_ok=True)
    shutil.copy(BUNDLED / "tokenizer.json", folder)
    corpus = Corpus(dialogues, folder, SETTINGS)
    training = Training(corpus, folder, SETTINGS)
    save = training._save

    def interrupt() -> None:
        save()
        if training.step == interrupted_at:
            raise KeyboardInterrupt

    training._save = interrupt  # type: ignore[method-assign]
    training.run()
    weights: Mapping[str, Any] = load_file(folder / "model.safetensors")
    return weights


@pytest.mark.long
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
