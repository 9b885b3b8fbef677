"""Models of every kind: served rightly, or refused in one sentence before they read."""

import copy
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from fdkvc.engine.sinks import FirstTokensWarning
from fdkvc.models.transformers.cache import PolicyCache
from fdkvc.policies import read_policy
from tests.language_models import write_model
from tests.library import CACHE, NO_OLD_NAME, made, text
from tests.models.numpy.test_speakers import CHATML, MARKS
from tests.models.transformers.test_live import LENGTHS, assert_same_logits, masked, read_in_turns
from tests.refusals import refused

pytestmark = NO_OLD_NAME

SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")),
}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 6,
    "n_routed_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
MIXED = {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]}
GPTJ = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 256, "rotary_dim": 2}
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 2, "kv_channels": 4}

Kind = tuple[str, dict[str, Any]]


def of_kind(kind: Kind) -> Any:
    """Make a model of random weights, large enough that its predictions differ."""
    name, options = kind
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **options})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for part in model.parameters():
        if part.dim() > 1:
            torch.nn.init.normal_(part, std=0.3)
    return model.eval()


def named(kinds: list[Kind]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", kinds, ids=[name for name, _ in kinds])


@named([("JetMoe", EXPERTS), ("Bloom", {}), ("DiffLlama", {}), ("Falcon", {"alibi": True})])
def test_attention_that_is_not_reached_is_refused_when_a_cache_is_made(kind: Kind) -> None:
    model = of_kind(kind)
    sentence = "attention (takes other keys or values than|does not go through the interface)"
    for policy in ("fifo", "h2o"):
        with refused(sentence):
            PolicyCache(read_policy(policy), 5, model)


@named([("DeepseekV2", LATENT), ("DeepseekV3", LATENT), ("Glm4MoeLite", LATENT)])
def test_latents_are_evicted_where_queries_and_keys_are_of_all_heads(kind: Kind) -> None:
    model, ids = of_kind(kind), text(sum(LENGTHS))
    plain = read_in_turns(model, transformers.DynamicCache(config=model.config), ids, LENGTHS)
    for name in ("sinks(h2o)", "keydiff", "expected-attention", "fd-kvc"):
        cache = PolicyCache(read_policy(name), 6, model, record=True)
        ours = read_in_turns(model, cache, ids, LENGTHS)
        assert cache.held.shape[2] <= 6
        assert_same_logits(ours, masked(model, cache, ids))
        assert np.abs(ours - plain).max() > 0.01 * np.abs(plain).max(), "it has evicted something"
    assert cache.recorded("keys").shape == cache.recorded("queries").shape
    whole = PolicyCache(read_policy("h2o"), sum(LENGTHS), model)
    assert_same_logits(read_in_turns(model, whole, ids, LENGTHS), plain)
    if cache.attention.latent:  # before transformers 5.24 the cache has keys and values
        assert cache.layers[0].keys.shape[1:] == (1, 6, LATENT["kv_lora_rank"])
        with refused('choose positions="kept"'):
            PolicyCache(read_policy("h2o"), 6, model, positions="slots")


def test_a_cache_of_another_model_is_refused_at_its_first_pass() -> None:
    model, untouched, hooked = (made() for _ in range(3))
    PolicyCache(read_policy("sink"), 5, hooked)
    others: dict[str, Any] = {"untouched": untouched, "hooked": hooked}
    others |= {"copied": copy.deepcopy(model)}
    cache = PolicyCache(read_policy("sink"), 5, model)
    others |= {"copied with hooks": copy.deepcopy(model)}
    model(text(4), **{CACHE: cache.fork()})
    for other in others.values():
        with refused("was made for another model than the one"):
            other.generate(text(8), **{CACHE: cache}, max_new_tokens=1)
        assert not cache.held.size
    model(text(8), **{CACHE: cache})
    model.model(text(4), **{CACHE: cache})  # its decoder alone is the same model
    assert cache.held.shape[2] == 5


def test_a_pass_whose_attention_was_not_heard_ends_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = made()
    for ends_turn in (False, True):
        cache = PolicyCache(read_policy("sink"), 5, model)
        with monkeypatch.context() as patch:
            patch.setattr(PolicyCache, "before_attention", lambda self, layer, inputs: inputs.mask)
            patch.setattr(PolicyCache, "after_attention", lambda self, layer: None)
            model(text(8), **{CACHE: cache})
        with refused("has evicted nothing"):
            cache.end_turn() if ends_turn else model(text(1), **{CACHE: cache})


def test_probing_a_model_leaves_it_and_random_numbers_as_they_were() -> None:
    model = made().train()
    before, state = copy.deepcopy(model.state_dict()), torch.random.get_rng_state()
    PolicyCache(read_policy("sink"), 5, model, positions="slots")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert model.training
    for name, part in model.state_dict().items():
        assert torch.equal(part, before[name])


def test_a_model_is_probed_once() -> None:
    model, passes = made(), []
    model.model.register_forward_hook(lambda *_: passes.append(1))
    for _ in range(3):
        PolicyCache(read_policy("sink"), 5, model, positions="slots")
    assert len(passes) == 3, "one for its attention, two for its positions"


SLOTS = read_policy("sinks(fifo)")


def both_positions(model: Any, budget: int) -> list[Any]:
    """Return the logits of a text in turns, with entries that close the gaps and that do not."""
    how: Any = {"decides": "model"}
    caches = [PolicyCache(SLOTS, budget, model, positions=p, **how) for p in ("slots", "kept")]
    return [read_in_turns(model, cache, text(sum(LENGTHS)), LENGTHS) for cache in caches]


@named(
    [
        ("SmolLM3", {"no_rope_layers": [0, 0]}),
        ("Cohere2", {"head_dim": 4, **MIXED}),
        ("Exaone4", {"head_dim": 4, **MIXED}),
        ("Jamba", {"attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False}),
    ]
)
def test_where_keys_have_no_positions_closing_gaps_changes_nothing(kind: Kind) -> None:
    slots, kept = both_positions(of_kind(kind), 6)
    np.testing.assert_array_equal(slots, kept)


@named(
    [
        ("Llama", {}),
        ("GPTNeoX", {}),  # a quarter of each key
        ("GPTJ", {**GPTJ, "n_layer": 1}),  # neighbours, sines before cosines
        ("Glm", {"head_dim": 8}),  # neighbours, half of each key
        ("Cohere", {}),
        ("Llama", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}}),
        ("GptOss", {"layer_types": ["full_attention"], **EXPERTS}),
    ]
)
def test_closed_gaps_are_the_positions_of_the_kept_text_alone(kind: Kind) -> None:
    name, options = kind
    model = of_kind((name, {"num_hidden_layers": 1, **options}))  # keys are of a token alone
    if not hasattr(sys.modules[type(model).__module__], "ALL_ATTENTION_FUNCTIONS"):
        # GPT-J's own attention, in older versions of transformers, is not reached.
        with pytest.raises(ValueError, match="does not go through the interface of the"):
            PolicyCache(SLOTS, 6, model, positions="slots")
        return
    cache = PolicyCache(SLOTS, 6, model, positions="slots", decides="model")
    ids = text(sum(LENGTHS))
    first = 0
    for length in LENGTHS:
        turn = ids[:, first : first + length]
        alone = torch.cat([ids[:, cache.held[0, 0]] if first else turn[:, :0], turn], dim=1)
        expected = model(alone).logits[0, -length:].numpy()
        assert_same_logits(read_in_turns(model, cache, turn, [length]), expected)
        first += length
    assert cache.held.shape[2] == 6


def test_in_a_model_with_both_only_layers_with_rotary_positions_are_rotated() -> None:
    model = of_kind(("SmolLM3", {"no_rope_layers": [1, 0]}))
    caches = [PolicyCache(SLOTS, 6, model, positions=how) for how in ("slots", "kept")]
    for cache in caches:
        model(text(12), **{CACHE: cache})
    (slots, slots_without), (kept, kept_without) = [
        [layer.keys for layer in cache.layers] for cache in caches
    ]
    assert torch.equal(slots_without, kept_without)
    assert not torch.allclose(slots, kept, atol=0.1)


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_rotations_are_found_in_half_precision(half: str) -> None:
    for kind in (("Llama", {}), ("Glm", {"head_dim": 8}), ("SmolLM3", {"no_rope_layers": [1, 0]})):
        model = of_kind(kind)
        expected = PolicyCache(SLOTS, 6, model, positions="slots")
        again = of_kind(kind).to(getattr(torch, half))
        cache = PolicyCache(SLOTS, 6, again, positions="slots")
        found = [
            {
                layer: (way.sines_first, way.angle_columns, way.interleaved)
                for layer, way in found.items()
            }
            for found in (cache.rotations, expected.rotations)
        ]
        assert found[0] == found[1]


@named([("GPT2", {"n_embd": 16, "n_head": 4, "n_layer": 2}), ("OPT", {"word_embed_proj_dim": 16})])
def test_positions_that_are_not_rotary_are_refused(kind: Kind) -> None:
    with refused("no rotary positions that can be changed"):
        PolicyCache(SLOTS, 6, of_kind(kind), positions="slots")


def test_keys_that_change_after_their_rotation_are_refused() -> None:
    model = of_kind(("HunYuanDenseV1", {"head_dim": 4}))  # which scales rotated keys
    for layer in model.model.layers:
        layer.self_attn.key_layernorm.weight.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    with pytest.raises(ValueError, match="no rotary positions that can be changed"):
        PolicyCache(SLOTS, 6, model, positions="slots")


def test_positions_of_ones_own_are_refused_where_gaps_are_closed() -> None:
    model = made()
    for began, positions in ((0, [[5, 6, 7]]), (8, [[0, 1, 2]]), (8, [[8, 9, 11]])):
        cache = PolicyCache(SLOTS, 6, model, positions="slots")
        if began:
            model(text(began), **{CACHE: cache})
        counted = torch.arange(began, began + 3)[None]
        model(text(3), position_ids=counted, **{CACHE: cache.fork()})
        with refused("reads them at other positions"):
            model(text(3), position_ids=torch.tensor(positions), **{CACHE: cache})


def with_images() -> Any:
    """Make a model whose positions have three axes."""
    sections = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 0]}
    vision = {"depth": 1, "embed_dim": 8, "hidden_size": 16, "num_heads": 2, "patch_size": 2}
    config = transformers.Qwen2VLConfig(
        text_config={**SIZES, "rope_parameters": sections},
        vision_config={**vision, "temporal_patch_size": 1, "mlp_ratio": 2},
        **{"image_token_id": 38, "video_token_id": 39, "vision_start_token_id": 37},
    )
    torch.manual_seed(0)
    return transformers.AutoModelForImageTextToText.from_config(
        config, attn_implementation="eager"
    ).eval()


