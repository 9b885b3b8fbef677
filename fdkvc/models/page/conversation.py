"""Conversations with a language model under the full cache and under policies."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, zip_longest
from threading import Lock

import streamlit as st

from fdkvc.core.limits import (
    MAX_ANSWERS_MEGABYTES,
    MAX_BLOCK_LOGITS,
    MAX_CHAT_MEGABYTES,
    MAX_RESTORED_SPANS,
    MAX_WRITTEN_TOKENS,
)
from fdkvc.core.transcripts import Transcript
from fdkvc.models import answer_causes as causes
from fdkvc.models.answer_causes import words_in
from fdkvc.models.cache_answers import CacheAnswer, Predicted
from fdkvc.models.numpy.chat import Chat, ChatText, is_looping, without_loop
from fdkvc.models.numpy.language_model import LanguageModel, shared_language_model
from fdkvc.models.numpy.model_text import WRITERS, Passage, Writer, speaker_of
from fdkvc.models.numpy.text_cache import TextCache, read
from fdkvc.models.numpy.tokens import EncodedPassage, role_of
from fdkvc.models.page.loading import MODELS
from fdkvc.models.report.answer import LOOPED
from fdkvc.policies import Policy
from fdkvc.ui.lru import ByteLRU, Shelf, cached
from fdkvc.ui.run_panel import timed_bar

FULL = "all"
"""The name of the cache that evicts nothing; the others have their policy's name."""

RESERVED = 256
"""Room in a cache is reserved in multiples of this number of tokens."""


@dataclass(frozen=True)
class Conversation:
    """A dialog or a new chat, the user's messages, and the policies of the model's caches."""

    model: str
    """The name of a model of `fdkvc.models.page.loading`."""
    file: str
    """The key of the file whose dialog it begins with; empty for a new chat."""
    dialog: str
    """The name of the dialog."""
    turn: int
    """How many turns of the dialog come first."""
    policies: tuple[Policy, ...]
    """The policies, each with a cache of its own."""
    budget: int
    """Entries that a KV head may hold."""
    decides: str
    """See `fdkvc.models.numpy.head_eviction.DECIDES`."""
    messages: tuple[str, ...]
    """The user's, one per answer."""
    stops: tuple[tuple[int, int], ...]
    """(index, tokens) of each answer whose length the user set by *Stop* or *Go on*."""
    transcript: Transcript | None = field(compare=False, repr=False)
    """The dialog."""

    @property
    def language_model(self) -> LanguageModel:
        """The model."""
        return shared_language_model(MODELS[self.model])

    @property
    def titles(self) -> Mapping[str, str]:
        """The label of each cache."""
        return {FULL: "Full cache", **{policy.name: policy.title for policy in self.policies}}

    @property
    def parts(self) -> list[Conversation]:
        """The conversation up to each of its answers: to the dialog, then to each message."""
        first = 0 if self.transcript is not None else 1
        parts = []
        for answer in range(first, len(self.messages) + 1):
            stops = self._stops_up_to(answer)
            parts.append(replace(self, messages=self.messages[:answer], stops=stops))
        return parts

    @property
    def key(self) -> Conversation:
        """Identifies the conversation, whatever length its last answer has."""
        return replace(self, stops=self._stops_up_to(len(self.messages) - 1))

    def _stops_up_to(self, last_answer: int) -> tuple[tuple[int, int], ...]:
        return tuple((answer, steps) for answer, steps in self.stops if answer <= last_answer)

    @property
    def steps(self) -> int | None:
        """Most tokens of the last answer; None if the user did not set its length."""
        return dict(self.stops).get(len(self.messages))

    @cached_property
    def passages(self) -> tuple[Passage, ...]:
        """All passages of the dialog that it begins with."""
        if self.transcript is None:
            return ()
        return self.language_model.tokens.passages(self.transcript)

    @property
    def history(self) -> list[Passage]:
        """The passages before the answered turn."""
        return [passage for passage in self.passages if passage.turn < self.turn]

    @property
    def expected_calls(self) -> tuple[str, ...]:
        """The dialog's own calls in the answered turn."""
        if self.messages:
            return ()
        tokens = self.language_model.tokens
        calls = (
            row for row in self.passages if row.turn == self.turn and row.call is not None
        )
        return tuple(tokens.passage_text(tokens.encode_passage(call).ids) for call in calls)

    def caches(self) -> dict[str, TextCache]:
        """Return a new cache for each policy."""
        caches = {}
        for policy in self.policies:
            cache = self.language_model.evicting(policy, self.budget, self.decides)
            # Only policies that compare tokens need hidden states, which take much memory.
            compares = "similarity" in policy.looks_at
            caches[policy.name] = cache if compares else cache.without_hidden()
        return caches


