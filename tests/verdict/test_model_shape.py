"""What an entry of a model's cache takes, by name, in numbers, or from a config.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from fdkvc.verdict.model_shape import SHAPES, read_shape, shape_of
from tests.refusals import refused


def test_an_entry_takes_a_key_and_a_value_in_each_layer_and_head() -> None:
    assert read_shape("4x2x64x16").entry_bytes == 4 * 2 * (64 + 64) * 2
    assert SHAPES["qwen2.5-7b"].entry_bytes == 28 * 4 * (128 + 128) * 2


def own_config(**more: Any) -> str:
    """Return a model of 12 layers with 4 heads of 8 dimensions, 2 x 4 x 8 numbers in each."""
    sizes = {"num_hidden_layers": 12, "num_attention_heads": 4, "hidden_size": 32}
    return json.dumps(sizes | more)


@pytest.mark.parametrize(
    ("more", "layers", "numbers"),
    [
        ({}, 12, 64),
        ({"sliding_window": None}, 12, 64),
        ({"sliding_window": 4096, "use_sliding_window": False}, 12, 64),
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, 12, 576),
        ({"layer_types": ["full_attention", *["sliding_attention"] * 5] * 2}, 2, 64),
        ({"layer_types": ["linear_attention", "full_attention"] * 6}, 6, 64),
        ({"sliding_window_pattern": "LLLG", "layer_types": ["full_attention"] * 12}, 12, 64),
        ({"num_kv_shared_layers": 6, "layer_types": ["full_attention"] * 12}, 6, 64),
    ],
)
def test_only_what_grows_with_the_dialog_counts(
    more: dict[str, Any], layers: int, numbers: int
) -> None:
    shape = shape_of(json.loads(own_config(**more)))
    assert (shape.layers, shape.numbers) == (layers, numbers)
    some = f"the {layers} of 12 layers that attend to all tokens"
    assert (some in shape.name) == (layers < 12)


def test_a_config_of_ones_own_gives_a_shape(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    for config, entry_bytes in (
        ({"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}, 2 * 2 * 4 * 8 * 2),
        (
            {
                "text_config": {
                    "num_hidden_layers": 3,
                    "num_attention_heads": 8,
                    "num_key_value_heads": 2,
                    "head_dim": 16,
                    "torch_dtype": "float32",
                }
            },
            2 * 3 * 2 * 16 * 4,
        ),
    ):
        file.write_text(json.dumps(config))
        assert read_shape(str(file)).entry_bytes == entry_bytes
        assert read_shape(str(tmp_path)).entry_bytes == entry_bytes


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{}", "config.json does not say the model's layers: give layers x KV heads"),
        ('{"num_hidden_layers": -1}', "num_hidden_layers in config.json is -1, but must be"),
        ('{"num_hidden_layers": 2}', "does not say the model's heads and head width: give"),
        ('{"num_hidden_layers": 1000000000000}', "num_hidden_layers in config.json is 10000000000"),
        (own_config(num_key_value_heads=[1, 2]), "num_key_value_heads in config.json is"),
        (
            own_config(torch_dtype="float8_e4m3fn"),
            "numbers 'float8_e4m3fn', which is unknown: give",
        ),
        (own_config(torch_dtype=["x"]), "which is unknown: give"),
        (own_config(block_types=["recurrent", "attention"]), "has 'block_types' but does not say"),
        (own_config(attention_chunk_size=8192), "has 'attention_chunk_size' but does not say"),
        (own_config(num_kv_shared_layers=20), "no layer attends to all tokens"),
        (own_config(use_sliding_window=False, mamba_d_state=16), "has 'mamba_d_state' but does"),
        (own_config(multi_query=True), "has 'multi_query' but does not say"),
        (own_config(attn_layer_period=8), "has 'attn_layer_period' but does not say"),
        (own_config(full_attention_interval=4), "has 'full_attention_interval' but does not say"),
        (own_config(sliding_window_pattern=6), "has 'sliding_window_pattern' but does not say"),
        (own_config(sliding_window=4096), "has 'sliding_window' but does not say which layers"),
        (own_config(mamba_d_state=16), "has 'mamba_d_state' but does not say which layers"),
        (own_config(layer_types=["linear_attention"]), "no layer attends to all tokens"),
        ("[", "config.json"),
    ],
)
def test_a_config_that_is_not_right_gets_one_sentence(
    tmp_path: Path, content: str, sentence: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(content)
    with refused(sentence):
        read_shape(str(file))


@pytest.mark.parametrize(
    "name",
    ["gpt", "0x1x2x3", "1x2x3", "32x8x128x17", "10000x1x1x8", "9" * 50, "9" * 300, "32x8x128x16 "],
)
def test_an_unknown_shape_gets_one_sentence(name: str) -> None:
    with refused(r"is unknown: choose from llama-3\.1-8b"):
        read_shape(name)
