"""What ``--model`` names: its tokenizer is loaded once, and stays if the model cannot be read."""

from pathlib import Path

import pytest

from fdkvc.models.loaded import NamedModel
from fdkvc.models.numpy import encoding as encodings
from fdkvc.models.numpy.encoding import Encoding
from tests.language_models import write_model


def test_a_models_tokenizer_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = str(write_model(tmp_path / "small", seed=4))
    alone = Encoding.of_model(name).spans("Two seats, please.").tolist()
    monkeypatch.setattr(encodings, "_LOADED", {})
    monkeypatch.setattr(encodings, "_load", None)

    loaded = NamedModel(name)

    assert loaded.model is not None
    assert loaded.encoding == Encoding("small", name)
    assert loaded.encoding.tokens is loaded.model.tokens
    assert loaded.encoding.spans("Two seats, please.").tolist() == alone


def test_without_weights_the_tokens_are_counted_and_the_reason_is_said(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "small", seed=4)
    (folder / "model.safetensors").unlink()
    named = NamedModel(str(folder))

    with pytest.raises(ValueError, match="cannot be loaded"):
        _ = named.model
    assert named.encoding.tokens.encode("Two")[0]
    assert NamedModel(None).model is None
    assert NamedModel(None).answering_model.name
    with pytest.raises(ValueError, match="the model '' cannot be loaded"):
        _ = NamedModel("").answering_model  # as a variable that is not set gives it
    assert NamedModel(None).encoding == Encoding()
