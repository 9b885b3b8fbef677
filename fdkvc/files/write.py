"""Files, written whole or not at all."""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from fdkvc.files.endings import ENDINGS

Files = Mapping[str, str | bytes]

UNFINISHED = ".fdkvc-unfinished"
"""The folder where files are prepared."""


def check_folder(folder: str | os.PathLike[str], names: Iterable[str] = ()) -> None:
    """Check that `write_files` can write to a folder; nothing is left behind.

    It and its missing parents may still have to be created; `names` are of files that the user
    chose. Raises a ValueError if it is not a folder, cannot be created, or is not writable.
    """
    with _writable(folder) as (path, _, new):
        for name in names:
            _check_file(path / name)
            (new / name).touch()


def write_files(folder: str | os.PathLike[str], files: Files) -> None:
    """Write files into a folder, all of them or none; files of the same names are replaced.

    One rename places a single file, or a new folder with its missing parents. Several files are
    placed in an existing folder by a rename each; after a kill between these, the next call for the
    folder, of this function or of `check_folder`, undoes them. If anything fails, or a signal that
    `ENDINGS` handles comes before them, the folder is as it was; a later signal has no effect. A
    text is written as UTF-8. Raises a ValueError if the folder or a file cannot be written.
    """
    with _writable(folder) as (path, there, new):
        for name, content in files.items():
            _check_file(path / name)
            (new / name).write_bytes(content.encode() if isinstance(content, str) else content)
            _sync(new / name)
            ENDINGS.check()
        _sync(new)
        _move(path, there)
        ENDINGS.written = True


@contextmanager
def _writable(folder: str | os.PathLike[str]) -> Iterator[tuple[Path, Path, Path]]:
    """Yield a folder, the innermost of it and its parents that exists, and where to prepare it.

    That is within the existing one, so that moving from there is a rename and not a copy.
    """
    if not os.fspath(folder):
        raise ValueError("the folder '' cannot be written: it has no name")
    path = Path(os.path.realpath(folder))
    try:
        with _locked(path) as there:
            parts = path.relative_to(there).parts
            new = there.joinpath(UNFINISHED, *(parts[1:] if parts else ["new"]))
            ENDINGS.held = True
            try:
                _undo(there)
                new.mkdir(parents=True)
                yield path, there, new
            finally:
                _undo(there)
                ENDINGS.held = ENDINGS.written
            ENDINGS.check()
    except OSError as error:
        reason = error.strerror or str(error)
        reason = reason[:1].lower() + reason[1:]
        raise ValueError(f"the folder {str(path)!r} cannot be written: {reason}") from error


@contextmanager
def _locked(path: Path) -> Iterator[Path]:
    """Yield the innermost existing folder of a path, once no other process writes to it.

    A lock ends with its process. Windows has no such lock: there, two processes should not write to
    one folder at once.
    """
    there = _innermost(path)
    if not there.is_dir():
        what = "written: it" if there == path else f"created: {str(there)!r}"
        raise ValueError(f"the folder {str(path)!r} cannot be {what} is not a folder")
    if sys.platform == "win32":
        yield there
        return
    import fcntl

    handle = os.open(there, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if _innermost(path) == there:
            yield there
            return
    finally:
        os.close(handle)
    with _locked(path) as there:  # another process has created more of it
        yield there


def _innermost(path: Path) -> Path:
    for folder in (path, *path.parents):
        with suppress(FileNotFoundError, NotADirectoryError):
            folder.lstat()
            break
    return folder


def _check_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file"
        raise ValueError(f"the file {str(path)!r} cannot be written: it is {what}")


def _move(path: Path, there: Path) -> None:
    """Move what is prepared to its place; unless it is committed, `_undo` moves it back."""
    unfinished = there / UNFINISHED
    if path != there:
        os.replace(unfinished, there / path.relative_to(there).parts[0])
    else:
        new, old = unfinished / "new", unfinished / "old"
        names = os.listdir(new)
        if len(names) > 1:
            old.mkdir()
            for name in names:
                if (path / name).exists():
                    shutil.copy2(path / name, old / name)
            (unfinished / "names").write_text("\n".join(names))
            _sync(unfinished / "names")
        for name in names:
            os.replace(new / name, path / name)
        _sync(path)
        (unfinished / "names").unlink(missing_ok=True)  # committed


def _undo(folder: Path) -> None:
    """Undo a write that is not committed, and remove what is left of any; may be repeated."""
    new, old = folder / UNFINISHED / "new", folder / UNFINISHED / "old"
    with suppress(FileNotFoundError):
        for name in (folder / UNFINISHED / "names").read_text().splitlines():
            if (folder / name).exists() and not (new / name).exists():
                (folder / name).rename(new / name)
            if (old / name).exists() and not (folder / name).exists():
                (old / name).rename(folder / name)
    shutil.rmtree(folder / UNFINISHED, ignore_errors=True)


def _sync(path: Path) -> None:
    if sys.platform == "win32" and path.is_dir():
        return  # Windows opens no folders
    handle = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
