"""Files of no known format: the list in them that is most like messages is read, and said.

1. Every list of objects is a candidate, wherever it stands, and so are the values of an object
   that name their parents. Lists of one place, such as ``data.*.messages``, are read alike.
2. The objects name a speaker in a known field, or in another whose values are known speakers; or
   each has what was asked and what was answered.
3. The place with most words is read. Where one has requests and another responses, the second goes
   on after the first.
4. The words that are read are compared with those of the file: under `MIN_COVERED`, it is refused.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, filterfalse
from itertools import count as counter
from typing import Any

from fdkvc.conversations.formats.base import (
    Messages,
    Placed,
    left_out,
    places_of_sample,
    restated,
)
from fdkvc.conversations.formats.chat import conversation, is_prompt, texts_of, with_prompts
from fdkvc.conversations.formats.messages import (
    MAX_SPEAKER_CHARACTERS,
    NAMED,
    SPEAKERS,
    WORDS,
    is_message,
    role_of_name,
    texts_in,
    unwrapped,
    without_details,
)
from fdkvc.conversations.formats.parts import is_call_field, is_system, is_thought
from fdkvc.conversations.formats.trees import LEAVES, OTHER_BRANCH, PARENTS, branches, field_of
from fdkvc.conversations.formats.unknown import seems_to_be
from fdkvc.conversations.tools import LISTS
from fdkvc.core.json_input import (
    Fields,
    JsonObject,
    objects_of,
    of_kind,
    only,
    parse_within,
)
from fdkvc.core.limits import MAX_DIALOGS, MAX_PLACES
from fdkvc.core.parameters import check_most
from fdkvc.core.transcripts import ASSISTANTS, USERS, SkippedError, Transcript, clean_name
from fdkvc.core.unread import Unread, bare, has_words, is_thinking
from fdkvc.core.words import count, name_list, name_set

MIN_COVERED = 0.8
"""Share of a file's words below which a reading is refused."""

MIN_SPEAKING = 0.6
"""Share of a list's objects that must name a known speaker, and of its words in known fields."""

IS_USER = name_list("isuser iscreatedbyuser fromuser isfromuser ishuman")
"""Fields that say whether a message is the user's, as `bare` writes them."""

ASKS = name_list(
    "user usercontent human prompt question query input instruction message request"
)
ANSWERS = name_list(
    "assistant bot ai model finalresponse response answer output reply completion"
)
"""Fields of an exchange, as `bare` writes them."""

NOTICES = name_set("info error warning notice")
"""Types of items that are nobody's words, as `bare` writes them: they are counted."""

SIDES = {
    "request": name_set("input inputs request prompt prompts"),
    "response": name_set("output outputs response responses completion"),
}
"""Words in the names of two places of which the second goes on after the first."""

SWIPES = ("swipes", "swipe_info")
"""Fields of SillyTavern with all answers that a message had: it shows one of them."""

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Items:
    """A list of objects in a file."""

    path: Path
    """The names of fields and numbers of items that lead to it."""
    items: list[Fields]
    """The objects, each as `unwrapped` returns it."""
    value: Any
    """The list or object that has them."""
    raw: Sequence[JsonObject]
    """The objects as the file has them."""
    owners: tuple[Any, ...]
    """The lists and objects around it, from the outermost."""

    @cached_property
    def place(self) -> str:
        """Where it is, as people write it, without the numbers of items."""
        return clean_name(".".join(only(self.path, str))) or "the file"

    @cached_property
    def side(self) -> tuple[Path, str]:
        """What leads to a list of requests or of responses, and which of the two it is."""
        for number, name in enumerate(self.path):
            words = {*re.split(r"[\W_]", str(name).casefold())}
            for side, names in SIDES.items():
                if not words.isdisjoint(names):
                    return self.path[:number], side
        return (), ""


