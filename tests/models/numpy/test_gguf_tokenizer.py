"""Tokenizers in GGUF files: the ids of the tokenizer that the file was made from."""

import json
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from fdkvc.models.numpy.gguf_tokenizer import PATTERNS, tokenizer_content
from fdkvc.models.numpy.model_folder import check_tokenizer
from fdkvc.models.numpy.tokens import read_tokens
from tests.language_models import words

TEXTS = [
    "It's 12345 o'clock, WE'VE 3 cafés — don't!",
    "  two  spaces\n\n\n and\ttabs \r\n",
    "你好，世界 123 カタカナ 한국어",
    "😀 👩‍👩‍👧 e\u0301 ﬁ /path/to//x.py",
    "",
]


def byte_level(name: str) -> Tokenizer:
    """Train a tokenizer that splits texts as the models of a family do."""
    made = Tokenizer(models.BPE(ignore_merges=name != "qwen2"))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=["<s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([*words(), *TEXTS], trainer)
    return made


def fields_of(made: Tokenizer, **more: Any) -> dict[str, Any]:
    """Return a tokenizer as the fields of a file."""
    model = json.loads(made.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    types = [3 if token in ("<s>", "<unk>") else 1 for token in tokens]
    fields = {"tokens": tokens, "token_type": types, "bos_token_id": tokens.index("<s>"), **more}
    return {f"tokenizer.ggml.{name}": value for name, value in fields.items()}


@pytest.mark.parametrize("name", PATTERNS)
def test_byte_level_ids_are_those_of_the_tokenizer(name: str) -> None:
    made = byte_level(name)
    merges = [" ".join(pair) for pair in json.loads(made.to_str())["model"]["merges"]]
    fields = fields_of(made, model="gpt2", pre=name, merges=merges)
    tokens = read_tokens(json.dumps(tokenizer_content(fields, 1000)).encode())
    for text in TEXTS:
        assert list(tokens.encode(text)[0]) == made.encode(text).ids
    assert bool(tokens.first) == (name != "qwen2")


def test_sentencepiece_merges_by_score_and_falls_back_to_bytes() -> None:
    pieces = {"▁the": -1.0, "▁th": -2.0, "he": -3.0, "▁t": -4.0, "th": -5.0}
    letters = dict.fromkeys("▁the12", -9.0)
    scores = {"<unk>": 0.0, "<s>": 0.0} | {f"<0x{byte:02X}>": 0.0 for byte in range(256)}
    scores |= pieces | letters
    ids = {token: number for number, token in enumerate(scores)}
    types = [2, 3, *[6] * 256, *[1] * (len(pieces) + len(letters))]
    content = tokenizer_content(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": [*scores],
            "tokenizer.ggml.scores": [*scores.values()],
            "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.bos_token_id": 1,
        },
        1000,
    )
    tokens = read_tokens(json.dumps(content).encode())
    known = {
        "the": ["▁the"],
        "thehe 12": ["▁the", "he", "▁", "1", "2"],
        "thté": ["▁th", "t", "<0xC3>", "<0xA9>"],
    }
    for text, pieces_of_text in known.items():
        ids_of_text, spans = tokens.encode(text)
        assert ids_of_text == tuple(ids[piece] for piece in pieces_of_text)
        assert tokens.text(ids_of_text) == text
        assert spans[-1][1] == len(text)
    assert tokens.first == (1,)


def test_the_patterns_are_not_refused_for_their_time() -> None:
    for pattern in PATTERNS.values():
        check_tokenizer({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": pattern}}})
