"""What models of other families have beyond Llama's layout, and the sizes in their config."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fdkvc.core.attention import Floats
from fdkvc.core.json_input import check_object
from fdkvc.core.parameters import check_parameter
from fdkvc.models.numpy.decoder import Shape
from fdkvc.models.numpy.model_folder import POSITIVE, RANGES


@dataclass(frozen=True)
class Family:
    """What the models of a type have beyond Llama's layout."""

    biases: bool = False
    """Whether queries, keys and values have a bias."""
    head_norms: bool = False
    """Whether queries and keys have a norm in each head, before they are rotated."""
    halves_in_files: bool = False
    """Whether the two numbers that rotate together are half a head apart in a GGUF file, too."""
    unrotated_layers: int = 0
    """Every so many layers, one has no positions; 0 for none."""
    multipliers: bool = False
    """Whether the config has a `Multipliers`."""
    window: int | None = None
    """Tokens that attention sees where the config does not say; None for all."""
    tied: bool = False
    """Whether the logits use the embeddings where the config does not say."""


FAMILIES: Mapping[str, Family] = {
    # A `window` and `tied` are the defaults of *transformers*, which a config may leave out.
    "llama": Family(),  # Llama 2 and 3, SmolLM 1 and 2, TinyLlama
    "mistral": Family(window=4096),
    "qwen2": Family(biases=True, halves_in_files=True),  # Qwen 2 and 2.5
    "qwen3": Family(head_norms=True, halves_in_files=True),
    "smollm3": Family(unrotated_layers=4, tied=True),
    "granite": Family(multipliers=True),
}
"""The families that are read, by ``model_type`` in the config."""


class Multipliers(NamedTuple):
    """Numbers that scale what a model computes, in Granite's config; elsewhere they change nothing.

    They become a part of the weights that they follow.
    """

    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    logits_scaling: float = 1.0
    attention_multiplier: float | None = None
    """Of products of queries and keys; None for 1/√h."""


def family_of(config: Mapping[str, Any]) -> Family:
    """Return the family of a model; a ValueError names those that are read."""
    kind = str(config.get("model_type"))
    if kind not in FAMILIES:
        raise ValueError(
            f"its type is {kind[:40]!r}, but must be one of {', '.join(FAMILIES)}"
        )
    return FAMILIES[kind]


def read_shape(config: Mapping[str, Any]) -> Shape:
    """Return the sizes in a ``config.json``. Raises a ValueError for what the decoder lacks."""
    family = family_of(config)
    theta, stretch = _rotary(config)
    for name, value in (
        ("attention_bias", False),
        ("mlp_bias", False),
        ("hidden_act", "silu"),
    ):
        if config.get(name, value) != value and not (
            family.biases and name == "attention_bias"
        ):
            raise ValueError(f"{name} in config.json must be {str(value).lower()}")
    heads = _number(config, "num_attention_heads")
    width = _number(config, "hidden_size")
    positions = _number(config, "max_position_embeddings", 2048)
    window = config.get("sliding_window", family.window)
    if window is not None and (family.window or config.get("use_sliding_window")):
        # The decoder has no window: in a text that fits into one, all tokens see each other anyway.
        positions = min(positions, _number({"sliding_window": window}, "sliding_window"))
    shape = Shape(
        layers=_number(config, "num_hidden_layers"),
        width=width,
        heads=heads,
        kv_heads=_number(config, "num_key_value_heads", heads),
        head_width=_number(config, "head_dim", max(width // heads, 1)),
        inner=_number(config, "intermediate_size"),
        vocabulary=_number(config, "vocab_size"),
        positions=positions,
        epsilon=_number(config, "rms_norm_eps", 1e-6, float),
        theta=theta,
        stretch=stretch,
        tied=bool(config.get("tie_word_embeddings", family.tied)),
    )
    if shape.heads % shape.kv_heads or shape.head_width % 2:
        raise ValueError(
            f"{shape.heads} heads of width {shape.head_width} are not possible with "
            f"{shape.kv_heads} heads of keys"
        )
    return shape


def read_multipliers(config: Mapping[str, Any]) -> Multipliers:
    """Return the multipliers of a model."""
    if not family_of(config).multipliers:
        return Multipliers()
    return Multipliers(*(_number(config, name, 1.0, float) for name in Multipliers._fields))


def rotated_layers(config: Mapping[str, Any], layers: int) -> list[bool]:
    """Return which layers rotate queries and keys by their positions."""
    interval = family_of(config).unrotated_layers
    listed = config.get("no_rope_layers")
    if interval and isinstance(listed, list) and len(listed) >= layers:
        # Whatever the name says, 1 stands for a layer that rotates.
        return [*map(bool, listed[:layers])]
    interval = interval and _number(config, "no_rope_layer_interval", interval)
    return [not interval or (number + 1) % interval != 0 for number in range(layers)]


def llama3_stretch(angles: Floats, settings: Mapping[str, Any]) -> Floats:
    """Return by what Llama 3 divides each of some angles: slow ones by ``factor``, fast ones by 1.

    Examples
    --------
    >>> llama3_stretch(np.array([1, 1e-3, 1e-4]), {"factor": 8.0}).round(2).tolist()
    [1.0, 4.68, 8.0]
    """
    defaults = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    low, high = (_number(settings, name, value, float) for name, value in defaults.items())
    positions = _number(settings, "original_max_position_embeddings", 8192)
    turns = positions * angles / (2 * np.pi)
    share = np.clip((turns - low) / max(high - low, 1e-6), 0, 1)
    stretch: Floats = 1 / (share + (1 - share) / _number(settings, "factor", kind=float))
    return stretch


def _rotary(config: Mapping[str, Any]) -> tuple[float, tuple[float, ...]]:
    """Return the base of the rotary positions, and by what each angle is divided, () for 1."""
    settings: dict[str, Any] = {}
    # *transformers* writes the first from version 5 on.
    for name in ("rope_parameters", "rope_scaling"):
        settings |= check_object(config.get(name) or {}, f"{name} in config.json")
    theta = _number(config, "rope_theta", settings.get("rope_theta", 10_000.0), float)
    kind = settings.get("rope_type", settings.get("type", "default"))
    heads = _number(config, "num_attention_heads")
    width = _number(config, "head_dim", max(_number(config, "hidden_size") // heads, 1))
    half = np.arange(0, width, 2) / width
    if kind == "linear":
        return theta, tuple([_number(settings, "factor", kind=float)] * len(half))
    if kind == "llama3":
        return theta, tuple(llama3_stretch(theta**-half, settings).tolist())
    if kind != "default":
        raise ValueError(
            f"its rotary positions are {str(kind)[:40]}, but must be default, linear or llama3"
        )
    return theta, ()


def _number(
    config: Mapping[str, Any], name: str, default: Any = None, kind: type = int
) -> Any:
    value = config.get(name)
    value = default if value is None else value
    check_parameter(f"{name} in config.json", RANGES.get(name, POSITIVE), value, kind)
    return value
