"""Language models, read from a folder of Hugging Face *transformers* or from a GGUF file.

The folder has ``config.json``, weights as *safetensors*, which are converted to single precision,
and ``tokenizer.json``; `fdkvc.models.numpy.gguf_file` takes the same from a GGUF file.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Protocol

import numpy as np

from fdkvc.core.arrays import read_safetensors
from fdkvc.core.attention import Floats
from fdkvc.core.json_input import check_object
from fdkvc.core.parameters import check_parameter
from fdkvc.core.transcripts import clean_name, different_names
from fdkvc.models.numpy import BUNDLED
from fdkvc.models.numpy.decoder import Decoder, Layer, Shape
from fdkvc.models.numpy.gguf_file import NAMED_MODELS, GgufFile, find_model, is_gguf, read_gguf
from fdkvc.models.numpy.head_eviction import DECIDES
from fdkvc.models.numpy.model_folder import (
    POSITIVE,
    RANGES,
    check_memory,
    check_model_folder,
    loading,
    read_json,
    weight_files,
)
from fdkvc.models.numpy.text_cache import (
    EvictingCache,
    ModelCache,
    Reader,
    RetrievalCache,
    TextCache,
)
from fdkvc.models.numpy.tokens import Tokens, load_tokens
from fdkvc.policies import Policy
from fdkvc.policies.retrieval import Retrieval

PRECISIONS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Supported types of *safetensors*, and their NumPy types in a file."""

OWN_MODELS = "FDKVC_MODELS"
"""The environment variable with the paths of a user's models, one a line; `fdkvc app` sets it."""


class AnyModel(Protocol):
    """A model of any engine, with its tokens."""

    name: str
    """The name of its folder or file."""
    decoder: Reader
    """The part of the model that reads tokens."""
    tokens: Tokens
    """Its tokenizer, with the marks of passages."""
    digest: str
    """SHA-256 of its files."""

    def full(self) -> ModelCache:
        """Return a new cache that evicts nothing."""

    def evicting(self, policy: Policy, budget: int, decides: str = ...) -> ModelCache:
        """Return a new cache under a policy."""


@dataclass(frozen=True, eq=False)
class LanguageModel(AnyModel):
    """A decoder and its tokens."""

    counted_elsewhere: ClassVar[bool] = True
    """See `Decoder`."""

    name: str
    decoder: Decoder
    tokens: Tokens
    digest: str

    def full(self) -> TextCache:
        """Return a new cache that evicts nothing."""
        return TextCache(self.decoder)

    def evicting(self, policy: Policy, budget: int, decides: str = DECIDES.default) -> TextCache:
        """Return a new cache under a policy."""
        if isinstance(policy, Retrieval):
            return RetrievalCache(self.decoder, policy, budget)
        return EvictingCache(self.decoder, policy, budget, decides)


def load_language_model(
    name: str | Path, on_progress: Callable[[float], object] = lambda share: None
) -> LanguageModel:
    """Read a model: a folder, a GGUF file, or one of `fdkvc.models.numpy.gguf_file.NAMED_MODELS`.

    `on_progress` gets the share that has been read, from 0 to 1. Raises a ValueError that names the
    model, the file and the problem.
    """
    with loading(f"the model {str(name)!r} cannot be loaded"):
        path = find_model(str(name))
        stored = read_gguf(path) if is_gguf(path) else path
        decoder = load_decoder(stored, on_progress)
        tokens = load_tokens(stored, decoder.shape.vocabulary)
        decoder = replace(decoder, features=tokens.features)
        return LanguageModel(model_name(path), decoder, tokens, model_digest(path))


_LOCKS: dict[str, Lock] = {}
_SHARED: dict[str, LanguageModel] = {}  # by name


def shared_language_model(
    name: str | Path, on_progress: Callable[[float], object] = lambda share: None
) -> LanguageModel:
    """Return a model that is loaded on first use, and then shared by the whole process.

    Each model has its own lock, so nobody waits for the loading of another model.
    """
    key = str(name)
    if key not in _SHARED:
        on_progress(0)  # shown also to those who wait while another session loads it
        with _LOCKS.setdefault(key, Lock()):
            if key not in _SHARED:
                _SHARED[key] = load_language_model(name, on_progress)
    return _SHARED[key]


def offered_models() -> dict[str, str | Path]:
    """Return the models that the app may load, by name: the project's, and those of `OWN_MODELS`.

    Examples
    --------
    >>> [*offered_models()][:2]
    ['bundled', 'smollm2']
    """
    own_paths = (path for path in os.environ.get(OWN_MODELS, "").splitlines() if path)
    paths: dict[str | Path, None] = dict.fromkeys([BUNDLED, *NAMED_MODELS, *own_paths])
    names = different_names(model_name(Path(path)) for path in paths)
    return dict(zip(names, paths, strict=True))


def model_name(path: Path) -> str:
    """Return the name of a folder or of a GGUF file."""
    path = path.resolve()
    return clean_name(path.stem if path.suffix == ".gguf" else path.name)


def model_digest(path: Path) -> str:
    """Return the SHA-256 of a model's files."""
    joined, files = hashlib.sha256(), [path]
    if path.is_dir():
        files = [path / "config.json", *weight_files(path), path / "tokenizer.json"]
    for path in files:
        with path.open("rb") as file:
            while part := file.read(2**20):
                joined.update(part)
    return joined.hexdigest()


