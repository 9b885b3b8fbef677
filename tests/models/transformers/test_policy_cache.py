"""What a policy's cache serves: devices, kernels, batches, tokens' texts, hybrids."""

import weakref
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import live_cost
from fdkvc.models.numpy import head_tokens
from fdkvc.models.transformers.cache import PolicyCache
from fdkvc.policies import read_policy
from tests.library import CACHE, NO_OLD_NAME, SIZES, Numbers, made, text
from tests.models.transformers.test_live import (
    LENGTHS,
    RAGGED,
    assert_same_logits,
    masked,
    read_in_turns,
)
from tests.refusals import refused

pytestmark = NO_OLD_NAME


class Allocated(TorchDispatchMode):  # type: ignore[misc]
    """The bytes of the largest vectors that are made meanwhile, and the most in memory at once."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.peak = self._now = 0
        self._living: set[int] = set()

    def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), named: Any = None) -> Any:
        made = function(*args, **(named or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._living:
                    self._living.add(storage._cdata)
                    self._now += storage.nbytes()
                    weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes())
                self.peak = max(self.peak, self._now)
                if tensor.is_floating_point():
                    self.largest = max(self.largest, tensor.nbytes)
        return made

    def _freed(self, storage: int, size: int) -> None:
        self._living.remove(storage)
        self._now -= size


@pytest.mark.parametrize(
    ("policy", "decides", "most"),
    [
        ("h2o", "model", 1),
        ("fd-kvc", "model", 4),  # hidden states are as wide as all query heads
        ("surprisal", "model", 8),
        ("keydiff", "model", 2),  # keys, for each query head
        ("expected-attention", "model", 256),  # the covariance of each query head,
        ("pyramid(h2o)", "head", 1.5),
        ("pyramid(keydiff)", "layer", 3.2),
    ],
)
def test_vectors_are_copied_of_one_layer_at_a_time(policy: str, decides: str, most: float) -> None:
    peaks = []
    for layers in (2, 6):
        deep = made(num_hidden_layers=layers, head_dim=64, hidden_size=256)
        how: Any = {"decides": decides, "by_itself": False}
        cache = PolicyCache(read_policy(policy), 48, deep, tokenizer=Numbers(), **how)
        read_in_turns(deep, cache, text(56), [48, 8])
        deep(text(8), **{CACHE: cache})
        with Allocated() as allocated:
            cache.end_turn()
        peaks.append(allocated.largest)
    of_one_layer = 2 * (48 + 8) * 64 * 4  # keys, in single precision
    assert max(peaks) <= most * of_one_layer
    if "pyramid" not in policy:
        assert peaks[0] == peaks[1], "no more of a deeper model"


GROUPED: dict[str, Any] = {
    "num_hidden_layers": 6,
    "hidden_size": 96,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 8,
}
"""Three query heads share keys: a hidden state has 96 numbers, a token's keys and values 64."""


@pytest.mark.parametrize(
    ("policy", "times"),
    [
        *((key, 2) for key in ("fifo", "sinks(h2o)", "snapkv", "sinks(tova)", "keydiff")),
        *((key, 4) for key in ("fd-kvc", "surprisal")),  # which keep hidden states
    ],
)
def test_the_peak_is_that_of_the_librarys_cache_at_most(
    policy: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_tokens, "PART_NUMBERS", 2**14)
    model = made(**GROUPED)
    ours = PolicyCache(read_policy(policy), 32, model, by_itself=False, tokenizer=Numbers())
    assert peak(model, ours, times) <= peak_of_the_library(times)


def peak(model: Any, cache: Any, times: int) -> int:
    """Return the most bytes in memory at once while a text of `times` 32 tokens is read."""
    with Allocated() as allocated:
        read_in_turns(model, cache, text(times * 32), [8] * (times * 4))
    most: int = allocated.peak
    return most


@lru_cache
def peak_of_the_library(times: int) -> int:
    model = made(**GROUPED)
    return peak(model, transformers.DynamicCache(config=model.config), times)


SHORT = [9, 1, 2, 1, 2]
"""Turns after which entries below a threshold are not all replaced by new ones."""


