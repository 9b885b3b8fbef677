"""What a model computes from a cache that evicts is what a full one gives with those masked."""

import dataclasses
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from fdkvc.core.attention import Floats, Observation
from fdkvc.core.token_traits import word_surprisal
from fdkvc.engine.online import OnlineCache
from fdkvc.engine.trace import Rule
from fdkvc.models.numpy import BUNDLED
from fdkvc.models.numpy.decoder import Decoder
from fdkvc.models.numpy.head_tokens import HeadTokens
from fdkvc.models.numpy.language_model import load_language_model
from fdkvc.models.numpy.model_text import Passage
from fdkvc.models.numpy.text_cache import EvictingCache, TextCache, read
from fdkvc.policies import Policy, policy_named, read_policy
from tests.examples import dialogs_of
from tests.language_models import MARKS, write_model
from tests.models.conformance.decoder_adapter import DecoderModel
from tests.models.conformance.masked import seen_by_turns
from tests.refusals import refused
from tests.worlds import STREAMING_POLICIES, policies, turn_lengths

NEAR = 1e-5
"""Logits are the same to so much of the largest, where sums round otherwise."""


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return load_language_model(write_model(tmp_path_factory.mktemp("model"))).decoder


def text(decoder: Decoder, tokens: int, seed: int = 0) -> list[int]:
    drawn = np.random.default_rng(seed).integers(decoder.shape.vocabulary, size=tokens)
    return [int(token) for token in drawn]


def read_in_turns(cache: TextCache, ids: Sequence[int], lengths: Sequence[int]) -> Any:
    """Read a text turn by turn, and return all logits (N, V)."""
    logits, bounds = [], np.cumsum([0, *lengths])
    for first, end in pairwise(bounds):
        if end > first:
            logits.append(read([cache], ids[first:end])[0])
        cache.end_turn()
    return np.concatenate(logits)


UNEVEN = read_policy("ada-heads(knorm, safe=0)")
"""Its heads hold different numbers of entries."""


def what_was_seen(cache: TextCache) -> Any:
    """Return whether each token saw each other (L, K, N, N), by what each turn left."""
    shape = cache.decoder.shape
    return seen_by_turns((shape.layers, shape.kv_heads), cache.ends, cache.attended_by_turn)


def masked(decoder: Decoder, ids: Sequence[int], sees: Any) -> Any:
    """Return the logits (N, V) of the full cache where each token sees what it is told."""
    causal = sees & np.tri(len(ids), dtype=bool)
    return DecoderModel(decoder).read(np.array(ids), causal).outputs


def assert_same_logits(ours: Any, theirs: Any) -> None:
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= NEAR * np.abs(theirs).max()


def test_surprisal_needs_the_text_of_tokens(decoder: Decoder) -> None:
    silent = EvictingCache(
        dataclasses.replace(decoder, features=None), policy_named("surprisal"), 5
    )
    with pytest.raises(ValueError, match="needs the surprisal of every token"):
        read_in_turns(silent, text(decoder, 12), [12])


def test_tokens_of_a_model_are_as_surprising_as_their_words_are_rare() -> None:
    model = load_language_model(BUNDLED)
    ids, _ = model.tokens.encode("in the Ferry")
    texts = [model.tokens.text([token]) for token in ids]

    assert texts[:2] == ["in", " the"]
    rare = [word_surprisal(word.strip()) for word in texts]
    read = [*model.tokens.marks["user"], *ids]
    assert model.tokens.surprisal(read) == pytest.approx([0, *rare])
    features = model.tokens.features(read, policy_named("surprisal").looks_at)
    assert features["surprisal"] == pytest.approx([0, *rare])


@given(
    policy=policies(STREAMING_POLICIES),
    lengths=turn_lengths(5, 8),
    budget=st.integers(1, 12),
    decides=st.sampled_from(["head", "layer"]),
    seed=st.integers(0, 99),
)
def test_an_eviction_is_the_full_cache_with_the_evicted_masked(
    decoder: Decoder, policy: Any, lengths: list[int], budget: int, decides: str, seed: int
) -> None:
    ids = text(decoder, sum(lengths), seed)
    cache = EvictingCache(decoder, policy, budget, decides)

    ours = read_in_turns(cache, ids, lengths)

    sees = what_was_seen(cache)
    assert_same_logits(ours, masked(decoder, ids, sees))
    if policy.bounded:
        for left in cache.attended_by_turn:
            assert left is None or left.shape[2] <= budget
            if decides == "layer" and left is not None:
                assert (left == left[:, :1]).all()
    np.testing.assert_allclose(
        cache.attention(len(ids) - 1).sum(axis=-1), 1, rtol=1e-5, err_msg="it attends to all"
    )


