"""The files and the text of a trace: what happens to every entry of one dialog."""

from collections.abc import Iterable, Mapping

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
    files, also = {}, dict[str, str]()
    if not any(run.long for run in runs.values()):
        files["entries.csv"] = _rows(runs, {name: run.entries for name, run in runs.items()})
    files["turns.csv"] = _rows(runs, {name: run.turns for name, run in runs.items()})
    for run in runs.values():
        also |= dict.fromkeys(run.trace.state, "state of the policy after the turn")
        also |= {key: METRICS[key].help for key in (*default_metrics(), *run.optional)}
    first = next(iter(runs.values()))
    title = f"{listed([*runs])} on {first.dialog.title}, budget {first.budget}"
    settings = {name: _settings(run.trace.policy) for name, run in runs.items()}
    return with_readme(title, files, also, settings)


def _settings(policy: Policy) -> str:
    fields = policy.settings.values()
    return ", ".join(f"{field.name} = {field.default}" for field in fields) or "none"


def _rows(runs: Mapping[str, StageRun], tables: Mapping[str, pd.DataFrame]) -> str:
    """Return the tables of several runs as one, in which every row names its run."""
    parts = []
    for policy, run in runs.items():
        about = {"policy": policy, "dialog": run.dialog.title, "budget": run.budget}
        about["version"] = fdkvc.__version__
        origin = pd.DataFrame(about, index=tables[policy].index)
        parts.append(pd.concat([origin, tables[policy]], axis="columns"))
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
        rows = [[short(value) for value in row.values()] for row in frame.to_dict("records")]
        text = Grid([*map(str, frame)], rows, 0).text()
        if text.index("\n") <= MAX_LINE or not states:
            return text
        frame = frame.drop(columns=states.pop())


def check_entries(policy: Policy, scenario: Scenario, budget: int) -> None:
    """Raise a ValueError if a dialog's table of entries could be too long."""
    new, turns = World().tokens_per_turn, len(scenario.schedule)
    held = policy.capacity(budget, turns * new) + policy.tier_places(budget, turns * new)
    # A turn has what was held and what is new, and no more than has been read.
    entries = sum(min(turn * new, held + new) for turn in range(1, turns + 1))
    if entries > MAX_ENTRY_ROWS:
        raise ValueError(
            f"the trace has up to {entries:,} entries, but at most {MAX_ENTRY_ROWS:,} are written: "
            "choose a shorter schedule or a smaller budget"
        )
