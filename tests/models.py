"""A tiny language model of random weights in a standard folder; needs no network and no torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fdkvc.corpora.formats import EXAMPLES, read_file
from fdkvc.corpora.model_text import model_text

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}
MARKS = ("<pad>", "<user>", "<system>", "<call>", "<end>")


def words(dialogs: Sequence[Any] = ()) -> list[str]:
    """Return the pieces of some words that the tokenizer knows beside all bytes."""
    texts = [
        passage.text
        for dialog in dialogs or read_file(EXAMPLES / "dialogues.json")
        for passage in model_text(dialog)
    ]
    return sorted({word for text in texts for word in text.split()})[:40]


def write_tokenizer(folder: Path, marks: Sequence[str] = MARKS) -> int:
    """Write a byte tokenizer with a few merges and special tokens; return its vocabulary size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=list(marks),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator(words(), trainer)
    made.save(str(folder / "tokenizer.json"))
    return int(made.get_vocab_size())


def write_model(
    folder: Path,
    seed: int = 0,
    *,
    marks: Sequence[str] = MARKS,
    precision: str = "F32",
    **config: Any,
) -> Path:
    """Write a model whose random weights are large enough for uneven attention."""
    folder.mkdir(parents=True, exist_ok=True)
    known = {**CONFIG, "vocab_size": write_tokenizer(folder, marks), **config}
    (folder / "config.json").write_text(json.dumps(known))
    header, content = {}, b""
    for name, array in weights(known, seed).items():
        more = rounded(array, precision)
        place = [len(content), len(content) + len(more)]
        header[name] = {"dtype": precision, "shape": array.shape, "data_offsets": place}
        content += more
    said = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(said).to_bytes(8, "little") + said + content)
    return folder


def rounded(array: Any, precision: str) -> bytes:
    """Return an array's numbers as safetensors has them in a precision."""
    if precision == "BF16":
        return bytes((array.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes())
    return bytes(array.astype({"F32": "<f4", "F16": "<f2"}[precision]).tobytes())


def weights(config: dict[str, Any], seed: int) -> dict[str, Any]:
    """Draw the weights of a model, by their names."""
    random = np.random.default_rng(seed)
    d, m, h = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"] * h, config["num_key_value_heads"] * h
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (config["vocab_size"], d)}
    for number in range(config["num_hidden_layers"]):
        layer = f"model.layers.{number}"
        shapes |= {
            f"{layer}.self_attn.q_proj": (heads, d),
            f"{layer}.self_attn.k_proj": (kv_heads, d),
            f"{layer}.self_attn.v_proj": (kv_heads, d),
            f"{layer}.self_attn.o_proj": (d, heads),
            f"{layer}.mlp.gate_proj": (m, d),
            f"{layer}.mlp.up_proj": (m, d),
            f"{layer}.mlp.down_proj": (d, m),
            f"{layer}.input_layernorm": (d,),
            f"{layer}.post_attention_layernorm": (d,),
        }
    shapes["model.norm"] = (d,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head"] = (config["vocab_size"], d)
    drawn = {}
    for name, shape in shapes.items():
        around = 1.0 if len(shape) == 1 else 0.0
        drawn[f"{name}.weight"] = (around + 0.4 * random.normal(size=shape)).astype(np.float32)
    return drawn
