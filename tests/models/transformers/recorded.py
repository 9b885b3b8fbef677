"""The text that a policy's cache read, as recordings that a replay takes.

There is one for each recorded layer, with a row for each query head. The model computed the vectors
from the entries kept, and the turns are those of the cache.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fdkvc.core.recordings import Recording, Token
from fdkvc.core.transcripts import Demand, Transcript, Turn, clean_name
from fdkvc.models.numpy.head_recordings import encode_dialog
from fdkvc.models.numpy.text_cache import read
from fdkvc.models.numpy.tokens import EncodedPassage
from fdkvc.models.transformers.loop import LiveTextCache


def record_dialog(text_cache: LiveTextCache, transcript: Transcript) -> list[Recording]:
    """Record a model that reads a dialog with a new cache that records, each passage a turn."""
    model, cache = text_cache.model, text_cache.cache
    passages = encode_dialog(model, transcript)
    # 1. Read the dialog.
    if model.tokens.first:
        read([text_cache], model.tokens.first, last=0)
    for passage in passages:
        text_cache.turn_kind = passage.passage.kind
        read([text_cache], passage.ids, last=0)
        text_cache.end_turn()
    # 2. Its passages as turns, with their tokens; those before the text belong to the first.
    turns, tokens = [], []
    for passage in passages:
        text, turn = passage.passage.text, transcript.turns[passage.passage.turn]
        kind, called = (None, len(text)) if passage.passage.call else (turn.kind, 0)
        turns.append(Turn(passage.passage.writer, text, turn.topic, kind, called))
        tokens.append(tuple(Token(text[low:high], low, high) for low, high in passage.spans))
    tokens[0] = (Token("", 0, 0),) * len(model.tokens.first) + tokens[0]
    demands = tuple(_demands(transcript.demands, passages))
    by_passage = Transcript(
        transcript.name, tuple(turns), demands, transcript.missing, cluster=transcript.cluster
    )
    # 3. What each layer computed; each query head gets the keys and values that it shares.
    hidden, queries, keys, values = map(cache.recorded, ("hidden", "queries", "keys", "values"))
    heads = queries.shape[1]
    keys, values = (
        np.repeat(vectors, heads // vectors.shape[1], axis=1) for vectors in (keys, values)
    )
    source = clean_name(f"{model.name} under {cache.policy.name}, budget {cache.budget}")
    surprisal = np.array(model.tokens.surprisal(text_cache.ids), np.float32)
    return [
        Recording(
            replace(by_passage, name=f"{transcript.name}, layer {number}"),
            tuple(tokens),
            embeddings=hidden[index, 0],
            queries=queries[index],
            keys=keys[index],
            values=values[index],
            heads=tuple(range(heads)),
            source=source,
            surprisal=surprisal,
        )
        for index, number in enumerate(cache.recorded_layers)
    ]


def _demands(demands: Sequence[Demand], passages: Sequence[EncodedPassage]) -> Iterator[Demand]:
    """Yield the demands of a dialog with passages as turns."""
    spoken_by = [passage.passage for passage in passages]
    words = [
        (passage.turn, index) for index, passage in enumerate(spoken_by) if passage.call is None
    ]
    turn_of_words, turns = dict(words), [passage.turn for passage in spoken_by]
    for demand in demands:
        mentions = [mention for mention in demand.mentions if mention.turn in turn_of_words]
        if mentions:
            moved = tuple(
                mention._replace(turn=turn_of_words[mention.turn]) for mention in mentions
            )
            turn = bisect_left(turns, demand.turn)  # the first passage of its turn
            yield replace(demand, turn=turn, mentions=moved)
