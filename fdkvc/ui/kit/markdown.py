"""What Streamlit shows as Markdown: words of ours that are meant so, and all others as text.

Messages, labels and helps are Markdown to Streamlit, which makes links and pictures of it. A word
from a link, a file or a person is none of ours. So `plain` turns everything into text but what
says that it is `Markdown`, and Streamlit gets nothing else: a test reads the sources for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from string import Formatter
from typing import Any

JOINER = "\u2060"
"""A word joiner: nothing to be seen, and it breaks no line."""

# Streamlit makes links of bare addresses, pictures of names between colons and arrows of dashes
# after it has read the Markdown, when escapes are gone: only a character between keeps them apart.
_JOINED = re.compile(r"(?<=:)(?=\S)|(?<=www)(?=\.)|(?=@)|(?<=[-<>=~])(?=[-<>=~])", re.IGNORECASE)
_ESCAPED = re.compile(r"([\\`*_{}\[\]<>~$#|&])")
_BEGINS = re.compile(r"^( ?\d*)([-+=.)])(?= |$)")  # a list, or a line under what stands above


class Markdown(str):
    r"""Words of ours that are Markdown; what is put between them is shown as text.

    Examples
    --------
    >>> Markdown("**{}** keeps {:.0%}").format("a*b", 0.5)
    '**a\\*b** keeps 50%'
    >>> Markdown(" · ").join([Markdown("*ours*"), "*theirs*"])
    '*ours* · \\*theirs\\*'
    """

    __slots__ = ()

    def format(self, *values: object, **named: object) -> Markdown:
        """Put values in, each as text unless it is Markdown itself."""
        return Markdown(_Shown().vformat(self, values, named))

    def join(self, parts: Iterable[str], /) -> Markdown:
        """Join parts, each as text unless it is Markdown itself."""
        return Markdown(super().join(map(plain, parts)))


class _Shown(Formatter):
    def format_field(self, value: Any, form: str) -> str:
        return plain(value if isinstance(value, Markdown) else format(value, form))


def plain(words: str) -> Markdown:
    r"""Return words as Markdown that shows them as they are; Markdown itself is left alone.

    Examples
    --------
    >>> plain("about ~50% of w_c: ![x](y)")
    'about \\~50% of w\\_c: !\\[x\\](y)'
    >>> plain(plain("w_c"))
    'w\\_c'
    >>> plain("http://a.b").encode("ascii", "backslashreplace")
    b'http:\\u2060//a.b'
    """
    return words if isinstance(words, Markdown) else _as_text(words)


@lru_cache(maxsize=4096)
def _as_text(words: str) -> Markdown:
    line = _JOINED.sub(JOINER, re.sub(r"\s+", " ", words))
    return Markdown(_BEGINS.sub(r"\1\\\2", _ESCAPED.sub(r"\\\1", line)))
