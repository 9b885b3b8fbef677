"""Run a command and turn its errors and signals into one sentence and an exit code."""

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Any

from fdkvc.commands.parser import RUNS, build_parser
from fdkvc.runs.console import flush, visible, warn, writing
from fdkvc.runs.endings import ENDINGS

ERROR = 2

FILES = {"claim": ".csv", "forgot": ".svg"}
"""The suffix of the file that ``--out`` names, for the commands that write one."""

MAX_MESSAGE_LENGTH = 1000
"""Characters of an error message; a longer one loses its middle."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, of the process by default, and return its exit code.

    It is 0; 2 after an error, with one sentence on stderr; 128 plus the signal number after a
    KeyboardInterrupt.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, it stays open as long as the process
    if sys.stdout is None:
        return _fail("the output cannot be written: standard output is closed")
    code = 0
    options = None
    try:
        with writing():  # newer versions of argparse ignore errors when they print the help
            options = build_parser().parse_args(arguments)
        if options:
            _run(options)
    except SystemExit as end:  # argparse after printing its help, or the app's server
        if options is not None and options.command != "app":
            return _fail(
                f"something other than this project ended the run (SystemExit: {end})"
            )
        code = end.code if isinstance(end.code, int) else 0
    except ValueError as error:
        return _fail(str(error))
    except OSError as error:
        from fdkvc.core.words import error_reason

        named = "" if error.filename is None else f" {error.filename!r}"
        return _fail(f"the operating system refused{named}: {error_reason(error)}")
    except (MemoryError, OverflowError):
        return _fail("not enough memory: choose a smaller budget")
    except KeyboardInterrupt as interrupt:
        number = interrupt.args[0] if interrupt.args else signal.SIGINT
        return _fail("interrupted; files are written whole or not at all", 128 + number)
    try:
        flush()
    except ValueError as error:
        return _fail(str(error))
    return code


def _run(options: Namespace) -> None:
    """Run a command, while no other run writes to its ``--out``.

    Its packages are imported only here, so that ``--help`` stays fast.
    """
    run = resolve_name(f"fdkvc.{RUNS[options.command]}")
    path = getattr(options, "out", None)
    if path is None:
        run(options)
        return
    from fdkvc.runs.finished import Finished
    from fdkvc.runs.write import check_out

    check_out(path, FILES.get(options.command, ""))
    with Finished(path) as options.finished:
        run(options)


def handle_endings(handler: Any = ENDINGS) -> None:
    """Set the handler of Ctrl-C, SIGTERM and SIGHUP, where they are not ignored."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def _fail(message: str, code: int = ERROR) -> int:
    plain = visible(" ".join(message.splitlines()))
    if len(plain) > MAX_MESSAGE_LENGTH:
        half = MAX_MESSAGE_LENGTH // 2
        plain = f"{plain[:half]} … {plain[-half:]}"
    warn(f"fdkvc: {plain}")
    return code
