"""A policy's cache inside *transformers* passes the checks, on models of several shapes."""

from typing import Any

import numpy as np
import pytest
import torch

from fdkvc.engine.sinks import sinks_of
from fdkvc.models.transformers import cache as live
from fdkvc.policies import policy_named, read_policy
from tests.library import CAPPED, SHAPES, Numbers, made
from tests.models.conformance.checks import Fault, checks
from tests.models.conformance.subject import Subject, key_difference, last_attention
from tests.models.conformance.transformers_adapter import LibraryCache, TransformersModel

torch.set_num_threads(1)  # what is small is slower on several

KINDS = [kind for kind in SHAPES if kind != CAPPED[0]]
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
    return Subject(begin, full, BUDGET, samples=3, every=EVERY, forks=True, **promises)


def run(tested: Subject) -> None:
    for check in checks(tested):
        check(tested)


@pytest.mark.parametrize(
    ("kind", "implementation"), [*((kind, "sdpa") for kind in KINDS), ("gemma2", "eager")]
)
def test_a_policys_cache_passes_on_every_shape_of_model(kind: str, implementation: str) -> None:
    run(subject(made(kind, implementation)))


@pytest.mark.parametrize(
    ("key", "decides"), [("fifo", "model"), ("fd-kvc", "head"), ("snapkv", "layer")]
)
def test_it_passes_whoever_decides(key: str, decides: str) -> None:
    run(subject(made("llama"), key, decides=decides))


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
    run(subject(made("llama"), key, promises, tokenizer=Numbers()))


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_positions_that_close_up_neither_shift_nor_drift(kind: str) -> None:
    tested = subject(made(kind), "sink", {"sinks": 4, "positions": "slots"}, positions="slots")
    assert "drifts_as_positions_change" in [check.__name__ for check in checks(tested)]
    run(tested)


def test_a_drift_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Drifting(live.PolicyLayer):  # type: ignore[misc, name-defined]
        def keep(self, places: Any) -> None:
            super().keep(places)
            self._beside["unrotated"] = 1.001 * self._beside["unrotated"]

    monkeypatch.setattr(live, "PolicyLayer", Drifting)
    wrong = subject(made("llama"), "sink", {"sinks": 4, "positions": "slots"}, positions="slots")
    (check,) = (check for check in checks(wrong) if "drifts" in check.__name__)
    with pytest.raises(Fault, match="after 40 turns"):
        check(wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_the_full_model_is_the_model_itself_where_everything_is_seen(kind: str) -> None:
    model = made(kind)
    tokens = np.random.default_rng(0).integers(40, size=8)
    heads = getattr(model.config, "num_key_value_heads", model.config.num_attention_heads)
    sees = np.broadcast_to(np.tri(8, dtype=np.bool_), (3, heads, 8, 8))
    with torch.inference_mode():
        wanted = model(input_ids=torch.tensor(tokens)[None]).logits[0].numpy()
    reading = TransformersModel(model).read(tokens, sees)
    np.testing.assert_allclose(reading.outputs, wanted, atol=1e-4)
