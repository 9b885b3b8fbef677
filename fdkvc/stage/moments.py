"""Interesting moments of a run, and sentences on an entry there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase

import numpy as np

from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.segmentation import segmented
from fdkvc.corpora.transcripts import Demand
from fdkvc.explain.explain import explain, sentences, turn_view
from fdkvc.policies import Policy
from fdkvc.run.evidence import demand_results, lost_turns
from fdkvc.run.simulate import simulate
from fdkvc.run.trace import Rule, Status, Trace
from fdkvc.stage.run import Run, RunChoice, build_run
from fdkvc.synthetic.batch import DialogBatch


def nearly_kept(run: Run) -> tuple[int, int | None]:
    """Return the turn after the first change of topic, and the best entry that it evicted.

    The entry is one that had been there before, if any of those went. Where that turn evicts
    nothing, it is the next one that does, or the last turn and no entry.
    """
    changes = np.flatnonzero(np.diff(run.dialogs.current[0])) + 1
    last = run.dialogs.turns - 1
    first = min(int(changes[0]) + 1, last) if len(changes) else 0
    for turn in range(first, last + 1):
        made = turn_view(run.trace, run.dialogs, 0, turn)
        gone = np.flatnonzero(made.rule == Rule.budget)
        if len(gone):
            gone = gone[~made.new[gone]] if not made.new[gone].all() else gone
            return turn, int(made.token[gone[np.argmax(made.score[gone])]])
    return last, None


def rescued(run: Run) -> tuple[int, int | None]:
    """Return the turn and the entry that a topic's return lifted by the most places.

    The entry is one of that topic's that stayed in the cache. Where no topic returns to any, it is
    the last turn and no entry.
    """
    current, born = run.dialogs.current[0], run.dialogs.born[0]
    found: tuple[int, int, int | None] = (0, run.dialogs.turns - 1, None)
    before: dict[int, int] = {}
    for turn, topic in enumerate(current):
        ranks = ranks_of(run, turn)
        if turn and topic != current[turn - 1] and topic in current[:turn]:
            lifted = [
                (before[token] - now, turn, token)
                for token, now in ranks.items()
                if token in before and current[born[token]] == topic
            ]
            found = max([found, *lifted], key=lambda each: each[0])
        before = ranks
    return found[1], found[2]


def ranks_of(run: Run, turn: int) -> dict[int, int]:
    """Return the rank of each entry kept in a turn, 1 for the best, by token."""
    made = turn_view(run.trace, run.dialogs, 0, turn)
    return dict(zip(made.token[made.kept].tolist(), made.rank[made.kept].tolist(), strict=True))


@dataclass(frozen=True)
class Spoken:
    """A real dialog with the attention of its first head; its topics are letters."""

    name: str
    recording: Recording = field(compare=False, repr=False)

    @property
    def alone(self) -> bool:
        """Whether the head decides by itself."""
        return True

    @property
    def title(self) -> str:
        """Its name."""
        return self.name

    @property
    def words(self) -> tuple[str, ...]:
        """The text of each token."""
        return self.recording.words

    @property
    def spans(self) -> tuple[tuple[int, str], ...]:
        """The first token of each span, and its kind."""
        return self.recording.spans

    def load(self) -> DialogBatch:
        """Return the head's row."""
        return self.recording.dialogs.row(0)

    def run(self, policy: Policy, dialogs: DialogBatch, budget: int) -> Trace:
        """Run a policy over it."""
        return simulate(policy, dialogs, budget)


def lettered(recording: Recording) -> Recording:
    """Return a recording whose topics are letters: those it has, or else found in its words."""
    transcript = recording.transcript
    if not transcript.topics:
        transcript = segmented(transcript)
    letters = dict(zip(transcript.topics, ascii_uppercase, strict=False))
    topics = [None if turn.topic is None else letters.get(turn.topic) for turn in transcript.turns]
    return recording.with_transcript(transcript.with_topics(topics))


@dataclass(frozen=True, eq=False)
class Failure:
    """A service call whose argument was evicted: in which turn, and a token of it."""

    run: Run
    demand: Demand
    turn: int
    token: int


def failed_call(recordings: Sequence[Recording], policy: Policy, budget: int) -> Failure | None:
    """Return the first call of a dialog of which a policy had held an argument, and lost it."""
    for recording in recordings:
        if not any(demand.kind == "call" for demand in recording.transcript.demands):
            continue
        shown = lettered(recording)
        choice = RunChoice(Spoken(shown.transcript.name, shown), policy, budget)
        run = build_run(choice, choice.dialog.load())
        lost = lost_turns(run.trace, shown)
        for answer, turns, (demand, mentions) in zip(
            demand_results(run.trace, shown), lost, shown.evidence, strict=True
        ):
            turn = int(turns[0])
            last = demand.mentions[-1].turn
            if demand.kind == "call" and not answer.met[0] and last < turn < demand.turn:
                gone = [token for token in mentions[-1] if token not in run.trace.kept[0, turn]]
                return Failure(run, demand, turn, int(gone[0]))
    return None


def why_sentences(run: Run, turn: int, token: int) -> list[str]:
    """Say why an entry is where it is in a turn; of what has gone before, why it went."""
    own = run.at(turn)
    why = explain(own.trace, own.dialogs, 0, turn, token)
    if why.left is not None and why.left[0] < turn:
        return why_sentences(run, why.left[0], token)
    if own.trunk is not None and why.status == Status.empty and why.born < own.trace.first_turn:
        fork = own.trace.first_turn - 1
        if token in own.trunk.at(fork).trace.state_after(fork).cache.token:
            return [f"The fork dropped token {token} after turn {fork}."]
        return why_sentences(own.trunk, fork, token)
    return sentences(why)
