"""Recordings of what a model's heads computed as it read a dialog."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fdkvc.corpora.recordings import Recording, Token
from fdkvc.corpora.transcripts import Transcript
from fdkvc.lm.text_cache import ModelCache
from fdkvc.lm.tokens import EncodedPassage


def head_recordings(
    cache: ModelCache,
    transcript: Transcript,
    passages: Sequence[EncodedPassage],
    surprisal: Sequence[float] | None = None,
) -> list[Recording]:
    """Return a recording for each KV head, layer by layer; its heads are the query heads of it.

    The passages are all that the cache has read, after the tokenizer's prefix. The tokens of a call
    belong to the turn that makes it, and to no words of that turn, as do those of tools that a chat
    template lists in its own way. Names are the dialog's with
    layer and KV head: ``visit, 0.1``. `surprisal` is that of each token, in nats, if needed.
    """
    turns: list[list[Token]] = [[] for _ in transcript.turns]
    prefix = cache.count - sum(len(encoded.ids) for encoded in passages)
    turns[0] += [Token("", 0, 0)] * prefix
    for encoded in passages:
        passage = encoded.passage
        worded = not passage.call and passage.text == transcript.turns[passage.turn].text
        spans = encoded.spans if worded else [(0, 0)] * len(encoded.spans)
        turns[passage.turn] += [Token(passage.text[low:high], low, high) for low, high in spans]
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
            surprisal=None if surprisal is None else np.array(surprisal, np.float32),
        )
        for layer, head in np.ndindex(shape.layers, shape.kv_heads)
    ]
