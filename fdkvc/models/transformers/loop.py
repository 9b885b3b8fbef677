"""A *transformers* model from a folder that reads and writes texts under policies.

It has the interface of the bundled model's class, so `fdkvc.models.answers` measures both.

1. `load_live` reads a folder. Its `LiveModel` has tokens, and a `LiveDecoder`, which reads.
2. `LiveModel.full` and `LiveModel.evicting` begin a text: a `LiveTextCache` around a `PolicyCache`.
3. `fdkvc.models.numpy.text_cache.read` lets the decoder read the next tokens of several texts, as
   many in one forward pass as memory allows (`SideBySide`).
4. `LiveTextCache.follow` takes over what the full cache of a text has read, as long as nothing was
   evicted: it is read once for all ways.
5. `LiveTextCache.end_turn` ends the turn of a text: its policy evicts.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import transformers
from transformers.cache_utils import DynamicCache
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from fdkvc.core.attention import Floats, Ints
from fdkvc.core.words import as_value_error
from fdkvc.models.numpy.decoder import ModelSizes
from fdkvc.models.numpy.gguf_file import as_folder, find_model
from fdkvc.models.numpy.head_eviction import DECIDES, POSITIONS
from fdkvc.models.numpy.language_model import AnyModel, model_digest, model_name
from fdkvc.models.numpy.model_folder import (
    cache_name,
    check_loaded,
    check_memory,
    check_model_folder,
    loading,
)
from fdkvc.models.numpy.text_cache import ModelCache
from fdkvc.models.numpy.tokens import Tokens, load_tokens
from fdkvc.models.transformers.attention_hooks import attach
from fdkvc.models.transformers.cache import PolicyCache, enough_memory
from fdkvc.models.transformers.layer import full_layers
from fdkvc.models.transformers.side_by_side import SideBySide, can_join
from fdkvc.policies import Policy, policy_named

TOKENS_AT_ONCE, ON_A_GPU = 2**14, 16
"""Most keys that the texts of one pass attend to together; on a GPU, so many times as many."""

PADDED = 1.1
"""Most tokens of a pass with padding, relative to those without. On a GPU any number: there a pass
costs more than its tokens."""


@dataclass(frozen=True, eq=False)
class LiveDecoder:
    """What reads texts with a *transformers* model; a `fdkvc.models.numpy.text_cache.Reader`."""

    model: Any

    @cached_property
    def shape(self) -> ModelSizes:
        """Sizes of the layers that policies decide for."""
        layers = DynamicCache(config=self.model.config).layers
        attention = attach(self.model, full_layers(layers, self.model.config))
        config = self.model.config.get_text_config(decoder=True)
        return ModelSizes(
            layers=len(attention.modules),
            heads=attention.heads,
            kv_heads=attention.kv_heads,
            head_width=attention.head_width,
            vocabulary=config.vocab_size,
            # Some models name no limit: then any text is short enough.
            positions=getattr(config, "max_position_embeddings", None) or 2**31,
        )

    def read(
        self, ids: Ints, caches: Sequence[LiveTextCache], *, last: int | None = None
    ) -> Floats:
        """Read the next tokens of texts; see `fdkvc.models.numpy.decoder.Decoder.read`."""
        return np.stack(self.read_each([*ids], caches, last=last))

    def read_each(
        self, ids: Sequence[Ints], caches: Sequence[LiveTextCache], *, last: int | None = None
    ) -> list[Floats]:
        """Read the next tokens of texts; return their logits (n, V), where n differs by text."""
        logits: list[Floats] = [np.empty(0, np.float32)] * len(ids)
        caches_before = [text.cache.fork() for text in caches]
        sizes = [*map(len, ids)]
        for text in caches:
            text.cache.leads = text.leads
        try:
            for rows in _read_at_once(caches, sizes):
                texts = [caches[row] for row in rows]
                longest = max(text.count for text in texts)
                outputs = (
                    f"{max(sizes):,} tokens of {len(rows)} texts of at most {longest:,} tokens"
                )
                with enough_memory(f"read {outputs}"):
                    of_texts = self._read([ids[row] for row in rows], texts, last)
                for row, of_text in zip(rows, of_texts, strict=True):
                    logits[row] = of_text
        except BaseException:  # also where a user stops it: each text is as it was
            for text, cache in zip(caches, caches_before, strict=True):
                text.cache = cache
            raise
        return logits

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _read(
        self, ids: Sequence[Ints], texts: Sequence[LiveTextCache], last: int | None
    ) -> list[Floats]:
        """Read the next tokens of texts in one forward pass; see `read_each`."""
        first, *followers = [text.cache for text in texts]
        sizes = [*map(len, ids)]
        columns = np.arange(max(sizes))
        options: dict[str, Any] = {cache_name(self.model): first, "use_cache": True}
        if followers:
            options[cache_name(self.model)] = SideBySide([first, *followers], sizes)
            positions = np.array([[text.count] for text in texts]) + columns
            options["position_ids"] = torch.tensor(positions, device=self.model.device)
        # The padding of a row repeats its last token.
        tokens = [new[np.minimum(columns, len(new) - 1)] for new in ids]
        batch = torch.tensor(np.array(tokens), device=self.model.device)
        output = self.model(input_ids=batch, **options).logits
        parts = []
        for of_text, size in zip(output, sizes, strict=True):
            start = 0 if last is None else size - last
            parts.append(of_text[start:size])
        # One copy for all texts, as each waits for the device.
        copied = torch.cat(parts).float().cpu().numpy()
        return np.split(copied, np.cumsum([*map(len, parts)])[:-1])


@dataclass(frozen=True, eq=False)
class LiveModel(AnyModel):
    """A *transformers* model and its tokens."""

    name: str
    """That of its folder."""
    decoder: LiveDecoder
    """What reads texts."""
    tokens: Tokens
    """What turns text into tokens."""
    digest: str
    """SHA-256 of its files."""
    positions: str = POSITIONS.default
    """As for `fdkvc.PolicyCache`."""

    @property
    def about(self) -> dict[str, str]:
        """What the numbers of a run depend on beside the model's files."""
        return {
            "positions": self.positions,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }

    def full(self, record: bool | Sequence[int] = False) -> LiveTextCache:
        """Return the cache of a new text that evicts nothing; `record` as for `PolicyCache`."""
        # This policy keeps all, whatever the budget.
        cache = self._cache(policy_named("full"), 1, record=record)
        return LiveTextCache(self, cache, evicts=False)

    def evicting(
        self,
        policy: Policy,
        budget: int,
        decides: str = DECIDES.default,
        *,
        record: bool = False,
    ) -> LiveTextCache:
        """Return the cache of a new text under a policy; `record` as for `PolicyCache`."""
        cache = self._cache(policy, budget, decides=decides, record=record)
        return LiveTextCache(self, cache)

    def _cache(self, policy: Policy, budget: int, **options: Any) -> PolicyCache:
        options |= {"positions": self.positions, "tokenizer": self.tokens}
        # Commands say them.
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            return PolicyCache(policy, budget, self.decoder.model, by_itself=False, **options)


