"""Evidence: which earlier words a turn needs, and whether the cache still holds them.

A demand is checked against the cache as the previous turn left it: an argument of a service call at
turn t is met if every token of at least one of its mentions is cached at the end of turn t − 1.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import KINDS, Bools, Floats, Ints
from fdkvc.core.limits import MAX_TURNS
from fdkvc.core.recordings import Recording
from fdkvc.core.scripts import word_count
from fdkvc.core.transcripts import Demand
from fdkvc.engine.trace import Trace
from fdkvc.policies.base import Policy
from fdkvc.policies.reread import standing_placeholders

RECENT = 2
"""Evidence is recent if its last mention is at most this many turns before the demand."""

OLD = 6
"""Evidence is old if its last mention is more than this many turns before the demand."""

AGES: Mapping[str, tuple[str, tuple[int, int]]] = {
    "recent": (f"up to {RECENT} turns", (0, RECENT)),
    "middle": (f"{RECENT + 1} to {OLD} turns", (RECENT, OLD)),
    "old": (f"more than {OLD} turns", (OLD, MAX_TURNS)),
}
"""Each age of evidence: its words, and the turns since the last mention (more than, at most)."""


@dataclass(frozen=True)
class Demands:
    """A selection of demands."""

    kind: str
    """``call`` or ``state``."""
    older_than: int = 0
    """Only those last mentioned more than this many turns before."""
    up_to: int = MAX_TURNS
    """Only those last mentioned at most this many turns before."""

    def weights(self, demands: Sequence[Demand]) -> NDArray[np.float64]:
        """Return the weight of each demand in the recall (n,); they add up to 1, or all are 0.

        All calls have equal weight, and so have all arguments of a call.
        """
        calls: dict[tuple[int, str, int], list[int]] = {}
        for index, demand in enumerate(demands):
            is_old_enough = self.older_than < demand.age <= self.up_to
            if demand.kind == self.kind and is_old_enough:
                calls.setdefault(demand.needed_by, []).append(index)
        weights = np.zeros(len(demands))
        for arguments in calls.values():
            weights[arguments] = 1 / (len(calls) * len(arguments))
        return weights


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a policy kept of a recording."""

    trace: Trace
    """The run, recorded from turn 0; with `blocks`, a part of it."""
    recording: Recording
    """The dialog."""
    blocks: Callable[[], Iterator[Trace]] | None = None
    """Runs a dialog again whose turns would not fit in memory, some turns at a time."""

    def parts(self) -> Iterator[Trace]:
        """Yield the run as traces of consecutive turns."""
        yield from [self.trace] if self.blocks is None else self.blocks()

    @cached_property
    def _cached_and_peak(self) -> tuple[Bools, Ints]:
        """Whether each head held each needed token after each turn, and its most entries (H,).

        The first has shape (H, T, tokens of mentions + 1); the last column stands for all others.
        """
        place, _ = self.recording.needed
        rows = len(self.trace.kept_tokens)
        turns = len(self.recording.tokens)
        cached = np.zeros((rows, turns, int(place[-1]) + 1), np.bool_)
        peak = np.zeros(rows, np.intp)
        for part in self.parts():
            # A row of a batch has as many turns as the longest dialog.
            tokens = part.kept_tokens[:, : turns - part.first_turn]
            places = place[tokens]  # −1, an empty slot, is in the last column
            last_turn = part.first_turn + tokens.shape[1]
            np.put_along_axis(cached[:, part.first_turn : last_turn], places, True, axis=2)
            peak = np.maximum(peak, part.peak.max(axis=1))
        return cached, peak

    @cached_property
    def lost(self) -> list[Ints]:
        """The turn that evicted part of each demand's last whole mention (H,), −1 if it is met.

        Demands are in the order of `Recording.evidence`. If no mention was ever cached whole, it is
        the turn of the last mention.
        """
        _, needed_tokens = self.recording.needed
        cached, _ = self._cached_and_peak
        turns = []
        pairs = zip(self.recording.evidence, needed_tokens, strict=True)
        for (demand, _), (places, starts) in pairs:
            tokens = cached[:, : demand.turn, places]  # mention after mention on the last axis
            mentions = np.logical_and.reduceat(tokens, starts, axis=2)
            # Whether any mention is whole in a head after a turn (H, turns before the demand).
            is_met = np.asarray(mentions.any(axis=2))
            last_met = np.where(is_met, np.arange(demand.turn), -1).max(axis=1)
            lost = np.maximum(last_met + 1, demand.mentions[-1].turn)
            turns.append(np.where(is_met[:, -1], -1, lost))
        return turns

    def recall_by_head(self, selection: Demands) -> Floats:
        """Return the mean over calls of the share of arguments that are met (H,), in [0, 1].

        NaN without calls. The values of a dialogue state at one turn count as one call.
        """
        weights = selection.weights([demand for demand, _ in self.recording.evidence])
        if not weights.any():
            return np.full(len(self.trace.kept_tokens), np.nan, np.float32)
        return np.asarray(weights @ (np.array(self.lost) < 0), np.float32)

    def recall(self, selection: Demands) -> float:
        """Return the mean of `recall_by_head`."""
        return float(self.recall_by_head(selection).mean())

    def peak_entries(self) -> float:
        """Return the largest number of entries that the cache held, the mean over heads."""
        return float(self._cached_and_peak[1].mean())

    def token_age(self) -> float:
        """Return the mean age in turns of the tokens cached after each turn; new ones are 0."""
        turns = len(self.recording.tokens)
        born = np.repeat(np.arange(turns), np.diff(self.recording.starts))
        ages = count = 0
        for part in self.parts():
            tokens = part.kept_tokens[:, : turns - part.first_turn]
            _, turn, _ = (tokens >= 0).nonzero()
            ages += int((turn + part.first_turn - born[tokens[tokens >= 0]]).sum())
            count += len(turn)
        return float(ages / max(count, 1))

    def tokens_reread(self) -> float:
        """Return how many tokens are read again over the dialog, with placeholders.

        After each turn that evicts, these are what stays after the first evicted token; none if
        the policy keeps the keys and values of what stays.
        """
        policy = self.trace.policy
        dialogs = self.recording.dialogs
        if not policy.reads_again:
            return 0.0
        assert dialogs.kinds is not None  # a recording's transcript tells them
        kinds = dialogs.kinds[0]
        reread = 0
        stays = np.empty(0, np.intp)
        for start, end, row in self._kept_by_turn():
            cached = np.concatenate([stays, np.arange(start, end)])
            stays = np.sort(row[row >= 0])
            reread += reread_once(policy, cached, stays, dialogs.born[0, :end], kinds[:end])
        return float(reread)

    def turns_refused(self) -> float:
        """Return the share of turns after which services would refuse what stays as messages.

        0 if the policy keeps the keys and values of what stays, which then needs no messages.
        """
        dialogs = self.recording.dialogs
        if not self.trace.policy.reads_again:
            return 0.0
        assert dialogs.kinds is not None  # a recording's transcript tells them
        refused = 0
        for _, end, row in self._kept_by_turn():
            cached = np.isin(np.arange(end), row)
            born = dialogs.born[0, :end]
            kinds = dialogs.kinds[0, :end]
            refused += not cached.all() and lacks_message(cached, born, kinds)
        return refused / len(self.recording.tokens)

    def _kept_by_turn(self) -> Iterator[tuple[int, int, Ints]]:
        """Yield for each turn its tokens, from and up to, and what the first row then keeps."""
        # A policy that reads again decides by text alone, so all heads keep the same tokens.
        for part in self.parts():
            bounds = pairwise(self.recording.starts[part.first_turn :])
            for (start, end), row in zip(bounds, part.kept_tokens[0], strict=False):
                yield start, end, row