def test_positions_of_several_axes_are_right_in_a_text_and_refused_with_an_image() -> None:
    model, ids = with_images(), text(sum(LENGTHS)) % 36
    plain = transformers.DynamicCache(config=model.config)
    expected = read_in_turns(model, plain, ids, LENGTHS)
    whole = PolicyCache(SLOTS, 40, model, positions="slots")
    assert_same_logits(read_in_turns(model, whole, ids, LENGTHS), expected)
    picture = torch.tensor([[1, 2, 37, 38, 38, 38, 38, 3]])
    given: Any = {"pixel_values": torch.ones(16, 12), "image_grid_thw": torch.tensor([[1, 4, 4]])}
    given |= {"mm_token_type_ids": (picture == 38).int()}
    kept = PolicyCache(SLOTS, 6, model)
    model(picture, **given, **{CACHE: kept})
    assert kept.held.shape[2] == 6
    cache = PolicyCache(SLOTS, 6, model, positions="slots")
    with refused("as with position_ids or an image"):
        model(picture, **given, **{CACHE: cache})


PINNED = "whitelist(fifo, first=0, speaker=prompt, most=1)"


def talk(tokenizer: Any, model: Any, cache: PolicyCache, **how: Any) -> int:
    """Let a model answer twice; return how many tokens the system prompt has."""
    chat = [{"role": "system", "content": "Never book a seat by the door."}]
    size = len(tokenizer.apply_chat_template(chat, return_dict=True)["input_ids"])
    for words in ("Two seats to Piran, please.", "In the evening."):
        chat.append({"role": "user", "content": words})
        turn = tokenizer.apply_chat_template(
            chat, return_dict=True, return_tensors="pt", add_generation_prompt=True
        )
        how = {"max_new_tokens": 9, "do_sample": False, **how}
        ids = model.generate(**turn, **{CACHE: cache}, streamer=cache.streamer(), **how)
        answer = tokenizer.decode(ids[0, turn["input_ids"].shape[1] :])
        chat.append({"role": "assistant", "content": answer})
    return size


