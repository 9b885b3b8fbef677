"""Uploaded and shipped files of dialogs, read within the page's limits."""

import hashlib
import zlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Self

from fdkvc.conversations.formats import EXAMPLES, is_agents_log, read_dialogs
from fdkvc.conversations.lexical import lexical_recording
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.limits import (
    MAX_JOINT_ENTRIES,
    MAX_MEASURED_CHARACTERS,
    MAX_MEASURED_DIALOGS,
    MAX_RECORDED_ENTRIES,
    MAX_SHOWN_CHARACTERS,
    MAX_SHOWN_TOKENS,
    MAX_UPLOAD_MEGABYTES,
)
from fdkvc.core.parameters import check_most
from fdkvc.core.recordings import Recording
from fdkvc.core.transcripts import SkippedError, Transcript
from fdkvc.engine.long import simulate_long
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Trace
from fdkvc.player.moments import Spoken, lettered
from fdkvc.policies import Policy
from fdkvc.policies.together import Together
from fdkvc.ui.lru import Shelf, cached

SHIPPED: Mapping[str, str] = {
    "dialogues": "Example: service dialogs",
    "chat": "Example: a chat with tools",
    "evening": "Example: an evening in San Jose",
    "birthday": "Example: a birthday party",
    "errands": "Example: errands, with the tools listed",
    "rental": "Example: an agent at a bike rental",
    "agent": "Example: a coding agent's session, compacted twice",
}
"""Labels of the examples by file name."""


@dataclass(frozen=True, eq=False)
class DialogFile:
    """A file of dialogs."""

    name: str
    """The name of the upload or of the example."""
    digest: str
    """The SHA-256 of its content."""
    transcripts: tuple[Transcript, ...]
    skipped: tuple[str, ...] = ()
    """A sentence for each dialog that is left out."""
    packed: bytes = b""
    """The compressed content, if it may be needed again: of a file with calls, to read them as
    text, and of a coding agent's log, to read its sessions."""
    is_log: bool = False
    """Whether it is a log of a coding agent."""

    @property
    def key(self) -> str:
        """Identifies the file and how it was read."""
        return self.digest + max(transcript.source_note for transcript in self.transcripts)

    def recording(self, dialog: int) -> Recording:
        """Return a dialog with lexical vectors."""
        return lexical_recording(self.transcripts[dialog])

    @cached_property
    def measured(self) -> int:
        """How many of its dialogs a run measures, counted from the first."""
        dialogs = self.transcripts[:MAX_MEASURED_DIALOGS]
        characters = accumulate(sum(map(len, dialog.texts)) for dialog in dialogs)
        return max(1, bisect_right([*characters], MAX_MEASURED_CHARACTERS))


def read_dialog_file(content: bytes, name: str) -> DialogFile:
    """Read an uploaded file. Raises a ValueError that says what is wrong, and where."""
    check_most("the file has", len(content), "bytes", MAX_UPLOAD_MEGABYTES * 1_000_000)
    digest = hashlib.sha256(content).hexdigest()
    is_log = is_agents_log(content, name)
    transcripts, skipped = _contexts(content, name) if is_log else read_dialogs(content, name)
    transcripts, too_long = _shown(transcripts)
    skipped = (*skipped, *too_long)
    if too_long and not (transcripts or is_log):
        raise ValueError(too_long[0])
    has_calls = any(transcript.calls for transcript in transcripts)
    # At the fastest level, since a person waits.
    packed = zlib.compress(content, 1) if has_calls or is_log else b""
    return DialogFile(name, digest, transcripts, skipped, packed, is_log)


def _shown(transcripts: Sequence[Transcript]) -> tuple[tuple[Transcript, ...], list[str]]:
    """Return the dialogs that a page shows, and a sentence for each that is too long."""
    readable = []
    too_long = []
    for transcript in transcripts:
        it_has = f"{transcript.name}: it has"
        try:
            check_most(it_has, sum(transcript.word_counts), "words", MAX_SHOWN_TOKENS)
            characters = sum(map(len, transcript.texts))
            check_most(it_has, characters, "characters", MAX_SHOWN_CHARACTERS)
            readable.append(transcript)
        except ValueError as error:
            too_long.append(f"{error} on a page; python -m fdkvc dialogs reads more")
    return tuple(readable), too_long


def _contexts(content: bytes, name: str) -> tuple[tuple[Transcript, ...], tuple[str, ...]]:
    """Return the contexts of a session as dialogs, none and the reason if all are too long.

    Such a session cannot be replayed, but what it forgot is shown.
    """
    try:
        return read_dialogs(content, name)
    except SkippedError as error:
        return (), (str(error),)


@cached
def with_calls(file: DialogFile) -> DialogFile:
    """Return a file with the text of calls. Raises a ValueError if all dialogs become too large."""
    read, skipped = read_dialogs(zlib.decompress(file.packed), file.name, calls=True)
    transcripts, too_long = _shown(read)
    if not transcripts:
        raise ValueError(too_long[0])
    return replace(file, transcripts=transcripts, skipped=(*skipped, *too_long))


UPLOADS: Shelf[DialogFile] = Shelf()
"""Uploaded files by name and digest; a session holds only the key."""


@lru_cache(maxsize=len(SHIPPED))
def shipped_file(key: str) -> DialogFile:
    """Return one of the examples."""
    (path,) = EXAMPLES.glob(f"{key}.json*")
    return read_dialog_file(path.read_bytes(), path.name)


@dataclass(frozen=True)
class HeadChoice(Spoken):
    """The first head of a dialog of a file; those that share its keys decide with it."""

    file: str
    """The file's key."""
    topics: tuple[str | None, ...]
    """The topic of each turn."""

    @classmethod
    def of(cls, file: DialogFile, recording: Recording, topic_names: tuple[str, ...]) -> Self:
        """Return the choice of a recording of the file, as `shown_recording` has it."""
        topics = tuple(turn.topic for turn in recording.transcript.turns)
        source = file.key + recording.source
        name = recording.transcript.name
        return cls(name, recording, source, topics, topic_names=topic_names)

    @property
    def alone(self) -> bool:
        """Whether the head decides by itself."""
        return len(self.recording.heads) == 1

    def run(self, policy: Policy, dialogs: DialogBatch, budget: int) -> Trace:
        """Run a policy over the head, or over the heads that decide together."""
        # What a trace records: in each turn, the entries held and the new ones. A long dialog is
        # simulated without some of it.
        entries = dialogs.turns * (min(budget, dialogs.keys.shape[1]) + dialogs.turn_tokens)
        if self.alone:
            run = simulate_long if entries > MAX_RECORDED_ENTRIES else simulate
            return run(policy, dialogs, budget)
        heads = len(self.recording.heads)
        subject = f"The {heads} heads that decide together have"
        check_most(subject, heads * entries, "entries over all turns", MAX_JOINT_ENTRIES)
        trace = simulate(Together(policy, heads), self.recording.dialogs, budget)
        return replace(trace, policy=policy).row(0)


@cached
def shown_recording(recording: Recording) -> tuple[Recording, tuple[str, ...]]:
    """Return a dialog with letters as topics, and the topic of each letter."""
    transcript = recording.transcript
    readable = lettered(recording, transcript)
    _ = readable.dialogs  # computed here, so that the cache counts them
    return readable, transcript.topics
