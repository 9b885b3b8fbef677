"""The text that a policy's cache read, as recordings that the pages open.

There is one per decided layer, with a row per query head. Vectors are those that the model computed
from the entries kept, and turns are the cache's. So a replay of the same policy, with heads that
share keys deciding together, evicts the same entries; it may not if layers depended on each other,
heads were pooled by their maximum, or positions closed up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from fdkvc.corpora.recordings import Recording, Token
from fdkvc.corpora.transcripts import Demand, Transcript, Turn, clean, clean_name
from fdkvc.live.cache import PolicyCache
from fdkvc.live.loop import LiveModel
from fdkvc.lm.text_cache import read
from fdkvc.lm.tokens import EncodedPassage, Tokens
from fdkvc.policies import Policy


def recorded_text(
    cache: PolicyCache, ids: Sequence[int], tokenizer: Any, name: str
) -> list[Recording]:
    """Return the recordings of a cache, given the token ids that it read.

    Parameters
    ----------
    cache : PolicyCache
        Made with ``record=True``.
    ids : sequence of int
        All tokens read; may be followed by the last one written, which the cache has not seen.
    tokenizer : the library's
    name : str
        Of the dialog.
    """
    ends = [0, *(end for end in cache.ends if end < cache.seen), cache.seen]
    turns, tokens = [], []
    for number, (first, end) in enumerate(pairwise(ends)):
        own: list[Token] = []
        for each in ids[first:end]:
            text, start = clean(tokenizer.decode([each])), own[-1].end if own else 0
            own.append(Token(text, start, start + len(text)))
        turns.append(Turn(f"Turn {number}", "".join(token.text for token in own)))
        tokens.append(tuple(own))
    transcript = Transcript(clean_name(name), tuple(turns))
    nats = Tokens(tokenizer, (), {}, 0).surprisal(ids[: cache.seen])
    return _recordings(cache, transcript, tokens, type(tokenizer).__name__, nats)


def record_dialog(
    model: LiveModel,
    policy: Policy,
    budget: int,
    decides: str,
    transcript: Transcript,
    passages: Sequence[EncodedPassage],
) -> list[Recording]:
    """Record a model that reads a dialog under a policy, each passage a turn.

    Parameters
    ----------
    model : LiveModel
    policy, budget, decides
        As for `fdkvc.live.PolicyCache`.
    transcript : Transcript
    passages : sequence of EncodedPassage
        The dialog in tokens.
    """
    memory = model.evicting(policy, budget, decides, record=True)
    if model.tokens.first:
        read([memory], model.tokens.first, last=0)
    for passage in passages:
        read([memory], passage.ids, last=0)
        memory.end_turn()
    turns, tokens = [], []
    for passage in passages:
        text, turn = passage.passage.text, passage.passage.turn
        own = transcript.turns[turn]
        kind, called = (None, len(text)) if passage.passage.call else (own.kind, 0)
        turns.append(Turn(passage.passage.writer, text, own.topic, kind, called))
        tokens.append([Token(text[low:high], low, high) for low, high in passage.spans])
    tokens[0] = [Token("", 0, 0)] * len(model.tokens.first) + tokens[0]
    demands = tuple(_demands(transcript.demands, passages))
    by_passage = Transcript(
        transcript.name, tuple(turns), demands, transcript.missing, cluster=transcript.cluster
    )
    nats = model.tokens.surprisal(memory.ids)
    return _recordings(memory.cache, by_passage, tokens, model.name, nats)


def _demands(demands: Sequence[Demand], passages: Sequence[EncodedPassage]) -> Iterator[Demand]:
    """Yield the demands of a dialog with passages as turns."""
    words = {each.passage.turn: at for at, each in enumerate(passages) if each.passage.call is None}
    needed = np.array([each.passage.turn for each in passages])
    for demand in demands:
        mentions = tuple(
            mention._replace(turn=words[mention.turn])
            for mention in demand.mentions
            if mention.turn in words
        )
        if mentions:
            at = int(np.searchsorted(needed, demand.turn))
            yield replace(demand, turn=at, mentions=mentions)


def _recordings(
    cache: PolicyCache,
    transcript: Transcript,
    tokens: Sequence[Sequence[Token]],
    source: str,
    surprisal: Sequence[float],
) -> list[Recording]:
    hidden, queries, keys, values = map(cache.recorded, ("hidden", "queries", "keys", "values"))
    heads = queries.shape[1]
    keys, values = (np.repeat(each, heads // each.shape[1], axis=1) for each in (keys, values))
    return [
        Recording(
            replace(transcript, name=f"{transcript.name}, layer {number}"),
            tuple(map(tuple, tokens)),
            hidden[at, 0],
            queries[at],
            keys[at],
            values[at],
            tuple(range(heads)),
            clean_name(f"{source} under {cache.policy.name}, budget {cache.budget}"),
            np.array(surprisal, np.float32),
        )
        for at, number in enumerate(cache.decided)
    ]