@given(
    policy=policies(STREAMING_POLICIES),
    lengths=turn_lengths(5, 8),
    budget=st.integers(1, 24),
    seed=st.integers(0, 99),
)
def test_a_cache_that_evicted_nothing_can_follow_the_full_one_bit_for_bit(
    decoder: Decoder, policy: Any, lengths: list[int], budget: int, seed: int
) -> None:
    ids, full = text(decoder, sum(lengths), seed), TextCache(decoder)
    reading, following = (EvictingCache(decoder, policy, budget) for _ in range(2))
    bounds, evicted = np.cumsum([0, *lengths]), False
    for first, end in pairwise(bounds.tolist()):
        of_full = read([full], ids[first:end])
        logits = read([reading], ids[first:end])
        if following.whole:
            following.follow(full)
            assert (of_full == logits).all()
        else:
            assert (read([following], ids[first:end]) == logits).all()
        full.end_turn()
        reading.end_turn()
        following.end_turn()
        assert following.ids == reading.ids
        evicted = evicted or bool((reading.evicted_in >= 0).any())
        assert following.whole is not evicted
    for name in ("hidden", "queries", "keys", "values"):
        assert (following.vectors(name) == reading.vectors(name)).all()


def test_who_follows_a_cache_that_forgot_queries_has_its_last(decoder: Decoder) -> None:
    full, following = TextCache(decoder), TextCache(decoder)
    ids = text(decoder, 12)
    read([full], ids[:8])
    full.forget_queries()
    read([full], ids[8:])
    following.follow(full)

    np.testing.assert_array_equal(following.vectors("queries"), full.vectors("queries"))
    assert following.vectors("queries").shape[2] == 5  # the last of the first eight, and four


@pytest.mark.parametrize("tokens", [5, 6])  # one head keeps all of five
def test_a_cache_of_which_one_head_holds_more_is_not_whole(decoder: Decoder, tokens: int) -> None:
    cache = EvictingCache(decoder, UNEVEN, 3)
    read_in_turns(cache, text(decoder, tokens), [tokens])

    assert cache.attended is not None
    assert len({*(cache.attended >= 0).sum(axis=2).ravel().tolist()}) > 1
    assert not cache.whole


@pytest.mark.parametrize("key", STREAMING_POLICIES)
def test_what_is_evicted_is_known_with_its_turn_and_rule(decoder: Decoder, key: str) -> None:
    lengths = [6, 4, 8, 3]
    cache = EvictingCache(decoder, policy_named(key), 7)
    read_in_turns(cache, text(decoder, sum(lengths)), lengths)

    for layer, head in np.ndindex(*cache.evicted_in.shape[:2]):
        gone = cache.evicted_in[layer, head]
        for turn, (end, left) in enumerate(zip(cache.ends, cache.attended_by_turn, strict=True)):
            assert left is not None
            held = {token for token in left[layer, head].tolist() if token >= 0}
            assert held == {at for at in range(end) if not 0 <= gone[at] <= turn}
    assert ((cache.evicted_in >= 0) == (cache.evicted_by != Rule.none)).all()


@pytest.mark.parametrize("key", [*STREAMING_POLICIES])
def test_a_head_keeps_what_a_stream_of_its_vectors_keeps(tmp_path: Path, key: str) -> None:
    decoder = load_language_model(write_model(tmp_path, num_key_value_heads=4)).decoder
    lengths = [6, 9, 4, 8, 7]
    cache = EvictingCache(decoder, policy_named(key), 10)
    read_in_turns(cache, text(decoder, sum(lengths)), lengths)
    vectors = {name: cache.vectors(name) for name in ("queries", "keys", "values")}

    assert decoder.features is not None
    for layer, head in ((0, 0), (0, 3), (1, 1), (1, 2)):
        stream = OnlineCache(policy_named(key), 10)
        for first, end, left in zip(
            [0, *cache.ends], cache.ends, cache.attended_by_turn, strict=False
        ):
            turn = stream.feed(
                embeddings=cache.vectors("hidden")[layer, 0, first:end],
                **{name: array[layer, head, first:end] for name, array in vectors.items()},
                **decoder.features(cache.ids[first:end], ("surprisal", "traits")),
            )
            assert left is not None
            assert [at for at in left[layer, head].tolist() if at >= 0] == turn.kept_tokens.tolist()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((policy_named("oracle"), 8), "looks at the future of the dialog"),
        ((policy_named("fifo"), 0), "budget is 0, but must be a whole number"),
        ((policy_named("fifo"), 8, "all"), "decides is 'all', but must be"),
        (("h2o", 8), "policy is 'h2o', but must be a policy, such as read_"),
    ],
)
def test_what_cannot_be_done_is_said(decoder: Decoder, given: Any, sentence: str) -> None:
    with refused(sentence):
        EvictingCache(decoder, *given)


