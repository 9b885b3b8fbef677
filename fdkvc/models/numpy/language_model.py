"""Language models, read from a folder of Hugging Face *transformers* or from a GGUF file.

The folder has ``config.json``, weights as *safetensors*, which are converted to single precision,
and ``tokenizer.json``; `fdkvc.models.numpy.gguf_file` takes the same from a GGUF file.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import ClassVar, Protocol

import numpy as np

from fdkvc.core.attention import Floats
from fdkvc.core.transcripts import clean_name, different_names
from fdkvc.models.local_models import is_stored_name, local_models
from fdkvc.models.numpy import BUNDLED
from fdkvc.models.numpy.decoder import Decoder, Layer, Shape
from fdkvc.models.numpy.families import (
    Family,
    Multipliers,
    family_of,
    read_multipliers,
    read_shape,
    rotated_layers,
)
from fdkvc.models.numpy.gguf_file import NAMED_MODELS, GgufFile, find_model, is_gguf, read_gguf
from fdkvc.models.numpy.head_eviction import DECIDES
from fdkvc.models.numpy.model_folder import (
    check_memory,
    check_model_folder,
    count_numbers,
    loading,
    machine_memory,
    read_json,
    weight_files,
)
from fdkvc.models.numpy.stored_arrays import FolderArrays, StoredArrays
from fdkvc.models.numpy.text_cache import (
    EvictingCache,
    ModelCache,
    Reader,
    TextCache,
)
from fdkvc.models.numpy.tokens import Tokens, load_tokens
from fdkvc.policies import Policy

COMPUTED = "rotary_emb.inv_freq", "rope_freqs.weight"
"""Ends of names of arrays that follow from the config."""

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

    def evicting(
        self, policy: Policy, budget: int, decides: str = DECIDES.default
    ) -> TextCache:
        """Return a new cache under a policy."""
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
        arrays = checked_arrays(stored)
        vocabulary = read_shape(arrays.config).vocabulary
        # Beside the decoder: a chat template is rendered in a process of its own.
        with ThreadPoolExecutor(2) as threads:
            tokens = threads.submit(load_tokens, stored, vocabulary)
            digest = threads.submit(model_digest, path)
            decoder = load_decoder(arrays, on_progress)
        decoder = replace(decoder, features=tokens.result().features)
        return LanguageModel(model_name(str(name)), decoder, tokens.result(), digest.result())


_LOCKS: dict[str, Lock] = {}
_SHARED: dict[str, LanguageModel] = {}  # by name


def shared_language_model(
    name: str | Path, on_progress: Callable[[float], object] = lambda share: None
) -> LanguageModel:
    """Return a model that is loaded on first use, and then shared by the whole process.

    Each model has its own lock, so nobody waits for the loading of another model.
    """
    key = str(name)
    model = _SHARED.get(key)
    if model is None:
        on_progress(0)  # shown also to those who wait while another session loads it
        with _LOCKS.setdefault(key, Lock()):
            # Another session may have loaded it while this one waited for the lock.
            model = _SHARED.get(key)
            if model is None:
                _forget_oldest()
                model = _SHARED[key] = load_language_model(name, on_progress)
    return model


def _forget_oldest() -> None:
    """Forget models, the first loaded first, until the others take a quarter of the memory."""
    # Of copies, as other threads load models meanwhile.
    for key in [*_SHARED]:
        size = sum(4 * model.decoder.shape.parameters for model in [*_SHARED.values()])
        if size > machine_memory() / 4:
            _SHARED.pop(key, None)


def offered_models(stored: Iterable[str] | None = None) -> dict[str, str]:
    """Return the models that the app may load, by name.

    They are the project's, those of `OWN_MODELS`, and those in the stores of this machine, which
    are looked up unless their names are `stored`.

    Examples
    --------
    >>> [*offered_models()][:2]
    ['bundled', 'smollm2']
    """
    own_paths = filter(None, os.environ.get(OWN_MODELS, "").splitlines())
    paths = dict.fromkeys(map(str, [BUNDLED, *NAMED_MODELS, *own_paths]))
    names = different_names(
        path if path in NAMED_MODELS else model_name(path) for path in paths
    )
    stored_names = local_models() if stored is None else stored
    return dict(zip(names, paths, strict=True)) | {name: name for name in stored_names}


def model_name(name: str) -> str:
    """Return the name to show of a model as `find_model` takes it.

    Examples
    --------
    >>> model_name("models/qwen.gguf"), model_name("ollama:qwen2.5:0.5b")
    ('qwen', 'qwen2.5:0.5b')
    """
    if is_stored_name(name):
        return clean_name(name.partition(":")[2])
    path = find_model(name).resolve()
    return clean_name(path.stem if path.suffix == ".gguf" else path.name)


def memory_needed(name: str) -> int:
    """Return the bytes that a model's numbers take once read, from its header alone.

    Raises a ValueError if it cannot be read, or takes more than this machine has.
    """
    path = find_model(name)
    if is_gguf(path):
        file = read_gguf(path)
        config = file.config
        numbers = file.numbers
    else:
        config = read_json(path / "config.json")
        numbers = count_numbers(path)
    read_shape(config)
    check_memory(4 * numbers)
    return 4 * numbers


def model_digest(path: Path) -> str:
    """Return the SHA-256 of a model's files."""
    joined = hashlib.sha256()
    files = [path]
    if path.is_dir():
        files = [path / "config.json", *weight_files(path), path / "tokenizer.json"]
    for path in files:
        with path.open("rb") as file:
            while part := file.read(2**20):
                joined.update(part)
    return joined.hexdigest()


