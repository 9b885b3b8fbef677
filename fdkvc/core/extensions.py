"""Extensions: what other installed packages add to a registry, found by their entry points."""

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import entry_points
from typing import Any, NoReturn


def by_key(*items: Any) -> dict[str, Any]:
    """Return a registry: items by their `key`, in order."""
    return {item.key: item for item in items}


def register_installed(group: str, register: Callable[[Any], object]) -> None:
    """Register what the entry points of a group name.

    One that fails, or would end the process, is left out with a warning. Every process that imports
    the registry does this, so that worker processes have the same names.
    """
    for point in entry_points(group=group):
        try:
            with _exits_raised():
                register(point.load())
        except BaseException as error:  # whatever another package does when it is imported
            if isinstance(error, KeyboardInterrupt) and error.args:
                raise  # from `fdkvc.runs.endings`: a signal to this process
            reason = f"{type(error).__name__}: {error}"
            warnings.warn(f"{group} {point.name!r} is left out, {reason}", stacklevel=2)


@contextmanager
def _exits_raised() -> Iterator[None]:
    """Let `os._exit` and `os.abort`, which end the process at once, raise a SystemExit here."""
    originals = {name: getattr(os, name) for name in ("_exit", "abort")}
    thread = threading.get_ident()

    def end(name: str, *code: int) -> NoReturn:
        if threading.get_ident() != thread:  # another thread's call is not the extension's
            originals[name](*code)
        raise SystemExit(f"os.{name}{code}")

    for name in originals:
        setattr(os, name, partial(end, name))
    try:
        yield
    finally:
        for name, function in originals.items():
            setattr(os, name, function)
