"""A policy's cache in a library's models: what they compute is a full cache with those masked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import STREAMING_POLICIES, policies, turn_lengths

from fdkvc.policies import policy_named, read_policy

NO_TRANSFORMERS = "torch is not installed: get it with `pip install -r requirements-capture.txt`"

if os.environ.get("FDKVC_REQUIRE_CAPTURE") == "1":
    import torch
    import transformers
else:
    torch = pytest.importorskip("torch", reason=NO_TRANSFORMERS)
    transformers = pytest.importorskip("transformers", reason=NO_TRANSFORMERS)

from fdkvc.live import PolicyCache  # noqa: E402  (which needs them)

NEAR = 1e-5
"""Logits are the same to so much of the largest, where sums round otherwise."""

SIZES = {
    "vocab_size": 40,
    "hidden_size": 24,
    "intermediate_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "head_dim": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.4,  # weights large enough that attention is far from even
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
}
WINDOW = 8
WINDOWS = {
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention", "full_attention"],
}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "qwen2": ("Qwen2Config", {}),
    "qwen2 with a window": ("Qwen2Config", {"use_sliding_window": True, **WINDOWS}),
    "qwen3": ("Qwen3Config", {"num_key_value_heads": 1}),
    "mistral": ("MistralConfig", {"sliding_window": None}),
    "gemma": ("GemmaConfig", {"num_key_value_heads": 4}),
    "gemma2": ("Gemma2Config", {"query_pre_attn_scalar": 20, **WINDOWS}),
    "gemma3": ("Gemma3TextConfig", {"query_pre_attn_scalar": 20, **WINDOWS}),
    "gpt2": ("GPT2Config", {"n_positions": 256}),
}
LENGTHS = [7, 1, 9, 4, 6]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny products are quicker without company."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
    torch.set_num_threads(threads)


def made(shape: str = "llama", attention: str = "sdpa", **sizes: Any) -> Any:
    """Make a model of random weights."""
    torch.manual_seed(0)
    name, own = SHAPES[shape]
    known = {**SIZES, **own, **sizes}
    if shape == "gpt2":
        del known["head_dim"], known["num_key_value_heads"], known["intermediate_size"]
    config = getattr(transformers, name)(**known)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    return model.eval()


@pytest.fixture(scope="module")
def llama() -> Any:
    return made()


def text(tokens: int, seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).integers(40, size=(1, tokens)))


def read_in_turns(model: Any, cache: Any, ids: Any, lengths: Sequence[int]) -> Any:
    """Read a text turn by turn, and return all logits (N, V)."""
    found = []
    for first, end in pairwise(np.cumsum([0, *lengths]).tolist()):
        if end > first:
            found.append(model(ids[:, first:end], past_key_values=cache).logits[0])
        if isinstance(cache, PolicyCache):
            cache.end_turn()
    return torch.cat(found).numpy()


def what_was_seen(cache: Any, lengths: Sequence[int]) -> dict[int, Any]:
    """Return whether each token saw each other in every KV head (K, N, N), by the decisions."""
    n, turns = sum(lengths), [length for length in lengths if length]
    heads = cache.held.shape[1]
    found = {layer: np.zeros((heads, n, n + 1), bool) for layer in cache.decided}
    ends = np.cumsum(turns)
    for turn, end in enumerate(ends):
        began = end - turns[turn]
        for at, layer in enumerate(cache.decided):
            sees = found[layer]
            if turn:
                held = np.repeat(cache.decisions[turn - 1].held[at][:, None], end - began, axis=1)
                np.put_along_axis(sees[:, began:end], held, True, axis=2)  # −1 is beyond
            sees[:, began:end, began:end] |= np.tri(end - began, dtype=bool)
    return {layer: sees[..., :-1] for layer, sees in found.items()}


def masked(model: Any, ids: Any, sees: dict[int, Any]) -> Any:
    """Read a text at once with all that was seen told (K, N, N), and return all logits (N, V)."""

    def attend(module: Any, query: Any, key: Any, value: Any, mask: Any, **given: Any) -> Any:
        group = query.shape[1] // key.shape[1]
        keys, values = (each.repeat_interleave(group, dim=1) for each in (key, value))
        logits = query.double() @ keys.double().mT * given["scaling"]
        if given.get("softcap") is not None:
            logits = torch.tanh(logits / given["softcap"]) * given["softcap"]
        told = sees.get(module.layer_idx)
        seen = (
            mask if told is None else torch.from_numpy(told).repeat_interleave(group, dim=0)[None]
        )
        weights = logits.masked_fill(~seen, -torch.inf).softmax(dim=-1)
        return (weights.float() @ values).transpose(1, 2), None

    def every_mask(*_: Any, **given: Any) -> Any:
        return sdpa_mask(**(given | {"allow_is_causal_skip": False}))

    from transformers.masking_utils import sdpa_mask

    before = model.config._attn_implementation
    transformers.AttentionInterface.register("masked_by_hand", attend)
    transformers.AttentionMaskInterface.register("masked_by_hand", every_mask)
    model.set_attn_implementation("masked_by_hand")
    logits = model(ids, use_cache=False).logits[0].numpy()
    model.set_attn_implementation(before)
    return logits


def assert_same_logits(ours: Any, theirs: Any) -> None:
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= NEAR * np.abs(theirs).max()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_eviction_is_the_full_cache_with_the_evicted_masked(shape: str, attention: str) -> None:
    if shape == "gemma2" and attention == "sdpa":
        pytest.skip("its caps on logits are only in eager attention")
    model, ids = made(shape, attention), text(sum(LENGTHS))
    plain = read_in_turns(model, transformers.DynamicCache(config=model.config), ids, LENGTHS)

    # A threshold evicts more of one head than of another: they have empty slots.
    for policy in ("h2o", "fd-kvc:tau=0.6", "expected-attention", "recall(h2o, tier=1)"):
        cache = PolicyCache(read_policy(policy), 5, model, record=True)
        ours = read_in_turns(model, cache, ids, LENGTHS)
        assert_same_logits(ours, masked(model, ids, what_was_seen(cache, LENGTHS)))
        assert np.abs(ours - plain).max() > 0.01 * np.abs(plain).max(), "it has evicted something"
        for layer in cache.decided:
            assert cache.layers[layer].keys.shape[2] <= 5

    whole = PolicyCache(policy_named("h2o"), sum(LENGTHS), model)
    assert_same_logits(read_in_turns(model, whole, ids, LENGTHS), plain)


@settings(max_examples=12)
@given(
    policy=policies(STREAMING_POLICIES),
    lengths=turn_lengths(5, 8),
    budget=st.integers(1, 12),
    decides=st.sampled_from(["head", "layer", "model"]),
    pool=st.sampled_from(["mean", "max"]),
)
def test_so_it_is_for_any_policy_budget_and_whoever_decides(
    llama: Any, policy: Any, lengths: list[int], budget: int, decides: str, pool: str
) -> None:
    ids = text(sum(lengths))
    cache = PolicyCache(policy, budget, llama, decides=decides, pool=pool, record=True)

    ours = read_in_turns(llama, cache, ids, lengths)

    assert_same_logits(ours, masked(llama, ids, what_was_seen(cache, lengths)))
    for decision in cache.decisions or ():
        left = decision.held
        if policy.bounded:
            assert left.shape[2] <= budget
        if decides != "head":
            assert (left == left[:, :1]).all()
        if decides == "model":
            assert (left == left[:1]).all()
