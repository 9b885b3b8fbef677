"""Runs for the screen, each computed once."""

from __future__ import annotations

from fdkvc.stage.run import Choice as Choice
from fdkvc.stage.run import DialogChoice as DialogChoice
from fdkvc.stage.run import Run as Run
from fdkvc.stage.run import RunChoice as RunChoice
from fdkvc.stage.run import build_run, continue_run
from fdkvc.synthetic.batch import DialogBatch
from fdkvc.ui.kit.lru import cached


@cached
def load_dialog(choice: Choice) -> DialogBatch:
    """Load the dialog, once for all policies that run on it."""
    return choice.load()


@cached
def load_run(choice: RunChoice) -> Run:
    """Run the policy, and lay out what the views show."""
    return build_run(choice, load_dialog(choice.dialog))


load_fork = cached(continue_run)
"""Continues a run with a change, once; raises a ValueError if that is not possible."""
