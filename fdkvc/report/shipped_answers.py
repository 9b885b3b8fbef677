"""Shipped results on what the bundled model's answers lose, as tables and as a report.

The files were written by ``python -m fdkvc answers``; see `fdkvc.lm`.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from io import StringIO

import pandas as pd

from fdkvc.experiments.answers import FULL
from fdkvc.experiments.proxies import AnswersTables
from fdkvc.files.record import Record
from fdkvc.kinds import read_run
from fdkvc.lm import MEASURED, MEASURED_ON
from fdkvc.report.document import answers_parts, dialogs_report, ran_on

TABLES = ("answers_summary.csv", "answers_paired.csv", "proxies.csv")
"""The shipped files, beside ``run.json``."""


@dataclass(frozen=True, eq=False)
class Shipped:
    """Results of a model: tables, and the run with the texts of its files."""

    tables: AnswersTables
    run: Record

    @property
    def budgets(self) -> tuple[int, ...]:
        """The measured budgets, in rising order."""
        return tuple(sorted(self.run.settings.budgets))


@lru_cache(maxsize=1)
def shipped() -> Shipped:
    """Return the shipped results of the bundled model, read once."""
    texts = {name: (MEASURED / name).read_text("utf-8") for name in (*TABLES, "run.json")}
    return opened(replace(read_run(texts["run.json"], "answers"), texts=texts))


def opened(run: Record) -> Shipped:
    """Return the results of a run of ``answers`` or ``live``, given with its tables.

    Raises a ValueError if a table is missing or was changed, or if damage is not against the full
    cache.
    """
    missing = [name for name in TABLES[:2] if name not in run.texts]
    if missing:
        raise ValueError(f"{missing[0]} of this run is missing: choose it together with run.json")
    if run.baseline != FULL:
        raise ValueError(f"its baseline is {run.baseline}, but damage is against {FULL}")
    tables = (
        pd.read_csv(StringIO(run.texts[name])) if name in run.texts else pd.DataFrame()
        for name in TABLES
    )
    return Shipped(AnswersTables(run.baseline, *tables), run)


def shipped_report() -> str:
    """Return the shipped results as a report."""
    results = shipped()
    run, model = results.run, str(results.run.about["model"]["name"])
    ran = ran_on(None, run.versions, run.processor)
    parts = answers_parts(run.settings, results.tables, model, run.texts, ran)
    return dialogs_report(parts, made=MEASURED_ON)
