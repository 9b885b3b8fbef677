"""A policy's cache inside *transformers* passes the checks, on models of several shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fdkvc.engine.sinks import sinks_of
from fdkvc.models.transformers import cache as live
from fdkvc.policies import policy_named, read_policy
from tests.library import CONFIGS, Numbers, model_of
from tests.models.conformance.checks import Fault, checks
from tests.models.conformance.scores import key_difference, last_attention
from tests.models.conformance.subject import Restored, Subject
from tests.models.conformance.transformers_adapter import LibraryCache, TransformersModel

torch.set_num_threads(1)  # what is small is slower on several

BUDGET = 12
EVERY = 3


def subject(model: Any, key: str = "h2o", promises: Any = None, **options: Any) -> Subject:
    def begin(samples: int) -> LibraryCache:
        cache = live.PolicyCache(read_policy(key), BUDGET, model, every=EVERY, **options)

        def held(its: Any) -> Any:
            return its.held.reshape(samples, -1, *its.held.shape[-2:])

        return LibraryCache(model, cache, held, live.PolicyCache.end_turn)

    full = TransformersModel(model, live.PolicyCache(policy_named("h2o"), BUDGET, model).decided)
    promises = {"sinks": sinks_of(read_policy(key), BUDGET), **(promises or {})}
    return Subject(begin, full, BUDGET, samples=3, every=EVERY, **promises)


def run(tested: Subject) -> None:
    for check in checks(tested):
        check(tested)


@pytest.mark.parametrize(
    ("kind", "implementation"), [*((kind, "sdpa") for kind in CONFIGS), ("llama", "eager")]
)
def test_a_policys_cache_passes_on_every_shape_of_model(kind: str, implementation: str) -> None:
    run(subject(model_of(kind, implementation)))


@pytest.mark.parametrize(
    ("key", "decides"), [("fifo", "model"), ("fd-kvc", "head"), ("snapkv", "layer")]
)
def test_it_passes_whoever_decides(key: str, decides: str) -> None:
    run(subject(model_of("llama"), key, decides=decides))


@pytest.mark.parametrize(
    ("key", "promises"),
    [
        ("sink", {"sinks": 4}),
        ("sinks(h2o)", {"sinks": 4}),
        ("sinks(fd-kvc tau=0.9)", {"sinks": 4}),
        ("whitelist(surprisal)", {"sinks": 4}),
        ("messages(fifo, prompt=may leave)", {}),
        ("tova", {"scores": last_attention}),
        ("keydiff", {"scores": key_difference}),
    ],
)
def test_what_a_policy_promises_besides_is_held(key: str, promises: dict[str, Any]) -> None:
    assert sinks_of(read_policy(key), BUDGET) == promises.get("sinks", 0)
    run(subject(model_of("llama"), key, promises, tokenizer=Numbers()))


def in_bits(bits: int) -> Restored:
    """Return what comes back of vectors between their minimum and maximum, in single precision."""

    def restored(vectors: Any) -> Any:
        wide = vectors.astype(np.float32)
        low, high = (extreme(axis=-1, keepdims=True) for extreme in (wide.min, wide.max))
        step = (high - low) / (2**bits - 1)
        return np.rint((wide - low) / np.where(step > 0, step, 1)) * step + low

    return restored


def rounded(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    """Let caches store the keys and values of their slots in few bits."""
    restored = in_bits(bits)

    class Rounded(live.PolicyLayer):  # type: ignore[misc, name-defined]
        def keep(self, places: Any) -> None:
            super().keep(places)  # what was rounded before is rounded to the same
            for name in ("keys", "values"):
                kept = getattr(self, name)
                setattr(self, name, torch.from_numpy(restored(kept.numpy())).to(kept.dtype))

    monkeypatch.setattr(live, "PolicyLayer", Rounded)


@pytest.mark.parametrize(
    ("kind", "key", "decides", "promises", "bits"),
    [
        *((kind, "h2o", "head", {}, 8) for kind in CONFIGS),
        ("llama", "fd-kvc", "layer", {}, 4),
        ("llama", "surprisal", "model", {}, 4),
        ("llama", "sink", "head", {"sinks": 4}, 4),
        ("llama", "tova", "head", {"scores": last_attention}, 8),
        ("llama", "keydiff", "head", {"scores": key_difference}, 4),
    ],
)
def test_it_passes_in_few_bits(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    key: str,
    decides: str,
    promises: dict[str, Any],
    bits: int,
) -> None:
    rounded(monkeypatch, bits)
    model = model_of(kind).double()  # so that no number is rounded to another code
    promises = {**promises, "restored": in_bits(bits)}
    run(subject(model, key, promises, decides=decides, tokenizer=Numbers()))


def test_other_bits_than_promised_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rounded(monkeypatch, 4)
    wrong = subject(model_of("llama").double(), "h2o", {"restored": in_bits(8)})
    with pytest.raises(Fault, match="away from those of the model with what"):
        checks(wrong)[0](wrong)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_positions_that_close_up_neither_shift_nor_drift(kind: str) -> None:
    tested = subject(model_of(kind), "sink", {"sinks": 4, "positions": "slots"}, positions="slots")
    assert "drifts_as_positions_change" in [check.__name__ for check in checks(tested)]
    run(tested)
