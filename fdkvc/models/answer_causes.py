"""Why a model wrote an answer: what it attended to, what was evicted, what restoring changes.

Three questions, from the weakest evidence to the strongest:

1. Which words differ from the answer under the full cache, or which arguments of a call
   (`changed_words`, `grade_call`)?
2. Which earlier words did the model attend to, and which of them were evicted (`why_table`)?
3. If evicted words are restored, does the model write what it wrote under the full cache
   (`restore_spans`)? Only this shows a cause.

A cache counts each passage as a turn; here, turns are those of the conversation, in which a call
belongs to the turn of the words that follow it (`turns_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import chain, compress, islice
from re import findall, finditer, sub
from typing import TYPE_CHECKING

import numpy as np

from fdkvc.core.attention import Bools, Floats
from fdkvc.core.limits import MAX_RESTORED_SPANS, MAX_REWRITTEN_TOKENS, MAX_WRITTEN_TOKENS
from fdkvc.engine.trace import Rule
from fdkvc.models.numpy.chat import Chat, generate_passages
from fdkvc.models.numpy.language_model import LanguageModel
from fdkvc.models.numpy.model_text import Writer, read_call
from fdkvc.models.numpy.text_cache import TextCache, read
from fdkvc.models.numpy.tokens import Tokens

if TYPE_CHECKING:  # a help takes the settings alone
    import pandas as pd

RESTORED_AT_ONCE = 3
"""Caches with restored spans that write at once; then progress is reported."""

Passages = Sequence[tuple[Writer, int, int]]
"""The writer and tokens of each passage; see `fdkvc.models.numpy.chat.Chat`."""


@dataclass(frozen=True)
class Word:
    """A word that a model has read or written."""

    text: str
    """As it is written."""
    passage: int
    """The number of its passage."""
    first: int
    """Position of its first token in the text."""
    end: int
    """Position after its last token."""

    @property
    def tokens(self) -> slice:
        """Positions of its tokens."""
        return slice(self.first, self.end)


def words_of(tokens: Tokens, ids: Sequence[int], passages: Passages) -> tuple[Word, ...]:
    """Return the words of each passage; special tokens are not words."""
    words = []
    for number, (_, first, end) in enumerate(passages):
        for start, stop in tokens.texts_of(ids[first:end], first):
            for text, low, high in words_in(tokens, ids[start:stop]):
                words.append(Word(text, number, start + low, start + high))
    return tuple(words)


def prompt_end(tokens: Tokens, ids: Sequence[int], first: int, end: int) -> int:
    """Return where the model's own system prompt ends in a text's first passage; 0 without one."""
    prompt, *passages = tokens.texts_of(ids[first:end], first)
    return prompt[1] if passages else 0


def words_in(tokens: Tokens, ids: Sequence[int]) -> Iterator[tuple[str, int, int]]:
    """Yield the words of a text, also names in its marks, with their tokens (first, end)."""
    text = tokens.text(ids)
    # 1. Where each token ends in the text, by decoding all up to it. A character may span several
    #    tokens, and is complete with the last; until then, "\ufffd" stands for its bytes.
    incomplete = []
    token_ends = []
    for end in range(1, len(ids) + 1):
        prefix = tokens.text(ids[:end])
        whole_characters = prefix.rstrip("\ufffd")
        incomplete.append(len(whole_characters) < len(prefix))
        token_ends.append(len(whole_characters))
    token_ends[-1:] = [len(text)]
    # Sorted, for the search: a decoder may write a little less once more tokens follow.
    places = np.minimum(np.maximum.accumulate(token_ends), len(text))
    # 2. The tokens in which each word's first and last character end.
    for match in finditer(r"\S+", text):
        low, high = np.searchsorted(places, [match.start() + 1, match.end()]).tolist()
        while low and incomplete[low - 1]:  # the first tokens of the word's first character
            low -= 1
        yield match[0], low, high + 1


PUNCTUATION = ".,;:!?()"
"""What a sentence leaves out at the ends of a word that it names."""

# With the ends of contractions, such as the ll of "I'll", which become pieces of their own.
FUNCTION_WORDS = frozenset(
    findall(
        r"\w+",
        "a about after again all also am an and any are as at be because been before being but by "
        "can could did do does doing done for from had has have having he her here hers him his "
        "how i if in into is it its just ll m me my no nor not now of off on once one only or "
        "other our ours out over own re s she should so some such t than that the their them then "
        "there these they this those through to too under up us ve very was we were what when "
        "where which while who whom whose why will with would yes you your yours d",
    )
)
"""English words that say nothing alone."""


def bare(word: str) -> str:
    """Return a word in lower case, without punctuation at its ends and without a possessive 's.

    Examples
    --------
    >>> bare("Rosalind's"), bare("San,"), bare("—")
    ('rosalind', 'san', '')
    """
    pieces = findall(r"\w+", word.casefold())
    return " ".join(pieces[:-1] if len(pieces) > 1 and pieces[-1] == "s" else pieces)


def is_readable(text: str) -> bool:
    """Whether a text has more than function words, punctuation and special tokens.

    Examples
    --------
    >>> [is_readable(text) for text in ("the", "It's", "<|im_start|>", "—", "Rosalind's", "7:30")]
    [False, False, False, False, True, True]
    """
    pieces = findall(r"\w+", sub(r"<[^<>\s]*>", "", text.casefold()))
    return bool({*pieces} - FUNCTION_WORDS)


def evicted_words(words: Sequence[Word], cache: TextCache) -> frozenset[str]:
    """Return the readable words, as `bare`, that most heads evicted wherever a text has them."""
    evicted = (cache.evicted_in >= 0).mean(axis=(0, 1)) > 0.5  # (N,)
    gone = set[str]()
    there = set[str]()
    for word in words:
        if is_readable(word.text):
            (gone if evicted[word.tokens].any() else there).add(bare(word.text))
    return frozenset(gone - there)


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
    """Its name."""
    written: str | None
    """The written value, None if the argument was not written."""
    expected: str | None
    """The expected value, None if the argument was not expected."""

    @property
    def as_expected(self) -> bool:
        """Whether the written value is the expected one."""
        return self.written == self.expected


@dataclass(frozen=True)
class GradedCall:
    """A written call compared with the expected one."""

    method: str
    """The written method."""
    expected_method: str
    """The expected method."""
    arguments: tuple[GradedArgument, ...]
    """All arguments, the expected ones first."""
    by_full: bool = False
    """Whether the full cache's call is the expected one: that is no truth, so nothing is right."""

    @property
    def as_expected(self) -> bool:
        """Whether the method and all arguments are the expected ones."""
        right_arguments = all(argument.as_expected for argument in self.arguments)
        return right_arguments and self.method == self.expected_method


