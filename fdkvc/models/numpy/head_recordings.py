"""Recordings of what a model's heads compute as it reads a dialog."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from fdkvc.core.recordings import Recording
from fdkvc.core.transcripts import Transcript
from fdkvc.models.numpy.language_model import AnyModel, LanguageModel
from fdkvc.models.numpy.text_cache import TextCache, read
from fdkvc.models.numpy.tokens import EncodedPassage, tokens_by_turn

AT_ONCE = 256
"""Tokens that are read between two reports of progress."""


def encode_dialog(model: AnyModel, transcript: Transcript) -> list[EncodedPassage]:
    """Return the passages of a dialog in tokens; ValueError if the model cannot read them."""
    try:
        passages = model.tokens.encode_dialog(transcript)
    except ValueError as error:
        raise ValueError(f"{transcript.name}: {error}") from None
    count = len(model.tokens.first) + sum(len(passage.ids) for passage in passages)
    limit = model.decoder.shape.positions
    if count > limit:
        raise ValueError(
            f"{transcript.name}: {count:,} tokens, but the model holds at most {limit:,}"
        )
    return passages


def count_tokens(model: AnyModel, transcript: Transcript) -> int:
    """Return the number of tokens of a dialog. Raises a ValueError as `encode_dialog` does."""
    return sum(len(passage.ids) for passage in encode_dialog(model, transcript))


def read_dialog(
    model: LanguageModel,
    transcript: Transcript,
    layers: Sequence[int],
    on_read: Callable[[int], None] = lambda tokens: None,
) -> list[Recording]:
    """Let a model read a dialog; return a recording for each KV head of some of its layers.

    A recording's heads are those of the KV head's group. Its name has the dialog's name, the layer
    and the KV head: ``visit, 0.1``. `on_read` gets the number of tokens, a few at a time. Raises a
    ValueError if the dialog is longer than the model can hold.
    """
    passages = encode_dialog(model, transcript)
    first = model.tokens.first
    ids = [*first, *chain.from_iterable(passage.ids for passage in passages)]
    # Later layers change nothing in the ones recorded.
    decoder = replace(model.decoder, layers=model.decoder.layers[: max(layers) + 1])
    cache = TextCache(decoder, layers)
    cache.reserve(len(ids))
    for start in range(0, len(ids), AT_ONCE):
        part = ids[start : start + AT_ONCE]
        read([cache], part, last=0)
        on_read(len(part))
    shape = decoder.shape
    tokens = tokens_by_turn(transcript, passages, len(first))
    hidden = cache.vectors("hidden")
    queries = cache.vectors("queries")
    keys, values = (cache.vectors(name)[[*layers]] for name in ("keys", "values"))
    surprisal = model.tokens.surprisal(ids)
    note = transcript.source_note
    recordings = []
    for row, head in np.ndindex(len(layers), shape.kv_heads):
        heads = range(head * shape.group, (head + 1) * shape.group)
        shared = (shape.group, *keys.shape[2:])
        recordings.append(
            Recording(
                replace(transcript, name=f"{transcript.name}, {layers[row]}.{head}"),
                tokens,
                hidden[row, 0],
                queries[row, heads.start : heads.stop],
                # Not copied for each query head: they share them.
                np.broadcast_to(keys[row, head], shared),
                np.broadcast_to(values[row, head], shared),
                heads=tuple(heads),
                source=f"the {model.name} model, layer {layers[row]}, KV head {head}{note}",
                surprisal=np.array(surprisal, np.float32),
            )
        )
    return recordings
