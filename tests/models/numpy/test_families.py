"""Families of models: what a row of the table says is what *transformers* computes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdkvc.models.numpy.families import FAMILIES
from fdkvc.models.numpy.gguf_file import as_folder
from fdkvc.models.numpy.language_model import load_language_model
from fdkvc.models.numpy.text_cache import read
from fdkvc.policies import read_policy
from tests.language_models import change_config, gguf_bytes, gguf_parts, write_tokenizer
from tests.refusals import refused

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


@pytest.mark.parametrize("policy", ["h2o", "sinks(weighted-recency)"])
def test_the_cache_of_the_library_keeps_the_same_entries(family: Any, policy: str) -> None:
    from fdkvc.models.transformers.cache import PolicyCache
    from tests.library import CACHE

    model, folder = family
    own: Any = load_language_model(folder).evicting(read_policy(policy), 16)
    file = str(folder / "tokenizer.json")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=file)
    library_cache = PolicyCache(read_policy(policy), 16, model, tokenizer=tokenizer)
    ids = np.random.default_rng(1).integers(5, 250, 60).tolist()
    for first in range(0, 60, 12):
        turn = ids[first : first + 12]
        read([own], turn, last=0)
        own.end_turn()
        with torch.no_grad():
            model(torch.tensor([turn]), **{CACHE: library_cache})
        assert np.array_equal(np.sort(own.attended), np.sort(library_cache.held))
    assert library_cache.held.shape[-1] == 16


def test_a_file_is_a_folder_for_transformers(family: Any) -> None:
    model, folder = family
    ids = torch.tensor([range(5, 60)])
    with as_folder(as_file(folder)) as converted, torch.no_grad():
        same = transformers.AutoModelForCausalLM.from_pretrained(converted, dtype=torch.float32)
        difference = same(ids).logits - model(ids).logits
    assert np.abs(difference.numpy()).max() < 1e-4


@pytest.mark.parametrize(
    ("kind", "change", "sentence"),
    [
        ("qwen3", {"model_type": "gemma3_text"}, "its type is 'gemma3_text', but must be one of"),
        ("qwen3", {"attention_bias": True}, "attention_bias in config.json must be false"),
        ("qwen3", {"rope_parameters": {"rope_type": "llama3", "factor": 0}}, "config.json is 0"),
        ("qwen3", {"model_type": "qwen2"}, "lack model.layers.0.self_attn.q_proj.bias"),
        ("qwen2", {"model_type": "llama"}, r"has the array '.*k_proj\.bias', which its config"),
    ],
)
def test_what_a_family_lacks_is_refused(
    tmp_path: Path, kind: str, change: dict[str, Any], sentence: str
) -> None:
    write_family(tmp_path / "model", kind)
    change_config(tmp_path / "model", **change)
    with refused(f"cannot be loaded.*{sentence}"):
        load_language_model(tmp_path / "model")


def test_an_older_folder_of_smollm3_does_not_say_that_it_is_tied(tmp_path: Path) -> None:
    write_family(tmp_path / "model", "smollm3")
    assert transformers.SmolLM3Config().tie_word_embeddings
    change_config(tmp_path / "model", tie_word_embeddings=None)
    assert load_language_model(tmp_path / "model").decoder.shape.tied


def test_a_text_is_no_longer_than_the_window(tmp_path: Path) -> None:
    write_family(tmp_path / "model", "mistral")
    change_config(tmp_path / "model", sliding_window=64)
    assert load_language_model(tmp_path / "model").decoder.shape.positions == 64


def test_each_family_is_tested() -> None:
    kinds = {changes.get("model_type", kind) for kind, changes in KINDS.items()}
    assert kinds == {*FAMILIES}