@dataclass(frozen=True)
class Reading:
    """How the lists of one place are read as messages."""

    lists: list[Items]
    speaker: str
    """The field that names the speaker; "" for exchanges."""
    words: str
    """The field with the words; of exchanges, those of both sides."""
    size: int
    """Words in all lists."""

    @property
    def place(self) -> tuple[str, ...]:
        """The names of fields that lead to its lists."""
        return tuple(only(self.lists[0].path, str))

    @cached_property
    def by_root(self) -> Mapping[Path, Sequence[Items]]:
        """Its lists by what leads to the requests and responses."""
        lists: dict[Path, list[Items]] = {}
        for listed in self.lists:
            lists.setdefault(listed.side[0], []).append(listed)
        return lists

    @property
    def is_tree(self) -> bool:
        """Whether its messages name their parents."""
        return any(map(_has_parent, self.lists[0].items))

    def is_within(self, places: Set[tuple[str, ...]]) -> bool:
        """Whether its lists stand in the objects of one of these places."""
        return any(self.place[:size] in places for size in range(len(self.place)))

    def messages(self, listed: Items, unread: Unread) -> Messages:
        """Yield the messages of a list; count objects without a known speaker."""
        for number, item in enumerate(listed.items):
            read = self._message if self.speaker else _exchange
            for message in read(item, unread):
                yield message, f"{listed.place}, item {number}"

    def _message(self, item: Fields, unread: Unread) -> Iterator[Fields]:
        """Yield an object as a message, if it has words of a known speaker."""
        role = speaker_of(item, self.speaker)
        unread.add(OTHER_BRANCH, len(of_kind(item.get(SWIPES[0]), list)[1:]))
        item = restated(item, *SWIPES)
        if not role:
            field = next(filter(partial(field_at, item), (self.speaker, *SPEAKERS)), "")
            name = clean_name(str(field_at(item, field)))[:40]
            kind = f"item of {field} {name!r}" if field else "item without a speaker"
            unread.add(kind, has_words(item))
        elif {self.words, "content", *WORDS, *filter(is_call_field, item)}.isdisjoint(item):
            unread.fields(item, (self.speaker,))
        else:
            message = restated(item, self.speaker, role=role)
            if self.words not in ("content", *WORDS):
                message = restated(message, self.words, content=item.get(self.words))
            yield message


def _exchange(item: Fields, unread: Unread) -> Iterator[Fields]:
    """Yield what was asked and what was answered as messages."""
    sides = _sides_of(item)
    calls = {name: item[name] for name in filter(is_call_field, item)}
    for name, role, beside in zip(sides, ("user", "assistant"), ({}, calls), strict=True):
        if name or beside:
            words = item.get(name)
            spoken = words if isinstance(words, dict) else {"content": words}
            yield {**spoken, **beside, "role": role}
    unread.fields(item, {*sides, *calls})


def read_any(value: Any, calls: bool) -> tuple[list[Transcript | SkippedError], str]:
    """Read a value of JSON that no format fits; return its dialogs, and how they are read.

    Raises a ValueError if nothing in it is like messages, or too many of its words are left.
    """
    value = _parsed(value)
    possible = [*_readings(value)]
    places = {reading.place for reading in possible}
    readings = [row for row in possible if not row.is_within(places)]
    readings.sort(key=lambda reading: (-reading.size, not reading.is_tree))
    if not readings:
        needs = "a speaker, such as 'role', and words, such as 'content'"
        raise ValueError(f"{_seems(value)}; no list in it has objects with {needs}")
    chosen_readings = _with_sequel(readings)
    reading, *sequels = chosen_readings
    unread = Unread()
    _count_beside(_lists_of(chosen_readings), unread)
    trees = []
    for listed in reading.lists:
        trees += _trees_of(listed, unread)
    unread.update(dict(left_out(len(trees), "dialog")))
    dialogs: list[Transcript | SkippedError] = []
    left_prompts: list[Fields] = []
    for number in places_of_sample(len(trees)):
        tree = trees[number]
        messages = [*reading.messages(tree, unread)]
        for sequel in sequels:
            for row in sequel.by_root.get(tree.side[0], ()):
                messages = _answered(messages, [*sequel.messages(row, unread)])
        owner, prompts = _around(tree, messages)
        for further in prompts:
            unread.fields(further, ())
        left_prompts += prompts
        place = f"dialog {number}"
        try:
            # The objects around the messages have their system prompt and tools.
            placed = [*with_prompts(owner, messages, place)]
            dialogs.append(conversation(owner, place, placed, calls, unread))
        except SkippedError as error:
            dialogs.append(error)
        unread = Unread()
    for listed in reading.lists:
        _check_speakers(listed)
    read_items = {*map(id, _items_of(trees))}
    items = _items_of(reading.lists)
    passed_over = [item for item in items if id(item) not in read_items or _is_notice(item)]
    _check_covered(value, passed_over + left_prompts, dialogs, readings)
    return dialogs, _sentence(chosen_readings, dialogs)


