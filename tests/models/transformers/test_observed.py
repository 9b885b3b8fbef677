"""What policies observe on a model's device is what NumPy computes of copies, for every policy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from transformers.cache_utils import DynamicCache

from benchmarks.live_cost import bytes_of
from fdkvc.core.attention import Floats, Ints, Observation, divide_by_max, entry_total, softmax
from fdkvc.core.cache import Cache
from fdkvc.models.numpy.head_tokens import HeadTokens
from fdkvc.models.transformers import cache as policy_cache
from fdkvc.models.transformers.cache import PolicyCache
from fdkvc.models.transformers.layer import PolicyLayer
from fdkvc.models.transformers.observed import TensorObservation, TensorTokens
from fdkvc.models.transformers.on_device import OnDevice
from fdkvc.policies import Policy, read_policy
from tests.library import CACHE, NO_OLD_NAME, SHAPES, Numbers, made, text
from tests.models.transformers.test_live import LENGTHS, RAGGED, WITHIN
from tests.refusals import refused
from tests.worlds import STREAMING_POLICIES

pytestmark = [NO_OLD_NAME, pytest.mark.filterwarnings("ignore::UserWarning")]

NEAR = 1e-5
VECTORS = {"attention", "similarity", "queries", "keys", "values", "chance"}
POLICIES = (
    *STREAMING_POLICIES,
    *(f"{key}(h2o)" for key in WITHIN),
    *(RAGGED, "sinks(surprisal)", "turns(snapkv)", "ada-heads(tova)", "pyramid(fd-kvc)"),
    "snapkv window=1",
    *(f"{key} queries=each" for key in ("h2o", "h2o-mean", "fastgen", "scissorhands")),
    "h2o queries=each forgetting=0.9",
)
EACH = (RAGGED, "expected-attention", "sinks(surprisal)", "snapkv window=0.5")
"""They observe everything between them, with unequally many entries of heads."""


@dataclass(frozen=True, eq=False)
class Compared(TensorObservation):
    """An observation that is compared with NumPy's whenever a policy makes it."""

    def compared(self, name: str, *given: Any) -> Any:
        tokens = self.tokens
        copies = HeadTokens(
            *(tokens.vectors, tokens.new, tokens.positions, tokens.features),
            layers=tokens.layers,
            first_layer=tokens.first_layer,
        )
        expected = getattr(Observation(self.turn, self.new, copies), name)(*given)
        ours = getattr(super(), name)(*given)
        scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
        np.testing.assert_allclose(np.asarray(ours), expected, rtol=NEAR, atol=NEAR * scale)
        made_of.add(name)
        return ours

    def logits(self, token: Ints) -> Floats:
        return self.compared("logits", token)  # type: ignore[no-any-return]

    def similarity(self, token: Ints) -> Floats:
        return self.compared("similarity", token)  # type: ignore[no-any-return]

    def repetition(self, token: Ints) -> Floats:
        return self.compared("repetition", token)  # type: ignore[no-any-return]

    def attention_of_each(self, token: Ints, last: Ints | None = None) -> Any:
        self.compared("attention_of_each", token[:, -1:])  # which earlier queries do not see
        return self.compared("attention_of_each", token, last)

    def keys(self, token: Ints) -> Any:
        return self.compared("keys", token)

    def values(self, token: Ints) -> Any:
        return self.compared("values", token)

    def queries(self, token: Ints) -> Any:
        return self.compared("queries", token)


class ComparedTokens(TensorTokens):
    """Tokens whose observations are `Compared`."""

    def observe(self) -> Observation:
        return Compared(0, self.new, self)


made_of: set[str] = set()
"""The observations that were compared."""


@dataclass(frozen=True)
class Nearest(Policy):
    """Keep what is most like the turn, whatever attends to it."""

    key, label, looks_at = "nearest", "Nearest", ("similarity",)

    def terms(self, cache: Cache, turn: Observation) -> Mapping[str, Floats]:
        return {"similarity": turn.similarity(cache.token)}


