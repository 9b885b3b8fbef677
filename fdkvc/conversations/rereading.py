"""What was read again after a compaction, by content: lines of results that had left and came back.

A line counts, whatever call returned it: another range of the file, ``cat`` for ``sed``, a search
that shows it. Numbers of lines before it, as readers and searches write them, do not matter. Lines
of fewer than `MIN_CHARACTERS` letters and digits, such as a bracket, are in any file and do not
count. A line of a file that was edited after the compaction is counted apart: its file would also
have been read again if it had stayed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fdkvc.conversations.sessions import MadeCall, Message, Session
from fdkvc.conversations.thing_index import Place
from fdkvc.core.json_input import of_kind

MIN_CHARACTERS = 8
"""Letters and digits of a line that counts."""

EMPTY = frozenset(("(no output)", "Tool ran without output or errors", "(no content)"))
"""What stands for a result without words."""

_EDIT = re.compile(r"(?i)edit|write|patch|replace|insert")
_SHELL_EDIT = re.compile(
    r"\bsed\s+(?:-\S+\s+)*-\w*i|\bperl\s+-\w*i|\bcat\s*(?:<<\S+\s*)?>|\bapply_patch\b|\bpatch\s+-p|"
    r"\bgit\s+(?:apply|restore|revert)\b"
)
# A result may be JSON, which escapes the ends of lines.
_LINE = re.compile(r"(?:[^\n\\]|\\(?!n))+")
_NUMBER = re.compile(r"\s*(?:[\w.@/\\-]+[:-])?\d+\s*[\t→:|-]\s?")


class Returned(NamedTuple):
    """A line of a result from before a compaction that a result after it has again."""

    message: int
    """The result that has it again."""
    key: int
    """The same for equal lines."""
    tokens: int
    """Its tokens there."""
    places: tuple[Place, ...]
    """Where it stood in the context before the compaction."""
    stays: bool
    """Whether it stands in what the model had right after the compaction."""
    is_edited: bool = False
    """Whether a file that the call names was edited between the compaction and the call."""


@dataclass(frozen=True)
class Reread:
    """What came back after a compaction of what a way does not hold."""

    calls: int = 0
    """Results with lines that had left."""
    lines: int = 0
    """Different lines that came back."""
    tokens: int = 0
    """Their tokens, each time that they came back."""
    edited_tokens: int = 0
    """Of these, the tokens of files that were edited in between."""

    @classmethod
    def of(cls, lines: Iterable[Returned]) -> Reread:
        """Return the sums of lines that came back."""
        rows = [*lines]
        messages = {row.message for row in rows}
        keys = {row.key for row in rows}
        edited_tokens = sum(row.tokens for row in rows if row.is_edited)
        return cls(len(messages), len(keys), sum(row.tokens for row in rows), edited_tokens)


def is_edit_tool(tool: str) -> bool:
    """Whether a tool changes files; its results repeat what the agent wrote."""
    # `TodoWrite` writes a list of the agent's own, and no file.
    return _EDIT.search(tool) is not None and not tool.lower().startswith("todo")


def is_edit(call: MadeCall) -> bool:
    """Whether a call changes files, by its tool or its shell command."""
    if is_edit_tool(call.method):
        return True
    commands = map(of_kind(call.arguments, dict).get, ("command", "cmd"))
    return any(_SHELL_EDIT.search(str(command)) for command in commands)


def _lines_of(message: Message) -> Iterator[tuple[int, int, int]]:
    """Yield the key, start and end of each line of a message that counts."""
    for match in _LINE.finditer(message.turn.text):
        line = match[0]
        number = _NUMBER.match(line)
        words = (line[number.end() :] if number else line).strip()
        if sum(map(str.isalnum, words)) >= MIN_CHARACTERS and words not in EMPTY:
            # A number takes less memory than a line; equal lines have the same within a process.
            yield hash(words), match.start(), match.end()


class LineIndex:
    """The lines of a session that stand in several places."""

    def __init__(self, session: Session) -> None:
        self._session = session
        counts = Counter[int]()
        for message in session.messages:
            counts.update(key for key, _, _ in _lines_of(message))
        self.places: dict[int, list[Place]] = defaultdict(list)
        """By line: where it stands; a line that stands once, or in no result before, has none."""
        for index, message in enumerate(session.messages):
            for key, start, end in _lines_of(message):
                if counts[key] > 1:
                    self.places[key].append(Place(index, start, end))

    def lines_of(self, index: int) -> Iterator[tuple[int, int]]:
        """Yield the key and tokens of each line of a result that also stands elsewhere."""
        message = self._session.messages[index]
        starts = message.spans[:, 0]
        for key, start, end in _lines_of(message):
            if key in self.places:
                first, last = np.searchsorted(starts, (start, end))
                yield key, int(last - first)
