"""Sessions of Codex: JSON Lines, the ``payload`` of a ``response_item`` is an item of a response.

``compacted`` begins a context with its ``replacement_history``; without one, the user's newest
messages stay, up to 20,000 tokens, and the summary is added. Of the events, ``event_msg``, only two
are read, as the others repeat items: ``token_count`` has the size of the context, and turns that
were rolled back leave it.
"""

from collections.abc import Iterable

from fdkvc.conversations.formats.agents import (
    Reader,
    Thread,
    agent_format,
    message_text,
)
from fdkvc.conversations.formats.base import Placed
from fdkvc.conversations.formats.responses import turns_of_items
from fdkvc.core.json_input import JsonObject, objects_of, of_kind
from fdkvc.core.words import name_list

TYPES = name_list("session_meta response_item event_msg turn_context compacted")
"""Types of lines."""

SILENT = ("turn_context", "event_msg")
"""Types of lines that are bookkeeping: settings, and events that repeat items."""

FIRST = {"id", "instructions", "timestamp"}
"""Fields of the first line in the first versions, whose items have no ``payload`` around them."""

CONTEXT = (
    "<environment_context>",
    "<user_instructions>",
    "<user_shell_command>",
    "<turn_aborted>",
    "<skill>",
    "# AGENTS.md instructions",
)
"""How messages begin that the agent wrote in the user's name."""

KEPT_BYTES = 80_000
"""Most bytes of the user's messages that stay without a ``replacement_history``: Codex counts four
bytes as a token."""


def is_line(value: JsonObject) -> bool:
    """Whether an object is a line of a session."""
    has_payload = value.get("type") in TYPES and isinstance(value.get("payload"), dict)
    # The first versions mark a state of theirs by a line with this field alone.
    return has_payload or value.keys() == {"record_type"} or value.keys() >= FIRST


class _Reader(Reader):
    def begin(self) -> None:
        self.items: list[Placed] = []  # since the last compaction

    def read(self, line: JsonObject, place: str) -> None:
        kind = line.get("type")
        payload = line.get("payload")
        if payload is None and str(kind).endswith(
            name_list("message reasoning _call _output")
        ):
            kind = "response_item"
            payload = line
        if not isinstance(payload, dict):
            self.skip(kind, False)
        elif kind == "response_item":
            self.items.append((payload, place))
        elif kind == "compacted":
            self.flush()
            self._compact(payload, place)
        elif kind == "event_msg" and payload.get("type") in (
            "token_count",
            "thread_rolled_back",
        ):
            self.flush()
            match payload:
                case {"info": {"last_token_usage": {"total_tokens": int(tokens)}}}:
                    self.thread.use(tokens)
                case {"num_turns": int(turns)} if turns > 0:
                    self._roll_back(turns)
        else:
            named = of_kind(payload.get("type"), str) if kind == "event_msg" else ""
            suffix = f", {named}" if named else ""
            self.skip(f"{kind}{suffix}", kind in SILENT)

    def end(self) -> Iterable[Thread]:
        self.flush()
        return super().end()

    def flush(self) -> None:
        """Add the items so far to the conversation."""
        for message, place in turns_of_items(self.items, self.unread, of_log=True):
            self.thread.add(message, place)
        self.items = []

    def _roll_back(self, turns: int) -> None:
        """Take the user's last turns, and what followed each, from the context."""
        leaving = set()
        passed = set()
        for index in reversed(self.thread.context):
            message = self.thread.messages[index][0]
            passed.add(index)
            if message.get("role") == "user" and not message_text(message).startswith(CONTEXT):
                leaving |= passed
                passed = set()
                turns -= 1
                if not turns:
                    break
        self.thread.leave(leaving)

    def _compact(self, payload: JsonObject, place: str) -> None:
        thread = self.thread
        message = of_kind(payload.get("message"), str)
        history = payload.get("replacement_history")
        stays: list[int] = []
        summary: list[JsonObject] = []
        note = ""
        # 1. What is in the new context: messages from the one before stay, others are the summary.
        if isinstance(history, list):
            history_items = [(item, place) for item in objects_of(history)]
            if any("compaction" in str(item.get("type")) for item, _ in history_items):
                note = "Its summary is encrypted, so no value can be looked for in it."
            spoken_items = turns_of_items(history_items, self.unread, of_log=True)
            summary, stays = thread.summary_and_stayed(spoken_items)
        else:
            leaving = KEPT_BYTES
            # The newest stay.
            for (role, text, _), index in reversed(thread.by_key().items()):
                if index in thread.summaries:  # which the new one replaces
                    continue
                if role == "user":
                    leaving -= len(text.encode())
                    stays += [index] if leaving >= 0 else []
                elif role in ("developer", "system"):
                    stays.append(index)
        # 2. The summary, which the line has too.
        if message and not any(message in message_text(spoken) for spoken in summary):
            summary.append(
                {"role": "user", "content": [{"type": "input_text", "text": message}]}
            )
        thread.compact(place, summary, stays, note=note)


FORMAT = agent_format("codex", "sessions of Codex", is_line, _Reader)
