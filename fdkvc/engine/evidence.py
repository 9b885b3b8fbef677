"""Evidence: which earlier words a turn needs, and whether the cache still holds them.

A demand is checked against the cache as the previous turn left it: an argument of a service call at
turn t is met if every token of at least one of its mentions is cached at the end of turn t − 1. For
a policy whose turns select what they read by their own queries, the tokens that turn t reads count.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

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
            if demand.kind == self.kind and self.older_than < demand.age <= self.up_to:
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
    def _held_and_peak(self) -> tuple[Bools, Ints]:
        """Whether each head held each needed token after each turn, and its most entries (H,).

        The first has shape (H, T, tokens of mentions + 1); the last column stands for all others.
        """
        place, _ = self.recording.needed
        rows, turns = len(self.trace.kept_tokens), len(self.recording.tokens)
        held = np.zeros((rows, turns, int(place[-1]) + 1), np.bool_)
        peak = np.zeros(rows, np.intp)
        for part in self.parts():
            kept = part.kept_tokens[:, : turns - part.first_turn]
            of_part = np.zeros((*kept.shape[:2], held.shape[2]), np.bool_)
            turn_starts = np.arange(0, of_part.size, of_part.shape[2])
            turn_starts = turn_starts.reshape(*kept.shape[:2], 1)
            of_part.reshape(-1)[turn_starts + place[kept]] = True  # −1 marks the last column
            held[:, part.first_turn : part.first_turn + kept.shape[1]] = of_part
            peak = np.maximum(peak, part.peak.max(axis=1))
        return held, peak

    @cached_property
    def lost(self) -> list[Ints]:
        """The turn that evicted part of each demand's last whole mention (H,), −1 if it is met.

        Demands are in the order of `Recording.evidence`. If no mention was ever cached whole, it is
        the turn of the last mention.
        """
        (_, needed), (held, _) = self.recording.needed, self._held_and_peak
        if self.trace.policy.reads_afresh:  # turn t needs what turn t itself reads, not t − 1
            held = np.concatenate([held[:, 1:], held[:, -1:]], axis=1)
        turns = []
        for (demand, _), (places, starts) in zip(self.recording.evidence, needed, strict=True):
            held_tokens = held[:, : demand.turn, places]  # mention after mention on the last axis
            # Whether any mention is whole in a head after a turn (H, turns before the demand).
            whole: Bools = np.any(np.logical_and.reduceat(held_tokens, starts, axis=2), axis=2)
            last_whole = np.where(whole, np.arange(demand.turn), -1).max(axis=1)
            lost = np.maximum(last_whole + 1, demand.mentions[-1].turn)
            turns.append(np.where(whole[:, -1], -1, lost))
        return turns

    def recall_by_head(self, wanted: Demands) -> Floats:
        """Return the mean over calls of the share of arguments that are met (H,), in [0, 1].

        NaN without calls. The values of a dialogue state at one turn count as one call.
        """
        weights = wanted.weights([demand for demand, _ in self.recording.evidence])
        if not weights.any():
            return np.full(len(self.trace.kept_tokens), np.nan, np.float32)
        return np.asarray(weights @ (np.array(self.lost) < 0), np.float32)

    def recall(self, wanted: Demands) -> float:
        """Return the mean of `recall_by_head`."""
        return float(self.recall_by_head(wanted).mean())

    def peak_entries(self) -> float:
        """Return the largest number of entries that the cache held, the mean over heads."""
        return float(self._held_and_peak[1].mean())

    def token_age(self) -> float:
        """Return the mean age in turns of the tokens cached after each turn; new ones are 0."""
        turns, ages, tokens = len(self.recording.tokens), 0, 0
        # One more element for the index −1 of an empty slot.
        born = np.repeat(np.arange(turns + 1), [*np.diff(self.recording.starts), 1])
        for part in self.parts():
            for turn, kept in enumerate(part.kept_tokens.swapaxes(0, 1), start=part.first_turn):
                present = kept[kept >= 0] if turn < turns else kept[:0]
                tokens += present.size
                ages += turn * present.size - int(born[present].sum())
        return float(ages / max(tokens, 1))

    def tokens_reread(self) -> float:
        """Return how many tokens are read again over the dialog, with placeholders.

        After each turn that evicts, these are what stays after the first evicted token; none if
        the policy keeps the keys and values of what stays.
        """
        policy, dialogs = self.trace.policy, self.recording.dialogs
        if not policy.reads_again:
            return 0.0
        assert dialogs.kinds is not None  # a recording's transcript tells them
        # Such a policy decides by text alone, so all heads keep the same tokens.
        starts, kinds = self.recording.starts, dialogs.kinds[0]
        reread, stays = 0, np.empty(0, np.intp)
        for part in self.parts():
            turns = slice(part.first_turn, part.first_turn + part.turns)
            ends = starts[1:][turns]
            for start, end, row in zip(starts[turns], ends, part.kept_tokens[0], strict=False):
                there = np.concatenate([stays, np.arange(start, end)])
                stays = np.sort(row[row >= 0])
                reread += reread_once(policy, there, stays, dialogs.born[0, :end], kinds[:end])
        return float(reread)

    def turns_refused(self) -> float:
        """Return the share of turns after which services would refuse what stays as messages.

        0 if the policy keeps the keys and values of what stays, which then needs no messages.
        """
        dialogs, starts = self.recording.dialogs, self.recording.starts
        if not self.trace.policy.reads_again:
            return 0.0
        assert dialogs.kinds is not None  # a recording's transcript tells them
        refused = 0
        for end, row in zip(starts[1:], self.trace.kept_tokens[0], strict=False):
            held = np.zeros(int(end), np.bool_)
            held[row[row >= 0]] = True
            born, kinds = dialogs.born[0, :end], dialogs.kinds[0, :end]
            refused += not held.all() and lacks_message(held, born, kinds)
        return refused / (len(starts) - 1)


def lacks_message(held: Bools, born: Ints, kinds: Ints) -> bool:
    """Whether held tokens have no user's message, or a result without the message that called.

    The arrays (N,) say of each token whether it is held, its turn, and its kind. That message is
    the last one before the result that is no result itself.
    """
    if not (held & (kinds == KINDS.index("user"))).any():
        return True
    is_result = kinds == KINDS.index("result")
    # The last token before each one that is not of a result, −1 if there is none.
    callers = np.maximum.accumulate(np.where(is_result, -1, np.arange(len(kinds))))[
        held & is_result
    ]
    held_turns = np.bincount(born[held & ~is_result], minlength=int(born.max(initial=0)) + 1) > 0
    return bool((~held_turns[born[callers[callers >= 0]]]).any())


def reread_once(policy: Policy, there: Ints, stays: Ints, born: Ints, kinds: Ints) -> int:
    """Return how many tokens one eviction makes the model read again, with placeholders.

    `there` and `stays` are the tokens before and after it, in order; `born` and `kinds` are the
    turn and the kind of each token so far (N,). It is 0 if the policy keeps the keys and values of
    what stays.
    """
    if not policy.reads_again or len(stays) == len(there):
        return 0
    # 1. The first token that left: what stays after it is read again.
    unchanged = there[: len(stays)] == stays
    first_left = int(there[len(stays) if unchanged.all() else unchanged.argmin()])
    reread = len(stays) - int(np.searchsorted(stays, first_left))
    # 2. So are the placeholders from there on.
    placeholder = policy.settings["placeholder"].default if policy.clears_results else ""
    words = word_count(placeholder)
    if words:
        held = np.zeros(len(born), np.bool_)
        held[stays] = True
        standing = standing_placeholders(held, born, kinds)
        reread += words * sum(token >= first_left for token in standing)
    return reread
