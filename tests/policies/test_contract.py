"""What every registered policy promises; a new one is found here by itself."""

import dataclasses
import math
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from fdkvc.core.arrays import LARGEST, one_dialog
from fdkvc.core.attention import Observation
from fdkvc.core.dialogs import DialogBatch, stack
from fdkvc.core.parameters import Parameter, defaults_of, parameters_of
from fdkvc.engine.online import OnlineCache
from fdkvc.engine.simulate import initial_state, simulate, take_turn
from fdkvc.engine.trace import Rule, Status, Trace
from fdkvc.policies import PAPER_POLICIES, POLICIES, policy_named, read_policy, wrapped
from fdkvc.policies.by_row import ByRow, by_row
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS, World
from tests.worlds import (
    STREAMING_POLICIES,
    all_entries,
    assert_same_run,
    by_token,
    columns,
    entries_of,
    random_dialog,
    random_vectors,
)

BUDGET = 20
SMALL = World(tokens_per_turn=12, dimension=16, head_dimension=4)

OPTIONS = (
    "window(fd-kvc)",
    "window(fd-kvc-adaptive kappa=2)",
    "surprisal window=0.25 redundancy=0.8",
    "h2o forgetting=0.88",
    "h2o forgetting=0.88 queries=each",
    "h2o window=0.25",
    "window(tova, share=0.3)",
    "window(whitelist(sink), share=0.3)",
    "sinks(fd-kvc tau=0.6, n=8)",
    "sinks(surprisal)",
    "blocks(sinks(h2o), size=4)",
    "whitelist(fd-kvc)",
    "whitelist(blocks(fd-kvc tau=0.6, size=5))",
    "whitelist(snapkv, first=2, speaker=user, most=0.3)",
    "whitelist(fifo, first=0, words=hotel+19)",
    "messages(fifo)",
    "messages(h2o, prompt=may leave)",
    "sinks(messages(fd-kvc tau=0.6))",
    "clear-results keep=0 trigger=9 exclude_tools=find clear_tool_inputs=yes",
    "turns(fd-kvc, picks=0.4)",
    "turns(h2o queries=each)",
    "turns(fastgen)",
    "blocks(fd-kvc, size=4)",
    "blocks(h2o window=0.3, size=3, score=largest)",
    "blocks(snapkv, size=8)",
    "blocks(fd-kvc tau=0.6, size=5)",
    "ada-heads(h2o)",
    "pyramid(snapkv)",
    *(f"{key} queries=each" for key in POLICIES if "queries" in parameters_of(POLICIES[key])),
)
"""Policies whose turn takes other steps than by default."""

every_policy = pytest.mark.parametrize("key", POLICIES)
every_turn = pytest.mark.parametrize("name", [*POLICIES, *OPTIONS])
HYPERPARAMETERS = [
    (key, name)
    for key in POLICIES
    for name, known in parameters_of(POLICIES[key]).items()
    if not known.pattern  # text has no range
]
every_hyperparameter = pytest.mark.parametrize(("key", "name"), HYPERPARAMETERS)


@pytest.fixture(scope="module")
def dialogs() -> DialogBatch:
    return generate(SCENARIOS["mixed"], dialogs=3, seed=1, world=SMALL)


@pytest.fixture(scope="module")
def traces(dialogs: DialogBatch) -> dict[str, Trace]:
    return {key: simulate(policy_named(key), dialogs, BUDGET) for key in POLICIES}


def test_the_papers_policies_are_registered_and_labels_differ() -> None:
    assert set(PAPER_POLICIES) <= set(POLICIES)
    labels = [policy.label for policy in POLICIES.values()]
    assert len(set(labels)) == len(labels)


@every_policy
def test_it_is_a_frozen_hashable_dataclass(key: str) -> None:
    policy = policy_named(key)

    assert dataclasses.is_dataclass(policy)
    assert policy == policy_named(key)
    assert hash(policy) == hash(policy_named(key))
    assert {policy: "found"}[policy_named(key)] == "found"
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.anything = 1  # type: ignore[attr-defined]


