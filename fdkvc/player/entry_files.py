"""The files and the text of a trace: what happens to every entry of one dialog."""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

import fdkvc
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.limits import MAX_ENTRY_ROWS
from fdkvc.core.words import listed, short
from fdkvc.engine.metrics import METRICS, default_metrics
from fdkvc.engine.trace import Trace
from fdkvc.explain.tables import turns_table
from fdkvc.player.run import StageRun
from fdkvc.policies import Policy
from fdkvc.runs.export import csv_text, stem_of, with_readme
from fdkvc.runs.grid import Grid
from fdkvc.runs.write import Files
from fdkvc.synthetic.scenarios import Scenario, World

MAX_LINE = 100
"""Most characters of a line of a trace."""


def trace_files(runs: Mapping[str, StageRun]) -> Files:
    """Return the files of named runs over one dialog, with a README.

    See `turns_table` and `entries_table`; long runs have no entries. Every row names its policy,
    dialog, budget and version.
    """
    files = {}
    meanings = {}
    settings = {}
    if not any(run.long for run in runs.values()):
        files["entries.csv"] = _rows(runs, [run.entries for run in runs.values()])
    files["turns.csv"] = _rows(runs, [run.turns for run in runs.values()])
    for name, run in runs.items():
        settings[name] = _settings(run.policy)
        for state in run.trace.state:
            meanings[state] = "state of the policy after the turn"
        for key in (*default_metrics(), *run.optional):
            meanings[key] = METRICS[key].help
    first = next(iter(runs.values()))
    title = f"{listed([*runs])} on {first.dialog.title}, budget {first.budget}"
    return with_readme(title, files, meanings, settings)


def _settings(policy: Policy) -> str:
    fields = policy.settings.values()
    return ", ".join(f"{field.name} = {field.default}" for field in fields) or "none"


def _rows(runs: Mapping[str, StageRun], tables: Sequence[pd.DataFrame]) -> str:
    """Return the tables of several runs as one, in which every row names its run."""
    parts = []
    for (policy, run), table in zip(runs.items(), tables, strict=True):
        part = table.copy()
        part.insert(0, "policy", policy)
        part.insert(1, "dialog", run.dialog.title)
        part.insert(2, "budget", run.budget)
        part.insert(3, "version", fdkvc.__version__)
        parts.append(part)
    return csv_text(pd.concat(parts, ignore_index=True))


def file_stem(runs: Mapping[str, StageRun]) -> str:
    """Return how the files of runs begin: dialog, budget and policies.

    Examples
    --------
    >>> from fdkvc.player.run import build_run, DialogChoice
    >>> from fdkvc.policies import read_policy
    >>> from fdkvc.synthetic.scenarios import SCENARIOS, World
    >>> dialog = DialogChoice(SCENARIOS["shift"], 7, World())
    >>> file_stem({"fd-kvc gamma=0.6": build_run(dialog, read_policy("fd-kvc:gamma=0.6"), 40)})
    'Topic-Shift-seed-7-budget-40-fd-kvc-gamma=0.6'
    """
    run = next(iter(runs.values()))
    return stem_of(" ".join([run.dialog.title, "budget", f"{run.budget}", *runs]))


def trace_text(trace: Trace, dialogs: DialogBatch, requested: Iterable[str] = ()) -> str:
    """Return the turns of a trace; while lines are too long, the last row state is left out."""
    table = turns_table(trace, dialogs, metrics=requested).rename(columns={"latency_ms": "ms"})
    frame = table.dropna(axis="columns", how="all")
    states = [name for name in frame if name in trace.state]
    while True:
        records = frame.itertuples(index=False, name=None)
        rows = [[*map(short, record)] for record in records]
        text = Grid([*map(str, frame)], rows, 0).text()
        if text.index("\n") <= MAX_LINE or not states:
            return text
        frame = frame.drop(columns=states.pop())


def check_entries(policy: Policy, scenario: Scenario, budget: int) -> None:
    """Raise a ValueError if a dialog's table of entries could be too long."""
    new = World().tokens_per_turn
    turns = len(scenario.schedule)
    tokens = turns * new
    slots = policy.capacity(budget, tokens)
    # A turn has what was held and what is new, and no more than has been read.
    read_by_turn = range(new, tokens + 1, new)
    entries = sum(min(read, slots + new) for read in read_by_turn)
    if entries > MAX_ENTRY_ROWS:
        raise ValueError(
            f"the trace has up to {entries:,} entries, but at most {MAX_ENTRY_ROWS:,} are written: "
            "choose a shorter schedule or a smaller budget"
        )
