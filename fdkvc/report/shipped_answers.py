"""Shipped results on what the bundled model's answers lose, as tables and as a report.

The files were written by ``python -m fdkvc answers``; see `fdkvc.lm`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO

import pandas as pd

from fdkvc.experiments.answers import FULL
from fdkvc.experiments.known_services import BY_SERVICES, KNOWN_SERVICES
from fdkvc.experiments.proxies import AnswersTables
from fdkvc.files.record import Record, read_run
from fdkvc.lm import MEASURED, MEASURED_ON
from fdkvc.report.document import answers_parts, dialogs_report, ran_on

TABLES = (
    *("answers_summary.csv", "answers_paired.csv", "proxies.csv"),
    *("answers_services.csv", "answers_by_services.csv"),
)
"""The shipped files, beside ``run.json``."""


PINNED_TOOLS = MEASURED / "pinned_tools.csv"
"""What a trial model that reads its tools writes if they may be evicted, and if they are pinned."""


@dataclass(frozen=True, eq=False)
class Shipped:
    """Shipped results of the bundled model: files by name, tables, and the content of run.json."""

    files: Mapping[str, str]
    tables: AnswersTables
    run: Record

    @property
    def budgets(self) -> tuple[int, ...]:
        """The measured budgets, in rising order."""
        return tuple(sorted(self.run.settings.budgets))


@lru_cache(maxsize=1)
def shipped() -> Shipped:
    """Read the files, once."""
    files = {name: (MEASURED / name).read_text("utf-8") for name in (*TABLES, "run.json")}
    run = read_run(files["run.json"], "answers")
    tables = (pd.read_csv(StringIO(files[name])) for name in TABLES)
    return Shipped(files, AnswersTables(run.baseline, *tables), run)


@lru_cache(maxsize=1)
def pinned_tools() -> pd.DataFrame:
    """Read `PINNED_TOOLS`: columns of `fdkvc.experiments.answers.SUMMARY`."""
    return pd.read_csv(PINNED_TOOLS)


def opened(run: Record) -> Shipped:
    """Return the results of a run of ``answers`` or ``live``, given with its tables.

    Raises a ValueError if a table is missing or was changed, or if damage is not against the full
    cache.
    """
    missing = [name for name in TABLES[:3] if name not in run.texts]
    if missing:
        raise ValueError(f"{missing[0]} of this run is missing: choose it together with run.json")
    if run.baseline != FULL:
        raise ValueError(f"its baseline is {run.baseline}, but damage is against {FULL}")
    tables = (pd.read_csv(StringIO(run.texts[name])) for name in TABLES[:3])
    unknown = (pd.DataFrame(columns=list(names)) for names in (KNOWN_SERVICES, BY_SERVICES))
    return Shipped(run.texts, AnswersTables(run.baseline, *tables, *unknown), run)


def shipped_report() -> str:
    """Return the shipped results as a report."""
    known = shipped()
    ran = ran_on(None, known.run.versions, known.run.processor)
    return dialogs_report(
        answers_parts(
            known.run.settings,
            known.tables,
            str(known.run.about["model"]["name"]),
            known.files,
            ran,
        ),
        made=MEASURED_ON,
    )