def _lists_of(readings: Iterable[Reading]) -> list[Items]:
    return [*chain.from_iterable(reading.lists for reading in readings)]


def _items_of(lists: Iterable[Items]) -> list[Fields]:
    return [*chain.from_iterable(listed.items for listed in lists)]


def _said(placed: Placed) -> list[Any]:
    """Return the speaker and the words of a message."""
    return [placed[0].get(name) or "" for name in ("role", "content", *WORDS)]


def _answered(messages: list[Placed], answers: list[Placed]) -> list[Placed]:
    """Return the messages of a request and of its response, which may begin with the request's."""
    repeated = answers[:-1][: len(messages)]
    if [*map(_said, messages)] == [*map(_said, repeated)]:
        return answers
    return messages + answers


def _seems(value: Any) -> str:
    """Say what a file seems to be, by its first object."""
    first = value[0] if isinstance(value, list) and value else value
    place = "the file" if first is value else "dialog 0"
    return seems_to_be(place, of_kind(first, dict))


def _around(listed: Items, messages: Sequence[Placed]) -> tuple[Fields, list[Fields]]:
    """Return the fields of the objects around messages, and the system prompts left out of them.

    The nearest prompts stay. Of those further out, what these or the first message repeat is no
    longer in either.
    """
    owner: Fields = {}
    left_prompts: list[Fields] = []
    first = messages[0][0] if messages else {}
    spoken = texts_of(first) if is_system(first) else set()
    for ancestor in reversed(only(listed.owners, dict)):
        prompts = {name: ancestor[name] for name in filter(is_prompt, ancestor)}
        if not owner or not spoken:
            spoken |= texts_of(prompts)
        else:
            ancestor = restated(ancestor, *prompts)
            if not texts_of(prompts) <= spoken:
                left_prompts.append(prompts)
        owner = ancestor | owner
    return owner, left_prompts


def _trees_of(listed: Items, unread: Unread) -> list[Items]:
    """Return the messages of a list: all of them, or the branch that is read of each tree."""
    leaves = [field_of(owner, LEAVES) for owner in only(listed.owners, dict)]
    leaf = next(filter(None, reversed(leaves)), "")
    trees = branches([(item, item) for item in listed.items], leaf, listed.place)
    unread.add(OTHER_BRANCH, len(listed.items) - sum(map(len, trees)))
    return [replace(listed, items=tree) for tree in trees]


def _with_sequel(readings: Sequence[Reading]) -> list[Reading]:
    """Return the reading with most words, with the one that goes on after it, in their order."""
    best = readings[0]
    root, side = best.lists[0].side
    for reading in readings[1:]:
        same_root, other_side = reading.lists[0].side
        if {side, other_side} == {*SIDES} and root == same_root:
            return [best, reading] if side == "request" else [reading, best]
    return [best]


# ------------------------------------------------------------------------------- search


def _parsed(value: Any) -> Any:
    """Return a value with lists of messages or parts in place of texts of JSON that are such."""
    if (
        isinstance(value, dict)
        and isinstance(value.get("replies"), list)
        and is_message(value)
    ):
        return [*_flat(value, "", counter())]
    if isinstance(value, dict):
        if not SIDES["request"].isdisjoint(value):
            responses = {  # each is one message, and not a list
                name: [child]
                for name, child in value.items()
                if name in SIDES["response"] and is_message(child)
            }
            value = value | responses
        value = _in_one_part(value)
        return {name: _parsed(child) for name, child in value.items()}
    if isinstance(value, list):
        attributes = _attributes(value)
        return _parsed(attributes) if attributes else [*map(_parsed, value)]
    # Of all texts of a file, only those are parsed that begin like a list of objects.
    if isinstance(value, str) and value.startswith(("[{", "[ {", "[\n")):
        items = parse_within(value)
        first_part = of_kind(items[0], dict) if isinstance(items, list) and items else {}
        if is_message(first_part) or first_part.get("type") == "text":
            return items
    return value