def begin(
    conversation: Conversation,
    earlier_part: Answered | None,
    on_progress: Callable[[float], object],
) -> Answered:
    """Return a conversation whose last answer may be unfinished, after the part `earlier_part`.

    Raises a ValueError if it is longer than the model or the memory can hold.
    """
    answer = answer_of(conversation) or _read_again(conversation, earlier_part, on_progress)
    if answer:
        if answer.complete and answer.conversation == conversation:
            return answer
        # Go on with what is written, unless the answer is now to be shorter: then write it anew.
        goes_on = conversation.steps is None or answer.chat.steps <= conversation.steps
        context = answer.context
        chat = answer.chat if goes_on else answer.context
    else:
        context = chat = (
            earlier_part.chat.fork()
            if earlier_part
            else _read_dialog(conversation, on_progress)
        )
        if conversation.messages:
            _add(context, Passage("user", conversation.messages[-1], 0))
    answered = Answered(conversation, context, chat.fork())
    # Stored before it is written, so that the next run of the page waits for it.
    ANSWERS.put(conversation.key, answered)
    return answered


def answer_of(conversation: Conversation) -> Answered | None:
    """Return what is written of the last answer, once no run of the page is writing it.

    A click starts the next run while the one before still writes its last token.
    """
    stored = ANSWERS.get(conversation.key)
    if stored is None:
        return None
    with stored.writing:  # wait; then look again, as the run before has stored more
        return ANSWERS.get(conversation.key) or stored


def steps_of(conversation: Conversation) -> int:
    """Return how many tokens the model has written of the last answer; see `answer_of`."""
    answer_of(conversation)
    stored_text = TEXTS.get(conversation.key)
    return stored_text.chat.steps if stored_text else 0


def _read_again(
    conversation: Conversation,
    earlier_part: Answered | None,
    on_progress: Callable[[float], object],
) -> Answered | None:
    """Return what is written of the last answer, read again, if its caches had to make room."""
    stored_text = TEXTS.get(conversation.key)
    if stored_text is None:
        return None
    context = earlier_part.chat.fork() if earlier_part else _new_chat(conversation)
    lengths = [*map(len, stored_text.chat.ids.values())]
    _reserve(context, max(lengths))
    total = sum(lengths)
    for read_tokens in context.read_on(stored_text.context):
        on_progress(read_tokens / total)
    chat = context.fork()
    for read_tokens in chat.read_on(stored_text.chat):
        on_progress(read_tokens / total)
    answered = Answered(stored_text.conversation, context, chat, stored_text.complete)
    ANSWERS.put(conversation.key, answered)
    return answered


def _new_chat(conversation: Conversation) -> Chat:
    model = conversation.language_model
    return Chat(model, {FULL: model.full().without_hidden(), **conversation.caches()})


def _read_dialog(conversation: Conversation, on_progress: Callable[[float], object]) -> Chat:
    chat = _new_chat(conversation)
    for number, passage in enumerate(history := conversation.history):
        on_progress(number / len(history))
        _add(chat, passage)
    return chat


