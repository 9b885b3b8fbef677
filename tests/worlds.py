"""Shared by the engine's tests: random dialogs and policies, the oracle, comparisons."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from fdkvc.core.arrays import one_dialog
from fdkvc.core.attention import SPEAKERS, TRAITS, word_id
from fdkvc.core.cache import EMPTY
from fdkvc.core.dialogs import DialogBatch, stack
from fdkvc.core.parameters import Parameter, defaults_of, parameters_of
from fdkvc.core.recordings import Recording
from fdkvc.engine.evidence import Evidence
from fdkvc.engine.metrics import Adaptation, adaptation, metrics_of, retention
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import EntryTrace, Rule, State, Status, Trace
from fdkvc.policies import POLICIES, Policy, policy_named
from fdkvc.policies.wrapper import Wrapper, inside
from tests import reference

CLEAR = 1e-6
"""A decision with a larger margin must be the same in float32."""

WORDS = {word_id(word): word for word in ("hotel", "train", "19")}
"""Words of random dialogs."""

RULES = {rule.value: rule.name for rule in Rule}

NUMBER = 2e-5
"""Relative or absolute tolerance of a turn's numbers if sums are rounded in another order."""

ORACLE_POLICIES = tuple(key for key in POLICIES if key in reference.POLICIES)

STREAMING_POLICIES = tuple(key for key in POLICIES if "future" not in policy_named(key).looks_at)
"""Policies for a stream: all that do not look at the future."""

EAST, NORTH = [1.0, 0.0], [0.0, 1.0]
"""Tokens of two dimensions, for dialogs worked by hand."""

EVICTING = policy_named("fd-kvc", tau=0.6, w_c=0, alpha_0=1)
"""A policy whose threshold evicts, which leaves holes in the cache."""

Numbers = NDArray[Any]


def pointing(*turns: list[list[float]], topics: Sequence[str | None] | None = None) -> DialogBatch:
    """Make a dialog whose tokens are vectors, which are their embeddings, queries and keys."""
    tokens = [token for turn in turns for token in turn]
    return one_dialog(
        embeddings=tokens,
        queries=tokens,
        keys=tokens,
        values=tokens,
        turn_lengths=[len(turn) for turn in turns],
        turn_topics=topics,
    )


def random_vectors(
    seed: int | Sequence[int],
    lengths: Sequence[int],
    dimension: int = 12,
    head_dimension: int = 4,
    noise: float = 0.1,
    topics: int = 3,
) -> tuple[dict[str, Any], list[str]]:
    """Draw the arrays of a dialog with these tokens a turn, and the topic of each turn.

    Every topic is a direction, every token its turn's topic and noise, as in the paper; queries,
    keys and values are random projections of it.
    """
    random = np.random.default_rng(seed)
    directions = np.linalg.qr(random.normal(size=(dimension, dimension)))[0][:topics]
    topic = random.integers(len(directions), size=len(lengths))
    embeddings = 0.8 * directions[np.repeat(topic, lengths)]
    embeddings = embeddings + noise * random.normal(size=embeddings.shape)
    projections = random.normal(size=(3, dimension, head_dimension)) / math.sqrt(dimension)
    projected = dict(zip(("queries", "keys", "values"), embeddings @ projections, strict=True))
    given = {
        "embeddings": embeddings,
        **projected,
        "surprisal": random.exponential(3, len(embeddings)),
    }
    return given, ["ABCDEFGH"[index] for index in topic]


def random_dialog(seed: int | Sequence[int], lengths: Sequence[int], **world: Any) -> DialogBatch:
    """Draw a dialog with these tokens a turn; `world` is what `random_vectors` takes."""
    vectors, topics = random_vectors(seed, lengths, **world)
    dialog = one_dialog(**vectors, turn_lengths=lengths, turn_topics=topics)
    # Rows of a batch share their topics' names.
    order = np.array(["ABCDEFGH".index(name) for name in dialog.topic_names])
    current = order[dialog.current]
    bits = np.repeat(np.uint32(1) << current.astype(np.uint32), lengths, axis=1)
    return dataclasses.replace(
        dialog,
        current=current,
        topic_bits=bits,
        topic_names=tuple("ABCDEFGH"),
        traits=random_traits(seed, sum(lengths))[None],
    )


def said(
    words: str, surprisal: list[float] | None, turn_lengths: list[int], policy: Policy, budget: int
) -> Trace:
    """Run words, each letter a word with a direction of its own; each query asks all alike."""
    embeddings = np.eye(26)[[ord(letter) - ord("a") for letter in words]]
    alike = np.zeros((len(words), 2))
    dialog = one_dialog(
        embeddings=embeddings,
        queries=alike,
        keys=alike,
        values=alike,
        turn_lengths=turn_lengths,
        surprisal=surprisal,
    )
    return simulate(policy, dialog, budget)