@pytest.fixture(scope="module")
def chatting(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """Return a model and its tokenizer with a chat template."""
    folder = write_model(
        tmp_path_factory.mktemp("chat"), marks=MARKS, tokenizer_class="PreTrainedTokenizerFast"
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = CHATML
    return transformers.AutoModelForCausalLM.from_pretrained(folder), tokenizer


@pytest.mark.parametrize("every", [None, 4])
def test_a_pinned_system_prompt_stays_while_a_chat_goes_on(
    chatting: tuple[Any, Any], every: int | None
) -> None:
    model, tokenizer = chatting
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FirstTokensWarning)
        policy = read_policy(PINNED)
        cache = PolicyCache(policy, 60, model, tokenizer=tokenizer, every=every)
        size = talk(tokenizer, model, cache)
    assert cache.seen > 60
    assert (np.sort(cache.held)[..., :size] == np.arange(size)).all()
    assert cache.held.shape[2] == 60


def test_what_changes_nothing_in_a_cache_is_warned_of(chatting: tuple[Any, Any]) -> None:
    model, tokenizer = chatting
    plain = copy.copy(tokenizer)
    plain.chat_template = None
    sentences: dict[str, tuple[str, Any, dict[str, Any]]] = {
        "No words of the system prompt are marked here": (PINNED, plain, {}),
        "There is one head here": ("ada-heads(sink)", tokenizer, {"decides": "layer"}),
        "There is one layer here": ("pyramid(sink)", tokenizer, {"decides": "model"}),
    }
    for sentence, (policy, of, how) in sentences.items():
        with pytest.warns(UserWarning, match=sentence) as warned:
            PolicyCache(read_policy(policy), 60, model, tokenizer=of, **how)
        assert warned[-1].filename == __file__


def test_a_copy_of_any_kind_is_a_fork() -> None:
    model = made()
    cache = PolicyCache(read_policy("h2o"), 6, model)
    model(text(12), **{CACHE: cache})
    for way in (copy.copy, copy.deepcopy):
        other = way(cache)
        ours, theirs = (model(text(4, 1), **{CACHE: each}).logits for each in (other, cache.fork()))
        assert torch.equal(ours, theirs)
        assert (other.seen, cache.seen) == (16, 12)


@pytest.mark.parametrize("way", [pickle.dumps, lambda cache: torch.save(cache, os.devnull)])
@pytest.mark.parametrize("positions", ["kept", "slots"])
def test_a_cache_is_not_pickled_but_its_model_is(way: Callable[[Any], Any], positions: str) -> None:
    model = made()
    cache = PolicyCache(read_policy("sink"), 6, model, positions=positions)
    with refused("is of a model in memory, so it cannot be"):
        way(cache)
    again = pickle.loads(pickle.dumps(model))
    other = PolicyCache(read_policy("sink"), 6, again, positions=positions)
    ours = read_in_turns(again, other, text(18), [9, 9])
    np.testing.assert_array_equal(ours, read_in_turns(model, cache, text(18), [9, 9]))


@pytest.mark.long
@pytest.mark.parametrize("policy", ["sinks(fifo)", "sinks(h2o)", "fd-kvc"])
@pytest.mark.parametrize("positions", ["kept", "slots"])
def test_a_compiled_model_reads_as_it_does_otherwise(policy: str, positions: str) -> None:
    model, ids = made(num_hidden_layers=2), text(sum(LENGTHS))
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager")
    compiled(ids)  # before it has hooks
    plain = made(num_hidden_layers=2)
    caches = [
        PolicyCache(read_policy(policy), 6, of, positions=positions) for of in (compiled, plain)
    ]
    ours, theirs = map(read_in_turns, (compiled, plain), caches, (ids, ids), (LENGTHS, LENGTHS))
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(caches[0].held, caches[1].held)


@pytest.mark.long
def test_a_model_compiled_in_one_graph_says_what_to_leave_out() -> None:
    model = made(num_hidden_layers=1)
    torch._dynamo.reset()
    cache = PolicyCache(read_policy("sinks(h2o)"), 6, model)
    with pytest.raises(Exception, match="compile the model without fullgraph=True"):
        torch.compile(model, backend="eager", fullgraph=True)(text(8), **{CACHE: cache})