def grade_call(call: str, expected: str, *, by_full: bool = False) -> GradedCall:
    """Grade a call against the expected one, that of the full cache if `by_full`.

    Examples
    --------
    >>> expected = "GetWeather ; city = Trieste ; date = today"
    >>> call = grade_call("GetWeather ; city = London", expected)
    >>> [(argument.slot, argument.written, argument.as_expected) for argument in call.arguments]
    [('city', 'London', False), ('date', None, False)]
    """
    method, values = read_call(call)
    expected_method, right = read_call(expected)
    slots = dict.fromkeys([*right, *values])
    arguments = (GradedArgument(slot, values.get(slot), right.get(slot)) for slot in slots)
    return GradedCall(method, expected_method, tuple(arguments), by_full)


def changed_words(words: Sequence[str], reference: Sequence[str]) -> list[bool]:
    """Return which words of a text differ from another text.

    Examples
    --------
    >>> changed_words("a table in London".split(), "a table in Trieste".split())
    [False, False, False, True]
    """
    # Not `autojunk`, which ignores words that are frequent in a long text.
    blocks = SequenceMatcher(None, words, reference, autojunk=False).get_matching_blocks()
    changed = [True] * len(words)
    for first, _, size in blocks:
        changed[first : first + size] = [False] * size
    return changed


# ------------------------------------------------------------------------------- why


PLACE = ("passage", "turn", "writer", "word", "first", "end")
SHARES = ("attended", "all_there")
EVICTION = ("heads", "evicted", "first_evicted_in", "last_evicted_in", "rule")
"""Columns of `why_table`: where an earlier word is, attention to it, and its eviction."""


