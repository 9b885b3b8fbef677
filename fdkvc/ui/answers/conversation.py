"""Conversations with a language model under the full cache and under policies."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, zip_longest

import pandas as pd

from fdkvc.attention import Floats
from fdkvc.corpora.model_text import Passage, Writer, model_text
from fdkvc.corpora.transcripts import Transcript
from fdkvc.explain import answer_causes as causes
from fdkvc.lm.chat import Chat, is_looping
from fdkvc.lm.head_eviction import check_no_future
from fdkvc.lm.language_model import LanguageModel
from fdkvc.lm.text_cache import TextCache
from fdkvc.policies import Policy, read_policy
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.models import language_model

FULL = "all"
"""The name of the cache that evicts nothing; the others have their policy's name."""


def size_in_words(model: LanguageModel) -> str:
    """Return the number of parameters of a model in words."""
    shape = model.decoder.shape
    attention = shape.width * shape.head_width * 2 * (shape.heads + shape.kv_heads)
    layer = attention + 3 * shape.width * shape.inner + 2 * shape.width
    ends = shape.vocabulary * shape.width * (1 if shape.tied else 2) + shape.width
    return f"{(shape.layers * layer + ends) / 1e6:.1f} million"


@dataclass(frozen=True)
class Conversation:
    """The messages to a model of `fdkvc.ui.kit.models`, and the policies of its caches.

    It begins with the first `turn` turns of a dialog of a file (by digest; empty for a new chat),
    then has the user's messages, one per answer. `stopped` has the index of each stopped answer,
    and after how many steps it was stopped.
    """

    model: str
    file: str
    dialog: str
    turn: int
    policies: tuple[Policy, ...]
    budget: int
    decides: str
    messages: tuple[str, ...]
    stopped: tuple[tuple[int, int], ...]
    transcript: Transcript | None = field(compare=False, repr=False)

    @property
    def language_model(self) -> LanguageModel:
        """The model."""
        return language_model(self.model)

    @property
    def titles(self) -> Mapping[str, str]:
        """The label of each cache."""
        return {FULL: "Full cache", **{policy.name: policy.title for policy in self.policies}}

    @property
    def empty(self) -> bool:
        """Whether there is nothing to answer yet."""
        return self.transcript is None and not self.messages

    @property
    def steps(self) -> int | None:
        """Steps after which the last answer was stopped; None if it was not."""
        return dict(self.stopped).get(len(self.messages))

    @cached_property
    def passages(self) -> tuple[Passage, ...]:
        """All passages of the dialog that it begins with."""
        if self.transcript is None:
            return ()
        return model_text(self.transcript, as_json=self.language_model.tokens.calls_as_json)

    @property
    def expected_calls(self) -> tuple[str, ...]:
        """The dialog's own calls in the answered turn."""
        if self.messages:
            return ()
        tokens = self.language_model.tokens
        return tuple(
            tokens.text(tokens.encode_passage(passage).ids).strip()
            for passage in self.passages
            if passage.turn == self.turn and passage.call is not None
        )

    def caches(self) -> dict[str, TextCache]:
        """Return a new cache for each policy."""
        return {
            policy.name: self.language_model.evicting(policy, self.budget, self.decides)
            for policy in self.policies
        }


@cached
def context_of(conversation: Conversation) -> Chat:
    """Return the chat just before the answer; fork it before writing.

    Raises a ValueError if it is longer than the model can hold, or a policy needs the future.
    """
    if conversation.messages:
        before = replace(conversation, messages=conversation.messages[:-1])
        chat = context_of(before).fork()
        if not before.empty:
            for _ in islice(chat.answer(), before.steps):
                pass
        chat.add_message(conversation.messages[-1])
        return chat
    for policy in conversation.policies:
        check_no_future(policy)
    model = conversation.language_model
    chat = Chat(model, {FULL: TextCache(model.decoder), **conversation.caches()})
    for passage in conversation.passages:
        if passage.turn < conversation.turn:
            chat.add_message(passage.text, passage.writer)
    return chat


