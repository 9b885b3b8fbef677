"""A GGUF model in llama.cpp that reads and writes texts under policies.

It has the interface of `fdkvc.models.numpy.language_model.AnyModel`, so `fdkvc.models.answers`
measures it like the bundled model.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from fdkvc.core.attention import Floats, Ints
from fdkvc.models.llama_cpp.chat import SURPRISAL, LlamaText
from fdkvc.models.llama_cpp.context import check_model, llama_tokens
from fdkvc.models.numpy.decoder import ModelSizes
from fdkvc.models.numpy.gguf_file import find_model, is_gguf
from fdkvc.models.numpy.head_eviction import DECIDES, POSITIONS
from fdkvc.models.numpy.language_model import AnyModel, model_digest, model_name
from fdkvc.models.numpy.model_folder import check_memory, loading
from fdkvc.models.numpy.text_cache import ModelCache
from fdkvc.models.numpy.tokens import Tokens
from fdkvc.policies import Policy, policy_named

CONTEXT = 8192
"""Size of the context in tokens, unless the caller sets another."""


@dataclass(frozen=True, eq=False)
class LlamaDecoder:
    """A `fdkvc.models.numpy.text_cache.Reader` that reads texts in llama.cpp, one by one."""

    llama: Any
    shape: ModelSizes

    def read(
        self, ids: Ints, caches: Sequence[LlamaCache], *, last: int | None = None
    ) -> Floats:
        """Read the next tokens of texts; see `fdkvc.models.numpy.decoder.Decoder.read`."""
        pairs = zip(ids.tolist(), caches, strict=True)
        return np.stack([cache.read(tokens, last=last) for tokens, cache in pairs])


@dataclass(frozen=True, eq=False)
class LlamaModel(AnyModel):
    """A model in llama.cpp; options are those of `fdkvc.models.llama_cpp.chat.LlamaText`."""

    name: str
    decoder: LlamaDecoder
    tokens: Tokens
    digest: str
    positions: str = POSITIONS.default
    surprisal: str = SURPRISAL.default

    @property
    def about(self) -> dict[str, str]:
        """What the numbers of a run depend on, besides the model's file."""
        return {
            "engine": f"llama-cpp-python {llama_cpp.__version__}",
            "positions": self.positions,
            "surprisal": self.surprisal,
        }

    def full(self) -> LlamaCache:
        """Return the cache of a new text that evicts nothing."""
        return self.evicting(policy_named("full"), 1)

    def evicting(self, policy: Policy, budget: int, decides: str = "model") -> LlamaCache:
        """Return the cache of a new text under a policy.

        Raises a ValueError unless the whole model decides.
        """
        if decides != "model":
            raise ValueError(
                f"llama.cpp holds the same tokens in all heads, so {DECIDES.name} must be model"
            )
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            return LlamaCache(self, policy, budget)


class LlamaCache(LlamaText, ModelCache):
    """The cache of a text in llama.cpp."""

    def __init__(self, model: LlamaModel, policy: Policy, budget: int) -> None:
        options = {"positions": model.positions, "surprisal": model.surprisal}
        super().__init__(model.decoder.llama, policy, budget, **options)
        self.decoder: LlamaDecoder = model.decoder

    @property
    def whole(self) -> bool:
        """Whether it computes what a full cache does, so that it can `follow` one."""
        # Surprisal by the model is noted as a text is read, so each must read for itself.
        return len(self.held) == self.count and self.surprisal != "model"


def load_llama(
    path: str | Path,
    *,
    positions: str = POSITIONS.default,
    surprisal: str = SURPRISAL.default,
    **options: Any,
) -> LlamaModel:
    """Load a GGUF file, or one of `fdkvc.models.numpy.gguf_file.NAMED_MODELS`.

    `options` are passed to `llama_cpp.Llama`. Raises a ValueError that names the file and the
    problem.
    """
    with loading(f"llama.cpp cannot load the model {str(path)!r}"):
        file = find_model(str(path))
        if not is_gguf(file):
            raise ValueError("it is no GGUF file")
        check_memory(file.stat().st_size)
        options = {"n_ctx": CONTEXT, "verbose": False, **options}
        llama = llama_cpp.Llama(str(file), **options)
        check_model(llama.model)
        tokens = llama_tokens(llama)
    model = llama.model
    heads = llama_cpp.llama_model_n_head(model)
    shape = ModelSizes(
        layers=llama_cpp.llama_model_n_layer(model),
        heads=heads,
        kv_heads=llama_cpp.llama_model_n_head_kv(model),
        # Wrong for a model that sets another width: nothing here reads vectors.
        head_width=llama_cpp.llama_model_n_embd(model) // heads,
        vocabulary=llama.n_vocab(),
        positions=min(llama.n_ctx(), llama_cpp.llama_model_n_ctx_train(model)) - 1,
    )
    decoder = LlamaDecoder(llama, shape)
    return LlamaModel(
        model_name(str(path)), decoder, tokens, model_digest(file), positions, surprisal
    )
