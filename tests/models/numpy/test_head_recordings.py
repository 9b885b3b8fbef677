"""Recordings of what a model computes in a few of its layers as it reads a dialog."""

from dataclasses import replace

import numpy as np
import pytest

from fdkvc.models.numpy.head_recordings import encode_dialog, read_dialog
from fdkvc.models.numpy.language_model import LanguageModel, load_language_model
from fdkvc.models.numpy.text_cache import TextCache, read
from tests.examples import dialogs_of
from tests.language_models import write_model

DIALOG = dialogs_of("evening")[0]
LAYERS = (1, 3)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    folder = tmp_path_factory.mktemp("model")
    return load_language_model(
        write_model(folder, num_hidden_layers=5, max_position_embeddings=8192)
    )


def test_a_few_layers_are_recorded_as_all_are_without_their_memory(model: LanguageModel) -> None:
    seen: list[int] = []
    some = read_dialog(model, DIALOG, LAYERS, seen.append)

    passages, cache = encode_dialog(model, DIALOG), TextCache(model.decoder)
    for passage in passages:
        read([cache], passage.ids)
    hidden, queries, keys, values = (
        cache.vectors(name) for name in ("hidden", "queries", "keys", "values")
    )
    heads = [(layer, head) for layer in LAYERS for head in range(2)]

    assert sum(seen) == cache.count
    assert len(seen) > 1
    for made, (layer, head) in zip(some, heads, strict=True):
        assert made.transcript == replace(DIALOG, name=f"{DIALOG.name}, {layer}.{head}")
        assert "".join(token.text for token in made.tokens[0]) == DIALOG.turns[0].text
        assert made.heads == (2 * head, 2 * head + 1)
        group = slice(2 * head, 2 * head + 2)
        for vectors, expected in (
            (made.embeddings, hidden[layer, 0]),
            (made.queries, queries[layer, group]),
            (made.keys, np.stack([keys[layer, head]] * 2)),
            (made.values, np.stack([values[layer, head]] * 2)),
        ):
            np.testing.assert_allclose(vectors, expected, atol=2e-4)
        assert made.surprisal is not None
        assert made.surprisal.tolist() == pytest.approx(model.tokens.surprisal(cache.ids))
    # What the rows of a recording share, and what its heads share, is stored once.
    assert some[0].embeddings.base is some[1].embeddings.base
    for recording in some:
        assert recording.keys.strides[0] == recording.dialogs.embeddings.strides[0] == 0
        assert recording.keys.base is not None
        assert recording.keys.base.size == len(LAYERS) * 2 * cache.count * 6
    assert [recording.source for recording in some][
        1
    ] == f"the {model.name} model, layer 1, KV head 1"


def test_what_ends_the_reading_ends_it_at_once(model: LanguageModel) -> None:
    def stop(tokens: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        read_dialog(model, DIALOG, LAYERS, stop)
