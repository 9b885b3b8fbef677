"""Scenarios: the topic of each turn, and the distribution of its tokens."""

import string
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import Floats, Ints
from fdkvc.core.extensions import by_key
from fdkvc.core.limits import MAX_SCRIPTED_TURNS
from fdkvc.core.parameters import Checked, Parameter, check_most, check_parameter, parameter


@dataclass(frozen=True)
class World(Checked):
    """The distribution of a dialog's tokens; defaults are the paper's (Section 4.1)."""

    tokens_per_turn: int = parameter(
        32, "Tokens per turn", "Tokens in every turn of the dialog.", low=1, high=4096
    )
    dimension: int = parameter(
        64, "Embedding dimension", "Length of a token embedding.", symbol="d", low=2, high=4096
    )
    head_dimension: int = parameter(
        16, "Head dimension", "Length of a query, key or value.", low=1, high=1024
    )
    noise: float = parameter(
        0.05,
        "Noise",
        "Standard deviation of each coordinate around the topic.",
        low=0,
        high=10,
    )
    topic_strength: float = parameter(
        0.8, "Topic strength", "Length of the topic part of an embedding.", low=0, high=10
    )


_SHARE = Parameter("share", "", low=0, high=1)


@dataclass(frozen=True)
class Scenario:
    """The topic of each turn.

    Raises a ValueError if the schedule has characters other than A to Z, or the blend does not
    match it.
    """

    key: str
    """Its name in files and links."""
    label: str
    """Its name on screen."""
    schedule: str
    """One capital letter per turn: its current topic."""
    blend: tuple[float, ...] | None = None
    """For two topics: the share of the second in each turn's tokens."""

    def __post_init__(self) -> None:
        check_most("the schedule has", len(self.schedule), "turns", MAX_SCRIPTED_TURNS)
        if not self.schedule or not set(self.schedule) <= set(string.ascii_uppercase):
            raise ValueError(
                f"the schedule is {self.schedule!r}, but must be letters A to Z, one for each turn"
            )
        if self.blend is not None:
            if len(self.topic_names) != 2:
                raise ValueError(
                    f"a blend needs two topics, but the schedule is {self.schedule!r}"
                )
            if len(self.blend) != len(self.schedule):
                raise ValueError(
                    f"the blend has {len(self.blend)} shares for {len(self.schedule)} turns"
                )
            for share in self.blend:
                check_parameter("a share of the blend", _SHARE, share, float)

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The letters of the schedule in alphabetical order."""
        return tuple(sorted(set(self.schedule)))

    @property
    def current(self) -> Ints:
        """The current topic of each turn (T,), as an index into `topic_names`."""
        names = self.topic_names
        return np.array([*map(names.index, self.schedule)], np.intp)

    @property
    def mixture(self) -> Floats:
        """The share of each topic in the tokens of each turn (T, K)."""
        if self.blend is None:
            # One-hot: row k of the identity is a turn with topic k alone.
            return np.eye(len(self.topic_names), dtype=np.float32)[self.current]
        second = np.array(self.blend, np.float32)
        return np.stack([1 - second, second], axis=1)


def custom_scenario(schedule: str) -> Scenario:
    """Make a scenario from a schedule such as ``AAABBBCC``, ignoring case and spaces.

    Examples
    --------
    >>> custom_scenario("aab ba").schedule
    'AABBA'
    """
    return Scenario("own", "Custom schedule", "".join(schedule.upper().split()))


def _gradual() -> Scenario:
    """Blend from A to B over turns 2 to 8 of 12; the topic is B from a share of one half."""
    blend = tuple(min(max((turn - 2) / 6, 0.0), 1.0) for turn in range(12))
    letters = "".join("B" if share >= 0.5 else "A" for share in blend)
    return Scenario("gradual", "Gradual Evolution", letters, blend)


SCENARIOS: Mapping[str, Scenario] = by_key(
    Scenario("shift", "Topic Shift", "AAA" + "B" * 7),
    Scenario("return", "Topic Return", "AAABBBBAAA"),
    Scenario("mixed", "Mixed 3-Topic", "AABBBCCAABBB"),
    Scenario("complex", "5-Topic Complex", "AABBCCDDEEBBAACCAACC"),
    _gradual(),
    Scenario("adaptation", "Adaptation", "AAA" + "B" * 16),
)
"""The five benchmark scenarios (Section 4.1) and the adaptation run (Table 2).

The paper gives the order of topics; where it does not give the lengths (Mixed, 5-Topic Complex),
these are the lengths whose results match its tables.
"""

BENCHMARK_SCENARIOS = ("shift", "return", "mixed", "complex", "gradual")


def scenario_named(name: str) -> Scenario:
    """Return the scenario with this key, or raise a ValueError."""
    if name not in SCENARIOS:
        raise ValueError(f"scenario {name!r} is unknown: choose from {', '.join(SCENARIOS)}")
    return SCENARIOS[name]
