"""A policy's cache in a library's models: what they compute is a full cache with those masked."""

import doctest
import json
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from fdkvc.core.arrays import one_dialog
from fdkvc.core.dialogs import stack
from fdkvc.engine.simulate import simulate
from fdkvc.engine.sinks import PROTECT, FirstTokensWarning
from fdkvc.models.answers import Answers, run_answers
from fdkvc.models.numpy import BUNDLED
from fdkvc.models.numpy.language_model import load_language_model
from fdkvc.models.numpy.text_cache import read
from fdkvc.models.numpy.tokens import Tokens
from fdkvc.models.transformers import loop
from fdkvc.models.transformers.cache import PolicyCache
from fdkvc.models.transformers.loop import LiveDecoder, LiveModel, LiveTextCache, load_live
from fdkvc.policies import WRAPPERS, policy_named, read_policy
from fdkvc.policies.together import Together
from fdkvc.runs import console
from tests.command_line import run
from tests.language_models import change_config, write_model
from tests.library import CACHE, CAPPED, NO_OLD_NAME, SHAPES, WINDOW, Numbers, made, text
from tests.models.conformance.masked import seen_by_turns
from tests.models.conformance.transformers_adapter import TransformersModel
from tests.models.test_answers import shortened, write_bookings
from tests.refusals import refused
from tests.verdict.test_parts_of_files import FILES, without
from tests.worlds import STREAMING_POLICIES, policies, turn_lengths

pytestmark = NO_OLD_NAME

NEAR = 1e-5
"""Logits are the same to so much of the largest, where sums round otherwise."""


WITHIN = tuple(key for key in WRAPPERS if key != "reread")
RAGGED = "fd-kvc:tau=0.9"
"""A threshold evicts more of one head than of another: they have empty slots."""

LENGTHS = [7, 1, 9, 4, 6]


def read_in_turns(model: Any, cache: Any, ids: Any, lengths: Sequence[int]) -> Any:
    """Read a text turn by turn, and return all logits (N, V)."""
    logits = []
    for first, end in pairwise(np.cumsum([0, *lengths]).tolist()):
        if end > first:
            logits.append(model(ids[:, first:end], **{CACHE: cache}).logits[0])
        if isinstance(cache, PolicyCache):
            cache.end_turn()
    return torch.cat(logits).numpy()


def masked(model: Any, cache: PolicyCache, ids: Any) -> Any:
    """Read a text at once with what a cache evicted masked, and return all logits (N, V)."""
    sees = seen_by_turns(cache.held.shape[:2], cache.ends, cache.held_by_turn)
    return TransformersModel(model, cache.decided).read(ids[0].numpy(), sees).outputs


def assert_same_logits(ours: Any, theirs: Any, beyond: float = 0) -> None:
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= NEAR * np.abs(theirs).max() + beyond


@pytest.mark.parametrize(
    ("shape", "attention"),
    # Gemma 2 has caps on its logits, and eager attention alone.
    [(shape, how) for shape in SHAPES for how in ("eager", "sdpa") if (shape, how) != CAPPED],
)
def test_an_eviction_is_the_full_cache_with_the_evicted_masked(shape: str, attention: str) -> None:
    model, ids = made(shape, attention), text(sum(LENGTHS))
    plain = read_in_turns(model, transformers.DynamicCache(config=model.config), ids, LENGTHS)

    for policy in ("h2o", RAGGED, "expected-attention"):
        cache = PolicyCache(read_policy(policy), 5, model, record=True)
        ours = read_in_turns(model, cache, ids, LENGTHS)
        assert_same_logits(ours, masked(model, cache, ids))
        assert np.abs(ours - plain).max() > 0.01 * np.abs(plain).max(), "it has evicted something"
        for layer in cache.decided:
            assert cache.layers[layer].keys.shape[2] <= 5
        empty = any((held < 0).any() for held in cache.held_by_turn)
        assert empty == (policy == RAGGED)

    whole = PolicyCache(policy_named("h2o"), sum(LENGTHS), model)
    assert_same_logits(read_in_turns(model, whole, ids, LENGTHS), plain)


