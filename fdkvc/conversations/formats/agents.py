"""What the logs of coding agents have in common: their lines, and the contexts of a conversation.

A log is JSON Lines or one list. A line that cannot be read is left out and named, so that a log
that was cut off can be read.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import chain, starmap
from json import JSONDecoder
from typing import Any

from fdkvc.conversations.formats.base import Dialogs, Format, Messages, Placed
from fdkvc.conversations.formats.chat import Spoken, new_calls, turns_of, with_demands
from fdkvc.conversations.formats.parts import CALL_IDS, call_id, is_result, turns_of_parts
from fdkvc.conversations.sessions import (
    NO_SIZES,
    Compaction,
    MadeCall,
    Message,
    Session,
    Sizes,
)
from fdkvc.core.json_input import (
    Fields,
    JsonObject,
    check_structure,
    objects_of,
    of_kind,
    only,
    parse_json,
    require,
)
from fdkvc.core.limits import (
    MAX_CONTEXT_MESSAGES,
    MAX_DIALOG_FILE_LINES,
    MAX_NAMED_LINES,
    MAX_SAMPLED_CHARACTERS,
    MAX_SAMPLED_LINES,
)
from fdkvc.core.parameters import check_most
from fdkvc.core.transcripts import SkippedError, Transcript, clean_name
from fdkvc.core.unread import Unread, is_thinking
from fdkvc.core.words import clipped, count, name_list

_LINE = re.compile(r"(?m)^.*$")

MAX_SHOWN_NAME = 60
"""Most characters of the name of what was put back."""

ATTACHED = "attachment"
"""The id of the call of what the agent put into the context, and its tool."""

FORKS = name_list("forkedFrom branchedFrom parentSession forked_from_id")
"""Fields that name the session from which one was forked."""

FAILED = ("is_error", "isError")
"""Fields of a result that say whether its call failed."""

BOOKKEEPING = "bookkeeping line, without words of the conversation"
"""Stands for the lines of a log that nobody says and no model reads, whatever their type."""


LEFT_BRANCH = "message before which the user went back"

NO_SUMMARY = "The file has its boundary, but not its summary."
"""A note on a compaction."""


def agent_format(
    key: str,
    label: str,
    is_line: Callable[[JsonObject], bool],
    reader: Callable[[Unread], "Reader"],
    is_object: str = r"(?!)",
) -> Format:
    """Return a format of logs, recognized by any of their first lines.

    A log whose beginning the pattern `is_object` matches has its messages in one object or list.
    """

    def matches(text: str) -> bool:
        return re.match(is_object, text[:MAX_SAMPLED_CHARACTERS]) is not None

    def recognizes(text: str) -> bool:
        return matches(text) or _any_line(is_line, text)

    def read_sessions(text: str) -> list[Session]:
        unread = Unread()
        log = reader(unread)
        times = dict[str, float]()
        fork = ""
        folder = ""
        for line, place in (messages_of if matches(text) else lines_of)(text, unread):
            log.read(line, place)
            times[place] = _time(line.get("timestamp"))
            header = _header(line)
            folder = folder or of_kind(header.get("cwd"), str)
            if not fork and any(map(header.get, FORKS)):
                fork = f"It was forked from another session ({place})."
        sessions = []
        for number, thread in enumerate(log.end()):
            session = replace(thread.session(times), folder=folder)
            if fork and number == 0:
                session = replace(session, notes=(fork, *session.notes))
            # Where there is nothing but attachments, nobody said anything.
            if any(message.turn.tool != ATTACHED for message in session.messages):
                sessions.append(session)
        if sessions:  # what is not read of the file counts with its first session
            sessions[0] = replace(sessions[0], unread=tuple(unread.items()))
        return sessions

    def read(text: str, number: int, calls: bool) -> Dialogs:
        for session in read_sessions(text):
            yield from transcripts_of(session, calls)

    return Format(key, label, ("jsonl",), None, read, recognizes, read_sessions)


def _any_line(is_line: Callable[[JsonObject], bool], text: str) -> bool:
    """Whether any of the first lines of a text is one of a log."""
    # A file of another format may be one line of 50 MB: only short lines are tried.
    text = text.lstrip()[:MAX_SAMPLED_CHARACTERS] if _is_list(text) else text
    sample = (line for line in _numbered(text) if len(line[1]) < MAX_SAMPLED_CHARACTERS)
    for _, (_, line) in zip(range(MAX_SAMPLED_LINES), sample, strict=False):
        try:
            check_structure(line.encode())
            value = parse_json(line)
        except ValueError:
            continue
        if isinstance(value, dict) and is_line(value):
            return True
    return False


def _time(timestamp: Any) -> float:
    """Return a time in seconds, from a text or from milliseconds; 0 if it is none."""
    # opencode's times are in milliseconds.
    if type(timestamp) in (int, float):
        return float(timestamp) / 1000
    with suppress(TypeError, ValueError, OverflowError):
        return datetime.fromisoformat(timestamp).timestamp()
    return 0.0


def _header(line: JsonObject) -> JsonObject:
    """Return what a line says of its session."""
    match line:
        case {"type": "session_meta", "payload": dict(header)}:
            return header
        case {"type": "session.start", "data": {"context": dict(header)}}:
            return header
    return line


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that is not blank, or each item of a list, with its number from 1.

    They are not split all at once, as a file may have 50 MB. The rest of the text from an item on
    that cannot be read is one item.
    """
    if not _is_list(text):
        for number, match in enumerate(_LINE.finditer(text), start=1):
            if line := match[0].strip():
                yield number, line
        return
    place = text.index("[") + 1
    number = 0
    decode = JSONDecoder().raw_decode
    while place < len(text) and text[place] != "]":
        if text[place] in " \t\r\n,":
            place += 1
            continue
        try:
            end = decode(text, place)[1]
        except (ValueError, RecursionError):
            end = len(text)
        number += 1
        yield number, text[place:end]
        place = end


