"""A new kind of run is one file: its tables, ``run.json``, text and ``repeat`` follow."""

import json
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Unpack, cast

import pandas as pd
import pytest

from fdkvc.commands.kinds import KINDS
from fdkvc.commands.main import main
from fdkvc.conversations.sources import Sources
from fdkvc.core.parameters import SEED
from fdkvc.runs.base import Run
from fdkvc.runs.console import finish
from fdkvc.runs.grid import Grid
from fdkvc.runs.jobs import Execution
from fdkvc.runs.options import number
from fdkvc.runs.record import Record


@dataclass(frozen=True)
class Squares:
    """What to square."""

    seed: int = number(SEED, "number to square")

    def __post_init__(self) -> None:
        SEED.check(self.seed, "seed")


@dataclass(frozen=True, eq=False)
class SquaresRun(Run):
    """The square of a number."""

    kind = "squares"
    settings_type = Squares
    depends: ClassVar = {"power": int}

    settings: Squares
    power: int = 2
    seconds: float = 0.0

    @classmethod
    def again(cls, record: Record, sources: Sources, **how: Unpack[Execution]) -> Run:
        return cls(record.settings, record.dependencies["power"])

    @property
    def dependencies(self) -> dict[str, Any]:
        return {"power": self.power}

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        value = float(self.settings.seed**self.power)
        return {"squares.csv": pd.DataFrame({"value": [value]})}

    @property
    def text(self) -> str:
        return Grid(["value"], [[str(self.settings.seed**self.power)]]).text()


def test_a_kind_is_written_and_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(cast("dict[str, type[Run]]", KINDS), "squares", SquaresRun)

    finish(Namespace(out=str(tmp_path)), SquaresRun(Squares(3), power=3))

    assert capsys.readouterr().out.startswith("value\n27\n")
    assert {path.name for path in tmp_path.iterdir()} == {"squares.csv", "run.json"}
    assert main(["repeat", str(tmp_path / "run.json")]) == 0
    assert "the numbers are the same in squares.csv" in capsys.readouterr().out
    run = json.loads((tmp_path / "run.json").read_text("utf-8"))
    run["parameters"]["seed"] = -1
    (tmp_path / "run.json").write_text(json.dumps(run), "utf-8")
    assert main(["repeat", str(tmp_path / "run.json")]) == 2
    assert "invalid at parameters: seed is -1" in capsys.readouterr().err
