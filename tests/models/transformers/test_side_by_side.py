"""Several texts in one forward pass: each cache computes and keeps what it does alone."""

from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch

from fdkvc.models.numpy import head_tokens
from fdkvc.models.numpy.text_cache import read, read_each
from fdkvc.models.transformers import loop
from fdkvc.models.transformers.cache import PolicyCache
from fdkvc.models.transformers.loop import LiveDecoder, LiveModel, LiveTextCache
from fdkvc.models.transformers.observed import TensorTokens
from fdkvc.models.transformers.side_by_side import SideBySide
from fdkvc.policies import policy_named, read_policy
from tests.library import CACHE, CAPPED, NO_OLD_NAME, SHAPES, Numbers, made, text
from tests.models.transformers.test_live import LENGTHS, RAGGED, assert_same_logits
from tests.models.transformers.test_observed import out_of_memory
from tests.refusals import refused

pytestmark = [
    NO_OLD_NAME,
    pytest.mark.filterwarnings("ignore::fdkvc.engine.sinks.FirstTokensWarning"),
]

POLICIES = (
    *("full", "fifo", "h2o", "sinks(snapkv)", RAGGED, "pyramid(h2o)", "ada-heads(h2o)"),
    *("expected-attention", "surprisal", "learned", "shift"),
)

OTHER = {"eager": "sdpa", "sdpa": "eager"}
CASES = [
    (shape, "eager" if shape == CAPPED[0] else attention, decides)
    for shape, attention, decides in zip(
        SHAPES, cycle(OTHER), cycle(("head", "layer", "model")), strict=False
    )
]
"""Each shape once, and every attention with heads that decide alone, by layer and together."""


def caches_of(model: LiveModel, decides: str = "head", budget: int = 5) -> list[LiveTextCache]:
    evicting = [model.evicting(read_policy(key), budget, decides) for key in POLICIES]
    return [model.full(), *evicting]


def loaded(shape: str = "llama", attention: str = "sdpa", **how: Any) -> LiveModel:
    tokens: Any = Numbers()
    return LiveModel("made", LiveDecoder(made(shape, attention)), tokens, "", **how)


def end_turns_alike(together: list[LiveTextCache], alone: list[LiveTextCache]) -> None:
    for one, other in zip(together, alone, strict=True):
        assert one.ids == other.ids
        one.end_turn()
        other.end_turn()
        np.testing.assert_array_equal(one.cache.held, other.cache.held)


@pytest.mark.parametrize(("shape", "attention", "decides"), CASES)
def test_texts_side_by_side_are_what_each_is_alone(
    shape: str, attention: str, decides: str
) -> None:
    model = loaded(shape, attention)
    ids = text(sum(LENGTHS)).numpy()[0]
    together, alone = caches_of(model, decides), caches_of(model, decides)
    first = 0
    for length in LENGTHS:
        turn, first = ids[first : first + length], first + length
        ours = read(together, turn)
        theirs = np.concatenate([read([cache], turn) for cache in alone])
        assert_same_logits(ours, theirs)
        end_turns_alike(together, alone)


@pytest.mark.parametrize(
    ("shape", "attention"), [(shape, OTHER[how]) for shape, how, _ in CASES if shape != CAPPED[0]]
)
def test_texts_of_several_lengths_are_read_at_once(
    shape: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "PADDED", 9)  # as on a GPU
    closed = shape in ("llama", "qwen3", "mistral")
    model = loaded(shape, attention, positions="slots" if closed else "kept")
    together, alone = caches_of(model), caches_of(model)
    for seed in range(3):
        lengths = np.random.default_rng(seed).integers(1, 9, len(alone)).tolist()
        ids = [text(length, 31 * seed + at).numpy()[0] for at, length in enumerate(lengths)]
        ours = read_each(together, ids)
        for logits, cache, new in zip(ours, alone, ids, strict=True):
            assert_same_logits(logits, read([cache], new)[0])
        end_turns_alike(together, alone)


def read_following(caches: list[LiveTextCache], ids: Any) -> Any:
    """Read with the first cache and those that have evicted; the others follow the first."""
    full, *others = caches
    following = [cache for cache in others if cache.whole]
    full.leads = bool(following)
    alone = [cache for cache in caches if cache not in following]
    logits = dict(zip(alone, read(alone, ids), strict=True))
    for cache in following:
        cache.follow(full)
    return np.stack([logits.get(cache, logits[full]) for cache in caches])


