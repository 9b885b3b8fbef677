"""Sessions of opencode, as its export writes them: ``info`` and ``messages``, or a list of these.

A message has ``info`` and ``parts``. A user's message with a part ``compaction`` asks for a
summary, which is an answer with ``summary: true``; the messages from ``tail_start_id`` on stay.
Results whose ``state.time.compacted`` is set were cleared at that time.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from fdkvc.conversations.formats.agents import (
    Reader,
    agent_format,
    summary_of,
)
from fdkvc.conversations.formats.messages import texts_in
from fdkvc.core.json_input import JsonObject, objects_of, of_kind

OBJECT = r'(?s)(?=.*"sessionID"\s*:\s*"ses_)\s*(\{.*"messages"\s*:\s*)?\['
"""How a session begins."""

TRIGGERS = {"True": "auto", "False": "manual"}
"""What began a compaction, by the field ``auto`` of the part that asks for it."""


class _Reader(Reader):
    def begin(self) -> None:
        self.firsts: dict[str, int] = {}  # the first message of each line, by its id
        self.requests: dict[str, JsonObject] = {}  # for a summary, by the id of the line
        self.clearings = list[tuple[int, str]]()  # of a call's result, a heap by time

    def read(self, line: JsonObject, place: str) -> None:
        info = of_kind(line.get("info"), dict)
        parts = objects_of(line.get("parts"))
        due = set()
        moment = of_kind(line.get("timestamp"), int)
        while self.clearings and self.clearings[0][0] <= moment:
            due.add(heappop(self.clearings)[1])
        if due:  # the whole context is searched for them
            self.thread.clear(place, due)
        key = str(info.get("id"))
        self.firsts[key] = len(self.thread.messages)
        request = next((part for part in parts if part.get("type") == "compaction"), None)
        if request is not None:
            self.requests[key] = request
        elif info.get("summary") is True:
            self._compact(info, parts, place)
        else:
            self._say(info, parts, place)

    def _say(self, info: JsonObject, parts: Sequence[JsonObject], place: str) -> None:
        self.thread.say({"role": info.get("role"), "content": parts}, place)
        for part in parts:
            match part:
                case {"callID": str(call), "state": {"time": {"compacted": int(moment)}}}:
                    heappush(self.clearings, (moment, call))
        match info.get("tokens"):
            case {"input": int(new), "output": int(out), "cache": {"read": int(read)}}:
                self.thread.use(new + out + read)

    def _compact(self, info: JsonObject, parts: Sequence[JsonObject], place: str) -> None:
        # A summary that failed or was cut off replaced nothing.
        if info.get("error") or not info.get("finish"):
            self.skip("compaction", True)
            return
        request = self.requests.get(str(info.get("parentID")), {})
        first = self.firsts.get(str(request.get("tail_start_id")), len(self.thread.messages))
        self.thread.compact(
            place,
            summary_of("\n".join(texts_in(parts))),
            self.thread.since(first),
            trigger=TRIGGERS.get(str(request.get("auto")), ""),
        )


FORMAT = agent_format("opencode", "sessions of opencode", lambda _: False, _Reader, OBJECT)
