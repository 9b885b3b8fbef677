"""A model reads on after a compaction: what it loses, compared with itself with all of the text.

1. One cache reads the text before the compaction, and every way's cache follows it.
2. At the compaction each way fits the text to the size that stayed. For what the session did, a new
   cache reads the summary and what stayed.
3. All caches read the messages that came next, and nothing more is evicted.
"""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from fdkvc.conversations.forgot import Forgot, ModelLoss, OnRead
from fdkvc.conversations.forgot_command import forgot_command
from fdkvc.conversations.formats.agents import transcript_of
from fdkvc.core.transcripts import Transcript
from fdkvc.core.unread import Unread
from fdkvc.core.words import count
from fdkvc.models.answers import FULL, AnswerReader, Answers, read_together
from fdkvc.models.loaded import NamedModel
from fdkvc.models.numpy.head_recordings import AT_ONCE
from fdkvc.models.numpy.language_model import LanguageModel
from fdkvc.models.numpy.text_cache import read
from fdkvc.models.numpy.tokens import EncodedPassage
from fdkvc.policies import read_policy
from fdkvc.runs.console import warn
from fdkvc.runs.jobs import one_blas_thread

AFTER_TOKENS = 1_000
"""Most tokens that are read after a compaction."""


def forgot_with_model(options: Namespace) -> None:
    """Run ``forgot`` in the tokens of a model, which reads on if its context is long enough."""
    named = NamedModel(options.model)
    on_result = None
    try:
        if named.model is not None:
            on_result = partial(read_on, named.model)
    except ValueError as error:
        _ = named.encoding  # an error of its own ends the command
        warn(f"No model reads on: {error}.")
    forgot_command(options, named.encoding, on_result)


def read_on(
    model: LanguageModel, result: Forgot, on_read: OnRead = lambda read_tokens, total: None
) -> Forgot:
    """Return what a compaction forgot, with what a model loses right after it under each way.

    If it cannot be read, a sentence is added that says why.
    """
    try:
        return _Boundary(model, result).read(on_read)
    except ValueError as error:
        return replace(
            result, notes=(*result.notes, f"{model.name} did not read on: {error}.")
        )


class _Boundary:
    """A compaction in the tokens of a model; a ValueError says why it cannot be read."""

    def __init__(self, model: LanguageModel, result: Forgot) -> None:
        session = result.session
        compaction = result.compaction
        self.model = model
        self.result = result
        context_size = model.decoder.shape.positions
        long = "the text before has {:,} tokens, and its context " + f"{context_size:,}"
        if result.before > context_size:
            raise ValueError(long.format(result.before))
        if not result.ways:
            raise ValueError("nothing can be compared here")
        # 1. The text before, and the messages that came next: those new in the next context.
        end = len(compaction.context)
        stayed = compaction.stayed
        next_messages = session.contexts[result.number + 1][len(stayed) :]
        self.transcript, passages = self._read([*compaction.context, *next_messages])
        self.before = [row for row in passages if row.passage.turn < end]
        tokens = _size(self.before)
        room = min(AFTER_TOKENS, context_size - tokens - len(model.tokens.first))
        if room <= 0:
            raise ValueError(long.format(tokens))
        self.after: list[EncodedPassage] = []
        size_after = 0
        for row in passages[len(self.before) :]:
            size_after += len(row.ids)
            if size_after > room:  # whole messages only
                break
            self.after.append(row)
        if not self.after:
            raise ValueError(f"no message of at most {room:,} tokens follows")
        # 2. What stayed, and the size of the other ways: as much in the model's tokens, or if
        #    nothing stayed, the same share of the text as recorded.
        _, rows = self._read(stayed) if stayed else (None, [])
        self.stayed = [*model.tokens.first, *chain.from_iterable(row.ids for row in rows)]
        share = result.size / max(result.before, 1)
        self.size = len(self.stayed) if rows else max(1, round(share * tokens))

    def _read(self, messages: Sequence[int]) -> tuple[Transcript, list[EncodedPassage]]:
        session = self.result.session
        transcript = transcript_of(session, messages, session.name, False, Unread())
        return transcript, self.model.tokens.encode_dialog(transcript)

    def read(self, on_read: OnRead) -> Forgot:
        """Read the text and what follows, and return what each way loses."""
        one_blas_thread()
        names = [way_result.policy for way_result in self.result.ways]
        room = self.model.decoder.shape.positions
        settings = Answers(
            (*map(read_policy, filter(None, names)), read_policy(FULL)), (room,)
        )
        of_cases: Any = settings.caches(self.model)
        caches: dict[str, Any] = {name: of_cases[name, room] for name, _ in of_cases}
        full, *policy_caches = caches.values()
        # 1. All read the text before. Their budget is the model's context, so nothing is evicted,
        #    and one is read for all.
        read_count = 1 + len(caches)
        size_after = _size(self.after)
        total = _size(self.before) + read_count * size_after
        progress = 0
        prefix = self.model.tokens.first
        for passage in self.before:
            ids = (*prefix, *passage.ids)
            prefix = ()  # it stands before the first passage only
            for cache in caches.values():
                cache.turn_kind = passage.passage.kind
            for first in range(0, len(ids), AT_ONCE):
                part = ids[first : first + AT_ONCE]
                read([full], part, last=0)
                on_read(progress := progress + len(part), total)
            for cache in policy_caches:
                cache.follow(full)
            # 2. At the compaction each way fits the text to the size that stayed.
            if passage is self.before[-1]:
                for cache in policy_caches:
                    cache.resize(self.size)
            for cache in caches.values():
                cache.end_turn()
            full.forget_queries()
        if not all(names):  # what the session did
            recorded = caches[""] = self.model.full()
            read([recorded], self.stayed, last=0)
            recorded.end_turn()
        # 3. All read on and evict nothing more, with keys and values alone: that is less memory.
        light = {}
        for name, cache in caches.items():
            engine = cache.engine
            light[name, room] = engine.before_turn(len(engine.ends))
        reader = AnswerReader(settings, self.model, self.transcript, light)
        for passage in self.after:
            read_together([reader.read_passage(passage, is_turn=False)])
            on_read(progress := progress + read_count * len(passage.ids), total)
        readings = {}
        for row, name in enumerate(caches):
            measured = reader.measures(row)
            share, values = measured.get("values_right_of_full", (0.0, 0))
            readings[name] = ModelLoss(round(share * values), values, measured["kl"][0])
        measured_ways = []
        for way_result in self.result.ways:
            reading = readings[way_result.policy]
            measured_ways.append(replace(way_result, reading=reading))
        tokens = count(size_after, "token")
        note = f"Right; less likely: {self.model.name} read the next {tokens} after each way"
        if values := max(row.values for row in readings.values()):
            right = (
                f"of {count(values, 'value')} of calls that it gets right with all of the text"
            )
            note += f"; {right}, how many stay right"
        note += ", and how much less likely words become that it expects with all of the text."
        return replace(
            self.result, ways=tuple(measured_ways), notes=(*self.result.notes, note)
        )


def _size(passages: Sequence[EncodedPassage]) -> int:
    """Return the number of tokens of some passages."""
    return sum(len(passage.ids) for passage in passages)
