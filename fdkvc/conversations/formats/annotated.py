"""Annotated dialogues: the Schema-Guided Dialogue dataset, and MultiWOZ 2.2, which has its layout.

A turn's topic is its service. A service call demands its arguments, and the dialogue state after a
user's turn demands its values. Their evidence is earlier mentions, in the wording of the state, of
the annotated spans, or of the call.

For an argument of a call, every mention counts. For a value of a state, mentions count in turns
about its service and, if its slot is annotated as a copy of another slot, about that slot's
service. A value without such a mention was carried over, as by *the same area as the restaurant*,
and all its mentions count.

Rastogi et al. 2020, *Towards Scalable Multi-Domain Conversational Agents: The Schema-Guided
Dialogue Dataset*; Zang et al. 2020, *MultiWOZ 2.2*.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from fdkvc.conversations.formats.base import Format, with_calls
from fdkvc.conversations.mentions import NO_EVIDENCE, MentionFinder
from fdkvc.core.json_input import (
    JsonObject,
    listed_objects,
    objects,
    objects_of,
    of_kind,
    optional,
    require,
)
from fdkvc.core.limits import MAX_MENTIONS, MAX_SPANNED_CHARACTERS, MAX_TOPICS, MAX_WORDINGS
from fdkvc.core.parameters import check_most
from fdkvc.core.transcripts import (
    Argument,
    Call,
    Demand,
    Mention,
    TooLargeError,
    Transcript,
    Turn,
    check_texts,
    check_turns,
    clean,
    clean_name,
)
from fdkvc.core.unread import Unread

NO_INTENT = "NONE"
"""The intent of an inactive service."""

Wordings = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Frame:
    """A turn's annotation for one service."""

    service: str
    """Its name."""
    spans: tuple[tuple[str, int, int], ...]
    """(slot, start, end): characters of the utterance."""
    copies: Mapping[str, str]
    """The slot from which each slot copies its value."""
    values: Wordings
    """The dialogue state after the turn; empty if the service is not active."""
    canonical: Mapping[tuple[str, str], tuple[str, ...]]
    """Wordings by (slot, canonical value), from the turn's actions."""
    call: tuple[str, Mapping[str, str]] | None
    """Method and arguments of the service call."""
    names_intent: bool
    """Whether the turn introduces an intent."""
    weight: int
    """Number of spans, actions and active intents."""
    discussed: bool
    """Whether it has more than an intent: a service may be active without being discussed."""


def read_dialogue(value: JsonObject, number: int, calls: bool = False) -> Iterator[Transcript]:
    """Read one dialogue; errors name the dialogue, the turn and the field."""
    name = clean_name(optional(value, "dialogue_id", str, f"dialogue {number}"))
    place = f"dialogue {number} ({name})" if name else f"dialogue {number}"
    turns: list[Turn] = []
    framed = []
    services: list[frozenset[str]] = []
    unread = Unread()
    unread.fields(value, {"dialogue_id", "services", "turns"})
    listed = require(value, "turns", list, place)
    check_turns(place, len(listed))
    for turn, location in objects(listed, "turn", place):
        text = require(turn, "utterance", str, location)
        unread.fields(turn, {"frames", "speaker", "utterance"})
        annotated = listed_objects(turn, "frames", "frame", location)
        frames = [_frame(*frame, text, unread) for frame in annotated]
        topic = _topic(frames, turns[-1].topic if turns else None)
        called = [frame.call for frame in frames if frame.call and calls]
        words = with_calls(clean(text), called)
        speaker = clean_name(require(turn, "speaker", str, location))
        turns.append(Turn(speaker, words, topic, call_characters=len(words) - len(text)))
        framed.append(frames)
        services.append(_services(frames, services[-1] if services else frozenset()))
    # Sizes are checked before mentions are looked for, which takes long.
    texts = [turn.text for turn in turns]
    name = name or f"dialog {number}"
    check_texts(name, texts, [*unread.items()])
    all_frames = [*chain.from_iterable(framed)]
    spans = chain.from_iterable(frame.spans for frame in all_frames)
    spanned = sum(end - start for _, start, end in spans)
    slots = f"{name}: its slots have"
    check_most(slots, spanned, "characters", MAX_SPANNED_CHARACTERS, TooLargeError)
    service_count = len({frame.service for frame in all_frames})
    check_most(f"{name}: it has", service_count, "services", MAX_TOPICS, TooLargeError)
    demands = _Demands(MentionFinder(texts, name), services)
    for index, frames in enumerate(framed):
        for frame in frames:
            demands.add_frame(index, frame, turns[index])
    yield Transcript(
        name,
        tuple(turns),
        tuple(demands.demands),
        demands.missing + len(demands.missing_values),
        tuple(demands.calls),
        calls,
        unread=tuple(unread.items()),
    )


