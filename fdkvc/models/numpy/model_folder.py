"""Checks of a model folder before anything is loaded.

A folder of Hugging Face *transformers* has ``config.json``, a tokenizer, and weights as
*safetensors*, whose header gives the type, shape and offsets of every array.

The library *tokenizers*, in Rust, sets no bounds to ``tokenizer.json``. Some files make it panic,
which Python raises as a `BaseException`, or end the process; a few nested replacements exhaust
memory. Such files are rejected before loading, and errors of the library become one sentence.
"""

import inspect
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fdkvc.core.json_input import (
    check_object,
    check_structure,
    optional,
    parse_json,
    read_bytes,
    require,
)
from fdkvc.core.limits import (
    MAX_ADDED_TOKEN_CHARACTERS,
    MAX_MODEL_JSON_BYTES,
    MAX_MODEL_JSON_VALUES,
    MAX_PATTERN_SECONDS,
    MAX_TOKENIZER_GROWTH,
    MAX_TOKENIZER_INSERTED,
    MAX_TOKENIZER_PART_CHARACTERS,
    MAX_TOKENIZER_PARTS,
    MAX_UNIGRAM_CHARACTERS,
)
from fdkvc.core.parameters import Parameter, check_most, check_parameter
from fdkvc.core.words import as_value_error, error_reason
from fdkvc.models.numpy.gguf_tokenizer import PATTERNS

TOKENIZER, WEIGHTS = "tokenizer.json", "model.safetensors"

POSITIVE = Parameter("", "", low=0, high=1e9, open_low=True)
_FEW = Parameter("", "", low=1, high=1024)
_WIDTH = Parameter("", "", low=1, high=1_000_000)

RANGES: Mapping[str, Parameter] = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), _FEW),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_key_value_heads"), _FEW),
    **dict.fromkeys(("hidden_size", "n_embd", "dim", "head_dim", "intermediate_size"), _WIDTH),
    "vocab_size": Parameter("", "", low=1, high=10_000_000),
}
"""Ranges of sizes in ``config.json``, by their names in various architectures."""

_MORE_FILES = (TOKENIZER, "tokenizer_config.json", "generation_config.json")
_INDEX = "model.safetensors.index.json"
_ADDED = ("content", "prepend")
_SEQUENCES = ("normalizers", "pretokenizers", "processors", "decoders")


def check_model_folder(folder: Path) -> int:
    """Return the number of parameters in the weights of a model.

    Raises a ValueError that names the file and the problem.
    """
    if not folder.is_dir():
        if folder.exists():
            raise ValueError("it is neither a folder nor a GGUF file")
        raise ValueError("there is no such folder or file")
    config = read_json(folder / "config.json")
    require(config, "model_type", str, "config.json")
    # A model of images and text has the sizes of its text model in an object within.
    for owner in (config, *config.values()):
        for name, allowed in RANGES.items():
            if isinstance(owner, dict) and owner.get(name) is not None:
                check_parameter(f"{name} in config.json", allowed, owner[name], int)
    for name in _MORE_FILES:
        if (folder / name).exists():
            content = read_json(folder / name)
            if name == TOKENIZER:
                with as_value_error(f"{TOKENIZER} cannot be read"):
                    check_tokenizer(content)
    return count_numbers(folder)


def count_numbers(folder: Path) -> int:
    """Return the number of parameters in the weights of a model, from the headers of its files."""
    return sum(map(_numbers, weight_files(folder)))


def check_loaded(loaded: Mapping[str, Any]) -> None:
    """Raise a ValueError for weights that are missing, by the ``loading_info`` of the library."""
    for key, *_ in sorted(loaded["mismatched_keys"]):
        raise ValueError(f"its weights and config.json differ in the size of {key}")
    if missing := sorted(loaded["missing_keys"]):
        raise ValueError(f"its weights lack {missing[0]} ({len(missing)} missing in all)")


def all_finite(array: Any) -> bool:
    """Whether no number of an array is infinite or undefined."""
    # What is not makes the sum so, and the sum takes no memory; it may overflow itself.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum()) or np.isfinite(array).all())


def check_memory(size: int) -> None:
    """Raise a ValueError if `size` bytes are more than the memory of this machine."""
    memory = machine_memory()
    if size > memory:
        raise ValueError(
            f"it takes {size / 1e9:,.1f} GB of memory, but this machine has {memory / 1e9:,.1f}"
        )


def machine_memory() -> int | float:
    """Return the bytes of memory of this machine, or of its container; infinity if unknown."""
    sizes = [math.inf]
    with suppress(AttributeError, OSError, ValueError):  # Windows has no sysconf
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # cgroups version 2, and 1
        with suppress(OSError, ValueError):  # "max" means no limit
            sizes.append(int((Path("/sys/fs/cgroup") / name).read_text()))
    return min(sizes)


