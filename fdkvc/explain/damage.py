"""Damage: how much worse a text is predicted from a policy's cache than from the full one.

The measure is the KL divergence from the predictions of the full cache, in nats: 0 where eviction
changed nothing. A word has the sum over its tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from fdkvc.attention import Bools, Floats
from fdkvc.corpora.model_text import WRITERS
from fdkvc.corpora.transcripts import SPAN_KINDS, Transcript
from fdkvc.explain.answer_causes import Passages, Word, turns_of, words_in
from fdkvc.limits import MAX_CHUNK_NUMBERS, MAX_EXPLAINED_WORDS
from fdkvc.lm.decoder import attention
from fdkvc.lm.language_model import LanguageModel
from fdkvc.lm.losses import losses
from fdkvc.lm.text_cache import BLOCK, OneHead, TextCache, check_length, later_tokens, read
from fdkvc.lm.tokens import Tokens
from fdkvc.policies import Policy

CAUSES = 5
"""Evicted words that are named, and restored, for each word explained."""

LEAST = 0.05
"""KL in nats from which on a word is explained."""


LINE_BREAK, SPACE = "⏎", "␣"
"""How tokens without other text are shown."""


class Part(NamedTuple):
    """A passage of a text: who says it, in which turn, and its tokens from `first` to `end`."""

    speaker: str
    turn: int
    first: int
    end: int


@dataclass(frozen=True)
class Text:
    """A text in a model's tokens: its passages, and its words, marks and line breaks."""

    ids: tuple[int, ...]
    parts: tuple[Part, ...]
    words: tuple[Word, ...]


def dialog_text(tokens: Tokens, transcript: Transcript) -> Text:
    """Return a dialog as a model reads it."""
    ids, parts = [*tokens.first], []
    for encoded in tokens.encode_dialog(transcript):
        passage, first = encoded.passage, len(ids)
        ids += encoded.ids
        speaker = SPAN_KINDS[passage.kind] if passage.kind else WRITERS[passage.writer]
        parts.append(Part(speaker, passage.turn, first, len(ids)))
    return _text(tokens, ids, parts)


def chat_text(tokens: Tokens, ids: Sequence[int], passages: Passages) -> Text:
    """Return the text of a chat."""
    spoken = zip(passages, turns_of(passages), strict=True)
    parts = [Part(WRITERS[writer], turn, first, end) for (writer, first, end), turn in spoken]
    return _text(tokens, ids, parts)


def _text(tokens: Tokens, ids: Sequence[int], parts: Sequence[Part]) -> Text:
    """Find the words; a token that is part of none is one of its own."""
    words = [
        Word(text, passage, part.first + low, part.first + high)
        for passage, part in enumerate(parts)
        for text, low, high in words_in(tokens, ids[part.first : part.end])
    ]
    alone = {*range(len(ids))}.difference(*(range(word.first, word.end) for word in words))
    for at in alone:
        passage = max(np.searchsorted([part.first for part in parts], at, side="right") - 1, 0)
        text = tokens.tokenizer.decode([ids[at]], skip_special_tokens=False)
        shown = text.strip() or (LINE_BREAK if "\n" in text else SPACE)
        words.append(Word(shown, int(passage), at, at + 1))
    return Text(tuple(ids), tuple(parts), tuple(sorted(words, key=lambda word: word.first)))


# ------------------------------------------------------------------------------- damage


@dataclass(frozen=True)
class Cause:
    """An evicted word that the full cache attends to where the policy's cache fails."""

    word: int
    share: float
    """Attention that goes to its evicted entries, as a mean over layers and heads."""
    largest: float
    layer: int
    head: int
    """The head that attends to them most, and how much."""


@dataclass(frozen=True)
class HurtWord:
    """A word that is predicted worse, why, and its KL when the turn is read with these restored."""

    word: int
    restored: float
    causes: tuple[Cause, ...]


@dataclass(frozen=True, eq=False)
class Damage:
    """What a policy costs a text."""

    text: Text
    full_nats: Floats
    nats: Floats
    """Shape (N,). −log p of each token with the full cache and with the policy's; 0 for the first
    token, which nothing predicts."""
    kl: Floats
    """Shape (N,)."""
    hurt: tuple[HurtWord, ...]
    """The words with the highest KL, highest first."""

    @cached_property
    def of_words(self) -> Floats:
        """KL of each word."""
        edges = np.concatenate([[0], np.cumsum(self.kl, dtype=float)])
        first, end = np.array([(word.first, word.end) for word in self.text.words]).T
        return np.asarray(edges[end] - edges[first])

    def by_token(self) -> pd.DataFrame:
        """Return a row for each token."""
        words, parts = self.text.words, self.text.parts
        of = [(word.text, *parts[word.passage][:2]) for word in words for _ in range(*word.span)]
        table = pd.DataFrame(of, columns=["word", "speaker", "turn"])
        lost = self.nats - self.full_nats
        return table.rename_axis("token").assign(kl=self.kl, nats=self.nats, nats_lost=lost)

    def by_turn(self) -> pd.DataFrame:
        """Return a row for each turn: who speaks, its tokens, and their mean KL."""
        return (
            self.by_token()
            .groupby("turn", as_index=False, sort=False)
            .agg(
                speaker=("speaker", lambda column: " and ".join(dict.fromkeys(column))),
                tokens=("kl", "size"),
                kl=("kl", "mean"),
            )
        )