@settings(max_examples=12)
@given(
    policy=policies(STREAMING_POLICIES),
    lengths=turn_lengths(5, 8),
    budget=st.integers(1, 12),
    decides=st.sampled_from(["head", "layer", "model"]),
)
def test_so_it_is_for_any_policy_budget_and_whoever_decides(
    llama: Any, policy: Any, lengths: list[int], budget: int, decides: str
) -> None:
    ids = text(sum(lengths))
    how: Any = {"decides": decides, "tokenizer": Numbers()}
    cache = PolicyCache(policy, budget, llama, **how, record=True)

    ours = read_in_turns(llama, cache, ids, lengths)

    assert_same_logits(ours, masked(llama, cache, ids))
    for left in cache.held_by_turn:
        if policy.bounded:
            assert left.shape[2] <= budget
        if decides != "head":
            assert (left == left[:, :1]).all()
        if decides == "model":
            assert (left == left[:1]).all()


@pytest.mark.parametrize("wrapper", WITHIN)
def test_so_it_is_for_policies_around_policies(llama: Any, wrapper: str) -> None:
    ids, policy = text(sum(LENGTHS)), read_policy(f"{wrapper}(h2o)")
    for decides in ("head", "layer", "model"):
        cache = PolicyCache(policy, 5, llama, decides=decides, record=True, tokenizer=Numbers())
        ours = read_in_turns(llama, cache, ids, LENGTHS)
        assert_same_logits(ours, masked(llama, cache, ids))
        for held in cache.held_by_turn:
            assert (held >= 0).sum() <= 5 * 3 * 2, "heads and layers share their budgets"


def turns_of(model: Any, cache: Any, prompts: Sequence[int], **how: Any) -> Iterator[Any]:
    """Let a model answer prompts of so many tokens, and yield all that was said so far."""
    ids = text(0)
    for seed, length in enumerate(prompts):
        ids = torch.cat([ids, text(length, seed)], dim=1)
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        ids = model.generate(**given, **{CACHE: cache}, max_new_tokens=7, **how)
        yield ids


