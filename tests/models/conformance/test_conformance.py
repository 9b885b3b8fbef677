"""The checks find the fault that each is named after, and pass the project's own caches."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from fdkvc.core.cache import padded
from fdkvc.models.numpy.decoder import Decoder
from fdkvc.models.numpy.language_model import load_language_model
from fdkvc.models.numpy.text_cache import EvictingCache, TextCache
from fdkvc.policies import read_policy
from tests.language_models import write_model
from tests.models.conformance.checks import Check, Fault, NothingEvicted, checks
from tests.models.conformance.decoder_adapter import DecoderCache, DecoderModel
from tests.models.conformance.scores import key_difference, last_attention
from tests.models.conformance.subject import Subject, Turn

BUDGET = 12
EVERY = 3
SINKS = 2


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return load_language_model(write_model(tmp_path_factory.mktemp("model"))).decoder


# ------------------------------------------------------------------------------- our own


def our_own(decoder: Decoder, key: str, decides: str = "head", **promises: Any) -> Subject:
    def begin(samples: int) -> DecoderCache:
        policy = read_policy(key)
        caches = [EvictingCache(decoder, policy, BUDGET, decides) for _ in range(samples)]
        return DecoderCache(caches, EVERY)

    model = DecoderModel(decoder)
    return Subject(begin, model, BUDGET, every=EVERY, samples=3, forks=True, **promises)


def faults(subject: Subject) -> dict[str, Fault]:
    """Return what the checks find, by the name of each that finds something."""
    by_check = {}
    for check in checks(subject):
        try:
            check(subject)
        except Fault as error:
            by_check[check.__name__] = error
    return by_check


def run(subject: Subject, chosen_checks: Iterable[Check]) -> None:
    for check in chosen_checks:
        check(subject)


@pytest.mark.parametrize("decides", ["head", "layer"])
@pytest.mark.parametrize("key", ["fifo", "h2o", "fd-kvc", "snapkv", "expected-attention"])
def test_the_projects_memories_pass(decoder: Decoder, key: str, decides: str) -> None:
    subject = our_own(decoder, key, decides)
    run(subject, checks(subject))


@pytest.mark.parametrize(
    ("key", "promises"),
    [
        ("sink", {"sinks": 4}),
        ("messages(fifo)", {}),
        ("clear-results", {}),
        ("regions", {}),
        ("tova", {"scores": last_attention}),
        ("keydiff", {"scores": key_difference}),
        ("recall(h2o)", {"recalls": True, "sinks": 0}),
    ],
)
def test_what_a_policy_promises_besides_is_held(
    decoder: Decoder, key: str, promises: dict[str, Any]
) -> None:
    subject = our_own(decoder, key, **promises)
    run(subject, checks(subject))


def test_what_comes_back_was_promised_or_is_a_fault(decoder: Decoder) -> None:
    returning = our_own(decoder, "recall(h2o)")
    check = checks(returning)[3]
    assert check.__name__ == "keeps_its_first_compression"
    with pytest.raises(Fault, match="what was evicted before question"):
        check(returning)


# ------------------------------------------------------------------------------- wrong ones


class Simple:
    """A cache as plain as one can be, of one text: right, but for what is done wrong to it.

    It keeps the sinks, and of the rest what the last query of the turn attends to most. Its keys
    are kept as they came, or, for positions by slots, as they are without any.
    """

    def __init__(self, decoder: Decoder, slots: bool = False) -> None:
        self.decoder, self.slots = decoder, slots
        shape = decoder.shape
        half = np.arange(0, shape.head_width, 2) / shape.head_width
        self.frequencies = shape.theta**-half
        self.seen = self.written = 0
        self.before: Any = None  # what it says that it held as the tokens came (L, K, S)
        self.ids: Any = np.empty((shape.layers, shape.kv_heads, 0), np.intp)
        empty = np.empty((shape.layers, shape.kv_heads, 0, shape.head_width), np.float32)
        self.keys, self.values = empty, empty
        self.queries: dict[int, Any] = {}

    @property
    def count(self) -> int:
        """The position of the next token."""
        return self.ids.shape[2] if self.slots else self.seen

    @property
    def told(self) -> Any:
        """What it says that it holds (L, K, S)."""
        return self.ids

    def attend(self, layer: int, hidden: Any, queries: Any, keys: Any, values: Any) -> Any:
        n, held = len(queries), self.ids.shape[2]
        asked, *new = (array.swapaxes(0, 1) for array in (queries, keys, values))
        self.queries[layer], self.new[layer] = asked, new
        known = np.concatenate([self.placed(layer), new[0]], axis=1)
        group, width = self.decoder.shape.group, queries.shape[2]
        outputs = []
        for head, head_queries in enumerate(asked):
            logits = head_queries @ known[head // group].T / np.sqrt(width)
            logits[:, held:] = np.where(np.tri(n), logits[:, held:], -np.inf)
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            seen = np.concatenate([self.values[layer], new[1]], axis=1)[head // group]
            outputs.append(weights @ seen)
        return np.stack(outputs, axis=1).reshape(n, -1).astype(np.float32)

    def placed(self, layer: int) -> Any:
        """Return the keys that are held, at their positions (K, S, h)."""
        keys = self.keys[layer]
        return self.turned(keys, np.arange(keys.shape[1])) if self.slots else keys

    def turned(self, keys: Any, positions: Any) -> Any:
        pairs = np.ascontiguousarray(keys, np.float32).view(np.complex64)
        turned = pairs * np.exp(1j * positions[:, None] * self.frequencies)
        return np.ascontiguousarray(turned.astype(np.complex64)).view(np.float32)

    def read(self, tokens: Any) -> Any:
        self.new: dict[int, Any] = {}
        start = self.count
        outputs = self.decoder.read(np.asarray(tokens)[None], [self])[0]
        n = len(tokens)
        keys, values = (
            np.stack([self.new[at][kind] for at in sorted(self.new)]) for kind in (0, 1)
        )
        if self.slots:
            keys = self.turned(keys, -np.arange(start, start + n))
        self.keys = np.concatenate([self.keys, keys], axis=2)
        self.values = np.concatenate([self.values, values], axis=2)
        new_ids = np.broadcast_to(np.arange(self.seen, self.seen + n), (*self.ids.shape[:2], n))
        self.ids = np.concatenate([self.ids, new_ids], axis=2)
        self.seen += n
        return outputs

    def scores(self) -> Any:
        """What each entry is worth (L, K, S)."""
        shape = self.decoder.shape
        entry_scores = np.empty(self.ids.shape)
        for layer, head in np.ndindex(*entry_scores.shape[:2]):
            group = slice(head * shape.group, (head + 1) * shape.group)
            keys = self.keys[layer, head]
            entry_scores[layer, head] = last_attention(self.queries[layer][group], keys)
        return entry_scores

    def places(self, budget: int) -> Any:
        """Return which entries stay, in their order (L, K, budget)."""
        scores = np.where(self.ids < SINKS, np.inf, self.scores())
        best = np.argsort(-scores, axis=2, kind="stable")[:, :, :budget]
        return np.sort(best, axis=2)

    def fork(self) -> Simple:
        fork = copy.copy(self)
        fork.queries = {}
        return fork

    def evict(self, budget: int = BUDGET) -> None:
        self.keep(self.places(budget))

    def keep(self, places: Any) -> None:
        self.ids = np.take_along_axis(self.ids, places, axis=2)
        self.keys, self.values = (
            np.take_along_axis(array, places[..., None], axis=2)
            for array in (self.keys, self.values)
        )

    def feed(self, tokens: Any) -> Any:
        outputs = self.read(tokens)
        self.evict()
        return outputs

    def write(self, token: Any) -> Any:
        self.before = None
        outputs, self.written = self.read(token), self.written + 1
        if self.written % EVERY == 0:
            self.evict()
        return outputs


class Several:
    """Several texts, each with a cache of its own."""

    def __init__(self, caches: list[Simple]) -> None:
        self.caches = caches

    def feed(self, tokens: Any) -> Turn:
        return self._turn(tokens, "feed")

    def write(self, tokens: Any) -> Turn:
        return self._turn(tokens, "write")

    def fork(self) -> Several:
        return Several([cache.fork() for cache in self.caches])

    def _turn(self, tokens: Any, call: str) -> Turn:
        outputs = [
            getattr(cache, call)(ids) for cache, ids in zip(self.caches, tokens, strict=True)
        ]
        held = np.stack(padded([cache.told for cache in self.caches]))
        before = [cache.before for cache in self.caches if cache.before is not None]
        return Turn(np.stack(outputs), held, np.stack(before) if before else None)


class Unmasked(Simple):
    """It says that it evicts, and goes on to attend to everything."""

    left: Any = None

    def keep(self, places: Any) -> None:
        self.left = np.take_along_axis(self.ids, places, axis=2), self.seen

    @property
    def told(self) -> Any:
        if self.left is None:
            return self.ids
        left, end = self.left
        return np.concatenate([left, self.ids[:, :, end:]], axis=2)


class OneMore(Simple):
    """It holds one entry more than it may."""

    def evict(self, budget: int = BUDGET) -> None:
        super().evict(budget + 1)


class Once(Simple):
    """It evicts after the first turn alone, as if a conversation were one prompt."""

    def evict(self, budget: int = BUDGET) -> None:
        if self.seen == self.ids.shape[2]:
            super().evict(budget)


class Growing(Simple):
    """It says that it evicts while the model writes, and does not."""

    def write(self, token: Any) -> Any:
        return self.read(token)


class Frozen(Simple):
    """What it chose after the first turn stays, and nothing else ever does."""

    def places(self, budget: int) -> Any:
        first = super().places(budget)
        return first if self.seen == self.ids.shape[2] else np.zeros_like(first) + np.arange(budget)


class ByHeld(Simple):
    """The next token stands after the entries held."""

    @property
    def count(self) -> int:
        return int(self.ids.shape[2])


class TurnedAgain(Simple):
    """It turns keys from slot to slot, and rounds them each time."""

    def keep(self, places: Any) -> None:
        super().keep(places)
        turned = self.turned(self.keys, np.arange(self.keys.shape[2]))
        rounded = turned.astype(np.float16).astype(np.float32)
        self.keys = self.turned(rounded, -np.arange(self.keys.shape[2]))


class Shared(Simple):
    """Where its fork evicts, the values of both move."""

    parent: Any = None

    def fork(self) -> Simple:
        fork = copy.copy(self)
        fork.parent = self
        return fork

    def evict(self, budget: int = BUDGET) -> None:
        super().evict(budget)
        if self.parent:
            self.parent.values = np.roll(self.parent.values, 1, axis=2)


class Halfway(Simple):
    """Where it fails to read a turn, what it stored of it has taken the place of others."""

    def read(self, tokens: Any) -> Any:
        try:
            return super().read(tokens)
        except ValueError:
            self.values = np.roll(self.values, 1, axis=2)
            raise


class NoSinks(Simple):
    """It lets the first tokens go as any others."""

    def places(self, budget: int) -> Any:
        best = np.argsort(-self.scores(), axis=2, kind="stable")[:, :, :budget]
        return np.sort(best, axis=2)


class NoSinksWhileWriting(NoSinks):
    """It lets the first tokens go only while the model writes; the next turn has other sinks."""

    def places(self, budget: int) -> Any:
        return super().places(budget) if self.written else Simple.places(self, budget)


class Peeking(Simple):
    """It scores by what a model attends to that still has everything."""

    def __init__(self, decoder: Decoder, slots: bool = False) -> None:
        super().__init__(decoder, slots)
        self.full = TextCache(decoder)

    def read(self, tokens: Any) -> Any:
        from fdkvc.models.numpy.text_cache import read

        read([self.full], tokens, last=0)
        return super().read(tokens)

    def scores(self) -> Any:
        queries, keys = (self.full.vectors(name) for name in ("queries", "keys"))
        shape = self.decoder.shape
        entry_scores = np.empty(self.ids.shape)
        for layer, head in np.ndindex(*entry_scores.shape[:2]):
            group = slice(head * shape.group, (head + 1) * shape.group)
            there = keys[layer, head, self.ids[layer, head]]
            entry_scores[layer, head] = last_attention(queries[layer, group, -1:], there)
        return entry_scores


class Foreseeing(Simple):
    """As the next turn comes, it evicts some more by what that asks."""

    def feed(self, tokens: Any) -> Any:
        if self.seen:
            copy.copy(self).read(tokens)  # whose queries are its own, too
            self.evict(BUDGET - 3)
            self.before = self.ids
        return super().feed(tokens)


class Hiding(Unmasked):
    """It says that it evicts, and lets all be seen again as the next tokens come."""

    def read(self, tokens: Any) -> Any:
        self.before = self.ids
        return super().read(tokens)


@contextmanager
def failing() -> Iterator[None]:
    """Fail in the second layer of the model."""

    def attend(self: Simple, layer: int, *vectors: Any) -> Any:
        if layer:
            raise ValueError("no memory")
        return attends(self, layer, *vectors)

    attends = Simple.attend
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simple, "attend", attend)
        yield


def several(kind: Callable[..., Simple], decoder: Decoder, slots: bool) -> Any:
    def begin(samples: int) -> Several:
        return Several([kind(decoder, slots) for _ in range(samples)])

    return begin


def only_the_first(decoder: Decoder, slots: bool) -> Any:
    def begin(samples: int) -> Several:
        others = [Once(decoder, slots) for _ in range(samples - 1)]
        return Several([Simple(decoder, slots), *others])

    return begin


def subject(decoder: Decoder, kind: Any = Simple, slots: bool = False) -> Subject:
    begin = (
        only_the_first(decoder, slots) if kind is only_the_first else several(kind, decoder, slots)
    )
    return Subject(
        begin,
        DecoderModel(decoder),
        BUDGET,
        every=EVERY,
        samples=3,
        sinks=SINKS,
        positions="slots" if slots else "seen",
        forks=True,
        failing=failing,
        scores=None if slots else last_attention,
    )


@pytest.mark.parametrize("slots", [False, True])
def test_a_plain_cache_passes_every_check(decoder: Decoder, slots: bool) -> None:
    right = subject(decoder, slots=slots)
    assert len(checks(right)) == 11
    run(right, checks(right))


WRONG: dict[str, tuple[Any, bool, str]] = {
    "attends_to_what_was_evicted": (Unmasked, False, "masked and near the full model's, but"),
    "holds_more_than_the_budget": (OneMore, False, "after turn 1 a head holds 13 entries of 12"),
    "outgrows_the_budget_while_writing": (Growing, False, "after 4 tokens of what it writes"),
    "compresses_only_the_first_text": (only_the_first, False, "text 1 of several holds 22"),
    "keeps_its_first_compression": (Frozen, False, "holds nothing of any of them"),
    "counts_other_positions": (ByHeld, False, "counts the entries held as tokens seen"),
    "decides_by_the_next_turn": (Foreseeing, False, "held for one continuation and not for"),
    "drifts_as_positions_change": (TurnedAgain, True, "after 40 turns its outputs have"),
    "changes_with_its_fork": (Shared, False, "after its fork has read, its outputs are"),
    "keeps_half_of_a_failed_turn": (Halfway, False, "after a turn that could not be read"),
    "evicts_sinks": (NoSinks, False, "token 0 is one of the first 2, .* by the time 20 were read"),
    "scores_by_what_was_evicted": (Peeking, False, "is not the best by what the model saw"),
}
"""A cache with the fault that each check is named after, and what the check says of it."""


def test_every_check_has_a_cache_that_it_finds_wrong(decoder: Decoder) -> None:
    known = {
        check.__name__
        for slots in (False, True)
        for check in checks(subject(decoder, Simple, slots))
    }
    assert known == set(WRONG)


@pytest.mark.parametrize("name", WRONG)
def test_a_check_finds_the_fault_that_it_is_named_after(decoder: Decoder, name: str) -> None:
    kind, slots, sentence = WRONG[name]
    wrong = subject(decoder, kind, slots)
    (check,) = (candidate for candidate in checks(wrong) if candidate.__name__ == name)
    with pytest.raises(Fault, match=sentence):
        check(wrong)


def test_one_text_at_a_time_is_refused_in_words_or_it_is_a_fault(decoder: Decoder) -> None:
    alone = dataclasses.replace(subject(decoder), samples=1)
    (check,) = (
        candidate
        for candidate in checks(alone)
        if candidate.__name__ == "compresses_only_the_first_text"
    )
    with pytest.raises(Fault, match="but does not refuse two"):
        check(alone)

    def refusing(samples: int) -> Any:
        if samples > 1:
            raise ValueError("one text at a time")
        return alone.begin(samples)

    check(dataclasses.replace(alone, begin=refusing))


def test_a_cache_that_looks_ahead_is_found_where_its_scores_are_unknown(decoder: Decoder) -> None:
    unknown = dataclasses.replace(subject(decoder, Foreseeing), scores=None)
    assert list(faults(unknown)) == ["decides_by_the_next_turn"]


def test_sinks_lost_while_the_model_writes_are_found(decoder: Decoder) -> None:
    by_check = faults(subject(decoder, NoSinksWhileWriting))
    assert "to which pretrained models attend" in str(by_check["evicts_sinks"])
    assert "was evicted by the time 23 were read" in str(by_check["evicts_sinks"])


def test_a_turn_that_sees_what_was_evicted_before_is_a_fault(decoder: Decoder) -> None:
    by_check = faults(subject(decoder, Hiding))
    assert "was evicted, but the next turn sees it" in str(by_check["decides_by_the_next_turn"])


def test_of_a_cache_that_evicts_nothing_every_check_says_so(decoder: Decoder) -> None:
    full = Subject(
        lambda samples: DecoderCache([TextCache(decoder) for _ in range(samples)]),
        DecoderModel(decoder),
        12,
        samples=3,
    )
    by_check = faults(full)
    assert len(by_check) == len(checks(full))
    for fault in by_check.values():
        assert isinstance(fault, NothingEvicted)
        assert "though the budget is 12" in str(fault)


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (lambda turn: (turn.outputs[:, 1:], turn.held), "the outputs have shape .* but must have"),
        (lambda turn: (turn.outputs, turn.held[0]), "but must have four axes: 1 texts"),
        (lambda turn: (turn.outputs, turn.held + 9), "is said to be held, but only 18 were read"),
        (lambda turn: (turn.outputs, turn.held // 2), "token 0 is said to be held twice"),
    ],
)
def test_what_an_adapter_tells_and_cannot_be_is_no_fault_of_the_cache(
    decoder: Decoder, told: Any, sentence: str
) -> None:
    right = subject(decoder)

    class Telling(Several):
        def _turn(self, tokens: Any, call: str) -> Turn:
            return Turn(*told(super()._turn(tokens, call)))

    wrong = dataclasses.replace(right, begin=lambda samples: Telling([Simple(decoder)] * samples))
    with pytest.raises(ValueError, match=sentence):
        checks(wrong)[0](wrong)


def test_a_subject_that_nothing_can_be_said_of_is_refused(decoder: Decoder) -> None:
    with pytest.raises(ValueError, match="the budget of a subject is 7, but must be"):
        dataclasses.replace(subject(decoder), budget=7)
    with pytest.raises(ValueError, match="the sinks of a subject is 7, but must be"):
        dataclasses.replace(subject(decoder), sinks=7)
