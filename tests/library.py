"""Tiny *transformers* models of several architectures."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from fdkvc.models.numpy.model_folder import cache_name

CACHE = cache_name(transformers.LlamaForCausalLM)
"""The argument of the installed library that takes a cache."""

NO_OLD_NAME = pytest.mark.filterwarnings("error:.*past_key_values:FutureWarning")
"""A former name of the library's is a failure."""

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
CAPPED = ("gemma2", "sdpa")
"""It has caps on its logits, and eager attention alone."""


def made(shape: str = "llama", attention: str = "sdpa", **sizes: Any) -> Any:
    """Make a model of random weights."""
    torch.manual_seed(0)
    name, options = SHAPES[shape]
    known = {**SIZES, **options, **sizes}
    if shape == "gpt2":
        del known["head_dim"], known["num_key_value_heads"], known["intermediate_size"]
    config = getattr(transformers, name)(**known)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    return model.eval()


def text(tokens: int, seed: int = 0) -> Any:
    """Draw a text (1, N)."""
    return torch.from_numpy(np.random.default_rng(seed).integers(40, size=(1, tokens)))


class Numbers:
    """A tokenizer of which every token is a word."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        words = ("the", "train", "to", "Ljubljana", "on", "Friday", "yes")
        return "".join(f" {words[number % 7]}{number // 7 or ''}" for number in ids)
