"""Checks of a model folder before anything is loaded.

A folder of Hugging Face *transformers* has ``config.json``, a tokenizer, and weights as
*safetensors*, whose header gives the type, shape and offsets of every array.
"""

import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from fdkvc.corpora.formats import read_bytes
from fdkvc.corpora.json_input import check_object, check_structure, parse_json, require
from fdkvc.corpora.tokenizer_file import FILE, as_value_error, check_tokenizer
from fdkvc.limits import MAX_MODEL_JSON_BYTES, MAX_MODEL_JSON_VALUES
from fdkvc.parameters import Parameter, check_parameter

_LAYERS = Parameter("Layers", "", low=1, high=1024)
_HEADS = Parameter("Heads", "", low=1, high=1024)
_WIDTH = Parameter("Width", "", low=1, high=1_000_000)

RANGES: Mapping[str, Parameter] = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), _LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_key_value_heads"), _HEADS),
    **dict.fromkeys(("hidden_size", "n_embd", "dim", "head_dim", "intermediate_size"), _WIDTH),
    "vocab_size": Parameter("Vocabulary", "", low=1, high=10_000_000),
}
"""Ranges of sizes in ``config.json``, by their names in various architectures."""

_TOKENIZER_FILES = (
    *(FILE, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "generation_config.json"),
)
_INDEX = "model.safetensors.index.json"


def check_model_folder(folder: Path) -> int:
    """Return the number of parameters in the weights of a model.

    Raises a ValueError that names the file and the problem.
    """
    if not folder.is_dir():
        raise ValueError("it is not a folder" if folder.exists() else "there is no such folder")
    _check_config(read_config(folder))
    for name in _TOKENIZER_FILES:
        if (folder / name).exists():
            content = _read(folder / name)
            if name == FILE:
                check_tokenizer(content)
    return sum(_numbers(path) for path in weight_files(folder))


def check_loaded(loaded: Mapping[str, Any], needless: str = "") -> None:
    """Raise a ValueError for weights that the library did not find, by its ``loading_info``.

    Weights whose names contain `needless` may be missing; none by default.
    """
    for key, *_ in sorted(loaded["mismatched_keys"]):
        raise ValueError(f"its weights and config.json differ in the size of {key}")
    missing = sorted(key for key in loaded["missing_keys"] if not needless or needless not in key)
    if missing:
        raise ValueError(f"its weights lack {missing[0]} ({len(missing)} missing in all)")


def cache_name(model: Any) -> str:
    """Return what the library calls the cache of a model's forward pass, given and returned.

    It is ``cache`` from *transformers* 5.24 on, where ``past_key_values`` is deprecated.
    """
    new = "cache" in inspect.signature(model.forward).parameters
    return "cache" if new else "past_key_values"


def as_model_error(name: str, act: str = "be loaded") -> AbstractContextManager[None]:
    """Turn any error of the library into a sentence: the model cannot do something."""
    return as_value_error(f"the model {name!r} cannot {act}")


def read_config(folder: Path) -> dict[str, Any]:
    """Read ``config.json``; `check_model_folder` checks it."""
    return _read(folder / "config.json")


def _read(path: Path) -> dict[str, Any]:
    return parse_config(read_bytes(path, MAX_MODEL_JSON_BYTES), path.name)


def parse_config(content: bytes, name: str = "config.json") -> dict[str, Any]:
    """Read the content of a JSON file of a model, bounded before it is parsed."""
    if len(content) > MAX_MODEL_JSON_BYTES:
        raise ValueError(f"{name} has more than {MAX_MODEL_JSON_BYTES:,} bytes")
    try:
        check_structure(content, MAX_MODEL_JSON_VALUES)
        return check_object(parse_json(content.decode()), "its content")
    except ValueError as error:  # also where it is not UTF-8
        raise ValueError(f"{name} cannot be read: {error}") from None


def _check_config(config: Mapping[str, Any]) -> None:
    require(config, "model_type", str, "config.json")
    for owner in (config, *(value for value in config.values() if isinstance(value, dict))):
        for name, allowed in RANGES.items():
            if owner.get(name) is not None:
                check_parameter(f"{name} in config.json", allowed, owner[name], int)


def weight_files(folder: Path) -> Iterator[Path]:
    """Yield the weight files: one, or those of an index.

    Raises a ValueError if there are none, or they are not safetensors.
    """
    if (folder / "model.safetensors").exists():
        yield folder / "model.safetensors"
    elif (folder / _INDEX).exists():
        names = require(_read(folder / _INDEX), "weight_map", dict, _INDEX).values()
        for name in dict.fromkeys(map(str, names)):
            if Path(name).name != name:
                raise ValueError(f"{_INDEX} names {name!r}, which is not a file of the folder")
            yield folder / name
    elif any(folder.glob("*.bin")) or any(folder.glob("*.pt")):
        raise ValueError(
            "its weights are pickled, which is not supported: save them as safetensors"
        )
    else:
        raise ValueError("it has no weights: there is no file model.safetensors")


def _numbers(path: Path) -> int:
    """Return the number of parameters in a weight file, by its header."""
    if not path.is_file():
        raise ValueError(f"there is no file {path.name}")
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(min(8, size)), "little")
        if length > min(size - 8, MAX_MODEL_JSON_BYTES):
            raise ValueError(f"{path.name} is truncated or not safetensors")
        header = parse_config(file.read(length), f"the header of {path.name}")
    header.pop("__metadata__", None)
    numbers, end = 0, 0
    for name, array in header.items():
        array = check_object(array, f"{name[:80]!r} in {path.name}")
        shape, offsets = _counts(array.get("shape")), _counts(array.get("data_offsets"))
        if shape is None or offsets is None or len(offsets) != 2:
            raise ValueError(f"{name[:80]!r} in {path.name} has no valid shape or offsets")
        numbers, end = numbers + math.prod(shape), max(end, offsets[1])
    expected = 8 + length + end
    if size != expected:
        raise ValueError(f"{path.name} has {size:,} bytes, but its header says {expected:,}")
    return numbers


def _counts(value: object) -> list[int] | None:
    """Return a list of at most 8 non-negative integers, None for anything else."""
    if not isinstance(value, list) or len(value) > 8:
        return None
    return value if all(type(size) is int and 0 <= size < 2**63 for size in value) else None
