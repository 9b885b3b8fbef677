"""What a person loses today: one way at one size, over all values that calls need.

A value counts each time that a call needs it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Unpack

import numpy as np
import pandas as pd

from fdkvc.conversations.arguments import forgotten, worst_losses
from fdkvc.conversations.replay import Replay, replay_arguments, transcripts_of, turn_tokens
from fdkvc.core.limits import MAX_TOKENS
from fdkvc.core.parameters import Field, read_number
from fdkvc.core.recordings import Recording
from fdkvc.policies.ways import CLEARED, MESSAGES, USER_FIRST
from fdkvc.runs.jobs import Execution
from fdkvc.verdict.search import REFUSED, cases_at

REREAD = "tokens_reread"
"""The metric of tokens that are read again, where a policy reads any."""

STOPS = "full"
"""The policy of an engine that evicts nothing, and refuses what exceeds its context."""


@dataclass(frozen=True)
class Preset:
    """What an engine, a framework or a service does by itself."""

    label: str
    policy: str
    tokens: int
    """By default."""
    window: int = 0
    """The size after it has cleared what is beyond `tokens`, where that is another."""


PRESETS: Mapping[str, Preset] = {
    "ollama": Preset("dropping the oldest messages (Ollama)", MESSAGES, 4096),
    "llama.cpp-shift": Preset("shifting the context (llama.cpp)", "shift", 4096),
    "llama.cpp": Preset("stopping when it is full (llama.cpp without shift)", STOPS, 4096),
    # 4 sinks and the 2,000 newest, as its published script has them.
    "streaming-llm": Preset(
        "keeping the first and newest tokens (StreamingLLM)", "sink", 2004
    ),
    # The default trigger, and the usual context of its models.
    "anthropic": Preset("clearing old tool results (Anthropic)", CLEARED, 100_000, 200_000),
    "langchain": Preset("dropping up to a user's message (LangChain)", USER_FIRST, 4096),
}
"""What people may do today, by the name that links and the command line have."""

TODAY_WAY = Field(
    "by",
    "What your engine or framework does with a conversation that is too long.",
    name="today",
    default="ollama",
    choices={name: preset.label for name, preset in PRESETS.items()},
)

TODAY_TOKENS = Field(
    "Today I keep (tokens)",
    "The limit that you have set, such as Ollama's num_ctx or OLLAMA_CONTEXT_LENGTH: for all "
    "messages, answers among them.",
    name="limit",
    default=PRESETS["ollama"].tokens,
    low=1,
    high=MAX_TOKENS,
)


@dataclass(frozen=True)
class Today:
    """A way of `PRESETS` and its limit."""

    way: str
    tokens: int

    @classmethod
    def read(cls, text: str) -> "Today":
        """Return what a text such as ``ollama`` or ``ollama:8192`` says; ValueError otherwise.

        Examples
        --------
        >>> Today.read("ollama"), Today.read("llama.cpp:8192")
        (Today(way='ollama', tokens=4096), Today(way='llama.cpp', tokens=8192))
        """
        way, _, tokens = text.partition(":")
        TODAY_WAY.check(way, "today")
        limit = read_number(tokens, int) if tokens else PRESETS[way].tokens
        return cls(way, TODAY_TOKENS.check(limit, "today's limit"))

    def __str__(self) -> str:
        return f"{self.way}:{self.tokens}"

    @property
    def preset(self) -> Preset:
        """The way."""
        return PRESETS[self.way]

    @property
    def policy(self) -> str:
        """The policy that does this, as the card compares it."""
        return self.preset.policy


@dataclass(frozen=True)
class ValueCount:
    """How many values calls need, and how many were lost."""

    lost: int
    values: int
    lossy_dialogs: int
    """From which any was lost."""
    dialogs: int
    """In which calls need values."""

    @property
    def kept(self) -> float:
        """The share of values that were not lost; NaN without values."""
        return 1 - self.lost / self.values if self.values else math.nan

    @classmethod
    def of(cls, arguments: pd.DataFrame) -> "ValueCount":
        """Count the values of a table of one policy at one budget."""
        lost = arguments[arguments.held < 1]
        dialogs = lost.dialog.nunique(), arguments.dialog.nunique()
        return cls(len(lost), len(arguments), *dialogs)


@dataclass(frozen=True, eq=False)
class TodayLoss:
    """What is lost today."""

    today: Today
    count: ValueCount
    longer: int
    """How many conversations have more tokens than the limit."""
    dialogs: int
    longest: int
    """The tokens of the longest conversation: a limit that loses nothing."""
    worst: pd.DataFrame
    """The worst losses, as `worst_losses` has them."""
    reread: float = math.nan
    """Tokens that are read again in a dialog, on average; NaN for none."""
    without_tools: bool = False
    """Whether descriptions of called tools, which engines store, too, are not among the tokens."""
    without_calls: bool = False
    """Whether the text of calls, which engines store, too, counts as no place of a value."""
    token_rate: float = 0.0
    """Tokens for a character of the text."""
    missing: int = 0
    """How many values, needed too, are not in the text, and not counted."""
    refused: float = 0.0
    """The share of turns after which services would refuse what stays."""

    def is_enough(self, target: float) -> bool:
        """Whether the limit keeps this share of the values."""
        return not self.longer or self.count.kept >= target

    @property
    def larger_is_enough(self) -> bool:
        """Whether something is lost that a larger limit would keep, if today's way can have it."""
        window = self.today.preset.window
        return self.count.lost > 0 and (not window or self.longest <= window)


