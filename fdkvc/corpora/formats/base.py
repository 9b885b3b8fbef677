"""The interface of a format: how its files are recognized, read and documented."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fdkvc.corpora.transcripts import TooLargeError, Transcript, clean


@dataclass(frozen=True)
class Format:
    """A format of dialogs.

    Attributes
    ----------
    endings : tuple of str
        Endings of file names. A text is read as the format of its ending, or else as the first text
        format.
    field : str, optional
        The field by which a JSON dialog is recognized; None for a text format.
    read : function
        Called with a dialog's object or a whole text, the number of its first dialog in the file,
        and whether to prepend the text of calls (`with_calls`). Raises a TooLargeError, or yields
        it in place of the dialog if others follow.
    description, topics, demands : str
        Its row in the documentation: the files, and the origin of topics and demands.
    """

    key: str
    label: str
    endings: tuple[str, ...]
    field: str | None
    read: Callable[[Any, int, bool], Iterator[Transcript | TooLargeError]]
    description: str
    topics: str = ""
    demands: str = ""


def with_calls(text: str, calls: Sequence[tuple[str, Any]]) -> str:
    """Return the words of a turn after its calls, each a line of JSON as in chat templates.

    Examples
    --------
    >>> print(with_calls("One moment", [("book", {"seats": 2})]))
    {"name": "book", "arguments": {"seats": 2}}
    One moment
    """
    lines = [
        clean(json.dumps({"name": method, "arguments": arguments}, ensure_ascii=False))
        for method, arguments in calls
    ]
    return "\n".join(filter(None, [*lines, text]))
