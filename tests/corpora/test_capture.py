"""A real model's attention is recorded as the model itself computes it."""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import NO_TRANSFORMERS
from fdkvc.commands.main import main
from fdkvc.corpora.capture import load_capture_model, record
from fdkvc.corpora.formats import read_dialogs, read_transcripts
from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.token_traits import word_surprisal
from fdkvc.corpora.trace_file import read_trace_file
from fdkvc.corpora.transcripts import SPAN_KINDS, Transcript, Turn
from tests.corpora.test_agent_formats import TALKS, encoded
from tests.refusals import assert_one_sentence

if os.environ.get("FDKVC_REQUIRE_CAPTURE") == "1":
    import torch
    import transformers
else:
    torch = pytest.importorskip("torch", reason=NO_TRANSFORMERS)
    transformers = pytest.importorskip("transformers", reason=NO_TRANSFORMERS)

# A former name of the library's is a failure.
pytestmark = pytest.mark.filterwarnings("error:.*past_key_values:FutureWarning")

(DIALOG,) = read_transcripts(
    b"User: a table for two in rome\nSystem: at six?\nUser: at six, in rome\nSystem:\nUser: a rome"
)
WORDS = [
    *("<s>", "a", "table", "for", "two", "in", "rome"),
    *("at", "six", "?", "at", "six", ",", "in", "rome", "a", "rome"),
]
SHAPE = {
    "hidden_size": 24,
    "intermediate_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}


def tokenizer(frame: tuple[str, str]) -> Any:
    """Make a tokenizer of whole words that puts a token before and after a text, where named."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocabulary = {word: at for at, word in enumerate(dict.fromkeys(["<unk>", "</s>", *WORDS]))}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    named = [(token, vocabulary[token]) for token in frame if token]
    made.post_processor = processors.TemplateProcessing(
        single=f"{frame[0]} $A {frame[1]}".strip(), special_tokens=named
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


def saved(folder: Path, config: Any, frame: tuple[str, str] = ("", "")) -> str:
    """Make a model of random weights with its tokenizer, in a folder."""
    torch.manual_seed(0)
    config.initializer_range = 0.5  # weights large enough that attention is far from even
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    tokenizer(frame).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> str:
    config = transformers.LlamaConfig(
        **SHAPE, vocab_size=16, num_key_value_heads=2, max_position_embeddings=40
    )
    return saved(tmp_path_factory.mktemp("causal"), config, ("<s>", ""))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    config = transformers.BertConfig(**SHAPE, vocab_size=16, max_position_embeddings=9)
    return saved(tmp_path_factory.mktemp("encoder"), config, ("<s>", "</s>"))


def weights(recording: Recording, visible: Any = True) -> Any:
    """Return softmax(q·k/√h) of every head (H, n, n), over what each token sees."""
    h = recording.keys.shape[-1]
    logits = recording.queries @ recording.keys.swapaxes(1, 2) / math.sqrt(h)
    powers = np.where(visible, np.exp(logits), 0)
    return powers / powers.sum(axis=-1, keepdims=True)


def read_at_once(name: str, ids: list[int], layer: int) -> tuple[Any, Any]:
    """Return a model's own attention weights (H, n, n) and the layer's input (n, d)."""
    model = transformers.AutoModel.from_pretrained(name, attn_implementation="eager").eval()
    with torch.inference_mode():
        output = model(
            input_ids=torch.tensor([ids]), output_attentions=True, output_hidden_states=True
        )
    return output.attentions[layer][0].numpy(), output.hidden_states[layer][0].numpy()


@pytest.mark.parametrize("layer", [0, 2])
def test_a_causal_models_attention_is_what_its_own_weights_say(causal: str, layer: int) -> None:
    recording = record(load_capture_model(causal, layer), DIALOG)

    texts = [token.text for turn in recording.tokens for token in turn]
    assert texts == WORDS
    assert [len(turn) for turn in recording.tokens] == [7, 3, 5, 0, 2]
    ids = tokenizer(("", "")).convert_tokens_to_ids(texts)
    attention, hidden = read_at_once(causal, ids, layer)
    seen = np.tri(len(ids), dtype=bool)
    np.testing.assert_allclose(weights(recording, seen), attention, atol=2e-5)
    np.testing.assert_allclose(recording.embeddings, hidden, rtol=1e-4, atol=1e-4)
    assert np.abs(attention - attention.mean(axis=-1, keepdims=True)).max() > 0.3


def test_a_models_own_scale_is_in_its_queries(tmp_path: Path) -> None:
    sizes = {"num_key_value_heads": 1, "head_dim": 8, "vocab_size": 16}
    config = transformers.Gemma3TextConfig(**SHAPE, **sizes, query_pre_attn_scalar=64)
    name = saved(tmp_path, config)
    recording = record(load_capture_model(name, 1), DIALOG)

    ids = tokenizer(("", "")).convert_tokens_to_ids(WORDS[1:])
    attention, _ = read_at_once(name, ids, 1)
    seen = np.tri(len(ids), dtype=bool)
    np.testing.assert_allclose(weights(recording, seen), attention, atol=2e-5)


def test_surprisal_is_how_rare_the_word_is_or_what_the_model_foretold(
    causal: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        **SHAPE, vocab_size=16, num_key_value_heads=2, max_position_embeddings=40
    )
    config.initializer_range = 0.5
    whole = transformers.AutoModelForCausalLM.from_config(config).eval()
    whole.save_pretrained(tmp_path)
    tokenizer(("<s>", "")).save_pretrained(tmp_path)
    model = load_capture_model(str(tmp_path), 1, surprisal="model")
    recording = record(model, DIALOG)

    texts = [token.text for turn in recording.tokens for token in turn]
    ids = model.tokenizer.convert_tokens_to_ids(texts)
    with torch.inference_mode():
        logits = whole(input_ids=torch.tensor([ids])).logits[0].double()
    foretold = logits.log_softmax(dim=-1)[range(len(ids) - 1), ids[1:]]
    assert recording.surprisal is not None
    np.testing.assert_allclose(recording.surprisal[0], math.log(16), rtol=1e-5)
    np.testing.assert_allclose(recording.surprisal[1:], -foretold.numpy(), rtol=1e-4)
    plain = record(load_capture_model(str(tmp_path), 1), DIALOG)
    assert plain.surprisal is not None
    expected = [0.0, *map(word_surprisal, ("a", "table", "for"))]
    np.testing.assert_allclose(plain.surprisal[:4], expected, rtol=1e-5)
    np.testing.assert_array_equal(plain.keys, recording.keys)
    # One that was kept without its language-model head cannot say it.
    with pytest.raises(ValueError, match="it does not predict tokens: take surprisal from words"):
        load_capture_model(causal, 1, surprisal="model")


def test_grouped_heads_have_the_keys_of_their_group(causal: str) -> None:
    recording = record(load_capture_model(causal, 1), DIALOG)
    one = record(load_capture_model(causal, 1, heads=[3]), DIALOG)

    assert (recording.heads, one.heads) == ((0, 1, 2, 3), (3,))
    np.testing.assert_array_equal(recording.keys[0], recording.keys[1])
    np.testing.assert_array_equal(recording.values[2], recording.values[3])
    assert not np.array_equal(recording.keys[1], recording.keys[2])
    assert not np.array_equal(recording.queries[0], recording.queries[1])
    np.testing.assert_array_equal(one.queries[0], recording.queries[3])
    np.testing.assert_array_equal(one.keys[0], recording.keys[3])


def test_an_encoder_reads_what_it_can_hold_of_the_dialog_so_far(encoder: str) -> None:
    model = load_capture_model(encoder, 1)
    recording = record(model, DIALOG)

    texts = [token.text for turn in recording.tokens for token in turn]
    assert texts == WORDS[1:]
    numbers = model.tokenizer.convert_tokens_to_ids
    ids = numbers(["<s>", *texts[:6], "</s>"])
    attention, hidden = read_at_once(encoder, ids, 1)
    first_turn = Recording(
        Transcript("first", DIALOG.turns[:1]),
        recording.tokens[:1],
        recording.embeddings[:6],
        recording.queries[:, :6],
        recording.keys[:, :6],
        recording.values[:, :6],
        recording.heads,
        recording.source,
    )
    own = attention[:, 1:-1, 1:-1]  # of the frame, nothing is recorded
    np.testing.assert_allclose(
        weights(first_turn), own / own.sum(axis=-1, keepdims=True), atol=2e-5
    )
    np.testing.assert_allclose(recording.embeddings[:6], hidden[1:-1], rtol=1e-4, atol=1e-4)
    later = numbers(["<s>", *texts[7:14], "</s>"])  # the window at the end of turn 2
    _, hidden = read_at_once(encoder, later, 1)
    np.testing.assert_allclose(recording.embeddings[9:14], hidden[3:-1], rtol=1e-4, atol=1e-4)


def test_tokens_say_where_they_stand(causal: str) -> None:
    recording = record(load_capture_model(causal, 0), DIALOG)

    for turn, tokens in zip(DIALOG.turns, recording.tokens, strict=True):
        said = [turn.text[token.start : token.end] for token in tokens]
        assert said == [token.text if token.text != "<s>" else "" for token in tokens]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"layer": 3}, "layer is 3, but must be a whole number from 0 to 2"),
        ({"layer": 0, "heads": [4]}, "head is 4, but must be a whole number from 0 to 3"),
        ({"layer": 0, "heads": [1, 1]}, "head 1 is given twice"),
        ({"layer": 0, "heads": []}, "give at least one head"),
    ],
)
def test_a_layer_or_head_that_there_is_not_is_named(
    causal: str, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        load_capture_model(causal, **settings)


def test_what_is_no_model_gets_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="cannot be loaded") as caught:
        load_capture_model(str(tmp_path), 0)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="nowhere' cannot be loaded: there is no such folder"):
        load_capture_model(str(tmp_path / "nowhere"), 0)


def told(name: str, **changes: Any) -> None:
    """Change what the config.json of a model says."""
    path = Path(name) / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_hidden_layers": 4}, "its weights lack layers.3.input_layernorm.weight"),
        ({"num_attention_heads": 5}, "not a multiple of the number of attention heads"),
        (
            {"num_key_value_heads": 4},
            "differ in the size of layers.0.self_attn",
        ),
        ({"hidden_size": 32}, "its weights and config.json differ in the size of"),
        ({"head_dim": 8}, "its weights and config.json differ in the size of"),
        (
            {"intermediate_size": 32},
            "differ in the size of layers.0.mlp",
        ),
        (
            {"vocab_size": 32},
            "differ in the size of embed_tokens.weight",
        ),
        (
            {"vocab_size": 9_999_999},
            "config.json describes 240,008,784 parameters, but its weights have 9,192",
        ),
        ({"hidden_act": "none"}, "there is no 'none'"),
        ({"model_type": "none"}, "model type `none`"),
        ({"pad_token_id": 99}, "Padding_idx must be within num_embeddings"),
        ({"num_attention_heads": None}, "expected int, got NoneType"),
    ],
)
def test_a_model_that_is_not_what_it_says_gets_one_sentence(
    causal: str, tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    name = str(shutil.copytree(causal, tmp_path / "model"))
    told(name, **changes)
    with pytest.raises(ValueError, match=sentence) as caught:
        load_capture_model(name, 0)
    assert_one_sentence(caught.value)


def test_weights_without_what_pools_are_whole(encoder: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    name = shutil.copytree(encoder, tmp_path / "model")
    weights = load_file(name / "model.safetensors")
    rest = {key: array for key, array in weights.items() if "pooler" not in key}
    assert len(rest) < len(weights)
    save_file(rest, name / "model.safetensors", metadata={"format": "pt"})
    whole, own = (record(load_capture_model(str(each), 0), DIALOG) for each in (encoder, name))
    np.testing.assert_array_equal(whole.keys, own.keys)


def test_a_token_that_the_model_does_not_know_is_named(causal: str, tmp_path: Path) -> None:
    name = shutil.copytree(causal, tmp_path / "model")
    path = name / "tokenizer.json"
    changed = json.loads(path.read_text())
    changed["model"]["vocab"]["rome"] = 1000
    path.write_text(json.dumps(changed))
    model = load_capture_model(str(name), 0)
    with pytest.raises(ValueError, match=r"gives token 1000, but it has 16") as caught:
        record(model, DIALOG)
    assert_one_sentence(caught.value)


def test_a_dialog_beyond_the_bounds_is_refused_before_it_is_read(
    causal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fdkvc.corpora import transcripts

    model = load_capture_model(causal, 0)
    monkeypatch.setattr(transcripts, "MAX_TURN_TOKENS", 6)
    monkeypatch.setattr(model.model, "forward", pytest.fail)
    with pytest.raises(
        ValueError, match="dialog 0, turn 0: it has 7 tokens, but at most 6 are allowed"
    ):
        record(model, DIALOG)


def test_a_dialog_longer_than_the_model_holds_is_named(causal: str, encoder: str) -> None:
    long = Transcript("long", (Turn("User", "rome " * 41),))
    with pytest.raises(ValueError, match="long: 42 tokens, but the model holds at most 40"):
        record(load_capture_model(causal, 0), long)
    with pytest.raises(ValueError, match="long, turn 0: 41 tokens, but the model holds 7"):
        record(load_capture_model(encoder, 0), long)


# ------------------------------------------------------------------------------- what cannot be


def sliding(kind: str) -> Any:
    """Return the shape of a model whose layer 0 has a window of four tokens."""
    of_all = {**SHAPE, "vocab_size": 16, "sliding_window": 4}
    types = {"layer_types": ["sliding_attention", "full_attention", "full_attention"]}
    if kind == "mistral":
        return transformers.MistralConfig(**of_all, num_key_value_heads=2)
    if kind == "qwen2":
        return transformers.Qwen2Config(
            **of_all, **types, num_key_value_heads=2, use_sliding_window=True
        )
    if kind == "gemma2":
        return transformers.Gemma2Config(
            **of_all, **types, num_key_value_heads=2, head_dim=8, attn_logit_softcapping=None
        )
    return transformers.Gemma3TextConfig(**of_all, **types, num_key_value_heads=1, head_dim=8)


SHORT = Transcript("short", (Turn("User", "a"), Turn("System", "six")))
"""A dialog of fewer tokens than the window."""


@pytest.mark.parametrize("kind", ["mistral", "qwen2", "gemma2", "gemma3"])
def test_a_layer_that_sees_only_the_last_tokens_is_not_recorded_as_if_it_saw_all(
    tmp_path: Path, kind: str
) -> None:
    name = saved(tmp_path, sliding(kind))
    model = load_capture_model(name, 0)

    sentence = "dialog 0: layer 0 of this model does not see all of it, only the last 4 tokens"
    with pytest.raises(ValueError, match=sentence) as caught:
        record(model, DIALOG)
    assert_one_sentence(caught.value)
    others = "1, 2" if kind != "mistral" else ""
    assert ("those that see all are 1, 2" in str(caught.value)) == bool(others)

    recording = record(model, SHORT)  # in which no window bites
    ids = model.tokenizer.convert_tokens_to_ids(
        [token.text for turn in recording.tokens for token in turn]
    )
    attention, _ = read_at_once(name, ids, 0)
    np.testing.assert_allclose(
        weights(recording, np.tri(len(ids), dtype=bool)), attention, atol=2e-5
    )


def test_a_layer_above_one_with_a_window_has_what_the_model_computes(tmp_path: Path) -> None:
    name = saved(tmp_path, sliding("gemma3"))
    recording = record(load_capture_model(name, 2), DIALOG)

    ids = tokenizer(("", "")).convert_tokens_to_ids(WORDS[1:])
    attention, hidden = read_at_once(name, ids, 2)
    seen = np.tri(len(ids), dtype=bool)
    np.testing.assert_allclose(weights(recording, seen), attention, atol=2e-5)
    np.testing.assert_allclose(recording.embeddings, hidden, rtol=1e-4, atol=1e-4)


def test_a_layer_of_an_encoder_that_sees_only_what_is_near_is_not_recorded(tmp_path: Path) -> None:
    config = transformers.ModernBertConfig(
        **SHAPE,
        vocab_size=16,
        local_attention=4,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        **dict.fromkeys(("pad_token_id", "cls_token_id", "bos_token_id"), 0),
        **dict.fromkeys(("sep_token_id", "eos_token_id"), 1),
    )
    name = saved(tmp_path, config)
    with pytest.raises(ValueError, match="layer 1 of this model does not see all of it"):
        record(load_capture_model(name, 1), DIALOG)
    assert len(record(load_capture_model(name, 2), DIALOG).embeddings) == len(WORDS) - 1


def test_sinks_and_softcaps_are_named_before_anything_is_read(tmp_path: Path) -> None:
    sizes = {"num_key_value_heads": 2, "head_dim": 8, "vocab_size": 16}
    capped = transformers.Gemma2Config(**SHAPE, **sizes, attn_logit_softcapping=5.0)
    sunk = transformers.GptOssConfig(**SHAPE, **sizes, num_local_experts=2, num_experts_per_tok=1)
    for config, what in ((capped, "a softcap"), (sunk, "sinks of its own")):
        name = saved(tmp_path / config.model_type, config)
        sentence = f"cannot be recorded: its attention has {what}, which cannot be recorded"
        with pytest.raises(ValueError, match=sentence) as caught:
            load_capture_model(name, 0)
        assert_one_sentence(caught.value)


def test_attention_that_is_not_that_of_the_queries_and_keys_is_noticed(tmp_path: Path) -> None:
    config = transformers.DogeConfig(**SHAPE, num_key_value_heads=2, vocab_size=16)
    with pytest.raises(ValueError, match="its attention is not the softmax of q·k/√h"):
        load_capture_model(saved(tmp_path, config), 0)


def test_attention_that_subtracts_one_softmax_from_another_is_noticed(tmp_path: Path) -> None:
    config = transformers.DiffLlamaConfig(**SHAPE, num_key_value_heads=2, vocab_size=16)
    sentence = (
        "cannot be recorded: it attends more than once in a layer, but a recording has one softmax|"
        "of a model of type 'diffllama' does not go through"  # older versions
    )
    with pytest.raises(ValueError, match=sentence) as caught:
        load_capture_model(saved(tmp_path, config), 0)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize(
    ("kind", "sizes", "sentence"),
    [
        ("Mamba", {"hidden_size": 24}, "a model of type 'mamba' has no attention heads"),
        (
            "Rwkv",
            {"hidden_size": 24, "attention_hidden_size": 24},
            "a model of type 'rwkv' has no attention heads",
        ),
        ("Mpt", {"d_model": 24, "n_heads": 4, "n_layers": 2}, "of a model of type 'mpt'"),
        (
            "Falcon",
            {"hidden_size": 24, "num_attention_heads": 4},
            "of a model of type 'falcon'",
        ),
        ("Bloom", {"hidden_size": 24, "n_head": 4, "n_layer": 2}, "of a model of type 'bloom'"),
    ],
)
def test_a_kind_of_model_that_cannot_be_recorded_is_named(
    tmp_path: Path, kind: str, sizes: dict[str, int], sentence: str
) -> None:
    config = getattr(transformers, f"{kind}Config")(**sizes, vocab_size=16)
    config.num_hidden_layers = 2
    with pytest.raises(ValueError, match=sentence) as caught:
        load_capture_model(saved(tmp_path, config), 0)
    assert_one_sentence(caught.value)


# ------------------------------------------------------------------------------- what it reads

TEMPLATE = (
    "{% for message in messages %}for {{ message.role }} ,"
    "{% if loop.last and message.role == 'assistant' %} six{% endif %} "
    "{{ message.content }} ?\n{% endfor %}"
)
"""It says who speaks, closes with a mark, and lays the last turn out in a way of its own."""


def test_the_command_reads_an_agents_conversation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"vocab_size": 16, "num_key_value_heads": 2, "max_position_embeddings": 256}
    name = saved(tmp_path / "model", transformers.LlamaConfig(**SHAPE, **sizes), ("<s>", ""))
    file, out = tmp_path / "agent.json", tmp_path / "agent.npz"
    file.write_bytes(encoded(TALKS["tau-bench"]))
    files = ("--dialogs", str(file), "--out", str(out))
    assert main(["capture", "--model", name, "--layer", "1", "--calls", *files]) == 0

    assert "1 dialog, " in capsys.readouterr().out
    (dialog,), _ = read_dialogs(encoded(TALKS["tau-bench"]), calls=True)
    with out.open("rb") as trace:
        (recording,) = read_trace_file(trace)
    assert recording.transcript.turns == dialog.turns
    assert recording.transcript.demands == dialog.demands
    assert recording.transcript.services == "task 4"
    assert len(recording.evidence) == len(dialog.demands) == 5
    assert {kind for _, kind in recording.spans} == {*SPAN_KINDS}


def test_speakers_names_are_read_where_that_is_asked_for(causal: str) -> None:
    recording = record(load_capture_model(causal, 0, reads="names"), SHORT)

    said = [[(token.start, token.end) for token in turn] for turn in recording.tokens]
    assert said == [[(0, 0), (0, 0), (0, 0), (0, 1)], [(0, 0), (0, 0), (0, 3)]]
    assert [token.text for token in recording.tokens[1]] == ["<unk>", "<unk>", "six"]
    assert recording.source.endswith(", layer 0, with speakers' names")
    model = load_capture_model(causal, 0)
    assert record(model, SHORT).source.endswith(", layer 0, without speakers' names")
    assert record(model, replace(SHORT, calls_in_text=True)).source.endswith(
        ", layer 0, without speakers' names, with the text of calls"
    )


def test_a_chat_template_lays_the_dialog_out(causal: str, tmp_path: Path) -> None:
    name = shutil.copytree(causal, tmp_path / "model")
    with pytest.raises(ValueError, match="has no chat template"):
        load_capture_model(str(name), 0, reads="chat")
    made = transformers.AutoTokenizer.from_pretrained(name)
    made.chat_template = TEMPLATE
    made.save_pretrained(name)
    model = load_capture_model(str(name), 0, reads="chat")
    recording = record(model, DIALOG)

    turns = [[token.text for token in turn] for turn in recording.tokens]
    assert turns == [
        ["for", "<unk>", ",", "a", "table", "for", "two", "in", "rome", "?"],
        ["for", "<unk>", ",", "at", "six", "?", "?"],
        ["for", "<unk>", ",", "at", "six", ",", "in", "rome", "?"],
        [],
        ["for", "<unk>", ",", "a", "rome", "?"],
    ]
    for turn, tokens in zip(DIALOG.turns, recording.tokens, strict=True):
        said = [turn.text[token.start : token.end] for token in tokens]
        assert " ".join(filter(None, said)).replace(" ?", "?").replace(" ,", ",") == turn.text
    assert recording.source.endswith(", layer 0, by its chat template")
    ids = model.tokenizer.convert_tokens_to_ids([text for turn in turns for text in turn])
    attention, _ = read_at_once(causal, ids, 0)
    np.testing.assert_allclose(
        weights(recording, np.tri(len(ids), dtype=bool)), attention, atol=2e-5
    )


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{{ messages[0].content }}", "does not give every turn once and in order"),
        (
            "{% for m in messages %}{{ m.content | upper }}{% endfor %}",
            "changes the text of a turn",
        ),
        (
            "{% for m in messages %}{{ m.content | replace('six', 'two') }}{% endfor %}",
            "changes the text of a turn",
        ),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for", "its chat template fails"),
    ],
)
def test_a_template_that_cannot_be_followed_is_named(
    causal: str, tmp_path: Path, template: str, sentence: str
) -> None:
    name = shutil.copytree(causal, tmp_path / "model")
    made = transformers.AutoTokenizer.from_pretrained(name)
    made.chat_template = template
    made.save_pretrained(name)
    with pytest.raises(ValueError, match=sentence) as caught:
        record(load_capture_model(str(name), 0, reads="chat"), DIALOG)
    assert_one_sentence(caught.value)
    assert "dialog 0" in str(caught.value)


# ------------------------------------------------------------------------------- in NumPy


@pytest.mark.parametrize("tied", [False, True])
def test_the_decoder_in_numpy_says_what_the_library_says(tmp_path: Path, tied: bool) -> None:
    from fdkvc.lm.language_model import load_decoder
    from fdkvc.lm.text_cache import TextCache, read

    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        **SHAPE,
        vocab_size=40,
        num_key_value_heads=2,
        rope_theta=5000.0,
        tie_word_embeddings=tied,
        initializer_range=0.3,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(tmp_path)
    ids = np.random.default_rng(0).integers(40, size=200)

    with torch.inference_mode():
        theirs = model(input_ids=torch.tensor(ids)[None]).logits[0].numpy()
    memory = TextCache(load_decoder(tmp_path))
    parts = np.split(ids, [1, 7, 150])
    ours = np.concatenate([read([memory], part)[0] for part in parts])

    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert np.ptp(theirs, axis=-1).min() > 1