def _topic(frames: Sequence[Frame], previous: str | None) -> str | None:
    """Return the topic of a turn: the service of a new intent, or that with the largest weight."""
    best = max(frames, key=lambda frame: (frame.names_intent, frame.weight), default=None)
    if best is None or (not best.weight and previous is not None):
        return previous
    return best.service


def _services(frames: Sequence[Frame], previous: frozenset[str]) -> frozenset[str]:
    """Return the services of a turn: those discussed, or any with weight, or those before."""
    discussed = [frame for frame in frames if frame.discussed]
    counted = discussed or [frame for frame in frames if frame.weight]
    return frozenset(frame.service for frame in counted) or previous


# ------------------------------------------------------------------------------- demands


@dataclass
class _Demands:
    """Annotations of the dialogue so far, and its demands."""

    finder: MentionFinder
    services: Sequence[frozenset[str]]
    demands: list[Demand] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    missing: int = 0
    missing_values: set[tuple[str, str, str]] = field(default_factory=set)
    state: dict[str, Wordings] = field(default_factory=dict)
    canonical: dict[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)
    spans: dict[tuple[str, str, str], list[Mention]] = field(default_factory=dict)
    copies: dict[tuple[str, str], str] = field(default_factory=dict)

    def add_frame(self, index: int, frame: Frame, turn: Turn) -> None:
        """Add a frame of the turn with this index in the dialog."""
        if frame.call is not None:
            self._call(index, frame)
        # In the turn's text, calls come before the utterance.
        for slot, *span in frame.spans:
            start, end = (turn.call_characters + character for character in span)
            wording = turn.text[start:end].lower()
            mentions = self.spans.setdefault((frame.service, slot, wording), [])
            mentions.append(Mention(index, start, end))
        for (slot, value), wordings in frame.canonical.items():
            self.canonical[frame.service, slot, value] = wordings
        for slot, copied in frame.copies.items():
            self.copies[frame.service, slot] = copied
        if frame.values:
            self.state[frame.service] = frame.values
            for slot, wordings in frame.values.items():
                service = frame.service
                entry = frame.service, slot, wordings[0].lower()
                if self._add("state", index + 1, service, service, slot, wordings) == ():
                    self.missing_values.add(entry)
                else:
                    self.missing_values.discard(entry)

    def _call(self, index: int, frame: Frame) -> None:
        assert frame.call is not None
        method, values = frame.call
        state = self.state.get(frame.service, {})
        arguments = []
        for slot, value in values.items():
            canonical = self.canonical.get((frame.service, slot, value.lower()), ())
            wordings = (value, *state.get(slot, ()), *canonical)
            mentions = self._add("call", index, frame.service, method, slot, wordings)
            self.missing += mentions == ()
            arguments.append(
                Argument(slot, clean_name(value), mentions[-1] if mentions else None)
            )
        arguments.sort(key=lambda argument: argument.slot)
        self.calls.append(Call(index, method, tuple(arguments)))

    def _add(
        self,
        kind: Any,
        turn: int,
        service: str,
        source: str,
        slot: str,
        wordings: Sequence[str],
    ) -> tuple[Mention, ...] | None:
        """Add a demand if it has mentions; return these, or None for a value without evidence."""
        if all(wording.lower() in NO_EVIDENCE for wording in wordings):
            return None
        annotated = list[Mention]()
        for wording in wordings:
            spans = self.spans.get((service, slot, wording.lower()), [])
            # A turn may have several frames of a service: what its own words say comes too late.
            annotated += [span for span in spans[-MAX_MENTIONS:] if span.turn < turn]
        mentions = self.finder.mentions(wordings, turn, annotated)
        carried = False
        if kind == "state":
            mentions, carried = self._own_mentions(service, slot, mentions)
        if mentions:
            value = clean_name(wordings[0])
            number = len(self.calls) if kind == "call" else 0
            self.demands.append(
                Demand(kind, turn, source, slot, value, mentions, carried, number)
            )
        return mentions

    def _own_mentions(
        self, service: str, slot: str, mentions: tuple[Mention, ...]
    ) -> tuple[tuple[Mention, ...], bool]:
        """Return the mentions of a state's value that count, and whether it is carried over."""
        services = {service}
        copied = self.copies.get((service, slot))
        services |= {other for other, values in self.state.items() if copied in values}
        counted = tuple(
            mention for mention in mentions if services & self.services[mention.turn]
        )
        carried = all(service not in self.services[mention.turn] for mention in mentions)
        return counted or mentions, carried


