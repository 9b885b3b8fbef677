"""Damage: how much worse a text is predicted from a policy's cache than from the full one.

The measure is the KL divergence from the predictions of the full cache, in nats: 0 where eviction
changed nothing. A word has the sum over its tokens.

A recording is shipped, SmolLM2's reading of an example; ``python -m benchmarks.smollm2`` wrote it.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain, pairwise, starmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fdkvc.core.attention import Bools, Floats
from fdkvc.core.limits import MAX_BLOCK_LOGITS, MAX_EXPLAINED_WORDS, MAX_RESTORED_WORDS
from fdkvc.core.transcripts import SPAN_KINDS, Transcript
from fdkvc.models import numpy as lm
from fdkvc.models.answer_causes import Passages, Word, is_readable, prompt_end, turns_of, words_in
from fdkvc.models.numpy.language_model import LanguageModel
from fdkvc.models.numpy.losses import losses
from fdkvc.models.numpy.model_text import WRITERS, Kind, speaker_of
from fdkvc.models.numpy.text_cache import TextCache, check_length, read
from fdkvc.models.numpy.tokens import Tokens
from fdkvc.runs.record import read_value

SHIPPED = Path(lm.__file__).parent / "recorded" / "smollm2.json"

NAMES = "model", "parameters", "dialog", "budget"
"""Fields of a `RecordedDamage` that its file has as they are."""

CAUSES = 5
"""Most evicted words that are named, and restored, for each word that is explained."""

LEAST = 0.05
"""Smallest KL, in nats, at which a word is explained."""

LINE_BREAK, SPACE = "⏎", "␣"
"""How tokens of white space alone are shown."""


class Part(NamedTuple):
    """A passage of a text: its speaker, its turn, and its tokens from `first` up to `end`."""

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
    prompt: int = field(default=0, compare=False)
    """Tokens up to the end of the system prompt that a chat template adds."""
    marks: frozenset[int] = field(default=frozenset(), compare=False)
    """The numbers of words that are parts of marks."""

    def is_readable(self, word: int) -> bool:
        """Whether a word is neither a function word nor a mark."""
        return word not in self.marks and is_readable(self.words[word].text)

    def speaker(self, word: Word) -> str:
        """Return who says a word."""
        prompted = word.end <= self.prompt
        return SPAN_KINDS["system"] if prompted else self.parts[word.passage].speaker


def dialog_text(tokens: Tokens, transcript: Transcript) -> Text:
    """Return a dialog as a model reads it."""
    ids = [*tokens.first]
    parts = []
    for encoded in tokens.encode_dialog(transcript):
        passage = encoded.passage
        first = len(ids)
        ids += encoded.ids
        parts.append(Part(speaker_of(passage), passage.turn, first, len(ids)))
    return _text(tokens, ids, parts)


def chat_text(tokens: Tokens, ids: Sequence[int], passages: Passages) -> Text:
    """Return the text of a chat."""
    spoken = zip(passages, turns_of(passages), strict=True)
    parts = [Part(WRITERS[writer], turn, first, end) for (writer, first, end), turn in spoken]
    return _text(tokens, ids, parts)


def _text(tokens: Tokens, ids: Sequence[int], parts: Sequence[Part]) -> Text:
    """Find the words of a text; a token that belongs to no word becomes a word by itself."""
    # 1. Words of passages, then the other tokens, so that every token is in a word.
    words: list[Word] = []
    for passage, part in enumerate(parts):
        for text, low, high in words_in(tokens, ids[part.first : part.end]):
            words.append(Word(text, passage, part.first + low, part.first + high))
    single = {*range(len(ids))}.difference(*(range(*word.span) for word in words))
    starts = [part.first for part in parts]
    for token in single:
        passage = max(int(np.searchsorted(starts, token, side="right")) - 1, 0)
        text = tokens.tokenizer.decode([ids[token]], skip_special_tokens=False)
        displayed = text.strip() or (LINE_BREAK if "\n" in text else SPACE)
        words.append(Word(displayed, passage, token, token + 1))
    words.sort(key=lambda word: word.first)
    # 2. Words outside the text of a passage are parts of marks.
    in_text = set[int]()
    for part in parts:
        for first, end in tokens.texts_of(ids[part.first : part.end], part.first):
            in_text |= {*range(first, end)}
    marks = frozenset(index for index, word in enumerate(words) if word.first not in in_text)
    prompt = prompt_end(tokens, ids, parts[0].first, parts[0].end)
    return Text(tuple(ids), tuple(parts), tuple(words), prompt, marks)


# ------------------------------------------------------------------------------- damage


class Cause(NamedTuple):
    """An evicted word to which the full cache attends where the policy's cache predicts worse."""

    word: int
    """Its number in the text."""
    share: float
    """The full cache's attention to its evicted entries, as a mean over layers and heads."""
    largest: float
    """The same of the head in which it is largest."""
    layer: int
    """The layer of that head."""
    head: int
    """The number of that head in its layer."""


