"""Adapter of a text in llama.cpp to the checks."""

from __future__ import annotations

import numpy as np

from fdkvc.core.attention import Floats, Ints
from fdkvc.models.llama_cpp.chat import LlamaText
from fdkvc.models.numpy.decoder import ModelSizes
from tests.models.conformance.subject import TurnCache


class LlamaTurns(TurnCache):
    """A text in llama.cpp, which refuses several; `every` as for `TurnCache`."""

    def __init__(self, text: LlamaText, shape: ModelSizes, every: int | None = None) -> None:
        def read(tokens: Ints) -> Floats:
            if len(tokens) > 1:
                raise ValueError("a context of llama.cpp has one text at a time")
            return text.read(tokens[0].tolist(), last=None)[None]

        def held() -> Ints:
            return np.broadcast_to(text.held, (1, shape.layers, shape.kv_heads, len(text.held)))

        self.fork = lambda: LlamaTurns(text.fork(), shape, every)
        super().__init__(read, held, text.end_turn, every)
