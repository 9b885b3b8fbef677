"""Extensions: what other installed packages add to a registry, found by their entry points."""

import warnings
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any


def register_installed(group: str, register: Callable[[Any], object]) -> None:
    """Register what the entry points of a group name; one that fails is left out, with a warning.

    Every process that imports the registry does this, so that worker processes know the same.
    """
    for point in entry_points(group=group):
        try:
            register(point.load())
        except Exception as error:  # whatever another package does when it is imported
            reason = f"{type(error).__name__}: {error}"
            warnings.warn(f"{group} {point.name!r} is left out, {reason}", stacklevel=2)
