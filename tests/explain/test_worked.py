"""Decisions on dialogs worked by hand are told as `worked.expected` says.

After a change that is meant, write it again with ``python -m tests.explain.test_worked`` and read
what changed.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fdkvc.core.arrays import one_dialog
from fdkvc.core.dialogs import DialogBatch
from fdkvc.engine.simulate import simulate
from fdkvc.explain.decisions import explain, sentences
from fdkvc.explain.narrate import headline, narrate
from fdkvc.policies import read_policy
from tests.worlds import plain_dialog, pointing

EXPECTED = Path(__file__).with_name("worked.expected")
PAPERS = "fd-kvc gamma=0.5 alpha_0=0.4 mu=1.0 tau={} beta=1.0 w_c=0.5"


def three_turns() -> DialogBatch:
    """Make three turns of one token each; the cosine of tokens 0 and 2 with token 1 is 3/5."""
    return one_dialog(
        embeddings=[[1.0, 0.0], [0.6, 0.8], [2.0, 0.0]],
        queries=[[1.0]] * 3,
        keys=[[math.log(3)], [0.0], [0.0]],
        values=[[1.0], [5.0], [0.0]],
        turn_lengths=[1, 1, 1],
        turn_topics=["A", "B", "A"],
    )


EAST = [[1.0, 0.0], [0.9, 0.3], [0.8, 0.1]]
NORTH = [[0.0, 1.0], [0.2, 0.9], [0.1, 0.7]]
WEST = [[-1.0, 0.2], [-0.7, 0.0]]
"""Tokens that are more or less of one topic."""


def weighed(*turns: list[float]) -> DialogBatch:
    """Make a dialog whose tokens get attention in proportion to these weights."""
    keys = [math.log(weight) for turn in turns for weight in turn]
    return plain_dialog(turns, keys=keys)


DIALOGS = {
    "three turns": three_turns(),
    "three topics": pointing(EAST, NORTH, WEST, EAST, topics="ABCA"),
    "weights 3, 1 | 1": weighed([3.0, 1.0], [1.0]),
    "weights 2, 2, 1": weighed([2.0, 2.0, 1.0]),
    "three alike": plain_dialog([[1.0, 1.0, 1.0]]),
    "a token a turn": plain_dialog([[1.0], [2.0]]),
    "a turn without tokens": plain_dialog(
        [[1.0, 1.0], [1.0, 1.0], [], [1.0]], topics=["A", "B", None, "B"]
    ),
    "weights 2 | 1 of one topic": plain_dialog(
        [[1.0], [1.0]], keys=[math.log(2), 0.0], topics=["A", "A"]
    ),
    "new entries of less attention": plain_dialog([[2.0] * 2, [1.0] * 2, [1.0] * 3]),
}


class Worked(NamedTuple):
    """A run, and what is told of it: of entries as (turn, token), and of turns."""

    dialog: str
    policy: str
    budget: int
    entries: tuple[tuple[int, int], ...] = ()
    turns: tuple[int, ...] = ()


RUNS = (
    # Scores 33/40, 21/44 and 15/22 of 5/22 + 1/4 against 2/11 + 1/2; what token 0 has of either
    # term, 1/2 and 13/40, would have sufficed with the other's of token 2.
    Worked("three turns", PAPERS.format(0.5), 2, ((2, 1), (2, 0), (2, 2)), (2,)),
    # Token 1 has 5/22 + 1/4, and the threshold is 3/5 of the best score, 33/40.
    Worked("three turns", PAPERS.format(0.6), 2, ((2, 1),), (2,)),
    # Several entries of several topics.
    Worked("three topics", "fd-kvc", 5, (), (0, 2, 3)),
    Worked("three topics", "h2o", 5, (), (3,)),
    # Membership, queries counted, sinks that need no protection, attention as it was.
    *(
        Worked("three topics", name, 5, (), turns)
        for name, turns in (
            ("fastgen recovery=1.0", (3,)),
            ("h2o-mean", (3,)),
            ("sink sinks=3", (0, 2)),
            ("fd-kvc beta=0.0", (3,)),
        )
    ),
    # 9/20 against 27/20: protection leaves one place for both, or none.
    Worked("weights 3, 1 | 1", "h2o", 2, ((1, 1), (1, 2))),
    Worked("weights 3, 1 | 1", "h2o window=1.0", 2, ((1, 0),)),
    # Of equals the older stay.
    Worked("three alike", "fd-kvc", 2, ((0, 0), (0, 1), (0, 2))),
    Worked("weights 2, 2, 1", "h2o window=0.0", 2, ((0, 0),)),
    # One of anything is told in the singular.
    Worked("a token a turn", "fifo", 1, ((0, 0), (1, 0))),
    Worked("a token a turn", "h2o window=1.0", 1, ((1, 0),)),
    Worked("weights 2 | 1 of one topic", "h2o window=0.0", 1, (), (1,)),
    # Evicted earlier, not yet there, in a turn without tokens, and with room for all.
    Worked("a turn without tokens", "fifo", 2, ((3, 0), (1, 4), (2, 3), (0, 1)), (2, 3)),
    # Room for all, and all new entries lost.
    Worked("new entries of less attention", "h2o window=0.0", 2, (), (0, 1, 2)),
)


def written(run: Worked) -> str:
    """Return all that is told of a run."""
    return "\n".join([f"{run.dialog}: {run.policy}, budget {run.budget}", *told(run)])


def told(run: Worked) -> Iterator[str]:
    dialogs = DIALOGS[run.dialog]
    trace = simulate(read_policy(run.policy), dialogs, run.budget)
    for turn, token in run.entries:
        yield f"  turn {turn}, token {token}"
        yield from (f"    {words}" for words in sentences(explain(trace, dialogs, 0, turn, token)))
    for turn in run.turns:
        yield f"  {headline(trace, dialogs, 0, turn)}"
        for story in narrate(trace, dialogs, 0, turn):
            yield f"    {story.step.name}: {story.sentence}"
            yield from (f"      {' '.join(pair)}" for pair in (*story.inputs, *story.outputs))


@pytest.mark.parametrize("number", range(len(RUNS)))
def test_a_decision_worked_by_hand_is_told(number: int) -> None:
    expected = EXPECTED.read_text("utf-8").rstrip("\n").split("\n\n")
    assert len(expected) == len(RUNS)
    assert written(RUNS[number]) == expected[number]


if __name__ == "__main__":
    EXPECTED.write_text("\n\n".join(map(written, RUNS)) + "\n", "utf-8")
