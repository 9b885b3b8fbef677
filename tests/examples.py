"""The shipped dialogs, which many tests read: each file once in a process."""

from functools import cache

from fdkvc.conversations.formats import EXAMPLES, read_file
from fdkvc.core.transcripts import Transcript

NAMES = sorted(path.stem for path in EXAMPLES.glob("*.json"))


def dialogs_of(*names: str) -> list[Transcript]:
    """Return the dialogs of these shipped files, or of all."""
    dialogs: list[Transcript] = []
    for name in names or NAMES:
        dialogs += _read(name)
    return dialogs


@cache
def _read(name: str) -> tuple[Transcript, ...]:
    return tuple(read_file(EXAMPLES / f"{name}.json"))