def read_damage(
    model: LanguageModel,
    cache: TextCache,
    text: Text,
    on_read: Callable[[float], object] = lambda share: None,
) -> Damage:
    """Read a text under a policy's new cache and the full one, and explain the most hurt words.

    `on_read` gets the share that is done. It takes the memory of two caches, `MAX_CHUNK_NUMBERS`
    logits, and the attention of one token.
    """
    full = model.full().without_hidden()
    nats, kl = read_losses([full, cache], text, lambda share: on_read(share * 0.7))
    damage = Damage(text, nats[0], nats[1], kl[1], ())
    worst = np.argsort(-damage.of_words, kind="stable")[:MAX_EXPLAINED_WORDS].tolist()
    hurt = []
    for number, at in enumerate(worst):
        if damage.of_words[at] >= LEAST and cache.attended_by_turn[-1] is not None:
            hurt.append(explain_word(full, cache, text, at))
        on_read(0.7 + 0.3 * (number + 1) / len(worst))
    return Damage(text, nats[0], nats[1], kl[1], tuple(hurt))


def read_losses(
    caches: Sequence[TextCache], text: Text, on_read: Callable[[float], object] = lambda share: None
) -> tuple[Floats, Floats]:
    """Read a text with new caches, the full one first; return the nats and KL of tokens (C, N).

    Raises a ValueError if the text is longer than the model can hold.
    """
    count, ids = len(text.ids), np.asarray(text.ids)
    check_length(caches[0].decoder, count)
    nats, kl = np.zeros((2, len(caches), count), np.float32)
    step = max(MAX_CHUNK_NUMBERS // (len(caches) * caches[0].decoder.shape.vocabulary), 1)
    for cache in caches:
        cache.reserve(count)
    ends = [part.end for part in text.parts]
    for first, end in pairwise(sorted({0, *range(step, count, step), *ends})):
        logits = read(caches, ids[first:end])
        after = slice(first + 1, min(end + 1, count))
        targets = ids[after]
        nats[:, after], kl[:, after], _ = losses(logits[:, : len(targets)], targets)
        if end in ends:
            for cache in caches:
                cache.end_turn()
        on_read(end / count)
    return nats, kl


def explain_word(full: TextCache, cache: TextCache, text: Text, at: int) -> HurtWord:
    """Say which evicted words the full cache attends to at a word, and what restoring them does."""
    word, shape = text.words[at], full.decoder.shape
    turn = word.passage
    start = text.parts[turn].first
    gone = _gone(cache, turn).repeat(shape.group, axis=1)
    places = range(max(word.first - 1, 0), max(word.end - 1, 1))
    weights = np.mean([full.attention(place)[:, :, : gone.shape[2]] for place in places], axis=0)
    sums = np.pad(np.cumsum(weights * gone, axis=2, dtype=float), ((0, 0), (0, 0), (1, 0)))
    earlier = [earlier for earlier in text.words if earlier.end <= gone.shape[2]]
    first, end = np.array([word.span for word in earlier] or [(0, 0)]).T
    by_word = sums[:, :, end] - sums[:, :, first]
    share = by_word.mean(axis=(0, 1))
    causes = []
    for place in np.argsort(-share, kind="stable")[:CAUSES].tolist():
        if share[place] > 0:
            by_head = by_word[:, :, place]
            layer, head = map(int, np.unravel_index(by_head.argmax(), by_head.shape))
            causes.append(Cause(place, float(share[place]), float(by_head.max()), layer, head))
    also = [np.arange(*earlier[cause.word].span) for cause in causes]
    restored = cache.before_turn(turn, np.concatenate(also) if also else np.empty(0, np.intp))
    pair = [full.before_turn(turn), restored]
    ids, low = np.asarray(text.ids), max(word.first - 1, start)
    read(pair, ids[start:low], last=0)
    logits = read(pair, ids[low : word.end - 1])
    _, kl, _ = losses(logits, ids[low + 1 : word.end])
    return HurtWord(at, float(kl[1].sum()), tuple(causes))


def _gone(cache: TextCache, turn: int) -> Bools:
    """Return which earlier tokens each KV head has evicted when a turn begins (L, K, n)."""
    attended = cache.attended_by_turn[turn - 1] if turn else None
    count = cache.ends[turn - 1] if turn else 0
    shape = cache.decoder.shape
    gone = np.zeros((shape.layers, shape.kv_heads, count + 1), np.bool_)
    if attended is not None:
        gone[:] = True
        np.put_along_axis(gone, attended, False, axis=2)  # −1 is the column beyond
    return gone[:, :, :-1]


def damage_by_head(
    model: LanguageModel, policy: Policy, budget: int, decides: str, text: Text
) -> Floats:
    """Return the mean KL of the tokens if only one KV head evicts (L, K)."""
    shape = model.decoder.shape
    places = list(np.ndindex(shape.layers, shape.kv_heads))
    alone = [OneHead(model.decoder, policy, budget, layer, head, decides) for layer, head in places]
    _, kl = read_losses([model.full(), *alone], text)
    lost: Floats = kl[1:, 1:].mean(axis=1).reshape(shape.layers, shape.kv_heads)
    return lost


def attention_received(cache: TextCache) -> Floats:
    """Return the mean attention that each token gets from the tokens after it (L, H, N)."""
    shape, count = cache.decoder.shape, cache.count
    total = np.zeros((shape.layers, shape.heads, count))
    for layer, first in np.ndindex(shape.layers, -(-count // BLOCK)):
        first, end = first * BLOCK, min((first + 1) * BLOCK, count)
        queries = cache.vectors("queries")[layer, :, first:end]
        keys = cache.vectors("keys")[layer, :, :end]
        grouped = queries.reshape(shape.kv_heads, shape.group, end - first, shape.head_width)
        weights = attention(grouped, keys, later_tokens(end - first))
        weights[..., np.arange(end - first), np.arange(first, end)] = 0  # a token's own
        total[layer, :, :end] += weights.sum(axis=2, dtype=float).reshape(shape.heads, end)
    return np.asarray(total / np.maximum(np.arange(count)[::-1], 1), np.float32)
