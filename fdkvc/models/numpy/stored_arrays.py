"""The arrays of a model's files, read in blocks of rows and converted to single precision."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import Floats
from fdkvc.models.numpy.model_folder import all_finite, read_json, weight_files

BLOCK_NUMBERS = 2**17
"""Numbers that are converted at once: their several copies fit a processor's cache."""

PRECISIONS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Supported types of *safetensors*, and their NumPy types in a file."""


class StoredArray(Protocol):
    """Where an array is in a file, and how its numbers are stored."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its rows, if it has any, and the numbers of one."""

    @property
    def start(self) -> int:
        """Its first byte in the file."""

    @property
    def row(self) -> int:
        """Bytes of a row."""

    def converted(self, stored: NDArray[np.uint8]) -> Floats:
        """Return the numbers of some rows in single precision, given their bytes."""


class StoredArrays(ABC):
    """The arrays of a checked file or folder, by their names in a folder of *transformers*.

    An array is read each time that it is looked up. `blocks` needs no memory for all of it, so that
    a matrix can be written where it is used.
    """

    arrays: Mapping[str, Any]
    """A `StoredArray` by each name."""
    config: Any
    """The content of ``config.json``."""

    @abstractmethod
    def path_of(self, name: str) -> Path:
        """Return the file that has an array."""

    def blocks(self, name: str) -> Iterator[Floats]:
        """Yield an array in blocks of rows (n, ·).

        Raises a ValueError for a number that is not finite, or of a type that is not supported.
        """
        array: StoredArray = self.arrays[name]
        width = array.shape[-1]
        rows_left = math.prod(array.shape[:-1])
        with self.path_of(name).open("rb") as file:
            file.seek(array.start)
            while rows_left:
                rows = min(rows_left, max(BLOCK_NUMBERS // width, 1))
                rows_left -= rows
                stored = np.fromfile(file, np.uint8, rows * array.row)
                if stored.size < rows * array.row:
                    raise ValueError(f"{self.path_of(name).name} is truncated")
                block = array.converted(stored).reshape(rows, width)
                if not all_finite(block):
                    raise ValueError(f"{name[:80]} holds a number that is not finite")
                yield block

    def __getitem__(self, name: str) -> Floats:
        array = np.empty(self.arrays[name].shape, np.float32)
        rows = array.reshape(-1, array.shape[-1])
        end = 0
        for block in self.blocks(name):
            rows[end : end + len(block)] = block
            end += len(block)
        return array


class FolderArray(NamedTuple):
    """An array of a *safetensors* file."""

    path: Path
    type: str
    """One of `PRECISIONS`."""
    shape: tuple[int, ...]
    start: int

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return self.shape[-1] * np.dtype(PRECISIONS[self.type]).itemsize

    def converted(self, stored: NDArray[np.uint8]) -> Floats:
        """Return the numbers of some rows in single precision, given their bytes."""
        numbers = stored.view(PRECISIONS[self.type])
        if self.type == "BF16":  # the upper half of a number in single precision
            numbers = (numbers.astype("<u4") << 16).view("<f4")
        return numbers.astype(np.float32, copy=False)


class FolderArrays(StoredArrays):
    """The arrays of a checked folder, whose files are *safetensors*."""

    def __init__(self, folder: Path) -> None:
        self.config = read_json(folder / "config.json")
        self.arrays: dict[str, FolderArray] = {}
        for path in weight_files(folder):
            with path.open("rb") as file:
                size = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(size))
            header.pop("__metadata__", None)
            for name, array in header.items():
                kind = array["dtype"]
                if kind not in PRECISIONS:
                    raise ValueError(
                        f"{name[:80]} has numbers of the type {kind}, but must have one of "
                        + ", ".join(PRECISIONS)
                    )
                start = 8 + size + array["data_offsets"][0]
                self.arrays[name] = FolderArray(path, kind, tuple(array["shape"]), start)

    def path_of(self, name: str) -> Path:
        """Return the file that has an array."""
        return self.arrays[name].path
