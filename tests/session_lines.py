"""Lines of invented sessions, in the form of Claude Code."""

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

from fdkvc.conversations.formats import read_sessions
from fdkvc.conversations.sessions import Session

Row = dict[str, Any]


class ClaudeCode:
    """Writes a session; each line follows the last one of its agent."""

    def __init__(self) -> None:
        self.rows: list[Row | str] = []
        self._last: dict[str, str] = {}
        self._numbers = count(1)

    def line(self, kind: str, agent: str = "", **fields: Any) -> str:
        uuid = f"u{next(self._numbers)}"
        about = {"isSidechain": True, "agentId": agent} if agent else {"isSidechain": False}
        parent = {"parentUuid": self._last.get(agent)}
        self.rows.append({**parent, "type": kind, "uuid": uuid, **about, **fields})
        self._last[agent] = uuid
        return uuid

    def user(self, text: str, **fields: Any) -> str:
        return self.line("user", message={"role": "user", "content": text}, **fields)

    def say(self, text: str, answer: str | None = None, **fields: Any) -> str:
        content = [{"type": "text", "text": text}]
        message = {"role": "assistant", "content": content}
        return self.line("assistant", message=message | _id(answer), **fields)

    def call(
        self, name: str, call: str, answer: str | None = None, agent: str = "", **arguments: Any
    ) -> str:
        part = {"type": "tool_use", "id": call, "name": name, "input": arguments}
        message = {"role": "assistant", "content": [part]}
        return self.line("assistant", message=message | _id(answer), agent=agent)

    def result(self, call: str, content: Any, **fields: Any) -> str:
        part = {"type": "tool_result", "tool_use_id": call, "content": content}
        beside = {"stdout": "not what the model read"}
        message = {"role": "user", "content": [part]}
        return self.line("user", message=message, toolUseResult=beside, **fields)

    def boundary(self, agent: str = "", **about: Any) -> None:
        metadata: Row = {"trigger": "auto", **about}
        self.line("system", agent, subtype="compact_boundary", compactMetadata=metadata)

    def summary(self, text: str, agent: str = "") -> None:
        self.user(text, agent=agent, isCompactSummary=True, isVisibleInTranscriptOnly=True)

    @property
    def content(self) -> bytes:
        return joined(self.rows)

    def read(self) -> tuple[Session, ...]:
        return read_sessions(self.content, "session.jsonl")


def _id(answer: str | None) -> Row:
    return {} if answer is None else {"id": answer}


def long_log() -> ClaudeCode:
    """Return a session without a compaction that needs a code."""
    log = ClaudeCode()
    log.user("The code is QX-771. " + "word " * 60)
    log.say("Noted. " + "word " * 30)
    log.call("check", "c1", code="QX-771")
    return log


def joined(rows: Sequence[Row | str]) -> bytes:
    """Return lines of JSON; a text is a line as it is."""
    return "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows).encode()


def texts(session: Session, context: int = 0) -> list[str]:
    """Return the texts of a context."""
    return [session.messages[index].turn.text for index in session.contexts[context]]
