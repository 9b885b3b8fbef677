"""FIFO, worked by hand."""

from worlds import evictions, kept_tokens, plain_dialog

from fdkvc.policies import policy_named
from fdkvc.simulate import simulate


def test_the_newest_stay() -> None:
    dialog = plain_dialog([[1, 1], [1, 1], [1, 1, 1, 1]])
    trace = simulate(policy_named("fifo"), dialog, budget=3)
    entries = trace.every_entry()

    assert [kept_tokens(trace, 0, turn) for turn in range(3)] == [[0, 1], [1, 2, 3], [5, 6, 7]]
    assert evictions(entries, 0, 1) == {0: "budget"}
    assert evictions(entries, 0, 2) == dict.fromkeys([1, 2, 3, 4], "budget")
    # The score is the place in the dialog.
    assert entries.terms["position"][0, 1].tolist()[1:5] == [0, 1, 2, 3]
    assert not entries.protected.any()
