"""A policy's cache inside *transformers* passes the checks, on models of several shapes."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import pytest

from fdkvc.conformance import Subject, checks
from fdkvc.conformance.subject import key_difference, last_attention
from fdkvc.policies import policy_named

NO_TRANSFORMERS = "torch is not installed: get it with `pip install -r requirements-capture.txt`"

if os.environ.get("FDKVC_REQUIRE_CAPTURE") == "1":
    live = import_module("fdkvc.live")
else:
    live = pytest.importorskip("fdkvc.live", reason=NO_TRANSFORMERS)

import torch  # noqa: E402
import transformers  # noqa: E402

from fdkvc.conformance.of_transformers import LibraryCache, TransformersModel  # noqa: E402

torch.set_num_threads(1)  # what is small is slower on several

BUDGET = 12
EVERY = 3
SHAPE = {
    "vocab_size": 40,
    "hidden_size": 24,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
SLIDING = {"sliding_window": 9, "layer_types": ["sliding_attention", "full_attention"]}
CONFIGS: dict[str, Any] = {
    "llama": transformers.LlamaConfig(**SHAPE),
    "qwen2": transformers.Qwen2Config(**SHAPE),
    "qwen3": transformers.Qwen3Config(**SHAPE, head_dim=8),
    "mistral": transformers.MistralConfig(**SHAPE, sliding_window=None),
    "gemma3": transformers.Gemma3TextConfig(**SHAPE, **SLIDING, head_dim=8),
    "gpt2": transformers.GPT2Config(vocab_size=40, n_embd=24, n_head=4, n_layer=2),
}


def model_of(kind: str, implementation: str = "sdpa") -> Any:
    """Make a small model of random weights, large enough that attention is far from even."""
    torch.manual_seed(0)
    config = CONFIGS[kind]
    config.initializer_range = 0.4
    made = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
    return made.eval()


def subject(model: Any, key: str = "h2o", promises: Any = None, **options: Any) -> Subject:
    def begin(samples: int) -> LibraryCache:
        cache = live.PolicyCache(policy_named(key), BUDGET, model, every=EVERY, **options)
        return LibraryCache(model, cache, lambda its: its.held[None], live.PolicyCache.end_turn)

    probe = live.PolicyCache(policy_named(key), BUDGET, model)
    full = TransformersModel(model, probe.decided)
    return Subject(begin, full, BUDGET, every=EVERY, **(promises or {}))


def run(found: Subject) -> None:
    for check in checks(found):
        check(found)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_policys_cache_passes_on_every_shape_of_model(kind: str, implementation: str) -> None:
    run(subject(model_of(kind, implementation)))


@pytest.mark.parametrize("decides", ["head", "layer", "model"])
@pytest.mark.parametrize("key", ["fifo", "fd-kvc", "snapkv"])
def test_it_passes_whoever_decides(key: str, decides: str) -> None:
    run(subject(model_of("llama"), key, decides=decides))


@pytest.mark.parametrize(
    ("key", "promises"),
    [
        ("sink", {"sinks": 4}),
        ("tova", {"scores": last_attention}),
        ("keydiff", {"scores": key_difference}),
    ],
)
def test_what_a_policy_promises_besides_is_held(key: str, promises: dict[str, Any]) -> None:
    run(subject(model_of("llama"), key, promises))


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_positions_that_close_up_neither_shift_nor_drift(kind: str) -> None:
    found = subject(model_of(kind), "sink", {"sinks": 4, "positions": "slots"}, positions="slots")
    assert "drifts_as_positions_are_given_anew" in [check.__name__ for check in checks(found)]
    run(found)