def random_traits(seed: int | Sequence[int], tokens: int) -> NDArray[np.float32]:
    """Draw the traits of tokens (N, F): one of nine words or none, and any numbers beside."""
    random = np.random.default_rng(seed)
    traits = random.normal(size=(tokens, len(TRAITS))).astype(np.float32)
    traits[:, TRAITS.index("word")] = random.integers(10, size=tokens)
    return traits


def plain_dialog(
    turns: Sequence[Sequence[float]],
    *,
    keys: Sequence[float] | None = None,
    topics: Sequence[str | None] | None = None,
) -> DialogBatch:
    """Make a dialog whose tokens are single numbers, given turn by turn; values are 1."""
    tokens = np.array([[number] for turn in turns for number in turn])
    return one_dialog(
        embeddings=tokens,
        queries=np.ones_like(tokens),
        keys=tokens if keys is None else np.array(keys)[:, None],
        values=np.ones_like(tokens),
        turn_lengths=[len(turn) for turn in turns],
        turn_topics=topics,
        surprisal=np.ones(len(tokens)),
    )


def turn_lengths(turns: int = 6, tokens: int = 9, first: int = 0) -> st.SearchStrategy[list[int]]:
    """Draw the tokens of each turn; some turns have none, the dialog has at least one."""
    return st.lists(st.integers(first, tokens), min_size=1, max_size=turns).filter(any)


@st.composite
def dialogs(draw: st.DrawFn, rows: int = 1, turns: int = 6, tokens: int = 9) -> list[DialogBatch]:
    """Draw up to `rows` dialogs of one world, ragged in turns and in tokens a turn."""
    world = {
        "dimension": draw(st.integers(1, 16)),
        "head_dimension": draw(st.integers(1, 9)),
        "noise": draw(st.sampled_from([0.05, 0.3, 1.0])),
    }
    lengths = draw(st.lists(turn_lengths(turns, tokens), min_size=1, max_size=rows))
    seed = draw(st.integers(0, 2**32))
    return [random_dialog([seed, row], counts, **world) for row, counts in enumerate(lengths)]


@st.composite
def ragged(draw: st.DrawFn, rows: int = 4) -> DialogBatch:
    """Draw a batch whose rows differ in turns and in tokens a turn."""
    return stack(draw(dialogs(rows)))


def values_of(known: Parameter, kind: type) -> st.SearchStrategy[Any]:
    """Draw from all of a hyperparameter's valid range, its ends included."""
    if known.choices:
        return st.sampled_from(tuple(known.choices))
    if known.pattern:
        return st.just("")
    if kind is int:
        return st.integers(int(known.low), int(known.high))
    return st.floats(known.low, known.high, exclude_min=known.open_low, exclude_max=known.open_high)


@st.composite
def policies(draw: st.DrawFn, keys: Sequence[str] = tuple(POLICIES)) -> Policy:
    """Draw a registered policy; each hyperparameter stays at its default or is any valid one."""
    key = draw(st.sampled_from(keys))
    defaults = defaults_of(POLICIES[key])
    return policy_named(
        key,
        **{
            name: draw(st.just(defaults[name]) | values_of(known, type(defaults[name])))
            for name, known in parameters_of(POLICIES[key]).items()
        },
    )


@lru_cache(maxsize=128)
def told_to_the_oracle(dialogs: DialogBatch, row: int) -> reference.Dialog:
    """Convert a row to plain numbers, once for all policies."""
    embeddings = dialogs.embeddings[row].astype(float)
    if dialogs.queries is not None:
        queries = dialogs.queries[row].astype(float)
    else:
        queries = embeddings @ dialogs.projection("query")[row].astype(float)
    bounds = dialogs.bounds[row, : dialogs.turn_counts[row] + 1].tolist()
    return reference.Dialog(
        [list(range(low, high)) for low, high in pairwise(bounds)],
        embeddings.tolist(),
        queries.tolist(),
        dialogs.keys[row].tolist(),
        dialogs.values[row].tolist(),
        surprisal=[] if dialogs.surprisal is None else dialogs.surprisal[row].tolist(),
        traits=[]
        if dialogs.traits is None
        else [dict(zip(TRAITS, numbers, strict=True)) for numbers in dialogs.traits[row].tolist()],
    )


def speakers_of_turns(dialogs: DialogBatch, row: int) -> list[str]:
    """Return who speaks first in each turn, if that is known; anybody in one without tokens."""
    if dialogs.speakers is None:
        return []
    first = np.minimum(dialogs.bounds[row, :-1], dialogs.bounds[row, -1] - 1)
    return [SPEAKERS[speaker] for speaker in dialogs.speakers[row, first]]


