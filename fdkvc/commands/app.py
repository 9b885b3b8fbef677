"""``app``: the dashboard in a browser."""

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import fdkvc
from fdkvc.parameters import PORT


def app(options: Namespace) -> None:
    """Serve the app until it is interrupted."""
    package = Path(fdkvc.__file__).parent
    # An installed package has the app inside, a checkout beside it.
    script = next(each for each in (package / "app", package.parent) if (each / "app.py").is_file())
    command = [sys.executable, "-m", "streamlit", "run", str(script / "app.py")]
    if options.port is not None:
        command += ["--server.port", str(PORT.check(options.port, "port"))]
    try:
        code = subprocess.call(command)
    except KeyboardInterrupt:
        code = 0
    raise SystemExit(code)
