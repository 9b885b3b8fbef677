"""``python -m fdkvc`` and ``fdkvc``: the command line."""

import io
import signal
import sys

from fdkvc.commands.main import handle_endings, main


def run() -> int:
    """Run the command line of this process, and return its exit code."""
    handle_endings()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for a terminal without ±
    code = main()
    handle_endings(signal.SIG_IGN)  # a late signal does not change the exit code
    return code


if __name__ == "__main__":
    sys.exit(run())
