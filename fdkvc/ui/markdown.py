"""Text and Markdown for Streamlit, which reads every message, label and help as Markdown.

It would turn text from a link, a file or the user into links and pictures. So `plain` escapes
everything that is not of type `Markdown`; a test checks that Streamlit gets nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from string import Formatter
from typing import Any

JOINER = "\u2060"
"""A word joiner: invisible, and it breaks no line."""

# After parsing the Markdown, when its escapes are gone, Streamlit turns bare addresses into links,
# names between colons into pictures and dashes into arrows: only a character between prevents that.
_JOINED = re.compile(
    r"(?<=:)(?=\S)|(?<=www)(?=\.)|(?=@)|(?<=[-<>=~])(?=[-<>=~])", re.IGNORECASE
)
_ESCAPED = re.compile(r"([\\`*_{}\[\]<>~$#|&])")
_CODE = re.compile(r"(`[^`]+`)")
_BEGINS = re.compile(r"^( ?\d*)([-+=.)])(?= |$)")  # a list item, or the underline of a heading


class Markdown(str):
    r"""Trusted Markdown; values formatted into it are escaped.

    Examples
    --------
    >>> Markdown("**{}** keeps {:.0%}").format("a*b", 0.5)
    '**a\\*b** keeps 50%'
    >>> Markdown(" · ").join([Markdown("*ours*"), "*theirs*"])
    '*ours* · \\*theirs\\*'
    """

    __slots__ = ()

    def format(self, *values: object, **named: object) -> Markdown:
        """Insert values, each escaped unless it is Markdown itself."""
        return Markdown(_Shown().vformat(self, values, named))

    def join(self, parts: Iterable[str], /) -> Markdown:
        """Join parts, each escaped unless it is Markdown itself."""
        return Markdown(super().join(map(plain, parts)))


def sections(document: Path) -> Iterator[tuple[str, Markdown]]:
    """Yield title and text of each section of a document that is shipped."""
    for section in document.read_text("utf-8").split("## ")[1:]:
        title, body = section.split("\n", 1)
        yield title, Markdown(body)


class _Shown(Formatter):
    def format_field(self, value: Any, spec: str) -> str:
        return plain(value if isinstance(value, Markdown) else format(value, spec))


def plain(words: str) -> Markdown:
    r"""Escape words so that Markdown shows them as they are; leave Markdown unchanged.

    Examples
    --------
    >>> plain("about ~50% of w_c: ![x](y)")
    'about \\~50% of w\\_c: !\\[x\\](y)'
    >>> plain(plain("w_c"))
    'w\\_c'
    >>> plain("run `pip install --no-deps x_y`")
    'run `pip install --no-deps x_y`'
    >>> plain("http://a.b").encode("ascii", "backslashreplace")
    b'http:\\u2060//a.b'
    """
    return words if isinstance(words, Markdown) else _as_text(words)


@lru_cache(maxsize=4096)
def _as_text(words: str) -> Markdown:
    line = re.sub(r"(?<=\d) %", "\u00a0%", re.sub(r"\s+", " ", words))  # on one line
    parts = _CODE.split(line)  # code stays as it is, so that it can be copied
    parts[::2] = [_ESCAPED.sub(r"\\\1", _JOINED.sub(JOINER, part)) for part in parts[::2]]
    return Markdown(_BEGINS.sub(r"\1\\\2", "".join(parts)))