def _in_one_part(message: Fields) -> Fields:
    """Return a message of AI Studio, whose text repeats its parts, with its answer in one part."""
    text, parts = of_kind(message.get("text"), str), of_kind(message.get("parts"), list)
    if not parts or not all(
        isinstance(of_kind(part, dict).get("text"), str) for part in parts
    ):
        return message
    answers = [*filterfalse(is_thought, parts)]
    answer = "".join(texts_in(answers))
    if _squeezed(text) == _squeezed(answer):
        answer = text
    elif _squeezed(text) != _squeezed("".join(texts_in(parts))):
        return message
    joined: Fields = {}
    for part in answers:
        joined |= part
    parts = [*filter(is_thought, parts), joined | {"text": answer}]
    return restated(message, "text", parts=parts)


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _flat(message: JsonObject, parent: str, numbers: Iterator[int]) -> Iterator[Any]:
    """Yield a message and its replies, which name their parents; the first reply comes last."""
    key = str(next(numbers))
    yield restated(message, "replies", id=key, parent_id=parent)
    # The branch that is read ends at the last message, so the first reply has to come last.
    for reply in reversed(objects_of(message.get("replies"))):
        yield from _flat(reply, key, numbers)


def _attributes(values: list[Any]) -> Fields:
    """Return the fields of a list of OpenTelemetry's attributes, none of another list."""
    fields = {}
    for item in values:
        match item:
            case {"key": str(key), "value": {"stringValue": text}} if len(item) == 2:
                fields[key] = text
            case {"key": str(key), "value": dict()}:
                fields[key] = None
            case _:
                return {}
    return fields


def items_in(value: Any) -> Iterator[Items]:
    """Yield the lists of objects in a value of JSON, the outermost first."""
    waiting: deque[tuple[Path, Any, tuple[Any, ...]]] = deque([((), value, ())])
    while waiting:
        path, child, owners = waiting.popleft()
        listed = [*child.values()] if isinstance(child, dict) else child
        objects = objects_of(listed)
        is_list = isinstance(child, list) or any(map(_has_parent, objects))
        if is_list and objects and len(objects) == len(listed):
            yield Items(path, [*map(unwrapped, objects)], child, objects, owners)
        named = child.items() if isinstance(child, dict) else enumerate(child)
        for name, item in named:
            # Descriptions of tools are no messages, whatever fields they have.
            if isinstance(item, dict | list) and item and name not in LISTS:
                waiting.append(((*path, name), item, (*owners, child)))


def _has_parent(item: JsonObject) -> bool:
    return not {*map(bare, item)}.isdisjoint(PARENTS)


def field_at(item: JsonObject, path: str) -> Any:
    """Return the value of a field, or of a field of a field."""
    name, _, inside = path.partition("/")
    child = item.get(name)
    return of_kind(child, dict).get(inside) if inside else child


def speaker_of(item: JsonObject, path: str) -> str:
    """Return the role of an object's speaker, "" if it is not known."""
    value = field_at(item, path)
    if isinstance(value, bool):
        is_named = bare(path.rpartition("/")[2]) in IS_USER
        return ("user" if value else "assistant") if is_named else ""
    role = role_of_name(value)
    return value if path == "role" and isinstance(value, str) and not role else role


