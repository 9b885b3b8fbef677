"""Sessions of Claude Code, and of Qwen Code: JSON Lines, a message or an event on each.

The lines of one answer have one ``message.id``. ``compact_boundary`` begins a compaction, whose
summary is the next line marked so; ``preservedMessages``, or in older versions
``preservedSegment``, names the lines that stay. A subagent's lines, ``isSidechain``, are a
conversation of their own. If the parent of a person's message is not the last message, the person
went back to this parent, and what came after it leaves the context. Lines with the same ``uuid``
are read once. A message that a person sent while the model was at work is an ``attachment``. Other
attachments and reminders (``isMeta``) with a text are read as results of a tool of this name, and
after a boundary they stayed; other lines that neither a person nor a model wrote are counted. Of
Qwen Code, ``compressedHistory`` is what the model has in context from then on.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from fdkvc.conversations.formats.agents import (
    Reader,
    Thread,
    agent_format,
    turns_of_answer,
)
from fdkvc.conversations.formats.base import Placed
from fdkvc.core.json_input import JsonObject, objects_of, of_kind, only
from fdkvc.core.transcripts import clean_name
from fdkvc.core.unread import Unread
from fdkvc.core.words import name_list, name_set

COPY = "copy of an earlier line"
UNWRITTEN = ("isMeta", "isApiErrorMessage", "isVisibleInTranscriptOnly")
"""Marks of lines that neither a person nor a model wrote."""

TEXT_FIELDS = name_set("content text snippet planContent")
"""Fields of what the agent puts into the context with its text."""

SILENT = frozenset(
    (
        "agent-name",
        "custom-title",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "summary",  # a title of the session for the list of sessions
        "system, api_error",
        "system, stop_hook_summary",
        "system, turn_duration",
    )
)
"""Types of lines, with their subtypes, that are bookkeeping."""

# Anthropic's count of input leaves out what was read from the prefix cache or written to it.
USAGE = name_list("input cache_read_input cache_creation_input output")
"""The beginnings of the names of fields that count an answer's tokens."""

MAIN = ""
"""The key of the conversation that is no subagent's."""


def is_line(value: JsonObject) -> bool:
    """Whether an object is a message of a session."""
    message = value.get("message")
    return (
        value.get("type") in ("user", "assistant")
        and isinstance(message, dict)
        and "role" in message
        and "role" not in value
    )


class _Agent(Thread):
    """The conversation of an agent, or of a subagent."""

    def __init__(self, name: str, unread: Unread) -> None:
        super().__init__(name, unread)
        self.answers: dict[str, int] = {}  # by message.id: the message
        self.pending: Placed | None = None  # a boundary without summary
        self.waiting: list[
            Callable[[], int | None]
        ] = []  # what was put back before the summary
        self.late = set[str]()  # lines that stayed at the last boundary, and come after it

    def put_back(self, attach: Callable[[], int | None]) -> list[int]:
        """Put something into the context: now, or after the summary of a boundary."""
        if self.pending is not None:
            self.waiting.append(attach)
            return []
        number = attach()
        return [] if number is None else [number]


