"""Sessions of Claude Code: JSON Lines, a message or an event on each.

The lines of one answer have one ``message.id``. ``compact_boundary`` begins a compaction, whose
summary is the next line marked so; ``preservedMessages``, or in older versions
``preservedSegment``, names the lines that stay. A subagent's lines, ``isSidechain``, are a
conversation of their own. A message of a person whose parent is older than the last one goes back
to there, and what came between leaves the context. Lines that are written again, with the same
``uuid``, are read once. Lines that neither a person nor a model wrote are counted; a person's
message that waited for the model is an ``attachment``.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from fdkvc.conversations.formats.agents import Line, Thread, agent_format
from fdkvc.conversations.formats.anthropic import turns_of_blocks
from fdkvc.conversations.sessions import Session
from fdkvc.core.transcripts import clean_name
from fdkvc.core.unread import Unread, is_thinking

COPY = "copy of an earlier line"
LEFT_BRANCH = "message before which the user went back"
UNWRITTEN = ("isMeta", "isApiErrorMessage", "isVisibleInTranscriptOnly")
"""Fields that mark what neither a person nor a model wrote."""

MAIN = ""
"""The key of the conversation that is no subagent's."""


def is_line(value: Mapping[str, Any]) -> bool:
    """Whether an object is a message of a session."""
    message = value.get("message")
    return (
        value.get("type") in ("user", "assistant")
        and isinstance(message, dict)
        and "role" in message
        and "role" not in value
    )