def held(tokens: type[HeadTokens], model: Any, key: str | Policy, decides: str, **how: Any) -> Any:
    """Return what a cache holds after each turn, with its policy's observations by `tokens`."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(policy_cache, "TensorTokens", tokens)
        how |= {"tokenizer": Numbers(), "by_itself": False, "decides": decides}
        policy = read_policy(key) if isinstance(key, str) else key
        cache, by_turn = PolicyCache(policy, 6, model, **how), []
        if tokens is not TensorTokens:  # NumPy takes the mean of each query
            patched.setattr(PolicyLayer, "keep_last_queries", nothing)
            cache._needed |= {"queries"}
            cache._captured |= cache._needed
        for seed, length in enumerate(LENGTHS):
            for part in text(length, seed).split(4, dim=1):  # a turn may be several passes
                model(part, **{CACHE: cache})
            cache.end_turn()
            by_turn.append(cache.held)
    return by_turn


def assert_same(model: Any, key: str | Policy, decides: str, **how: Any) -> None:
    ours, theirs = (
        held(tokens, model, key, decides, **how) for tokens in (ComparedTokens, HeadTokens)
    )
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("key", POLICIES)
def test_every_policy_observes_and_keeps_what_it_does_of_copies(llama: Any, key: str) -> None:
    assert_same(llama, key, "head")


def test_a_policy_may_look_at_similarity_alone(llama: Any) -> None:
    assert_same(llama, Nearest(), "head")


@pytest.mark.parametrize("key", EACH)
@pytest.mark.parametrize("decides", ["layer", "model"])
def test_so_it_does_where_heads_decide_together(llama: Any, key: str, decides: str) -> None:
    assert_same(llama, key, decides)


LONG = [pytest.param(POLICIES, by, marks=pytest.mark.long) for by in ("head", "layer", "model")]


@pytest.mark.parametrize(("keys", "decides"), [(EACH, "head"), *LONG])
@pytest.mark.parametrize("shape", SHAPES)
def test_so_it_is_in_every_architecture(shape: str, keys: tuple[str, ...], decides: str) -> None:
    model = made(shape, "eager" if shape == "gemma2" else "sdpa")
    made_of.clear()
    for key in keys:
        assert_same(model, key, decides)
    every = {"logits", "similarity", "repetition", "attention_of_each", "keys", "values", "queries"}
    assert made_of == every


@pytest.mark.parametrize("key", EACH)
def test_so_it_is_in_half_precision_and_with_closed_gaps(llama: Any, key: str) -> None:
    assert_same(llama, key, "layer", positions="slots")
    assert_same(made().to(torch.bfloat16), key, "head")


TEXT_ALONE = [
    key
    for key in (*STREAMING_POLICIES, *(f"{wrapper}(fifo)" for wrapper in WITHIN))
    if not VECTORS & {*read_policy(key).looks_at}
]
"""Among them are messages and regions."""


@pytest.mark.parametrize("key", TEXT_ALONE)
def test_text_alone_touches_no_vector(
    llama: Any, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a vector was read")

    for name in ("vectors", "states", "add_vectors"):
        monkeypatch.setattr(PolicyLayer, name, refuse if name != "add_vectors" else nothing)
    assert len(held(TensorTokens, llama, key, "head")) == len(LENGTHS)


def nothing(layer: PolicyLayer, *_: Any, **vectors: Any) -> None:
    assert not vectors


def test_hidden_states_are_stored_once_a_token_and_layer(llama: Any) -> None:
    how: Any = {"tokenizer": Numbers(), "by_itself": False}
    cache = PolicyCache(read_policy(RAGGED), 6, llama, **how)
    for length in LENGTHS:
        llama(text(length), **{CACHE: cache})
        cache.end_turn()
        for layer, tokens in zip(cache.layers, cache.held, strict=True):
            assert sum(map(len, layer._states)) == len({*tokens[tokens >= 0].tolist()})


@pytest.mark.parametrize("key", ["fd-kvc", "surprisal"])
def test_with_hidden_states_it_holds_no_more_than_the_library_from_some_length_on(
    llama: Any, key: str
) -> None:
    budget, turn = 6, 2
    config = llama.config
    keys_values = 2 * config.num_key_value_heads * config.head_dim
    length = (1 + config.hidden_size / keys_values) * (budget + turn)
    how: Any = {"tokenizer": Numbers(), "by_itself": False, "decides": "layer"}
    cache, library = PolicyCache(read_policy(key), budget, llama, **how), DynamicCache()
    while library.get_seq_length() < 2 * length:
        for read_with in (cache, library):
            llama(text(turn), **{CACHE: read_with})
        seen = library.get_seq_length()
        sums = [layer.query_sum for layer in cache.layers if layer.query_sum is not None]
        held = bytes_of(cache) - sum(of_queries.nbytes for of_queries in sums)
        if seen > budget + turn:
            assert (held <= bytes_of(library)) == (seen >= length)
        cache.end_turn()


def test_queries_are_stored_only_for_attention_of_each(llama: Any) -> None:
    for key, stored in (("sinks(h2o)", False), ("h2o queries=each", True), ("turns(tova)", True)):
        cache = PolicyCache(read_policy(key), 6, llama)
        llama(text(7), **{CACHE: cache})
        llama(text(1), **{CACHE: cache})
        assert ("queries" in cache.layers[0].turn_vectors) == stored, key


LAST = ("sinks(tova)", "snapkv", "turns(snapkv)", "snapkv window=1")


@pytest.mark.parametrize("key", LAST)
@pytest.mark.parametrize("passes", [(20,), (12, 8), (19, 1)])
def test_only_the_last_queries_are_stored_where_no_others_are_looked_at(
    llama: Any, key: str, passes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding in front of a text, and among its tokens, is not taken for a query."""
    ids = torch.cat([text(20), text(20, 1)])
    mask = torch.ones(2, 40, dtype=torch.long)
    mask[1, :4] = mask[1, 12:14] = mask[1, 36:38] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    caches = [PolicyCache(read_policy(key), 6, llama, by_itself=False) for _ in range(2)]
    stored = [0, 0]
    for turn in range(2):
        for number, cache in enumerate(caches):
            with monkeypatch.context() as patched:
                if number:
                    patched.setattr(PolicyLayer, "keep_last_queries", nothing)
                start = 20 * turn
                for part in ids.split(passes, dim=1):
                    end = start + part.shape[1]
                    where = {
                        "attention_mask": mask[:, :end],
                        "position_ids": positions[:, start:end],
                    }
                    llama(part, **where, **{CACHE: cache})
                    start = end
            stored[number] = bytes_of(cache)
            cache.end_turn()
        np.testing.assert_array_equal(caches[0].held, caches[1].held)
    if "window" not in key and passes == (20,):
        assert stored[0] < stored[1]


