"""Files, written whole or not at all."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

Files = Mapping[str, str | bytes]

UNFINISHED, FINISHED = ".fdkvc-unfinished", ".fdkvc-finished"
"""Folders where files are prepared; renaming the first to the second commits the write."""


def check_folder(folder: str | os.PathLike[str], names: Iterable[str] = ()) -> None:
    """Check that `write_files` can write to a folder; nothing is left behind.

    It and its missing parents may still have to be created; `names` are of files that the user
    chose. Raises a ValueError if it is not a folder, cannot be created, or is not writable.
    """
    with _writable(folder) as (path, unfinished):
        for name in names:
            _check_file(path / name)
            (unfinished / name).touch()


@contextmanager
def _writable(folder: str | os.PathLike[str]) -> Iterator[tuple[Path, Path]]:
    """Yield a folder, created if missing and removed if it stays empty, and one within it."""
    if not os.fspath(folder):
        raise ValueError("the folder '' cannot be written: it has no name")
    path, made = Path(folder), []
    try:
        if path.exists() and not path.is_dir():
            raise ValueError(f"the folder {str(path)!r} cannot be written: it is not a folder")
        missing = _missing(path)
        there = missing[-1].parent if missing else path
        if not there.is_dir():
            raise ValueError(
                f"the folder {str(path)!r} cannot be created: {str(there)!r} is not a folder"
            )
        made = missing
        path.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            try:
                _recover(path)
                # In the folder itself, so that moving from there is a rename and not a copy.
                (path / UNFINISHED).mkdir()
                yield path, path / UNFINISHED
            finally:
                try:
                    _recover(path)
                except BaseException:  # a signal came between
                    _recover(path)
                    raise
    except OSError as error:
        raise ValueError(f"the folder {str(path)!r} cannot be written: {_reason(error)}") from error
    finally:
        for folder_made in made:
            with suppress(OSError):
                folder_made.rmdir()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait until no other process writes to a folder; a lock ends with its process.

    Windows has no such lock: there, two processes should not write to one folder at once.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _recover(folder: Path) -> None:
    """Complete a committed write, and remove an unfinished one."""
    new = folder / FINISHED / "new"
    if new.is_dir():
        for path in new.iterdir():
            path.replace(folder / path.name)
    for name in (UNFINISHED, FINISHED):
        shutil.rmtree(folder / name, ignore_errors=True)


def _check_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file"
        raise ValueError(f"the file {str(path)!r} cannot be written: it is {what}")


def write_files(folder: str | os.PathLike[str], files: Files) -> None:
    """Write files into a folder, all of them or none; files of the same names are replaced.

    If anything fails or interrupts, the folder is as it was before. After a kill, the next call for
    the folder, of this function or of `check_folder`, makes its files all old or all new. The
    folder and its missing parents are created; a text is written as UTF-8. Raises a ValueError if
    the folder cannot be written, or a file in it cannot.
    """
    with _writable(folder) as (path, unfinished):
        _replace_all(path, files, unfinished)


def _missing(folder: Path) -> list[Path]:
    """Return the folder and its parents that do not exist, innermost first."""
    above = [folder.absolute(), *folder.absolute().parents]
    return [each for each in above if not each.exists()]


def _replace_all(folder: Path, files: Files, unfinished: Path) -> None:
    """Write all files to a temporary folder, back up those they replace, then move them."""
    new, old = unfinished / "new", unfinished / "old"
    new.mkdir()
    old.mkdir()
    for name, content in files.items():
        _check_file(folder / name)
        (new / name).write_bytes(content.encode() if isinstance(content, str) else content)
        _sync(new / name)
        if (folder / name).exists():
            shutil.copy2(folder / name, old / name)
    _sync(new)
    finished = folder / FINISHED
    unfinished.rename(finished)  # committed: from here on, a later run would move the rest
    new, old = finished / "new", finished / "old"
    try:
        _sync(folder)
        for name in files:
            os.replace(new / name, folder / name)
    except BaseException:
        # At each step, every new file is in the folder or in `new`.
        for name in files:
            if (new / name).exists():
                continue  # it was not moved
            (folder / name).rename(new / name)
            if (old / name).exists():
                (old / name).rename(folder / name)
        finished.rename(unfinished)
        raise


def _sync(path: Path) -> None:
    if sys.platform == "win32" and path.is_dir():
        return  # Windows opens no folders
    handle = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _reason(error: OSError) -> str:
    reason = error.strerror or str(error)
    return reason[:1].lower() + reason[1:]