class _Reader:
    """The conversations of a session, by the key of their agent."""

    def __init__(self, unread: Unread) -> None:
        self.unread = unread
        self.threads: dict[str, Thread] = {MAIN: Thread("session")}
        self.parents: dict[str, str] = {}  # of each line, by uuid
        self.spans: dict[str, tuple[str, int, int]] = {}  # by uuid: the agent, and its messages
        self.answers: dict[tuple[str, str], int] = {}  # by agent and message.id: the message
        self.uuids: dict[tuple[str, int], str] = {}  # of the line that began a message
        self.pending: dict[str, tuple[Mapping[str, Any], str]] = {}  # boundaries without summary

    def read(self, line: Mapping[str, Any], place: str) -> None:
        agent = self._agent(line)
        thread = self.threads.setdefault(agent, Thread(f"subagent {clean_name(agent)}"))
        uuid, begin = line.get("uuid"), len(thread.messages)
        if isinstance(uuid, str) and uuid in self.spans:
            self.unread.add(COPY)
            if thread.is_fresh and self.spans[uuid][0] == agent:
                thread.stay(range(*self.spans[uuid][1:]))
            return
        parent = line.get("parentUuid")
        if isinstance(uuid, str) and isinstance(parent, str):
            self.parents[uuid] = parent
        index = self._add(line, place, agent, thread)
        if isinstance(uuid, str):
            first = begin if index is None else min(index, begin)
            end = first + 1 if first < begin else len(thread.messages)
            self.spans[uuid] = agent, first, end
            for number in range(begin, len(thread.messages)):
                self.uuids[agent, number] = uuid

    def _agent(self, line: Mapping[str, Any]) -> str:
        """Return the key of the agent that a line is about."""
        named = line.get("agentId") or line.get("parent_tool_use_id")
        if isinstance(named, str):
            return named
        if line.get("isSidechain") is not True:
            return MAIN
        above = self.spans.get(str(line.get("parentUuid") or line.get("logicalParentUuid")))
        if above is not None and above[0] != MAIN:
            return above[0]
        return str(len(self.threads))  # older versions do not name it

    def _add(self, line: Mapping[str, Any], place: str, agent: str, thread: Thread) -> int | None:
        """Read a line into its conversation; return the answer that it joins, if it does."""
        kind, subtype = line.get("type"), line.get("subtype")
        if kind == "system" and subtype == "compact_boundary":
            self._end_pending(agent)
            self.pending[agent] = line, place
        elif kind == "system" and subtype == "microcompact_boundary":
            self._clear(line, place, thread)
        elif kind == "attachment" and (queued := _queued(line)) is not None:
            self._end_pending(agent)
            return self._say({**line, "type": "user", "message": queued}, place, agent, thread)
        elif kind not in ("user", "assistant") or not isinstance(line.get("message"), dict):
            if kind == "attachment" and thread.is_fresh:
                thread.attached()
            named = f"{kind}, {subtype}" if isinstance(subtype, str) else str(kind)
            self.unread.add(f"line of type {clean_name(named)!r}")
        elif line.get("isCompactSummary") is True or (
            agent in self.pending and line.get("isSynthetic") is True
        ):
            self._summarize(line, place, agent)
        elif mark := next((mark for mark in UNWRITTEN if line.get(mark) is True), None):
            self.unread.add(f"line marked {mark!r}")
        else:
            self._end_pending(agent)
            return self._say(line, place, agent, thread)
        return None

    def _say(self, line: Mapping[str, Any], place: str, agent: str, thread: Thread) -> int | None:
        message, joined = line["message"], None
        if line["type"] == "user" and not _has_result(message):
            self._go_back(line, agent, thread)
        for part, where in _turns(message, place, self.unread):
            answer = message.get("id")
            key = (agent, answer) if isinstance(answer, str) else None
            begun = None if key is None else self.answers.get(key)
            if begun is not None and begun in thread.context[-MAX_APART:]:
                thread.join(begun, part)
                joined = begun
                continue
            index = thread.add(part, where)
            if key is not None:
                self.answers[key] = index
        if line["type"] == "assistant":
            usage = message.get("usage")
            thread.use(sum(_counts(usage)) if isinstance(usage, dict) else None)
        return joined

    def _go_back(self, line: Mapping[str, Any], agent: str, thread: Thread) -> None:
        """Take what follows the parent of a person's message from the context."""
        parent = line.get("parentUuid")
        span = self.spans.get(parent) if isinstance(parent, str) else None
        if span is None or span[0] != agent:
            return
        later = [index for index in thread.context if index >= span[2]]
        left = {index for index in later if self._descends(agent, index, str(parent), span[2])}
        if left:
            self.unread.add(LEFT_BRANCH, len(left))
            thread.context[:] = [index for index in thread.context if index not in left]

    def _descends(self, agent: str, index: int, ancestor: str, end: int) -> bool:
        """Whether a message descends from a line whose messages end before `end`."""
        uuid = self.uuids.get((agent, index))
        while uuid is not None and uuid != ancestor and self.spans[uuid][2] > end:
            above = self.parents.get(uuid)
            uuid = above if above in self.spans and above != uuid else None
        return uuid == ancestor

    def _summarize(self, line: Mapping[str, Any], place: str, agent: str) -> None:
        boundary = self.pending.pop(agent, None)
        summary = [part for part, _ in _turns(line["message"], place, self.unread)]
        note = "" if boundary else "The file has its summary, but not its boundary."
        self._compact(agent, place if boundary is None else boundary[1], boundary, summary, note)

    def _end_pending(self, agent: str) -> None:
        """End a boundary that no summary followed."""
        if boundary := self.pending.pop(agent, None):
            note = "The file has its boundary, but not its summary."
            self._compact(agent, boundary[1], boundary, [], note)

    def end(self) -> None:
        """End the boundaries that no summary followed."""
        for agent in [*self.pending]:
            self._end_pending(agent)

    def _compact(
        self,
        agent: str,
        place: str,
        boundary: Line | None,
        summary: list[Mapping[str, Any]],
        note: str,
    ) -> None:
        about = _metadata(boundary[0], "compact") if boundary else {}
        stays, missing = self._preserved(about, agent)
        if missing:
            note = f"{note} {missing:,} of the lines that stayed are not in the file.".strip()
        self.threads[agent].compact(
            place,
            summary,
            stays,
            trigger=clean_name(str(about.get("trigger", ""))),
            recorded=(_count(about, "preTokens"), _count(about, "postTokens")),
            note=note,
        )

    def _preserved(self, about: Mapping[str, Any], agent: str) -> tuple[Iterator[int], int]:
        """Return the messages that stay, and how many of their lines are not in the file."""
        named = _field(about, "preservedMessages")
        segment = _field(about, "preservedSegment")
        if isinstance(named, dict):
            uuids = _field(named, "allUuids") or named.get("uuids")
            uuids = [uuid for uuid in uuids or () if isinstance(uuid, str)]
            spans = [self.spans[uuid] for uuid in uuids if uuid in self.spans]
            ranges = [range(first, end) for of, first, end in spans if of == agent]
            return chain.from_iterable(ranges), len(uuids) - len(spans)
        if isinstance(segment, dict):
            ends = [self.spans.get(str(_field(segment, f"{end}Uuid"))) for end in ("head", "tail")]
            if None in ends:
                return iter(()), ends.count(None)
            (_, first, _), (_, _, end) = ends  # type: ignore[misc]
            context = self.threads[agent].context
            return (index for index in context if first <= index < end), 0
        return iter(()), 0

    def _clear(self, line: Mapping[str, Any], place: str, thread: Thread) -> None:
        """Take the results from the context that a line names as cleared."""
        about = _metadata(line, "microcompact")
        ids = _field(about, "compactedToolIds")
        cleared = {call for call in ids or () if isinstance(call, str)}
        messages = [(index, thread.messages[index][0]) for index in thread.context]
        stays = [index for index, part in messages if part.get("tool_use_id") not in cleared]
        if len(stays) == len(messages):
            self.unread.add("line of type 'system, microcompact_boundary'")
            return
        before, saved = _count(about, "preTokens"), _count(about, "tokensSaved")
        after = None if before is None or saved is None else before - saved
        thread.compact(
            place,
            [],
            stays,
            trigger=clean_name(str(about.get("trigger", ""))),
            recorded=(before, after),
            note="",
            kind="cleared",
        )


