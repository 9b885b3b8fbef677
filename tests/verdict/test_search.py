"""The smallest sizes, found by bisection: against all sizes, and with few replays."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fdkvc.conversations.lexical import LexicalRecordings
from fdkvc.conversations.replay import Replay, replay_arguments
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.policies import policy_named
from fdkvc.verdict import search
from fdkvc.verdict.search import (
    dialog_lengths,
    find_sizes,
    halves_of,
    kept_shares,
    needed_values,
    next_place,
    sizes_of,
    smallest_enough,
)
from tests.examples import dialogs_of

DIALOGS = dialogs_of("dialogues", "chat", "evening")
RECORDINGS = LexicalRecordings(DIALOGS, 0, Encoding())
SIZES = sizes_of(float(np.mean(dialog_lengths(RECORDINGS))))
SETTINGS = Replay((policy_named("fifo"), policy_named("weighted-recency")), (1,))


def smallest_size(values: pd.DataFrame) -> int | None:
    return smallest_enough(kept_shares(values), 0.9)


def test_every_worker_starts_with_a_replay_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it has loaded what a search needs."""
    done: list[Any] = []

    def submit(run: Any, *arguments: Any) -> None:
        done.append(run(*arguments))

    monkeypatch.setattr(search, "cores", lambda: 2)
    monkeypatch.setattr(search, "shared_workers", lambda count: [submit] * count)
    search.start_workers(SETTINGS, RECORDINGS[:1])
    assert len(done) == 2
    policies = {row[2] for rows, _ in done for row in rows}
    assert policies == {policy.name for policy in SETTINGS.policies}

    monkeypatch.setattr(search, "cores", lambda: 1)  # where runs stay in this process
    search.start_workers(SETTINGS, RECORDINGS[:1])
    assert len(done) == 2


def test_sizes_are_at_most_a_twentieth_of_the_text_apart() -> None:
    sizes = sizes_of(10_000)
    assert sizes[0] == 100
    assert sizes[-1] == 8500
    assert np.diff(sizes).max() <= 500


def test_it_finds_what_a_run_at_all_sizes_finds() -> None:
    full = Replay(SETTINGS.policies, SIZES)
    _, arguments = find_sizes(SETTINGS, RECORDINGS, 0.9, workers=1)
    every = needed_values(replay_arguments(full, RECORDINGS, workers=1)[1])
    found = needed_values(arguments)
    for name in ("fifo", "weighted-recency"):
        expected = smallest_size(every[every.policy == name])
        assert smallest_size(found[found.policy == name]) == expected
        halves = halves_of(every)
        for half in (0, 1):
            chosen = [dialog for dialog in halves if halves[dialog] == half]
            mine, all_sizes = (
                rows[(rows.policy == name) & rows.dialog.isin(chosen)] for rows in (found, every)
            )
            assert smallest_size(mine) == smallest_size(all_sizes)
        tried = found[found.policy == name].budget.nunique()
        assert tried <= 3 * math.ceil(math.log2(len(SIZES) + 1))


def test_progress_says_how_many_sizes_are_left() -> None:
    steps: list[Any] = []
    find_sizes(SETTINGS, RECORDINGS, 0.9, workers=1, on_progress=steps.append)
    dialogs = f"{len(RECORDINGS)} conversations"
    assert steps[0].title == f"size 1 of about 7 for each of 2 ways to fit, in {dialogs}"
    for step in steps:
        size, _, total = (
            step.title.removeprefix("size ").partition(" for ")[0].partition(" of about ")
        )
        assert 1 <= int(size) <= int(total)
        assert step.finished_jobs / step.total == pytest.approx(
            int(size) / int(total), abs=1 / int(total)
        )


def test_halves_are_told_of_ways_that_may_be_chosen() -> None:
    letters = Replay((policy_named("h2o"),), (1,))
    _, arguments = find_sizes(letters, RECORDINGS, 0.9, workers=1)
    tried = arguments.budget.nunique()
    assert 1 < tried <= math.ceil(math.log2(len(SIZES) + 1))


@pytest.mark.parametrize("first", range(20))
@pytest.mark.parametrize("smallest", [0, 1, 9, 18, 19, 20])
def test_the_smallest_place_is_found_in_few_steps(smallest: int, first: int) -> None:
    recalls = {first: float(first >= smallest)}
    while (place := next_place(recalls, 20, 0.5)) is not None:
        assert place not in recalls
        recalls[place] = float(place >= smallest)
    assert recalls.get(smallest, 1) == 1
    assert recalls.get(smallest - 1, 0) == 0
    assert {smallest, smallest - 1} & recalls.keys()
    assert len(recalls) <= 6


def test_halves_keep_clusters_together() -> None:
    rows = pd.DataFrame({"dialog": [f"d{n}" for n in range(9)], "services": [*"aaabbcdee"]})
    halves = halves_of(rows)
    for _, dialogs in rows.groupby("services").dialog:
        assert len({halves[dialog] for dialog in dialogs}) == 1
    assert {*halves.values()} == {0, 1}
    four = pd.DataFrame({"dialog": [f"d{n}" for n in range(8)], "services": [*"abcdabcd"]})
    assert [*halves_of(four).values()] == [0, 0, 1, 1, 0, 0, 1, 1], "four clusters are enough"
    one = halves_of(rows.assign(services="a"))
    assert sorted(one.values()) == [0] * 5 + [1] * 4, "dialogs of one cluster count as clusters"


def test_lengths_are_tokens() -> None:
    assert dialog_lengths(RECORDINGS) == tuple(recording.starts[-1] for recording in RECORDINGS)
    tokens = Encoding().tokens
    for dialog, turns in zip(DIALOGS, RECORDINGS.sizes, strict=True):
        read = [0] * len(turns)
        read[0] = len(tokens.first)
        for passage in tokens.encode_dialog(dialog):
            read[passage.passage.turn] += len(passage.ids)
        assert [*turns] == read, "a replay has the tokens that the model reads"