def _is_list(text: str) -> bool:
    return re.match(r"\s*\[\s*\{", text) is not None


def lines_of(text: str, unread: Unread) -> Messages:
    """Yield the object of each line; count the lines without one, and name the first of them."""
    check_most("the file has", text.count("\n") + 1, "lines", MAX_DIALOG_FILE_LINES)
    # As a whole: its depth must be bounded before the items are found.
    if _is_list(text):
        check_structure(text.encode())
    named = 0
    noun = "item" if _is_list(text) else "line"
    for number, line in _numbered(text):
        try:
            check_structure(line.encode())
            value = parse_json(line, number)
            reason = "is not an object"
        except ValueError as error:
            value = None
            reason = str(error).removeprefix(f"line {number} ")
        if isinstance(value, dict):
            yield value, f"{noun} {number}"
        else:
            named += 1
            named_line = f"{noun} {number}, which {_relative(reason)}"
            other_lines = f"more {noun}s that cannot be read"
            unread.add(named_line if named <= MAX_NAMED_LINES else other_lines)


def messages_of(text: str, unread: Unread) -> Messages:
    """Yield each message of a list or of one object, with its time and this object's folder."""
    check_structure(text.encode())
    value = parse_json(text)
    owner = value if isinstance(value, dict) else {"messages": value}
    folder = of_kind(owner.get("info"), dict).get("directory")
    for number, row in enumerate(require(owner, "messages", list, "the file"), start=1):
        if isinstance(row, dict):
            time = of_kind(of_kind(row.get("info"), dict).get("time"), dict).get("created")
            yield {"timestamp": time, **row, "cwd": folder}, f"message {number}"
        else:
            unread.add(f"message {number}, which is not an object")


def _relative(reason: str) -> str:
    """Return a reason as the end of a clause that begins with "which"."""
    for subject in ("the file ", "a text of the file ", "line 1 "):
        reason = reason.removeprefix(subject)
    return reason if reason.startswith(("is ", "has ")) else f"cannot be read: {reason}"


