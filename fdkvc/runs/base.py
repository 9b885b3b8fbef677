"""A run of any kind: its tables, files and words, and what its numbers depend on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import pandas as pd

from fdkvc.runs.export import csv_text
from fdkvc.runs.jobs import Execution
from fdkvc.runs.record import Record, run_json


class Run(ABC):
    """A run of a kind, which may have been cancelled."""

    kind: ClassVar[str]
    """Its name, as in ``run.json``."""
    settings_type: ClassVar[type]
    """The type of its settings."""
    depends: ClassVar[Mapping[str, Any]]
    """What the numbers depend on beside the settings: the type of each value by name."""

    if TYPE_CHECKING:  # abstract properties would not let a kind have them as fields

        @property
        def settings(self) -> Any:
            """What ran."""

        @property
        def seconds(self) -> float:
            """How long it took."""

    @classmethod
    @abstractmethod
    def again(cls, record: Record, sources: Any, **execution: Unpack[Execution]) -> Run:
        """Run a record again; a ValueError says what has changed since.

        `sources` are `fdkvc.conversations.sources.Sources`: where its files are now.
        """

    @property
    @abstractmethod
    def dependencies(self) -> dict[str, Any]:
        """The values of `depends` by name, possibly among others; None is not written."""

    @property
    @abstractmethod
    def tables(self) -> Mapping[str, pd.DataFrame]:
        """The tables by file name; repeating the run writes the same bytes."""

    @property
    def timed(self) -> Mapping[str, pd.DataFrame | str]:
        """Tables and texts with times, which differ from run to run, by file name."""
        return {}

    @property
    @abstractmethod
    def text(self) -> str:
        """The results for a terminal."""

    @property
    def files(self) -> dict[str, str]:
        """All files by name: the tables, and ``run.json``."""
        numbers = self.tables
        dependencies = self.dependencies
        depends = {name: dependencies.get(name) for name in self.depends}
        record = run_json(self.kind, self.settings, numbers, self.seconds, **depends)
        files = {}
        for name, content in {**numbers, **self.timed}.items():
            files[name] = content if isinstance(content, str) else csv_text(content)
        return {**files, "run.json": record}
