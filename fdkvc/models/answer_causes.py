"""Why a model wrote an answer: what it attended to, what was evicted, what restoring changes.

Turns are turns of the conversation: a call belongs to the turn of the words that follow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice
from re import finditer
from typing import TYPE_CHECKING

import numpy as np

from fdkvc.core.attention import Bools, Floats
from fdkvc.core.limits import MAX_RESTORED_SPANS
from fdkvc.engine.trace import Rule
from fdkvc.models.numpy.chat import Chat, first_writer, generate_passages
from fdkvc.models.numpy.language_model import LanguageModel
from fdkvc.models.numpy.model_text import Writer, read_call
from fdkvc.models.numpy.text_cache import TextCache, read
from fdkvc.models.numpy.tokens import Tokens

if TYPE_CHECKING:  # a help takes the settings alone
    import pandas as pd

Passages = Sequence[tuple[Writer, int, int]]
"""The writer and tokens of each passage; see `fdkvc.models.numpy.chat.Chat`."""


@dataclass(frozen=True)
class Word:
    """A word that a model has read or written."""

    text: str
    passage: int
    first: int
    end: int
    """Positions of its tokens in the text, `end` exclusive."""

    @property
    def span(self) -> tuple[int, int]:
        """Its first and last token, exclusive."""
        return self.first, self.end

    @property
    def tokens(self) -> slice:
        """Positions of its tokens."""
        return slice(self.first, self.end)


def words_of(tokens: Tokens, ids: Sequence[int], passages: Passages) -> tuple[Word, ...]:
    """Return the words of each passage; special tokens are not words."""
    return tuple(
        Word(text, number, start + low, start + high)
        for number, (_, first, end) in enumerate(passages)
        for start, stop in tokens.texts_of(ids[first:end], first)
        for text, low, high in words_in(tokens, ids[start:stop])
    )


def words_in(tokens: Tokens, ids: Sequence[int]) -> Iterator[tuple[str, int, int]]:
    """Yield the words of a text, and the names in its marks, with their tokens (last exclusive)."""
    text = tokens.text(ids)
    prefixes = [tokens.text(ids[: at + 1]) for at in range(len(ids))]
    # A character that spans several tokens is complete with the last of them.
    begun = [part.endswith("\ufffd") for part in prefixes]
    ends = [len(part.rstrip("\ufffd")) for part in prefixes[:-1]]
    places = np.minimum(np.maximum.accumulate([*ends, len(text)]), len(text))
    for match in finditer(r"\S+", text):
        low, high = np.searchsorted(places, [match.start() + 1, match.end()]).tolist()
        while low and begun[low - 1]:
            low -= 1
        yield match[0], low, high + 1


def turns_of(passages: Passages) -> list[int]:
    """Return the turn of each passage.

    Examples
    --------
    >>> turns_of([("user", 0, 3), ("call", 3, 6), ("system", 6, 9), ("user", 9, 12)])
    [0, 1, 1, 2]
    """
    spoken = [writer != "call" for writer, *_ in passages]
    turns: list[int] = np.cumsum([0, *spoken])[:-1].tolist()
    return turns


def turns_in_words(first: int, last: int) -> str:
    """Write a range of turns."""
    return f"turn {first}" if first == last else f"turns {first} to {last}"


# ------------------------------------------------------------------------------- grading


@dataclass(frozen=True)
class GradedArgument:
    """An argument of a call: the written and the expected value."""

    slot: str
    written: str | None
    expected: str | None
    """None if not written, or not expected."""

    @property
    def right(self) -> bool:
        """Whether the written value is the expected one."""
        return self.written == self.expected


@dataclass(frozen=True)
class GradedCall:
    """A written call compared with the expected one."""

    method: str
    expected_method: str
    arguments: tuple[GradedArgument, ...]
    """The expected ones first."""

    @property
    def right(self) -> bool:
        """Whether the method and all arguments are right."""
        return self.method == self.expected_method and all(
            argument.right for argument in self.arguments
        )


def grade_call(written: str, expected: str) -> GradedCall:
    """Grade a call against the expected one.

    Examples
    --------
    >>> expected = "GetWeather ; city = Trieste ; date = today"
    >>> call = grade_call("GetWeather ; city = London", expected)
    >>> [(argument.slot, argument.written, argument.right) for argument in call.arguments]
    [('city', 'London', False), ('date', None, False)]
    """
    (method, values), (expected_method, right) = read_call(written), read_call(expected)
    slots = dict.fromkeys([*right, *values])
    arguments = (GradedArgument(slot, values.get(slot), right.get(slot)) for slot in slots)
    return GradedCall(method, expected_method, tuple(arguments))


def changed_words(written: Sequence[str], other: Sequence[str]) -> list[bool]:
    """Return which words of a text differ from another text.

    Examples
    --------
    >>> changed_words("a table in London".split(), "a table in Trieste".split())
    [False, False, False, True]
    """
    blocks = SequenceMatcher(None, written, other, False).get_matching_blocks()
    same = {at for first, _, size in blocks for at in range(first, first + size)}
    return [at not in same for at in range(len(written))]


# ------------------------------------------------------------------------------- why


@dataclass(frozen=True)
class HeadSelection:
    """The layer and query head whose attention is shown; None averages over all."""

    layer: int | None = None
    head: int | None = None

    def slices(self, group: int = 1) -> tuple[slice, slice]:
        """Return the selected layers, and KV heads that `group` query heads share."""
        head = None if self.head is None else self.head // group
        layers, heads = (
            slice(None) if at is None else slice(at, at + 1) for at in (self.layer, head)
        )
        return layers, heads


def why_table(chat: Chat, name: str, word: Word, selection: HeadSelection) -> pd.DataFrame:
    """Return the attention behind a word that a cache's model wrote, a row for each earlier word.

    Each token of the word was predicted at the token before it; attention is their mean. `attended`
    is the word's share of attention; `all_there` is its share if nothing had been evicted. Of
    `heads` KV heads, `evicted` had lost part of the word before the passage began, in the turns
    that `first_evicted_in` and `last_evicted_in` name.
    """
    import pandas as pd

    cache, passages = chat.caches[name], chat.passages[name]
    positions = range(word.first - 1, word.end - 1)
    attended, all_there = (
        np.mean(
            [
                cache.attention(at, whole_text=whole)[selection.slices()].mean(axis=(0, 1))
                for at in positions
            ],
            axis=0,
        )
        for whole in (False, True)
    )
    heads, turns = selection.slices(cache.decoder.shape.group), turns_of(passages)
    gone, rules = cache.evicted_in[heads], cache.evicted_by[heads]
    rows = []
    for earlier in words_of(chat.model.tokens, cache.ids, passages):
        if earlier.first >= word.first:
            break
        passage, tokens = earlier.passage, earlier.tokens
        at = gone[:, :, tokens]
        lost = (at >= 0) & (at < word.passage)
        when = sorted({turns[turn] for turn in at[lost].tolist()}) or [None]
        by = {Rule(rule).name for rule in rules[:, :, tokens][lost].tolist()}
        rows.append(
            (
                *(passage, turns[passage], passages[passage][0]),
                *(earlier.text, earlier.first, earlier.end),
                *(float(attended[tokens].sum()), float(all_there[tokens].sum())),
                *(at[:, :, 0].size, int(lost.any(axis=-1).sum()), when[0], when[-1]),
                " and ".join(sorted(by)),
            )
        )
    table = pd.DataFrame(
        rows,
        columns=[
            *("passage", "turn", "writer", "word", "first", "end", "attended", "all_there"),
            *("heads", "evicted", "first_evicted_in", "last_evicted_in", "rule"),
        ],
    )
    return table.astype({"first_evicted_in": "Int64", "last_evicted_in": "Int64"})


# ------------------------------------------------------------------------------- restore


@dataclass(frozen=True)
class Span(Word):
    """Adjacent words, as one."""

    weight: float
    """Attention that the full cache paid them, summed over the tokens that it wrote and averaged
    over layers and heads."""


@dataclass(frozen=True)
class Attempt:
    """What a model writes after evicted spans are restored."""

    spans: tuple[Span, ...]
    as_it_was: str
    as_it_would_be: str
    """With the entries computed when the spans were read, and with entries recomputed from the
    tokens that are still cached before them."""


@dataclass(frozen=True)
class Restoration:
    """A passage rewritten after restoring evicted spans, one at a time and all together."""

    writer: Writer
    """What the full cache writes there."""
    full: str
    lost: str
    """The passage with the full cache and with the policy's."""
    attempts: tuple[Attempt, ...]
    """Each span alone, by falling attention of the full cache; then all of them."""