def why_table(chat: Chat, name: str, word: Word) -> pd.DataFrame:
    """Return the attention behind a word that was written under a cache, by earlier word.

    Attention is the mean over the written word's tokens, layers and heads. `attended` is the
    earlier word's share of it; `all_there` is its share if nothing had been evicted. Of `heads` KV
    heads, `evicted` had evicted part of the earlier word before the passage began, between the
    turns `first_evicted_in` and `last_evicted_in`.
    """
    import pandas as pd

    cache = chat.caches[name]
    passages = chat.passages[name]
    attended = _mean_attention(cache, word, whole_text=False)
    all_there = _mean_attention(cache, word, whole_text=True)
    turns = turns_of(passages)
    evicted_in = cache.evicted_in  # (L, K, N)
    rules = cache.evicted_by  # (L, K, N)
    rows = []
    for earlier in words_of(chat.model.tokens, cache.ids, passages):
        if earlier.first >= word.first:
            break
        passage = earlier.passage
        tokens = earlier.tokens
        evictions = evicted_in[:, :, tokens]
        # A turn of the cache is a passage. What was evicted later was still there.
        lost = (evictions >= 0) & (evictions < word.passage)
        evicted_turns = sorted({turns[passage] for passage in evictions[lost].tolist()}) or [
            None
        ]
        lost_by = {Rule(rule).name for rule in rules[:, :, tokens][lost].tolist()}
        place = passage, turns[passage], passages[passage][0], earlier.text
        shares = float(attended[tokens].sum()), float(all_there[tokens].sum())
        eviction = (
            evictions[:, :, 0].size,
            int(lost.any(axis=-1).sum()),
            evicted_turns[0],
            evicted_turns[-1],
            " and ".join(sorted(lost_by)),
        )
        rows.append((*place, earlier.first, earlier.end, *shares, *eviction))
    table = pd.DataFrame(rows, columns=[*PLACE, *SHARES, *EVICTION])
    # Whole numbers with gaps, as no turn evicted some words.
    return table.astype({"first_evicted_in": "Int64", "last_evicted_in": "Int64"})


def _mean_attention(cache: TextCache, word: Word, *, whole_text: bool) -> Floats:
    """Return the attention to each token (N,), averaged over a word's tokens, layers and heads."""
    # The attention that determines a token is that of the token before it.
    positions = range(word.first - 1, word.end - 1)
    rows = []
    for position in positions:
        attention = cache.attention(position, whole_text=whole_text)
        rows.append(attention.mean(axis=(0, 1)))
    return np.asarray(np.mean(rows, axis=0))


# ------------------------------------------------------------------------------- restore


@dataclass(frozen=True)
class Span(Word):
    """Adjacent words as one, and their eviction."""

    weight: float
    """Attention to them under a full cache where it reads the lost word, as a mean over layers and
    heads."""
    turn: int
    """The turn that they are from."""
    evicted: tuple[int, int]
    """The number of KV heads that evicted a part of them, and of all KV heads."""
    evicted_in: tuple[int, int]
    """The first and the last turn in which a head evicted a part of them."""
    in_call: bool
    """Whether they stand in a call."""


@dataclass(frozen=True)
class Attempt:
    """What a model writes after evicted spans are restored."""

    spans: tuple[Span, ...]
    """The spans that were restored, with their entries as first computed."""
    written: str
    """The passage that the model then writes."""


@dataclass(frozen=True)
class Restoration:
    """A passage rewritten after restoring evicted spans, one at a time and all together."""

    writer: Writer
    """The kind of passage: words, or a call if the full cache writes one."""
    full: str
    """The passage under the full cache."""
    lost: str
    """The passage under the policy's cache."""
    word: str
    """The lost word: the first of the full cache's passage that the other lacks. One that it has
    nowhere is taken before others, then one that had been said and was evicted, then a readable
    one; "" if it lacks none."""
    attempts: tuple[Attempt, ...]
    """Each span alone, by falling attention of the full cache; then all of them."""

    @property
    def is_mended(self) -> bool:
        """Whether some attempt gives the full cache's passage, word for word."""
        return self.full in [attempt.written for attempt in self.attempts]

    def undone(self, text: str, expected: str) -> bool:
        """Whether a passage is the expected call, or has the lost word."""
        if self.writer == "call":
            return grade_call(text, expected).as_expected
        return not self.word or bool(self.written_word(text))

    def written_word(self, text: str) -> str:
        """Return the lost word as a text has it, also without a possessive 's; "" if not."""
        # Backwards, so that of equal words the first one counts.
        places = {bare(word): word for word in reversed(text.split())}
        return places.get(bare(self.word), "")


