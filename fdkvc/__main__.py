"""``python -m fdkvc`` and ``fdkvc``: the command line."""

import io
import sys

from fdkvc.commands.main import main


def run() -> int:
    """Run the command line of this process, and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for a terminal without ±
    return main()


if __name__ == "__main__":
    sys.exit(run())
