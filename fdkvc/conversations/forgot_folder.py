"""What the sessions in a folder forgot, by project: which kinds of values are lost most."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from textwrap import fill

from fdkvc.conversations.forgot import Forgot, forgot
from fdkvc.conversations.forgot_report import KIND_PLURALS, KIND_WORDS, WIDTH, lost_kinds
from fdkvc.conversations.formats import read_sessions
from fdkvc.conversations.lexical import Encoder
from fdkvc.core.json_input import read_bytes
from fdkvc.core.limits import MAX_DIALOG_FILE_BYTES, MAX_SESSION_FILES
from fdkvc.core.parameters import check_most
from fdkvc.core.transcripts import different_names
from fdkvc.core.words import count, percent
from fdkvc.runs.grid import Grid

ENDINGS = ("*.jsonl", "*.json")
"""Patterns of the files that are read."""


@dataclass
class ProjectLosses:
    """What the sessions of a project forgot."""

    project: str
    sessions: int = 0
    compactions: int = 0
    """Those after which it is known what the model had."""
    needed: int = 0
    returned: int = 0
    """Values that had left and came back before use."""
    tokens_again: int = 0
    """Tokens of lines that had left and came back."""
    rules: int = 0
    """The user's rules that did not stand word for word in what stayed."""
    lost: Counter[str] = field(default_factory=Counter)
    """Values that had left, by the name of their kind."""

    def add(self, result: Forgot) -> None:
        """Add a compaction."""
        if result.recorded is None:
            return
        lost = result.lost()
        self.compactions += 1
        self.needed += len(result.needs)
        self.lost += lost_kinds(lost)
        self.returned += sum(need.giver >= 0 for need in lost)
        self.tokens_again += result.recorded.redone.tokens
        self.rules += sum(not rule.stands for rule in result.rules)


@dataclass(frozen=True)
class FolderLosses:
    """What the sessions of a folder forgot."""

    projects: tuple[ProjectLosses, ...]
    total: ProjectLosses
    """All projects together."""
    skipped: tuple[str, ...]
    """Sentences on files that cannot be read."""
    unrelated_files: int
    """Files that are no sessions."""


def losses_in(
    folder: Path,
    encoding: Encoder,
    on_file: Callable[[int, int, str], None],
) -> FolderLosses:
    """Read the sessions in a folder one after the other; return what they forgot by project.

    A project is the working folder that a session names, or else its own folder. Raises a
    ValueError if there are too many files, or none is a session.
    """
    files = sorted({*chain.from_iterable(map(folder.rglob, ENDINGS))})
    check_most(f"{folder} has", len(files), "files", MAX_SESSION_FILES)
    projects: dict[str, ProjectLosses] = {}
    total = ProjectLosses("all")
    skipped = []
    unrelated_files = 0
    for number, path in enumerate(files):
        on_file(number, len(files), path.name)
        try:
            sessions = read_sessions(read_bytes(str(path), MAX_DIALOG_FILE_BYTES), path.name)
            unrelated_files += not sessions
            for session in sessions:
                name = session.folder or path.parent.name
                losses = projects.setdefault(name, ProjectLosses(name))
                losses.sessions += 1
                total.sessions += 1
                if session.compactions:
                    # Without other ways, whose comparison takes most of the time.
                    for result in forgot(session.in_tokens(encoding), ()):
                        losses.add(result)
                        total.add(result)
        except ValueError as error:
            skipped.append(f"{path.name}: {error}")
    if not projects:
        tried = f"of {count(len(files), '.jsonl or .json file')} in {str(folder)!r}"
        reason = f": {skipped[0]}" if skipped else ""
        raise ValueError(
            f"{tried}, none is a session of a coding agent that can be read{reason}"
        )
    rows = sorted(projects.values(), key=lambda row: (-row.lost.total(), row.project))
    return FolderLosses(tuple(rows), total, tuple(skipped), unrelated_files)


def folder_text(losses: FolderLosses, words: bool) -> str:
    """Return what the command prints of a folder."""
    total = losses.total
    lost = total.lost.total()
    sessions = count(total.sessions, "session")
    sentences = [
        f"{count(total.compactions, 'compaction')} in {sessions}: {lost:,} of "
        f"{count(total.needed, 'value')} that later calls needed had left, {total.returned:,} of "
        "them came back word for word before use."
    ]
    if not total.compactions:
        sentences = [
            f"No compaction after which it is known what the model had, in {sessions}."
        ]
    if lost:
        (name, number), *_ = total.lost.most_common()
        sentences.append(
            f"Most often: {count(number, name, KIND_PLURALS[name])} ({percent(number / lost)} of "
            "what had left)."
        )
        kinds = "; ".join(KIND_WORDS[name] for name, _ in total.lost.most_common())
        sentences.append(f"To paste after /compact: “List word for word: {kinds}.”")
    lines = [fill(sentence, WIDTH) for sentence in sentences]
    parts = ["\n".join(lines), folder_grid(losses, words).within(WIDTH).text()]
    if losses.unrelated_files:
        parts.append(
            f"Not sessions of a coding agent: {count(losses.unrelated_files, 'file')}."
        )
    return "\n\n".join(parts)


def folder_grid(losses: FolderLosses, words: bool) -> Grid:
    """Return the table of projects; without `words`, they are numbered."""
    counted = ["sessions", "compactions", "had left", "back"]
    heads = ["project", *counted, *KIND_PLURALS.values(), "repeated", "rules"]
    rows = []
    for project, row in _named(losses, words):
        lost = f"{row.lost.total():,} of {row.needed:,}"
        kinds = [f"{row.lost[name]:,}" for name in KIND_PLURALS]
        cells = row.sessions, row.compactions, lost, row.returned, *kinds
        rows.append([project, *map(str, cells), f"{row.tokens_again:,}", str(row.rules)])
    return Grid(heads, rows)


def _named(losses: FolderLosses, words: bool) -> Iterator[tuple[str, ProjectLosses]]:
    """Yield the projects with their names, or with numbers without `words`."""
    names = different_names([Path(row.project).name for row in losses.projects])
    for number, row in enumerate(losses.projects):
        yield names[number] if words else f"project {number + 1}", row


def losses_by_project(losses: FolderLosses, words: bool) -> dict[str, Counter[str]]:
    """Return the values that had left by the name of their kind, of each project."""
    return {name: row.lost for name, row in _named(losses, words)}


def folder_json(losses: FolderLosses, words: bool) -> str:
    """Return the same as JSON."""
    rows = []
    for number, losses_of_project in enumerate(losses.projects, start=1):
        rows.append(
            {
                "project": losses_of_project.project if words else f"project {number}",
                "sessions": losses_of_project.sessions,
                "compactions": losses_of_project.compactions,
                "needed": losses_of_project.needed,
                "lost": dict(losses_of_project.lost),
                "came back": losses_of_project.returned,
                "tokens again": losses_of_project.tokens_again,
                "rules not word for word": losses_of_project.rules,
            }
        )
    skipped = list(losses.skipped) if words else []
    content = {"projects": rows, "not read": skipped, "no sessions": losses.unrelated_files}
    return json.dumps(content, indent=1, ensure_ascii=False)