def lacks_message(cached: Bools, born: Ints, kinds: Ints) -> bool:
    """Whether cached tokens have no user's message, or a result without the message that called.

    The arrays (N,) say of each token whether it is cached, its turn, and its kind. That message is
    the last one before the result that is no result itself.
    """
    if not (cached & (kinds == KINDS.index("user"))).any():
        return True
    is_result = kinds == KINDS.index("result")
    # The last token before each one that is not of a result, −1 if there is none.
    callers = np.maximum.accumulate(np.where(is_result, -1, np.arange(len(kinds))))
    callers = callers[cached & is_result]
    calling_turns = born[callers[callers >= 0]]
    cached_turns = born[cached & ~is_result]
    return not np.isin(calling_turns, cached_turns).all()


def reread_once(policy: Policy, cached: Ints, stays: Ints, born: Ints, kinds: Ints) -> int:
    """Return how many tokens one eviction makes the model read again, with placeholders.

    `cached` and `stays` are the tokens before and after it, in order; `born` and `kinds` are the
    turn and the kind of each token so far (N,). It is 0 if the policy keeps the keys and values of
    what stays.
    """
    if not policy.reads_again or len(stays) == len(cached):
        return 0
    # 1. The first token that left: what stays after it is read again.
    unchanged = cached[: len(stays)] == stays
    first_left = int(cached[len(stays) if unchanged.all() else unchanged.argmin()])
    reread = len(stays) - int(np.searchsorted(stays, first_left))
    # 2. So are the placeholders from there on.
    placeholder = policy.settings["placeholder"].default if policy.clears_results else ""
    words = word_count(placeholder)
    if words:
        still_cached = np.isin(np.arange(len(born)), stays)
        standing = [*standing_placeholders(still_cached, born, kinds)]
        reread += words * int(np.greater_equal(standing, first_left).sum())
    return reread