# ------------------------------------------------------------------------------- frames


def _frame(value: JsonObject, place: str, text: str, unread: Unread) -> Frame:
    unread.fields(value, {"actions", "service", "service_call", "slots", "state"})
    service = clean_name(require(value, "service", str, place))
    spans = []
    copies = {}
    for slot, location in listed_objects(value, "slots", "slot", place):
        unread.fields(slot, {"copy_from", "slot", "value"})
        name = clean_name(require(slot, "slot", str, location))
        if slot.get("copy_from") is not None:
            copies[name] = clean_name(require(slot, "copy_from", str, location))
        # A slot that copies another one has no span.
        if slot.keys() & {"start", "exclusive_end"}:
            start = require(slot, "start", int, location)
            end = require(slot, "exclusive_end", int, location)
            if not 0 <= start < end <= len(text):
                raise ValueError(
                    f"{location}: 'start' {start} and 'exclusive_end' {end} are not in the "
                    f"utterance, which has {len(text)} characters"
                )
            spans.append((name, start, end))
    actions = [*listed_objects(value, "actions", "action", place)]
    for action, _ in actions:
        unread.fields(action, {"act", "canonical_values", "slot", "values"})
    state = optional(value, "state", dict, place)
    unread.fields(state, {"active_intent", "requested_slots", "slot_values"})
    active = state.get("active_intent") not in (None, NO_INTENT, "")
    values = {}
    for slot, wordings in optional(state, "slot_values", dict, place).items():
        if active and wordings:
            texts = _texts(wordings, f"{place}, slot_values {slot[:40]!r}")
            values[clean_name(slot)] = tuple(texts)
    call = _service_call(value, place, unread)
    return Frame(
        service,
        tuple(spans),
        copies,
        values,
        dict(_canonical(actions)),
        call,
        names_intent=any(action.get("act") == "INFORM_INTENT" for action, _ in actions),
        weight=len(spans) + len(actions) + active,
        discussed=bool(spans or copies or values or actions or call),
    )


def _canonical(
    actions: Sequence[tuple[JsonObject, str]],
) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    for action, location in actions:
        slot = clean_name(optional(action, "slot", str, location))
        wordings = _texts(optional(action, "values", list, location), f"{location}, values")
        canonical = optional(action, "canonical_values", list, location)
        for value in _texts(canonical, f"{location}, canonical_values"):
            yield (slot, value.lower()), tuple(wordings)


def _service_call(
    value: JsonObject, place: str, unread: Unread
) -> tuple[str, Mapping[str, str]] | None:
    if value.get("service_call") is None:
        return None
    location = f"{place}, service_call"
    call = require(value, "service_call", dict, place)
    unread.fields(call, {"method", "parameters"})
    arguments = {}
    for slot, argument in require(call, "parameters", dict, location).items():
        (arguments[clean_name(slot)],) = _texts(
            [argument], f"{location}, parameters {slot[:40]!r}"
        )
    return clean_name(require(call, "method", str, location)), arguments


def _texts(values: Any, place: str) -> list[str]:
    values = values if isinstance(values, list) else [values]
    for value in values:
        if not isinstance(value, str | int | float):
            raise ValueError(f"{place} must contain only texts and numbers")
    return [clean(str(value)) for value in values[:MAX_WORDINGS]]


def _has_turns(value: JsonObject) -> bool:
    """Whether turns are as these datasets have them, and not messages of another kind."""
    fields = {*chain(*objects_of(of_kind(value["turns"], list)[:1]))}
    return not fields or not fields.isdisjoint(("utterance", "frames"))


FORMAT = Format(
    "annotated",
    "SGD or MultiWOZ 2.2",
    ("json", "jsonl"),
    "turns",
    read_dialogue,
    recognizes=_has_turns,
)
