"""A file beside a run's output: it locks the output, and keeps what a killed run finished."""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import filterfalse
from os import PathLike
from pathlib import Path
from typing import IO, Any, Self

from fdkvc.core.words import error_reason
from fdkvc.runs.console import warn

MARK = b"fdkvc "
"""How the first line begins, before the key."""


class Finished:
    """The lock on a run's output while it lasts, and the results of its finished jobs by number.

    Results are JSON values. Their file is named as the output with ``.unfinished`` appended; it is
    beside it, or inside it where nothing can be written beside it. It is locked until the run ends,
    however that happens, and removed once the run succeeds or has finished no job; a run that never
    calls `take_over` leaves the results of an earlier one. Raises a ValueError if another run holds
    the lock, if the file is not from a run, or if it cannot be written. Warns where it cannot be
    locked, as on Windows.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._out = Path(path).resolve()
        self.path = self._out.with_name(f"{self._out.name}.unfinished")
        self._key = b""
        self.results: dict[int, Any] = {}
        # Parent folders that opening the file creates, to be removed if the run leaves nothing.
        self._made = [*filterfalse(os.path.lexists, self.path.parents)]
        with self._reported():
            try:
                self._file = self._locked()
            except OSError:  # such as beside a mounted folder
                if not self._out.is_dir():
                    self._remove_folders()
                    raise
                self.path = self._out / self.path.name
                self._file = self._locked()

    def _locked(self) -> IO[bytes]:
        """Open the file for this run alone, and check that it is of a run."""
        not_ours = ValueError(f"{self.path} is not from an earlier run: move it elsewhere")
        if os.path.exists(self.path) and not os.path.isfile(self.path):
            raise not_ours
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as until_checked:
            file = until_checked.enter_context(self.path.open("a+b", buffering=0))
            self._lock(file)
            file.seek(0)
            head = file.read(64)
            # A killed run may have written only part of the mark.
            if head[: len(MARK)] != MARK[: len(head)]:
                raise not_ours
            # Before it was locked, another run may have removed the file and made a new one.
            if os.path.exists(self.path) and os.path.samestat(
                os.fstat(file.fileno()), os.stat(self.path)
            ):
                until_checked.pop_all()  # the file stays open
                return file
        return self._locked()  # another run removed it since it was opened

    def _lock(self, file: IO[bytes]) -> None:
        """Lock an open file until it is closed."""
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"another run writes to {self._out} now: wait for its end, or choose another place"
            ) from None
        except (ImportError, OSError):
            warn(
                f"{self.path} cannot be locked: another run with this --out would go unnoticed"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if (kind is None and self._key) or not os.fstat(self._file.fileno()).st_size:
            if os.name == "nt":  # Windows does not remove an open file
                self._file.close()
            self.path.unlink(missing_ok=True)
            self._remove_folders()
        self._file.close()

    def _remove_folders(self) -> None:
        for folder in self._made:
            with suppress(OSError):  # not empty: the run was written into it
                folder.rmdir()

    def take_over(self, key: str) -> None:
        """Take over the results of an earlier run, if its `key` was the same."""
        self._key = MARK + key.encode()
        with self._reported(), self.path.open("rb") as file:
            if file.readline(len(self._key) + 1).rstrip(b"\n") != self._key:
                return
            for line in file:
                # The last may be cut short.
                with suppress(ValueError, TypeError, RecursionError):
                    number, result = json.loads(line)
                    self.results[number] = result

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error_reason(error)
            raise ValueError(
                f"the file {str(self.path)!r} cannot be written: {reason}"
            ) from None

    def add(self, number: int, result: Any) -> None:
        """Add the result of a job."""
        # Older versions of pandas give NumPy numbers as group keys; JSON writes their values.
        line = json.dumps([number, result], default=lambda value: value.item())
        content = f"\n{line}".encode()
        with self._reported():
            if not self.results:  # what is in the file is of a run with another key
                self._file.truncate(0)
                content = self._key + content
            while content:  # an almost full disk may take only part of it
                content = content[self._file.write(content) :]
        self.results[number] = result
