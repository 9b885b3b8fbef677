"""llama.cpp through *llama-cpp-python*: one sequence in the context of a `llama_cpp.Llama`.

These are the low-level functions: `Llama`'s own methods decide by themselves what to remove from
the context.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import llama_cpp
import numpy as np

from fdkvc.core.attention import Floats
from fdkvc.models.numpy.tokens import Tokens, marked_tokens


def check_model(model: Any) -> None:
    """Raise a ValueError for a model with layers that do not hold every token."""
    if llama_cpp.llama_model_is_recurrent(model) or llama_cpp.llama_model_is_hybrid(model):
        raise ValueError("this model has recurrent layers, from which no token can be removed")
    if llama_cpp.llama_model_n_swa(model) > 0:
        raise ValueError(
            "this model has layers with a sliding window, which evict by themselves"
        )


def llama_tokens(llama: Any) -> Tokens:
    """Return the tokens of a model in llama.cpp, with the marks of its chat template."""
    vocabulary = vocabulary_of(llama)
    bos = llama_cpp.llama_vocab_bos(vocabulary)
    first = (bos,) if llama_cpp.llama_vocab_get_add_bos(vocabulary) else ()
    template = str(llama.metadata.get("tokenizer.chat_template", ""))
    special = []
    for name, token in (
        ("bos_token", bos),
        ("eos_token", llama_cpp.llama_vocab_eos(vocabulary)),
    ):
        if token >= 0:  # the vocabulary has one
            text = llama.detokenize([token], special=True).decode(errors="replace")
            special.append((name, text))
    return marked_tokens(_Tokenizer(llama), first, template, tuple(special))


class _Tokenizer:
    """llama.cpp's tokenizer with the methods of the package *tokenizers* that `Tokens` uses."""

    encode_special_tokens = True

    def __init__(self, llama: Any) -> None:
        self._llama = llama

    def encode(self, text: str, *, add_special_tokens: bool) -> SimpleNamespace:
        content = text.encode()
        marks = not self.encode_special_tokens
        ids = self._llama.tokenize(content, add_bos=add_special_tokens, special=marks)
        # 1. llama.cpp gives no offsets: add up the bytes of tokens. A tokenizer may put a space
        #    before the text, with which the first token then starts; the ends agree.
        sizes = [len(self._llama.detokenize([token], special=True)) for token in ids]
        token_ends = np.maximum(np.cumsum([0, *sizes]) + len(content) - sum(sizes), 0)
        # 2. From bytes to characters: a token has every character that it has a byte of.
        starts = np.cumsum([0, *(len(character.encode()) for character in text)])
        first = np.searchsorted(starts, token_ends[:-1], side="right") - 1
        last = np.searchsorted(starts, token_ends[1:])
        return SimpleNamespace(
            ids=ids, offsets=[*zip(first.tolist(), last.tolist(), strict=True)]
        )

    def decode(self, ids: list[int], *, skip_special_tokens: bool = True) -> str:
        return str(self._llama.detokenize(ids).decode(errors="replace"))


def vocabulary_of(llama: Any) -> Any:
    """Return the vocabulary of a model, for functions of llama.cpp."""
    return llama_cpp.llama_model_get_vocab(llama.model)


def read_batch(llama: Any, ids: Sequence[int], start: int, skipped: int) -> Floats:
    """Read tokens from a position on; return the logits after all but the `skipped` (n, V)."""
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    try:
        batch.n_tokens = len(ids)
        for index, token in enumerate(ids):
            batch.token[index] = token
            batch.pos[index] = int(start) + index
            batch.n_seq_id[index] = 1  # in one sequence
            batch.seq_id[index][0] = 0  # number 0
            batch.logits[index] = index >= skipped
        code = llama_cpp.llama_decode(llama.ctx, batch)
        if code:
            raise ValueError(
                f"llama.cpp could not read {len(ids):,} tokens (its code is {code})"
            )
        # Copied, since the next batch overwrites them.
        width = llama.n_vocab()
        rows = []
        for index in range(skipped, len(ids)):
            logits = llama_cpp.llama_get_logits_ith(llama.ctx, index)
            rows.append(np.ctypeslib.as_array(logits, (width,)).copy())
        return np.stack(rows) if rows else np.empty((0, width), np.float32)
    finally:
        llama_cpp.llama_batch_free(batch)


def state_of(llama: Any) -> bytes:
    """Return the keys, values and positions of the sequence in the context."""
    size = llama_cpp.llama_state_seq_get_size(llama.ctx, 0)
    buffer = (ctypes.c_uint8 * size)()
    size_written = llama_cpp.llama_state_seq_get_data(llama.ctx, buffer, size, 0)
    return bytes(memoryview(buffer)[:size_written])


def set_state(llama: Any, state: bytes) -> None:
    """Replace the sequence in the context. Raises a ValueError if llama.cpp refuses the state."""
    # False: what cells hold is forgotten, but their numbers are not set to 0, which would take
    # time.
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(llama.ctx), False)
    buffer = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
    if not llama_cpp.llama_state_seq_set_data(llama.ctx, buffer, len(state), 0):
        raise ValueError("llama.cpp could not restore the state of a text")