def _readings(value: Any) -> Iterator[Reading]:
    """Yield how each place could be read."""
    places: dict[tuple[str, ...], list[Items]] = {}
    for listed in items_in(value):
        names = tuple(name if isinstance(name, str) else "" for name in listed.path)
        places.setdefault(names, []).append(listed)
    check_most("the file has lists of objects at", len(places), "places", MAX_PLACES)
    for lists in places.values():
        items = _items_of(lists)
        speaker = _speaker_field(items)
        sides = [*map(_sides_of, items)]
        complete = next(filter(all, sides), ())
        if speaker.partition("/")[0] in complete:
            speaker = ""  # each side names its own
        words = _words_field(items, speaker)
        is_exchange = not speaker and lists[0].path and complete and all(map(any, sides))
        if is_exchange:
            words = " and ".join(f"`{name}`" for name in complete)
        roles = {speaker_of(item, speaker) for item in items if speaker}
        is_spoken = is_exchange or len(roles) > 1 or words in ("content", *WORDS)
        if words and is_spoken:
            yield Reading(lists, speaker, words, sum(word_counts(items).values()))


def _speaker_field(items: Sequence[JsonObject]) -> str:
    """Return the field that names the speaker of most objects, "" if none does."""
    known_names: Counter[str] = Counter()
    spoken: dict[str, set[str]] = {}
    for item in items:
        paths = [*item]
        for name, child in item.items():
            if isinstance(child, dict) and len(name) <= MAX_SPEAKER_CHARACTERS:
                paths += [f"{name}/{inside}" for inside in child]
        for path in paths:
            role = speaker_of(item, path)
            if role:
                known_names[path] += 1
                spoken.setdefault(path, set()).add(role)
    speaking = sum(has_words(item) for item in items if not _is_notice(item))
    fits = []
    for path, times in known_names.items():
        if times >= MIN_SPEAKING * speaking and spoken[path] & (USERS | ASSISTANTS):
            fits.append(path)
    fits.sort(key=lambda path: (path != "role", -len(spoken[path]), -known_names[path]))
    return fits[0] if fits else ""


def _words_field(items: Sequence[JsonObject], speaker: str) -> str:
    """Return the field with the words of objects that name a speaker, "" if there is none."""
    sizes: Counter[str] = Counter()
    for item in items if speaker else ():
        for name, child in item.items():
            is_said = isinstance(child, str | list | dict) and not is_thinking(name)
            if isinstance(child, list) and any(
                role_of_name(unwrapped(part).get("role")) in USERS
                for part in objects_of(child)
            ):
                continue
            is_said = is_said and not is_call_field(name) and name not in (speaker, *SWIPES)
            if is_said and has_words(child, name):
                sizes[name] += sum(word_counts(child).values())
    known_names = [name for name in ("content", *WORDS) if sizes[name]]
    return (
        known_names[0] if known_names else next((name for name, _ in sizes.most_common(1)), "")
    )


def _is_notice(item: JsonObject) -> bool:
    """Whether an item is a notice of a program, which nobody says."""
    return any(bare(str(item.get(name))) in NOTICES for name in ("role", "type", "kind"))


def _sides_of(item: JsonObject) -> tuple[str, str]:
    """Return the fields with what was asked and what was answered, "" for a side without words."""
    return _side_of(item, ASKS), _side_of(item, ANSWERS)


def _side_of(item: JsonObject, names: Sequence[str]) -> str:
    filled = (name for name in item if bare(name) in names and has_words(item[name]))
    return next(filled, "")


# ------------------------------------------------------------------------------- what is covered


def word_counts(value: Any) -> Counter[str]:
    """Return how often each word stands in the texts of a value.

    A text counts once, and one of a single word, such as a label, does not.
    """
    texts: set[str] = set()
    waiting = [("", value)]
    while waiting:
        name, child = waiting.pop()
        if isinstance(child, dict):
            if is_thought(child):
                continue
            asides = {*filter(is_thinking, child), *LISTS, *SWIPES}
            waiting += [row for row in child.items() if row[0] not in asides]
        elif isinstance(child, list):
            waiting += [(name, item) for item in child]
        elif has_words(child, name):
            texts.add(without_details(child))
    counts: Counter[str] = Counter()
    for text in texts:
        if not re.fullmatch(r"[\w.:/-]+", text, re.ASCII):
            counts.update(re.findall(r"\w+", text))
    return counts


