"""``forgot``: what a session of a coding agent forgot at its compactions, and what that cost."""

from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter

from fdkvc.conversations.forgot import Forgot, forgot
from fdkvc.conversations.forgot_folder import (
    folder_json,
    folder_text,
    losses_by_project,
    losses_in,
)
from fdkvc.conversations.forgot_report import as_json, as_text, lost_kinds, none_sentence
from fdkvc.conversations.formats import EXAMPLES, read_sessions
from fdkvc.conversations.lexical import Encoder
from fdkvc.conversations.price import LIST_PRICES, Prices
from fdkvc.core.json_input import read_bytes
from fdkvc.core.limits import MAX_DIALOG_FILE_BYTES
from fdkvc.core.parameters import check_count
from fdkvc.core.words import count
from fdkvc.policies import read_policy
from fdkvc.runs.console import flush, progress, warn
from fdkvc.runs.jobs import Progress


def forgot_command(options: Namespace, encoding: Encoder) -> None:
    """Print what each compaction of a session forgot, in the tokens of a model."""
    ways = None if options.ways is None else [*map(read_policy, options.ways)]
    prices = LIST_PRICES if options.prices is None else Prices.of(options.prices)
    if options.at is not None:
        check_count("--at", options.at)
    name = str(EXAMPLES / "agent.jsonl") if options.file is None else options.file
    if name and Path(name).is_dir():
        _folder_command(options, Path(name), encoding)
        return
    with progress(f"Reading {Path(name).name}"):
        sessions = read_sessions(read_bytes(name, MAX_DIALOG_FILE_BYTES), name)
        sessions = tuple(session.in_tokens(encoding) for session in sessions)
    if not sessions:
        raise ValueError(
            f"{name!r} is not a session of a supported coding agent (Claude Code, Codex, pi, "
            "Copilot CLI, Gemini CLI, opencode): python -m fdkvc dialogs replays "
            "other conversations"
        )
    compacted = [session for session in sessions if session.compactions]
    if options.at is not None and not compacted:
        # The first conversation is the agent's own; others are its subagents'.
        compacted = [sessions[0].imagined(options.at)]
    results: list[Forgot] = []
    with progress("Comparing ways to fit") as show:
        for session in compacted:
            on_compaction = _reporter(show, f"compactions of {session.name}")
            results += forgot(session, ways, on_compaction, size=options.at or 0)
    for session in sessions:
        for note in session.notes:
            warn(f"{session.name}: {note}")
    # What the file has besides is counted with its first conversation.
    if unread := ", ".join(f"{kind} ({times:,}×)" for kind, times in sessions[0].unread):
        warn(f"Not read: {unread}.")
    words = not options.without_words
    if options.json:
        text = as_json(sessions, results, words, prices)
    else:
        text = as_text(results, words, prices) if results else none_sentence(sessions[0])
        if results and (rest_count := len(sessions) - len(compacted)):
            text += (
                "\nWithout a compaction, and not compared: "
                f"{count(rest_count, 'conversation')}."
            )
    flush(text + "\n")
    if options.out is not None:
        lost = {}
        for row in results:
            place = f"{row.session.name}, compaction {row.number + 1}"
            lost[place] = lost_kinds(row.lost())
        _draw(options.out, lost)


def _folder_command(options: Namespace, folder: Path, encoding: Encoder) -> None:
    """Print what the sessions in a folder forgot, by project."""
    with progress(f"Reading the sessions in {folder.name}") as show:
        losses = losses_in(folder, encoding, _reporter(show))
    for sentence in losses.skipped:
        warn(f"Not read: {sentence}")
    words = not options.without_words
    flush((folder_json if options.json else folder_text)(losses, words) + "\n")
    if options.out is not None:
        _draw(options.out, losses_by_project(losses, words))


def _reporter(show: Callable[[Progress], None], title: str = "") -> Callable[..., None]:
    """Return a function that shows how much of something is done, and what if it is told."""
    began = perf_counter()

    def report(number: int, total: int, name: str = title) -> None:
        show(Progress(number, total, name, perf_counter() - began))

    return report


def _draw(path: str, losses: Mapping[str, Mapping[str, int]]) -> None:
    """Write a chart of losses; Altair is loaded only for one."""
    from fdkvc.conversations.losses_chart import write_picture

    write_picture(Path(path), losses)
