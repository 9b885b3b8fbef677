"""What an entry of a model's cache takes in bytes, by a known name, in numbers, or ``config.json``.

Only layers that attend to all tokens count: no policy shrinks a layer that keeps a window, or a
state of fixed size.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from fdkvc.core.parameters import Field, check_parameter
from fdkvc.core.transcripts import clean_name
from fdkvc.models.numpy.model_folder import RANGES, read_json

SPARE = 0.01
"""Share of a vocabulary by which a model's and its tokenizer's may differ."""


@dataclass(frozen=True)
class ModelShape:
    """What an entry stores in the layers that attend to all tokens."""

    name: str
    layers: int
    """How many attend to all tokens."""
    numbers: int
    """Of an entry in a layer: a key and a value in each KV head, or what they are computed from."""
    bits: int = 16
    """Of each number."""
    vocabulary: int = 0
    """How many tokens its tokenizer has; 0 if that is not known."""

    def has_tokens(self, vocabulary: int) -> bool:
        """Whether a tokenizer of so many tokens may be its own: a model may have spare ones.

        Examples
        --------
        >>> SHAPES["qwen2.5-7b"].has_tokens(151_936), SHAPES["qwen2.5-7b"].has_tokens(128_256)
        (True, False)
        """
        return abs(vocabulary - self.vocabulary) <= SPARE * self.vocabulary

    @property
    def entry_bytes(self) -> int:
        """Bytes of one entry in all layers and heads.

        Examples
        --------
        >>> SHAPES["llama-3.1-8b"].entry_bytes
        131072
        """
        return -(-self.layers * self.numbers * self.bits // 8)


SHAPES: Mapping[str, ModelShape] = {
    "llama-3.1-8b": ModelShape("Llama 3.1 8B", 32, 2 * 8 * 128, vocabulary=128_256),
    "llama-3.1-70b": ModelShape("Llama 3.1 70B", 80, 2 * 8 * 128, vocabulary=128_256),
    "mistral-7b": ModelShape("Mistral 7B", 32, 2 * 8 * 128, vocabulary=32_000),
    "qwen2.5-7b": ModelShape("Qwen2.5 7B", 28, 2 * 4 * 128, vocabulary=151_665),
}
"""Known shapes with 16 bits a number: Grattafiori et al. 2024, *The Llama 3 Herd of Models*, Table
3; Jiang et al. 2023, *Mistral 7B*, Table 1; Qwen Team 2024, *Qwen2.5 Technical Report*, Table 1."""

SHAPE = Field(
    "Model",
    "The model for whose cache bytes are given.",
    name="shape",
    default="llama-3.1-8b",
    choices={key: shape.name for key, shape in SHAPES.items()},
)

IN_NUMBERS = "layers x KV heads x head width x bits, such as 32x8x128x16"

BITS = {"float32": 32, "float16": 16, "bfloat16": 16}
"""Of each type of number in ``config.json``; those of a quantized cache are given in numbers."""

FULL = ("full_attention", "attention")
"""Names of layers that attend to all tokens."""

_LAYERS, _HEADS = ("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head")
_KV_HEADS, _HIDDEN = ("num_key_value_heads", "num_kv_heads"), ("hidden_size", "n_embd")
_TYPES = ("layer_types", "layers_block_type")
_OTHERWISE = re.compile(
    r"mamba|ssm|rwkv|recurrent|linear_attn|linear_num|hybrid|block_types|attn_type_list"
    r"|(sliding|attention)_window(_size|_pattern)?$|attention_chunk_size$|attn_layer|multi_query$"
    r"|full_attention_interval$"
)
_NUMBERS = re.compile(r"(\d{1,4})x(\d{1,4})x(\d{1,5})x(2|3|4|8|16|32)")


def read_shape(name: str) -> ModelShape:
    """Return a known shape, one in numbers, or that of a ``config.json``; ValueError otherwise.

    Examples
    --------
    >>> read_shape("4x2x64x8").entry_bytes
    1024
    """
    if name in SHAPES:
        return SHAPES[name]
    match = _NUMBERS.fullmatch(name)
    if match is not None and all(map(int, match.groups())):
        layers, heads, width, bits = map(int, match.groups())
        return ModelShape(name, layers, 2 * heads * width, bits)
    path = Path(name)
    path = path / "config.json" if os.path.isdir(path) else path  # also too long a name
    if path.name == "config.json":
        return shape_of(read_json(path))
    raise ValueError(
        f"shape {name[:80]!r} is unknown: choose from {', '.join(SHAPES)}, give {IN_NUMBERS} (with "
        "2, 3, 4, 8, 16 or 32 bits), or the config.json of a model"
    )


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """Return the shape that a model's ``config.json`` describes.

    Raises a ValueError if it does not say which layers attend to all tokens, or how much each
    stores. Multi-head latent attention stores a latent vector and a rotated key (DeepSeek-AI 2024,
    *DeepSeek-V2*, Section 2.1).
    """
    text_config = config.get("text_config")
    fields = {**config, **text_config} if isinstance(text_config, dict) else config
    all_layers = _number(fields, *_LAYERS)
    if all_layers is None:
        raise ValueError(_unknown("layers"))
    layers = _full_layers(fields, all_layers)
    latent = _number(fields, "kv_lora_rank")
    rotated = _number(fields, "qk_rope_head_dim")
    if latent and rotated:
        numbers = latent + rotated
    else:
        heads = _number(fields, *_HEADS)
        hidden = _number(fields, *_HIDDEN)
        width = _number(fields, "head_dim") or (hidden // heads if hidden and heads else None)
        if not heads or not width:
            raise ValueError(_unknown("heads and head width"))
        numbers = 2 * (_number(fields, *_KV_HEADS) or heads) * width
    # `torch_dtype` is the name in older files.
    dtype = fields.get("dtype") or fields.get("torch_dtype") or "bfloat16"
    if not isinstance(dtype, str) or dtype not in BITS:
        raise ValueError(
            f"config.json gives the type of numbers {clean_name(str(dtype))!r}, which is unknown: "
            f"give {IN_NUMBERS}"
        )
    name = clean_name(
        str(config.get("_name_or_path") or config.get("model_type") or "config.json")
    )
    if layers != all_layers:
        name += f" (the {layers} of {all_layers} layers that attend to all tokens)"
    return ModelShape(name, layers, numbers, BITS[dtype], _number(fields, "vocab_size") or 0)


def _full_layers(config: Mapping[str, Any], layers: int) -> int:
    """Return how many of the layers attend to all tokens and share no other layer's cache."""
    full = max(layers - (_number(config, "num_kv_shared_layers") or 0), 0)
    types = next((config[key] for key in _TYPES if isinstance(config.get(key), list)), None)
    if types is not None:
        full = sum(kind in FULL for kind in islice(cycle(types), full))  # a short list repeats
    else:
        # Qwen 2 names a window that it does not use.
        unused = {"use_sliding_window"}
        if config.get("use_sliding_window") is False:
            unused.add("sliding_window")
        for key in sorted(config.keys() - unused):
            if config[key] and _OTHERWISE.search(key):
                raise ValueError(
                    f"config.json has {key!r} but does not say which layers attend to all tokens: "
                    f"give {IN_NUMBERS}"
                )
    if full < 1:
        raise ValueError(
            "config.json: no layer attends to all tokens, so there is nothing to save"
        )
    return full


def _number(config: Mapping[str, Any], *names: str) -> int | None:
    """Return the first of these fields that is given, a number from 1."""
    for name in names:
        value = config.get(name)
        if value is not None and value != 0:
            place = f"{name} in config.json"
            if name in RANGES:
                check_parameter(place, RANGES[name], value, int)
            elif type(value) is not int or not 0 < value < 1_000_000:
                raise ValueError(f"{place} is {clean_name(str(value))!r}, not a size")
            return int(value)
    return None


def _unknown(quantity: str) -> str:
    return f"config.json does not say the model's {quantity}: give {IN_NUMBERS}"
