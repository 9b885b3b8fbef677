"""Settings from the options of a command and back, derived from dataclass fields.

A field that is a number, a text, a policy or a scenario, or a tuple of these, is the option of the
same name, and so is a flag that is off by default. `settings_from` reads options, and `options_of`
returns those that give the settings.
"""

import argparse
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from fdkvc.core.parameters import Field, parse_number
from fdkvc.policies import Policy, read_policy
from fdkvc.synthetic.scenarios import Scenario, scenario_named

Settings = TypeVar("Settings")

RUN_POLICIES = (
    "policies to run, or variants such as fd-kvc:gamma=0.8; default: the paper's four"
)
RUN_METRICS = "metrics to compute; attention_loss is slower"
HELD = "most entries in the cache after a turn"
"""Help texts of options that several settings have."""

WORDS: Mapping[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    **dict.fromkeys((int, float, str, bool), (lambda word: word, lambda word: word)),
    Policy: (read_policy, lambda policy: policy.name),
    Scenario: (scenario_named, lambda scenario: scenario.key),
}
"""How to read and write one word of an option, by the type of its field."""


def option(help: str, metavar: str = "KEY", **default: Any) -> Any:
    """Declare a field of settings that is also an option of the command.

    `default` is as for `dataclasses.field`.
    """
    return dataclasses.field(metadata={"help": help, "metavar": metavar}, **default)


def number(field: Field, description: str, default: int | None = None) -> Any:
    """Declare a field of settings that is a whole number, checked by `field`."""
    chosen = field.default if default is None else default
    return option(f"{description}, {field.allowed(int)}", "N", default=chosen)


def _options(kind: type) -> Iterator[tuple[dataclasses.Field[Any], type, bool]]:
    """Yield the fields that are options, the type of a word, and whether it is a tuple."""
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        is_list = get_origin(hint) is tuple
        # The type of one word: X of ``X | None`` and of ``tuple[X, ...]``.
        value_types = [part for part in get_args(hint) if part not in (NoneType, Ellipsis)]
        word = value_types[0] if len(value_types) == 1 else hint
        # A flag can only switch on, so one that is on by default is no option.
        if word in WORDS and (word is not bool or field.default is False):
            yield field, word, is_list


def add_options(parser: argparse.ArgumentParser, kind: type) -> None:
    """Add the options of settings whose fields have a help text."""
    for field, word, is_list in _options(kind):
        if "help" not in field.metadata:
            continue
        default: Any = field.default
        looks: dict[str, Any] = {"help": field.metadata["help"]}
        if word is bool:
            looks["action"] = "store_true"
        else:
            looks["metavar"] = field.metadata["metavar"]
            looks["type"] = parse_number if word is int else str
            if is_list:  # the help text itself names the defaults, except numbers
                looks["nargs"] = "+"
                default = " ".join(map(str, default)) if word is int else None
            elif default is not None:
                looks["default"] = default = WORDS[word][1](default)
            looks["help"] += "" if default is None else f"; default: {default}"
        parser.add_argument(f"--{field.name.replace('_', '-')}", **looks)


def settings_from(
    kind: type[Settings], options: argparse.Namespace, **chosen: Any
) -> Settings:
    """Return settings from options.

    `kind` is a dataclass, `chosen` are other fields; None or a missing option leaves the default. A
    ValueError says what is wrong and what is allowed.
    """
    values = {}
    for field, word, is_list in _options(kind):
        value = getattr(options, field.name, None)
        if value is not None and field.name not in chosen:
            read = WORDS[word][0]
            values[field.name] = tuple(map(read, value)) if is_list else read(value)
    return kind(**values, **chosen)


def options_of(settings: Any) -> dict[str, Any]:
    """Return the options of settings: all whole numbers, and what differs from its default.

    Examples
    --------
    >>> from fdkvc.paper.benchmark import Benchmark
    >>> options_of(Benchmark(dialogs=3, metrics=("retention",)))
    {'dialogs': 3, 'seed': 0, 'budget': 56, 'metrics': ['retention']}
    """
    options: dict[str, Any] = {}
    for field, word, is_list in _options(type(settings)):
        value = getattr(settings, field.name)
        write = WORDS[word][1]
        # Whole numbers are always written: a file then means the same when a default changes.
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if value != default or type(value) is int:
            options[field.name] = [*map(write, value)] if is_list else write(value)
    return options
