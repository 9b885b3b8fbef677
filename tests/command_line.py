"""The command line, as a person calls it."""

from pathlib import Path

from fdkvc.commands.main import main


def run(*arguments: str | int | Path) -> int:
    return main([str(argument) for argument in arguments])