def restore_spans(
    model: LanguageModel, cache: TextCache, passages: Passages, most: int = MAX_RESTORED_SPANS
) -> Restoration:
    """Restore evicted spans and let the model write the next passage.

    `cache` has read the passages, and is not changed. Restored are at most so many spans, those
    with the most attention from the full cache.
    """
    tokens = model.tokens
    full = TextCache(model.decoder)
    writer = first_writer(tokens, read([full], cache.ids, last=1)[0, 0])
    (answer,) = generate_passages(tokens, [full], writer, stop_loops=True)
    weights = sum(
        full.attention(at).mean(axis=(0, 1))[: cache.count]
        for at in range(cache.count + len(tokens.marks[writer]) - 1, full.count)
    )
    gone: Bools = np.any(cache.evicted_in >= 0, axis=(0, 1))
    lost_spans = _spans(words_of(tokens, cache.ids, passages), np.asarray(weights), gone)
    spans = list(islice(lost_spans, most))
    sets = [*((span,) for span in spans), *([tuple(spans)] if len(spans) > 1 else [])]
    restored = [_with(cache, some, again) for again in (False, True) for some in sets]
    lost, *texts = generate_passages(tokens, [cache.fork(), *restored], writer, stop_loops=True)
    attempts = map(Attempt, sets, texts[: len(sets)], texts[len(sets) :])
    return Restoration(writer, answer, lost, tuple(attempts))


def _with(cache: TextCache, spans: Sequence[Span], read_again: bool) -> TextCache:
    for span in sorted(spans, key=lambda span: span.first):
        cache = cache.restored(span.first, span.end, read_again=read_again)
    return cache


def _spans(words: Sequence[Word], weights: Floats, lost: Bools) -> Iterator[Span]:
    """Yield lost words, heaviest first, with lost neighbours of half their weight or more."""
    weight = np.array([float(weights[word.tokens].sum()) for word in words])
    free = np.array([lost[word.tokens].any() for word in words], np.bool_)
    passage = np.array([word.passage for word in words])
    for at in np.argsort(-weight, kind="stable").tolist():
        if free[at]:
            joins = free & (passage == passage[at]) & (weight >= weight[at] / 2)
            others = np.flatnonzero(~np.pad(joins, 1)) - 1  # and the places beyond both ends
            after = np.searchsorted(others, at)
            low, end = others[after - 1] + 1, others[after]
            free[low:end] = False
            text = " ".join(word.text for word in words[low:end])
            first, last = words[low].first, words[end - 1].end
            yield Span(text, words[at].passage, first, last, sum(weight[low:end].tolist()))
