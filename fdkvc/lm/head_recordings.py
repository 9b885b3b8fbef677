"""Recorded: a dialog that a model has read, as recordings that the lab replays.

A recording for each KV head of each layer; its heads are the query heads that share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fdkvc.corpora.recordings import Recording, Token
from fdkvc.corpora.transcripts import Transcript
from fdkvc.lm.text_cache import ModelCache
from fdkvc.lm.tokens import EncodedPassage


def recordings(
    cache: ModelCache, transcript: Transcript, passages: Sequence[EncodedPassage]
) -> list[Recording]:
    """Return what a cache has read as recordings, a layer after the other.

    The tokens of a call belong to the turn that makes it, and stand for no words of it.

    Parameters
    ----------
    cache : ModelCache
    transcript : Transcript
    passages : sequence of EncodedPassage
        All that it has read, after what its tokenizer puts before any text.

    Examples
    --------
    The dialog's name is followed by the layer and the KV head: ``visit, 0.1``.
    """
    turns: list[list[Token]] = [[] for _ in transcript.turns]
    before = cache.count - sum(len(passage.ids) for passage in passages)
    turns[0] += [Token("", 0, 0)] * before
    for passage in passages:
        said = passage.passage
        spans = passage.spans if said.call is None else [(0, 0)] * len(passage.spans)
        turns[said.turn] += [Token(said.text[low:high], low, high) for low, high in spans]
    shape = cache.decoder.shape
    hidden, queries, keys, values = (
        cache.vectors(name) for name in ("hidden", "queries", "keys", "values")
    )
    return [
        Recording(
            replace(transcript, name=f"{transcript.name}, {layer}.{head}"),
            tuple(map(tuple, turns)),
            hidden[layer, 0],
            queries[layer, head * shape.group : (head + 1) * shape.group],
            np.repeat(keys[layer, head, None], shape.group, axis=0),
            np.repeat(values[layer, head, None], shape.group, axis=0),
            tuple(range(head * shape.group, (head + 1) * shape.group)),
            source="",
            surprisal=None if cache.surprisal is None else np.array(cache.surprisal, np.float32),
        )
        for layer, head in np.ndindex(shape.layers, shape.kv_heads)
    ]
