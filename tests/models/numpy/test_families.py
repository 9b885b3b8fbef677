"""Families of models: what a row of the table says is what *transformers* computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdkvc.models.numpy.families import FAMILIES
from fdkvc.models.numpy.language_model import load_language_model
from fdkvc.models.numpy.text_cache import read
from tests.language_models import gguf_bytes, gguf_parts, write_tokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": 2048,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_theta": 500_000.0,
}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": False},
    "llama 3": {"model_type": "llama", "rope_parameters": LLAMA3, "tie_word_embeddings": True},
    "llama, stretched": {
        "model_type": "llama",
        "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0},
    },
    "mistral": {"sliding_window": None},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"tie_word_embeddings": False, "head_dim": 8},
    "smollm3": {"tie_word_embeddings": True},
    "granite": {
        "embedding_multiplier": 6.0,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.4,
        "logits_scaling": 3.0,
        "tie_word_embeddings": True,
    },
}


def write_family(folder: Path, kind: str) -> Any:
    """Write a tiny random model as *transformers* does; return it."""
    folder.mkdir()
    settings = {**SIZES, "model_type": kind, **KINDS[kind]}
    config = transformers.AutoConfig.for_model(**settings, vocab_size=write_tokenizer(folder))
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            weights.normal_(1.0 if "norm" in name else 0.0, 0.25)
    model.save_pretrained(folder)
    return model


def as_file(folder: Path) -> Path:
    path = folder.with_suffix(".gguf")
    path.write_bytes(gguf_bytes(*gguf_parts(folder)))
    return path


@pytest.fixture(scope="module", params=KINDS)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("family") / "model"
    return write_family(folder, request.param), folder


@pytest.mark.parametrize("stored_as", ["folder", "file"])
def test_the_logits_are_those_of_transformers(family: Any, stored_as: str) -> None:
    model, folder = family
    own = load_language_model(folder if stored_as == "folder" else as_file(folder))
    ids = np.random.default_rng(0).integers(5, 250, 70).tolist()
    cache = own.full()
    read([cache], ids[:50])
    logits = read([cache], ids[50:])[0]
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0, 50:].numpy()
    assert np.abs(logits - expected).max() < 1e-4
    assert np.abs(expected).max() > 1


def test_each_family_is_tested() -> None:
    kinds = {changes.get("model_type", kind) for kind, changes in KINDS.items()}
    assert kinds == {*FAMILIES}
