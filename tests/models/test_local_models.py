"""Models in the stores of Ollama, Hugging Face and LM Studio: found by name, nothing outside."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from fdkvc.models.local_models import local_models
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.models.numpy.gguf_file import find_model, read_metadata
from fdkvc.models.numpy.language_model import load_language_model, memory_needed, offered_models
from tests.examples import dialogs_of
from tests.language_models import change_config, gguf_bytes, gguf_parts, write_model

MODEL_LAYER = "application/vnd.ollama.image.model"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("folder"), seed=2)


@pytest.fixture(scope="module")
def content(folder: Path) -> bytes:
    return gguf_bytes(*gguf_parts(folder, "F32"))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    return tmp_path


def add_to_ollama(root: Path, content: bytes, name: str, size: int | None = None) -> Path:
    """Store a model as Ollama does; return its file."""
    digest = hashlib.sha256(content).hexdigest()
    blob = root / "blobs" / f"sha256-{digest}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    layer = {"mediaType": MODEL_LAYER, "digest": f"sha256:{digest}", "size": size or len(content)}
    template = {"mediaType": "application/vnd.ollama.image.template", "digest": "x", "size": 1}
    manifest = root / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": [template, layer]}))
    return blob


def add_to_hugging_face(hub: Path, folder: Path, name: str) -> Path:
    """Store a model as the Hugging Face cache does; return its folder of links."""
    store = hub / f"models--{name.replace('/', '--')}"
    snapshot = store / "snapshots" / "0123abc"
    for place in (snapshot, store / "blobs", store / "refs"):
        place.mkdir(parents=True)
    (store / "refs" / "main").write_text("0123abc")
    for number, file in enumerate(sorted(folder.iterdir())):
        (store / "blobs" / f"{number}").write_bytes(file.read_bytes())
        os.symlink(f"../../blobs/{number}", snapshot / file.name)
    return snapshot


def test_of_a_model_of_another_type_the_tokenizer_counts(home: Path, folder: Path) -> None:
    fields, _ = gguf_parts(folder, "F32")
    fields["general.architecture"] = "mixture"
    tensors: dict[str, Any] = {"blk.0.experts": (0, (2, 2), bytes(16))}
    store = home / ".ollama" / "models"
    blob = add_to_ollama(store, gguf_bytes(fields, tensors), "registry.ollama.ai/library/mix/8b")
    with pytest.raises(ValueError, match="mixture"):
        load_language_model("ollama:mix:8b")
    encoding = Encoding.of_model("ollama:mix:8b")
    assert encoding.name == "mix:8b"
    assert encoding.vocabulary == len(fields["tokenizer.ggml.tokens"])
    dialog = dialogs_of("dialogues")[0]
    assert encoding.sizes(dialog) == Encoding.of_model(str(folder)).sizes(dialog)

    blob.write_bytes(blob.read_bytes()[:200])
    with pytest.raises(ValueError, match="header is truncated"):
        read_metadata(blob)


def test_a_model_of_each_store_is_found_by_name_and_loaded(
    home: Path, folder: Path, content: bytes
) -> None:
    blob = add_to_ollama(
        home / ".ollama" / "models", content, "registry.ollama.ai/library/qwen2.5/0.5b"
    )
    snapshot = add_to_hugging_face(home / ".cache/huggingface/hub", folder, "Qwen/Qwen2.5-0.5B")
    file = home / ".lmstudio/models/publisher/repository/tiny-Q4.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    (file.parent / "mmproj-tiny.gguf").write_bytes(content)

    paths = {
        "ollama:qwen2.5:0.5b": blob,
        "hf:Qwen/Qwen2.5-0.5B": snapshot,
        "lmstudio:publisher/repository/tiny-Q4": file,
    }
    assert {name: model.path for name, model in local_models().items()} == paths
    assert local_models()["ollama:qwen2.5:0.5b"].size == len(content)
    assert paths.keys() <= offered_models().keys()
    models = {name: load_language_model(name) for name in paths}
    assert [model.name for model in models.values()] == [
        "qwen2.5:0.5b",
        "Qwen/Qwen2.5-0.5B",
        "publisher/repository/tiny-Q4",
    ]
    numbers = {name: memory_needed(name) for name in paths}
    assert len({*numbers.values()}) == 1


def test_the_environment_names_stores(
    home: Path, folder: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(home / "elsewhere"))
    monkeypatch.setenv("HF_HUB_CACHE", str(home / "hub"))
    add_to_ollama(home / "elsewhere", content, "registry.ollama.ai/someone/tiny/latest")
    add_to_ollama(home / "elsewhere", content, "hf.co/someone/tiny/Q4")
    add_to_hugging_face(home / "hub", folder, "someone/tiny")

    names = ["hf:someone/tiny", "ollama:hf.co/someone/tiny:Q4", "ollama:someone/tiny:latest"]
    assert [*local_models()] == names


def test_what_lies_outside_of_a_store_or_has_another_size_is_left_out(
    home: Path, folder: Path, content: bytes
) -> None:
    root = home / ".ollama" / "models"
    blob = add_to_ollama(root, content, "registry.ollama.ai/library/linked/latest")
    outside = home / "outside.gguf"
    blob.rename(outside)
    os.symlink(outside, blob)
    add_to_ollama(root, content[:-1], "registry.ollama.ai/library/short/latest", len(content))
    broken = root / "manifests/registry.ollama.ai/library/broken/latest"
    broken.parent.mkdir(parents=True)
    broken.write_text('{"layers": [{"mediaType": 3}, 4]')
    snapshot = add_to_hugging_face(home / ".cache/huggingface/hub", folder, "someone/linked")
    (snapshot / "tokenizer.json").unlink()
    os.symlink(folder / "tokenizer.json", snapshot / "tokenizer.json")

    assert local_models() == {}


@pytest.mark.parametrize("name", ["ollama:none", "hf:../../etc/passwd", "lmstudio:"])
def test_a_model_that_no_store_has_is_refused_in_one_sentence(
    home: Path, content: bytes, name: str
) -> None:
    add_to_ollama(home / ".ollama/models", content, "registry.ollama.ai/library/tiny/latest")
    with pytest.raises(ValueError, match="no such model on this machine") as refused:
        find_model(name)
    assert ("ollama:tiny:latest" in str(refused.value)) == name.startswith("ollama")


def test_memory_is_known_without_reading_and_a_model_of_an_unknown_family_is_refused(
    home: Path, folder: Path
) -> None:
    snapshot = add_to_hugging_face(home / ".cache/huggingface/hub", folder, "someone/other")
    change_config(snapshot, model_type="unheard")
    with pytest.raises(ValueError, match="'unheard'"):
        memory_needed("hf:someone/other")
