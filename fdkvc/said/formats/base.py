"""What a format is: how its files are told apart, read, and spoken of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fdkvc.said.transcripts import TooLargeError, Transcript


@dataclass(frozen=True)
class Format:
    """A format of dialogs.

    Attributes
    ----------
    endings : tuple of str
        What the names of its files end with. A text is read as the format that its ending names,
        or else as the first format of text.
    field : str, optional
        Of JSON, the field by which a dialog is told to be of this format; None for text.
    read : function
        Of a dialog's object, or a whole text, and the number of its first dialog in the file.
        A dialog that is too large is raised, or given in its place where others follow.
    described, topics, demands : str
        Its row in the documentation: what the files are, and where topics and demands come from.
    """

    key: str
    label: str
    endings: tuple[str, ...]
    field: str | None
    read: Callable[[Any, int], Iterator[Transcript | TooLargeError]]
    described: str
    topics: str = ""
    demands: str = ""
