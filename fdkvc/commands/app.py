"""``app``: the dashboard in a browser."""

import os
import runpy
import sys
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

import fdkvc
from fdkvc.core.parameters import PORT
from fdkvc.models.numpy.gguf_file import find_model
from fdkvc.models.numpy.language_model import OWN_MODELS


def app(options: Namespace) -> None:
    """Serve the app until it is interrupted, in this process: a signal ends the server, too."""
    package = Path(fdkvc.__file__).parent
    # An installed package has the app inside, a checkout beside it.
    scripts = (folder / "app.py" for folder in (package / "app", package.parent))
    script = next(script for script in scripts if script.is_file())
    models = options.model or ()
    for name in models:
        if not os.path.exists(find_model(name)):
            raise ValueError(f"the model {name!r} does not exist")
    if models:
        os.environ[OWN_MODELS] = "\n".join(models)
    port = (
        ()
        if options.port is None
        else ("--server.port", f"{PORT.check(options.port, 'port')}")
    )
    sys.argv[1:] = ["run", str(script), *port]
    with suppress(KeyboardInterrupt):
        runpy.run_module("streamlit", run_name="__main__", alter_sys=True)