@every_policy
def test_it_says_what_it_is(key: str) -> None:
    policy = policy_named(key)

    for words in (policy.label, policy.idea, policy.source):
        assert isinstance(words, str)
        assert words.strip()
    assert policy.__doc__
    assert policy.idea.endswith(".")
    assert policy.steps
    for step in policy.steps:
        assert step.name
        assert step.equation
        assert step.source
    assert len({step.name for step in policy.steps}) == len(policy.steps)


@every_policy
def test_every_field_is_a_described_hyperparameter(key: str) -> None:
    parameters = parameters_of(POLICIES[key])

    assert set(parameters) == {field.name for field in dataclasses.fields(POLICIES[key])}
    for name, default in defaults_of(POLICIES[key]).items():
        facts = parameters[name]
        assert facts.label, name
        assert facts.help.endswith("."), name
        assert facts.accepts(default, type(default)), name
        if facts.paper:
            low, high = facts.paper
            assert facts.low <= low < high <= facts.high, name
            assert low <= default <= high, name


@every_turn
def test_steps_name_quantities_that_a_trace_holds(name: str, dialogs: DialogBatch) -> None:
    trace = simulate(read_policy(name), dialogs, BUDGET, stop=3)
    entries = all_entries(trace)
    held = {
        **dict.fromkeys(("score", "protected", "attention_before", "attention_after")),
        **entries.channels,
        **entries.terms,
        **entries.recorded,
        **trace.state,
    }

    assert set(trace.state) == set(trace.policy.initial_state())
    for step in trace.policy.steps:
        assert set(step.reads) <= set(held), step.name
        assert set(step.writes) <= set(held), step.name


@every_policy
def test_what_a_trace_holds_has_its_shape(key: str, traces: dict[str, Trace]) -> None:
    trace = traces[key]
    entries = entries_of(trace)
    tokens = 12 * SMALL.tokens_per_turn
    capacity = BUDGET if trace.policy.bounded else tokens
    rows, turns = 3, 12
    width = capacity + SMALL.tokens_per_turn

    assert trace.policy == policy_named(key)
    assert trace.turns == turns
    assert trace.kept_tokens.shape == (rows, turns, capacity)
    assert trace.budget == capacity
    assert trace.output.shape == (rows, turns, SMALL.head_dimension)
    assert trace.seconds.shape == (turns,)
    assert (trace.seconds > 0).all()
    assert set(trace.state) == set(trace.policy.initial_state())
    assert set(entries.channels) == set(trace.policy.channels)
    for name, column in columns(entries):
        by_turn = name.startswith("recorded ") and column.ndim == 2
        assert column.shape == ((rows, turns) if by_turn else (rows, turns, width)), name
    for record in (trace, entries):
        assert all(column.dtype != np.float64 for _, column in columns(record))
    for name, column in trace.state.items():
        assert column.shape == (rows, turns), name
        assert np.isfinite(column).all(), name


@every_policy
def test_nothing_that_goes_in_is_changed(key: str) -> None:
    dialogs = generate(SCENARIOS["mixed"], dialogs=2, seed=4, world=SMALL)
    copies = {name: column.copy() for name, column in columns(dialogs)}
    for _, column in columns(dialogs):
        column.flags.writeable = False
    policy = policy_named(key)
    state = initial_state(policy, 2, BUDGET, SMALL.head_dimension)

    for number in range(dialogs.turns):
        parts: list[Any] = [
            state.cache.token,
            *state.cache.channels.values(),
            *state.cache.state.values(),
        ]
        parts += [state.attended.weights, state.attended.modulated_weights, state.attended.output]
        kept = [part.copy() for part in parts]
        for part in parts:
            part.flags.writeable = False  # whoever writes is told at once
        result = take_turn(policy, state, dialogs.observe(number), BUDGET)
        for part, copy in zip(parts, kept, strict=True):
            np.testing.assert_array_equal(part, copy)
        state = result.end_state

    for name, column in columns(dialogs):
        np.testing.assert_array_equal(column, copies[name], err_msg=name)


