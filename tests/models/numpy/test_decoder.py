"""The decoder reads a folder, and what it says of a text is what the equations say."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdkvc.models.numpy.language_model import load_language_model
from fdkvc.models.numpy.text_cache import TextCache, read
from tests.language_models import change_config, weights, write_model
from tests.refusals import refused


def by_the_equations(
    config: dict[str, Any],
    arrays: dict[str, Any],
    ids: list[int],
    sees: Callable[[int, int], bool] = lambda position, earlier: True,
) -> Any:
    """Work out the logits of every token (n, V) in double precision, token by token."""
    w = {name.removesuffix(".weight"): array.astype(float) for name, array in arrays.items()}
    h, heads, kv_heads = (
        config[name] for name in ("head_dim", "num_attention_heads", "num_key_value_heads")
    )

    def norm(x: Any, name: str) -> Any:
        return x / np.sqrt((x**2).mean() + config["rms_norm_eps"]) * w[name]

    def turned(x: Any, position: int) -> Any:
        out = x.copy()
        for pair in range(h // 2):
            angle = position * config["rope_theta"] ** (-2 * pair / h)
            a, b = x[:, pair].copy(), x[:, pair + h // 2].copy()
            out[:, pair] = a * math.cos(angle) - b * math.sin(angle)
            out[:, pair + h // 2] = b * math.cos(angle) + a * math.sin(angle)
        return out

    seen: list[list[tuple[Any, Any]]] = [[] for _ in range(config["num_hidden_layers"])]
    logits = []
    for position, token in enumerate(ids):
        x = w["model.embed_tokens"][token]
        for number, entries in enumerate(seen):
            layer = f"model.layers.{number}"
            y = norm(x, f"{layer}.input_layernorm")
            q, k, v = (w[f"{layer}.self_attn.{name}_proj"] @ y for name in "qkv")
            entries.append((turned(k.reshape(kv_heads, h), position), v.reshape(kv_heads, h)))
            mixed = []
            for head, query in enumerate(turned(q.reshape(heads, h), position)):
                group = head // (heads // kv_heads)
                there = [entry for at, entry in enumerate(entries) if sees(position, at)]
                powers = np.exp([query @ key[group] / math.sqrt(h) for key, _ in there])
                mixed.append(powers @ [value[group] for _, value in there] / powers.sum())
            x = x + w[f"{layer}.self_attn.o_proj"] @ np.concatenate(mixed)
            y = norm(x, f"{layer}.post_attention_layernorm")
            gate = w[f"{layer}.mlp.gate_proj"] @ y
            passed = gate / (1 + np.exp(-gate)) * (w[f"{layer}.mlp.up_proj"] @ y)
            x = x + w[f"{layer}.mlp.down_proj"] @ passed
        head_matrix = "model.embed_tokens" if config["tie_word_embeddings"] else "lm_head"
        logits.append(w[head_matrix] @ norm(x, "model.norm"))
    return np.array(logits)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": False},
        {"num_key_value_heads": 1, "rms_norm_eps": 1e-3},
        {"num_key_value_heads": 4, "rope_theta": 500.0},
    ],
)
def test_logits_are_what_the_equations_say(tmp_path: Path, changes: dict[str, Any]) -> None:
    model = load_language_model(write_model(tmp_path, 1, **changes))
    known = json.loads((tmp_path / "config.json").read_text())
    ids = np.random.default_rng(2).integers(known["vocab_size"], size=130).tolist()

    logits = read([TextCache(model.decoder)], ids)[0]

    expected = by_the_equations(known, weights(known, 1), ids)
    np.testing.assert_allclose(logits, expected, rtol=2e-5, atol=2e-4)
    assert np.ptp(expected, axis=0).min() > 0.1


def test_a_text_read_in_parts_and_beside_others_is_the_same(tmp_path: Path) -> None:
    decoder = load_language_model(write_model(tmp_path)).decoder
    ids = np.random.default_rng(0).integers(decoder.shape.vocabulary, size=(3, 40))

    whole = read([TextCache(decoder)], ids[0])
    alone = TextCache(decoder)
    parts = np.concatenate([read([alone], part) for part in np.split(ids[0], [1, 2, 17])], axis=1)
    beside = read([TextCache(decoder) for _ in ids], ids)

    np.testing.assert_allclose(parts, whole, atol=2e-5)
    np.testing.assert_array_equal(beside[:1], whole)
    np.testing.assert_array_equal(read([alone], [5], last=0).shape, (1, 0, len(whole[0, 0])))
    assert alone.count == 41


@pytest.mark.parametrize("precision", ["F16", "BF16"])
def test_rounded_weights_are_read(tmp_path: Path, precision: str) -> None:
    whole = load_language_model(write_model(tmp_path / "whole")).decoder
    rounded = load_language_model(write_model(tmp_path / "rounded", precision=precision)).decoder

    difference = np.abs(rounded.embeddings - whole.embeddings) / np.abs(whole.embeddings)
    assert 0 < difference.max() <= {"F16": 2**-10, "BF16": 2**-7}[precision]


def test_newer_folders_say_the_base_of_positions_elsewhere(tmp_path: Path) -> None:
    said: Any = {
        "rope_theta": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    }

    assert load_language_model(write_model(tmp_path, **said)).decoder.shape.theta == 500


def changed(**changes: Any) -> Callable[[Path], object]:
    return lambda folder: change_config(folder, **changes)


def written(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def replaced(old: bytes, new: bytes) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        content = (folder / "model.safetensors").read_bytes()
        assert old in content
        (folder / "model.safetensors").write_bytes(content.replace(old, new, 1))

    return change


def with_infinities(*numbers: float) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        content = (folder / "model.safetensors").read_bytes()
        end = np.array(numbers, np.float32).tobytes()
        (folder / "model.safetensors").write_bytes(content[: -len(end)] + end)

    return change


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "there is no file tokenizer.json"),
        (written("tokenizer.json", b"{}"), "tokenizer.json cannot be read: "),
        (changed(model_type="gpt2"), "its type is 'gpt2'"),
        (changed(attention_bias=True), "attention_bias in config.json must be false"),
        (changed(hidden_act="gelu"), "hidden_act in config.json must be silu"),
        (changed(rope_scaling={"type": "yarn"}), "its rotary positions are yarn, but must be"),
        (changed(rope_parameters=3), "rope_parameters in config.json is not an"),
        (changed(rope_theta=0), "rope_theta in config.json is 0, but must be"),
        (changed(num_key_value_heads=3), "4 heads of width 6 are not possible with 3"),
        (changed(hidden_size=None), "config.json is None, but must be a whole"),
        (changed(hidden_size=32), "but the model's sizes say"),
        (changed(num_hidden_layers=3), "its weights lack model.layers.2."),
        (changed(num_hidden_layers=1), "it has the array 'model.layers.1.input_layernorm.weight'"),
        (lambda folder: write_model(folder, vocab_size=200), "tokenizer.json has the token 299"),
        (replaced(b'"F32"', b'"I32"'), "has numbers of the type I32, but must"),
        (with_infinities(np.inf), "holds a number that is not finite"),
        (with_infinities(np.inf, -np.inf), "holds a number that is not finite"),
    ],
)
def test_a_broken_folder_is_refused_in_one_sentence(
    tmp_path: Path, change: Callable[[Path], object], sentence: str
) -> None:
    change(write_model(tmp_path))

    with refused(r"^the model '.*' cannot be loaded: ") as raised:
        load_language_model(tmp_path)
    assert sentence in str(raised.value)


def test_what_the_model_cannot_hold_is_refused(tmp_path: Path) -> None:
    decoder = load_language_model(write_model(tmp_path, max_position_embeddings=8)).decoder
    cache = TextCache(decoder)
    read([cache], [1, 2, 3])

    with pytest.raises(ValueError, match="the text has 9 tokens"):
        read([cache], range(6))
    with pytest.raises(ValueError, match="a token is not one of the 300 of the model"):
        read([cache], [300])
    assert cache.count == 3
