"""The engine against the oracle, in every decision and every number.

The oracle computes in double precision, the engine in single. Where the oracle's own margin is
at most 1e-6 the two may part, so a dialog is compared up to there; a tally makes sure that this
is nearly everything. A tie is no such place: both keep the older (new entries tie where w_c = 1,
and where their cosine with the query is not positive; two keys are equally unlike their mean).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import compress

import numpy as np
import pytest

from fdkvc.core.dialogs import DialogBatch, stack
from fdkvc.core.parameters import parameters_of
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Trace
from fdkvc.policies import PAPER_POLICIES, POLICIES, Policy, policy_named, read_policy
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS, World
from tests import reference
from tests.worlds import (
    CLEAR,
    ORACLE_POLICIES,
    WORDS,
    entries_of,
    evictions,
    kept_tokens,
    live,
    oracle,
    random_dialog,
)


@dataclasses.dataclass
class Tally:
    """How many turns were compared, of how many, and what happened in them."""

    compared: int = 0
    turns: int = 0
    evicted: int = 0
    below_threshold: int = 0

    def nearly_all(self) -> bool:
        return self.compared >= 0.9 * self.turns


def agree(
    tokens: Sequence[int],
    computed: np.ndarray,
    theirs: Mapping[int, float],
    what: str,
    tolerance: float,
) -> None:
    """Assert that two columns hold the same tokens and close numbers; NaN is of no token."""
    finite = ~np.isnan(computed)
    if not finite.all():
        tokens, computed = [*compress(tokens, finite)], computed[finite]
    assert theirs.keys() == set(tokens), what
    numbers = np.array([theirs[token] for token in tokens])
    close = np.abs(computed - numbers) <= tolerance * (1 + np.abs(numbers))
    assert close.all(), f"{what}: tokens {[*compress(tokens, ~close)]}"


def rounding(trace: Trace, dialogs: DialogBatch, row: int, old: list[int], turn: int) -> float:
    """How far single precision may move a relevance in this turn.

    Eq. 4 divides by the spread of the old entries' cosines, each rounded to about 1e-7.
    """
    if not old:
        return 0.0
    tokens = dialogs.embeddings[row].astype(float)
    low, high = dialogs.bounds[row, turn : turn + 2]
    mean = tokens[low:high].mean(axis=0)
    lengths = np.linalg.norm(tokens[old], axis=1) * np.linalg.norm(mean)
    spread = np.ptp(tokens[old] @ mean / lengths)
    return 3e-7 / spread if spread > 0 else 0.0


def compare(trace: Trace, dialogs: DialogBatch, row: int = 0) -> Tally:
    """Assert that a row's trace says what the oracle says, turn by turn while it is sure."""
    turns = oracle(dialogs, row, trace.policy, trace.budget)
    entries = entries_of(trace)
    tally = Tally(turns=len(turns))
    tolerance = 2e-5
    old: list[int] = []
    for number, turn in enumerate(turns):
        if 0 < turn.margin <= CLEAR:
            break
        tally.compared += 1
        place = f"turn {number}"
        has_tokens = dialogs.bounds[row, number + 1] > dialogs.bounds[row, number]
        if has_tokens and "recency" in entries.channels:
            tolerance += rounding(trace, dialogs, row, old, number)
        old = turn.kept

        # Decisions, exactly.
        assert kept_tokens(trace, row, number) == turn.kept, place
        assert evictions(entries, row, number) == turn.evicted, place
        for rule in ("budget", "threshold"):
            count = sum(cause == rule for cause in turn.evicted.values())
            assert trace.evicted[rule][row, number] == count, place
        slots = live(entries, row, number)
        protected = entries.token[row, number, slots[entries.protected[row, number, slots]]]
        if has_tokens:  # without tokens nothing was decided
            assert set(protected.tolist()) == turn.protected, place
        tally.evicted += len(turn.evicted)
        tally.below_threshold += int(trace.evicted["threshold"][row, number])

        # Numbers, closely.
        columns = {
            "attention before": (entries.attention_before, turn.before),
            "attention after": (entries.attention_after, turn.after),
        }
        for name, channel in entries.channels.items():
            columns[name] = (
                channel,
                {token: channels[name] for token, channels in turn.channels.items()},
            )
        if has_tokens:  # without tokens nothing was scored
            columns["score"] = entries.score, turn.scores
            for name, term in entries.terms.items():
                numbers = {token: terms[name] for token, terms in turn.terms.items()}
                columns[f"term {name}"] = term, numbers
        tokens = entries.token[row, number, slots].tolist()
        for name, (column, theirs) in columns.items():
            agree(tokens, column[row, number, slots], theirs, f"{place}: {name}", tolerance)
        assert set().union(*turn.terms.values()) <= entries.terms.keys()
        assert set().union(*turn.channels.values()) <= entries.channels.keys()
        output = dict(enumerate(turn.output))
        agree([*output], trace.output[row, number], output, f"{place}: output", tolerance)
        for name, value in turn.states.items():
            assert trace.state[name][row, number] == pytest.approx(value, abs=tolerance), place
    return tally