def cache_name(model: Any) -> str:
    """Return the name of the cache in the arguments and the output of a model's forward pass.

    It is ``cache`` from *transformers* 5.24 on, where ``past_key_values`` is deprecated.
    """
    new = "cache" in inspect.signature(model.forward).parameters
    return "cache" if new else "past_key_values"


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a model; `check_model_folder` checks what is in it."""
    return parse_config(read_bytes(path, MAX_MODEL_JSON_BYTES), path.name)


def parse_config(content: bytes, name: str) -> dict[str, Any]:
    """Parse a JSON file of a model, after a check of its size and structure."""
    if len(content) > MAX_MODEL_JSON_BYTES:
        raise ValueError(f"{name} has more than {MAX_MODEL_JSON_BYTES:,} bytes")
    with as_value_error(f"{name} cannot be read"):  # also where it is not UTF-8
        check_structure(content, MAX_MODEL_JSON_VALUES)
        return check_object(parse_json(content.decode()), "its content")


def weight_files(folder: Path) -> Iterator[Path]:
    """Yield the weight files: one, or those of an index.

    Raises a ValueError if there are none, or they are not safetensors.
    """
    if (folder / WEIGHTS).exists():
        yield folder / WEIGHTS
    elif (folder / _INDEX).exists():
        names = require(read_json(folder / _INDEX), "weight_map", dict, _INDEX).values()
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
    """Return the number of parameters in a weight file; the library checks its header."""
    from safetensors import safe_open

    if not path.is_file():
        raise ValueError(f"there is no file {path.name}")
    with as_value_error(f"{path.name} cannot be read"), safe_open(path, "numpy") as file:
        names = file.keys()
        return sum(math.prod(file.get_slice(name).get_shape()) for name in names)


# ------------------------------------------------------------------------------- the tokenizer


@contextmanager
def loading(failed: str) -> Iterator[None]:
    """Turn errors while a model is loaded into a ValueError of one sentence."""
    try:
        yield
    except MemoryError:
        raise ValueError(f"{failed}: it needs more memory than is available") from None
    except OSError as error:
        raise ValueError(f"{failed}: {error_reason(error)}") from None
    except ValueError as error:
        raise ValueError(f"{failed}: {error}") from None


@contextmanager
def stderr_silenced() -> Iterator[None]:
    """Discard stderr of this process: a Rust panic prints to it even if it is caught."""
    # By file descriptor, since Rust does not write by `sys.stderr`.
    try:
        saved_stderr = os.dup(2)
        nowhere = os.open(os.devnull, os.O_WRONLY)
    except OSError:  # there is no stderr
        yield
        return
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved_stderr, 2)
        os.close(saved_stderr)
        os.close(nowhere)


def check_tokenizer(tokenizer: Mapping[str, Any]) -> None:
    """Check the content of a ``tokenizer.json`` before the library reads it.

    Raises a ValueError that names the limit.
    """
    patterns = set[str]()
    # 1. Steps before and after the model: how many parts, and how far they lengthen a text.
    for step in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        parts = list(_parts(tokenizer.get(step)))
        growth = math.prod(map(_growth, parts))  # each may lengthen what the one before wrote
        check_most(f"{step} has", len(parts), "parts", MAX_TOKENIZER_PARTS)
        if growth > MAX_TOKENIZER_GROWTH:
            raise ValueError(
                f"{step} makes a text up to {growth:,.0f} times as long, but at most "
                f"{MAX_TOKENIZER_GROWTH} times is allowed"
            )
        lengths = (len(str(part.get(name))) for part, name in product(parts, _ADDED))
        inserted = max(lengths, default=0)
        check_most(f"{step} inserts", inserted, "characters at once", MAX_TOKENIZER_INSERTED)
        longest = max((len(str(part)) for part in parts), default=0)
        check_most(
            f"a part of {step} has", longest, "characters", MAX_TOKENIZER_PART_CHARACTERS
        )
        for part in parts:
            pattern = part.get("pattern")
            if isinstance(pattern, dict) and isinstance(pattern.get("Regex"), str):
                patterns.add(pattern["Regex"])
    # 2. Tokens from which the library builds automata, which take far more memory than the file.
    added = optional(tokenizer, "added_tokens", list, "its content")
    letters = 0
    for token in added:
        if isinstance(token, dict) and isinstance(token.get("content"), str):
            letters += len(token["content"])
    check_most("added tokens have", letters, "characters", MAX_ADDED_TOKEN_CHARACTERS)
    model = optional(tokenizer, "model", dict, "its content")
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, list):
        letters = 0
        for token in vocabulary:
            if isinstance(token, list) and token and isinstance(token[0], str):
                letters += len(token[0])
        subject = "the vocabulary's tokens have"
        check_most(subject, letters, "characters", MAX_UNIGRAM_CHARACTERS)
    # The library cuts the prefix off each second part, and panics at one that is shorter.
    if model.get("continuing_subword_prefix") and model.get("merges"):
        raise ValueError("merges with a continuing_subword_prefix are not supported")
    unknown_patterns = patterns.difference(PATTERNS.values())
    if unknown_patterns:
        check_patterns(tuple(sorted(unknown_patterns)))


# Trying patterns takes up to seconds, and a page may load the same tokenizer again.
@lru_cache(maxsize=8)
def check_patterns(patterns: tuple[str, ...]) -> None:
    """Raise a ValueError if one of these regular expressions takes too long for a short text."""
    file = str(Path(__file__).with_name("try_patterns.py"))
    try:
        process = subprocess.run(
            [sys.executable, file],
            input=json.dumps(patterns),
            text=True,
            capture_output=True,
            timeout=MAX_PATTERN_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"its regular expressions take more than {MAX_PATTERN_SECONDS} s for texts of 5,000 "
            "characters"
        ) from None
    if process.returncode:
        raise ValueError("its regular expressions cannot be used, or take too many steps")


def _parts(step: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the parts of a step, also those of nested sequences, one by one."""
    if isinstance(step, dict):
        # The map of characters is long in known tokenizers, such as T5's.
        excluded = (*_SEQUENCES, "precompiled_charsmap")
        yield {name: value for name, value in step.items() if name not in excluded}
        for name in _SEQUENCES:
            for part in optional(step, name, list, "its content"):
                yield from _parts(part)


def _growth(part: Mapping[str, Any]) -> float:
    """Return the factor by which a part may lengthen a text."""
    new = part.get("content")
    pattern = part.get("pattern")
    if not (isinstance(new, str) and isinstance(pattern, dict)):
        return 1
    old = pattern.get("String")
    if isinstance(old, str):
        return max(1, len(new) / max(len(old), 1))
    # A regular expression may match the empty string between any two characters.
    return 1 + len(new)