def load_decoder(
    stored: Path | GgufFile, on_progress: Callable[[float], object] = lambda share: None
) -> Decoder:
    """Read a decoder from a folder or file; errors name the file and the problem."""
    arrays: Mapping[str, Floats]
    if isinstance(stored, Path):
        check_memory(8 * check_model_folder(stored))  # as they are stored, and as they are used
        shape, arrays = _shape(read_json(stored / "config.json")), _arrays(stored)
    else:
        check_memory(4 * stored.numbers)
        shape, arrays = _shape(stored.config), stored
    h, wide = shape.head_width, shape.width

    def take(name: str, *size: int) -> Floats:
        if name not in arrays:
            raise ValueError(f"its weights lack {name}")
        array = arrays[name]
        if array.shape != size:
            raise ValueError(f"{name} has shape {array.shape}, but the model's sizes say {size}")
        return array

    def paired(name: str, heads: int) -> Floats:
        """Return queries' or keys' weights, the two numbers that rotate together side by side.

        In a folder of *transformers* they are h / 2 apart.
        """
        halves = take(name, heads * h, wide).reshape(heads, 2, h // 2, wide)
        return halves.swapaxes(1, 2).reshape(heads * h, wide)

    def joined(norm: str, *parts: Floats) -> Floats:
        """Return matrices as one, with the weights of the norm before them folded in."""
        return np.ascontiguousarray((np.concatenate(parts) * take(norm, wide)).T)

    def layer(number: int) -> Layer:
        on_progress(number / shape.layers)
        place, keys = f"model.layers.{number}", shape.kv_heads
        heads = f"{place}.self_attn"
        return Layer(
            joined(
                f"{place}.input_layernorm.weight",
                paired(f"{heads}.q_proj.weight", shape.heads),
                paired(f"{heads}.k_proj.weight", keys),
                take(f"{heads}.v_proj.weight", keys * h, wide),
            ),
            np.ascontiguousarray(take(f"{heads}.o_proj.weight", wide, shape.heads * h).T),
            joined(
                f"{place}.post_attention_layernorm.weight",
                take(f"{place}.mlp.gate_proj.weight", shape.inner, wide),
                take(f"{place}.mlp.up_proj.weight", shape.inner, wide),
            ),
            np.ascontiguousarray(take(f"{place}.mlp.down_proj.weight", wide, shape.inner).T),
        )

    embeddings = take("model.embed_tokens.weight", shape.vocabulary, wide)
    last = embeddings if shape.tied else take("lm_head.weight", shape.vocabulary, wide)
    layers = tuple(map(layer, range(shape.layers)))
    norm = take("model.norm.weight", wide)
    shared = Decoder(shape, embeddings, layers, embeddings.T, norm=norm)
    # With the norm folded in, the logits need a matrix of their own: too much for a large model.
    if shape.tied and shared.large:
        return shared
    return replace(shared, logits=np.ascontiguousarray((last * norm).T), norm=None)


def _shape(config: Mapping[str, Any]) -> Shape:
    def number(name: str, default: Any = None, kind: type = int) -> Any:
        value = config.get(name)
        value = default if value is None else value
        check_parameter(f"{name} in config.json", RANGES.get(name, POSITIVE), value, kind)
        return value

    if config["model_type"] != "llama":
        raise ValueError(f"its type is {config['model_type'][:40]!r}, but only llama is supported")
    rotary = {name: config.get(name) or {} for name in ("rope_parameters", "rope_scaling")}
    for name, settings in rotary.items():
        check_object(settings, f"{name} in config.json")
        variant = settings.get("rope_type", settings.get("type", "default"))
        if variant != "default":
            raise ValueError(f"its rotary positions are {str(variant)[:40]}, but must be default")
    for name, value in (("attention_bias", False), ("mlp_bias", False), ("hidden_act", "silu")):
        if config.get(name, value) != value:
            raise ValueError(f"{name} in config.json must be {str(value).lower()}")
    heads, width = number("num_attention_heads"), number("hidden_size")
    theta = number("rope_theta", rotary["rope_parameters"].get("rope_theta", 10_000.0), float)
    shape = Shape(
        layers=number("num_hidden_layers"),
        width=width,
        heads=heads,
        kv_heads=number("num_key_value_heads", heads),
        head_width=number("head_dim", max(width // heads, 1)),
        inner=number("intermediate_size"),
        vocabulary=number("vocab_size"),
        positions=number("max_position_embeddings", 2048),
        epsilon=number("rms_norm_eps", 1e-6, float),
        theta=theta,
        tied=bool(config.get("tie_word_embeddings", False)),
    )
    if shape.heads % shape.kv_heads or shape.head_width % 2:
        raise ValueError(
            f"{shape.heads} heads of width {shape.head_width} are not possible with "
            f"{shape.kv_heads} heads of keys"
        )
    return shape


def _arrays(folder: Path) -> dict[str, Floats]:
    arrays: dict[str, Floats] = {}
    for path in weight_files(folder):
        content = read_safetensors(path.read_bytes(), PRECISIONS, path.name)
        for name, numbers in content.items():
            if numbers.dtype == "<u2":  # BF16, the upper half of a number in single precision
                numbers = (numbers.astype("<u4") << 16).view("<f4")
            arrays[name] = numbers.astype(np.float32)
            if not np.isfinite(arrays[name]).all():
                raise ValueError(f"{name[:80]} holds a number that is not finite")
    return arrays
