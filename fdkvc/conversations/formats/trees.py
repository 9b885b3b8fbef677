"""Messages that name their parents: of each tree, the branch that was open last is read."""

from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from fdkvc.core.json_input import JsonObject
from fdkvc.core.transcripts import clean_name
from fdkvc.core.unread import bare
from fdkvc.core.words import name_list

OTHER_BRANCH = "message of another branch"

PARENTS = name_list("parent parentid parentuuid parentmessageid parentmessageuuid")
IDS = ("id", "uuid", "messageid")
LEAVES = name_list("currentnode currentid currentleafmessageuuid currentmessageid")
"""Fields of a message's parent, of its id, and of a tree's last message, as `bare` writes them."""

Message = TypeVar("Message")


# The same few names stand in each message of a file.
_spelled = lru_cache(maxsize=4096)(bare)


def field_of(owner: JsonObject, names: Sequence[str]) -> str:
    """Return the first text in fields of these names, "" if there is none."""
    named = {_spelled(name): value for name, value in owner.items() if isinstance(value, str)}
    return next((named[name] for name in names if named.get(name)), "")


def branch_to(
    leaf: str, parents: Mapping[str, str], place: str, known: Container[str] = ()
) -> list[str]:
    """Return the ids from the root, or after one that is known, to a leaf.

    Raises a ValueError if they go in a circle.
    """
    path: dict[str, None] = {}
    while leaf in parents and leaf not in known:
        if leaf in path:
            raise ValueError(f"{place}: message {clean_name(leaf)!r} is its own ancestor")
        path[leaf] = None
        leaf = parents[leaf]
    return [*path][::-1]


def branches(
    messages: Sequence[tuple[JsonObject, Message]], leaf: str, place: str
) -> list[list[Message]]:
    """Return the branch that is read of each tree; all messages if they do not name their parents.

    Each message comes with the object that names it. A branch ends at the leaf, or else at the last
    message of its tree that is nobody's parent.
    """
    named: dict[str, Message] = {}
    parents: dict[str, str] = {}
    for owner, message in messages:
        key = field_of(owner, IDS)
        named[key], parents[key] = message, field_of(owner, PARENTS)
    is_tree = len(named) == len(messages) and "" not in named
    inner = {*parents.values()}
    if not is_tree or named.keys().isdisjoint(inner):
        return [[message for _, message in messages]]
    roots: dict[str, str] = {}  # by message; those of one missing parent are one tree
    ends: dict[str, str] = {}  # the last message of each tree that is nobody's parent
    for key in named:
        path = branch_to(key, parents, place, roots)
        parent = parents[path[0]] if path else key
        root = roots.get(parent) or parent or path[0]
        roots.update(dict.fromkeys(path, root))
        if key not in inner or root not in ends:
            ends[root] = key
    if leaf in named:
        ends[roots[leaf]] = leaf
    return [[named[key] for key in branch_to(end, parents, place)] for end in ends.values()]