def message_text(message: JsonObject) -> str:
    """Return the text of a message."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = only((part.get("text") for part in objects_of(parts)), str)
    return "\n".join(filter(None, texts))


Key = tuple[str, str, tuple[str, ...]]
"""What a message and its copy share: role, text, and the ids of calls or of a result."""


def _key(message: JsonObject) -> Key:
    ids = (call_id(message), *call_ids(message))
    return str(message.get("role")), message_text(message), tuple(filter(None, ids))


class Thread:
    """A conversation while its log is read."""

    def __init__(self, name: str, unread: Unread) -> None:
        self.name = name
        self.unread = unread
        self.messages: list[Placed] = []
        """As `turns_of_parts` restates them; more lines may still join an answer of the model."""
        self._parts: dict[
            int, set[str]
        ] = {}  # the parts of each answer that lines joined, as JSON
        self.contexts: list[list[int]] = [[]]
        self.compactions: list[Fields] = []
        self.kept = 0
        """Number of messages in all contexts but the last."""
        self.notes: list[str] = []
        self.resumed = False
        self.used: int | None = None
        """Tokens in the model's context at its last answer, as the file says."""
        self.is_fresh = False
        """Whether nothing was said since the last compaction."""
        self.calls: dict[str, str] = {}  # by id, those without a result so far

    @property
    def context(self) -> list[int]:
        """The messages that the model has in context."""
        return self.contexts[-1]

    def since(self, start: int) -> list[int]:
        """Return the messages in context from a number on."""
        return [index for index in self.context if index >= start]

    def said_by(self, *roles: str) -> list[int]:
        """Return the messages in context of some roles."""
        return [
            index for index in self.context if self.messages[index][0].get("role") in roles
        ]

    def add(self, message: JsonObject, place: str) -> int:
        """Add a message to the context; return its number."""
        if is_result(message):
            self.calls.pop(call_id(message), None)
        if isinstance(message.get("tool_calls"), list):
            message = {**message, "tool_calls": new_calls(message["tool_calls"], self.calls)}
        self.messages.append((message, place))
        self.context.append(len(self.messages) - 1)
        self.is_fresh = False
        return self.context[-1]

    def say(self, message: JsonObject, place: str) -> None:
        """Add what a person, a tool or the model said."""
        for turn, location in turns_of_answer(message, place, self.unread):
            self.add(turn, location)

    def join(self, index: int, message: JsonObject) -> None:
        """Add the parts and calls of a line to an answer, except those that it already has."""
        answer = self.messages[index][0]
        fields = "content", "tool_calls"
        if index not in self._parts:
            parts = chain.from_iterable(map(answer.__getitem__, fields))
            self._parts[index] = {*map(json.dumps, parts)}
        for field in fields:
            for part in message.get(field) or ():
                if (text := json.dumps(part)) not in self._parts[index]:
                    self._parts[index].add(text)
                    answer[field].append(part)

    def compact(
        self,
        place: str,
        summary: Sequence[JsonObject],
        stayed: Iterable[int],
        recorded: Sizes = NO_SIZES,
        missing: int = 0,
        **details: str,
    ) -> None:
        """Begin a context with a summary and with messages that stay.

        `recorded` are the tokens before and after, if the file names them; `missing` is the number
        of lines that stayed and have not come yet.
        """
        if not summary and "kind" not in details:
            details = {**details, "note": details.get("note") or NO_SUMMARY}
        context = [*self.context]
        self.kept += len(context)
        it_has = f"{self.name}, {place}: its contexts so far have"
        check_most(it_has, self.kept, "messages", MAX_CONTEXT_MESSAGES)
        if context or self.compactions:
            self.contexts.append([])
        else:  # the session continues one in another file
            self.resumed = True
            tokens = f", {recorded[0]:,} tokens before" if recorded[0] else ""
            self.notes.append(
                f"It was compacted before the file begins ({place}{tokens}): what that forgot "
                "cannot be known from the file."
            )
        summary_numbers = [self.add(message, place) for message in summary]
        if not context and not self.compactions:
            return
        size_before, size_after = recorded
        self.context.extend(sorted({*stayed} - {*summary_numbers}))
        self.compactions.append(
            {
                "note": "",
                **details,
                "place": place,
                "context": context,
                "stayed": [*self.context],
                "summary": summary_numbers,
                "recorded": (self.used if size_before is None else size_before, size_after),
                "attached": [],
                "missing": missing,
            }
        )
        self.is_fresh = True

    @property
    def summaries(self) -> set[int]:
        """The messages that were written in place of what left."""
        return {*chain.from_iterable(row["summary"] for row in self.compactions)}

    def by_key(self) -> dict[Key, int]:
        """Return the messages in context by what a copy shares with each."""
        return {_key(self.messages[index][0]): index for index in self.context}

    def summary_and_stayed(self, replacement: Messages) -> tuple[list[JsonObject], list[int]]:
        """Return which messages of a new context are new, and which in context it repeats."""
        earlier = self.by_key()
        summary = []
        stays = []
        for spoken, _ in replacement:
            if (index := earlier.get(_key(spoken))) is None:
                summary.append(spoken)
            else:
                stays.append(index)
        return summary, stays

    def clear(
        self,
        place: str,
        calls: Container[str],
        recorded: Sizes = NO_SIZES,
        trigger: str = "",
    ) -> bool:
        """Take the results of some calls from the context; return whether there were any."""
        stays = []
        for index in self.context:
            message = self.messages[index][0]
            if not (is_result(message) and call_id(message) in calls):
                stays.append(index)
        if len(stays) == len(self.context):
            return False
        self.compact(place, [], stays, recorded, trigger=trigger, kind="cleared")
        return True

    def stay(self, messages: Iterable[int]) -> None:
        """Keep more messages at the last compaction."""
        for index in messages:
            if index not in self.context:
                self.context.append(index)
                self.compactions[-1]["stayed"].append(index)

    def come_late(self, messages: Iterable[int]) -> None:
        """Count messages that were just added among those that stayed at the last compaction."""
        self.compactions[-1]["stayed"] += messages
        self.compactions[-1]["missing"] -= 1
        self.is_fresh = True

    def leave(self, leaving: set[int]) -> None:
        """Take messages from the context: the user went back before them."""
        size_before = len(self.context)
        # They are nearly always the last, so that going back often takes linear time.
        while self.context and self.context[-1] in leaving:
            leaving.discard(self.context.pop())
        if leaving:
            self.context[:] = [index for index in self.context if index not in leaving]
        self.unread.add(LEFT_BRANCH, size_before - len(self.context))

    def attach(self, text: str, place: str) -> int:
        """Add a text that the agent put into the context; after a compaction, it stayed."""
        is_fresh = self.is_fresh
        result = {"role": "tool", "tool_call_id": ATTACHED, "content": text, "tool_calls": []}
        number = self.add(result, place)
        if is_fresh:
            self.compactions[-1]["stayed"].append(number)
            self.is_fresh = True
        return number

    def attach_name(self, name: str) -> None:
        """Note what the agent put into the context after a compaction, without its text."""
        if self.is_fresh:
            self.compactions[-1]["attached"].append(name)

    def use(self, tokens: int | None) -> None:
        """Note how many tokens the model had in its context when it answered."""
        if tokens:
            self.used = tokens
            # The first answer after a compaction is the first to tell what that left.
            if self.compactions and self.compactions[-1]["recorded"][1] is None:
                self.compactions[-1]["recorded"] = (
                    self.compactions[-1]["recorded"][0],
                    tokens,
                )

    def session(self, times: Mapping[str, float]) -> Session:
        """Return the conversation; a message without words or calls is left out.

        `times` are those of lines by their places, in seconds.
        """
        numbers: dict[int, list[int]] = {}  # of its turns, by message
        messages: list[Message] = []
        call_rows: list[list[MadeCall]] = []  # by each message
        calls: dict[str, tuple[int, int]] = {}  # by id: the message, and which of its calls
        unlinked_places = []  # places of results without a call
        for index, (message, place) in enumerate(self.messages):
            try:
                spoken: list[Spoken] = [
                    *turns_of([(message, place)], self.unread, calls_in_text=True)
                ]
            except ValueError as error:
                self.unread.add(f"message that cannot be read: {error}")
                continue
            for turn, called in spoken:
                if not turn.text and not called:
                    continue
                number = len(messages)
                numbers.setdefault(index, []).append(number)
                if turn.kind == "result":
                    origin = calls.get(call_id(message))
                    if call_id(message) == ATTACHED:
                        turn = replace(turn, tool=ATTACHED)
                    elif origin is None:
                        unlinked_places.append(place)
                    else:
                        earlier, order = origin
                        call = call_rows[earlier][order]
                        turn = replace(turn, tool=call.method)
                        # The first result counts; a file may have another one under the same id.
                        if call.result < 0:
                            call_rows[earlier][order] = call._replace(result=number)
                call_rows.append([*starmap(MadeCall, called)])
                for order, (key, _) in enumerate(zip(call_ids(message), called, strict=False)):
                    if key:
                        calls[key] = number, order
                failed = turn.kind == "result" and any(
                    message.get(name) is True for name in FAILED
                )
                messages.append(
                    Message(turn, place, time=times.get(place, 0.0), failed=failed)
                )
        linked = []
        for said, said_calls in zip(messages, call_rows, strict=True):
            linked.append(replace(said, calls=tuple(said_calls)))
        if unlinked_places:
            self.notes.append(
                f"{count(len(unlinked_places), 'result')} without a call before it, first in "
                f"{unlinked_places[0]}."
            )

        def turns_of_messages(indices: Iterable[int]) -> tuple[int, ...]:
            return tuple(chain.from_iterable(numbers.get(index, ()) for index in indices))

        return Session(
            self.name,
            tuple(linked),
            tuple(map(turns_of_messages, self.contexts)),
            tuple(self._compactions(turns_of_messages)),
            notes=tuple(self.notes),
            resumed=self.resumed,
        )

    def _compactions(
        self, turns_of_messages: Callable[[list[int]], tuple[int, ...]]
    ) -> Iterator[Compaction]:
        """Yield the compactions with numbers of turns for those of messages, and all notes."""
        previously_stayed: list[int] = []
        for details in self.compactions:
            notes = [details["note"]]
            if details["context"] == previously_stayed:
                notes.append("Nothing was said since the compaction before it.")
            previously_stayed = details["stayed"]
            if missing := details.pop("missing"):
                notes.append(f"{missing:,} of the lines that stayed are not in the file.")
            if names := details.pop("attached"):
                named = ", ".join(
                    clipped(name, MAX_SHOWN_NAME) for name in names[:MAX_NAMED_LINES]
                )
                notes.append(
                    f"Put back, text not in the log: {count(len(names), 'item')} ({named})."
                )
            numbers = {
                name: turns_of_messages(details[name])
                for name in ("context", "stayed", "summary")
            }
            yield Compaction(**details | numbers | {"note": " ".join(filter(None, notes))})


