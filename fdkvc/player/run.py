"""A policy's run over one dialog: what was chosen, and the tables for its views."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from uuid import uuid4

import numpy as np
import pandas as pd

from fdkvc.charts.timeline import Line
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.limits import MAX_RECORDED_ENTRIES
from fdkvc.core.parameters import fields_of
from fdkvc.core.recordings import Recording
from fdkvc.engine.long import BlockResults
from fdkvc.engine.metrics import default_metrics, metric_named
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Trace
from fdkvc.explain.tables import entries_table, turns_table
from fdkvc.policies import Policy
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS, Scenario, World


class ChosenDialog(ABC):
    """The choice of a dialog; equal choices are the same dialog."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What the dialog is called."""

    recording: Recording | None = None
    """The recording of a real dialog; None for a synthetic one."""
    topic_names: tuple[str, ...] = ()
    """The names of topics on the stage; empty where their letters are enough."""
    pinned: tuple[int, ...] = ()
    """Tokens that are never evicted."""

    @property
    def words(self) -> tuple[str, ...]:
        """The text of each token; empty in synthetic dialogs."""
        return self.recording.words if self.recording else ()

    @property
    def alone(self) -> bool:
        """Whether the policy decides alone, without `pinned` tokens, so a rerun can differ."""
        return not self.pinned

    @abstractmethod
    def load(self) -> DialogBatch:
        """Return the dialog as a batch of one row."""

    def run(self, policy: Policy, dialogs: DialogBatch, budget: int) -> Trace:
        """Run a policy over the dialog that was loaded."""
        pinned = np.array([self.pinned]) if self.pinned else None
        return simulate(policy, dialogs, budget, pinned=pinned)


@dataclass(frozen=True)
class DialogChoice(ChosenDialog):
    """Which synthetic dialog: number 0 of this seed, scenario and world."""

    scenario: Scenario
    seed: int
    world: World

    @property
    def title(self) -> str:
        """The scenario and the seed, with a custom schedule and changed numbers of the world."""
        schedule = f" {self.scenario.schedule}" if self.scenario.key not in SCENARIOS else ""
        title = f"{self.scenario.label}{schedule}, seed {self.seed}"
        for setting in fields_of(World):
            value = getattr(self.world, setting.name)
            if value != setting.default:
                title += f", {setting.label.lower()} {value}"
        return title

    def load(self) -> DialogBatch:
        """Generate the dialog."""
        return generate(self.scenario, 1, self.seed, self.world)