@every_turn
@pytest.mark.filterwarnings("error")
def test_the_largest_numbers_that_are_accepted_do_no_harm(name: str) -> None:
    """Not in their own row, and not in the row of another dialog."""
    lengths, policy = [12] * 4, read_policy(name)
    vectors, _ = random_vectors(6, lengths)
    usual = one_dialog(**vectors, turn_lengths=lengths)
    alone = simulate(policy, usual, 7)
    draws = np.random.default_rng(0).standard_normal((4, 48, 12))
    for largest in (1e10, LARGEST):
        scaled = np.clip(draws * largest, -LARGEST, LARGEST)
        large = dict(zip(vectors, [*scaled, np.abs(scaled[0, :, 0])], strict=True))
        large |= {field: large[field][:, :4] for field in ("queries", "keys", "values")}
        batch = stack([one_dialog(**large, turn_lengths=lengths), usual])

        trace = simulate(policy, batch, 7)

        entries = all_entries(trace)
        assert np.isfinite(entries.score[entries.rank > 0]).all()
        assert np.isfinite(trace.output).all()
        size, held = max(policy.page_size, 1), (trace.kept_tokens >= 0).sum(axis=2)
        used = trace.budget // size * size or trace.budget  # but for what the last page has free
        # shift drops half at once, and others whole messages: more than they must.
        if policy.bounded and policy.key != "shift" and policy.page_size > 0:
            assert ((held > used - size) & (held <= trace.budget)).all()
        assert_same_run(alone, trace, 0, 1)


@every_policy
@pytest.mark.parametrize("gap", [0, 1, 3])
def test_a_turn_without_tokens_changes_nothing(key: str, gap: int) -> None:
    lengths = [9, 14, 11]
    vectors, _ = random_vectors(2, lengths)
    policy = policy_named(key)
    plain = simulate(policy, one_dialog(**vectors, turn_lengths=lengths), BUDGET)
    lengths.insert(gap, 0)
    gapped = simulate(policy, one_dialog(**vectors, turn_lengths=lengths), BUDGET)
    entries, without = all_entries(gapped), dict(columns(all_entries(plain)))
    run = dict(columns(plain))

    # The turns with tokens are as they would be without it.
    others = [turn for turn in range(4) if turn != gap]
    for name, column in columns(gapped):
        np.testing.assert_array_equal(column[:, others], run[name], err_msg=name)
    for name, column in columns(entries):
        np.testing.assert_array_equal(column[:, others], without[name], err_msg=name)

    # The turn itself repeats what was there.
    if gap:
        before, after = gapped.result(gap - 1).end_state, gapped.result(gap).end_state
        np.testing.assert_array_equal(after.cache.token, before.cache.token)
        np.testing.assert_array_equal(
            after.attended.modulated_weights, before.attended.modulated_weights
        )
        np.testing.assert_array_equal(after.attended.output, before.attended.output)
        for name, channel in after.cache.channels.items():
            np.testing.assert_array_equal(channel, before.cache[name], err_msg=name)
        for name, value in after.cache.state.items():
            np.testing.assert_array_equal(value, before.cache.state[name], err_msg=name)
    else:
        assert not gapped.output[0, 0].any()
        for name, start in policy.initial_state().items():
            assert gapped.state[name][0, 0] == np.float32(start)
    for name, column in entries.recorded.items():
        assert np.isnan(column[0, gap]).all(), name
    assert set(np.unique(entries.status[0, gap])) <= {Status.empty, Status.kept}
    assert (entries.rule[0, gap] == Rule.none).all()
    assert gapped.evicted["budget"][0, gap] == gapped.evicted["threshold"][0, gap] == 0