def _add(chat: Chat, passage: Passage) -> None:
    """Let all caches read a passage, if memory can hold it."""
    tokens = chat.longest + len(chat.model.tokens.encode(passage.text)[0])
    max_tokens = most_tokens(chat) - MAX_WRITTEN_TOKENS
    if tokens > max_tokens:
        raise ValueError(
            f"the text has {tokens:,} tokens, but with {len(chat.caches)} caches at most "
            f"{max_tokens:,} fit into memory: choose fewer policies, or a shorter chat"
        )
    _reserve(chat, tokens)
    chat.add_message(passage.text, passage.writer, passage.kind)


def _reserve(chat: Chat, tokens: int) -> None:
    """Reserve room for so many tokens and an answer, so that forks need not copy to go on."""
    for cache in chat.caches.values():
        cache.reserve(-(-(tokens + MAX_WRITTEN_TOKENS) // RESERVED) * RESERVED)


def most_tokens(chat: Chat) -> int:
    """Return how many tokens of a chat fit into memory under all its caches."""
    # Queries are stored of the last turn only, at most an answer; the other vectors of all tokens.
    sizes = [{**cache.token_bytes} for cache in chat.caches.values()]
    latest = MAX_WRITTEN_TOKENS * sum(size.pop("queries") for size in sizes)
    stored = sum(sum(size.values()) for size in sizes)
    return (MAX_CHAT_MEGABYTES * 1_000_000 - latest) // stored


def write(answered: Answered) -> Generator[Answered]:
    """Let the model write the last answer, token by token; yields the answer so far."""
    chat = answered.chat
    steps = answered.conversation.steps
    writing = answered.writing
    writing.acquire()
    try:
        max_steps = max(steps or 0, MAX_WRITTEN_TOKENS)
        room = most_tokens(chat) - chat.longest
        steps_left = room if steps is None else min(max(steps - chat.steps, 0), room)
        for _ in islice(chat.answer(max_steps), steps_left):
            yield answered
        answered = replace(answered, complete=True)
        yield answered
    finally:  # also if a click interrupts it
        conversation = answered.conversation
        texts = (answered.context.written, chat.written)
        ANSWERS.put(conversation.key, answered)
        TEXTS.put(conversation.key, Written(conversation, *texts, answered.complete))
        writing.release()


@dataclass(frozen=True, eq=False)
class Answered:
    """A conversation with its last answer: the chat before and after it; fork them to go on."""

    conversation: Conversation
    """The conversation that is answered."""
    context: Chat
    """The chat before the answer."""
    chat: Chat
    """The chat with the answer."""
    complete: bool = False
    """Whether nothing of the answer remains to be written."""
    writing: Lock = field(default_factory=Lock, repr=False)
    """Held while it is written."""

    def began(self, name: str) -> int:
        """Return the index of the first passage of a cache's answer."""
        return len(self.context.passages[name])

    def past(self, name: str) -> list[tuple[Writer, str]]:
        """Return the passages since the dialog's end, before the last message."""
        first = len(self.conversation.history)
        messages = bool(self.conversation.messages)
        return self._texts(name, first, self.began(name) - messages)

    def passages(self, name: str) -> list[tuple[Writer, str]]:
        """Return the calls and words of a cache's answer so far."""
        return self._texts(name, self.began(name))

    def _texts(
        self, name: str, first: int, end: int | None = None
    ) -> list[tuple[Writer, str]]:
        texts = []
        for index, (writer, *_) in [*enumerate(self.chat.passages[name])][first:end]:
            texts.append((writer, self.chat.text(name, passage=index)))
        return texts

    @property
    def prompt_end(self) -> int:
        """Tokens up to the end of the system prompt that the model's chat template adds."""
        if not self.chat.passages[FULL]:
            return 0
        _, first, end = self.chat.passages[FULL][0]
        return causes.prompt_end(
            self.chat.model.tokens, self.chat.caches[FULL].ids, first, end
        )

    @property
    def prompt(self) -> str:
        """The system prompt that the model's chat template adds."""
        tokens = self.chat.model.tokens
        ids = self.chat.caches[FULL].ids[: self.prompt_end]
        if not ids:
            return ""
        start, end = next(tokens.texts_of(ids))
        return tokens.text(ids[start:end]).strip()

    @property
    def full_answer(self) -> tuple[Writer, tuple[int, ...]]:
        """The writer and the tokens of the first passage of the full cache's answer."""
        written = self.chat.passages[FULL][self.began(FULL) :]
        if not written:
            return "system", self.chat.model.tokens.marks["system"]
        writer, first, end = written[0]
        return writer, tuple(self.chat.caches[FULL].ids[first:end])

    def speakers(self, name: str) -> list[str]:
        """Return who speaks in each passage of a cache's text."""
        history = self.conversation.history
        later = self.chat.passages[name][len(history) :]
        return [*map(speaker_of, history), *(WRITERS[writer] for writer, *_ in later)]

    def calls(self, name: str) -> list[str]:
        """Return the calls of a cache's answer."""
        return [text for writer, text in self.passages(name) if writer == "call"]

    @property
    def expected_calls(self) -> tuple[str, ...]:
        """The dialog's own calls, or those of the full cache where it has no answer."""
        if self.has_true_text:
            return self.conversation.expected_calls
        return tuple(self.calls(FULL))

    def graded_calls(self, name: str) -> list[causes.GradedCall]:
        """Return each call graded against the expected one; a missing call is empty."""
        pairs = zip_longest(self.calls(name), self.expected_calls, fillvalue="")
        by_full = not self.has_true_text
        return [causes.grade_call(*pair, by_full=by_full) for pair in pairs]

    def looped(self, name: str) -> bool:
        """Whether an answer was stopped because it repeated itself."""
        ids = self.chat.caches[name].ids
        closing = self.chat.model.tokens.closing
        # What closes a passage stands after the repetitions, and would hide them.
        for _, first, end in self.chat.passages[name][self.began(name) :]:
            if is_looping([token for token in ids[first:end] if token not in closing]):
                return True
        return False

    def as_expected(self, name: str) -> bool:
        """Whether a cache made the expected calls."""
        return all(call.as_expected for call in self.graded_calls(name))

    @property
    def has_true_text(self) -> bool:
        """Whether the dialog itself has the answer."""
        turns = {passage.turn for passage in self.conversation.passages}
        return not self.conversation.messages and self.conversation.turn in turns

    def true_passages(self) -> Iterator[EncodedPassage]:
        """Yield the passages of the dialog's own answer."""
        roles = self.context.roles
        for passage in self.conversation.passages:
            if passage.turn == self.conversation.turn:
                yield self.chat.model.tokens.encode_passage(passage, earlier_roles=roles)
                roles += (role_of(passage),)

    def written_passages(self) -> Iterator[EncodedPassage]:
        """Yield the passages of the full cache's answer."""
        marks = self.chat.model.tokens.marks
        for writer, first, end in self.chat.passages[FULL][self.began(FULL) :]:
            ids = tuple(without_loop(self.chat.caches[FULL].ids[first:end]))
            yield EncodedPassage(Passage(writer, "", 0), ids, (), len(marks[writer]), len(ids))

    def answers(self, *, writing: bool = False) -> list[CacheAnswer]:
        """Return the answer of each cache; while they are written, nothing is compared."""
        names = [*self.conversation.titles]
        expected = self.expected_calls
        graded = not writing and bool(expected) and any(map(self.calls, names))
        predicted = {} if writing else _predictions(self)
        unfinished = self.chat.unfinished()
        count = self.context.caches[FULL].count
        answers = []
        for name, title in self.conversation.titles.items():
            note = LOOPED if not writing and self.looped(name) else ""
            if not (writing or note) and name in unfinished:
                note = "Not finished."
            entries = count if name == FULL else min(self.conversation.budget, count)
            calls = tuple(self.graded_calls(name)) if graded else ()
            words = predicted.get(name, ())
            passages = tuple(self.passages(name))
            answers.append(CacheAnswer(title, entries, count, passages, calls, words, note))
        return answers


@cached
def _predictions(answered: Answered) -> dict[str, tuple[Predicted, ...]]:
    """Return how each cache predicts the words of the same text.

    The text is the dialog's own answer, or else that of the full cache; of a long one, the first
    tokens. The result is empty if the full cache makes the expected calls, which are compared
    instead.
    """
    context = answered.context
    true = answered.has_true_text
    if answered.expected_calls and answered.as_expected(FULL):
        return {}
    passages = [*(answered.true_passages() if true else answered.written_passages())]
    return {name: _predicted(context, name, passages) for name in context.caches}


def _predicted(
    context: Chat, name: str, passages: Sequence[EncodedPassage]
) -> tuple[Predicted, ...]:
    """Return how one cache predicts the words of passages.

    Not all caches at once, since each fork that reads copies the vectors of the text before.
    """
    tokens = context.model.tokens
    shape = context.model.decoder.shape
    cache = context.caches[name].fork()
    gone = causes.evicted_words(
        causes.words_of(tokens, cache.ids, context.passages[name]), cache
    )
    words = []
    room = min(MAX_WRITTEN_TOKENS, shape.positions - context.longest)
    step = max(MAX_BLOCK_LOGITS // shape.vocabulary, 1)
    for encoded in passages:
        ids = encoded.ids[:room]
        start = encoded.start
        if len(ids) <= start:
            break
        room -= len(ids)
        # 1. The likeliest token after each.
        likeliest: list[int] = []
        for first in range(0, len(ids), step):
            logits = read([cache], ids[first : first + step])
            likeliest += logits[0].argmax(axis=-1).tolist()
        stop = min(encoded.stop, len(ids))
        # 2. The tokens of each argument's value in a call, or else of each readable word.
        places = []
        for low, high in encoded.passage.spans:
            value = encoded.tokens_of(low, high)
            if value and value[-1] < stop:
                text = encoded.passage.text[low:high]
                places.append((text, value[0], value[-1] + 1))
        if not encoded.passage.spans:
            for text, low, end in words_in(tokens, ids[start:stop]):
                if causes.is_readable(text):
                    places.append((text, low + start, end + start))
        # 3. Whether the likeliest tokens have the same words.
        for text, low, end in places:
            # What is predicted for a token stands at the one before it.
            instead = tokens.text(likeliest[low - 1 : end - 1]).strip()
            right = causes.bare(instead) == causes.bare(text)
            has_left = not gone.isdisjoint(map(causes.bare, text.split()))
            words.append(Predicted(text, right, instead, has_left))
        cache.end_turn()
    return tuple(words)


@dataclass(frozen=True)
class Written:
    """The texts of an `Answered`, and whether it is complete."""

    conversation: Conversation
    """The conversation that is answered."""
    context: ChatText
    chat: ChatText
    complete: bool


ANSWERS: Shelf[Answered] = Shelf()
"""The answer of each conversation, by its `key`, with its caches."""

TEXTS: ByteLRU[Written] = ByteLRU(MAX_ANSWERS_MEGABYTES * 1_000_000)
"""The texts by the same key: when caches had to make room for others, they read them again."""


@cached
def answer_words(answered: Answered, name: str) -> tuple[causes.Word, ...]:
    """Return the words of a cache's answer."""
    chat = answered.chat
    began = answered.began(name)
    words = causes.words_of(chat.model.tokens, chat.caches[name].ids, chat.passages[name])
    return tuple(word for word in words if word.passage >= began)


@cached
def restored(answered: Answered, name: str) -> causes.Restoration:
    """Return the answers after restoring what a policy evicted; show progress meanwhile."""
    bar = st.empty()
    words = f"Answering with words restored to {answered.conversation.titles[name]}"
    answers = restore(answered, name, timed_bar(bar, words))
    bar.empty()
    return answers


def restore(
    answered: Answered, name: str, on_progress: Callable[[float], object] = lambda share: None
) -> causes.Restoration:
    """Return the answers after restoring what a policy evicted; a large model tries fewer spans."""
    chat = answered.context
    max_spans = MAX_RESTORED_SPANS // 2 if chat.model.decoder.large else MAX_RESTORED_SPANS
    evicting = chat.model, chat.caches[name], chat.passages[name]
    return causes.restore_spans(*evicting, answered.full_answer, max_spans, on_progress)