def compare_all(trace: Trace, dialogs: DialogBatch, tally: Tally | None = None) -> Tally:
    """Compare every row, and add up what was compared."""
    tally = tally or Tally()
    for row in range(dialogs.rows):
        one = compare(trace, dialogs, row)
        tally.compared += one.compared
        tally.turns += one.turns
        tally.evicted += one.evicted
        tally.below_threshold += one.below_threshold
    return tally


def random_settings(random: np.random.Generator, key: str) -> Policy:
    """Draw hyperparameters: from the valid range, from the paper's range, or an end of one."""
    chosen: dict[str, float | int | str] = {}
    for name, field in parameters_of(POLICIES[key]).items():
        if name not in reference.DEFAULTS[key]:
            continue  # the oracle has the default only
        if field.choices:
            chosen[name] = str(random.choice(tuple(field.choices)))
            continue
        low, high = (
            field.paper if field.paper and random.random() < 0.5 else (field.low, field.high)
        )
        value = random.uniform(low, high)
        if random.random() < 0.15:
            end = field.low if random.random() < 0.5 else field.high
            if field.accepts(end, float):
                value = end
        chosen[name] = type(reference.DEFAULTS[key][name])(value)
    if "tau" in chosen and random.random() < 0.5:
        chosen["tau"] = float(random.uniform(0.2, 0.7))  # large enough to evict
    return policy_named(key, **chosen)


generated = lru_cache(maxsize=32)(generate)
"""The same dialogs for every policy, of which the oracle then works out once what all share."""

TWELVE_TURNS = dataclasses.replace(
    SCENARIOS["complex"], schedule=SCENARIOS["complex"].schedule[:12]
)
"""Enough for a topic to come back, and for 20 tokens a turn to fill 100 places twice."""


@lru_cache(maxsize=1)
def drawn_from_scenarios() -> list[DialogBatch]:
    """Draw four dialogs of each scenario, each in a world of its own."""
    random = np.random.default_rng(5)
    return [
        generate(
            scenario,
            dialogs=1,
            seed=int(random.integers(1000)),
            world=World(
                tokens_per_turn=int(random.integers(1, 25)),
                dimension=int(random.integers(8, 33)),
                head_dimension=int(random.integers(1, 17)),
                noise=float(random.choice([0.05, 0.2, 0.8])),
            ),
        )
        for scenario in SCENARIOS.values()
        for _ in range(4)
    ]


@lru_cache(maxsize=1)
def drawn_ragged() -> list[DialogBatch]:
    """Draw batches whose rows differ in turns and in tokens a turn, of which some have none."""
    random = np.random.default_rng(6)
    batches = []
    for batch in range(30):
        world = {
            "dimension": int(random.integers(4, 20)),
            "head_dimension": int(random.integers(1, 9)),
            "noise": float(random.choice([0.05, 0.3, 1.0])),
        }
        rows = []
        for row in range(3):
            lengths = random.integers(1, 25, size=random.integers(1, 11))
            lengths[random.random(len(lengths)) < 0.2] = 0
            lengths[-1] = random.integers(1, 25)
            rows.append(random_dialog([6, batch, row], lengths.tolist(), **world))
        batches.append(stack(rows))
    return batches


