"""The ``tokenizer.json`` of the vocabulary in a GGUF file: byte-level BPE, or SentencePiece."""

from collections.abc import Mapping, Sequence
from typing import Any

from fdkvc.core.parameters import check_count

_CONTROL, _USER_DEFINED = 3, 4  # types of tokens

_WORDS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_NO_LETTER = r"[^\r\n\p{L}\p{N}]?"
_SIGNS = r" ?[^\s\p{L}\p{N}]+"

PATTERNS: Mapping[str, str] = {
    "llama-bpe": rf"{_ENDINGS}|{_NO_LETTER}\p{{L}}+|\p{{N}}{{1,3}}|{_SIGNS}[\r\n]*|{_WORDS}",
    "qwen2": rf"{_ENDINGS}|{_NO_LETTER}\p{{L}}+|\p{{N}}|{_SIGNS}[\r\n]*|{_WORDS}",
    "tekken": (
        rf"{_NO_LETTER}{_UPPER}*{_LOWER}+|{_NO_LETTER}{_UPPER}+{_LOWER}*|\p{{N}}|"
        rf"{_SIGNS}[\r\n/]*|{_WORDS}"
    ),
}
"""Where a text is split before its bytes are merged, by the name in a file."""

_BYTES = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
_DIGITS = {"type": "Digits", "individual_digits": True}
_SPLITS: dict[str, list[dict[str, Any]]] = {
    "gpt-2": [_BYTES],
    "smollm": [_DIGITS, _BYTES],
    "refact": [_DIGITS, _BYTES],
}
for _name, _pattern in PATTERNS.items():
    _split = {"type": "Split", "pattern": {"Regex": _pattern}, "behavior": "Isolated"}
    _SPLITS[_name] = [{**_split, "invert": False}, {**_BYTES, "use_regex": False}]

_WHOLE_WORDS = ("llama-bpe", "tekken")
"""A word that is a token needs no merges, and a text begins with a BOS token."""

_SPACE = "▁"


def tokenizer_content(fields: Mapping[str, Any], vocabulary: int) -> dict[str, Any]:
    """Return the ``tokenizer.json`` of the fields of a file whose model has so many tokens.

    Raises a ValueError that names the problem.
    """
    model = str(fields.get("tokenizer.ggml.model"))
    split = str(fields.get("tokenizer.ggml.pre"))
    if model != "llama" and (model != "gpt2" or split not in _SPLITS):
        raise ValueError(
            f"its tokenizer is {model[:40]!r} with {split[:40]!r}, but must be 'llama', or 'gpt2' "
            f"with one of {', '.join(map(repr, _SPLITS))}"
        )
    tokens = _listed(fields, "tokens", str)
    types = _listed(fields, "token_type", int)
    if len(types) != len(tokens) or len({*tokens}) != len(tokens):
        raise ValueError("tokens of its tokenizer have no type, or occur twice")
    if len(tokens) > vocabulary:
        raise ValueError(
            f"its tokenizer has {len(tokens):,} tokens, but its embeddings are of {vocabulary:,}"
        )
    added = {}
    for token, kind in zip(tokens, types, strict=True):
        if kind in (_CONTROL, _USER_DEFINED):
            added[token] = kind == _CONTROL
    if model == "llama":
        scores = _listed(fields, "scores", float)
        prefixed = fields.get("tokenizer.ggml.add_space_prefix", True) is True
        content = sentencepiece_tokenizer(tokens, scores, added, prefixed=prefixed)
    else:
        content = bpe_tokenizer(tokens, _merges(fields), added, split)
    begins = fields.get(
        "tokenizer.ggml.add_bos_token", model == "llama" or split in _WHOLE_WORDS
    )
    if begins is True:
        begin: Any = fields.get("tokenizer.ggml.bos_token_id")
        check_count("tokenizer.ggml.bos_token_id", begin, 0, len(tokens) - 1)
        text = tokens[begin]
        content["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": text, "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [],
            "special_tokens": {text: {"id": text, "ids": [begin], "tokens": [text]}},
        }
    return content


def bpe_tokenizer(
    tokens: Sequence[str], merges: Sequence[Any], added: Mapping[str, bool], split: str
) -> dict[str, Any]:
    """Return the content of a ``tokenizer.json`` of byte-level BPE.

    `split` is the name of a way to split texts in a file. Tokens that are `added` are no results of
    merges; by token, it says whether it is special.
    """
    ids = {token: index for index, token in enumerate(tokens)}
    return {
        "version": "1.0",
        "added_tokens": _added(ids, added),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _SPLITS[split]},
        "decoder": _BYTES,
        "model": {
            "type": "BPE",
            "vocab": ids,
            "merges": merges,
            "ignore_merges": split in _WHOLE_WORDS,
        },
    }


def sentencepiece_tokenizer(
    tokens: Sequence[str],
    scores: Sequence[float],
    added: Mapping[str, bool],
    *,
    prefixed: bool,
) -> dict[str, Any]:
    """Return the content of a ``tokenizer.json`` of SentencePiece's BPE, with bytes as a fallback.

    The best pair of neighbours is merged first, by the score of the token that it makes. With
    `prefixed`, a text begins with a space.
    """
    ids = {token: index for index, token in enumerate(tokens)}
    ranked: list[tuple[float, int, int, list[str]]] = []
    for token, score in zip(tokens, scores, strict=True):
        for middle in range(1, len(token)):
            start = token[:middle]
            end = token[middle:]
            if start in ids and end in ids:
                ranked.append((-score, ids[start], ids[end], [start, end]))
    ranked.sort(key=lambda row: row[0])  # as listed where scores are the same
    steps: list[dict[str, Any]] = [{"type": "Prepend", "prepend": _SPACE}] if prefixed else []
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": _SPACE})
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefixed:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "version": "1.0",
        "added_tokens": _added(ids, added),
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "vocab": ids,
            "merges": [pair for *_, pair in ranked],
            "unk_token": "<unk>" if "<unk>" in ids else None,
            "fuse_unk": True,
            "byte_fallback": True,
        },
    }


def _added(ids: Mapping[str, int], added: Mapping[str, bool]) -> list[dict[str, Any]]:
    flags = dict.fromkeys(("normalized", "single_word", "lstrip", "rstrip"), False)
    entries = []
    for token, special in added.items():
        entry = {"id": ids[token], "content": token, "special": special}
        entries.append(entry | flags)
    return entries


def _listed(fields: Mapping[str, Any], key: str, kind: type) -> list[Any]:
    value = fields.get(f"tokenizer.ggml.{key}")
    if not isinstance(value, list) or not all(type(item) is kind for item in value):
        raise ValueError(f"tokenizer.ggml.{key} is missing or of another type")
    return value


def _merges(fields: Mapping[str, Any]) -> list[Any]:
    merges = _listed(fields, "merges", str)
    if any(merge.count(" ") != 1 for merge in merges):
        raise ValueError("a merge of its tokenizer does not name two tokens")
    # The library takes a text that begins with "#version" for a comment. Pairs avoid that, but take
    # five times as much memory.
    if any(merge.startswith("#version") for merge in merges):
        return [merge.split(" ") for merge in merges]
    return merges
