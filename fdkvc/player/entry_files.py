"""The files and the text of a trace: what happens to every entry of one dialog."""

from collections.abc import Iterable, Sequence

from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.limits import MAX_ENTRY_ROWS
from fdkvc.core.words import short
from fdkvc.engine.trace import Trace
from fdkvc.explain.tables import entries_table, turns_table
from fdkvc.policies import Policy
from fdkvc.runs.export import csv_text
from fdkvc.runs.grid import Grid
from fdkvc.synthetic.scenarios import Scenario, World

MAX_LINE = 100
"""Characters of a line of a trace."""


def trace_files(
    trace: Trace, dialogs: DialogBatch, optional: Iterable[str] = (), words: Sequence[str] = ()
) -> dict[str, str]:
    """Return the files of a trace by name; see `turns_table` and `entries_table`."""
    return {
        "entries.csv": csv_text(entries_table(trace, dialogs, words=words)),
        "turns.csv": csv_text(turns_table(trace, dialogs, metrics=optional)),
    }


def trace_text(trace: Trace, dialogs: DialogBatch, requested: Iterable[str] = ()) -> str:
    """Return the turns of a trace; the last row states are left out where lines get too long."""
    table = turns_table(trace, dialogs, metrics=requested).rename(columns={"latency_ms": "ms"})
    frame = table.dropna(axis="columns", how="all")
    states = [name for name in frame if name in trace.state]
    while True:
        rows = [[short(value) for value in row.values()] for row in frame.to_dict("records")]
        text = Grid([*map(str, frame)], rows, 0).text()
        if text.index("\n") <= MAX_LINE or not states:
            return text
        frame = frame.drop(columns=states.pop())


def check_entries(policy: Policy, scenario: Scenario, budget: int) -> None:
    """Raise a ValueError if a dialog's table of entries could be too long."""
    new, turns = World().tokens_per_turn, len(scenario.schedule)
    held = policy.capacity(budget, turns * new) + policy.tier_places(budget, turns * new)
    entries = sum(min(turn * new, held + new) for turn in range(1, turns + 1))
    if entries > MAX_ENTRY_ROWS:
        raise ValueError(
            f"the trace has up to {entries:,} entries, but at most {MAX_ENTRY_ROWS:,} are written: "
            "choose a shorter schedule or a smaller budget"
        )