def unequal(model: Any, **how: Any) -> PolicyCache:
    """Return a cache whose layers keep different numbers of entries."""
    return PolicyCache(read_policy("fd-kvc:tau=0.9"), 6, model, record=True, **how)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_layers_that_decide_together_hold_no_empty_slots(attention: str) -> None:
    model = made(attention=attention)
    cache = unequal(model, decides="layer")
    ours = read_in_turns(model, cache, text(sum(SHORT)), SHORT)
    assert_same_logits(ours, masked(model, cache, text(sum(SHORT))))
    sizes = {layer.keys.shape[2] for layer in cache.layers}
    assert len(sizes) > 1
    for layer, held in zip(cache.layers, cache.held, strict=True):
        assert layer.empty is None
        tokens = held[0][held[0] >= 0]
        assert (np.diff(tokens) > 0).all(), "in order"
        assert len(tokens) == layer.keys.shape[2]


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_each_kernel_of_sdpa_reads_them(llama: Any, backend: Any) -> None:
    whole, cache = (unequal(llama, decides="layer") for _ in range(2))
    ids = text(sum(SHORT))
    expected = read_in_turns(llama, whole, ids, SHORT)
    with sdpa_kernel(backend):  # the CPU has these two, not the memory-efficient one
        assert_same_logits(read_in_turns(llama, cache, ids, SHORT), expected)


def flash(module: Any, query: Any, key: Any, value: Any, mask: Any, **given: Any) -> Any:
    """Attend as flash attention does: causal from the last token back, by text without padding."""
    group = query.shape[1] // key.shape[1]
    keys, values = (vectors.repeat_interleave(group, dim=1) for vectors in (key, value))
    n, total = query.shape[2], key.shape[2]
    seen = torch.ones(n, total, dtype=torch.bool).tril(total - n)[None, None]
    if mask is not None:
        assert mask.shape == (len(query), total)
        seen = seen & mask[:, None, None].bool()
    logits = (query @ keys.mT * given["scaling"]).masked_fill(~seen, -torch.inf)
    return (logits.softmax(dim=-1).nan_to_num() @ values).transpose(1, 2), None


@pytest.mark.parametrize("padded", [False, True])
def test_flash_attention_gets_no_mask_but_padding(
    monkeypatch: pytest.MonkeyPatch, padded: bool
) -> None:
    name = "flash_attention_2"
    registered = transformers.AttentionInterface._global_mapping
    monkeypatch.setitem(registered, name, flash)
    plain, model = made(), made()
    model.config._attn_implementation_internal = name
    with refused('choose decides="layer"'):
        unequal(model)
    ids, mask = (text(40).reshape(2, 20), torch.ones(2, 20, dtype=torch.long))
    mask[0, :3] = 0 if padded else 1
    outputs = []
    for network in (plain, model):
        cache = PolicyCache(read_policy(RAGGED), 6, network, decides="layer")
        both = []
        for first, end in ((0, 9), (9, 10), (10, 20)):
            given = {"attention_mask": mask[:, :end], CACHE: cache}
            positions = (mask.cumsum(1) - 1).clamp(min=0)[:, first:end]
            logits = network(ids[:, first:end], position_ids=positions, **given).logits
            both.append(logits[:, 3 if padded and not first else 0 :])
        outputs.append(torch.cat(both, dim=1).numpy())
    assert_same_logits(*outputs)