def oracle(dialogs: DialogBatch, row: int, policy: Policy, budget: int) -> list[reference.Turn]:
    """Run the oracle on one row, in double precision."""
    around = [
        reference.Around(
            wrapper.key,
            {name: getattr(wrapper, name) for name in parameters_of(wrapper)},
            speakers_of_turns(dialogs, row),
            [] if dialogs.words is None else [WORDS[key] for key in dialogs.words[row].tolist()],
        )
        for wrapper in inside(policy)
        if isinstance(wrapper, Wrapper)
    ]
    policy = policy.core
    known = reference.DEFAULTS[policy.key]
    settings = dataclasses.asdict(policy)
    assert all(
        settings[name] == default
        for name, default in defaults_of(policy).items()
        if name not in known
    ), "the oracle does not know this hyperparameter"
    return reference.run(
        policy.key,
        {name: settings[name] for name in known},
        budget,
        told_to_the_oracle(dialogs, row),
        around[::-1],
    )


def live(entries: EntryTrace, row: int, turn: int) -> NDArray[np.intp]:
    """Slots of the entries that compete for the budget: old ones above the threshold, and new."""
    status, rule = entries.status[row, turn], entries.rule[row, turn]
    return np.flatnonzero((status != Status.empty) & (rule != Rule.threshold))


def by_token(entries: EntryTrace, column: Numbers, row: int, turn: int) -> dict[int, float]:
    """Return a column's numbers of one turn by token."""
    slots = live(entries, row, turn)
    numbers = column[row, turn, slots]
    known = ~np.isnan(numbers)
    tokens = entries.token[row, turn, slots[known]]
    return dict(zip(tokens.tolist(), numbers[known].tolist(), strict=True))


def evictions(entries: EntryTrace, row: int, turn: int) -> dict[int, str]:
    """Return the rule that evicted each token of one turn."""
    token, rule = entries.token[row, turn], entries.rule[row, turn]
    gone = rule != 0
    rules = [RULES[number] for number in rule[gone].tolist()]
    return dict(zip(token[gone].tolist(), rules, strict=True))


def kept_tokens(trace: Trace, row: int, turn: int) -> list[int]:
    """Return the tokens cached at the end of a turn, in the order of their slots."""
    slots = trace.kept_tokens[row, turn - trace.first_turn]
    kept: list[int] = slots[slots >= 0].tolist()
    return kept


def all_entries(trace: Trace) -> EntryTrace:
    """Return the entries of all turns, as arrays (B, T, W); NaN or 0 in slots beyond a turn's."""
    turns = range(trace.first_turn, trace.first_turn + trace.turns)
    by_turn = [trace.entries_in(turn) for turn in turns]

    def whole(name: str) -> Any:
        columns = [getattr(one, name) for one in by_turn]
        if not isinstance(columns[0], Mapping):
            return _padded(columns, EMPTY if name == "token" else 0)
        return {key: _padded([column[key] for column in columns]) for key in columns[0]}

    return EntryTrace(**{field.name: whole(field.name) for field in dataclasses.fields(EntryTrace)})


def _padded(columns: Sequence[NDArray[Any]], empty: int = 0) -> NDArray[Any]:
    """Stack columns of turns, (B, W) of any width or (B,), with NaN or `empty` in the rest."""
    first = columns[0]
    widest = map(max, zip(*(column.shape[1:] for column in columns), strict=True))
    shape = (len(first), len(columns), *widest)
    stacked = np.full(shape, np.nan if first.dtype.kind == "f" else empty, first.dtype)
    for turn, column in enumerate(columns):
        stacked[:, turn][(slice(None), *map(slice, column.shape[1:]))] = column
    return stacked


entries_of = lru_cache(maxsize=32)(all_entries)
"""Entries of a trace, cached because building them takes longer than comparing a row."""


def columns(record: Trace | EntryTrace | State | DialogBatch) -> Iterator[tuple[str, Numbers]]:
    """Yield every array of a record but its times, with a name."""
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, np.ndarray) and field.name != "seconds":
            yield field.name, value
        elif isinstance(value, Mapping):
            yield from ((f"{field.name} {name}", column) for name, column in value.items())


