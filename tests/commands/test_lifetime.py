"""Workers and the app's server end with their command however it ends, without a traceback."""

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TOLD = """
import os
import signal
import sys

# As a terminal would start it, also where these tests were started in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

from fdkvc import __main__ as program
from fdkvc.commands import main as command
from fdkvc.runs import workers

def parser(known=command.build_parser):
    os.write(1, b"begun\\n")
    return known()

class Worker(workers._Worker):
    def __init__(self):
        super().__init__()
        os.write(1, b"started\\n")

    def call(self, *what):
        result = super().call(*what)
        os.write(1, b"answered\\n")
        return result

command.build_parser, workers._Worker = parser, Worker
sys.exit(program.run())
"""
"""The command, which prints what its workers do."""

MINUTES_OF_WORK = shlex.split(
    "benchmark --scenarios shift --policies fd-kvc --baseline fd-kvc --dialogs 100000 --workers 2"
)

BEGUN = ["begun"]
FIRST_STARTED = [*BEGUN, "started"]
BOTH_STARTED = [*FIRST_STARTED, "started"]
AT_WORK = [*BOTH_STARTED, *4 * ["answered"]]

PATIENCE = 20.0
"""Seconds for a busy machine; a worker that is left to itself has minutes of work, or waits on."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("ending", "moment"),
    [
        (signal.SIGINT, AT_WORK),
        (signal.SIGKILL, AT_WORK),
        (signal.SIGTERM, BEGUN),
        (signal.SIGHUP, BEGUN),
        (signal.SIGINT, FIRST_STARTED),
        (signal.SIGINT, BOTH_STARTED),
        (signal.SIGTERM, AT_WORK),
        (signal.SIGHUP, AT_WORK),
        (signal.SIGKILL, FIRST_STARTED),
        (signal.SIGKILL, BOTH_STARTED),
    ],
    ids=lambda value: value.name if isinstance(value, signal.Signals) else f"after {len(value)}",
)
def test_workers_end_with_their_command(ending: signal.Signals, moment: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TOLD, *MINUTES_OF_WORK],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            awaited = Counter(moment)
            while awaited:
                awaited -= Counter([next(process.stdout).strip()])
            # To the whole group, as a terminal does; the kill is for the command alone.
            (os.kill if ending is signal.SIGKILL else os.killpg)(process.pid, ending)
            # Workers share the standard error of their command: it ends once all are gone.
            _, told = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()

    if ending is signal.SIGKILL:
        assert told == ""
        assert process.returncode == -ending
    else:
        assert told.startswith("fdkvc: interrupted; ")
        assert process.returncode == 128 + ending


@pytest.mark.long
def test_the_server_ends_with_the_command_that_started_it() -> None:
    """Not even SIGKILL leaves a server behind, as it would if it were another process."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, "-m", "fdkvc", "app", "--port", str(port)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert any(f"localhost:{port}" in line for line in process.stdout)
            socket.create_connection(("localhost", port)).close()
        finally:
            process.kill()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("localhost", port)).close()