def checked_arrays(stored: Path | GgufFile) -> StoredArrays:
    """Return the arrays of a folder or file, if memory can hold them and the folder is right."""
    if isinstance(stored, GgufFile):
        check_memory(4 * stored.numbers)
        return stored
    check_memory(4 * check_model_folder(stored))
    return FolderArrays(stored)


def load_decoder(arrays: StoredArrays, on_progress: Callable[[float], object]) -> Decoder:
    """Read a decoder; errors name the problem."""
    config = arrays.config
    shape = read_shape(config)
    scales = read_multipliers(config)
    weights = _Weights(arrays, shape, family_of(config), scales)
    first = "model.embed_tokens.weight"
    final = first if shape.tied else "lm_head.weight"
    layers: list[Layer] = []
    # Two at once: more would take memory, and most of the time goes to memory, too.
    with ThreadPoolExecutor(2) as threads:
        size = shape.vocabulary, shape.width
        matrices = {name: threads.submit(weights.take, name, *size) for name in {first, final}}
        rotates = rotated_layers(config, shape.layers)
        for layer in threads.map(weights.layer, range(shape.layers), rotates):
            on_progress(len(layers) / shape.layers)
            layers.append(layer)
    embeddings, last = (matrices[name].result() for name in (first, final))
    norm = weights.take("model.norm.weight", shape.width) / np.float32(scales.logits_scaling)
    weights.check_all_read()
    if scales.embedding_multiplier != 1:
        embeddings = embeddings * np.float32(scales.embedding_multiplier)
        if shape.tied:
            last = embeddings
            norm = norm / np.float32(scales.embedding_multiplier)
    decoder = Decoder(shape, embeddings, tuple(layers), last.T, norm=norm)
    # With the norm folded in, the logits need a matrix of their own: too much for a large model.
    if decoder.large:
        return decoder
    return replace(decoder, logits=np.ascontiguousarray((last * norm).T), norm=None)


