"""Runs side by side, held against sets and sums made another way."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from fdkvc.engine.metrics import metrics_of
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Trace
from fdkvc.explain.tables import (
    difference_table,
    entries_table,
    figures_table,
    first_difference,
    overlap_table,
    turns_table,
)
from fdkvc.policies import policy_named
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.worlds import adaptation_in

DIALOG = generate(SCENARIOS["mixed"], 1, 7)
NAMES = ("fifo", "sink", "h2o", "fd-kvc")
TRACES = {name: simulate(policy_named(name), DIALOG, 56) for name in NAMES}
ENTRIES = {name: entries_table(trace, DIALOG) for name, trace in TRACES.items()}
PAIRS = list(combinations(NAMES, 2))

every_pair = pytest.mark.parametrize(("one", "other"), PAIRS)


def kept(trace: Trace, turn: int) -> set[int]:
    return set(trace.kept_tokens[0, turn].tolist()) - {-1}


# ------------------------------------------------------------------------------- overlap


@every_pair
def test_the_overlap_is_that_of_the_sets_of_kept_tokens(one: str, other: str) -> None:
    table = overlap_table(ENTRIES[one], ENTRIES[other])

    assert list(table) == ["turn", "shared", "only_one", "only_other", "jaccard"]
    assert table["turn"].tolist() == list(range(12))
    assert first_difference(table) == table.turn[table.jaccard < 1].min()
    for turn, row in zip(range(12), table.itertuples(), strict=True):
        first, second = kept(TRACES[one], turn), kept(TRACES[other], turn)
        assert row.shared == len(first & second)
        assert (row.only_one, row.only_other) == (len(first - second), len(second - first))
        assert row.jaccard == pytest.approx(len(first & second) / len(first | second))


def test_a_run_overlaps_wholly_with_itself() -> None:
    table = overlap_table(ENTRIES["h2o"], ENTRIES["h2o"])

    assert (table["jaccard"] == 1).all()
    assert first_difference(table) is None
    assert difference_table(ENTRIES["h2o"], ENTRIES["h2o"]).empty


def test_two_empty_caches_overlap_wholly() -> None:
    evicted = pd.DataFrame({"turn": [0, 1], "token": [0, 0], "status": "evicted"})

    assert overlap_table(evicted, evicted)["jaccard"].tolist() == [1.0, 1.0]


# ------------------------------------------------------------------------------- difference


@every_pair
def test_the_difference_lists_what_only_one_keeps(one: str, other: str) -> None:
    table = difference_table(ENTRIES[one], ENTRIES[other])

    columns = "turn token topic born keeper score_one rank_one score_other rank_other evicted"
    assert list(table) == columns.split()
    for turn in range(12):
        rows = table[table["turn"] == turn]
        assert rows["token"].is_monotonic_increasing
        first, second = kept(TRACES[one], turn), kept(TRACES[other], turn)
        assert set(rows.loc[rows["keeper"] == "one", "token"]) == first - second
        assert set(rows.loc[rows["keeper"] == "other", "token"]) == second - first


@every_pair
def test_scores_and_ranks_are_those_of_the_turn_and_of_the_eviction(one: str, other: str) -> None:
    table = difference_table(ENTRIES[one], ENTRIES[other])
    rows = {
        side: ENTRIES[name].set_index(["turn", "token"])
        for side, name in (("one", one), ("other", other))
    }

    for row in table.sample(40, random_state=1).to_dict(orient="records"):
        loser = "other" if row["keeper"] == "one" else "one"
        stays = rows[row["keeper"]].loc[(row["turn"], row["token"])]
        went = rows[loser].loc[(row["evicted"], row["token"])]
        assert stays["status"] in ("kept", "new")
        assert went["rule"] == "budget"
        assert row["evicted"] <= row["turn"]
        for name in ("score", "rank"):
            assert row[f"{name}_{row['keeper']}"] == stays[name]
            assert row[f"{name}_{loser}"] == went[name]


# ------------------------------------------------------------------------------- figures


def test_the_figures_are_those_of_the_metrics() -> None:
    asked = metrics_of()
    optional = metrics_of(optional=True)
    turns = {n: turns_table(t, DIALOG, metrics=optional) for n, t in TRACES.items()}
    table = figures_table(turns, DIALOG, optional)

    figures = ["policy", "adaptation", "never", "evictions", "latency_ms"]
    assert list(table) == [*figures, *(f"late_{key}" for key in asked)]
    for row in table.to_dict(orient="records"):
        trace = TRACES[row["policy"]]
        for key, metric in asked.items():
            assert row[f"late_{key}"] == pytest.approx(float(metric.late(trace, DIALOG)[0]))
        adapted = adaptation_in(trace, DIALOG)
        assert (row["adaptation"], row["never"]) == (adapted.turns[0], adapted.never[0])
        assert row["evictions"] == trace.evicted["budget"].sum() == 12 * 32 - 56
        assert row["latency_ms"] == pytest.approx(1e3 * np.median(trace.seconds))


# ------------------------------------------------------------------------------- corners


def test_an_entry_that_went_twice_went_last_before_this_turn() -> None:
    """With a second tier an entry may come back, and go again."""

    def entries(*rows: tuple[int, str, str | None, float]) -> pd.DataFrame:
        columns = ["turn", "status", "rule", "score"]
        frame = pd.DataFrame(rows, columns=columns)
        return frame.assign(token=7, topic="A", born=0, rank=1)

    keeper = entries(*((turn, "kept", None, 9.0) for turn in range(6)))
    loser = entries(
        (0, "kept", None, 9.0),
        (1, "evicted", "budget", 1.0),
        (3, "kept", None, 9.0),
        (4, "evicted", "budget", 4.0),
    )

    table = difference_table(keeper, loser).set_index("turn")

    assert table["evicted"].to_dict() == {1: 1, 2: 1, 4: 4, 5: 4}
    assert table["score_other"].to_dict() == {1: 1.0, 2: 1.0, 4: 4.0, 5: 4.0}