@pytest.mark.parametrize("policy", [policy_named("fifo"), UNEVEN])
def test_a_restored_span_is_attended_to_as_it_was(decoder: Decoder, policy: Policy) -> None:
    ids = text(decoder, 36)
    cache = EvictingCache(decoder, policy, 6)
    read_in_turns(cache, ids, [10, 10, 10])
    untouched = read([cache.fork()], ids[30:])[0]

    back = cache.before_turn(3, range(3, 7))
    logits = read([back], ids[30:])[0]

    assert cache.attended is not None
    now = np.zeros((2, 2, 31), bool)
    np.put_along_axis(now, cache.attended, True, axis=2)  # −1 is the column beyond
    sees = np.pad(what_was_seen(cache), [(0, 0), (0, 0), (0, 6), (0, 6)])
    sees[:, :, 30:, :30] = now[:, :, None, :-1]
    sees[:, :, 30:, [*range(3, 7), *range(30, 36)]] = True
    assert_same_logits(logits, masked(decoder, ids, sees)[30:])
    np.testing.assert_array_equal(read([cache], ids[30:])[0], untouched)


def test_attention_says_what_a_token_saw_and_what_it_would_have_seen(decoder: Decoder) -> None:
    ids = text(decoder, 24)
    cache = EvictingCache(decoder, policy_named("fifo"), 5)
    read_in_turns(cache, ids, [8, 8, 8])

    saw = cache.attention(17)
    assert saw.shape == (2, 4, 24)
    assert (saw[:, :, 11:18] > 0).all()
    assert (saw[:, :, :11] == 0).all()
    assert (saw[:, :, 18:] == 0).all()
    all_of_it = cache.attention(17, whole_text=True)
    assert (all_of_it[:, :, :18] > 0).all()
    ratio = all_of_it[:, :, 11:18] / saw[:, :, 11:18]
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[..., :1], ratio.shape), rtol=1e-3)
    with pytest.raises(ValueError, match="the position is 24, but must be"):
        cache.attention(24)


def test_a_fork_goes_on_by_itself(decoder: Decoder) -> None:
    ids = text(decoder, 30)
    cache = EvictingCache(decoder, policy_named("h2o"), 6)
    read_in_turns(cache, ids[:20], [10, 10])
    other = cache.fork()

    read_in_turns(other, [1] * 30, [15, 15])
    after = read_in_turns(cache, ids[20:], [10])

    alone = EvictingCache(decoder, policy_named("h2o"), 6)
    np.testing.assert_array_equal(read_in_turns(alone, ids, [10, 10, 10])[20:], after)
    np.testing.assert_array_equal(alone.evicted_in, cache.evicted_in)
    assert (other.count, cache.count) == (50, 30)
    read([cache], [2, 3, 4])
    again = cache.fork(31)
    read([cache.fork()], [9])  # each by itself
    np.testing.assert_array_equal(read([again], [3, 4]), read([cache.fork(31)], [3, 4]))
    assert again.ids == [*ids, 2, 3, 4]
    with pytest.raises(ValueError, match="the count of a fork is 29, but must be"):
        cache.fork(29)


def test_forks_share_what_both_have_read(decoder: Decoder) -> None:
    cache = TextCache(decoder)
    cache.reserve(60)
    read([cache], ids := text(decoder, 20))
    first, second = cache.fork(), cache.fork()
    read([first], [5, 6])
    read([second], [7, 8])
    assert np.shares_memory(first.vectors("keys"), cache.vectors("keys"))
    assert not np.shares_memory(second.vectors("keys"), cache.vectors("keys"))
    for fork, more in ((first, [5, 6]), (second, [7, 8])):
        read([alone := TextCache(decoder)], ids)
        read([alone], more)
        np.testing.assert_array_equal(fork.vectors("values"), alone.vectors("values"))