@dataclass(frozen=True, eq=False)
class StageRun:
    """A policy's run over one dialog, as tables."""

    dialog: ChosenDialog
    """Which dialog."""
    budget: int
    """The chosen budget."""
    optional: tuple[str, ...]
    """Metrics beyond the default ones."""
    dialogs: DialogBatch
    """The dialog as a batch of one row."""
    trace: Trace
    """What happened."""
    turns: pd.DataFrame
    """A row for each turn, with the policy's row states."""
    name: str = field(default_factory=lambda: uuid4().hex)
    """A unique name, by which messages of the browser refer to it."""

    @property
    def policy(self) -> Policy:
        """The policy that ran."""
        return self.trace.policy

    @property
    def long(self) -> bool:
        """Whether the entries of its turns are too many for a table."""
        return isinstance(self.trace.results, BlockResults)

    @cached_property
    def titled(self) -> DialogBatch:
        """The dialogs, with topics named as in sentences."""
        names = self.dialog.topic_names
        return replace(self.dialogs, topic_names=names) if names else self.dialogs

    def long_note(self, feature: str) -> str:
        """Say why a long run lacks a feature, and up to which budget it would have it."""
        max_budget = MAX_RECORDED_ENTRIES // self.dialogs.turns - self.dialogs.turn_tokens
        length = "too long for it at any budget"
        if max_budget > 0:
            length = f"short enough for it up to a budget of {max_budget:,}"
        return (
            f"{feature} is not available: it needs every entry of every turn, and is limited to "
            f"{MAX_RECORDED_ENTRIES:,} of them. This dialog is {length}."
        )

    @cached_property
    def entries(self) -> pd.DataFrame:
        """The entries that took part in each turn."""
        return entries_table(self.trace, self.dialogs, words=self.dialog.words)

    def deciding_token(self, turn: int, token: int) -> int:
        """Return the token whose fate in a turn is that of the value that a token is part of."""
        for start, deciding_token in reversed(self.deciding.get(token, ())):
            if start <= turn:
                return deciding_token
        return token

    @cached_property
    def deciding(self) -> Mapping[int, Sequence[tuple[int, int]]]:
        """For a token of a value: which token's fate is that of the value, and from which turn on.

        Until then, and for tokens that are missing here, it is the token itself.

        A value is held if the cache has all tokens of one of its mentions. Its fate is then that of
        the token itself, if it is in such a mention, or else of such a mention's first token. If no
        mention is whole, it is that of the first token evicted from the mention that broke last;
        if several broke in that turn, from the token's own. Before the value is mentioned, it is
        that of its first mention, which is not in the cache yet.
        """
        if (recording := self.dialog.recording) is None:
            return {}
        # 1. After which turns each token of a mention was held.
        turns = np.arange(self.dialogs.turns)[:, None]
        born = self.dialogs.born[0]
        place = recording.needed[0]
        changes = dict[int, Sequence[tuple[int, int]]]()
        is_cached = np.zeros((len(turns), int(place[-1]) + 1), np.bool_)
        for turn, cached_then in enumerate(is_cached):
            # Free slots are −1, which selects the last, unused column.
            cached_then[place[self.trace.kept_tokens[0, turn]]] = True
        for mentions in {mentions for _, mentions in recording.value_of.values()}:
            tokens = np.array([*chain.from_iterable(mentions)])  # (N,), those of M mentions
            starts = np.cumsum([0, *map(len, mentions[:-1])])
            # 2. The turn that evicted each token for good, beyond the turn while it is held (T, N).
            last_turn = np.where(is_cached[:, place[tokens]], turns + 1, born[tokens])
            eviction = np.maximum.accumulate(last_turn)
            # 3. The first token that left each mention, and when; −1 before it begins (T, M).
            parts = [part.argmin(axis=1) for part in np.split(eviction, starts[1:], axis=1)]
            first = tokens[starts + np.stack(parts, axis=1)]
            broke = np.minimum.reduceat(eviction, starts, axis=1)
            broke[born[tokens[starts]] > turns] = -1
            # 4. The mention that broke last; of several, the token's own, else the latest mention.
            last = broke.max(axis=1)
            is_last = broke[:, ::-1] == last[:, None]
            latest = len(mentions) - 1 - is_last.argmax(axis=1)
            for number, mention in enumerate(mentions):
                broke_last = broke[:, number] == last
                says = first[turns[:, 0], np.where(broke_last, number, latest)]
                says[last < 0] = mentions[0][0]
                itself = broke_last & np.where(last < 0, number == 0, last > turns[:, 0])
                for token in mention:
                    if recording.value_of[token][1] == mentions:
                        answer = np.where(itself, token, says)
                        steps = np.flatnonzero(np.diff(answer, prepend=token)).tolist()
                        changes[token] = [(turn, int(answer[turn])) for turn in steps]
        return changes

    @cached_property
    def terms(self) -> tuple[str, ...]:
        """The names of the columns with the score terms."""
        return tuple(f"term_{name}" for name in self.trace.result(0).terms)

    @cached_property
    def metrics(self) -> tuple[Line, ...]:
        """The metrics that have values in this dialog, as lines.

        An axis extends beyond a metric's range only where its values do.
        """
        lines = []
        for metric in map(metric_named, (*default_metrics(), *self.optional)):
            values = self.turns[metric.key]
            if values.notna().any():
                low = min(0.0, float(values.min()))
                high = max(metric.bounds[1], float(values.max()))
                label = metric.turn_label or metric.label
                lines.append(Line(metric.key, label, low, high, percent=metric.percent))
        return tuple(lines)

    @cached_property
    def states(self) -> tuple[Line, ...]:
        """The policy's row states as lines, on axes narrow enough to show their changes."""
        lines = []
        for name, start in self.trace.policy.initial_state().items():
            lines.append(_zoomed(name, self.turns[name], start))
        return tuple(lines)


def _zoomed(name: str, series: pd.Series[float], start: float) -> Line:
    """Make a line whose axis spans the values, and their start unless that is zero."""
    # In the states' precision: an unchanged one equals its start.
    start = float(np.float32(start))
    levels = [float(series.min()), float(series.max())]
    if start:
        levels.append(start)
    low = min(levels)
    high = max(levels)
    room = 0.15 * (high - low) or 0.05  # a constant has no range
    label = name.replace("_", " ").capitalize()
    counts = bool((series % 1 == 0).all())
    # The axis of a quantity that is never negative does not begin below zero.
    foot = max(low - room, 0.0) if low >= 0 else low - room
    return Line(name, label, foot, high + room, start or None, digits=0 if counts else 3)


def build_run(
    dialog: ChosenDialog,
    policy: Policy,
    budget: int,
    optional: tuple[str, ...] = (),
    dialogs: DialogBatch | None = None,
) -> StageRun:
    """Run a policy over a dialog, loaded unless it comes as `dialogs`, with `optional` metrics."""
    dialogs = dialogs or dialog.load()
    trace = dialog.run(policy, dialogs, budget)
    turns = turns_table(trace, dialogs, metrics=optional)
    return StageRun(dialog, budget, optional, dialogs, trace, turns)
