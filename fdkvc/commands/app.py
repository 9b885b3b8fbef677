"""``app``: the dashboard in a browser."""

import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import fdkvc
from fdkvc.corpora.gguf_file import find_model
from fdkvc.lm.language_model import OWN_MODELS
from fdkvc.parameters import PORT


def app(options: Namespace) -> None:
    """Serve the app until it is interrupted."""
    package = Path(fdkvc.__file__).parent
    # An installed package has the app inside, a checkout beside it.
    scripts = (folder / "app.py" for folder in (package / "app", package.parent))
    script = next(script for script in scripts if script.is_file())
    command = [sys.executable, "-m", "streamlit", "run", str(script)]
    if options.port is not None:
        command += ["--server.port", str(PORT.check(options.port, "port"))]
    models = options.model or ()
    for name in models:
        if not os.path.exists(find_model(name)):
            raise ValueError(f"the model {name!r} does not exist")
    environment = os.environ | ({OWN_MODELS: "\n".join(models)} if models else {})
    try:
        code = subprocess.call(command, env=environment)
    except KeyboardInterrupt:
        code = 0
    raise SystemExit(code)
