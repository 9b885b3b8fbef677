"""Sessions of Gemini CLI: JSON Lines, a message on each; one that is written again has more calls.

``$set`` with ``messages`` is what the model has in context from then on: if some of those so far
are not among them, the new ones are the summary, and without one nothing was compacted. Sessions
that are one object, as former versions wrote them, have no compactions.
"""

from collections.abc import Iterator, Sequence

from fdkvc.conversations.formats.agents import (
    Reader,
    agent_format,
    turns_of_answer,
)
from fdkvc.conversations.formats.parts import call_id
from fdkvc.core.json_input import Fields, JsonObject, objects_of
from fdkvc.core.unread import THINKING, has_words

SESSION_CONTEXT = "<session_context>"
"""What a message has that the agent writes when a session begins or goes on."""

CALL = ("id", "name", "args")
"""Fields of a call that are read."""


OBJECT = r'\s*\{(?=[^{}]*"projectHash")[^{}]*"messages"\s*:\s*\['
"""How a session that is one object begins."""


def is_line(value: JsonObject) -> bool:
    """Whether an object is the first line of a session."""
    return value.keys() >= {"projectHash", "sessionId"} and "messages" not in value


class _Reader(Reader):
    def begin(self) -> None:
        self.numbers: dict[str, list[int]] = {}  # of the messages of each record, by its id
        self.results = set[str]()  # the ids of calls whose results were added

    def read(self, line: JsonObject, place: str) -> None:
        lacking = "record of compactions, which this version of Gemini CLI does not write"
        self.unread.add(lacking, place == "message 1")
        match line:
            case {"$rewindTo": str(key)}:
                first = min(self.numbers.get(key, [0]), default=0)
                self.thread.leave({*self.thread.since(first)})
            case {"$set": {"messages": list(rows)}}:
                self._replace(objects_of(rows), place)
            case {"type": "user" | "gemini"}:
                self._say(str(line.get("id", place)), line, place)
            case _:
                kind = line.get("type")
                self.skip(kind, kind is None)

    def _say(self, key: str, line: JsonObject, place: str) -> None:
        """Add a record, or what it has more than when it was written before."""
        if key not in self.numbers:
            self.unread.add(THINKING, has_words(line.get("thoughts")))
        numbers = self.numbers.setdefault(key, [])
        for turn in self._turns(line, place):
            if numbers and turn["role"] == "assistant":
                self.thread.join(numbers[0], turn)
            elif not numbers or turn["role"] == "tool":
                numbers.append(self.thread.add(turn, place))
        match line.get("tokens"):
            case {"total": int(tokens)}:
                self.thread.use(tokens)

    def _turns(self, line: JsonObject, place: str) -> Iterator[Fields]:
        """Yield a record's words and calls, and the results that were not added before."""
        content = line.get("content")
        calls = objects_of(line.get("toolCalls"))
        parts = [*content] if isinstance(content, list) else [{"text": content}]
        for call in calls:
            parts.append({"functionCall": {name: call.get(name) for name in CALL}})
            parts += objects_of(call.get("result"))
        failed = {str(call.get("id")) for call in calls if call.get("status") == "error"}
        role = "user" if line.get("type") == "user" else "assistant"
        message = {"role": role, "content": parts}
        for turn, _ in turns_of_answer(message, place, self.unread):
            key = call_id(turn) if turn["role"] == "tool" else ""
            if key not in self.results:
                yield {**turn, "is_error": key in failed}
            if key:
                self.results.add(key)

    def _replace(self, rows: Sequence[JsonObject], place: str) -> None:
        """Read what the model has in context from now on; without a summary, it only went back."""
        stays = set()
        new = list[tuple[str, Fields]]()
        for row in rows:
            key = str(row.get("id"))
            if key in self.numbers:
                stays.update(self.numbers[key])
            else:
                new += ((key, turn) for turn in self._turns(row, place))
        leaving = {*self.thread.context} - stays
        if leaving and any(SESSION_CONTEXT not in str(turn["content"]) for _, turn in new):
            self.thread.compact(place, [turn for _, turn in new], stays)
        else:
            self.thread.leave(leaving)
            for _, turn in new:
                self.thread.add(turn, place)
        for number, (key, _) in enumerate(new, start=len(self.thread.messages) - len(new)):
            self.numbers.setdefault(key, []).append(number)


FORMAT = agent_format("gemini-cli", "sessions of Gemini CLI", is_line, _Reader, OBJECT)
