"""Where the things that calls need stand in a session, each found as a whole.

A path is found in the spellings that name the same file, by `ThingIndex.same_file`; everything else
as `fdkvc.conversations.mentions` finds wordings. Each message is searched once for all things.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import chain
from typing import NamedTuple

from fdkvc.conversations.mentions import WordingSearch, wordings_of
from fdkvc.conversations.sessions import Message
from fdkvc.core.limits import MAX_MENTIONS

# A colon belongs to a path only after a drive: elsewhere, as in `main.py:12`, it ends one.
_RUN = re.compile(r"(?:\b[A-Za-z]:(?=[\\/]))?[\w.@~+%/\\-]+")
_PART = re.compile(r"[^/\\]+")
_DRIVE = re.compile(r"\b[A-Za-z]:\\")
_ESCAPE = re.compile(r"\\[bfnrt\"\\]")
_LINE_END = re.compile(r"\n|\\n")
# As the tool that reads files for Claude Code numbers their lines.
_LINE_NUMBER = re.compile(r"(?m)^ +\d+[\t→]")
_READER = re.compile(r"(?i)(?:\b|_)(?:read|view|edit)")
_PATH = re.compile(r"(?:[A-Za-z]:)?[\w.@~+%/\\-]+")


class Place(NamedTuple):
    """A mention in a message of a session."""

    message: int
    start: int
    """Its first character in the message."""
    end: int
    """The character after its last."""


def is_path(value: str) -> bool:
    """Whether a thing is a path or the name of a file."""
    has_name = re.search(r"[/\\]|\w\.[A-Za-z]\w{0,6}$", value) is not None
    return has_name and "@" not in value[1:] and _PATH.fullmatch(value) is not None


def _spelling(path: str) -> str:
    """Return a path in the form in which paths are compared."""
    plain = re.sub(r"[/\\]+", "/", path.lower())
    # git names a branch with its remote, and a person mostly without.
    return re.sub(r"^(?:\./|(?:remotes/)?origin/)", "", plain).rstrip("/.")


def file_name(path: str) -> str:
    """Return the part of a path after its folders."""
    return re.split(r"[/\\]", path)[-1]


def names_same_file(path: str, spelling: str) -> bool:
    """Whether of two paths one is the other's end.

    Examples
    --------
    >>> names_same_file("/srv/app/main.py", "app/main.py"), names_same_file("a/b.py", "b/a/b.py")
    (True, True)
    """
    short, long = sorted(map(_spelling, (path, spelling)), key=len)
    return f"/{long}".endswith(f"/{short.lstrip('/')}")


def _tails(path: str) -> Iterator[str]:
    """Yield the path, without its first folder, without its first two, and so on."""
    yield path
    while "/" in path:
        path = path.partition("/")[2]
        if path:
            yield path


class ThingIndex:
    """The mentions of things in the messages of a session."""

    def __init__(self, messages: Sequence[Message], values: Iterable[str]) -> None:
        values = [*values]
        self._messages = messages
        paths = [_spelling(value) for value in values if is_path(value)]
        # Only what ends with a name that is looked for is noted: a log has paths without number.
        names = {*map(file_name, paths)}
        wordings: dict[str, str] = {}
        for value in values:
            if not is_path(value):
                wordings |= dict.fromkeys(wordings_of(value), value)
        # 1. The places of each value, and of each spelling of a path.
        self._places: dict[str, list[Place]] = defaultdict(list)
        self._spelled: dict[str, list[Place]] = defaultdict(list)
        search = WordingSearch(wordings)
        for index, message in enumerate(messages):
            text = message.turn.text
            if _READER.search(message.turn.tool):  # numbers of a file's lines are no values
                text = _LINE_NUMBER.sub(lambda number: " " * len(number[0]), text)
            places = defaultdict[str, list[Place]](list)
            for wording, start, end in search.mentions(text):
                places[wordings[wording]].append(Place(index, start, end))
            for value, mentions in places.items():
                self._places[value] += mentions[-MAX_MENTIONS:]
            for path, start, end in _paths_in(text, names):
                self._spelled[path].append(Place(index, start, end))
        # 2. The spellings that end with each path.
        self._longer: dict[str, list[str]] = defaultdict(list)
        for path in self._spelled:
            for tail in _tails(path):
                self._longer[tail].append(path)
        self._names_one_file = cache(self._is_one_file)
        self._of_path = cache(self._path_places)

    def places(self, value: str, context_word: str = "") -> Sequence[Place]:
        """Return the places of a thing in order; with a `context_word`, those in a line with it."""
        if is_path(value):
            return self._of_path(_spelling(value))
        places = self._places.get(value, [])
        if not context_word:
            return places
        word = re.compile(rf"(?i)(?<![^\W_]){re.escape(context_word)}")
        return [place for place in places if word.search(self._line(place))]

    def whole_path(self, value: str) -> str:
        """Return the longest path of the session that names the same file; another value as is."""
        if not is_path(value):
            return value
        path = _spelling(value)
        longer = filter(partial(self.same_file, path), self._longer.get(path, ()))
        return max(longer, key=len, default=path)

    def namesakes(self, path: str) -> list[Place]:
        """Return the places of paths that end with the same name, whatever their folders."""
        name = _spelling(file_name(path))
        spelled = (self._spelled[spelling] for spelling in self._longer.get(name, ()))
        return sorted(chain.from_iterable(spelled))

    def _line(self, place: Place) -> str:
        """Return the line of a place; in JSON, the escape of a line's end ends it, too."""
        text = self._messages[place.message].turn.text
        escape = text.rfind("\\n", 0, place.start)
        first = max(text.rfind("\n", 0, place.start) + 1, escape + 2 if escape >= 0 else 0)
        end = _LINE_END.search(text, place.end)
        return text[first : end.start() if end else len(text)]

    def _path_places(self, path: str) -> list[Place]:
        places = set[Place]()
        for spelling in (*_tails(path), *self._longer.get(path, ())):
            if self.same_file(path, spelling):
                places.update(self._spelled.get(spelling, ()))
        return sorted(places)

    def same_file(self, path: str, spelling: str) -> bool:
        """Whether a spelling in the text names the file of a path.

        A shorter spelling does if only one file of the session ends with it; a longer one, too, if
        it begins at the root: next to ``main.py``, ``tests/main.py`` is another file. A name
        without a folder is a file of its own if a tool returned it alone.
        """
        if path == spelling:
            return True
        short, long = sorted((path, spelling), key=len)
        is_relative = re.match(r"/|~|[a-z]:", long) is None
        if not long.endswith(f"/{short.lstrip('/')}") or (long == spelling and is_relative):
            return False
        return self._names_one_file(short)

    def _is_one_file(self, path: str) -> bool:
        if "/" not in path:
            places = self._spelled.get(path, ())
            if any(self._messages[place.message].turn.kind == "result" for place in places):
                return False
        longer = sorted(self._longer.get(path, ()), key=len)
        return not longer or all(map(longer[-1].endswith, longer))


def _paths_in(text: str, names: set[str]) -> Iterator[tuple[str, int, int]]:
    """Yield the paths in a text that end with any of some names, with their start and end."""
    if "\\" in text and not _DRIVE.search(text):  # JSON escapes, and no path of Windows
        text = _ESCAPE.sub("  ", text)
    for run in _RUN.finditer(text) if names else ():
        words = run[0]
        start = run.start()
        if "/" not in words and "\\" not in words:
            name = words.lower().rstrip(".")
            if name in names:
                yield _spelling(name), start, start + len(name)
            continue
        for part in _PART.finditer(words):
            name = part[0].lower().rstrip(".")
            if name in names:
                end = part.start() + len(name)
                yield _spelling(words[:end]), start, start + end
