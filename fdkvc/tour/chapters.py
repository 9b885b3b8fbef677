"""Seven scenes for newcomers to KV caches; the numbers in their sentences come from the runs.

The last two show shipped results: what policies cost a pretrained model.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fdkvc.core.recordings import Recording
from fdkvc.core.words import count, percent
from fdkvc.engine.evidence import Evidence
from fdkvc.models.judged import ENTRIES, changed_rows, recommendation
from fdkvc.paper.benchmark import Benchmark
from fdkvc.player.moments import Failure, Spoken, failed_call, ranks_of, rescued
from fdkvc.player.run import DialogChoice, StageRun, build_run
from fdkvc.policies import policy_named
from fdkvc.synthetic.scenarios import World, scenario_named

SEED, POLICY = 7, "fd-kvc"

TITLES = (
    "The cache fills",
    "Attention can mislead",
    "The topic returns",
    "A call lacks a word",
    "Bring it back",
    "The first tokens",
    "What to use, and what is open",
)


@dataclass(frozen=True, eq=False)
class Chapter:
    """A scene of the story, of `TITLES`: a turn of a run, sentences, and something to try."""

    run: StageRun | None
    """Without one, the scene shows shipped results."""
    turn: int
    """The turn that it opens on."""
    token: int | None
    """The entry selected at first, if any."""
    sentences: tuple[str, ...]
    """The text of the scene."""
    trial: str
    """What to try on `page`."""
    page: str
    """The page to go on with."""
    link: Mapping[str, str]
    """The parameters with which `page` opens."""
    task: str = ""
    """What to do here."""
    shows: str = ""
    """The panels of the stage; all by default."""
    lights: Mapping[str, str] = field(default_factory=dict)
    """The panel or entry that a phrase of the sentences lights up."""


def story(recordings: Sequence[Recording]) -> list[Chapter]:
    """Return all scenes but the last, for dialogs in which a call fails."""
    failure = failed_call(recordings, policy_named(POLICY), Benchmark.budget)
    assert failure is not None
    return [
        _fills(failure.run),
        _misleads(),
        _returns(),
        *_fails(failure, recordings),
        _sinks(),
    ]


def _run(scenario: str, policy: str) -> StageRun:
    dialog = DialogChoice(scenario_named(scenario), SEED, World())
    return build_run(dialog, policy_named(policy), Benchmark.budget)


def _held(run: StageRun, turn: int) -> Counter[str]:
    kept_tokens = run.trace.kept_tokens[0, turn]
    return Counter(run.dialogs.topics_of(0, kept_tokens[kept_tokens >= 0]))


def _fills(run: StageRun) -> Chapter:
    budget = run.trace.budget
    bounds = run.dialogs.bounds[0]
    # The first turn after which no slot is free.
    turn = int(np.flatnonzero((run.trace.kept_tokens[0] >= 0).all(axis=1))[0])
    previous_size = _held(run, turn - 1).total()
    new_tokens = int(bounds[turn + 1] - bounds[turn])
    sentences = (
        "For each token that it reads, here a word or a punctuation mark, a language model stores "
        "an entry in its cache.",
        f"This one has room for {count(budget, 'entry', 'entries')}: {previous_size} are filled, "
        f"and turn {turn} adds {new_tokens}.",
        f"So a policy evicts {previous_size + new_tokens - budget}, which the model can no longer "
        "use.",
    )
    link = {"scenario": "mixed", "seed": f"{SEED}", "policy": POLICY, "budget": "40"}
    trial = "topics A, B and C, with room for 40 entries"
    task = f"This is turn {turn}: press Play to watch those after it."
    lights = {"cache": "now", "evict": "gone-title"}
    return Chapter(run, turn, None, sentences, trial, "step", link, task, "now", lights)


def _misleads() -> Chapter:
    run = _run("shift", "h2o")
    turn = run.dialogs.turns - 1
    current = run.dialogs.current[0]
    old, new = (run.dialogs.topic_label(int(current[topic_turn])) for topic_turn in (0, turn))
    topic_start = int(np.flatnonzero(current == current[turn])[0])
    kept_tokens = run.trace.kept_tokens[0, turn]
    token = int(kept_tokens[kept_tokens >= 0].min())  # the oldest entry
    score = run.entries[run.entries.token == token].set_index("turn").score
    window = float(run.policy.settings["window"].default)
    # The share of its score that it has got since the topic changed.
    late = 1 - float(score[topic_start - 1] / score[turn])
    sentences = (
        f"From turn {topic_start} on, the topic is {new}.",
        f"The policy H2O gives {percent(1 - window)} of its cache to the entries with the most "
        f"attention: after turn {turn}, {_held(run, turn)[old]} of its {run.trace.budget} entries "
        f"are still about topic {old}.",
        f"The marked entry got {percent(late)} of its score since then, by staying.",
    )
    link = {"scenario": "shift", "seed": f"{SEED}", "policies": "fifo,h2o", "turn": f"{turn}"}
    trial = "compare H2O with FIFO, which keeps the newest entries"
    task = f"Step back to turn {topic_start}, and see topic {old} stay."
    lights = {
        f"still about topic {old}": "past",
        "marked entry": f"{token}",
        "its score": "why",
    }
    return Chapter(
        run, turn, token, sentences, trial, "compare", link, task, "past why", lights
    )


def _returns() -> Chapter:
    run = _run("mixed", POLICY)
    turn, token = rescued(run)
    assert token is not None
    topic = run.dialogs.topic_label(int(run.dialogs.current[0, turn]))
    previous_rank = ranks_of(run, turn - 1)[token]
    rank = ranks_of(run, turn)[token]
    sentences = (
        f"Topic {topic} comes back in turn {turn}.",
        f"{run.policy.title} lets importance fade, but {_held(run, turn - 1)[topic]} of its "
        f"{run.trace.budget} entries are still about topic {topic} after turn {turn - 1}.",
        f"The policy ranks all entries and keeps the best {run.trace.budget}: the marked one "
        f"resembles the topic, and climbs from place {previous_rank} to place {rank}.",
    )
    link = {"scenario": "mixed", "seed": f"{SEED}", "policy": POLICY, "gamma": "0.6"}
    link |= {"turn": f"{turn}", "entry": f"{token}"}
    trial = "let importance fade faster (γ = 0.6)"
    task = "Step one turn back, and find the marked entry."
    lights = {f"still about topic {topic}": "past", "marked one": f"{token}"}
    lights[f"place {rank}"] = "decision"
    shows = "past decision"
    return Chapter(run, turn, token, sentences, trial, "step", link, task, shows, lights)


def _fails(failure: Failure, recordings: Sequence[Recording]) -> list[Chapter]:
    """Return a call whose argument is evicted, and the same call with that argument protected."""
    demand = failure.demand
    run = failure.run
    token = failure.token
    spoken = failure.run.dialog
    policy = run.policy
    assert isinstance(spoken, Spoken)
    needs = [need for need, _ in spoken.recording.evidence]
    tokens = spoken.recording.evidence[needs.index(demand)][1][-1]
    # The same run with the argument pinned: does the call then have all that it needs?
    pinned_run = build_run(replace(spoken, pinned=tokens), policy, Benchmark.budget)
    met = Evidence(pinned_run.trace, spoken.recording).lost[needs.index(demand)][0] < 0
    first_new, end = pinned_run.dialogs.bounds[0, demand.turn : demand.turn + 2]
    is_new = pinned_run.trace.kept_tokens[0, demand.turn] >= first_new
    new_tokens = int(end - first_new)
    remaining = int(np.isin(tokens, run.trace.kept_tokens[0, demand.turn - 1]).sum())
    value = f"“{demand.value}”"
    word = f"“{spoken.words[token]}”"
    lost = (
        f"Here, in turn {failure.turn}, {policy.title} evicts {word}, a word of the {demand.slot} "
        f"{value}.",
        f"In turn {demand.turn} a call of {demand.source} needs this {demand.slot}, and finds "
        f"{remaining or 'none'} of its {count(len(tokens), 'entry', 'entries')}.",
    )
    sentences = (
        f"With {value} protected, its {count(len(tokens), 'entry stays', 'entries stay')}, and "
        f"the call {'finds' if met else 'still lacks'} its argument.",
        f"The cache still has {count(_held(pinned_run, demand.turn).total(), 'entry', 'entries')}, "
        f"{int(is_new.sum()) or 'none'} of them from the {count(new_tokens, 'token')} of turn "
        f"{demand.turn}: protection saves only what it names.",
    )
    number = [recording.transcript.name for recording in recordings].index(spoken.name)
    link = {"file": "dialogues", "dialog": f"{number}", "policies": f"fifo,{POLICY}"}
    link |= {"budget": f"{Benchmark.budget}", "turn": f"{failure.turn}"}
    lights = {value: f"{token}", word: f"{token}", "evicts": "why", "The cache": "now"}
    trial = "read this dialog with two policies, word by word"
    task = "Click another evicted word, and read why."
    evicted = Chapter(
        run, failure.turn, token, lost, trial, "dialogs", link, task, "now why", lights
    )
    trial = "let a language model answer with evicted words restored"
    task = "Play from the first turn: the protected words stay."
    return_link = {"section": "back"}
    return [
        evicted,
        Chapter(
            pinned_run,
            demand.turn,
            token,
            sentences,
            trial,
            "answers",
            return_link,
            task,
            "now",
            lights,
        ),
    ]


LOSING, HEALING = "fifo", "sink"
"""The policies of this scene: the same but for the first tokens, which one evicts."""


def _sinks() -> Chapter:
    """Return what the first tokens are for, from shipped results on a pretrained model."""
    rows = changed_rows().set_index("policy")
    losing, healing = map(policy_named, (LOSING, HEALING))
    lost, healed = (percent(float(rows["mean"][name])) for name in (LOSING, HEALING))
    dialogs = count(int(rows.n[LOSING]), "dialog")
    sentences = (
        "Pretrained models put much attention on the first tokens, whatever these say: they are "
        "attention sinks.",
        f"{losing.title} evicts them, and {lost} of SmolLM2's likeliest next tokens change.",
        f"{healing.title} keeps the first {healing.settings['sinks'].default}, and {healed} "
        f"change ({dialogs}, room for {ENTRIES} tokens in each head).",
    )
    link = {"model": "smollm2", "file": "birthday", "policies": "fifo,h2o"}
    trial = "read what this model answers without a word that was evicted"
    return Chapter(None, 0, None, sentences, trial, "answers", link)


def closing() -> Chapter:
    """Return the last scene, from what policies cost a pretrained model."""
    sentences = (
        recommendation(),
        "Still open: larger models and longer dialogs. So compare policies on your own dialogs.",
    )
    link = {"file": "rental", "policies": "fifo,surprisal,learned"}
    trial = "get a verdict on a file of dialogs, such as your own"
    return Chapter(None, 0, None, sentences, trial, "dialogs", link)
