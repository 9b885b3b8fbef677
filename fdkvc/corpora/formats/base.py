"""What a format is: how its files are told apart, read, and spoken of."""

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
        What the names of its files end with. A text is read as the format that its ending names,
        or else as the first format of text.
    field : str, optional
        Of JSON, the field by which a dialog is told to be of this format; None for text.
    read : function
        Of a dialog's object, or a whole text, of the number of its first dialog in the file, and of
        whether the text of calls is to be among the words, `with_calls`. A dialog that is too
        large is raised, or given in its place where others follow.
    described, topics, demands : str
        Its row in the documentation: what the files are, and where topics and demands come from.
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
    """Return the words of a turn after its calls, each a line as chat templates write it.

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
