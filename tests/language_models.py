"""A tiny language model of random weights in a standard folder; needs no network and no torch."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdkvc.models.numpy.families import llama3_stretch
from fdkvc.models.numpy.gguf_file import NO_GGUF
from fdkvc.models.numpy.model_text import model_text
from tests.examples import dialogs_of

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
        for dialog in dialogs or dialogs_of("dialogues")
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
        vocab_size=300, special_tokens=list(marks), initial_alphabet=alphabet, show_progress=False
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


def change_config(folder: Path, **changes: Any) -> None:
    """Change what the config of a model's folder says; None leaves it out."""
    path = folder / "config.json"
    known = json.loads(path.read_text()) | changes
    path.unlink()  # it may be a link
    path.write_text(json.dumps({key: value for key, value in known.items() if value is not None}))


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


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


MULTIPLIERS = {
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
}


def gguf_text(text: str | bytes) -> bytes:
    content = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(content)) + content


def gguf_value(value: Any) -> bytes:
    """Return the type and content of a value."""
    if isinstance(value, list):
        parts = [gguf_value(item) for item in value]
        kind = parts[0][:4] if parts else struct.pack("<I", 4)
        if kind == struct.pack("<I", 4):  # llama.cpp takes kinds of tokens with a sign alone
            kind = struct.pack("<I", 5)
        rest = b"".join(part[4:] for part in parts)
        return struct.pack("<I", 9) + kind + struct.pack("<Q", len(value)) + rest
    if isinstance(value, str | bytes):
        return struct.pack("<I", 8) + gguf_text(value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    return (
        struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)
    )


def gguf_bytes(
    fields: dict[str, Any], tensors: dict[str, tuple[int, tuple[int, ...], bytes]]
) -> bytes:
    """Return a GGUF file; the tensors are of a type, with a shape and content."""
    pytest.importorskip("gguf", reason=NO_GGUF)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    header += b"".join(gguf_text(name) + gguf_value(value) for name, value in fields.items())
    content = b""
    for name, (kind, shape, stored) in tensors.items():
        sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        header += gguf_text(name) + sizes + struct.pack("<IQ", kind, len(content))
        content += stored + bytes(-len(stored) % 32)
    return header + bytes(-len(header) % 32) + content


def gguf_parts(folder: Path, precision: str = "F32") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields and tensors of a GGUF file with the model of a folder."""
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    ordered = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].__getitem__)
    control = {token["content"] for token in tokenizer["added_tokens"]}
    kind = config["model_type"] if config["model_type"] != "mistral" else "llama"
    rope = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    fields = {
        "general.architecture": kind,
        f"{kind}.block_count": config["num_hidden_layers"],
        f"{kind}.context_length": config["max_position_embeddings"],
        f"{kind}.embedding_length": config["hidden_size"],
        f"{kind}.feed_forward_length": config["intermediate_size"],
        f"{kind}.attention.head_count": config["num_attention_heads"],
        f"{kind}.attention.head_count_kv": config["num_key_value_heads"],
        f"{kind}.attention.key_length": config["head_dim"],
        f"{kind}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        f"{kind}.rope.freq_base": config.get("rope_theta", rope.get("rope_theta", 10_000.0)),
    }
    for name, key in MULTIPLIERS.items():
        if name in config:
            fields[f"{kind}.{key}"] = config[name]
    if rope.get("rope_type") == "linear":
        fields |= {f"{kind}.rope.scaling.type": "linear"}
        fields |= {f"{kind}.rope.scaling.factor": rope["factor"]}
    fields |= {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": ordered,
        "tokenizer.ggml.token_type": [3 if token in control else 1 for token in ordered],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in tokenizer["model"]["merges"]],
    }
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    tensors = {}
    loaded: dict[str, Any] = load_file(folder / "model.safetensors")
    for name, array in loaded.items():
        layer, _, part = name.removesuffix(".weight").removeprefix("model.layers.").partition(".")
        plain, ending = name.rsplit(".", 1)
        part = part.removesuffix(".bias")
        gguf_name = f"blk.{layer}.{GGUF_NAMES[part]}" if part in GGUF_NAMES else GGUF_NAMES[plain]
        projection = part.split(".")[-1]
        if projection in heads and not kind.startswith("qwen"):  # rotated pairs are adjacent
            halves = array.reshape(heads[projection], 2, -1, array.shape[1])
            array = halves.swapaxes(1, 2).reshape(array.shape)
        number = {"F32": 0, "F16": 1, "BF16": 30}[precision] if array.ndim > 1 else 0
        stored = rounded(array, precision if array.ndim > 1 else "F32")
        tensors[f"{gguf_name}.{ending}"] = (number, array.shape, stored)
    if rope.get("rope_type") == "llama3":
        stretch = llama3_stretch(
            rope["rope_theta"] ** -(np.arange(0, config["head_dim"], 2) / config["head_dim"]), rope
        )
        tensors["rope_freqs.weight"] = (0, stretch.shape, rounded(stretch, "F32"))
    return fields, tensors