@dataclass(frozen=True, eq=False)
class _Weights:
    """The weights of a model by their names in a folder of *transformers*."""

    arrays: StoredArrays
    shape: Shape
    family: Family
    scales: Multipliers
    names_read: set[str] = field(default_factory=set)

    def take(self, name: str, *size: int) -> Floats:
        self._check(name, size)
        return self.arrays[name]

    def _blocks(self, name: str, *size: int) -> Iterator[Floats]:
        self._check(name, size)
        return self.arrays.blocks(name)

    def _check(self, name: str, size: tuple[int, ...]) -> None:
        self.names_read.add(name)
        array = self.arrays.arrays.get(name)
        if array is None:
            raise ValueError(f"its weights lack {name}")
        shape = array.shape
        if shape != size:
            raise ValueError(f"{name} has shape {shape}, but the model's sizes say {size}")

    def check_all_read(self) -> None:
        """Raise a ValueError for an array that the model would be computed without."""
        for name in sorted(self.arrays.arrays.keys() - self.names_read):
            # The file of a model with tied logits may have them nevertheless, as a copy of the
            # embeddings.
            if not name.endswith(COMPUTED) and name != "lm_head.weight":
                raise ValueError(
                    f"it has the array {name[:80]!r}, which its config.json has no place for"
                )

    def layer(self, number: int, rotates: bool) -> Layer:
        place = f"model.layers.{number}"
        shape = self.shape
        scale = self.scales.residual_multiplier
        h = shape.head_width
        inner = shape.inner
        heads = {"q": shape.heads, "k": shape.kv_heads, "v": shape.kv_heads}
        parts = {}
        for part, count in heads.items():
            name = f"{place}.self_attn.{part}_proj.weight"
            parts[part] = self.take(name, count * h, shape.width)
        if self.scales.attention_multiplier:
            parts["q"] = parts["q"] * np.float32(self.scales.attention_multiplier * h**0.5)
        projections = self._paired(parts)
        output_width = shape.heads * h
        gate = self._blocks(f"{place}.mlp.gate_proj.weight", inner, shape.width)
        up = self._blocks(f"{place}.mlp.up_proj.weight", inner, shape.width)
        output = self._blocks(f"{place}.self_attn.o_proj.weight", shape.width, output_width)
        down = self._blocks(f"{place}.mlp.down_proj.weight", shape.width, inner)
        norms = f"{place}.input_layernorm.weight", f"{place}.post_attention_layernorm.weight"
        # The weights of a norm are folded into the matrices that follow it.
        of_attention, of_network = (self.take(name, shape.width) for name in norms)
        rows = sum(map(len, projections))
        return Layer(
            _transposed(projections, (rows, shape.width), of_attention),
            _transposed(output, (shape.width, output_width), scale),
            _transposed(chain(gate, up), (2 * inner, shape.width), of_network),
            _transposed(down, (shape.width, inner), scale),
            self._bias(f"{place}.self_attn", heads) if self.family.biases else None,
            self._head_norms(f"{place}.self_attn") if self.family.head_norms else None,
            rotates,
        )

    def _paired(self, parts: Mapping[str, Floats]) -> list[Floats]:
        """Return what queries, keys and values have, those that rotate together side by side.

        In a folder of *transformers* they are h / 2 apart.
        """
        paired = []
        for name, array in parts.items():
            halves = array.reshape(-1, 2, self.shape.head_width // 2, *array.shape[1:])
            paired.append(array if name == "v" else halves.swapaxes(1, 2).reshape(array.shape))
        return paired

    def _bias(self, place: str, heads: Mapping[str, int]) -> Floats:
        parts = {}
        for part, count in heads.items():
            size = count * self.shape.head_width
            parts[part] = self.take(f"{place}.{part}_proj.bias", size)
        return np.concatenate(self._paired(parts))

    def _head_norms(self, place: str) -> Floats:
        width = self.shape.head_width
        norms = {part: self.take(f"{place}.{part}_norm.weight", width) for part in "qk"}
        of_queries, of_keys = self._paired(norms)
        rows = [of_queries] * self.shape.heads + [of_keys] * self.shape.kv_heads
        return np.stack(rows)


def _transposed(
    blocks: Iterable[Floats], shape: tuple[int, int], scale: float | Floats
) -> Floats:
    """Return the scaled rows (n, d) of blocks, one under the other, as a right factor (d, n)."""
    turned = np.empty(shape[::-1], np.float32)
    end = 0
    for block in blocks:
        rows = block * np.asarray(scale, np.float32)
        turned[:, end : end + len(rows)] = rows.T
        end += len(rows)
    return turned
