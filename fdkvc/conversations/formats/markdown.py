"""Markdown with a heading for each speaker, as exports of chats write it, and Aider's history.

A heading such as ``## User`` or ``**Assistant:**`` begins a turn; in Aider's history ``####`` does
for the user, lines with ``>`` are a tool's, and ``# aider chat started`` begins a dialog.
"""

import re

from fdkvc.conversations.formats.base import Dialogs, Format, Messages, read_each
from fdkvc.conversations.formats.chat import conversation
from fdkvc.conversations.formats.messages import role_of_name
from fdkvc.core.limits import MAX_DIALOG_FILE_LINES
from fdkvc.core.parameters import check_most
from fdkvc.core.transcripts import USERS
from fdkvc.core.unread import Unread, has_words

AIDER = "# aider chat started"
BEFORE = "words before the first speaker"

_HEADING = re.compile(
    r"#{1,6} +(?P<name>.{1,80})|_?\*\*(?P<bold>[^*]{1,80})\*\*_?:?(?P<words>.*)"
)
_BESIDE = re.compile(r"\([^()]*\)|\[[^][]*\]|\bsaid\b|\d")


def speaker_of(line: str) -> tuple[str, str]:
    """Return the role that a line names as a heading, "" if it is none, and the words after it.

    Examples
    --------
    >>> speaker_of("## User (10:03)"), speaker_of("**ChatGPT:** Hello"), speaker_of("## User guide")
    (('user', ''), ('chatgpt', ' Hello'), ('', ''))
    """
    heading = _HEADING.fullmatch(line.strip())
    if heading is None:
        return "", ""
    name = heading["name"] or heading["bold"]
    return role_of_name(_BESIDE.sub("", name)), heading["words"] or ""


def _of_aider(line: str) -> tuple[str, str]:
    """Return who says a line of Aider's history, and its words."""
    for mark, role in (("#### ", "user"), (">", "tool")):
        if line.startswith(mark):
            return role, line.removeprefix(mark)
    return "assistant", line


def recognizes(text: str) -> bool:
    """Whether a text is Aider's, or has headings for a user and for another."""
    if text.lstrip().startswith(("{", "[")):
        return False
    if text.lstrip().startswith(AIDER):
        return True
    headings = re.finditer(r"(?m)^[#_*].*$", text)
    roles = {speaker_of(heading[0])[0] for heading in headings} - {""}
    return len(roles) > 1 and not roles.isdisjoint(USERS)


def read(text: str, number: int, calls: bool) -> Dialogs:
    """Read a text; yield an error in place of each dialog that is too large."""
    check_most("the file has", text.count("\n") + 1, "lines", MAX_DIALOG_FILE_LINES)
    chats = text.lstrip().split(f"\n{AIDER}")
    yield from read_each(_chat, chats, "dialog", number, calls, Unread())


def _chat(text: str, number: int, calls: bool) -> Dialogs:
    unread = Unread()
    yield conversation({}, f"dialog {number}", [*_messages(text, unread)], calls, unread)


def _messages(text: str, unread: Unread) -> Messages:
    """Yield the messages of a chat; what is before its first speaker is counted."""
    is_aider = text.startswith((AIDER, " at "))
    role = ""
    turn_lines = list[str]()
    is_code = False
    for line in text.split("\n")[is_aider:]:
        is_code ^= line.startswith("```")
        next_role = ""
        words = line
        if is_aider and not is_code and line.strip():
            next_role, words = _of_aider(line)
        elif not is_aider and not is_code:
            next_role, words = speaker_of(line)
        if next_role and (next_role != role or not is_aider):
            yield from _message(role, turn_lines, unread)
            role = next_role
            turn_lines = []
        turn_lines.append(words if next_role else line)
    yield from _message(role, turn_lines, unread)


def _message(role: str, lines: list[str], unread: Unread) -> Messages:
    # Exports put a line between turns.
    words = re.sub(r"\n-{3,}\s*\Z", "", "\n".join(lines)).strip()
    unread.add(BEFORE, not role and has_words(words))
    if role and words:
        yield {"role": role, "content": words}, "the text"


FORMAT = Format(
    "markdown", "Markdown with a heading for each speaker", ("md",), None, read, recognizes
)