def _count_beside(lists: Sequence[Items], unread: Unread) -> None:
    """Count what stands beside the lists that are read, and does not repeat their words."""
    spoken = word_counts([listed.value for listed in lists])
    ancestors: dict[int, Any] = {}
    for listed in lists:
        ancestors |= zip(map(id, listed.owners), listed.owners, strict=True)
    read = {id(listed.value) for listed in lists} | ancestors.keys()
    for owner in ancestors.values():
        if isinstance(owner, dict):
            names = {*LISTS, *filter(is_prompt, owner)}
            for name, child in owner.items():
                if id(child) in read or Counter() < word_counts(child) <= spoken:
                    names.add(name)
            unread.fields(owner, names)
        else:
            siblings = [item for item in owner if id(item) not in read]
            unread.add("item beside the messages", sum(map(has_words, siblings)))


def _check_covered(
    value: Any,
    passed_over: list[Fields],
    dialogs: Sequence[Transcript | SkippedError],
    readings: Sequence[Reading],
) -> None:
    """Raise a ValueError if too many words of a file are not in its dialogs."""
    spoken: Counter[str] = Counter()
    for dialog in dialogs:
        # Words of dialogs that are too large, or beside a sample, are not counted and yet no loss.
        if not isinstance(dialog, Transcript) or len(dialogs) == MAX_DIALOGS:
            return
        texts = [*dialog.texts]
        for call in dialog.calls:
            texts += [call.method, *(argument.value for argument in call.arguments)]
        for text in texts:
            spoken.update(re.findall(r"\w+", text))
    total = word_counts(value) - word_counts(passed_over)
    covered = sum((total & spoken).values()) / max(sum(total.values()), 1)
    if total and covered < MIN_COVERED:
        best, *other_readings = readings
        likely = [row.lists[0].place for row in other_readings if 2 * row.size > best.size]
        why = f"{likely[0]!r} is as likely" if likely else "the fields beside them have more"
        place = best.lists[0].place
        raise ValueError(
            f"{_seems(value)}; the messages under {place!r} have {covered:.0%} of its words, "
            f"and {why}"
        )


def _check_speakers(listed: Items) -> None:
    """Raise a ValueError if some objects of a list name their speaker in another field."""
    counts = [
        sum(role_of_name(item.get(name)) in NAMED for item in listed.raw)
        for name in ("role", "type")
    ]
    if all(counts) and sum(counts) <= len(listed.items):
        raise ValueError(
            f"{listed.place}: of its messages, {counts[0]} name their speaker in 'role' and "
            f"{counts[1]} in 'type': give all as one"
        )


def _sentence(
    chosen_readings: Sequence[Reading], dialogs: Sequence[Transcript | SkippedError]
) -> str:
    """Say how a file is read."""
    lists = _lists_of(chosen_readings)
    items = _items_of(lists)
    reading = chosen_readings[0]
    places = " and ".join(f"`{row.lists[0].place}`" for row in chosen_readings)
    fields = f"words from {reading.words}"
    if reading.speaker:
        named = _written_name(lists[0], reading.speaker)
        fields = f"speaker from `{named}`, words from `{reading.words}`"
    call_field = next(filter(is_call_field, chain.from_iterable(items)), "")
    called = f", calls from `{call_field}`" if call_field else ""
    silent = 0
    for dialog in dialogs:
        if isinstance(dialog, Transcript):
            calling = {call.turn for call in dialog.calls}
            texts = enumerate(dialog.texts)
            silent += sum(not text and turn not in calling for turn, text in texts)
    silent_note = f"; {count(silent, 'item')} without words" if silent else ""
    return (
        f"Read as messages: {count(len(items), 'item')} under {places}; "
        f"{fields}{called}{silent_note}."
    )


def _written_name(listed: Items, speaker: str) -> str:
    """Return the field with the speaker as the file has it."""
    for item in listed.raw:
        for prefix, owner in [
            ("", item),
            *((f"{name}.", child) for name, child in item.items()),
        ]:
            for name in (speaker, *SPEAKERS):
                if isinstance(owner, dict) and role_of_name(owner.get(name)):
                    return f"{prefix}{name}"
    return speaker.replace("/", ".")
