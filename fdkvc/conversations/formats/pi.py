"""Sessions of pi: JSON Lines, an entry on each, which names its parent.

A ``compaction`` replaces what came before its ``firstKeptEntryId`` by its ``summary``; the first
versions have ``firstKeptEntryIndex``, the number of a line from 0, instead. If the
parent of an entry is not the last one, the person went back to this parent, and what came after it
leaves the context.
"""

from fdkvc.conversations.formats.agents import (
    Reader,
    agent_format,
    message_text,
    summary_of,
    whole_number,
)
from fdkvc.core.json_input import JsonObject
from fdkvc.core.words import name_list

SILENT = name_list("label model_change session session_info thinking_level_change")
"""Types of entries that are bookkeeping."""


def is_line(value: JsonObject) -> bool:
    """Whether an object is an entry of a session."""
    message = value.get("message")
    is_entry = value.get("type") == "message" and "role" not in value
    return is_entry and isinstance(message, dict) and "role" in message


class _Reader(Reader):
    def begin(self) -> None:
        self.parents: dict[str, str] = {}
        self.messages: dict[str, range] = {}  # of each entry
        self.lines: list[int] = []  # the number of messages before each line
        self.last = ""

    def read(self, line: JsonObject, place: str) -> None:
        key = str(line.get("id"))
        parent = str(line.get("parentId"))
        if parent != self.last and parent in self.messages:
            self._go_back(parent)
        begin = len(self.thread.messages)
        self.lines.append(begin)
        match line:
            case {"type": "message", "message": dict(message)}:
                self._say(message, place)
            case {"type": "branch_summary", "summary": str(summary)}:
                self.thread.attach(summary, place)
            case {"type": "custom_message"}:
                self.thread.attach(message_text(line), place)
            case {"type": "compaction"}:
                self._compact(line, place)
            case _:
                kind = line.get("type")
                self.skip(kind, kind in SILENT)
        self.parents[key], self.last = parent, key
        self.messages[key] = range(begin, len(self.thread.messages))

    def _say(self, message: JsonObject, place: str) -> None:
        """Add a message, or a command of the user's own with its output."""
        match message:
            case {"role": "bashExecution", "command": str(command), "output": str(output)}:
                message = {"role": "user", "content": f"Ran `{command}`:\n{output}"}
            case {"summary": str(summary)}:
                message = {"role": "user", "content": summary}
        self.thread.say(message, place)
        match message.get("usage"):
            case {"totalTokens": int(tokens)}:
                self.thread.use(tokens)

    def _go_back(self, parent: str) -> None:
        """Take what does not lead to an entry from the context."""
        stays = set()
        while parent in self.messages and parent not in stays:
            stays.add(parent)
            parent = self.parents[parent]
        leaving = set[int]()
        for key in self.messages.keys() - stays:
            leaving.update(self.messages[key])
        self.thread.leave(leaving)

    def _compact(self, line: JsonObject, place: str) -> None:
        stays = []
        match line:
            case {"firstKeptEntryId": str(key)} if key in self.messages:
                stays = self.thread.since(self.messages[key].start)
            case {"firstKeptEntryIndex": int(number)} if 0 <= number < len(self.lines):
                stays = self.thread.since(self.lines[number])
        sizes = whole_number(line.get("tokensBefore")), None
        self.thread.compact(place, summary_of(line.get("summary")), stays, sizes)


FORMAT = agent_format("pi", "sessions of pi", is_line, _Reader)
