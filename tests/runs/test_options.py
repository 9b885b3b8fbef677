"""A field of the settings is the option, the record and the command line of its name at once."""

import argparse
import dataclasses
import json
import shlex
from typing import Any

import pytest

from fdkvc.commands.parser import build_parser
from fdkvc.conversations.replay import Replay
from fdkvc.core.words import command_line
from fdkvc.models.answers import Answers
from fdkvc.paper.benchmark import Benchmark
from fdkvc.paper.sweep import Sweep
from fdkvc.policies import policy_named, read_policy
from fdkvc.runs.options import add_options, option, options_of, settings_from
from fdkvc.runs.record import parse_run, run_json
from fdkvc.synthetic.scenarios import SCENARIOS, Scenario

POLICIES = (policy_named("fd-kvc", gamma=0.8), read_policy("pyramid(fifo, last=1.5)"))
SEVERAL = (SCENARIOS["shift"], SCENARIOS["mixed"])


@dataclasses.dataclass(frozen=True)
class Wider(Benchmark):
    """A benchmark with options that no command knows yet."""

    depth: int = option("how deep", "N", default=3)
    share: float = 0.5
    beside: tuple[Scenario, ...] = ()
    how: str | None = None


def test_a_field_that_is_added_is_seen_everywhere() -> None:
    kinds: Any = {"wider": (Wider, {})}
    parser = argparse.ArgumentParser()
    add_options(parser, Wider)
    assert "how deep; default: 3" in parser.format_help()
    given = parser.parse_args(["--dialogs", "2", "--depth", "4"])
    given.share, given.beside = 0.25, ["shift"]  # fields without a help text are no options

    settings = settings_from(Wider, given)

    expected = Wider(dialogs=2, depth=4, share=0.25, beside=(SCENARIOS["shift"],))
    assert settings == expected
    text = run_json("wider", settings, {})
    assert json.loads(text)["parameters"]["depth"] == 4
    assert parse_run(text, kinds).settings == expected
    assert command_line("wider", options_of(settings)) == (
        "python -m fdkvc wider --dialogs 2 --seed 0 --budget 56 --depth 4 --share 0.25 "
        "--beside shift --out results"
    )
    wrong = json.loads(text)
    wrong["parameters"]["depth"] = "deep"
    with pytest.raises(ValueError, match=r"at parameters\.depth"):
        parse_run(json.dumps(wrong), kinds)


@pytest.mark.parametrize(
    ("command", "settings", "fixed"),
    [
        ("benchmark --all", Benchmark(SEVERAL, POLICIES, 7, 3, 40, metrics=("memory",)), {}),
        ("benchmark", Benchmark(), {}),
        (
            "sweep --parameter gamma",
            Sweep(scenario=SCENARIOS["shift"], dialogs=3, metrics=("memory", "retention")),
            {"values": Sweep().values},
        ),
        ("dialogs", Replay(POLICIES, (32, 40), ("attention_loss",)), {}),
        ("answers", Answers(POLICIES, (40,), decides="layer", every=3, write_calls=True), {}),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_the_command_line_asks_for_the_same_settings(
    command: str, settings: Any, fixed: dict[str, Any]
) -> None:
    name, *more = command.split()
    line = command_line(name, options_of(settings))
    read = build_parser().parse_args([*shlex.split(line)[3:], *more])
    assert settings_from(type(settings), read, **fixed) == settings