class HurtWord(NamedTuple):
    """A word that is predicted worse, and why."""

    word: int
    """Its number in the text."""
    restored: float | None
    """Its KL if the turn is read again with the entries of the causes; None if that was not tried,
    as only the most hurt words are."""
    causes: tuple[Cause, ...]
    """The causes, by falling attention."""


@dataclass(frozen=True, eq=False)
class Damage:
    """What a policy costs a text."""

    text: Text
    """What was read."""
    full_nats: Floats
    """Shape (N,). −log p of each token with the full cache; 0 for the first token, which nothing
    predicts."""
    nats: Floats
    """Shape (N,). The same with the policy's cache."""
    kl: Floats
    """Shape (N,). The KL from the full cache's predictions of each token."""
    hurt: tuple[HurtWord, ...]
    """The words with the highest KL, highest first."""
    changed: Bools | None = None
    """Shape (N,). Where the best prediction is not the full cache's; recordings do not have it."""

    @cached_property
    def of_words(self) -> Floats:
        """KL of each word."""
        return words_kl(self.text.words, self.kl)

    @property
    def restored(self) -> dict[int, float]:
        """The KL of the most hurt words, by their number, with their causes restored."""
        return {hurt.word: hurt.restored for hurt in self.hurt if hurt.restored is not None}

    def by_token(self) -> pd.DataFrame:
        """Return a row for each token."""
        words = self.text.words
        parts = self.text.parts
        rows: list[tuple[str, str, int]] = []
        for word in words:
            part = parts[word.passage]
            rows += [(word.text, self.text.speaker(word), part.turn)] * (word.end - word.first)
        table = pd.DataFrame(rows, columns=["word", "speaker", "turn"])
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
    on_words: Callable[[Floats], object] = lambda kl: None,
) -> Damage:
    """Read a text under a policy's new cache and the full one, and explain the most hurt words.

    `on_read` gets the share that is done, and `on_words` the KL of all words so far. This takes
    the memory of the keys and values of three caches, and of the queries of one passage.
    """
    full = model.full().without_hidden()
    hurt = list[HurtWord]()
    scores = read_losses([full, cache], text, lambda share: on_read(share * 0.8))
    for passage, scores_so_far in enumerate(scores):
        nats, kl, changed = scores_so_far
        lost = words_kl(text.words, kl[1])
        on_words(lost)
        # The causes of the passage's words, while its queries are there; of those that are among
        # the most hurt so far: the most hurt in the end are among them.
        threshold = max(np.sort(lost)[-MAX_EXPLAINED_WORDS:][0], LEAST)
        for index in np.flatnonzero(lost >= threshold).tolist():
            if text.words[index].passage == passage and cache.attended is not None:
                hurt.append(HurtWord(index, None, causes_of(full, cache, text, index)))
    damage = Damage(text, nats[0], nats[1], kl[1], (), changed[1])
    hurt.sort(key=lambda word: (-damage.of_words[word.word], word.word))
    for rank, word in enumerate(hurt[:MAX_RESTORED_WORDS]):
        hurt[rank] = word._replace(restored=restored_kl(full, cache, text, word))
        on_read(0.8 + 0.2 * (rank + 1) / MAX_RESTORED_WORDS)
    return replace(damage, hurt=tuple(hurt[:MAX_EXPLAINED_WORDS]))


def words_kl(words: Sequence[Word], kl: Floats) -> Floats:
    """Return the KL of each word: the sum over its tokens (N,), by a difference of running sums."""
    sums = np.concatenate([[0], np.cumsum(kl, dtype=float)])
    spans = np.array([word.span for word in words])
    return np.asarray(sums[spans[:, 1]] - sums[spans[:, 0]])


