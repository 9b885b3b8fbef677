"""Tiny *transformers* models of several architectures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SHAPE = {
    "vocab_size": 40,
    "hidden_size": 24,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
SLIDING = {"sliding_window": 9, "layer_types": ["sliding_attention", "full_attention"]}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", SHAPE),
    "qwen2": ("Qwen2Config", SHAPE),
    "qwen3": ("Qwen3Config", {**SHAPE, "head_dim": 8}),
    "mistral": ("MistralConfig", {**SHAPE, "sliding_window": None}),
    "gemma3": ("Gemma3TextConfig", {**SHAPE, **SLIDING, "head_dim": 8}),
    "gpt2": ("GPT2Config", {"vocab_size": 40, "n_embd": 24, "n_head": 4, "n_layer": 2}),
}


def model_of(kind: str, implementation: str = "sdpa") -> Any:
    """Make a small model whose random weights are large enough for uneven attention."""
    import torch
    import transformers

    torch.manual_seed(0)
    name, settings = CONFIGS[kind]
    config = getattr(transformers, name)(**settings)
    config.initializer_range = 0.4
    made = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
    return made.eval()


class Numbers:
    """A tokenizer of which every token is a word."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        words = ("the", "train", "to", "Ljubljana", "on", "Friday", "yes")
        return "".join(f" {words[number % 7]}{number // 7 or ''}" for number in ids)