MAX_APART = 512
"""Messages in which the lines of one answer are joined: results may stand between them."""


def _turns(message: Mapping[str, Any], place: str, unread: Unread) -> Iterator[Line]:
    """Yield a message as chat messages, without what the model thought and without empty ones."""
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        unread.add(f"content of {place}, which is neither a text nor a list")
        return
    blocks = []
    for block in content:
        if not isinstance(block, dict):
            unread.add(f"part of {place}, which is not an object")
        elif is_thinking(str(block.get("type"))):
            unread.part(str(block["type"]))
        else:
            blocks.append(block)
    said = {"role": message.get("role"), "content": blocks}
    for turn, where in turns_of_blocks(said, place, unread):
        if turn.get("content") or turn.get("tool_calls"):
            yield turn, where
        elif turn.get("role") == "tool":
            yield {**turn, "content": "(no output)"}, where


def _queued(line: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the message that a person sent while the model was at work, if a line has one."""
    attached = line.get("attachment")
    if not isinstance(attached, dict) or attached.get("type") != "queued_command":
        return None
    prompt, mode = attached.get("prompt"), attached.get("commandMode", "prompt")
    wrote = mode == "prompt" and line.get("isMeta") is not True and isinstance(prompt, str | list)
    return {"role": "user", "content": prompt} if wrote else None


def _has_result(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    parts = content if isinstance(content, list) else ()
    return any(isinstance(part, dict) and part.get("type") == "tool_result" for part in parts)


def _metadata(line: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    about = _field(line, f"{kind}Metadata")
    return about if isinstance(about, dict) else {}


def _field(owner: Mapping[str, Any], name: str) -> Any:
    """Return a field that is written as logs have it, or as a stream of events has it."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return owner.get(name, owner.get(snake))


def _count(owner: Mapping[str, Any], name: str) -> int | None:
    value = _field(owner, name)
    return value if isinstance(value, int) and value > 0 else None


def _counts(usage: Mapping[str, Any]) -> Iterator[int]:
    """Yield the parts of what a model read and wrote for an answer, in tokens."""
    for name in ("input", "cache_read_input", "cache_creation_input", "output"):
        value = usage.get(f"{name}_tokens")
        yield value if type(value) is int and value > 0 else 0


def _sessions(lines: Iterable[Line], unread: Unread) -> list[Session]:
    reader = _Reader(unread)
    for line, place in lines:
        reader.read(line, place)
    reader.end()
    return [thread.session(unread) for thread in reader.threads.values()]


FORMAT = agent_format("claude-code", "sessions of Claude Code", is_line, _sessions)