def read_losses(
    caches: Sequence[TextCache],
    text: Text,
    on_read: Callable[[float], object] = lambda share: None,
) -> Iterator[tuple[Floats, Floats, Bools]]:
    """Read a text with new caches, the full one first; yield the nats and KL of tokens (C, N).

    And where their best prediction is not the full cache's. Once for each passage, the same
    arrays, before policies evict after it. Then the caches forget the passage's queries. Raises a
    ValueError if the text is longer than the model can hold.
    """
    count = len(text.ids)
    ids = np.asarray(text.ids)
    kinds: dict[str, Kind] = {SPAN_KINDS["system"]: "system", SPAN_KINDS["result"]: "result"}
    check_length(caches[0].decoder, count)
    nats, kl = np.zeros((2, len(caches), count), np.float32)
    changed = np.zeros((len(caches), count), bool)
    step = max(MAX_BLOCK_LOGITS // (len(caches) * caches[0].decoder.shape.vocabulary), 1)
    for cache in caches:
        cache.reserve(count)
    for passage, part in enumerate(text.parts):
        start = part.first if passage else 0  # with what the tokenizer writes before any text
        for first, end in pairwise([*range(start, part.end, step), part.end]):
            logits = read(caches, ids[first:end])
            next_place = slice(first + 1, min(end + 1, count))
            targets = ids[next_place]
            scores = losses(logits[:, : len(targets)], targets)
            nats[:, next_place], kl[:, next_place], best = scores
            changed[:, next_place] = best != best[0]
            on_read(end / count)
        yield nats, kl, changed
        for cache in caches:
            cache.turn_kind = kinds.get(part.speaker)
            cache.end_turn()
            cache.forget_queries()


def causes_of(full: TextCache, cache: TextCache, text: Text, index: int) -> tuple[Cause, ...]:
    """Return the evicted words that the full cache attends to at a word of the turn just read."""
    word = text.words[index]
    shape = full.decoder.shape
    count = cache.turn_start
    evicted = (cache.evicted_in[:, :, :count] >= 0).repeat(shape.group, axis=1)  # (L, H, n)
    places = range(max(word.first - 1, 0), max(word.end - 1, 1))
    weights = np.mean([full.attention(place)[:, :, :count] for place in places], axis=0)
    # The attention to a word's evicted entries: a difference of running sums (L, H, n + 1).
    sums = np.pad(np.cumsum(weights * evicted, axis=2, dtype=float), ((0, 0), (0, 0), (1, 0)))
    spans = [earlier.span for earlier in text.words if earlier.end <= count]
    bounds = np.array(spans or [(0, 0)])
    by_word = sums[:, :, bounds[:, 1]] - sums[:, :, bounds[:, 0]]  # (L, H, words)
    share = by_word.mean(axis=(0, 1))
    causes = []
    for place in np.argsort(-share, kind="stable")[:CAUSES].tolist():
        if share[place] > 0:
            by_head = by_word[:, :, place]
            layer, head = map(int, np.unravel_index(by_head.argmax(), by_head.shape))
            mean = round(float(share[place]), 5)
            largest = round(float(by_head.max()), 5)
            causes.append(Cause(place, mean, largest, layer, head))
    return tuple(causes)


def restored_kl(full: TextCache, cache: TextCache, text: Text, hurt: HurtWord) -> float:
    """Return the KL of a word when its turn is read again with the entries of its causes."""
    word = text.words[hurt.word]
    turn = word.passage
    start = text.parts[word.passage].first
    causes = chain.from_iterable(range(*text.words[cause.word].span) for cause in hurt.causes)
    ids = np.asarray(text.ids)
    low = max(word.first - 1, start)

    def logits_of(fork: TextCache) -> Floats:
        read([fork], ids[start:low], last=0)
        return read([fork], ids[low : word.end - 1])

    # One after the other, since each copies all keys and values up to the turn.
    expected = logits_of(full.before_turn(turn))
    restored = logits_of(cache.before_turn(turn, [*causes]))
    _, kl, _ = losses(np.concatenate([expected, restored]), ids[low + 1 : word.end])
    return float(kl[1].sum())


# ------------------------------------------------------------------------------- recorded


@dataclass(frozen=True, eq=False)
class RecordedDamage:
    """A dialog as a model read it under several policies."""

    model: str
    """The name of the model."""
    parameters: int
    """How many parameters it has."""
    dialog: str
    """The name of the dialog."""
    budget: int
    """Entries that a KV head may hold after a turn."""
    text: Text
    """What was read."""
    damages: Mapping[str, Damage]
    """The damage by the name of the policy; each KV head decided by itself."""
    received: Floats
    """Shape (L, N). The attention that each token gets from later ones, as a mean over these and
    over a layer's heads."""


def read_recorded(content: str) -> RecordedDamage:
    """Return a recording from its file's text."""
    stored: dict[str, Any] = json.loads(content)
    words = tuple(starmap(Word, stored["words"]))
    parts = read_value(tuple[Part, ...], stored["parts"], "parts")
    text = Text(tuple(stored["ids"]), parts, words)

    def numbers(values: Any) -> Floats:
        return np.array(values, np.float32)

    full = numbers(stored["full_nats"])
    damages = {}
    for name, row in stored["damages"].items():
        hurt = read_value(tuple[HurtWord, ...], row["hurt"], f"damages.{name}.hurt")
        damages[name] = Damage(text, full, numbers(row["nats"]), numbers(row["kl"]), hurt)
    description = {name: stored[name] for name in NAMES}
    return RecordedDamage(
        **description, text=text, damages=damages, received=numbers(stored["received"])
    )


@lru_cache
def shipped_damage() -> RecordedDamage:
    """Return the recording that is shipped."""
    return read_recorded(SHIPPED.read_text("utf-8"))
