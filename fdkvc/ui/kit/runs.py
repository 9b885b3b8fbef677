"""Runs for the screen, each computed once."""

from fdkvc.dialogs import DialogBatch
from fdkvc.policies import Policy
from fdkvc.stage.run import ChosenDialog, Run, build_run, continue_run
from fdkvc.ui.kit.lru import cached


@cached
def _load_dialog(choice: ChosenDialog) -> DialogBatch:
    return choice.load()


@cached
def load_run(dialog: ChosenDialog, policy: Policy, budget: int, more: tuple[str, ...]) -> Run:
    """Run the policy over the dialog, which is loaded once for all policies."""
    return build_run(dialog, policy, budget, more, _load_dialog(dialog))


load_fork = cached(continue_run)
"""Continues a run with a change, once; raises a ValueError if that is not possible."""