class Reader(ABC):
    """Reads the lines of a log into conversations, and counts what it does not read."""

    def __init__(self, unread: Unread) -> None:
        self.unread = unread
        self.thread = Thread("session", unread)
        """The conversation that is no subagent's."""
        self.begin()

    @abstractmethod
    def begin(self) -> None:
        """Set what is known before the first line."""

    @abstractmethod
    def read(self, line: JsonObject, place: str) -> None:
        """Read a line."""

    def skip(self, kind: object, is_silent: bool) -> None:
        """Count a line that is not read."""
        self.unread.add(
            BOOKKEEPING if is_silent else f"line of type {clean_name(str(kind))!r}"
        )

    def end(self) -> Iterable[Thread]:
        """Return the conversations, after the last line."""
        return [self.thread]


def call_ids(message: JsonObject) -> list[str]:
    """Return the id of each call of a chat message, "" for one without."""
    functions = (call.get("function") for call in objects_of(message.get("tool_calls")))
    return [call_id(of_kind(function, dict)) for function in functions]


def transcripts_of(session: Session, calls: bool) -> Dialogs:
    """Yield each context as a dialog, with the text of calls or without."""
    unread = Unread.of(session.unread)
    for number, context in enumerate(session.contexts, start=1):
        name = f"{session.name}, context {number}" if session.compactions else session.name
        if not context:  # nothing stayed, and nothing was said
            continue
        try:
            yield transcript_of(session, context, name, calls, unread)
        except SkippedError as error:
            yield error
        unread = Unread()