@pytest.mark.parametrize("name", [*STREAMING_POLICIES, *OPTIONS])
def test_fed_turn_by_turn_it_decides_the_same(name: str) -> None:
    lengths = [9, 0, 14, 1, 11, 20]
    vectors, _ = random_vectors(3, lengths)
    trace = simulate(read_policy(name), one_dialog(**vectors, turn_lengths=lengths), BUDGET)
    entries = all_entries(trace)
    cache = OnlineCache(read_policy(name), BUDGET)
    ends = np.cumsum(lengths)

    for turn, (low, high) in enumerate(zip(ends - lengths, ends, strict=True)):
        fed = cache.feed(**{name: array[low:high] for name, array in vectors.items()})
        kept = trace.kept_tokens[0, turn]
        assert fed.kept_tokens.tolist() == kept[kept >= 0].tolist()
        np.testing.assert_allclose(fed.output, trace.output[0, turn], rtol=1e-4, atol=1e-5)
        weights = by_token(entries, entries.attention_after, 0, turn)
        np.testing.assert_allclose(fed.attention, list(weights.values()), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("key", set(POLICIES) - set(STREAMING_POLICIES))
def test_who_looks_at_the_future_is_refused_by_a_stream(key: str) -> None:
    sentence = (
        f"{POLICIES[key].label} looks at the future of the dialog, which a stream does not have"
    )
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        OnlineCache(policy_named(key), BUDGET)


class Spy(Observation):
    """An observation that writes down what it is asked for."""

    asked: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        Spy.asked.add(name)
        return super().__getattribute__(name)


LOOKS = {
    "position": "positions",
    "born": "positions",
    "keys": "keys",
    "values": "values",
    "queries": "queries",
    "attention": "attention",
    "attention_of_each": "attention",
    "similarity": "similarity",
    "repetition": "similarity",
    "surprisal": "surprisal",
    "future_attention": "future",
    "spoken_by": "speakers",
    "is_kind": "kinds",
    "is_tool": "kinds",
    "is_word": "words",
    "traits": "traits",
}


@every_turn
def test_it_looks_at_what_it_declares(name: str, dialogs: DialogBatch) -> None:
    policy = read_policy(name)
    state = initial_state(policy, 3, policy.capacity(BUDGET, 144), SMALL.head_dimension)
    Spy.asked.clear()
    for number in range(4):
        plain = dialogs.observe(number)
        turn = Spy(plain.turn, plain.new, plain.tokens)
        budget = policy.capacity(BUDGET, 144)
        state = take_turn(policy, state, turn, budget).end_state
    looked = {LOOKS[attribute] for attribute in Spy.asked if attribute in LOOKS}

    assert policy.looks_at
    if "chance" in policy.looks_at:
        return
    declared = set(policy.looks_at) - {"history"}
    window = any(step.kind == "protect" for step in policy.steps)
    assert looked <= declared
    assert policy.queries == "each" or "attention_of_each" not in Spy.asked
    assert declared - looked <= ({"positions"} if window or policy.key == "fastgen" else set())
    assert ("history" in policy.looks_at) == bool(policy.channels)


def refused(known: Parameter, kind: type) -> list[Any]:
    """Values out of range or of the wrong kind."""
    if known.choices:
        return ["no such choice", 1, math.nan]
    wrong: list[Any] = [math.nan, math.inf, -math.inf, "0.5", None, True]
    if kind is int:
        wrong.append(0.5)
    if math.isfinite(known.low):
        wrong += [known.low if known.open_low else known.low - 1, known.low - 0.001]
    if math.isfinite(known.high):
        wrong += [known.high if known.open_high else known.high + 1, known.high + 0.001]
    return wrong


@every_hyperparameter
def test_an_out_of_range_hyperparameter_gets_one_clear_sentence(key: str, name: str) -> None:
    policy = policy_named(key)
    parameter = parameters_of(policy)[name]
    kind = type(getattr(policy, name))

    for value in refused(parameter, kind):
        sentence = f"{name} is {value!r}, but must be {parameter.allowed(kind)}"
        for make in (policy.variant, lambda **given: policy_named(key, **given), POLICIES[key]):
            with pytest.raises(ValueError) as refusal:  # noqa: PT011 the sentence is compared
                make(**{name: value})
            assert str(refusal.value) == sentence


@pytest.mark.long
@every_turn
def test_rows_with_values_of_their_own_come_out_as_if_alone(
    name: str, dialogs: DialogBatch
) -> None:
    # To where a topic returns; a row has nothing of the products of the whole dialog.
    policy, dialog = read_policy(name), dialogs.row(0)
    twice = stack([dialog] * 2)
    decided = partial(simulate, budget=BUDGET, entries=False, outputs_from=dialog.turns, stop=8)
    for parameter, field in policy.settings.items():
        if not field.by_row:
            continue
        width = min(field.high, 8) - field.low
        values = [field.kind(field.low + width * share) for share in (0.04, 0.73)]

        together = decided(by_row(policy, parameter, values), twice)

        for row, value in enumerate(values):
            alone = decided(policy.variant(**{parameter: value}), dialog)
            np.testing.assert_array_equal(
                together.kept_tokens[row], alone.kept_tokens[0], err_msg=parameter
            )
            for one, other in (
                (together.end_state.cache.channels, alone.end_state.cache.channels),
                (together.end_state.cache.state, alone.end_state.cache.state),
            ):
                for quantity, column in one.items():
                    np.testing.assert_array_equal(
                        column[row], other[quantity][0], err_msg=f"{parameter}: {quantity}"
                    )


def test_values_by_row_are_not_for_branches() -> None:
    with pytest.raises(TypeError, match="a number for each row is neither true nor"):
        bool(ByRow([1, 1]))


@pytest.mark.parametrize("budget", [0, -1, 1.5, math.nan, "56", None, True])
def test_a_budget_must_be_a_whole_number_of_at_least_1(budget: Any) -> None:
    sentence = f"budget is {budget!r}, but must be a whole number of at least 1"
    dialogs = random_dialog(0, [2])

    for use in (
        lambda: simulate(policy_named("fifo"), dialogs, budget),
        lambda: OnlineCache(policy_named("fifo"), budget),
    ):
        with pytest.raises(ValueError) as refusal:  # noqa: PT011 the sentence is compared
            use()
        assert str(refusal.value) == sentence


@pytest.mark.parametrize("name", ["fifo", "h2o", "pyramid(blocks(tova, size=2))"])
def test_a_budget_may_be_a_whole_number_of_numpy(name: str) -> None:
    policy = read_policy(name)
    dialogs = generate(SCENARIOS["shift"])
    budget: Any = np.int64(8)
    trace = simulate(policy, dialogs, budget)
    assert type(trace.budget) is int
    np.testing.assert_array_equal(trace.kept_tokens, simulate(policy, dialogs, 8).kept_tokens)
    vectors = np.eye(9)
    cache = OnlineCache(policy, budget)
    turn = cache.feed(queries=vectors, keys=vectors, values=vectors, embeddings=vectors)
    assert 0 < len(turn.kept_tokens) <= 8  # a page that is not full wastes a slot


def test_a_choice_that_is_a_list_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"speaker is .'user'., but must be one of nobody, user"):
        wrapped("whitelist", policy_named("fifo"), speaker=["user"])  # type: ignore[arg-type]


def test_no_hyperparameter_is_named_like_another_part_of_a_link() -> None:
    taken = {"scenario", "schedule", "seed", "budget", "policy", "turn", "entry", "order"}
    taken |= set(parameters_of(World))
    for policy in POLICIES.values():
        assert not taken & set(parameters_of(policy)), policy.key