def assert_same_run(
    one: Trace, other: Trace, row: int = 0, other_row: int = 0, last: int | None = None
) -> None:
    """Assert that two traces of a row are bit-identical.

    They are compared over the turns that both have, up to `last`; slots that only one has must
    be empty. A cache without a budget has as many slots as the longest dialog of its batch has
    tokens, so its attention and output are promised within a tolerance only; see
    `fdkvc.core.attention`.
    """
    first = max(one.first_turn, other.first_turn)
    end = min(one.first_turn + one.turns, other.first_turn + other.turns, last or 10**9)
    assert end > first

    if not one.policy.bounded:
        for turn in range(first, end):
            assert kept_tokens(one, row, turn) == kept_tokens(other, other_row, turn)
            _assert_close(_attended(one, row, turn), _attended(other, other_row, turn))
        return

    def part(trace: Trace, column: Numbers, row: int) -> Numbers:
        turns: Numbers = column[row, first - trace.first_turn : end - trace.first_turn]
        return turns

    mine = dict(columns(one))
    theirs = dict(columns(other))
    if one.results is not None and other.results is not None:
        entries = {trace: entries_of(trace) for trace in (one, other)}
        width = min(entry_trace.token.shape[2] for entry_trace in entries.values())
        for trace, at, by_name in ((one, row, mine), (other, other_row, theirs)):
            assert (part(trace, entries[trace].token, at)[:, width:] == -1).all()
            for name, column in columns(entries[trace]):
                by_slot = column.ndim == 3
                by_name[f"entry {name}"] = column[:, :, :width] if by_slot else column
    assert mine.keys() == theirs.keys()
    for name, column in mine.items():
        _assert_same(part(one, column, row), part(other, theirs[name], other_row), name)


def _assert_same(one: Numbers, other: Numbers, name: str) -> None:
    """Assert that two arrays are equal; comparing bytes first is faster."""
    alike = one.shape == other.shape and one.dtype == other.dtype
    if not (alike and one.tobytes() == other.tobytes()):
        np.testing.assert_array_equal(one, other, err_msg=name, strict=True)


def _attended(trace: Trace, row: int, turn: int) -> dict[str, list[float]]:
    """Return output and attention of a turn, these in the order of the tokens."""
    at = turn - trace.first_turn
    numbers = {"output": trace.output[row, at].tolist()}
    if trace.results is not None:
        entries = entries_of(trace)
        for name in ("attention_before", "attention_after"):
            weights = by_token(entries, getattr(entries, name), row, at)
            numbers[name] = list(weights.values())
    return numbers


def _assert_close(one: dict[str, list[float]], other: dict[str, list[float]]) -> None:
    for name in one.keys() & other.keys():
        np.testing.assert_allclose(one[name], other[name], NUMBER, NUMBER, err_msg=name)


def assert_same_state(one: State, other: State) -> None:
    pairs = [(dict(columns(one)), dict(columns(other)))]
    for cache, twin in ((one.cache, other.cache),):
        pairs.append(
            (
                {"token": cache.token, **cache.channels, **cache.state},
                {"token": twin.token, **twin.channels, **twin.state},
            )
        )
    for mine, theirs in pairs:
        assert mine.keys() == theirs.keys()
        for name, column in mine.items():
            _assert_same(column, theirs[name], name)


def with_heads(*recordings: Recording) -> Recording:
    """Return a recording whose heads are those of recordings of the same dialog."""
    vectors: dict[str, Any] = {
        name: np.concatenate([getattr(recording, name) for recording in recordings])
        for name in ("queries", "keys", "values")
    }
    return dataclasses.replace(recordings[0], heads=tuple(range(len(recordings))), **vectors)


def measure(trace: Trace, recording: Recording, first_row: int = 0) -> dict[str, float]:
    """Return every metric of the evidence of a recording whose first head is this row."""
    rows = slice(first_row, first_row + len(recording.heads))
    evidence = Evidence(dataclasses.replace(trace, kept_tokens=trace.kept_tokens[rows]), recording)
    return {
        key: metric.measure(evidence)
        for key, metric in metrics_of("evidence", optional=False).items()
    }


def adaptation_in(trace: Trace, dialogs: DialogBatch) -> Adaptation:
    """Count the turns to adapt in a run."""
    return adaptation(retention(trace, dialogs), dialogs)


def by_cosine(dialogs: DialogBatch) -> DialogBatch:
    """Return dialogs whose tokens are of the topics that the paper's rule finds, cos(e, t) > 0.3.

    A metric of them is the metric by the paper's rule.
    """
    assert dialogs.topics is not None
    length = np.linalg.norm(dialogs.embeddings, axis=-1, keepdims=True)
    cosines = dialogs.embeddings @ dialogs.topics.transpose(0, 2, 1) / length
    bits = (cosines > 0.3) @ (1 << np.arange(cosines.shape[2]))
    return dataclasses.replace(dialogs, topic_bits=bits.astype(np.uint32))