@dataclass(frozen=True, eq=False)
class Answered:
    """A conversation with its last answer; fork `chat`, which is after the answer, to go on."""

    conversation: Conversation
    chat: Chat

    @cached_property
    def context(self) -> Chat:
        """The chat before its answer."""
        return context_of(self.conversation)

    def began(self, name: str) -> int:
        """Return the index of the first passage of a cache's answer."""
        return len(self.context.passages[name])

    def past(self, name: str) -> list[tuple[Writer, str]]:
        """Return the passages since the dialog's end, before the last message."""
        conversation = self.conversation
        given = sum(passage.turn < conversation.turn for passage in conversation.passages)
        return self._texts(name)[given : self.began(name) - bool(conversation.messages)]

    def passages(self, name: str) -> list[tuple[Writer, str]]:
        """Return the calls and words of a cache's answer so far."""
        tokens, cache = self.chat.model.tokens, self.chat.caches[name]
        texts, passages = self._texts(name)[self.began(name) :], self.chat.passages[name]
        unfinished = cache.ids[passages[-1][2] if passages else 0 :]
        if unfinished:
            writer: Writer = "call" if unfinished[0] == tokens.marks["call"][0] else "system"
            texts.append((writer, tokens.text(unfinished).strip()))
        return texts

    def _texts(self, name: str) -> list[tuple[Writer, str]]:
        writers = enumerate(self.chat.passages[name])
        return [(writer, self.chat.text(name, passage=at)) for at, (writer, *_) in writers]

    def calls(self, name: str) -> list[str]:
        """Return the calls of a cache's answer."""
        return [text for writer, text in self.passages(name) if writer == "call"]

    @property
    def expected_calls(self) -> tuple[str, ...]:
        """The dialog's own calls, or else those of the full cache."""
        return self.conversation.expected_calls or tuple(self.calls(FULL))

    def graded_calls(self, name: str) -> list[causes.GradedCall]:
        """Return each call graded against the expected one; a missing call is empty."""
        pairs = zip_longest(self.calls(name), self.expected_calls, fillvalue="")
        return [causes.grade_call(written, expected) for written, expected in pairs]

    def looped(self, name: str) -> bool:
        """Whether an answer was stopped because it repeated itself."""
        ids, end = self.chat.caches[name].ids, self.chat.model.tokens.end
        return any(
            is_looping([token for token in ids[first:last] if token != end])
            for _, first, last in self.chat.passages[name][self.began(name) :]
        )

    @property
    def reference_failed(self) -> bool:
        """Whether the full cache fails, too: nothing can be held against it then."""
        return self.looped(FULL) or bool(self.conversation.expected_calls and not self.right(FULL))

    def right(self, name: str) -> bool:
        """Whether a cache made the expected calls."""
        return all(call.right for call in self.graded_calls(name))


@cached
def answer_words(answered: Answered, name: str) -> tuple[causes.Word, ...]:
    """Return the words of a cache's answer."""
    chat, began = answered.chat, answered.began(name)
    words = causes.words_of(chat.model.tokens, chat.caches[name].ids, chat.passages[name])
    return tuple(word for word in words if word.passage >= began)


@cached
def restored(answered: Answered, name: str) -> causes.Restoration:
    """Return the answers after restoring what a policy evicted."""
    chat = answered.context
    return causes.restore_spans(chat.model, chat.caches[name], chat.passages[name])


Text = tuple[tuple[int, ...], tuple[tuple[Writer, int, int], ...]]
"""The ids of a text, and its passages as (writer, first, end)."""


def text_of(answered: Answered) -> Text:
    """Return the whole dialog, or the full cache's text of a chat."""
    conversation, chat = answered.conversation, answered.chat
    if conversation.messages:
        return tuple(chat.caches[FULL].ids), tuple(chat.passages[FULL])
    tokens = chat.model.tokens
    ids, passages = [*tokens.first], []
    for passage in conversation.passages:
        first = len(ids)
        ids += tokens.encode_passage(passage).ids
        passages.append((passage.writer, first, len(ids)))
    return tuple(ids), tuple(passages)


@cached
def damage(conversation: Conversation, text: Text) -> pd.DataFrame:
    """Return every policy's damage on a text; see `fdkvc.explain.answer_causes.damage_table`."""
    return causes.damage_table(conversation.language_model, conversation.caches(), *text)


@cached
def head_damage(conversation: Conversation, name: str, text: Text) -> Floats:
    """Return the damage by head; see `fdkvc.explain.answer_causes.damage_by_head`."""
    limits = conversation.budget, conversation.decides
    return causes.damage_by_head(conversation.language_model, read_policy(name), *limits, *text)