class _Reader(Reader):
    """The conversations of a session, by the key of their agent."""

    def begin(self) -> None:
        self.agents = {MAIN: _Agent("session", self.unread)}
        self.children: dict[str, list[str]] = {}  # uuids by that of their parent
        # By the uuid of a line: the agent, its first message, and the one after its last.
        self.spans: dict[str, tuple[_Agent, int, int]] = {}

    def read(self, line: JsonObject, place: str) -> None:
        """Read a line, unless it is a copy."""
        agent = self._agent(line)
        uuid = _field(line, "uuid", str)
        if uuid in self.spans:
            owner, first, end = self.spans[uuid]
            self.unread.add(COPY)
            if agent.is_fresh and owner is agent:  # written again because it stayed
                agent.stay(range(first, end))
            return
        begin = len(agent.messages)
        stayed = agent.is_fresh and uuid in agent.late
        # A line that joins an answer has the place of this answer, which is before `begin`.
        first = min(self._add(line, place, agent), default=begin)
        if stayed:
            agent.come_late(range(begin, len(agent.messages)))
        if uuid:
            end = first + 1 if first < begin else len(agent.messages)
            self.spans[uuid] = agent, first, end
            self.children.setdefault(_field(line, "parentUuid", str), []).append(uuid)

    def _agent(self, line: JsonObject) -> _Agent:
        """Return the agent that a line belongs to."""
        key = _field(line, "agentId", str) or _field(line, "parent_tool_use_id", str)
        if not key and line.get("isSidechain") is True:  # older versions do not name it
            parent_span = self.spans.get(
                _field(line, "parentUuid", str) or _field(line, "logicalParentUuid", str)
            )
            if parent_span is not None and parent_span[0] is not self.agents[MAIN]:
                return parent_span[0]
            key = str(len(self.agents))
        return self.agents.setdefault(key, _Agent(f"subagent {clean_name(key)}", self.unread))

    def _add(self, line: JsonObject, place: str, agent: _Agent) -> list[int]:
        """Read a line into its conversation; return the messages that it adds or joins."""
        kind = line.get("type")
        subtype = line.get("subtype")
        match line:
            case {"type": "system", "subtype": "compact_boundary"}:
                self._compact(agent)
                agent.pending = line, place
            case {"type": "system", "subtype": "microcompact_boundary"}:
                self._clear(line, place, agent)
            case {"systemPayload": {"info": dict(info), "compressedHistory": list(rows)}}:
                answers = (
                    turns_of_answer(row, place, self.unread) for row in objects_of(rows)
                )
                replaced = agent.summary_and_stayed(chain.from_iterable(answers))
                sizes = _count(info, "originalTokenCount"), _count(info, "newTokenCount")
                agent.compact(place, *replaced, sizes)
            case {"type": "user" | "assistant" | "tool_result", "message": dict(message)}:
                # A stream of events has no other mark of a summary.
                is_next = agent.pending is not None and line.get("isSynthetic") is True
                if is_next or line.get("isCompactSummary") is True:
                    self._compact(agent, message, place)
                elif line.get("isMeta") is True and (words := attached_text(message)):
                    return agent.put_back(partial(agent.attach, words, place))
                elif mark := next(
                    (mark for mark in UNWRITTEN if line.get(mark) is True), None
                ):
                    self.unread.add(f"line marked {mark!r}")
                else:
                    return self._say(message, line, place, agent)
            case {"type": "attachment"}:
                return self._attach(line, place, agent)
            case _:
                named = f"{kind}, {subtype}" if isinstance(subtype, str) else str(kind)
                self.skip(named, named in SILENT)
        return []

    def _attach(self, line: JsonObject, place: str, agent: _Agent) -> list[int]:
        """Add what the agent put into the context; return its messages."""
        attached = _field(line, "attachment", dict)
        if line.get("isMeta") is not True and _waited(attached):
            message = {"role": "user", "content": attached["prompt"]}
            return self._say(message, line, place, agent)
        if text := attached_text(attached):
            return agent.put_back(partial(agent.attach, text, place))
        agent.put_back(partial(agent.attach_name, attached_name(attached)))
        self.skip("attachment", False)
        return []

    def _say(
        self, message: JsonObject, line: JsonObject, place: str, agent: _Agent
    ) -> list[int]:
        """Add what a person, a tool or the model said; return its messages."""
        self._compact(agent)
        is_answer = line["type"] == "assistant"
        results = (
            part.get("type") == "tool_result" for part in objects_of(message.get("content"))
        )
        # Results of calls at once have one parent, and nobody went back to it.
        if not is_answer and not any(results):
            self._go_back(_field(line, "parentUuid", str), agent)
        numbers = []
        key = _field(message, "id", str)
        for part, location in turns_of_answer(message, place, self.unread):
            number = agent.answers.get(key)
            if number is not None and number in agent.context[-MAX_APART:]:
                agent.join(number, part)
            else:
                number = agent.add(part, location)
                if key:
                    agent.answers[key] = number
            numbers.append(number)
        if is_answer:
            usage = _field(message, "usage", dict)
            agent.use(sum(_count(usage, f"{name}_tokens") or 0 for name in USAGE))
        return numbers

    def _go_back(self, parent: str, agent: _Agent) -> None:
        """Take what descends from the parent of a person's message from the context."""
        owner, _, end = self.spans.get(parent, (None, 0, 0))
        branch = self.children.pop(parent, []) if owner is agent else []
        leaving = set[int]()
        while branch:
            uuid = branch.pop()
            branch += self.children.pop(uuid, [])
            owner, *span = self.spans[uuid]
            leaving.update(range(*span) if owner is agent else ())
        # An answer that goes on after the parent keeps the place of its beginning, and stays.
        agent.leave({index for index in leaving if index >= end})

    def _compact(
        self, agent: _Agent, summary: JsonObject | None = None, place: str = ""
    ) -> None:
        """Begin a context with a summary, at the boundary before it; either may be missing."""
        boundary = agent.pending
        agent.pending = None
        if boundary is None and summary is None:
            return
        metadata = _field(boundary[0], "compactMetadata", dict) if boundary else {}
        stays, agent.late = self._preserved(metadata, agent)
        parts = []
        if summary is not None:
            parts = [part for part, _ in turns_of_answer(summary, place, self.unread)]
        agent.compact(
            boundary[1] if boundary else place,
            parts,
            stays,
            (_count(metadata, "preTokens"), _count(metadata, "postTokens")),
            trigger=clean_name(_field(metadata, "trigger", str)),
            note="" if boundary else "The file has its summary, but not its boundary.",
            missing=len(agent.late),
        )
        waiting = agent.waiting
        agent.waiting = []
        for attach in waiting:
            attach()

    def end(self) -> Iterable[Thread]:
        """End the boundaries that no summary followed; return the conversations."""
        for agent in self.agents.values():
            self._compact(agent)
        return self.agents.values()

    def _preserved(self, metadata: JsonObject, agent: _Agent) -> tuple[set[int], set[str]]:
        """Return the messages that stay, and which of their lines are not in the file so far."""
        named = _field(metadata, "preservedMessages", dict)
        if named:
            uuids = _texts(named, "allUuids") or _texts(named, "uuids")
            stays = set[int]()
            for uuid in self.spans.keys() & {*uuids}:
                owner, first, end = self.spans[uuid]
                stays.update(range(first, end) if owner is agent else ())
            return stays, {*uuids} - self.spans.keys()
        segment = _field(metadata, "preservedSegment", dict)
        head = _field(segment, "headUuid", str)
        tail = _field(segment, "tailUuid", str)
        late = {head, tail} - {"", *self.spans}
        if head not in self.spans:
            return set(), late
        first = self.spans[head][1]
        end = self.spans.get(tail, (agent, 0, len(agent.messages)))[2]
        return {index for index in agent.context if first <= index < end}, late

    def _clear(self, line: JsonObject, place: str, agent: Thread) -> None:
        """Take the results that a line names as cleared from the context."""
        metadata = _field(line, "microcompactMetadata", dict)
        size_before = _count(metadata, "preTokens")
        saved = _count(metadata, "tokensSaved")
        size_after = None if size_before is None or saved is None else size_before - saved
        calls = {*_texts(metadata, "compactedToolIds")}
        trigger = clean_name(_field(metadata, "trigger", str))
        if not agent.clear(place, calls, (size_before, size_after), trigger):
            self.skip("system, microcompact_boundary", False)