def test_a_text_ends_where_the_positions_do(tmp_path: Path) -> None:
    model = load_language_model(write_model(tmp_path, max_position_embeddings=30))
    cache = EvictingCache(model.decoder, policy_named("fifo"), 4)
    read_in_turns(cache, text(model.decoder, 30), [10, 10, 10])
    with pytest.raises(ValueError, match="the text has 31 tokens"):
        read([cache], [1])


def again_read(cache: TextCache, ids: ArrayLike) -> Floats:
    logits: Floats = read([cache], ids)[0]
    cache.end_turn()
    return logits


def test_what_a_turn_began_with_goes_on_over_later_turns(decoder: Decoder) -> None:
    ids = text(decoder, 24)
    cache = EvictingCache(decoder, policy_named("fifo"), 5)
    whole = read_in_turns(cache, ids, [8, 8, 8])
    again = cache.before_turn(2)
    logits = np.concatenate([again_read(again, part) for part in np.split(ids[16:], [4])])
    at_once = again_read(cache.before_turn(2), ids[16:])
    np.testing.assert_allclose(logits, at_once, atol=NEAR * np.abs(at_once).max())
    np.testing.assert_allclose(logits, whole[16:], atol=NEAR * np.abs(at_once).max())
    with pytest.raises(ValueError, match="turn"):
        cache.before_turn(4)


@pytest.mark.parametrize("marks", [MARKS, ("<pad>",)])
def test_a_whitelist_knows_words_and_speakers_of_what_a_model_reads(
    tmp_path: Path, marks: Sequence[str]
) -> None:
    model = load_language_model(write_model(tmp_path, marks=marks))
    passages = [
        Passage("user", "To Trieste, please.", 0),
        Passage("system", "Trieste? When?", 1),
        Passage("user", "In the morning.", 2),
    ]

    def kept(listed: str) -> tuple[str, set[int]]:
        policy = read_policy(f"whitelist(fifo, first=0, most=1, {listed})")
        cache, began = model.evicting(policy, 30), []
        for passage in passages:
            began.append(cache.count)
            read([cache], model.tokens.encode_passage(passage).ids)
            cache.end_turn()
        assert cache.attended is not None
        stayed = [int(token) for token in cache.attended[0, 0] if token >= 0]
        pieces = [model.tokens.text([cache.ids[token]]) for token in stayed]
        return "".join(pieces), {bisect_right(began, token) - 1 for token in stayed}

    said, _ = kept("words=trieste")
    assert said.count("Trieste") == 2
    assert "please" not in said
    said, turns = kept("speaker=system")
    assert "Trieste? When?" in said
    assert 0 not in turns


@pytest.mark.parametrize("decides", ["head", "layer", "model"])
def test_hidden_states_that_heads_share_are_compared_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decides: str
) -> None:
    model = load_language_model(write_model(tmp_path, seed=3))
    (dialog, *_) = dialogs_of("dialogues")
    repetition = Observation.repetition
    seen: list[Any] = []

    def noted(observation: Observation, token: Any) -> Any:
        seen.append(repetition(observation, token))
        return seen[-1]

    def held() -> Any:
        cache = model.evicting(policy_named("surprisal"), 12, decides)
        for passage in model.tokens.encode_dialog(dialog)[:5]:
            read([cache], passage.ids)
            cache.end_turn()
        return cache.attended

    monkeypatch.setattr(Observation, "repetition", noted)
    shared, by_heads = held(), [*seen]
    seen.clear()
    of_groups: Any = HeadTokens.embeddings

    def of_rows(tokens: HeadTokens) -> Any:
        embeddings = of_groups.fget(tokens)
        return np.repeat(embeddings, len(tokens.born) // len(embeddings), axis=0)

    monkeypatch.setattr(HeadTokens, "embeddings", property(of_rows))
    assert np.array_equal(held(), shared)
    assert len(seen) == len(by_heads) >= 5
    for one, other in zip(seen, by_heads, strict=True):  # bit for bit
        assert np.array_equal(one, other)


def test_a_large_model_reads_texts_together_to_rounding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = load_language_model(write_model(tmp_path)).decoder
    texts = np.random.default_rng(0).integers(0, decoder.shape.vocabulary, (5, 30))
    alone = [read([TextCache(decoder)], ids) for ids in texts]
    monkeypatch.setattr("fdkvc.models.numpy.decoder.LARGE", 0)
    assert decoder.large
    together = read([TextCache(decoder) for _ in texts], texts)
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-4)