@pytest.mark.parametrize(("shape", "attention", "decides"), CASES)
def test_caches_that_follow_are_what_each_is_alone(
    shape: str, attention: str, decides: str
) -> None:
    closed = shape in ("qwen3", "mistral")
    model = loaded(shape, attention, positions="slots" if closed else "kept")
    ids, first = text(sum(LENGTHS)).numpy()[0], 0
    together, alone = caches_of(model, decides, 14), caches_of(model, decides, 14)
    whole = []
    for length in LENGTHS:
        whole.append(sum(cache.whole for cache in together))
        for part in (ids[first : first + length // 2], ids[first + length // 2 : first + length]):
            if len(part):
                ours = read_following(together, part)
                assert_same_logits(ours, np.concatenate([read([cache], part) for cache in alone]))
        first += length
        end_turns_alike(together, alone)
    assert whole[:2] == [len(together)] * 2
    assert whole[3:] == [2, 2], "those that evict nothing"


def test_what_may_have_evicted_follows_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = loaded().evicting(read_policy("h2o"), 99)
    read([cache], text(7).numpy()[0])
    with monkeypatch.context() as patched:
        patched.setattr(TensorTokens, "observe", out_of_memory)
        with pytest.raises(ValueError, match="not enough memory"):
            cache.end_turn()
    for _ in range(2):
        assert not cache.whole
        cache.end_turn()
    assert cache.cache.holds_all


def test_caches_that_follow_record_what_they_would_alone() -> None:
    model, ids = loaded(), text(9).numpy()[0]
    recorded = []
    for follows in (True, False):
        caches = [model.full(), model.evicting(read_policy("surprisal"), 99, record=True)]
        for part in (ids[:4], ids[4:]):
            if follows:
                read_following(caches, part)
            else:
                read(caches[1:], part)
        recorded.append(caches[1].cache)
    for name in ("hidden", "queries", "keys", "values"):
        one, other = (cache.recorded(name) for cache in recorded)
        assert_same_logits(one, other)


def test_where_memory_is_not_enough_every_text_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = loaded()
    texts, others = caches_of(model), caches_of(model)
    ids = text(14).numpy()[0]
    for caches in (texts, others):
        read(caches, ids[:9])
    for error in (torch.OutOfMemoryError("2 GiB"), RuntimeError("not enough memory: 2 GiB")):
        with monkeypatch.context() as patched:  # when two layers have read

            def fail(*_: Any, error: Exception = error) -> None:
                raise error

            patched.setattr(loop, "TOKENS_AT_ONCE", 40)
            patched.setattr(model.decoder.model.model.layers[2].mlp, "forward", fail)
            with refused("not enough memory"):
                read(texts, ids[9:])
    assert_same_logits(read(texts, ids[9:]), read(others, ids[9:]))
    end_turns_alike(texts, others)


def test_as_many_texts_as_memory_allows_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    made_before = SideBySide.__init__

    def counting(self: Any, caches: Any, new: Any) -> None:
        sizes.append(len(caches))
        made_before(self, caches, new)

    monkeypatch.setattr(SideBySide, "__init__", counting)
    model = loaded()
    others = [model.full() for _ in range(5)]
    read(others[:1], [1, 2, 3])  # a longer one
    monkeypatch.setattr(loop, "TOKENS_AT_ONCE", 8)
    read([*others[1:], others[0]], [4, 5])
    assert sizes == [4], "four texts of two tokens each, and the longer one alone"
    monkeypatch.setattr(loop, "TOKENS_AT_ONCE", 1)
    read(others[1:], [6])
    assert sizes == [4], "each alone"

    sizes.clear()
    monkeypatch.setattr(loop, "TOKENS_AT_ONCE", 1000)
    read_each(others, [np.zeros(new, np.intp) for new in (2, 19, 2, 20, 2)])
    assert sizes == [2, 3], "little padding"
    windows = loaded("gemma3")
    read([windows.full(), windows.full()], [1, 2])
    assert sizes == [2, 3], "layers with a window are the library's"


@pytest.mark.parametrize("numbers", [1, 4 * 40 * 256, 2**24])
def test_heads_that_are_observed_in_parts_decide_the_same(
    numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held(key: str, decides: str) -> Any:
        cache = PolicyCache(
            read_policy(key), 6, model, by_itself=False, decides=decides, tokenizer=Numbers()
        )
        for length in LENGTHS:
            model(text(length), **{CACHE: cache})
            cache.end_turn()
        return cache.held

    model = made()
    for key in ("sinks(snapkv)", "pyramid(h2o)", "sinks(surprisal)"):
        for decides in ("head", "layer", "model"):
            before = held(key, decides)
            with monkeypatch.context() as patched:
                patched.setattr(head_tokens, "PART_NUMBERS", numbers)
                np.testing.assert_array_equal(held(key, decides), before)


def test_caches_that_cannot_be_read_together_are_refused() -> None:
    model, (one, other) = loaded(), (loaded(), loaded("gemma3"))
    hooked = model.decoder.model
    caches = {"of its own turns": PolicyCache(policy_named("fifo"), 5, hooked)}
    caches["of another model"] = one.full().cache
    caches["with a window"] = other.full().cache
    caches["with two texts"] = model.full().cache
    hooked(text(3).expand(2, -1), **{CACHE: caches["with two texts"]})
    for cache in caches.values():
        with refused("of the same model"):
            SideBySide([model.full().cache, cache], [1, 1])