def transcript_of(
    session: Session, messages: Iterable[int], name: str, calls: bool, unread: Unread
) -> Transcript:
    """Return some messages as a dialog, with the text of calls or without."""
    spoken = (_said(session.messages[index], calls) for index in messages)
    return with_demands(clean_name(name), spoken, calls, session.name, unread)


def _said(message: Message, calls: bool) -> Spoken:
    turn = message.turn
    call_rows = [(call.method, call.arguments) for call in message.calls]
    if calls:
        return turn, call_rows
    silent = turn.text[turn.call_characters :]
    return replace(turn, text=silent, call_characters=0), call_rows


def whole_number(value: Any) -> int | None:
    """Return a value that is a whole number; None for any other."""
    return value if isinstance(value, int) else None


def summary_of(text: Any) -> list[Fields]:
    """Return a summary as a message, or none if it is no text with words."""
    is_text = isinstance(text, str) and text.strip()
    return [{"role": "user", "content": text, "tool_calls": []}] if is_text else []


def turns_of_answer(message: JsonObject, place: str, unread: Unread) -> Messages:
    """Yield a message as chat messages, without what the model thought and without empty ones."""
    content = message.get("content", message.get("parts"))
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
    # The `id` of a message is its own, and not that of a call.
    ids = {name: message[name] for name in CALL_IDS if name in message and name != "id"}
    ids |= {name: True for name in FAILED if message.get(name) is True}
    spoken = {**ids, "role": message.get("role"), "content": blocks}
    for turn, location in turns_of_parts(spoken, place, unread):
        if turn["content"] or turn["tool_calls"]:
            yield turn, location
        # A result without words stays, as its call has been answered.
        elif turn["role"] == "tool":
            yield {**turn, "content": "(no output)"}, location
