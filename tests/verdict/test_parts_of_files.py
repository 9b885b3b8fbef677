"""Files that lack a part, as anybody's may: no command and no page ends in a traceback."""

import json
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fdkvc.commands.main import main
from fdkvc.conversations.page.files import UPLOADS, read_dialog_file
from tests.app_pages import open_page, settled
from tests.conversations.test_format_cases import remove_parts
from tests.session_lines import ClaudeCode, joined

CALL = {"id": "1", "function": {"name": "book", "arguments": '{"city": "Trieste", "seats": "7"}'}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "You book tables, and you are kind."},
    {"role": "user", "content": "A table in Trieste for 7 please, by the window if there is one."},
    {"role": "assistant", "content": "I look for it.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "Booked: number 4411, at eight."},
    {"role": "assistant", "content": "It is booked."},
    {"role": "user", "content": "And cancel it again."},
    {"role": "assistant", "content": "", "tool_calls": [CALL | {"id": "2"}]},
]


def without(*parts: str) -> list[dict[str, Any]]:
    """Return the messages without some of their parts."""
    messages = MESSAGES
    if "calls" in parts:
        messages = [{**row, "tool_calls": None} for row in messages]
    if "results" in parts:
        messages = [row for row in messages if row["role"] != "tool"]
    if "system prompt" in parts:
        messages = messages[1:]
    if "users" in parts:
        messages = [row for row in messages if row["role"] != "user"]
    if "words" in parts:
        messages = [{**row, "content": ""} for row in messages]
    if "all but one" in parts:
        messages = messages[-1:]
    return [] if "all" in parts else messages


PARTS = ("calls", "results", "system prompt", "users", "words", "all but one", "all")
FILES = [(), ("calls", "results"), ("all",)]
ON_PAGES = [*((part,) for part in PARTS[1:]), ("calls", "results"), ("results", "users")]
EVERY = sorted(
    {parts for count in (1, 2, 5) for parts in combinations(PARTS[:-1], count)} - {*FILES}
)
"""Without a part, without two, and with one alone."""
COMMANDS = (
    ("dialogs", "--budgets", "16", "--policies", "fifo", "reread(messages(fifo))", "--tables"),
    ("dialogs", "--plan"),
    ("dialogs", "--plan", "--pin", "--policies", "sink", "reread(clear-results)", "--json"),
    ("answers", "--budgets", "16", "--policies", "fifo"),
)


@pytest.mark.parametrize(
    "parts", [*FILES, *(pytest.param(p, marks=pytest.mark.long) for p in EVERY)]
)
def test_no_command_ends_in_a_traceback(parts: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_text(json.dumps([{"messages": without(*parts)}]))
    for command, *options in COMMANDS:
        assert main([command, "--dialogs", str(file), "--workers", "1", *options]) in (0, 2)
    assert main(["forgot", str(file)]) in (0, 2)


@pytest.mark.parametrize(
    "parts",
    [("calls",), *(pytest.param(p, marks=pytest.mark.long) for p in ON_PAGES)],
)
def test_no_page_ends_in_a_traceback(parts: tuple[str, ...]) -> None:
    try:
        file = read_dialog_file(json.dumps([{"messages": without(*parts)}]).encode(), "file.json")
    except ValueError:
        return  # which the page says
    key = (file.name, file.digest)
    UPLOADS.put(key, file)
    for page in ("dialogs", "answers"):
        link = {"file": "own", "sha": file.digest[:16]}
        settled(open_page(page, {f"{page}/uploaded": key}, **link).run())


def log_without(random: Random) -> bytes:
    """Return a coding agent's session without some of its lines, and of their fields."""
    log = ClaudeCode()
    log.user("The port is 8443 and the ticket is OPS-4471.")
    log.call("Read", "1", path="/srv/gate.py")
    log.result("1", "PORT = 8443")
    log.boundary(preTokens=900, preservedMessages={"uuids": ["u3"]})
    log.summary("Summary: the gate was read.")
    log.call("close", "2", ticket="OPS-4471")
    log.result("2", "closed")
    log.call("Read", "3", path="/srv/gate.py")
    log.result("3", "PORT = 8443")
    rows = [row for row in log.rows if random.random() > 0.1]
    return joined([remove_parts(row, random, 0.05) for row in rows])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(24))
def test_forgot_ends_in_no_traceback(seed: int, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(log_without(Random(seed)))
    for options in ((), ("--json",), ("--ways", "fifo", "--at", "8")):
        assert main(["forgot", str(file), *options]) in (0, 2)
