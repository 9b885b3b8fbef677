"""Files, each written whole or not at all."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from fdkvc.core.words import error_reason
from fdkvc.runs.endings import ENDINGS

Files = Mapping[str, str | bytes]

UNFINISHED = ".fdkvc-unfinished-"
"""Prefix of the temporary folder in which files are prepared."""


def check_folder(folder: str | os.PathLike[str], names: Iterable[str] = ()) -> None:
    """Check that `write_files` can write to a folder; nothing is left behind.

    It and its missing parents may still have to be created; `names` are of files that the user
    chose. Raises a ValueError if it is not a folder, cannot be created, or is not writable.
    """
    with _prepared(folder) as (path, new):
        for name in names:
            _check_file(path / name)
            (new / name).touch()


def check_out(out_path: str, suffix: str) -> None:
    """Check that ``--out`` can be written: a folder, or a file whose name ends in `suffix`."""
    path = Path(out_path)
    if not suffix:
        check_folder(out_path)
    elif path.suffix != suffix:
        raise ValueError(f"--out must name a file that ends in {suffix}, not {out_path!r}")
    else:
        check_folder(path.parent, [path.name])


def write_files(folder: str | os.PathLike[str], files: Files) -> None:
    """Write files into a folder, each whole; files of the same names are replaced.

    One rename places a new folder with its missing parents; in an existing one, each file is placed
    by a rename once all are prepared. Until then, an error or a signal that `ENDINGS` handles
    leaves the folder as it was; a later signal has no effect. A text is written as UTF-8. Raises a
    ValueError if the folder or a file cannot be written.
    """
    with _prepared(folder) as (path, new):
        for name, content in files.items():
            _check_file(path / name)
            (new / name).write_bytes(content.encode() if isinstance(content, str) else content)
            _sync(new / name)
            ENDINGS.check()
        _sync(new)
        if path.is_dir():
            for name in files:
                os.replace(new / name, path / name)
        else:
            # Up to the first missing parent: its rename places all folders below it at once.
            while not path.parent.is_dir():
                path = path.parent
                new = new.parent
            os.replace(new, path)
        _sync(path)  # so that the renames are on the disk, too
        ENDINGS.is_complete = True


@contextmanager
def _prepared(folder: str | os.PathLike[str]) -> Iterator[tuple[Path, Path]]:
    """Yield a folder, and a temporary one on the same disk in which its files are prepared."""
    if not os.fspath(folder):
        raise ValueError("the folder '' cannot be written: it has no name")
    path = Path(os.path.realpath(folder))
    try:
        existing = _innermost(path)  # on the disk where missing folders would be created
        if not existing.is_dir():
            problem = "written: it" if existing == path else f"created: {str(existing)!r}"
            raise ValueError(f"the folder {str(path)!r} cannot be {problem} is not a folder")
        ENDINGS.is_writing = True
        try:
            with TemporaryDirectory(prefix=UNFINISHED, dir=existing) as temporary:
                new = Path(temporary, *(path.relative_to(existing).parts or ["new"]))
                new.mkdir(parents=True)
                yield path, new
        finally:
            # Once the files are in place, the command has succeeded.
            ENDINGS.is_writing = ENDINGS.is_complete
        ENDINGS.check()
    except OSError as error:
        reason = error_reason(error)
        raise ValueError(f"the folder {str(path)!r} cannot be written: {reason}") from error


def _innermost(path: Path) -> Path:
    """Return the path itself if it exists, else its nearest parent that does."""
    for folder in (path, *path.parents):
        with suppress(FileNotFoundError, NotADirectoryError):
            folder.lstat()
            break
    return folder


def _check_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "not a regular file"
        raise ValueError(f"the file {str(path)!r} cannot be written: it is {kind}")


def _sync(path: Path) -> None:
    if sys.platform == "win32" and path.is_dir():
        return  # Windows opens no folders
    # Without fsync, a power cut after the rename could leave an empty file.
    handle = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