@lru_cache(maxsize=1)
def drawn_with_words() -> list[DialogBatch]:
    """Draw dialogs of which it is known who speaks, and of which word each token is."""
    random = np.random.default_rng(7)
    drawn = []
    for batch in range(4):
        lengths = random.integers(1, 20, size=9)
        lengths[random.random(9) < 0.2] = 0
        lengths[-1] = random.integers(1, 20)
        dialogs = random_dialog([7, batch], lengths.tolist(), dimension=8, head_dimension=4)
        said = random.integers(2, size=dialogs.turns).repeat(lengths)[None]
        words = random.choice([*WORDS], size=(1, sum(lengths)))
        drawn.append(dataclasses.replace(dialogs, speakers=said, words=words))
    return drawn


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(key, marks=() if key in PAPER_POLICIES else pytest.mark.long)
        for key in ORACLE_POLICIES
    ],
)
def test_agreement_in_the_papers_world(key: str) -> None:
    tally = Tally()
    for scenario in SCENARIOS.values():
        dialogs = generated(scenario, dialogs=1, seed=3)
        compare_all(simulate(policy_named(key), dialogs, budget=56), dialogs, tally)

    assert tally.turns == 83
    assert tally.evicted > 2000 or not policy_named(key).bounded
    assert tally.nearly_all(), tally


@pytest.mark.long
@pytest.mark.parametrize("drawn", [drawn_from_scenarios, drawn_ragged])
@pytest.mark.parametrize("key", ORACLE_POLICIES)
def test_agreement_with_random_settings(key: str, drawn: Callable[[], list[DialogBatch]]) -> None:
    random = np.random.default_rng(6)
    tally = Tally()
    for dialogs in drawn():
        budget = int(random.choice([1, 2, 5, 30, 56, 200]))
        compare_all(simulate(random_settings(random, key), dialogs, budget), dialogs, tally)

    assert tally.evicted > 500 or not policy_named(key).bounded
    assert tally.below_threshold > 100 or key != "fd-kvc"
    assert tally.nearly_all(), tally


@pytest.mark.parametrize(
    "settings",
    [
        {"w_c": 0.0},
        {"w_c": 1.0},
        {"tau": 1.0},
        {"tau": 0.5, "w_c": 0.9},
        {"alpha_0": 0.0},
        {"mu": 10.0, "alpha_0": 2.0},
        {"beta": 0.0},
        {"beta": 4.0},
        {"gamma": 1e-6},
        {"gamma": 1 - 1e-6},
    ],
    ids=str,
)
def test_agreement_at_the_ends_of_fd_kvcs_ranges(settings: dict[str, float]) -> None:
    dialogs = generated(SCENARIOS["mixed"], dialogs=3, seed=8)

    tally = compare_all(simulate(policy_named("fd-kvc", **settings), dialogs, budget=56), dialogs)

    assert tally.nearly_all(), tally


@pytest.mark.parametrize("key", ORACLE_POLICIES)
@pytest.mark.parametrize(("budget", "tokens"), [(1, 1), (1, 40), (2, 3), (100, 1), (100, 20)])
def test_agreement_at_small_and_large_budgets(key: str, budget: int, tokens: int) -> None:
    world = World(tokens_per_turn=tokens)
    dialogs = generated(TWELVE_TURNS, dialogs=1, seed=3, world=world)

    tally = compare_all(simulate(policy_named(key), dialogs, budget), dialogs)

    assert tally.nearly_all(), tally


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "window(tova, share=0.3)",
        "window(fd-kvc w_c=0.2, share=0.75)",
        "window(h2o forgetting=0.9, share=0.75)",
        "window(fd-kvc-adaptive, share=0.25)",
        "blocks(surprisal window=0, size=4)",
        "sinks(fd-kvc tau=0.6, n=6)",
        "sinks(surprisal window=0)",
        "window(sinks(tova, n=3), share=0.3)",
        "whitelist(fd-kvc tau=0.7, first=2, most=0.4)",
        "whitelist(h2o-mean queries=each, first=2, at_turn=4, most=0.4)",
        "whitelist(fd-kvc, first=0, speaker=user, most=0.7)",
        "whitelist(knorm, first=0, words=hotel+19, most=0.3)",
        "turns(tova, picks=0.4)",
        "turns(fd-kvc tau=0, picks=0.1)",
        "turns(keydiff, picks=0)",
        "window(turns(knorm), share=0.2)",
        "blocks(fifo, size=8)",
        "blocks(tova, size=5)",
        "blocks(keydiff, size=16, score=largest)",
        "blocks(h2o window=0 queries=each, size=3)",
        "blocks(turns(tova, picks=0.5), size=4, score=largest)",
    ],
)
def test_agreement_of_what_stands_around_policies(name: str) -> None:
    tally, policy = Tally(), read_policy(name)
    for dialogs in drawn_with_words():
        for budget in (4, 20, 37):
            compare_all(simulate(policy, dialogs, budget), dialogs, tally)

    assert tally.evicted > 500
    assert tally.nearly_all(), tally