MAX_APART = 512
"""Messages in which the lines of one answer are joined: results may stand between them."""


def _waited(attached: JsonObject) -> bool:
    """Whether what is attached is a message that a person sent while the model was at work."""
    is_prompt = attached.get("commandMode", "prompt") == "prompt"
    is_queued = attached.get("type") == "queued_command" and is_prompt
    return is_queued and isinstance(attached.get("prompt"), str | list)


def attached_name(attached: JsonObject) -> str:
    """Return the path or name of what is attached, or else its type."""
    fields = name_list("filename displayPath path planFilePath name type")
    names = filter(None, only(map(attached.get, fields), str))
    return next(map(clean_name, names), "unnamed")


def attached_text(attached: JsonObject) -> str:
    """Return the text of what the agent put into the context, after its name; "" if it has none."""
    texts = [*_texts_in({key: attached[key] for key in attached if key != "prompt"})]
    if not texts:
        return ""
    name = attached_name(attached)
    return "\n".join(texts if name in (attached.get("type"), "unnamed") else [name, *texts])


def _texts_in(value: Any, field: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _texts_in(part, key)
    elif isinstance(value, list):
        for part in value:
            yield from _texts_in(part, field)
    elif isinstance(value, str) and field in TEXT_FIELDS and value.strip():
        yield value


def _field(owner: JsonObject, name: str, kind: type) -> Any:
    """Return a field, as logs or a stream of events spell it; an empty value if it has none."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return of_kind(owner.get(name, owner.get(snake)), kind)


def _texts(owner: JsonObject, name: str) -> list[str]:
    return only(_field(owner, name, list), str)


def _count(owner: JsonObject, name: str) -> int | None:
    return max(_field(owner, name, int), 0) or None


FORMAT = agent_format("claude-code", "sessions of Claude Code", is_line, _Reader)
