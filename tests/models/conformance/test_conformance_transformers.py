"""The checks on a cache inside *transformers*: a right one, and ones that are wrong in one way."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from tests.library import CONFIGS, model_of
from tests.models.conformance.checks import Fault, checks
from tests.models.conformance.subject import Subject
from tests.models.conformance.transformers_adapter import LibraryCache, TransformersModel

# A former name of the library's is a failure.
pytestmark = pytest.mark.filterwarnings("error:.*past_key_values:FutureWarning")

torch.set_num_threads(1)  # what is small is slower on several

BUDGET = 12
SINKS = 3


class SinkLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of the first tokens and the last ones."""

    keys: Any
    values: Any

    def __init__(self) -> None:
        super().__init__()
        self.ids: Any = torch.arange(0)
        self.seen = 0

    def get_seq_length(self) -> int:
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return len(self.ids) + query_length, self.get_seq_length() - len(self.ids)

    def update(self, key_states: Any, value_states: Any, *args: Any, **named: Any) -> Any:
        n = key_states.shape[-2]
        self.ids = torch.cat([self.ids, torch.arange(self.seen, self.seen + n)])
        self.seen += n
        return super().update(key_states, value_states, *args, **named)

    def evict(self) -> None:
        surplus = len(self.ids) - BUDGET
        if surplus > 0:
            stays = torch.cat([torch.arange(SINKS), torch.arange(SINKS + surplus, len(self.ids))])
            self.ids = self.ids[stays]
            self.keys, self.values = self.keys[:, :, stays], self.values[:, :, stays]


class CountsHeld(SinkLayer):
    """It takes the tokens held for those seen."""

    def get_seq_length(self) -> int:
        return len(self.ids)


class FirstTextOnly(SinkLayer):
    """It evicts from the first text of several, and masks nothing in the others."""

    def evict(self) -> None:
        self.keys, self.values = self.keys.clone(), self.values.clone()
        self.keys[1:] = self.keys[1:].flip(2)
        super().evict()


def subject(model: Any, layer: Any, layers: tuple[int, ...] = (0, 1)) -> Subject:
    heads = getattr(model.config, "num_key_value_heads", model.config.num_attention_heads)

    def held(samples: int, cache: Any) -> Any:
        ids = [cache.layers[at].ids.numpy() for at in layers]
        return np.broadcast_to(
            np.stack(ids)[None, :, None], (samples, len(ids), heads, len(ids[0]))
        )

    def end_turn(cache: Any) -> None:
        for at in layers:
            cache.layers[at].evict()

    def begin(samples: int) -> LibraryCache:
        cache = DynamicCache(config=model.config)
        for at in layers:
            cache.layers[at] = layer()
        return LibraryCache(model, cache, partial(held, samples), end_turn)

    full = TransformersModel(model, layers)
    return Subject(begin, full, BUDGET, samples=3, sinks=SINKS)


def faults(tested: Subject) -> dict[str, str]:
    """Return what the checks say, by the name of each that finds its fault."""
    said = {}
    for check in checks(tested):
        try:
            check(tested)
        except Fault as error:
            said[check.__name__] = str(error)
    return said


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_plain_cache_of_the_library_passes(kind: str) -> None:
    layers = (1,) if kind == "gemma3" else (0, 1)  # a sliding layer is left to the model
    assert not faults(subject(model_of(kind), SinkLayer, layers))


def test_a_cache_that_counts_what_it_holds_is_found() -> None:
    by_check = faults(subject(model_of("llama"), CountsHeld))
    assert "counts the entries held as tokens seen" in by_check["counts_other_positions"]
    assert "attends_to_what_was_evicted" in by_check
    assert "holds_more_than_the_budget" not in by_check


def test_a_cache_that_is_right_for_the_first_text_alone_is_found() -> None:
    assert list(faults(subject(model_of("llama"), FirstTextOnly))) == [
        "compresses_only_the_first_text"
    ]


def test_the_full_model_is_the_model_itself_where_everything_is_seen() -> None:
    for kind in CONFIGS:
        model = model_of(kind)
        tokens = np.random.default_rng(0).integers(40, size=8)
        heads = getattr(model.config, "num_key_value_heads", model.config.num_attention_heads)
        sees = np.broadcast_to(np.tri(8, dtype=np.bool_), (2, heads, 8, 8))
        with torch.inference_mode():
            wanted = model(input_ids=torch.tensor(tokens)[None]).logits[0].numpy()
        reading = TransformersModel(model).read(tokens, sees)
        np.testing.assert_allclose(reading.outputs, wanted, atol=1e-4)


def test_positions_that_are_not_rotary_cannot_be_changed() -> None:
    full = TransformersModel(model_of("gpt2"))
    sees = np.broadcast_to(np.tri(8, dtype=np.bool_), (2, 4, 8, 8))
    with pytest.raises(ValueError, match="positions are not rotary"):
        full.read(np.arange(8), sees, np.zeros(sees.shape, np.intp))
