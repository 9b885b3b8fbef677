"""What a format does not read: fields and parts with words, counted by kind."""

import re
from collections import Counter
from collections.abc import Container, Iterable
from typing import Any

from fdkvc.core.json_input import JsonObject
from fdkvc.core.limits import MAX_UNREAD_KINDS
from fdkvc.core.transcripts import clean_name
from fdkvc.core.words import name_set

THINKING = "thinking"
"""The kind of a model's reasoning, whatever its file calls it."""

THINKING_NAMES = name_set(
    "chainofthought cot reasoning reasoningcontent reasoningdetails reasoningtext "
    "redactedthinking think thinking thinkingblocks thinkingcontent thought thoughts"
)
"""Names of fields, and types of parts and items, that hold thinking; see `bare`."""

OTHERS = "others"
"""Stands for all kinds beyond `MAX_UNREAD_KINDS`."""

LABELS = name_set(
    "type role object model state status language lang name version requestor termination_reason "
    "finish_reason finishreason stop_reason stopreason stop_sequence format split url created "
    "created_at updated_at timestamp time date hash projecthash signature phase"
)
"""Fields whose single word is a label and not part of the conversation."""

# Two letters or more; from Thai on, also one, since a character may be a word.
_WORD = re.compile(r"[^\W\d_]{2,}|(?=\w)[\u0e00-\U0003ffff]")
# The name of an id: id, uuid, tool_id, call-ids, toolId.
_ID = re.compile(r"(?:^|[_-])(?:uu)?ids?$|[a-z]I[dD]s?$")


class Unread(Counter[str]):
    """Counts what is not read, by its description.

    Examples
    --------
    >>> unread = Unread()
    >>> message = {"role": "user", "content": "hello", "mood": "in a hurry", "id": "x7", "n": 3}
    >>> unread.fields(message, {"content"})
    >>> dict(unread)
    {"field 'mood'": 1}
    """

    def add(self, kind: str, times: int = 1) -> None:
        """Count something of a kind."""
        full = kind not in self and len(self) >= MAX_UNREAD_KINDS
        if times:
            self[OTHERS if full else kind] += times

    def part(self, kind: str) -> None:
        """Count a part, a block or an item by its type."""
        self.add(THINKING if is_thinking(kind) else f"part of type {clean_name(kind)!r}")

    def fields(self, owner: JsonObject, read: Container[str]) -> None:
        """Count each field of an object that has words and is not among those read."""
        thinking = False  # several fields may repeat the same reasoning: it counts once
        for name, value in owner.items():
            if name not in read and has_words(value, name):
                if is_thinking(name):
                    thinking = True
                else:
                    self.add(f"field {clean_name(name)!r}")
        self.add(THINKING, thinking)

    @classmethod
    def of(cls, kinds: Iterable[tuple[str, int]]) -> "Unread":
        """Return the sum of counted kinds, such as those of several dialogs."""
        together = cls()
        for kind, times in kinds:
            together.add(kind, times)
        return together


def bare(name: str) -> str:
    """Return the letters and digits of a name in lower case, which all its spellings share."""
    return "".join(filter(str.isalnum, name.casefold()))


def is_thinking(name: str) -> bool:
    """Whether a field, or the type of a part, holds what a model thought."""
    return bare(name) in THINKING_NAMES


def has_words(value: Any, name: str = "") -> bool:
    """Whether a JSON value has words that somebody said, other than ids, types and the like."""
    if isinstance(value, dict):
        return any(has_words(part, key) for key, part in value.items())
    if isinstance(value, list):
        return any(has_words(part, name) for part in value)
    if not isinstance(value, str) or not _WORD.search(value):
        return False
    if name.casefold() not in LABELS and not _ID.search(name):
        return True
    # A label or an id is one word; two words at the start were written by somebody.
    words = [*filter(_WORD.search, value.split(None, 3))]
    return len(words) > 1