@pytest.mark.parametrize(
    "policy", ["h2o", RAGGED, "surprisal", "learned", "snapkv", "expected-attention"]
)
@pytest.mark.parametrize("decides", ["head", "layer"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_texts_of_a_batch_are_read_as_each_alone(policy: str, decides: str, attention: str) -> None:
    model, counts = made(attention=attention), np.array([[7, 3, 9], [4, 5, 9], [1, 3, 2]])
    how: Any = {"decides": decides, "tokenizer": Numbers()}
    new = partial(PolicyCache, read_policy(policy), 5, model, **how)
    texts = [text(total, seed) for seed, total in enumerate(counts.sum(axis=1))]
    cache, alone = new(), [new() for _ in texts]
    mask = torch.empty(3, 0, dtype=torch.long)
    ends = np.cumsum(counts, axis=1)
    for turn, most in enumerate(counts.max(axis=0)):
        ids, real = torch.zeros(3, most, dtype=torch.long), torch.zeros(3, most, dtype=torch.long)
        expected = []
        for at, whole in enumerate(texts):
            n, end = counts[at, turn], ends[at, turn]
            ids[at, most - n :], real[at, most - n :] = whole[0, end - n : end], 1
            expected.append(model(whole[:, end - n : end], **{CACHE: alone[at]}).logits[0])
            alone[at].end_turn()
        mask = torch.cat([mask, real], dim=1)
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -int(most) :]
        given = {"attention_mask": mask, "position_ids": positions, CACHE: cache}
        ours = model(ids, **given).logits
        cache.end_turn()
        for at, logits in enumerate(expected):
            assert_same_logits(ours[at, most - counts[at, turn] :].numpy(), logits.numpy())
            held = cache.held[at]
            np.testing.assert_array_equal(held[..., : alone[at].held.shape[2]], alone[at].held)
            assert (held[..., alone[at].held.shape[2] :] < 0).all()


def test_generate_answers_a_padded_batch_turn_after_turn(llama: Any) -> None:
    alone, lengths = [], (9, 5)
    for seed, n in enumerate(lengths):
        cache, ids = PolicyCache(read_policy("h2o"), 6, llama), text(n, seed)
        for more in (4, 0):
            given = {"attention_mask": torch.ones_like(ids), CACHE: cache}
            how: Any = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
            ids = llama.generate(ids, **given, streamer=cache.streamer(), **how)
            ids = torch.cat([ids, text(more, 9)], dim=1)
        alone.append(ids[0].tolist())
    cache = PolicyCache(read_policy("h2o"), 6, llama)
    ids = torch.cat([text(9, 0), torch.cat([torch.zeros(1, 4, dtype=int), text(5, 1)], dim=1)])
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    for more in (4, 0):
        given = {"attention_mask": mask, CACHE: cache}
        ids = llama.generate(ids, **given, streamer=cache.streamer(), **how)
        ids = torch.cat([ids, text(more, 9).expand(2, -1)], dim=1)
        mask = torch.cat([mask, torch.ones(2, ids.shape[1] - mask.shape[1], dtype=int)], dim=1)
    assert ids[0].tolist() == alone[0]
    assert ids[1, 4:].tolist() == alone[1]
    assert cache.held.shape[:3] == (2, 3, 2)
    with pytest.raises(ValueError, match="cannot serve several beams"):
        llama.generate(ids[:1], num_beams=2, **{CACHE: cache}, **how)


def test_a_prompt_of_one_token_is_one_where_it_is_announced(llama: Any) -> None:
    silent, told = (PolicyCache(read_policy("h2o"), 6, llama) for _ in range(2))
    for cache in (silent, told):
        for n in (1, 7):
            llama(text(n), **{CACHE: cache})
        if cache is told:
            cache.begin_turn()
        for _ in range(3):
            llama(text(1), **{CACHE: cache})
    assert silent.ends == [1, 8], "a single token seems to be written"
    assert told.ends == [1, 8, 9]


def test_a_streamer_knows_how_long_its_prompt_is(llama: Any) -> None:
    cache = PolicyCache(read_policy("h2o"), 6, llama)
    ids = text(17)
    given = {"attention_mask": torch.ones_like(ids), CACHE: cache}
    how: Any = {"max_new_tokens": 4, "do_sample": False, "prefill_chunk_size": 8}
    llama.generate(ids, **given, streamer=cache.streamer(), **how)
    assert cache.ends == [8, 16, 17, 20], "a part of one token is prompt, too"


def test_rare_words_stay_and_hidden_ids_are_refused(llama: Any) -> None:
    cache = PolicyCache(read_policy("surprisal redundancy=1"), 6, llama, tokenizer=Numbers())
    ids = torch.tensor([[3, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0]])  # Ljubljana, Friday, and the
    llama(ids, **{CACHE: cache})
    assert (cache.held == [0, 1, 7, 9, 10, 11]).all(), "the two, the newest, the oldest of equals"
    again = PolicyCache(read_policy("surprisal"), 6, llama, tokenizer=Numbers())
    embedded = llama.get_input_embeddings()(ids) * 2
    with refused("input_ids instead of inputs_embeds"):
        llama(inputs_embeds=embedded, **{CACHE: again})


def test_a_fork_knows_the_words_of_its_own_text(llama: Any) -> None:
    policy = read_policy("surprisal redundancy=1")
    first, words = [3, 0, 0, 0], [[0, 5, 0, 0, 0, 0], [0, 0, 0, 5, 0, 0]]
    cache = PolicyCache(policy, 4, llama, tokenizer=Numbers())
    llama(torch.tensor([first]), **{CACHE: cache})
    forks = cache.fork(), cache
    for fork, its in zip(forks, words, strict=True):
        llama(torch.tensor([its]), **{CACHE: fork})
    for fork, its in zip(forks, words, strict=True):
        alone = PolicyCache(policy, 4, llama, tokenizer=Numbers())
        for ids in (first, its):
            llama(torch.tensor([ids]), **{CACHE: alone})
        np.testing.assert_array_equal(fork.held, alone.held)
    assert (forks[0].held != forks[1].held).any()


def test_a_layer_has_no_more_slots_than_its_budget(llama: Any) -> None:
    cache = PolicyCache(read_policy("pyramid(fifo, last=0.5)"), 6, llama)
    read_in_turns(llama, cache, text(24), [12, 12])
    slots = [layer.keys.shape[2] for layer in cache.layers]
    assert slots == [(held >= 0).sum(axis=1).max() for held in cache.held]
    assert slots[0] > slots[1] > slots[2]


@pytest.mark.parametrize("record", [[3], [-1], [0, 7], 1, "all"])
def test_only_layers_that_there_are_can_be_recorded(llama: Any, record: Any) -> None:
    with pytest.raises(ValueError, match=r"record is .*, but must name layers .*: 0, 1, 2"):
        PolicyCache(read_policy("h2o"), 4, llama, record=record)


def test_a_text_without_tokens_is_refused_in_a_sentence(llama: Any) -> None:
    cache = PolicyCache(read_policy("h2o"), 4, llama)
    with pytest.raises(ValueError, match="this text has no tokens to read"):
        llama.generate(text(0), **{CACHE: cache}, max_new_tokens=1)


def test_what_is_not_recorded_is_named(llama: Any) -> None:
    with pytest.raises(LookupError, match="has recorded no keys"):
        PolicyCache(read_policy("h2o"), 4, llama, record=True).recorded("keys")


def test_recorded_vectors_are_those_of_the_models_attention() -> None:
    model = made("gemma3", "eager")  # its logits are not divided by the root of the width
    cache, ids = PolicyCache(read_policy("h2o"), 4, model, record=True), text(7)
    how = {"output_attentions": True, "output_hidden_states": True, "use_cache": False}
    expected = model(ids, **how)
    model(ids, **{CACHE: cache})
    queries, keys = (torch.from_numpy(cache.recorded(name)) for name in ("queries", "keys"))
    logits = queries @ keys.repeat_interleave(2, dim=1).mT / np.sqrt(queries.shape[-1])
    later = torch.ones(7, 7, dtype=torch.bool).triu(1)
    weights = logits.masked_fill(later, -torch.inf).softmax(dim=-1)
    for at, layer in enumerate(cache.decided):
        np.testing.assert_allclose(weights[at], expected.attentions[layer][0], atol=1e-5)
        hidden = cache.recorded("hidden")[at]
        np.testing.assert_allclose(hidden, expected.hidden_states[layer], atol=1e-5)


LINEAR = {
    "layer_types": ["linear_attention", "full_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "num_experts": 0,
}
SOME = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"] * 2}
HYBRIDS: dict[str, tuple[dict[str, Any], str]] = {
    "Qwen3NextConfig": (LINEAR, "layers 0 (linear attention)"),
    "GptOssConfig": (
        {**SOME, "num_hidden_layers": 4, "num_local_experts": 2, "num_experts_per_tok": 1},
        "layers 0, 2 (window of 8 tokens)",
    ),
    "Gemma2Config": ({**SOME, "num_hidden_layers": 4}, "layers 0, 2 (window of 8 tokens)"),
    "MistralConfig": ({"sliding_window": None}, ""),
}


@pytest.mark.parametrize("name", HYBRIDS)
def test_hybrids_are_managed_where_they_attend_to_the_whole_text(name: str) -> None:
    options, left = HYBRIDS[name]
    config = getattr(transformers, name)(**{**SIZES, "head_dim": 8, **options})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model.eval()
    ids, lengths = text(24), [9, 6, 9]
    plain = read_in_turns(model, transformers.DynamicCache(config=config), ids, lengths)
    # In turns and at once, linear attention is rounded differently, by processor, also without us.
    rounding = np.abs(plain - model(ids).logits[0].numpy()).max()
    whole = PolicyCache(read_policy("h2o"), 24, model)
    assert whole.left == (f"left to the model: {left}" if left else "")
    assert_same_logits(read_in_turns(model, whole, ids, lengths), plain)
    for decides in ("head", "layer"):
        cache = PolicyCache(read_policy("h2o"), 5, model, decides=decides, record=True)
        ours = read_in_turns(model, cache, ids, lengths)
        assert cache.held.shape == (len(cache.decided), 2, 5)
        assert_same_logits(ours, masked(model, cache, ids), rounding)
        assert np.abs(ours[15:] - plain[15:]).max() > 1e-3 * np.abs(plain).max()
        other = cache.fork()
        one, two = (model(text(3, 4), **{CACHE: branch}).logits for branch in (cache, other))
        assert torch.equal(one, two)


def test_layers_that_share_keys_are_refused() -> None:
    config = transformers.Gemma3nTextConfig(
        **{**SIZES, "intermediate_size": [16] * 3, "num_kv_shared_layers": 1},
        layer_types=["sliding_attention", "full_attention", "full_attention"],
        activation_sparsity_pattern=[0.0] * 3,
        vocab_size_per_layer_input=40,
        hidden_size_per_layer_input=4,
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    with refused("layers of this model share keys"):
        PolicyCache(read_policy("h2o"), 5, model)


@pytest.mark.parametrize("decides", ["head", "layer", "model"])
def test_a_model_in_half_precision_is_served_where_it_is(decides: str) -> None:
    model = made().bfloat16()
    for policy in ("h2o", "fd-kvc", "keydiff", "surprisal"):
        cache = PolicyCache(read_policy(policy), 5, model, decides=decides, tokenizer=Numbers())
        for n in LENGTHS:
            logits = model(text(n), **{CACHE: cache}).logits
            cache.end_turn()
            assert torch.isfinite(logits).all()
        assert cache.held.shape == (3, 2, 5)
        assert cache.layers[0].keys.dtype == torch.bfloat16


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="it needs Linux")
@pytest.mark.parametrize("decides", ["head", "layer"])
def test_cost_is_measured_of_any_shape(monkeypatch: pytest.MonkeyPatch, decides: str) -> None:
    monkeypatch.setattr(live_cost, "TURN", 16)
    how: Any = {"budget": 8, "tokens": 40, "decides": decides, "rounds": 1}
    (library, of_library), (name, of_h2o) = live_cost.rows("tiny", "cpu", ["h2o"], **how)
    assert (library, name) == ("library", "h2o")
    assert of_library[:3] == [1, 1, 1]
    cost = dict(zip(live_cost.COLUMNS, of_h2o, strict=True))
    assert min(cost.values()) > 0


@pytest.mark.long
def test_all_that_needs_a_gpu_runs_on_the_cpu_too(capsys: pytest.CaptureFixture[str]) -> None:
    live_cost.everything("cpu", 1e4, ("tiny", "tiny", "tiny"))
    said = capsys.readouterr().out
    assert said.count("| fd-kvc |") == 2, "two tables"
    observed = said.count(" entries differ (")
    assert said.count(": 0 of ") == observed == len(live_cost.POLICIES[3:]), "the same device"
    assert said.count(" dialogs, 12 ways, one size: ") == 1
    assert said.count(" 64 tokens over 512 entries: ") == 2
    assert said.count(" ended, ") == 5
