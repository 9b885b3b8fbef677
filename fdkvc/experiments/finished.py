"""Finished jobs of a run, in a file beside what it will write, so that a killed run can go on."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any

MARK = b"fdkvc "
"""How the first line begins, before the key."""


class Finished:
    """The results of jobs by number; they consist of JSON values.

    Those of an earlier run are taken over if its `key` was the same. `out` is what the run will
    write; the file has its name and ``.unfinished``, and is there from the first finished job on.
    Raises a ValueError if there is another file of this name, or if it cannot be written.
    """

    def __init__(self, out: str | PathLike[str], key: str) -> None:
        whole = Path(out).resolve()
        self.path, self._key = whole.with_name(f"{whole.name}.unfinished"), MARK + key.encode()
        self.results: dict[int, Any] = {}
        if not self.path.exists():
            return
        with self._reported(), self.path.open("rb") as file:
            first = file.readline(len(self._key) + 1).rstrip(b"\n")
            if not first.startswith(MARK):
                raise ValueError(f"{self.path} is not from an earlier run: move it elsewhere")
            for line in file if first == self._key else ():
                with suppress(ValueError, TypeError, RecursionError):  # the last may be cut short
                    number, result = json.loads(line)
                    self.results[number] = result

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ValueError(f"{self.path}: {error.strerror}") from None

    def add(self, number: int, result: Any) -> None:
        """Add the result of a job."""
        with self._reported():
            if not self.results:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.write_bytes(self._key)
            # Older versions of pandas group by numbers of NumPy, which JSON writes as their values.
            line = json.dumps([number, result], default=lambda value: value.item())
            with self.path.open("ab", buffering=0) as file:
                file.write(f"\n{line}".encode())
        self.results[number] = result

    def remove(self) -> None:
        """Remove the file, once the run is written."""
        self.path.unlink(missing_ok=True)
