"""What a run reads: a file of dialogs, and the SHA-256 of its content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fdkvc.conversations.formats import EXAMPLES, read_dialogs
from fdkvc.conversations.lexical import LexicalRecordings
from fdkvc.conversations.tools import with_tools
from fdkvc.core.json_input import read_bytes
from fdkvc.core.limits import MAX_DIALOG_FILE_BYTES
from fdkvc.core.parameters import SEED
from fdkvc.core.recordings import Recording
from fdkvc.core.transcripts import Transcript
from fdkvc.core.words import count
from fdkvc.explain.notes import not_read_notes
from fdkvc.runs.console import progress, warn_each

MAX_SKIPPED = 10
"""Most skipped dialogs that are listed with the reason."""

OTHER_FILE = (
    "the run read another file of dialogs: name it with --dialogs; if it began with its tools, "
    "add --tools"
)


@dataclass(frozen=True)
class Sources:
    """The files that options name; sentences on what is in them are warnings."""

    dialogs: str | None = None
    """A file of dialogs."""
    tools: bool = False
    """Whether a dialog begins with the tools that its file lists."""
    calls: bool = False
    """Whether tool calls are read as text."""
    seed: int = SEED.default
    """The seed of the lexical embedding."""
    model: str | None = None
    """A folder of a model."""

    def read_transcripts(self) -> tuple[Sequence[Transcript], str]:
        """Return the dialogs of the file, by default the examples, and its SHA-256.

        With tools, the SHA-256 is that of the content followed by "tools".
        """
        name = str(EXAMPLES / "dialogues.json") if self.dialogs is None else self.dialogs
        content = read_bytes(name, MAX_DIALOG_FILE_BYTES)
        with progress(f"Reading {Path(name).name}"):
            transcripts, skipped = read_dialogs(content, name, self.calls)
        notes = [skipped_text(skipped), *not_read_notes(transcripts)]
        if self.tools:
            transcripts, too_long = with_tools(transcripts)
            notes.append(skipped_text(too_long))
            unlisted = sum(not transcript.tools_in_text for transcript in transcripts)
            if unlisted:
                notes.append(
                    f"Read without tools, as their file lists none: {count(unlisted, 'dialog')}."
                )
            content += b"tools"  # the same file gives other dialogs
        warn_each(notes)
        return transcripts, hashlib.sha256(content).hexdigest()

    def read_recordings(self) -> tuple[Sequence[Recording], str]:
        """Return the recordings to replay, and the SHA-256 of their file."""
        transcripts, digest = self.read_transcripts()
        return LexicalRecordings(transcripts, self.seed), digest

    def named_in_run(self, name: str | None) -> Sources:
        """Return the sources with the file that a run names, unless an option names one.

        Raises a ValueError if the file is missing.
        """
        if self.dialogs is not None or name is None:
            return self
        if not os.path.isfile(name):  # also False for a name that no file can have
            raise ValueError(
                f"the run read the file {name!r}, which is missing here: name it with --dialogs"
            )
        return replace(self, dialogs=name)


def skipped_text(skipped: Sequence[str]) -> str:
    """Return the list of skipped dialogs with reasons, "" if there are none."""
    if not skipped:
        return ""
    remainder = (
        [f"and {len(skipped) - MAX_SKIPPED} more"] if len(skipped) > MAX_SKIPPED else []
    )
    return "\n  ".join(["Left out:", *skipped[:MAX_SKIPPED], *remainder])
