"""Sweeps: hyperparameters of a policy, beside all other policies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack

import pandas as pd

from fdkvc.core.words import count
from fdkvc.paper.benchmark import Results, run_benchmark
from fdkvc.paper.replication.judge import facts
from fdkvc.paper.replication.tables import ablation_table, sweep_table
from fdkvc.paper.results import FINISHED, facts_text, finished
from fdkvc.paper.sweep import Sweep
from fdkvc.runs.base import Run
from fdkvc.runs.jobs import Execution
from fdkvc.runs.record import Record


@dataclass(frozen=True, eq=False)
class SweepRun(Run):
    """A sweep of one or two hyperparameters."""

    kind = "sweep"
    settings_type = Sweep
    depends: ClassVar = FINISHED

    settings: Sweep
    results: Results

    @classmethod
    def measure(
        cls, sweep: Sweep, *, chunk: int | None = None, **how: Unpack[Execution]
    ) -> SweepRun:
        """Run a sweep; `chunk` as for `run_benchmark`."""
        return cls(sweep, run_benchmark(sweep.benchmark, chunk=chunk, **how))

    @classmethod
    def again(cls, record: Record, sources: Any, **how: Unpack[Execution]) -> Run:
        return cls.measure(record.settings, **how)

    @property
    def seconds(self) -> float:
        return self.results.seconds

    @property
    def about(self) -> dict[str, Any]:
        return {"finished": finished(self.results)}

    @property
    def table(self) -> pd.DataFrame:
        """Every setting with its metrics."""
        return sweep_table(self.settings, self.results)

    @property
    def swept(self) -> pd.DataFrame:
        """The values of its one hyperparameter, with published figures."""
        alone = replace(self.results, benchmark=self.settings.alone)
        return ablation_table(alone, self.settings.parameters[0])

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        one = {"ablation.csv": self.swept} if len(self.settings.axes) == 1 else {}
        return {"sweep.csv": self.table, **one}

    @property
    def text(self) -> str:
        dialogs = count(self.settings.dialogs, "dialog")
        title = f"{self.settings.scenario.label}, last turns of {dialogs}, means"
        return facts_text(title, facts(self.results, self.settings.parameters[0]), ["policy"])
