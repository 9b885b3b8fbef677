"""Conversations: what a model heard and answered under the full cache and under policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import islice

import numpy as np
import pandas as pd

from fdkvc.attention import Floats
from fdkvc.corpora.model_text import Passage, Writer, model_text
from fdkvc.corpora.transcripts import Transcript
from fdkvc.experiments.benchmark import one_blas_thread
from fdkvc.explain.answer_causes import (
    BroughtBack,
    GradedCall,
    Passages,
    Word,
    bring_back,
    damage_by_head,
    damage_table,
    grade_call,
    words_of,
)
from fdkvc.lm import BUNDLED
from fdkvc.lm.chat import Chat
from fdkvc.lm.head_eviction import check_no_future
from fdkvc.lm.language_model import LanguageModel, load_language_model
from fdkvc.lm.text_cache import TextCache
from fdkvc.policies import Policy
from fdkvc.ui.kit.lru import cached

FULL = "all"
"""The cache that evicts nothing, beside those that have the names of policies."""


@lru_cache(maxsize=1)
def bundled_model() -> LanguageModel:
    """Return the model that comes with the project."""
    # Its matrices are small: to share one among cores takes longer than to multiply it.
    one_blas_thread()
    return load_language_model(BUNDLED)


def size_in_words(model: LanguageModel) -> str:
    """Say how many parameters a model has."""
    shape = model.decoder.shape
    attention = shape.width * shape.head_width * 2 * (shape.heads + shape.kv_heads)
    layer = attention + 3 * shape.width * shape.inner + 2 * shape.width
    ends = shape.vocabulary * shape.width * (1 if shape.tied else 2) + shape.width
    return f"{(shape.layers * layer + ends) / 1e6:.1f} million"


@dataclass(frozen=True)
class Conversation:
    """What was said to a model, and what it remembers of it.

    Attributes
    ----------
    file, dialog : str
        The file's digest and the dialog's name; empty where it begins with nothing.
    turn : int
        The turn of the dialog that it answers, after all that was said before.
    policies : tuple of Policy
    budget : int
    decides : {"head", "layer"}
    said : tuple of str
        What a person said to it after that, each after its answer to what was before.
    stopped : tuple of (int, int)
        Which of its answers were stopped, counted from 0, and after how many steps.
    transcript : Transcript, optional
        What the others name.
    """

    file: str
    dialog: str
    turn: int
    policies: tuple[Policy, ...]
    budget: int
    decides: str
    said: tuple[str, ...]
    stopped: tuple[tuple[int, int], ...]
    transcript: Transcript | None = field(compare=False, repr=False)

    @property
    def titles(self) -> Mapping[str, str]:
        """How people see each cache."""
        return {FULL: "Full cache", **{policy.name: policy.title for policy in self.policies}}

    @property
    def empty(self) -> bool:
        """Whether there is nothing yet to be answered."""
        return self.transcript is None and not self.said

    @property
    def steps(self) -> int | None:
        """After how many steps its last answer was stopped."""
        return dict(self.stopped).get(len(self.said))

    @property
    def before(self) -> Conversation:
        """The conversation before what was said last."""
        return replace(self, said=self.said[:-1])

    @cached_property
    def passages(self) -> tuple[Passage, ...]:
        """The dialog that it begins with, all of it."""
        return () if self.transcript is None else model_text(self.transcript)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The calls that the dialog makes in the turn that is answered."""
        if self.said:
            return ()
        tokens = bundled_model().tokens
        return tuple(
            tokens.text(tokens.encode_passage(each).ids).strip()
            for each in self.passages
            if each.turn == self.turn and each.call is not None
        )

    def caches(self) -> dict[str, TextCache]:
        """Return a new cache for each policy."""
        return {
            policy.name: bundled_model().evicting(policy, self.budget, self.decides)
            for policy in self.policies
        }


@cached
def heard(conversation: Conversation) -> Chat:
    """Return a chat that has heard all and is about to answer; nobody may go on with it.

    Raises
    ------
    ValueError
        If it is more than the model can hold, or a policy looks at the future.
    """
    if conversation.said:
        before = conversation.before
        chat = heard(before).fork()
        if not before.empty:
            for _ in islice(chat.answer(), before.steps):
                pass
        chat.add_message(conversation.said[-1])
        return chat
    for policy in conversation.policies:
        check_no_future(policy)
    chat = Chat(
        bundled_model(), {FULL: TextCache(bundled_model().decoder), **conversation.caches()}
    )
    for passage in conversation.passages:
        if passage.turn < conversation.turn:
            chat.add_message(passage.text, passage.writer)
    return chat


def steps_of(chat: Chat, conversation: Conversation) -> Iterator[int]:
    """Let a chat answer; yield how many steps there are so far."""
    steps = islice(chat.answer(), conversation.steps)
    for count, _ in enumerate(steps, 1):
        yield count