def restore_spans(
    model: LanguageModel,
    cache: TextCache,
    passages: Passages,
    full_answer: tuple[Writer, Sequence[int]],
    max_spans: int = MAX_RESTORED_SPANS,
    on_progress: Callable[[float], object] = lambda share: None,
) -> Restoration:
    """Restore evicted spans and let the model write the next passage.

    `cache` has read the passages and ended its turn, and is not changed. `full_answer` is the
    writer and the tokens, with their mark, of what the full cache has written. At most `max_spans`
    spans are restored: those with the most attention where a full cache reads the word that the
    policy's answer lacks (`Restoration.word`). Function words come after all readable ones. Of a
    large model only the first words of an answer are compared.
    """
    # 1. Read the full cache's answer after the same text, and write the policy's.
    tokens = model.tokens
    writer, full_ids = full_answer
    length = MAX_REWRITTEN_TOKENS if model.decoder.large else MAX_WRITTEN_TOKENS
    start = cache.count + len(tokens.marks[writer])
    length = min(length, model.decoder.shape.positions - start)
    full = TextCache(model.decoder)
    read([full], [*cache.ids, *full_ids][: start + length], last=1)
    answer = tokens.passage_text(full.ids[cache.count :])
    on_progress(0.1)
    write = partial(generate_passages, tokens, writer=writer, most=length, stop_loops=True)
    lost = cache.fork()
    (policy_answer,) = write(caches=[lost])
    on_progress(0.3)
    # 2. Find the word that the policy's answer lacks; without one, weigh the whole answer.
    words = words_of(tokens, cache.ids, passages)
    gone = evicted_words(words, cache)
    full_words = []
    for text, low, high in words_in(tokens, full.ids[start:]):
        full_words.append(Word(text, -1, start + low, start + high))
    policy_words = [text for text, _, _ in words_in(tokens, lost.ids[start:])]
    changed = changed_words([word.text for word in full_words], policy_words)
    missing = [*compress(full_words, changed)]
    whole_answer = Word("", -1, start, max(full.count, start + 1))

    written = {*map(bare, policy_words)}

    def rank(word: Word) -> tuple[bool, ...]:
        text = bare(word.text)
        return text in written, text not in gone, not is_readable(word.text)

    chosen = min(missing, key=rank, default=whole_answer)
    end = chosen.end
    if writer == "call":  # also the rest of an argument's value, up to the next word in common
        common = [
            word.first for word in full_words if word.first >= end and word not in missing
        ]
        end = common[0] if common else end
    # 3. Weigh earlier tokens by the full cache's attention where it writes that.
    places = range(chosen.first - 1, min(end - 1, full.count))
    weights = sum(full.attention(place).mean(axis=(0, 1))[: cache.count] for place in places)
    # 4. Restore each span alone, then all of them, and let each cache write.
    evicted_spans = _spans(words, np.asarray(weights), cache, passages)
    spans = [*islice(evicted_spans, max_spans)]
    sets: list[tuple[Span, ...]] = [(span,) for span in spans]
    if len(spans) > 1:
        sets.append(tuple(spans))
    texts = []
    for first in range(0, len(sets), RESTORED_AT_ONCE):
        restored = []
        for span_set in sets[first : first + RESTORED_AT_ONCE]:
            tokens_back = chain.from_iterable(range(span.first, span.end) for span in span_set)
            restored.append(cache.before_turn(len(cache.ends), [*tokens_back]))
        texts += write(caches=restored)
        on_progress(0.3 + 0.7 * len(texts) / len(sets))
    return Restoration(
        writer, answer, policy_answer, chosen.text, (*map(Attempt, sets, texts),)
    )


def _spans(
    words: Sequence[Word], weights: Floats, cache: TextCache, passages: Passages
) -> Iterator[Span]:
    """Yield spans of evicted words, each around the heaviest word that is left.

    `weights` are those of tokens. Spans that begin from a function word or a special token come
    last.
    """
    turns = turns_of(passages)
    evicted_in = cache.evicted_in
    evicted: Bools = np.any(evicted_in >= 0, axis=(0, 1))  # from some head (N,)
    # By word; a word is free if it was evicted and is in no span.
    weight = np.zeros(len(words))
    free, unreadable = np.zeros((2, len(words)), np.bool_)
    passage = np.zeros(len(words), np.intp)
    for number, word in enumerate(words):
        weight[number] = weights[word.tokens].sum()
        free[number] = evicted[word.tokens].any()
        unreadable[number] = not is_readable(word.text)
        passage[number] = word.passage
    for index in np.lexsort((-weight, unreadable)).tolist():
        if not free[index]:
            continue
        # The span goes on both ways, in the passage, while a word has half the weight or more.
        joins = free & (passage == passage[index]) & (weight >= weight[index] / 2)
        # Also before the first and after the last.
        breaks = np.flatnonzero(~np.pad(joins, 1)) - 1
        next_break = np.searchsorted(breaks, index)
        low = breaks[next_break - 1] + 1
        end = breaks[next_break]
        free[low:end] = False
        first = words[low].first
        last = words[end - 1].end
        evictions = evicted_in[:, :, first:last]
        is_evicted = evictions >= 0
        evicted_turns = [turns[turn] for turn in evictions[is_evicted].tolist()]
        yield Span(
            text=" ".join(word.text for word in words[low:end]),
            passage=words[index].passage,
            first=first,
            end=last,
            weight=sum(weight[low:end].tolist()),
            turn=turns[words[index].passage],
            evicted=(int(is_evicted.any(axis=-1).sum()), evictions[:, :, 0].size),
            evicted_in=(min(evicted_turns), max(evicted_turns)),
            in_call=passages[words[index].passage][0] == "call",
        )