@pytest.mark.parametrize("every", [None, 1, 3])
def test_generate_holds_the_budget_after_every_turn_and_while_it_writes(
    llama: Any, every: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = PolicyCache(policy_named("h2o"), 6, llama, every=every)
    sizes: list[int] = []
    whole = type(cache).after_attention

    def recording(self: Any, layer: int) -> None:
        whole(self, layer)
        if layer == self.decided[-1]:
            sizes.append(self.held.shape[2])
            assert {cache_layer.keys.shape[2] for cache_layer in self.layers} == {sizes[-1]}

    monkeypatch.setattr(type(cache), "after_attention", recording)
    for turn, ids in enumerate(turns_of(llama, cache, (9, 4, 12), do_sample=False)):
        assert sizes.pop(0) == 6, "a prompt ends a turn"
        assert max(sizes) <= 6 + ((every or 7) - 1)
        assert len(sizes) == 6, "the last token has not been read"
        sizes.clear()
        assert cache.seen == ids.shape[1] - 1
        assert len(cache.ends) == (1 + (6 // every if every else 0)) * (turn + 1) + (
            turn if every is None else 0
        )
    cache.end_turn()
    assert cache.held.shape == (3, 2, 6)
    assert cache.held[..., -1].max() == cache.seen - 1


def test_what_was_written_ends_its_turn_before_the_next_prompt_is_read(llama: Any) -> None:
    cache = PolicyCache(policy_named("fifo"), 6, llama, record=True)
    said = list(turns_of(llama, cache, (9, 4), do_sample=False))

    assert cache.ends == [9, said[0].shape[1] - 1, said[1].shape[1] - 7]
    by_hand = PolicyCache(policy_named("fifo"), 6, llama, by_itself=False)
    ids = said[1]
    for first, end in pairwise([0, *cache.ends]):
        logits = llama(ids[:, first:end], **{CACHE: by_hand}).logits[0, -1]
        by_hand.end_turn()
    assert logits.argmax() == ids[0, cache.ends[-1]]
    np.testing.assert_array_equal(by_hand.held, cache.held_by_turn[-1])


def test_a_streamer_ends_the_turn_when_generate_has_ended(llama: Any) -> None:
    told: list[Any] = []

    class Listener:
        def put(self, value: Any) -> None:
            told.append(value.tolist())

        def end(self) -> None:
            told.append("the end")

    later, at_once = (PolicyCache(policy_named("h2o"), 6, llama) for _ in range(2))
    streamer = at_once.streamer(Listener())
    plain = turns_of(llama, later, (9, 4), do_sample=False)
    streamed = turns_of(llama, at_once, (9, 4), do_sample=False, streamer=streamer)
    for before, ids in zip(plain, streamed, strict=True):
        assert (later.held.shape[2], at_once.held.shape[2]) == (6 + 6, 6)
        assert at_once.ends[-1] == at_once.seen == ids.shape[1] - 1
        assert (ids == before).all(), "it would have ended before the next prompt"
        assert told.pop() == "the end"
        assert np.hstack(told[1:]).tolist() == ids[0, -7:].tolist()
        told.clear()
    later.end_turn()
    assert later.ends == at_once.ends
    np.testing.assert_array_equal(later.held, at_once.held)


def test_closed_up_positions_are_turned_from_keys_without_any(llama: Any) -> None:
    cache = PolicyCache(policy_named("h2o"), 5, llama, positions="slots")
    unrotated: dict[int, list[Any]] = {layer: [] for layer in range(3)}

    def listen(layer: int) -> Any:
        def hook(module: Any, given: Any, projected: Any) -> None:
            unrotated[layer].append(projected[0].unflatten(-1, (2, 6)).transpose(0, 1))

        return llama.model.layers[layer].self_attn.k_proj.register_forward_hook(hook)

    hooks = [listen(layer) for layer in range(3)]
    ids = text(sum(LENGTHS))
    read_in_turns(llama, cache, ids, LENGTHS)
    [hook.remove() for hook in hooks]

    afresh = transformers.DynamicCache()
    angles = llama.model.rotary_emb(torch.ones(1), torch.arange(5)[None])
    turn = sys.modules[type(llama).__module__].apply_rotary_pos_emb
    for layer, (parts, held) in enumerate(zip(unrotated.values(), cache.held, strict=True)):
        keys = torch.cat(parts, dim=1).gather(1, torch.tensor(held)[..., None].expand(-1, -1, 6))
        _, keys = turn(keys[None], keys[None], *angles)
        afresh.update(keys, cache.layers[layer].values, layer)
    more, places = text(4, seed=1), torch.arange(5, 9)[None]
    theirs = llama(more, **{CACHE: afresh}, position_ids=places).logits[0].numpy()
    ours = llama(more, **{CACHE: cache}).logits[0].numpy()
    np.testing.assert_allclose(ours, theirs, atol=1e-4 * np.abs(theirs).max())


def test_layers_with_a_window_are_left_to_the_model_and_told() -> None:
    cache = PolicyCache(policy_named("h2o"), 5, made("gemma3"))
    assert cache.decided == (1, 2)
    told = "left to the model: layers 0 (window of 8 tokens)"
    assert repr(cache) == f"PolicyCache(h2o, budget 5; {told})"
    with pytest.raises(ValueError, match=r"attends to the whole text \(window of 8"):
        PolicyCache(policy_named("h2o"), 5, made("mistral", sliding_window=WINDOW))


def test_the_stored_models_that_there_are_are_named_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".lmstudio" / "models" / "publisher" / "repository"
    folder.mkdir(parents=True)
    for number in range(9):
        (folder / f"model-with-a-long-name-{number}.gguf").touch()
    with pytest.raises(ValueError, match=r"/model-with-a-long-name-8$"):
        load_live("lmstudio:none")


def test_other_texts_beams_and_the_way_back_are_refused(llama: Any) -> None:
    for by_itself in (True, False):  # also within the first turn
        cache = PolicyCache(policy_named("h2o"), 5, llama, by_itself=by_itself)
        llama(text(4), **{CACHE: cache})
        with pytest.raises(ValueError, match="began with 1 texts cannot go on with 2"):
            llama(text(8).reshape(2, 4), **{CACHE: cache})
    cache = PolicyCache(policy_named("h2o"), 5, llama)
    with pytest.raises(ValueError, match="a text of the batch ends in padding"):
        llama(text(4), attention_mask=torch.tensor([[1, 1, 1, 0]]), **{CACHE: cache})
    cache = PolicyCache(policy_named("h2o"), 5, llama)
    padded = {"attention_mask": torch.tensor([[1, 1, 1, 1], [0, 0, 0, 1]])}
    with pytest.raises(ValueError, match="no part of the batch in which a text has padding alone"):
        llama.generate(
            text(8).reshape(2, 4),
            **padded,
            **{CACHE: cache},
            prefill_chunk_size=2,
            max_new_tokens=1,
        )
    calls: Any = {
        "reset": (),
        "crop": (-1,),
        "reorder_cache": (torch.tensor([0]),),
        "batch_repeat_interleave": (2,),
        "batch_select_indices": (torch.tensor([0]),),
    }
    for name, arguments in calls.items():
        with refused("a PolicyCache"):
            getattr(cache, name)(*arguments)


@pytest.mark.parametrize("masked_too", [False, True])
@pytest.mark.parametrize("tokens", [1, 5, 20, 32])
def test_another_text_that_is_shorter_than_the_first_is_refused(
    llama: Any, tokens: int, masked_too: bool
) -> None:
    cache = PolicyCache(policy_named("sink"), 8, llama)
    generate = partial(llama.generate, max_new_tokens=3, do_sample=False, **{CACHE: cache})
    generate(text(30))
    seen = cache.seen
    shorter = text(tokens, seed=1)
    marks = {"attention_mask": torch.ones_like(shorter)} if masked_too else {}
    with refused(f"{tokens} tokens?, .* {seen}"):
        generate(shorter, **marks)
    assert cache.seen == seen
    assert generate(text(seen + 2)).shape[1] == seen + 5, "the whole text goes on"


@pytest.mark.parametrize(
    ("policy", "how", "sentence"),
    [
        ("oracle", {}, "looks at the future of the dialog"),
        ("sinks(weighted-recency)", {}, "Weighted recency looks at the text of tokens"),
        ("surprisal", {}, "looks at the text of tokens, for which a"),
        ("h2o", {"budget": 0}, "budget is 0, but must be a whole number"),
        ("h2o", {"every": 0}, "every is 0, but must be"),
        ("h2o", {"decides": "all"}, "decides is 'all', but must be"),
        ("h2o", {"positions": "new"}, "positions is 'new', but must be"),
    ],
)
def test_what_cannot_be_done_is_said(
    llama: Any, policy: str, how: dict[str, Any], sentence: str
) -> None:
    with refused(sentence):
        PolicyCache(read_policy(policy), **{"budget": 5, "model": llama, **how})


@pytest.mark.parametrize("began", [False, True])
@pytest.mark.parametrize("key", ["fifo", "h2o"])
def test_attention_that_is_changed_afterwards_is_refused(key: str, began: bool) -> None:
    model = made()
    cache = PolicyCache(policy_named(key), 5, model)
    if began:
        model(text(8), **{CACHE: cache})
    model.set_attn_implementation("eager")
    sentence = "attention was set to 'eager' after this PolicyCache was made"
    with refused(sentence):
        model(text(8), **{CACHE: cache})
    again = PolicyCache(policy_named(key), 5, model)
    model(text(8), **{CACHE: again})
    assert again.held.shape[2] == 5


def test_an_unknown_implementation_of_attention_is_refused() -> None:
    transformers.AttentionInterface.register("other", lambda *_, **__: None)
    with pytest.raises(ValueError, match="attention is 'other', but must be"):
        PolicyCache(policy_named("h2o"), 5, made(attention="other"))


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Return a list that gets how many tokens of each text are read at once."""
    noted: list[list[int]] = []
    read_each = LiveDecoder.read_each

    def noting(decoder: LiveDecoder, ids: Any, caches: Any, *, last: Any = None) -> Any:
        noted.append([*map(len, ids)])
        return read_each(decoder, ids, caches, last=last)

    monkeypatch.setattr(LiveDecoder, "read_each", noting)
    return noted


def test_dialogs_that_are_read_at_once_have_the_numbers_of_each_alone(
    readings: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("sinks(surprisal)", "fd-kvc", "reread(fifo)")
    asked, dialogs = Answers(tuple(map(read_policy, names)), (24,)), shortened(4)
    together = run_answers(asked, load_live(BUNDLED), dialogs, workers=1)
    assert max(map(len, readings)) == 4 * len(dialogs) > 4
    monkeypatch.setattr("fdkvc.models.answers.CHUNK", 1)
    alone = run_answers(asked, load_live(BUNDLED), dialogs, workers=1)
    pd.testing.assert_frame_equal(together, alone, rtol=1e-4, atol=1e-6)


def test_what_no_way_has_evicted_from_is_read_once(
    readings: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("h2o", "surprisal", "fifo", "reread(fifo)")
    asked = Answers(tuple(map(read_policy, names)), (60,), every=9, write_calls=True)
    dialog = shortened(4)[:1]
    together = run_answers(asked, load_live(BUNDLED), dialog, workers=1)
    once = sum(map(sum, readings))
    monkeypatch.setattr(LiveTextCache, "whole", property(lambda _: False, lambda *_: None))
    alone = run_answers(asked, load_live(BUNDLED), dialog, workers=1)
    assert once < sum(map(sum, readings)) - once - len(names) * asked.budgets[0] / 2
    pd.testing.assert_frame_equal(together, alone, rtol=1e-5, atol=1e-6)


def test_answers_are_measured_as_of_the_model_in_numpy() -> None:
    dialog = shortened(6)[:1]
    names = ("h2o", "fd-kvc", "reread(fifo)")
    asked = Answers(tuple(map(read_policy, names)), (24,), every=9, write_calls=True)
    ours, theirs = (
        run_answers(asked, load(BUNDLED), dialog, workers=1)
        for load in (load_live, load_language_model)
    )

    keys = ["dialog", "services", "policy", "budget", "metric", "count"]
    assert ours[keys].equals(theirs[keys])
    exact = ours.metric.str.contains("exact|right|same")
    np.testing.assert_allclose(ours.value[~exact], theirs.value[~exact], atol=2e-3)
    np.testing.assert_allclose(ours.value[exact], theirs.value[exact], atol=0.02)
    assert set(ours.policy) == {"full", *names}


@pytest.mark.parametrize("policy", ["fd-kvc", "snapkv", "surprisal", "learned"])
def test_a_replay_of_what_the_cache_recorded_evicts_what_it_did(policy: str) -> None:
    model, known = load_live(BUNDLED), policy_named(policy)
    memory, by_passage = model.evicting(known, 24, record=True), []
    for passage in model.tokens.encode_dialog(shortened(6)[0]):
        read([memory], passage.ids, last=0)
        memory.end_turn()
        by_passage.append(model.tokens.features(passage.ids, {"surprisal", "traits"}))
    surprisal, traits = (
        np.concatenate([features[name] for features in by_passage])
        for name in ("surprisal", "traits")
    )
    cache, group = memory.cache, model.decoder.shape.group
    vectors = {name: cache.recorded(name) for name in ("queries", "keys", "values")}
    lengths = np.diff([0, *cache.ends]).tolist()
    for layer, hidden in enumerate(cache.recorded("hidden")):
        heads = [
            one_dialog(
                embeddings=hidden[0],
                queries=queries,
                keys=vectors["keys"][layer, head // group],
                values=vectors["values"][layer, head // group],
                turn_lengths=lengths,
                surprisal=surprisal,
            )
            for head, queries in enumerate(vectors["queries"][layer])
        ]
        dialogs = replace(stack(heads), traits=np.repeat(traits[None], len(heads), axis=0))
        trace = simulate(Together(known, group), dialogs, 24)
        for turn, held in enumerate(cache.held_by_turn):
            kept = trace.kept_tokens[::group, turn]
            np.testing.assert_array_equal(np.sort(kept), np.sort(held[layer]))


@pytest.mark.parametrize("policy", ["fifo", "surprisal", "whitelist(fifo, first=0)"])
def test_a_policy_that_can_evict_the_first_tokens_is_warned_of(llama: Any, policy: str) -> None:
    how = {"budget": 16, "model": llama, "tokenizer": Tokens(None, (), {}, 0)}
    with pytest.warns(FirstTokensWarning) as warned:
        PolicyCache(read_policy(policy), **how)
    (only,) = warned
    assert only.filename == __file__
    assert str(only.message).endswith(PROTECT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("sink", "full", "whitelist(surprisal)"):
            PolicyCache(read_policy(name), **how).fork()


def test_the_command_writes_what_its_document_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = write_model(tmp_path / "a model"), tmp_path / "out"
    few = ("--policies", "fifo", "h2o", "reread(fifo)", "--budgets", "8")
    files = ("--model", folder, "--dialogs", write_bookings(tmp_path, ("one", "two")), *few)
    how = ("--positions", "slots")
    assert run("live", *files, *how, "--out", out) == 0

    said, beside = capsys.readouterr()
    (line,) = [stderr_line for stderr_line in beside.splitlines() if "first tokens" in stderr_line]
    assert line == f"The first tokens of a text are not protected under FIFO and H2O. {PROTECT}"
    assert said.startswith("a model\n\nMeans over 2 dialogs by budget")
    document = (BUNDLED.parents[1] / "README.md").read_text("utf-8")
    written = sorted(path.name for path in out.iterdir())
    assert all(f"`{name}`" in document for name in written)
    assert set(pd.read_csv(out / "answers.csv").policy) == {"full", "fifo", "h2o", "reread(fifo)"}
    about = json.loads((out / "run.json").read_text())["parameters"]["model"]
    assert about["positions"] == "slots"
    assert about["transformers"] == transformers.__version__

    assert run("live", *files, "--every", 3, "--out", tmp_path / "often") == 0
    assert sorted(path.name for path in (tmp_path / "often").iterdir()) == written
    assert json.loads((tmp_path / "often/run.json").read_text())["parameters"]["every"] == 3


def test_the_command_shows_its_progress_from_the_start_and_no_warning_of_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = write_bookings(tmp_path, ("one", "two"))
    files = ("--model", write_model(tmp_path / "model"), "--dialogs", chat)
    took = LiveDecoder.read

    def read(*given: Any, **named: Any) -> Any:
        warnings.warn("of torch", UserWarning, stacklevel=2)
        warnings.warn("of transformers", FutureWarning, stacklevel=2)
        return took(*given, **named)

    def load(*given: Any, **named: Any) -> LiveModel:
        written: Any = sys.stderr  # by a thread, which gets its turn however busy the machine is
        while not written.getvalue():
            sleep(0.01)
        return load_live(*given, **named)

    monkeypatch.setattr(LiveDecoder, "read", read)
    monkeypatch.setattr(loop, "load_live", load)
    monkeypatch.setattr(console, "SECONDS_PER_LINE", 1e-4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        few = ("--policies", "sink", "--budgets", "8", "--out", tmp_path / "out")
        assert run("live", *files, *few) == 0
    assert not caught

    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Preparing, after ")
    left = re.compile(r" *\d+%  ([012] of 2 dialogs), about ")
    progress = [match[1] for line in lines if (match := left.match(line))]
    assert [*dict.fromkeys(progress)] == [f"{n} of 2 dialogs" for n in range(3)]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_hidden_layers": 3}, "its weights lack model.layers.2."),
        ({"intermediate_size": 24}, "differ in the size of model.layers.0.mlp"),
        (
            {"hidden_size": 1_000_000, "intermediate_size": 1_000_000},
            "[0-9,.]+ GB of memory, but this machine has",
        ),
        ({"model_type": "none"}, "model type `none`"),
        ({"vocab_size": 2}, "differ in the size of|there are 2"),
    ],
)
def test_a_model_that_is_not_what_it_says_gets_one_sentence(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    folder = write_model(tmp_path / "model")
    change_config(folder, **changes)
    with refused(sentence):
        load_live(folder)


def test_the_documents_example_answers_turn_after_turn(tmp_path: Path) -> None:
    document = BUNDLED.parents[1] / "README.md"
    folder = write_model(tmp_path / "model", tokenizer_class="PreTrainedTokenizerFast")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = (
        "{% for message in messages %}{{ message.role }}: {{ message.content }}<end>{% endfor %}"
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    model.generation_config.max_new_tokens = 12
    names = {"model": model, "tokenizer": tokenizer, "chat": []}
    text, _, _ = document.read_text("utf-8").partition("## In llama.cpp")
    text = text.replace("cache=cache", f"{CACHE}=cache")
    example = doctest.DocTestParser().get_doctest(text, names, document.name, str(document), 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FirstTokensWarning)
        outcome = doctest.DocTestRunner().run(example)
    assert outcome.attempted > 4
    assert outcome.failed == 0


@pytest.mark.parametrize("parts", FILES)
def test_files_that_lack_a_part_end_in_no_traceback(parts: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "chat.json").write_text(json.dumps([{"messages": without(*parts)}]))
    files = ("--model", write_model(tmp_path / "model"), "--dialogs", tmp_path / "chat.json")
    assert run("live", *files, "--policies", "fifo", "--budgets", 8) in (0, 2)
