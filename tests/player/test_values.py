"""Which token says what became of a value, against a literal reading of the rule."""

import numpy as np
import pytest

from fdkvc.conversations.page.files import shipped_file
from fdkvc.player.moments import Spoken
from fdkvc.player.run import StageRun, build_run
from fdkvc.policies import read_policy


def run_of(name: str, policy: str, budget: int) -> StageRun:
    spoken = Spoken("dialog", shipped_file(name).recording(0))
    return build_run(spoken, read_policy(policy), budget)


def gone_after(run: StageRun, turn: int, token: int) -> int:
    """Return the turn that evicted a token for good, one beyond the turn while it is cached."""
    held = [past for past in range(turn + 1) if token in run.trace.kept_tokens[0, past]]
    return 1 + max(held, default=int(run.dialogs.born[0, token]) - 1)


def literal(run: StageRun, turn: int, token: int) -> int:
    """Return the token that says what became of a value in a turn."""
    assert run.dialog.recording is not None
    _, mentions = run.dialog.recording.value_of[token]
    begun = [tokens for tokens in mentions if run.dialogs.born[0, tokens[0]] <= turn]
    if not begun:
        return token if token in mentions[0] else mentions[0][0]
    answer, latest = token, -1
    # The token's own mention comes last, so that it wins where several broke in the same turn.
    for tokens in sorted(begun, key=lambda tokens: token in tokens):
        ends = [gone_after(run, turn, piece) for piece in tokens]
        if min(ends) >= latest:
            latest = min(ends)
            whole = latest > turn
            answer = token if whole and token in tokens else tokens[ends.index(latest)]
    return answer


@pytest.mark.parametrize(
    ("name", "policy", "budget"),
    [("errands", "fd-kvc", 48), ("errands", "sinks(fifo)", 24), ("chat", "h2o", 24)],
)
def test_every_piece_names_the_token_that_decides_in_every_turn(
    name: str, policy: str, budget: int
) -> None:
    run = run_of(name, policy, budget)
    assert run.dialog.recording is not None
    other = 0
    for turn in range(run.dialogs.turns):
        for token in run.dialog.recording.value_of:
            assert run.deciding_token(turn, token) == literal(run, turn, token), (turn, token)
            other += run.deciding_token(turn, token) != token
    assert other


def test_a_token_of_no_value_speaks_for_itself() -> None:
    run = run_of("errands", "fifo", 48)
    assert run.dialog.recording is not None
    others = {*range(int(run.dialogs.bounds[0, -1]))} - {*run.dialog.recording.value_of}
    assert {run.deciding_token(2, token) for token in others} == others
    assert np.isin([*run.deciding], [*run.dialog.recording.value_of]).all()
