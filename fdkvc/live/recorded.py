"""Recorded: what a policy's cache read, as recordings that the pages open.

There is one for each layer that the policy decides for, with a row for each query head. They hold
the vectors as the model computed them from what was left, and each turn that the cache ended is a
turn of theirs. So a replay of the same policy, heads that share keys deciding together, evicts what
the cache did.
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
from fdkvc.lm.tokens import EncodedPassage
from fdkvc.policies import Policy


def recorded_text(
    cache: PolicyCache, ids: Sequence[int], tokenizer: Any, name: str
) -> list[Recording]:
    """Return what a cache has read, by the ids of its tokens.

    Parameters
    ----------
    cache : PolicyCache
        Made with ``record=True``.
    ids : sequence of int
        All that has been read; what was written last may follow, which no cache has seen yet.
    tokenizer : the library's
    name : str
        Of the dialog.
    """
    ends = [0, *(end for end in cache.ends if end < cache.seen), cache.seen]
    turns, tokens = [], []
    for number, (first, end) in enumerate(pairwise(ends)):
        said: list[Token] = []
        for each in ids[first:end]:
            text, start = clean(tokenizer.decode([each])), said[-1].end if said else 0
            said.append(Token(text, start, start + len(text)))
        turns.append(Turn(f"Turn {number}", "".join(token.text for token in said)))
        tokens.append(tuple(said))
    transcript = Transcript(clean_name(name), tuple(turns))
    return _recordings(cache, transcript, tokens, type(tokenizer).__name__)


def record_dialog(
    model: LiveModel,
    policy: Policy,
    budget: int,
    decides: str,
    transcript: Transcript,
    passages: Sequence[EncodedPassage],
) -> list[Recording]:
    """Let a model read a dialog under a policy, each passage a turn, and record it.

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
    return recorded_dialog(memory.cache, transcript, passages, model.name)


def recorded_dialog(
    cache: PolicyCache, transcript: Transcript, passages: Sequence[EncodedPassage], source: str
) -> list[Recording]:
    """Return what a cache has read of a dialog, each passage a turn.

    Parameters
    ----------
    cache : PolicyCache
        Made with ``record=True``.
    transcript : Transcript
    passages : sequence of EncodedPassage
        All that it has read, after what its tokenizer puts before any text.
    source : str
        The name of the model.
    """
    turns, tokens = [], []
    for passage in passages:
        said = passage.passage
        turns.append(Turn(said.writer, said.text, transcript.turns[said.turn].topic))
        tokens.append([Token(said.text[low:high], low, high) for low, high in passage.spans])
    before = cache.seen - sum(map(len, tokens))
    tokens[0] = [Token("", 0, 0)] * before + tokens[0]
    demands = tuple(_demands(transcript.demands, passages))
    said_again = Transcript(transcript.name, tuple(turns), demands, transcript.missing)
    return _recordings(cache, said_again, tokens, source)


def _demands(demands: Sequence[Demand], passages: Sequence[EncodedPassage]) -> Iterator[Demand]:
    """Yield the demands of a dialog by passages in the place of turns."""
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
    cache: PolicyCache, transcript: Transcript, tokens: Sequence[Sequence[Token]], source: str
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
        )
        for at, number in enumerate(cache.decided)
    ]
