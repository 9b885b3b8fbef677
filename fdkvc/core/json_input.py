"""Untrusted files and JSON: bounded before they are read or parsed, and checked field by field."""

import ast
import json
import math
import os
import stat
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from fdkvc.core.limits import (
    MAX_JSON_DEPTH,
    MAX_JSON_TEXT_BYTES,
    MAX_JSON_VALUES,
    MAX_LITERAL_CHARACTERS,
)
from fdkvc.core.parameters import check_most
from fdkvc.core.words import error_reason, uncapitalized

T = TypeVar("T")

JsonObject = Mapping[str, Any]
"""An object of JSON, which is not changed."""

Fields = dict[str, Any]
"""The fields of an object that is made, by their names."""

WORDS: Mapping[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}
"""The names of JSON's types."""

_STEPS = bytes.maketrans(b"[{]}\n", b"\x01\x01\xff\xff\x00")
"""How a byte changes the depth: brackets by ±1, a line's end by 0."""

_UNNESTED = bytes({*range(256)} - {*b"[{]}\n"})
"""All other bytes: they do not change the depth and are deleted before it is summed."""

_PART = 2**20
"""Number of bytes that are searched for quotes at once."""


def parse_json(text: str, first_line: int = 1) -> Any:
    """Parse strict JSON, without NaN, infinity and equal keys, that has passed `check_structure`.

    `first_line` is the number of the text's first line, which the ValueErrors name.

    Examples
    --------
    >>> parse_json('{"role": user}')
    Traceback (most recent call last):
    ValueError: line 1 is not JSON at column 10: expecting value
    """
    try:
        return json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_with_unequal_keys,
        )
    except _EqualKeysError as error:
        message = str(error)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        # Some messages end in “at”, before the place that is named here already.
        reason = uncapitalized(error.msg).removesuffix(" at").removesuffix(" starting")
        message = f"line {line} is not JSON at column {error.colno}: {reason}"
    except RecursionError:
        message = f"the file is nested too deeply: at most {MAX_JSON_DEPTH} levels are allowed"
    except ValueError as error:  # a constant, or more digits than Python reads
        message = f"the file has a number that cannot be read: {str(error).partition(';')[0]}"
    raise ValueError(message)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    """Return a number with a point or an exponent; refuse one that is infinite to Python."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} is too large")
    return number


class _EqualKeysError(ValueError):
    """Two values of one key, of which Python would keep the last without a word."""


def _with_unequal_keys(pairs: list[tuple[str, Any]]) -> Fields:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise _EqualKeysError(
            f"the file has an object with two values of {key[:32]!r}: keep one"
        )
    return fields


def check_structure(content: bytes, max_values: int | None = None) -> None:
    r"""Check the depth, the number of values and the longest text of JSON without parsing it.

    Raises a ValueError above `MAX_JSON_DEPTH`, above `max_values` (default `MAX_JSON_VALUES`), or
    for a text of over `MAX_JSON_TEXT_BYTES`, which takes up to eight times as much once parsed.

    Examples
    --------
    >>> check_structure(b'["[[[[", "\"[["]')
    >>> check_structure(b"{}" + b"[" * 40)
    Traceback (most recent call last):
    ValueError: line 1 is nested too deeply: at most 32 levels are allowed
    """
    max_values = MAX_JSON_VALUES if max_values is None else max_values
    # 1. Without escaped quotes, every second quote ends a text. Parts bound the memory.
    escaped = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    codes = np.frombuffer(escaped, np.uint8)
    last = -1
    count = 0
    longest = 0
    for start in range(0, len(codes), _PART):
        quotes = start + np.flatnonzero(codes[start : start + _PART] == ord('"'))
        if quotes.size:
            # Every other gap between quotes is a text. After an odd count, the part begins in one.
            lengths = np.diff(quotes, prepend=last)[1 - count % 2 :: 2] - 1
            longest = max(longest, int(lengths.max(initial=0)))
            last = int(quotes[-1])
            count += quotes.size
    check_most("a text of the file has", longest, "bytes", MAX_JSON_TEXT_BYTES)
    # 2. Outside of texts, each comma and each opening bracket begins at most one value. XOR of all
    # quotes so far says whether a byte is within a text.
    outside = codes[~np.logical_xor.accumulate(codes == ord('"'))].tobytes()
    values = sum(map(outside.count, (b",", b"[", b"{")))
    check_most("the file has", values, "values", max_values)
    # 3. The depth after each bracket and line's end; the lines before tell where it is exceeded.
    steps = np.frombuffer(outside.translate(_STEPS, _UNNESTED), np.int8)
    depth = np.cumsum(steps, dtype=np.int8)  # wraps around only after a depth that is refused
    # A depth below 0 is an unmatched bracket, which the parser refuses.
    refused = (depth > MAX_JSON_DEPTH) | (depth < 0)
    if refused.any():
        first = refused.argmax()  # `flatnonzero` would take eight bytes for each of them
        if depth[first] > MAX_JSON_DEPTH:
            line = 1 + np.count_nonzero(steps[:first] == 0)
            raise ValueError(
                f"line {line} is nested too deeply: at most {MAX_JSON_DEPTH} levels are allowed"
            )


def parse_within(text: str) -> Any:
    """Parse JSON or a short Python literal, else None; an empty text is an empty object.

    Examples
    --------
    >>> parse_within("{'name': 'book', 'seats': 2}"), parse_within("book 2 seats")
    ({'name': 'book', 'seats': 2}, None)
    """
    try:
        check_structure(text.encode("utf-8", "replace"))
        return parse_json(text.strip() or "{}")
    except ValueError:
        pass
    # Some agents write calls as Python, with single quotes and True; Python's parser needs far
    # more memory per character than JSON's.
    if not text.lstrip().startswith(("{", "[")) or len(text) > MAX_LITERAL_CHARACTERS:
        return None
    try:
        with warnings.catch_warnings():  # of invalid escapes, such as "\d"
            warnings.simplefilter("ignore")
            return json_only(ast.literal_eval(text.strip()))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def json_only(value: Any) -> Any:
    """Return a Python literal with lists for tuples; raise a ValueError if JSON cannot hold it."""
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: json_only(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [*map(json_only, value)]
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError("it is not a JSON value")


def require(owner: JsonObject, name: str, kind: type, place: str) -> Any:
    """Return a required field of an object, of a given type.

    Raises a ValueError that begins with the place and names the field.

    Examples
    --------
    >>> require({"turns": 3}, "turns", list, "dialogue 0")
    Traceback (most recent call last):
    ValueError: dialogue 0: 'turns' is missing or not a list
    """
    value = owner.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):  # in Python, True is an int
        raise ValueError(f"{place}: {name!r} is missing or not {WORDS[kind]}")
    return value


def optional(owner: JsonObject, name: str, kind: type, place: str) -> Any:
    """Return a field as `require` does, or an empty value if it is missing or null."""
    return kind() if owner.get(name) is None else require(owner, name, kind, place)


def of_kind(value: Any, kind: type) -> Any:
    """Return a value of a type, or an empty one of this type in place of any other."""
    return value if type(value) is kind else kind()


def objects_of(value: Any) -> list[Fields]:
    """Return the objects in a list; none of any other value."""
    return only(of_kind(value, list), dict)


def only(values: Iterable[Any], kind: type[T]) -> list[T]:
    """Return the values of a kind."""
    return [value for value in values if isinstance(value, kind)]


def field_with(owner: JsonObject, names: Iterable[str], kind: Any) -> str:
    """Return the first of some fields that has a value of a kind, "" if none has."""
    return next((name for name in names if isinstance(owner.get(name), kind)), "")


def objects(values: Iterable[Any], noun: str, place: str) -> Iterator[tuple[Fields, str]]:
    """Yield each value of a list, which must be an object, and its place."""
    for index, value in enumerate(values):
        place_of_value = f"{place}, {noun} {index}"
        yield check_object(value, place_of_value), place_of_value


def listed_objects(
    owner: JsonObject, name: str, noun: str, place: str
) -> Iterator[tuple[Fields, str]]:
    """Yield the objects of an optional list in a field, as `objects` does."""
    return objects(optional(owner, name, list, place), noun, place)


def check_object(value: Any, place: str) -> Fields:
    """Return a value that must be an object."""
    if not isinstance(value, dict):
        raise ValueError(f"{place} is not an object")
    return value


def read_bytes(path: str | Path, max_size: int) -> bytes:
    """Read a file, but at most one byte more than `max_size`, so that the caller can refuse it.

    Raises a ValueError if it cannot be read, or is a pipe, a device, or a system file whose reading
    would block.
    """
    reason = "it is not a regular file"
    try:
        # Opening must not wait for a pipe's writer, nor reading for its content.
        flag = getattr(os, "O_NONBLOCK", 0)
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | flag)) as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                content: bytes | None = file.read(max_size + 1)
                if content is not None:
                    return content
                reason = "it has no content now"  # it would block, as /proc/kmsg does
    except IsADirectoryError:
        pass
    except OSError as error:
        reason = error_reason(error)
    raise ValueError(f"the file {str(path)!r} cannot be read: {reason}")
