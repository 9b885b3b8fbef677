"""Plain text: a speaker, a colon and the words of a turn; also exports of WhatsApp.

A line without a speaker continues the turn. So does a line such as ``Address: 12 High St``:
speakers are the first two names of a dialog, names that begin at least two lines of the file, and
those of a user or an assistant. Where another is the assistant, ``System`` at first is the prompt.
A line of three or more ``-`` or ``=`` ends a dialog.

Where the first line begins with a date and a time, so does each message, and its speaker may have
any name.
"""

import re
from collections import Counter
from dataclasses import replace

from fdkvc.conversations.formats.base import Dialogs, Format, read_each
from fdkvc.core.limits import MAX_DIALOG_FILE_LINES
from fdkvc.core.parameters import check_most
from fdkvc.core.transcripts import (
    ASSISTANTS,
    USERS,
    Transcript,
    Turn,
    clean,
    clean_name,
    role_of,
)
from fdkvc.core.unread import Unread

_MARKS = r"\u064b-\u065f\u0900-\u0eff"  # vowels of Arabic, and of scripts from Hindi to Thai
_SPEAKER = re.compile(
    rf"\s{{0,8}}([^\W\d_][\w .'{_MARKS}-]{{0,31}}(?:\([^():]{{1,32}}\))?)(?::(?:\s+|$)|：\s*)"
)
_STAMPED = re.compile(  # a date and a time, and who speaks if it is no notice
    r"[\u200e\ufeff]?\[?\d{1,4}[./-]\d{1,2}[./-]\d{1,4},?\s\d{1,2}[:.]\d\d(?:[:.]\d\d)?"
    r"(?:\s?[AaPp]\.?\s?[Mm]\.?)?(?:\]|\s-)?\s(?:([^:]{1,64}):(?:\s+|$))?"
)
Turns = list[tuple[str, list[str]]]
"""The turns of a dialog: each speaker with lines."""

NAMED = USERS | ASSISTANTS
"""Roles whose names begin a turn even where they begin one line only."""

PROMPTER = "system"
"""The role of a prompt's line, where another is the assistant's."""

_END = re.compile(r"\s*(-{3,}|={3,})\s*")


def read_plain_text(text: str, number: int = 0, calls: bool = False) -> Dialogs:
    r"""Read plain text; yield an error in place of each dialog that is too large.

    It has no calls. For other errors see `fdkvc.conversations.formats.read_transcripts`.

    Examples
    --------
    >>> one, other = read_plain_text("A: hi\nyou\nB: yes\n---\nA: again")
    >>> one.texts, other.texts
    (('hi\nyou', 'yes'), ('again',))
    """
    lines = text.split("\n")
    check_most("the file has", len(lines), "lines", MAX_DIALOG_FILE_LINES)
    line_counts = Counter(
        clean_name(match[1]) for match in map(_SPEAKER.match, lines) if match
    )
    unread = Unread()
    pattern = _STAMPED if _STAMPED.match(text) else _SPEAKER
    dialogs = []
    turns = Turns()
    speakers: set[str] = set()
    # The added line ends the last dialog.
    for line_number, line in enumerate([*lines, "---"], start=1):
        if _END.fullmatch(line):
            if turns:
                dialogs.append(turns)
                turns = Turns()
                speakers = set()
            continue
        named = pattern.match(line)
        if named and not named[1]:
            unread.add("line with a time and no speaker")
            continue
        speaker = clean_name(named[1]) if named else ""
        # A name that begins one line only may be a label in a turn, such as an address.
        is_speaker = line_counts[speaker] > 1 or role_of(speaker) in NAMED
        if named and (pattern is _STAMPED or is_speaker or len(speakers) < 2):
            speakers.add(speaker)
            turns.append((speaker, [line[named.end() :]]))
        elif turns:
            turns[-1][1].append(line)
        elif line.strip():
            raise ValueError(
                f"line {line_number} has no speaker: begin it with a name and a colon, as in "
                "'User: hello'"
            )
    yield from read_each(_dialog, dialogs, "dialog", number, calls, unread)


def _dialog(turns: Turns, number: int, calls: bool) -> Dialogs:
    spoken = [Turn(speaker, clean("\n".join(lines).strip())) for speaker, lines in turns]
    first, *others = (role_of(speaker) for speaker, _ in turns)
    if first == PROMPTER and PROMPTER not in others and not ASSISTANTS.isdisjoint(others):
        spoken[0] = replace(spoken[0], kind="system")
    yield Transcript(f"dialog {number}", tuple(spoken))


FORMAT = Format(
    "plain", "text with a speaker before each turn", ("txt",), None, read_plain_text
)