def test_tokens_are_those_that_were_read_though_their_tensor_is_written_to(llama: Any) -> None:
    how: Any = {"tokenizer": Numbers(), "by_itself": False}
    caches = [PolicyCache(read_policy("sinks(surprisal)"), 6, llama, **how) for _ in range(2)]
    ids, parts = torch.empty(1, 4, dtype=torch.long), text(12).split(4, dim=1)
    for part in parts:
        llama(part, **{CACHE: caches[0]})
        llama(ids.copy_(part), **{CACHE: caches[1]})
    for cache in caches:
        cache.end_turn()
    whole, written = (cache._features[0]["surprisal"] for cache in caches)
    np.testing.assert_array_equal(whole, written)


def out_of_memory(*_: Any, **__: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_where_memory_is_not_enough_the_turn_has_not_ended(
    llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in EACH:
        how: Any = {"tokenizer": Numbers(), "by_itself": False, "positions": "slots"}
        cache, other = (PolicyCache(read_policy(key), 6, llama, **how) for _ in range(2))
        for length in LENGTHS:
            for one in (cache, other):
                llama(text(length), **{CACHE: one})
            before = cache.held
            with monkeypatch.context() as patched:
                patched.setattr(TensorTokens, "observe", out_of_memory)
                with refused("not enough memory"):
                    cache.end_turn()
            np.testing.assert_array_equal(cache.held, before)
            for one in (cache, other):
                one.end_turn()
            np.testing.assert_array_equal(cache.held, other.held)


@pytest.mark.parametrize("key", [RAGGED, "h2o", "fifo"])
@pytest.mark.parametrize("positions", ["kept", "slots"])
@pytest.mark.parametrize("reads_on", [False, True])
def test_where_memory_ends_between_layers_the_text_is_whole(
    llama: Any, key: str, positions: str, reads_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    how: Any = {"tokenizer": Numbers(), "by_itself": False, "positions": positions}
    cache, other = (PolicyCache(read_policy(key), 6, llama, **how) for _ in range(2))
    for length in LENGTHS:
        for one in (cache, other):
            llama(text(length), **{CACHE: one})
        before, keep, calls = cache.held, PolicyLayer.keep, 0

        def kept(layer: PolicyLayer, entries: Any, keep: Any = keep) -> None:
            nonlocal calls
            calls += 1
            keep(layer, entries)
            if calls == 2:  # of the second of three layers
                out_of_memory()

        with monkeypatch.context() as patched:
            patched.setattr(PolicyLayer, "keep", kept)
            with refused("not enough memory"):
                cache.end_turn()
        np.testing.assert_array_equal(cache.held, before)
        fork = cache.fork()
        other.end_turn()
        for one in (cache, fork):
            if not reads_on:
                one.end_turn()
                np.testing.assert_array_equal(one.held, other.held)
            ours, theirs = (llama(text(2), **{CACHE: it}).logits for it in (one, other.fork()))
            assert torch.equal(ours, theirs)
        cache = other.fork()


def test_a_pass_that_broke_off_is_said(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = PolicyCache(read_policy("h2o"), 6, llama)
    llama(text(9), **{CACHE: cache})
    before = cache.fork()
    with monkeypatch.context() as patched:
        patched.setattr(llama.model.layers[1].mlp, "forward", out_of_memory)
        with pytest.raises(torch.OutOfMemoryError):
            llama(text(4), **{CACHE: cache})
    with refused("not whole"):
        llama(text(4), **{CACHE: cache})
    llama(text(4), **{CACHE: before})
    assert before.ends == [9, 13]


def test_numpy_computes_with_an_array_on_a_device() -> None:
    array = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    device, mask = OnDevice(torch.from_numpy(array.copy())), array[:, :, :1] > 0

    def results(x: Any) -> list[Any]:
        doubled = 2 * x
        doubled /= np.float32(4)
        doubled[doubled > 1] = 7
        doubled[0, 1:3] = x[1, 2:4]
        summed = np.zeros((2, 3), np.float32)
        summed += x.sum(axis=1)
        return [
            *(x + 1, -x, mask * x, x > 0, np.where(mask, x, 0), np.exp(x), np.maximum(x, array)),
            *(x.sum(axis=1), x.max(axis=2, keepdims=True), x.astype(np.float64), x.copy(), doubled),
            *(np.linalg.norm(x, axis=-1), np.concatenate([x, array], axis=1), x[:, -2:], x[:, 0]),
            *(np.moveaxis(x, 0, 2), np.ones((2, 4, 5), np.float32) @ x, np.cumsum(x, axis=1)),
            *(np.maximum(x, 0), np.maximum(0, x), x == array, x.mean(axis=1), x[..., None], summed),
            *(softmax(x), softmax(x[:, :, 0]), divide_by_max(abs(x)), entry_total(x)),
            *(np.zeros_like(x), np.full_like(x, 2), np.zeros_like(x, shape=4), bool(x.any())),
            *(x.reshape(-1, 3).take(np.array([[4, -1]]), axis=0), x.view(np.uint32), len(x)),
        ]

    for ours, expected in zip(results(device), results(array), strict=True):
        assert ours.dtype == expected.dtype if hasattr(expected, "dtype") else True
        np.testing.assert_allclose(np.asarray(ours), expected, rtol=1e-6)
    kept: Any = device
    for stays in (kept + 1, kept.sum(axis=1), softmax(kept), entry_total(kept)):
        assert isinstance(stays, OnDevice), "the host waits once, at the end"


def test_what_would_be_lost_in_a_copy_is_refused() -> None:
    device: Any = OnDevice(torch.ones(1, 2, 3))
    with pytest.raises(ValueError, match="read-only"):
        np.copyto(device, 0)
