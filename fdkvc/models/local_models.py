"""Models that other programs have stored on this machine: Ollama, Hugging Face and LM Studio.

They are listed by name and nothing else: nothing is downloaded, no weights are read, and what a
link or a manifest names outside of its own store is left out.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fdkvc.core.json_input import check_structure, parse_json, read_bytes
from fdkvc.core.limits import MAX_MANIFEST_BYTES, MAX_STORED_MODELS

OLLAMA, HUGGING_FACE, LM_STUDIO = "Ollama", "Hugging Face", "LM Studio"

PREFIXES = {"ollama": OLLAMA, "hf": HUGGING_FACE, "lmstudio": LM_STUDIO}
"""How the names of models of a store begin, before a colon."""

_NAME = re.compile(r"[\w./:@+-]{1,200}")
"""What can be typed after ``--model``, and stand in a link."""

_PART = re.compile(r"mmproj|-of-\d{5}$")
"""In the name of a GGUF file that is no model alone."""


@dataclass(frozen=True)
class LocalModel:
    """A model in a store of this machine."""

    name: str
    """As ``--model`` takes it, such as ``ollama:qwen2.5:0.5b``."""
    path: Path
    """A GGUF file, or a folder of *transformers*."""
    size: int
    """Bytes of its files."""
    store: str
    """The program that stored it."""


def local_models() -> dict[str, LocalModel]:
    """Return the models in all stores by name: at most `MAX_STORED_MODELS` of each."""
    found = dict[str, LocalModel]()
    for models in (_ollama(), _hugging_face(), _lm_studio()):
        for model in islice(models, MAX_STORED_MODELS):
            if _NAME.fullmatch(model.name):
                # A program may have several folders, with the same model in them.
                found.setdefault(model.name, model)
    return dict(sorted(found.items()))


def is_stored_name(name: str) -> bool:
    """Whether a name is of a model in a store, by its beginning.

    Examples
    --------
    >>> is_stored_name("ollama:qwen2.5:0.5b"), is_stored_name("models/qwen")
    (True, False)
    """
    prefix, colon, _ = name.partition(":")
    return bool(colon) and prefix in PREFIXES


def stored_path(name: str) -> Path:
    """Return where the model of this name lies. Raises a ValueError that lists those there are."""
    models = local_models()
    if name in models:
        return models[name].path
    store = PREFIXES[name.partition(":")[0]]
    names = [model.name for model in models.values() if model.store == store]
    listed = f"has {', '.join(names[:10])}" if names else "has none"
    raise ValueError(f"there is no such model on this machine: {store} {listed}")


# ------------------------------------------------------------------------------- stores


def _ollama() -> Iterator[LocalModel]:
    """Yield the models of Ollama: a manifest each, which names the file by its digest."""
    places = (
        os.environ.get("OLLAMA_MODELS"),
        "~/.ollama/models",
        "/usr/share/ollama/.ollama/models",
    )
    for root in _folders(*places):
        for manifest in sorted(root.glob("manifests/*/*/*/*")):
            with suppress(ValueError, OSError):
                if not _inside(root, manifest):
                    continue
                content = read_bytes(manifest, MAX_MANIFEST_BYTES)
                digest, size = _model_layer(content)
                path = root / "blobs" / f"sha256-{digest}"
                # A file of another size is not whole.
                if _inside(root, path) and path.stat().st_size == size:
                    host, owner, model, tag = manifest.parts[-4:]
                    # As Ollama itself lists it.
                    name = f"{model}:{tag}" if owner == "library" else f"{owner}/{model}:{tag}"
                    name = name if host == "registry.ollama.ai" else f"{host}/{name}"
                    yield LocalModel(f"ollama:{name}", path, size, OLLAMA)


def _model_layer(content: bytes) -> tuple[str, int]:
    """Return the digest and the size of the weights that a manifest names."""
    if len(content) > MAX_MANIFEST_BYTES:
        raise ValueError("it is too large")
    check_structure(content)
    manifest = parse_json(content.decode("utf-8"))
    layers = manifest.get("layers") if isinstance(manifest, dict) else None
    for layer in layers if isinstance(layers, list) else []:
        if isinstance(layer, dict) and layer.get("mediaType") == (
            "application/vnd.ollama.image.model"
        ):
            digest = re.fullmatch(r"sha256:([0-9a-f]{64})", str(layer.get("digest")))
            size = layer.get("size")
            if digest and isinstance(size, int):
                return digest[1], size
    raise ValueError("it names no model")


def _hugging_face() -> Iterator[LocalModel]:
    """Yield the models of the Hugging Face cache, each in the revision that ``main`` names."""
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    for root in _folders(os.environ.get("HF_HUB_CACHE", f"{home}/hub")):
        for folder in sorted(root.glob("models--*--*")):
            with suppress(ValueError, OSError):
                revision = read_bytes(folder / "refs" / "main", 100).decode("ascii").strip()
                if not re.fullmatch(r"[0-9a-f]{6,64}", revision):
                    continue
                snapshot = folder / "snapshots" / revision
                name = "hf:" + folder.name.removeprefix("models--").replace("--", "/")
                weights = [*snapshot.glob("*.safetensors")]
                files = [snapshot / "config.json", snapshot / "tokenizer.json", *weights]
                if weights and all(_inside(root, file) for file in files):
                    size = sum(file.stat().st_size for file in files)
                    yield LocalModel(name, snapshot, size, HUGGING_FACE)
                yield from _gguf_files(root, snapshot, name, HUGGING_FACE)


def _lm_studio() -> Iterator[LocalModel]:
    """Yield the models of LM Studio: files in a folder of a publisher."""
    for root in _folders("~/.lmstudio/models", "~/.cache/lm-studio/models"):
        for folder in sorted(root.glob("*/*")):
            name = "lmstudio:" + folder.relative_to(root).as_posix()
            yield from _gguf_files(root, folder, name, LM_STUDIO)


def _gguf_files(root: Path, folder: Path, name: str, store: str) -> Iterator[LocalModel]:
    for path in sorted(folder.glob("*.gguf")):
        if not _PART.search(path.stem) and _inside(root, path):
            yield LocalModel(f"{name}/{path.stem}", path, path.stat().st_size, store)


def _folders(*places: str | None) -> Iterator[Path]:
    """Yield the folders among some places, each once."""
    paths = [Path(place).expanduser() for place in places if place]
    for path in dict.fromkeys(paths):
        with suppress(OSError):
            if path.is_dir():
                yield path.resolve()


def _inside(root: Path, path: Path) -> bool:
    """Whether a regular file lies in a folder, also once its links are followed."""
    try:
        return path.is_file() and path.resolve().is_relative_to(root)
    except OSError:
        return False
