"""Sweeps: hyperparameters of a policy, beside all other policies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack

import pandas as pd

from fdkvc.experiments.benchmark import Results, run_benchmark
from fdkvc.experiments.jobs import Execution
from fdkvc.experiments.sweep import Sweep
from fdkvc.files.record import Record
from fdkvc.grid import Grid
from fdkvc.kinds.base import Run
from fdkvc.kinds.benchmark import FINISHED, beside_published, finished, metric_header
from fdkvc.kinds.sources import Sources
from fdkvc.replication.tables import ablation_table, sweep_table
from fdkvc.words import count, decimal


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
    def again(cls, record: Record, sources: Sources, **how: Unpack[Execution]) -> Run:
        """Run the sweep again."""
        return cls.measure(record.settings, **how)

    @property
    def seconds(self) -> float:
        """The time that it took."""
        return self.results.seconds

    @property
    def about(self) -> dict[str, Any]:
        """What a cancelled run finished."""
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
        """All settings, and the values of one hyperparameter with published figures."""
        one = {"ablation.csv": self.swept} if len(self.settings.axes) == 1 else {}
        return {"sweep.csv": self.table, **one}

    @property
    def text(self) -> str:
        """All settings; of one hyperparameter, published figures first."""
        table, parts, benchmark = self.table, [], self.settings.alone
        if len(self.settings.axes) == 1:
            cells = beside_published(self.swept, ["value"], benchmark)
            rows = [[f"{value:g}", *texts] for (value,), texts in cells.items()]
            header = [self.settings.parameters[0], *metric_header(benchmark)]
            parts.append(
                f"{benchmark.scenarios[0].label}: means over the last turns of "
                f"{count(benchmark.dialogs, 'dialog')}, ± half of the 95 % interval\n\n"
                f"{Grid(header, rows).text()}"
            )
            table = table[~table.swept]
        figures = table[["mean", "ci_low", "ci_high"]].map(decimal)
        rows = table[["setting", "metric"]].join(figures).to_numpy().tolist()
        heads = ["setting", "metric", "mean", "from", "to"]
        return "\n\n\n".join([*parts, Grid(heads, rows, 2).text(grouped=True)])
