"""Sessions of GitHub Copilot CLI: JSON Lines, an event with its ``data`` on each.

After ``session.compaction_complete`` the model has its ``summaryContent``, all that the user said,
word for word, and what came after ``session.compaction_start``, as the agent works on meanwhile.
Events with an ``agentId`` belong to a subagent.
"""

from collections.abc import Iterable

from fdkvc.conversations.formats.agents import (
    Reader,
    Thread,
    agent_format,
    summary_of,
    whole_number,
)
from fdkvc.core.json_input import Fields, JsonObject, objects_of, of_kind
from fdkvc.core.transcripts import clean_name

SPOKEN = ("handoff", "message", "notification")
"""Ends of types of events with words; other events are bookkeeping."""

CALL = ("toolCallId", "name", "arguments")
"""Fields of a call that are read."""


def is_line(value: JsonObject) -> bool:
    """Whether an object is an event with which a session begins, or a message."""
    kinds = "session.start", "session.resume", "user.message", "assistant.message"
    return value.get("type") in kinds and isinstance(value.get("data"), dict)


class _Reader(Reader):
    def begin(self) -> None:
        self.threads = {"": self.thread}
        self.starts: dict[str, int] = {}  # messages before a compaction began, by thread

    def read(self, line: JsonObject, place: str) -> None:
        data = of_kind(line.get("data"), dict)
        key = str(line.get("agentId") or data.get("parentToolCallId") or "")
        thread = self.threads.setdefault(
            key, Thread(f"subagent {clean_name(key)}", self.unread)
        )
        match {**data, "type": line.get("type")}:
            # With a source, the agent put it there and not the user.
            case {"type": "user.message", "content": str(text), "source": str(source)} if (
                source
            ):
                thread.attach(text, place)
            case {"type": "user.message", "content": str(text)}:
                thread.say({"role": "user", "content": text}, place)
            case {"type": "assistant.message", "content": str(text)}:
                thread.say(_answer(text, data), place)
            case {"type": "tool.execution_complete", "toolCallId": str()}:
                thread.say(_result(data), place)
            case {"type": "system.message", "content": str(text)}:
                self._prompt(thread, text, place)
            case {"type": "skill.invoked" | "system.notification", "content": str(text)}:
                thread.attach(text, place)
            case {"type": "session.compaction_start"}:
                self.starts[key] = len(thread.messages)
            case {"type": "session.compaction_complete", "success": True}:
                self._compact(thread, self.starts.pop(key, len(thread.messages)), data, place)
            case {
                "type": "session.truncation",
                "messagesRemovedDuringTruncation": int(number),
            }:
                thread.notes.append(
                    f"{place}: {number:,} messages left, the file does not say which."
                )
            case {"type": "session.context_cleared"}:
                thread.leave({*thread.context})
            case {"type": kind}:
                self.skip(kind, not str(kind).endswith(SPOKEN))

    def end(self) -> Iterable[Thread]:
        return self.threads.values()

    def _prompt(self, thread: Thread, text: str, place: str) -> None:
        """Add a system prompt in place of the one before, which may be written again."""
        message = {"role": "system", "content": text, "tool_calls": []}
        prompts = thread.said_by("system")
        if not any(thread.messages[index][0] == message for index in prompts):
            thread.context[:] = [index for index in thread.context if index not in prompts]
            thread.add(message, place)

    def _compact(self, thread: Thread, start: int, data: JsonObject, place: str) -> None:
        word_for_word = {*thread.said_by("system", "user")} - thread.summaries
        sizes = [whole_number(data.get(f"{name}CompactionTokens")) for name in ("pre", "post")]
        thread.compact(
            place,
            summary_of(data.get("summaryContent")),
            word_for_word.union(thread.since(start)),
            (sizes[0], sizes[1]),
            trigger="manual" if data.get("trigger") == "manual" else "auto",
        )


def _answer(text: str, data: JsonObject) -> Fields:
    """Return an answer with its calls as a message."""
    thinking = [{"type": "thinking"}] * bool(data.get("reasoningText"))
    parts: list[Fields] = [*thinking, {"type": "text", "text": text}]
    for call in objects_of(data.get("toolRequests")):
        fields = {name: call.get(name) for name in CALL}
        parts.append({"type": "tool_use", **fields})
    return {"role": "assistant", "content": parts}


def _result(data: JsonObject) -> Fields:
    """Return what a tool returned as a message."""
    match data:
        case {"success": False, "error": {"message": str(text)}}:
            part: Fields = {"content": text, "is_error": True}
        case {"result": {"content": str(text)}}:
            part = {"content": text}
        case _:
            part = {"content": "", "is_error": data.get("success") is False}
    part |= {"type": "tool_result", "toolCallId": data["toolCallId"]}
    return {"role": "user", "content": [part]}


FORMAT = agent_format("copilot-cli", "sessions of GitHub Copilot CLI", is_line, _Reader)
