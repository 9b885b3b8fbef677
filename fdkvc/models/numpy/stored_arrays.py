"""The arrays of a model's files, read in blocks of rows and converted to single precision."""

import json
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from fdkvc.core.attention import Floats
from fdkvc.models.numpy.model_folder import all_finite, weight_files

BLOCK_NUMBERS = 2**17
"""Numbers that are converted at once: their several copies fit a processor's cache."""

PRECISIONS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Supported types of *safetensors*, and their NumPy types in a file."""


class StoredArrays(Mapping[str, Floats]):
    """The arrays of a checked file or folder, by their names in a folder of *transformers*.

    An array is read each time that it is looked up. `blocks` needs no memory for all of it, so that
    a matrix can be written where it is used.
    """

    @property
    @abstractmethod
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each array."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __contains__(self, name: object) -> bool:
        return name in self.shapes

    def __len__(self) -> int:
        return len(self.shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array."""
        return self.shapes[name]

    @abstractmethod
    def read_blocks(self, name: str, rows: int) -> Iterator[Floats]:
        """Read an array, so many rows at once."""

    def blocks(self, name: str) -> Iterator[Floats]:
        """Yield an array in blocks of rows; raise a ValueError for a number that is not finite."""
        width = math.prod(self.shape(name)[1:])
        for block in self.read_blocks(name, max(BLOCK_NUMBERS // max(width, 1), 1)):
            if not all_finite(block):
                raise ValueError(f"{name[:80]} holds a number that is not finite")
            yield block

    def __getitem__(self, name: str) -> Floats:
        array = np.empty(self.shape(name), np.float32)
        end = 0
        for block in self.blocks(name):
            array[end : end + len(block)] = block
            end += len(block)
        return array


class FolderArrays(StoredArrays):
    """The arrays of a checked folder, whose files are *safetensors*."""

    def __init__(self, folder: Path) -> None:
        self._places: dict[str, tuple[Path, str, int]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for path in weight_files(folder):
            with path.open("rb") as file:
                size = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(size))
            for name, array in header.items():
                if name == "__metadata__":
                    continue
                kind = array["dtype"]
                if kind not in PRECISIONS:
                    raise ValueError(
                        f"{name[:80]} has numbers of the type {kind}, but must have one of "
                        + ", ".join(PRECISIONS)
                    )
                start = 8 + size + array["data_offsets"][0]
                self._places[name] = path, kind, start
                self._shapes[name] = tuple(array["shape"])

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each array."""
        return self._shapes

    def read_blocks(self, name: str, rows: int) -> Iterator[Floats]:
        """Read an array, so many rows at once."""
        path, kind, start = self._places[name]
        shape = self.shape(name)
        width = math.prod(shape[1:])
        with path.open("rb") as file:
            file.seek(start)
            for first in range(0, shape[0], rows):
                count = min(rows, shape[0] - first)
                numbers = np.fromfile(file, PRECISIONS[kind], count * width)
                if kind == "BF16":  # the upper half of a number in single precision
                    numbers = (numbers.astype("<u4") << 16).view("<f4")
                yield numbers.astype(np.float32, copy=False).reshape(count, *shape[1:])