@dataclass(frozen=True, eq=False)
class Answered:
    """A conversation with its last answer.

    Attributes
    ----------
    conversation : Conversation
    chat : Chat
        Which has answered; nobody may go on with it.
    """

    conversation: Conversation
    chat: Chat

    @cached_property
    def heard(self) -> Chat:
        """The chat before its answer."""
        return heard(self.conversation)

    def began(self, name: str) -> int:
        """Return the first passage of a cache's answer; calls are passages of their own."""
        return len(self.heard.passages[name])

    def past(self, name: str) -> list[tuple[Writer, str]]:
        """Return what was said and answered since a person began to talk, before this answer."""
        conversation = self.conversation
        given = sum(each.turn < conversation.turn for each in conversation.passages)
        last = self.began(name) - (1 if conversation.said else 0)
        writers = [writer for writer, *_ in self.chat.passages[name]]
        return [(writers[at], self.chat.text(name, passage=at)) for at in range(given, last)]

    def passages(self, name: str) -> list[tuple[Writer, str]]:
        """Return what a cache has answered so far: calls, and words."""
        tokens, cache = self.chat.model.tokens, self.chat.caches[name]
        known = self.chat.passages[name]
        found: list[tuple[Writer, str]] = [
            (writer, tokens.text(cache.ids[first:end]).strip())
            for writer, first, end in known[self.began(name) :]
        ]
        written = cache.ids[known[-1][2] if known else 0 :]
        if written:
            begun: Writer = "call" if written[0] == tokens.marks["call"][0] else "system"
            found.append((begun, tokens.text(written).strip()))
        return found

    def calls(self, name: str) -> list[str]:
        """Return the calls that a cache has answered with."""
        return [text for writer, text in self.passages(name) if writer == "call"]

    @property
    def wanted(self) -> tuple[str, ...]:
        """The calls that are right: the dialog's own, or else those of the full cache."""
        return self.conversation.wanted or tuple(self.calls(FULL))

    def graded_calls(self, name: str) -> list[GradedCall]:
        """Return each call beside the one that was wanted; of what is missing, nothing written."""
        calls, wanted = self.calls(name), list(self.wanted)
        longest = max(len(calls), len(wanted))
        calls += [""] * (longest - len(calls))
        wanted += [""] * (longest - len(wanted))
        return [grade_call(*each) for each in zip(calls, wanted, strict=True)]

    def right(self, name: str) -> bool:
        """Whether a cache made the calls that were wanted."""
        return all(call.right for call in self.graded_calls(name))

    @cached_property
    def _words(self) -> dict[str, tuple[Word, ...]]:
        return {}

    def words(self, name: str) -> tuple[Word, ...]:
        """Return the words of a cache's whole text."""
        if name not in self._words:
            cache, passages = self.chat.caches[name], self.chat.passages[name]
            self._words[name] = words_of(self.chat.model.tokens, cache.ids, passages)
        return self._words[name]

    def own_words(self, name: str) -> tuple[Word, ...]:
        """Return the words of a cache's answer."""
        began = self.began(name)
        return tuple(word for word in self.words(name) if word.passage >= began)


@cached
def brought_back(answered: Answered, name: str) -> BroughtBack:
    """Return what comes of bringing back what a policy evicted; made once."""
    chat = answered.heard
    return bring_back(chat.model, chat.caches[name], chat.passages[name])


@dataclass(frozen=True)
class Text:
    """A text of which the damage is asked.

    Attributes
    ----------
    ids : tuple of int
    passages : tuple of (Writer, first, end)
    """

    ids: tuple[int, ...]
    passages: tuple[tuple[Writer, int, int], ...]


def text_of(answered: Answered) -> Text:
    """Return the dialog as it was said; of a conversation, what the full cache heard and said."""
    conversation, chat = answered.conversation, answered.chat
    if conversation.said:
        passages: Passages = chat.passages[FULL]
        return Text(tuple(chat.caches[FULL].ids), tuple(passages))
    tokens = chat.model.tokens
    ids, found = [*tokens.first], []
    for passage in conversation.passages:
        own = tokens.encode_passage(passage).ids
        found.append((passage.writer, len(ids), len(ids) + len(own)))
        ids += own
    return Text(tuple(ids), tuple(found))


@cached
def damage(conversation: Conversation, text: Text) -> pd.DataFrame:
    """Return what every policy makes of a text; see `fdkvc.explain.answer_causes.damage_table`."""
    return damage_table(bundled_model(), conversation.caches(), text.ids, text.passages)


@cached
def head_damage(conversation: Conversation, name: str, text: Text) -> Floats:
    """Return what one head's forgetting does; see `fdkvc.explain.answer_causes.damage_by_head`."""
    (policy,) = (each for each in conversation.policies if each.name == name)
    found: Floats = damage_by_head(
        bundled_model(), policy, conversation.budget, conversation.decides, text.ids, text.passages
    )
    return np.asarray(found)
