"""The caches in NumPy pass the checks, and each check finds the fault that it is named after."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from fdkvc.models.numpy.decoder import Decoder
from fdkvc.models.numpy.language_model import load_language_model
from fdkvc.models.numpy.text_cache import EvictingCache, TextCache, read
from fdkvc.policies import read_policy
from tests.language_models import write_model
from tests.models.conformance.checks import Check, Fault, checks
from tests.models.conformance.decoder_adapter import DecoderCache, DecoderModel
from tests.models.conformance.subject import Subject, Turn, key_difference, last_attention

BUDGET = 12
EVERY = 3


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return load_language_model(write_model(tmp_path_factory.mktemp("model"))).decoder


def caches(
    decoder: Decoder, samples: int, key: str = "fifo", decides: str = "head", budget: int = BUDGET
) -> list[TextCache]:
    policy = read_policy(key)
    return [EvictingCache(decoder, policy, budget, decides) for _ in range(samples)]


def subject(decoder: Decoder, key: str = "fifo", decides: str = "head", **promises: Any) -> Subject:
    def begin(samples: int) -> DecoderCache:
        return DecoderCache(caches(decoder, samples, key, decides), EVERY)

    promises = {"begin": begin, "every": EVERY, "samples": 3, "forks": True, **promises}
    return Subject(model=DecoderModel(decoder), budget=BUDGET, **promises)


def run(subject: Subject, chosen_checks: Iterable[Check]) -> None:
    for check in chosen_checks:
        check(subject)


@pytest.mark.long
@pytest.mark.parametrize("decides", ["head", "layer"])
@pytest.mark.parametrize("key", ["fifo", "h2o", "fd-kvc", "snapkv", "expected-attention"])
def test_the_projects_memories_pass(decoder: Decoder, key: str, decides: str) -> None:
    right = subject(decoder, key, decides)
    run(right, checks(right))


@pytest.mark.long
@pytest.mark.parametrize(
    ("key", "promises"),
    [
        ("sink", {"sinks": 4}),
        ("messages(fifo)", {}),
        ("clear-results", {}),
        ("regions", {}),
        ("tova", {"scores": last_attention}),
        ("keydiff", {"scores": key_difference}),
    ],
)
def test_what_a_policy_promises_besides_is_held(
    decoder: Decoder, key: str, promises: dict[str, Any]
) -> None:
    right = subject(decoder, key, **promises)
    run(right, checks(right))


class Unmasked(DecoderCache):
    """It says that it evicts, and goes on to attend to everything."""

    def __init__(self, decoder: Decoder, samples: int) -> None:
        super().__init__(caches(decoder, samples), EVERY)
        self.full = [TextCache(decoder) for _ in range(samples)]

    def feed(self, tokens: Any) -> Turn:
        return dataclasses.replace(super().feed(tokens), outputs=read(self.full, tokens))

    def write(self, tokens: Any) -> Turn:
        return dataclasses.replace(super().write(tokens), outputs=read(self.full, tokens))


class Foreseeing(DecoderCache):
    """As the next turn comes, it evicts another entry by what that says."""

    def feed(self, tokens: Any) -> Turn:
        held = self._held()
        turn = super().feed(tokens)
        return dataclasses.replace(turn, before=held[..., tokens[0, 0] % 2 :])


class Hiding(DecoderCache):
    """It says that it evicts, and lets all be seen again as the next turn comes."""

    def feed(self, tokens: Any) -> Turn:
        everything = np.arange(self.caches[0].count)
        turn = super().feed(tokens)
        return dataclasses.replace(
            turn, before=np.broadcast_to(everything, (1, 2, 2, len(everything)))
        )


class Shared(DecoderCache):
    """A fork changes what it computes."""

    forks = 0

    def fork(self) -> DecoderCache:
        self.forks += 1
        return super().fork()

    def feed(self, tokens: Any) -> Turn:
        turn = super().feed(tokens)
        return dataclasses.replace(turn, outputs=turn.outputs + self.forks)


def first_alone(decoder: Decoder, samples: int) -> DecoderCache:
    others = [TextCache(decoder) for _ in range(samples - 1)]
    return DecoderCache([*caches(decoder, 1), *others], EVERY)


def begun(make: Callable[[Decoder, int], DecoderCache]) -> Callable[[Decoder], dict[str, Any]]:
    return lambda decoder: {"begin": lambda samples: make(decoder, samples)}


def promised(**promises: Any) -> Callable[[Decoder], dict[str, Any]]:
    return lambda decoder: promises


WRONG: list[tuple[str, str, Callable[[Decoder], dict[str, Any]]]] = [
    ("attends_to_what_was_evicted", "fifo", begun(Unmasked)),
    (
        "holds_more_than_the_budget",
        "fifo",
        begun(lambda decoder, samples: DecoderCache(caches(decoder, samples, budget=13), EVERY)),
    ),
    (
        "outgrows_the_budget_while_writing",
        "fifo",
        begun(lambda decoder, samples: DecoderCache(caches(decoder, samples))),
    ),
    ("compresses_only_the_first_text", "fifo", begun(first_alone)),
    ("compresses_only_the_first_text", "fifo", promised(samples=1)),  # it does not refuse two
    ("keeps_its_first_compression", "sink sinks=12", promised()),
    ("counts_other_positions", "sink", promised(positions="slots")),
    (
        "decides_by_the_next_turn",
        "fifo",
        begun(lambda decoder, samples: Foreseeing(caches(decoder, samples), EVERY)),
    ),
    (
        "decides_by_the_next_turn",
        "fifo",
        begun(lambda decoder, samples: Hiding(caches(decoder, samples), EVERY)),
    ),
    (
        "changes_with_its_fork",
        "fifo",
        begun(lambda decoder, samples: Shared(caches(decoder, samples), EVERY)),
    ),
    ("evicts_sinks", "fifo", promised(sinks=2)),
    ("scores_by_what_was_evicted", "tova", promised(scores=key_difference)),
]
"""A cache with the fault that each check is named after."""


@pytest.mark.parametrize(("name", "key", "change"), WRONG)
def test_a_check_finds_the_fault_that_it_is_named_after(
    decoder: Decoder, name: str, key: str, change: Callable[[Decoder], dict[str, Any]]
) -> None:
    wrong = subject(decoder, key, **change(decoder))
    (check,) = (candidate for candidate in checks(wrong) if candidate.__name__ == name)
    with pytest.raises(Fault):
        check(wrong)


def test_of_a_cache_that_evicts_nothing_every_check_says_so(decoder: Decoder) -> None:
    def begin(samples: int) -> DecoderCache:
        return DecoderCache([TextCache(decoder) for _ in range(samples)], EVERY)

    full = subject(decoder, begin=begin)
    for check in checks(full):
        with pytest.raises(Fault, match="nothing was evicted"):
            check(full)
