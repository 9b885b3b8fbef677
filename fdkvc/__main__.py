"""``python -m fdkvc``: the command line."""

import io
import sys

from fdkvc.commands.main import main

if __name__ == "__main__":
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for a terminal without ±
    sys.exit(main())