def _read_at_once(
    caches: Sequence[LiveTextCache], next_ids: Sequence[int]
) -> Iterator[list[int]]:
    """Yield the texts of each pass: some with a similar number of new tokens, as memory allows."""
    attended = []
    for text, tokens in zip(caches, next_ids, strict=True):
        size, _ = text.cache.get_mask_sizes(tokens, text.cache.decided[0])
        attended.append(size)
    max_tokens = TOKENS_AT_ONCE if can_join(caches[0].cache) else 1
    padded = PADDED
    if caches[0].decoder.model.device.type == "cuda":
        max_tokens = max_tokens * ON_A_GPU
        padded = math.inf
    rows: list[int] = []
    for row in np.lexsort((attended, next_ids))[::-1].tolist():  # the longest first
        together = [*rows, row]
        keys = len(together) * max(attended[text] for text in together)
        tokens = (
            len(together) * next_ids[together[0]] / sum(next_ids[text] for text in together)
        )
        if rows and (keys > max_tokens or tokens > padded):
            yield rows
            together = [row]
        rows = together
    yield rows


class LiveTextCache(ModelCache):
    """The cache of a text under a policy.

    It wraps a new `PolicyCache` with ``by_itself=False``, and ends its turns if it evicts. A fork
    of that, as the turn began, stays unread, so that a turn can be read again.
    """

    whole = True  # until something is evicted

    def __init__(self, model: LiveModel, cache: PolicyCache, evicts: bool = True) -> None:
        self.model = model
        self.decoder: LiveDecoder = model.decoder
        self.cache = cache
        self.evicts = evicts
        self.ids: list[int] = []
        self._turn_start = 0
        self._cache_at_start = cache.fork()

    def end_turn(self) -> None:
        """End the turn: the policy evicts, if there is one."""
        if self.evicts:
            self.cache.turn_kind = self.turn_kind
            whole = self.whole
            self.whole = False  # until the turn has ended without an eviction
            self.cache.end_turn()
            self.whole = whole and self.cache.holds_all
        self._turn_start, self._cache_at_start = self.count, self.cache.fork()

    def follow(self, leader: Any) -> None:
        """Take over what another `whole` cache of the same text has just read."""
        self.cache.follow(leader.cache)
        self.ids = [*leader.ids]

    def fork(self, count: int | None = None) -> Self:
        """Return an independent copy, as of now or of the start of this turn."""
        start = self._turn_start
        if count not in (None, self.count, start):
            raise ValueError(
                f"a fork goes on from {start} or {self.count}, but not from {count}"
            )
        copied_cache = copy.copy(self)
        copied_cache.cache = (self._cache_at_start if count == start else self.cache).fork()
        copied_cache.ids = self.ids[:count]
        return copied_cache


def load_live(folder: str | Path, *, positions: str = POSITIONS.default) -> LiveModel:
    """Load a causal model with its tokens; `positions` is as for `PolicyCache`.

    `folder` may also be a GGUF file, or a name of `fdkvc.models.numpy.gguf_file.NAMED_MODELS`.
    Raises a ValueError, in one sentence that names it and what is wrong.
    """
    POSITIONS.check(positions, "positions")
    disable_progress_bar()
    set_verbosity_error()  # relevant warnings are errors below
    gpu = torch.cuda.is_available()
    failed = f"the model {str(folder)!r} cannot be loaded"
    with loading(failed):
        file = find_model(str(folder))
    with as_value_error(failed), as_folder(file) as path:
        check_model_folder(path)
        with torch.device("meta"):  # where numbers take no memory
            config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
            sizes = transformers.AutoModelForCausalLM.from_config(config).parameters()
        # For a GPU weights stay as they are stored, mostly in two bytes a number.
        check_memory((2 if gpu else 4) * sum(numbers.numel() for numbers in sizes))
        model, loaded = transformers.AutoModelForCausalLM.from_pretrained(
            path,
            dtype="auto" if gpu else torch.float32,
            use_safetensors=True,
            local_files_only=True,
            ignore_mismatched_sizes=True,  # they are named below
            output_loading_info=True,
        )
        check_loaded(loaded)
        model = model.to("cuda" if gpu else "cpu").eval()
        tokens = load_tokens(path, model.config.get_text_config(decoder=True).vocab_size)
        live = LiveModel(
            model_name(str(folder)), LiveDecoder(model), tokens, model_digest(file), positions
        )
        live.full()  # raises if no policy can evict from it
    return live
