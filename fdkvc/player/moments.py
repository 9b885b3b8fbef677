"""Moments of a run that are worth a look, and sentences that explain an entry."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from string import ascii_uppercase

import numpy as np

from fdkvc.core.dialogs import DialogBatch, topic_bit
from fdkvc.core.limits import MAX_TOPICS
from fdkvc.core.recordings import Recording
from fdkvc.core.transcripts import Demand, Transcript
from fdkvc.engine.evidence import Evidence
from fdkvc.engine.trace import Rule
from fdkvc.explain.decisions import explain, sentences, turn_view
from fdkvc.explain.narrate import first_return
from fdkvc.player.run import ChosenDialog, StageRun, build_run
from fdkvc.policies import Policy

LETTERS = (*ascii_uppercase, *(f"A{number}" for number in range(MAX_TOPICS - 26)))
"""Names of as many topics as a dialog may have."""


def nearly_kept(run: StageRun) -> tuple[int, int | None]:
    """Return the turn after the first change of topic, and the best entry that it evicted.

    Entries from earlier turns are preferred to new ones. If that turn evicts nothing, the next one
    that does is taken; if none does, the last turn and None.
    """
    changes = np.flatnonzero(np.diff(run.dialogs.current[0])) + 1  # turns that begin a topic
    last = run.dialogs.turns - 1
    first = 0
    if len(changes):
        first = min(int(changes[0]) + 1, last)
    for turn in range(first, last + 1):
        view = turn_view(run.trace, run.dialogs, 0, turn)
        evicted = np.flatnonzero(view.rule == Rule.budget)
        if len(evicted):
            if not view.new[evicted].all():
                evicted = evicted[~view.new[evicted]]
            best = evicted[np.argmax(view.score[evicted])]
            return turn, int(view.token[best])
    return last, None


def rescued(run: StageRun) -> tuple[int, int | None]:
    """Return the entry whose rank rises most when its topic returns, and the turn of the return.

    The result is (turn, entry). If no topic returns while it has entries in the cache, it is the
    last turn and None.
    """
    current = run.dialogs.current[0]
    born = run.dialogs.born[0]
    best: tuple[int, int, int | None] = (0, run.dialogs.turns - 1, None)  # (rise, turn, token)
    previous_ranks: dict[int, int] = {}
    for turn, topic in enumerate(current):
        ranks = ranks_of(run, turn)
        if turn and topic != current[turn - 1] and topic in current[:turn]:
            for token, rank in ranks.items():
                # A new entry has risen by less than 0, so it is never the best.
                rise = previous_ranks.get(token, 0) - rank
                if current[born[token]] == topic and rise > best[0]:
                    best = (rise, turn, token)
        previous_ranks = ranks
    return best[1], best[2]


def held_at_return(runs: Sequence[StageRun]) -> tuple[int, int | None]:
    """Return the turn in which the first topic returns, and its first entry that a run still holds.

    The last run that holds one decides. If no topic returns, it is `nearly_kept` of the last run.
    """
    dialogs = runs[0].dialogs
    turn = first_return(dialogs)
    if turn is None:
        return nearly_kept(runs[-1])
    of_topic = (dialogs.topic_bits[0] & topic_bit(dialogs.current[0, turn])) != 0
    for run in reversed(runs):
        token = run.trace.kept_tokens[0, turn - 1]
        token = token[token >= 0]
        token = token[of_topic[token]]
        if len(token):
            return turn, int(token.min())
    return turn, int(np.flatnonzero(of_topic)[0])


def ranks_of(run: StageRun, turn: int) -> dict[int, int]:
    """Return the rank of each entry that a turn kept, by token; 1 is the best."""
    view = turn_view(run.trace, run.dialogs, 0, turn)
    tokens = view.token[view.kept].tolist()
    ranks = view.rank[view.kept].tolist()
    return dict(zip(tokens, ranks, strict=True))


@dataclass(frozen=True)
class Spoken(ChosenDialog):
    """A real dialog with the attention of its first head.

    Its topics are letters; `topic_names` has their names.
    """

    name: str
    recording: Recording = field(compare=False, repr=False)
    topic_names: tuple[str, ...] = field(default=(), compare=False, kw_only=True)
    pinned: tuple[int, ...] = field(default=(), kw_only=True)

    @property
    def title(self) -> str:
        """Its name."""
        return self.name

    def load(self) -> DialogBatch:
        """Return the row of the first head."""
        return self.recording.dialogs.row(0)


def lettered(recording: Recording, transcript: Transcript) -> Recording:
    """Return a recording with this transcript and letters for topics, which fit into cells."""
    letters = dict(zip(transcript.topics, LETTERS, strict=False))
    topics = [None if turn.topic is None else letters[turn.topic] for turn in transcript.turns]
    return replace(recording, transcript=transcript.with_topics(topics))


@dataclass(frozen=True, eq=False)
class Failure:
    """A service call whose argument was evicted before it."""

    run: StageRun
    """Over the dialog of the call."""
    demand: Demand
    """What the call needs."""
    turn: int
    """The turn of the eviction."""
    token: int
    """An evicted token of the argument."""


def failed_call(
    recordings: Sequence[Recording], policy: Policy, budget: int
) -> Failure | None:
    """Return the first call with an argument that a policy had cached but evicted before it."""
    for recording in recordings:
        # Without a call there is nothing to find, and no need to run the policy.
        if not any(demand.kind == "call" for demand in recording.transcript.demands):
            continue
        text = recording.transcript
        stage_recording = lettered(recording, text)
        spoken = Spoken(text.name, stage_recording, topic_names=text.topics)
        run = build_run(spoken, policy, budget)
        lost = Evidence(run.trace, stage_recording).lost
        for turns, (demand, mentions) in zip(lost, stage_recording.evidence, strict=True):
            turn = int(turns[0])  # evicted after its last mention, and before the call
            if demand.kind == "call" and demand.mentions[-1].turn < turn < demand.turn:
                cached = run.trace.kept_tokens[0, turn]
                evicted = next(token for token in mentions[-1] if token not in cached)
                return Failure(run, demand, turn, int(evicted))
    return None


def value_sentences(run: StageRun, turn: int, token: int) -> list[str]:
    """Explain what became of the value that a token is a piece of; else of the token."""
    return why_sentences(run, turn, run.deciding_token(turn, token))


def why_sentences(run: StageRun, turn: int, token: int) -> list[str]:
    """Explain why a turn kept or evicted an entry; for one evicted earlier, why that turn did."""
    why = explain(run.trace, run.dialogs, 0, turn, token)
    if why.eviction is not None and why.eviction[0] < turn:
        return why_sentences(run, why.eviction[0], token)
    return sentences(why)