def lose_today(
    today: Today, recordings: Sequence[Recording], **execution: Unpack[Execution]
) -> TodayLoss:
    """Replay today's way at its limit over all conversations."""
    turn_ends = [[*accumulate(sizes)] for sizes in turn_tokens(recordings)]
    longest = max(ends[-1] for ends in turn_ends)
    name = today.policy
    size = min(today.tokens, longest)
    if today.preset.window:
        # The option stands within the bracket that ends the name, ``reread(…)``.
        name = f"{name[:-1]}:trigger={size})"
        size = min(max(size, today.preset.window), longest)
    settings = cases_at(Replay(), {name: size})
    table, arguments = replay_arguments(settings, recordings, **execution)
    means = table.groupby("metric").value.mean()
    if name == STOPS:
        names = [dialog.name for dialog in transcripts_of(recordings)]
        ends_by_name = dict(zip(names, turn_ends, strict=True))
        arguments = stopped_arguments(arguments, ends_by_name, today.tokens)
    arguments = arguments.assign(policy=today.policy)
    longer = sum(ends[-1] > today.tokens for ends in turn_ends)
    dialogs = transcripts_of(recordings)
    return TodayLoss(
        today,
        ValueCount.of(arguments),
        longer,
        len(turn_ends),
        longest,
        worst_losses(forgotten(arguments)),
        means.get(REREAD, math.nan),
        any(dialog.calls and not dialog.tools_in_text for dialog in dialogs),
        any(dialog.calls and not dialog.calls_in_text for dialog in dialogs),
        _token_rate(recordings[0]),
        sum(dialog.missing for dialog in dialogs),
        means.get(REFUSED, 0.0),
    )


def _token_rate(recording: Recording) -> float:
    """Return the tokens of the text for each of its characters, without marks of a template."""
    worded = [
        token for token in chain.from_iterable(recording.tokens) if token.end > token.start
    ]
    characters = sum(map(len, recording.transcript.texts))
    return len(worded) / max(characters, 1)


def stopped_arguments(
    arguments: pd.DataFrame, turn_ends: Mapping[str, Sequence[int]], limit: int
) -> pd.DataFrame:
    """Return what calls need, where a conversation stops before the turn that exceeds a limit."""
    rows = zip(arguments.dialog, arguments.turn, strict=True)
    stopped = np.array([turn_ends[dialog][turn] > limit for dialog, turn in rows], bool)
    held = np.where(stopped, 0.0, arguments.held)
    return arguments.assign(held=held, lost=np.where(stopped, arguments.turn, arguments.lost))
