"""The command line, as a person calls it."""

import os
import subprocess
from pathlib import Path

from fdkvc.commands.main import main

ROOT = Path(__file__).parents[1]


def run(*arguments: str | int | Path) -> int:
    return main([str(argument) for argument in arguments])


def ended(
    *command: str | Path, folder: Path = ROOT, found_in: tuple[Path, ...] = (ROOT,)
) -> subprocess.CompletedProcess[str]:
    """Run a process to its end in a folder, where Python finds modules in these."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, found_in))}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
