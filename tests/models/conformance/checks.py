"""The checks, each named after the fault that it finds.

A check raises a `Fault`, an AssertionError that describes what the cache does wrong. All proceed in
the same steps:

1. A `Story` lets a new cache read turns of random tokens, and write some.
2. From the tokens held at each call, `Story.seen` derives which tokens each token attended to.
3. The full model reads the text at once under this mask (`Story.readings`).
4. The outputs of both must be the same, or what is held must be as promised.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdkvc.core.attention import Bools, Floats, Ints
from tests.models.conformance.subject import Reading, Subject, Turn

Check = Callable[[Subject], None]


class Fault(AssertionError):  # noqa: N818 - it is the cache that errs
    """What a cache does wrong."""


ROUNDS = 40
"""Turns over which rounding of keys must not add up."""


def checks(subject: Subject) -> tuple[Check, ...]:
    """Return the checks that apply to a cache, by what it promises."""
    # Each check, and whether the subject promises what it checks.
    applies: dict[Check, bool] = {
        attends_to_what_was_evicted: True,
        holds_more_than_the_budget: True,
        compresses_only_the_first_text: True,
        keeps_its_first_compression: True,
        counts_other_positions: True,
        decides_by_the_next_turn: True,
        outgrows_the_budget_while_writing: subject.every is not None,
        drifts_as_positions_change: subject.positions == "slots",
        changes_with_its_fork: subject.forks,
        keeps_half_of_a_failed_turn: subject.failing is not None,
        evicts_sinks: subject.sinks > 0,
        scores_by_what_was_evicted: subject.scores is not None,
    }
    return tuple(check for check, promised in applies.items() if promised)


class Story:
    """A cache that reads texts of random tokens, and what each token attended to."""

    def __init__(self, subject: Subject, samples: int = 1) -> None:
        self.subject, self.cache = subject, subject.begin(samples)
        self._random = np.random.default_rng(0)
        self.tokens: Ints = np.empty((samples, 0), np.intp)
        self.ends = [0]  # tokens before each call, and after the last
        self.held: list[Ints] = []  # tokens held after each call (C, L, K, S)
        self.before: list[Ints] = []  # tokens held while those of each call were read
        # The logits after each token (C, N, V).
        self.outputs: Floats = np.empty((samples, 0, subject.model.vocabulary), np.float32)

    def feed(self, *lengths: int, shift: int = 0) -> None:
        """Let the cache read turns of these lengths; ids are shifted within the vocabulary.

        The same story with another shift has the same structure, and other tokens.
        """
        for n in lengths:
            self._take(self.cache.feed, n, shift)
            total, b = self.ends[-1], self.subject.budget
            if total > b and ((self.held[-1] >= 0).sum(axis=-1) == total).all():
                raise Fault(f"nothing was evicted: every head holds all {total} tokens of {b}")

    def write(self, n: int, shift: int = 0) -> None:
        """Let the cache read `n` tokens one by one, as if the model wrote them."""
        for _ in range(n):
            self._take(self.cache.write, 1, shift)

    def _take(self, call: Callable[[Ints], Turn], n: int, shift: int) -> None:
        vocabulary = self.subject.model.vocabulary
        drawn = self._random.integers(vocabulary, size=(len(self.tokens), n))
        tokens = (drawn + shift) % vocabulary
        try:
            turn = call(tokens)
        except ValueError as error:
            if not self.ends[-1]:  # it may refuse several texts
                raise
            raise Fault(f"after {self.ends[-1]} tokens it cannot read on: {error}") from error
        self.tokens = np.concatenate([self.tokens, tokens], axis=1)
        self.ends.append(self.tokens.shape[1])
        self.outputs = np.concatenate([self.outputs, turn.outputs], axis=1)
        held, before = np.asarray(turn.held), turn.before
        if before is None:
            before = self.held[-1] if self.held else held[..., :0]
        self.before.append(np.asarray(before))
        self.held.append(held)

    def most_held(self) -> int:
        """Return the most tokens that a head of any text holds now."""
        return int((self.held[-1] >= 0).sum(axis=-1).max())

    def seen(self) -> tuple[Bools, Ints]:
        """Return the attention mask, and the distances of tokens (C, L, K, N, N).

        The mask says which tokens (columns) each token (row) attends to, by what is held; distances
        say how far before it they are, as the cache promises.
        """
        shape, total = self.held[0].shape[:3], self.tokens.shape[1]
        sees = np.zeros((*shape, total, total), np.bool_)
        places = np.broadcast_to(np.arange(total), (*shape, total)).copy()
        distances = np.empty(sees.shape, np.intp)
        for call, (first, end) in enumerate(zip(self.ends, self.ends[1:], strict=False)):
            for head in np.ndindex(*shape):
                held, positions = self.before[call][head], places[head]
                held = np.sort(held[held >= 0])
                # 1. The call's tokens attend to what was held, and to each other causally.
                sees[head][first:end, held] = True
                sees[head][first:end, first:end] = np.tri(end - first, dtype=np.bool_)
                # 2. Where they and the entries stand. `positions` is a view: the next call starts
                #    from the positions to which this one moves entries.
                if self.subject.positions == "slots":
                    positions[held] = np.arange(len(held))
                if self.subject.positions != "seen":
                    next_position = positions[held].max(initial=-1) + 1
                    positions[first:end] = next_position + np.arange(end - first)
                distances[head][first:end] = positions[first:end, None] - positions
        return sees, distances

    def readings(self, sees: Bools, distances: Ints) -> list[Reading]:
        """Return the full model's pass over each text under a mask."""
        texts = zip(self.tokens, sees, distances, strict=True)
        return [self.subject.model.read(*text) for text in texts]

    def check(self, when: str, first: int = 0) -> None:
        """Raise a Fault if the outputs are not those of the model with what was evicted masked.

        The deviation that counts is relative to the largest output or to 1.
        """
        readings = self.readings(*self.seen())
        expected = np.stack([reading.outputs for reading in readings])[:, first:]
        deviation = np.abs(self.outputs[:, first:] - expected).max()
        away = float(deviation / max(1, np.abs(expected).max()))
        if away > self.subject.tolerance:
            raise Fault(f"{when} its outputs are {away:.2g} away from those of what is held")


def attends_to_what_was_evicted(subject: Subject) -> None:
    """Check that outputs are those of the full model with the evicted tokens masked.

    As in a conversation: turns are read, and between them the model writes.
    """
    b = subject.budget
    story = Story(subject)
    story.feed(b + 6, 7)
    story.write(5)
    story.feed(1, b // 2)
    story.write(2)
    story.feed(5)
    story.check("after evictions")


def holds_more_than_the_budget(subject: Subject) -> None:
    """Check that after every turn no head holds more than the budget."""
    story = Story(subject)
    b = subject.budget
    for turn, n in enumerate((b // 2, b + 9, 3, b, 1, b // 2)):
        story.feed(n)
        if story.most_held() > b:
            raise Fault(f"after turn {turn} a head holds {story.most_held()} entries of {b}")
        story.write(2)


def outgrows_the_budget_while_writing(subject: Subject) -> None:
    """Check that while the model writes, a head exceeds the budget by at most `every`."""
    assert subject.every is not None
    story, b, every = Story(subject), subject.budget, subject.every
    story.feed(b + 4)
    for written in range(1, 3 * every + 2):
        story.write(1)
        if story.most_held() > b + every:
            raise Fault(f"after {written} written tokens a head holds {story.most_held()} entries")
    story.check("while it writes,")


def compresses_only_the_first_text(subject: Subject) -> None:
    """Check that each of several texts is compressed, or that several are refused."""
    lengths = (subject.budget + 5, 6, 4)
    if subject.samples == 1:
        try:
            Story(subject, 2).feed(*lengths)
        except ValueError:
            return
        raise Fault("it takes one text at a time, but does not refuse two")
    story = Story(subject, min(3, subject.samples))
    story.feed(*lengths)
    for text, most in enumerate((story.held[-1] >= 0).sum(axis=-1).max(axis=(1, 2)).tolist()):
        if most > subject.budget:
            raise Fault(f"text {text} of several holds {most} entries of {subject.budget}")
    story.check("of several texts read together,")


def keeps_its_first_compression(subject: Subject) -> None:
    """Check that later questions are compressed, too, and what was evicted does not come back.

    A common fault is to compress the first text alone, and to go on from that.
    """
    story, b = Story(subject), subject.budget
    story.feed(2 * b, *[b // 3] * 4)
    for call in range(1, len(story.held)):
        new = set(range(story.ends[call], story.ends[call + 1]))
        for head in np.ndindex(*story.held[0].shape[:3]):
            was, now = (_tokens(held[head]) for held in story.held[call - 1 : call + 1])
            if not now <= was | new:
                raise Fault(f"what was evicted before question {call} is held after it")
    if not (story.held[-1] >= story.ends[1]).any(axis=-1).all():
        raise Fault("after four questions a head holds nothing of any of them")
    if story.most_held() > b:
        raise Fault(f"after four questions a head holds {story.most_held()} entries of {b}")


def counts_other_positions(subject: Subject) -> None:
    """Check the next token's position: after all tokens seen, or after those held."""
    story = Story(subject)
    story.feed(subject.budget + 11, 1, 1)
    story.check("after an eviction", first=story.ends[1])


def decides_by_the_next_turn(subject: Subject) -> None:
    """Check that eviction does not depend on the tokens that come next."""
    b = subject.budget
    for written, read in ((0, Story.feed), (3, Story.feed), (3, Story.write)):
        # The same story twice, but for the tokens of the last call.
        story, other = Story(subject), Story(subject)
        for shift, told in enumerate((story, other)):
            told.feed(b + 6, 7)
            told.write(written)
            read(told, b // 2 if read is Story.feed else 1, shift=shift)
        for head in np.ndindex(*story.held[0].shape[:3]):
            held, held_by_other = _tokens(story.before[-1][head]), _tokens(other.before[-1][head])
            if held != held_by_other:
                token = min(held ^ held_by_other)
                raise Fault(f"token {token} is held for one continuation and not for another")
            returned = held - _tokens(story.held[-2][head])
            if returned:
                raise Fault(f"token {min(returned)} was evicted, but the next turn sees it")


def drifts_as_positions_change(subject: Subject) -> None:
    """Check that changing positions repeatedly gives the same keys as changing them once."""
    story = Story(subject)
    story.feed(subject.budget, *[2] * ROUNDS)
    story.check(f"after {ROUNDS} turns", first=story.ends[-4])


def changes_with_its_fork(subject: Subject) -> None:
    """Check that a cache goes on as if no fork of it had read, evicted or moved anything."""
    story, b = Story(subject), subject.budget
    story.feed(b + 6, 7)
    cache: Any = story.cache
    fork = cache.fork()
    for n in (b // 2, 9, b // 2):
        fork.feed(np.arange(n)[None])
    story.feed(5, b // 2)
    story.check("after its fork has read,")


def keeps_half_of_a_failed_turn(subject: Subject) -> None:
    """Check that a turn that could not be read leaves the cache unchanged."""
    assert subject.failing is not None
    story, b = Story(subject), subject.budget
    story.feed(b + 6)
    with subject.failing():
        try:
            story.cache.feed(np.arange(b)[None])
        except ValueError:
            pass
        else:
            raise Fault("it says nothing of a turn that could not be read")
    story.feed(7, b // 2)
    story.check("after a turn that could not be read")


def evicts_sinks(subject: Subject) -> None:
    """Check that the first tokens stay in every head, after every turn and while it writes."""
    story, b = Story(subject), subject.budget
    for n in (b + 8, b // 2, b // 2, 1):
        story.feed(n)
        story.write(4)
    for seen, held in zip(story.ends[1:], story.held, strict=True):
        for sink in range(subject.sinks):
            if not (held == sink).any(axis=-1).all():
                raise Fault(f"the sink {sink} was evicted by the time {seen} were read")


def scores_by_what_was_evicted(subject: Subject) -> None:
    """Check that the entries kept score highest under a model that saw only entries held."""
    assert subject.scores is not None
    story, b = Story(subject), subject.budget
    story.feed(b + 8, *[b // 2] * 4)
    sees, distances = story.seen()
    everything = np.broadcast_to(np.tri(sees.shape[-1], dtype=np.bool_), sees.shape)
    cut, full = (story.readings(mask, distances)[0] for mask in (sees, everything))
    differs = False  # whether a policy that saw everything would have kept other tokens
    for call in range(1, len(story.held)):
        new = np.arange(story.ends[call], story.ends[call + 1])
        for layer, head in np.ndindex(*story.held[0].shape[1:3]):
            was, now = (_tokens(held[0, layer, head]) for held in story.held[call - 1 : call + 1])
            present = np.array(sorted(was | set(new.tolist())))
            stays = np.isin(present, sorted(now))
            free = present >= subject.sinks  # sinks stay whatever their scores
            if stays.all() or not (stays & free).any():
                continue
            # By scores of a model that saw only what was held, and of one that saw everything.
            by_held, by_all = (
                _behind(_scores(subject, reading, layer, head, present, new), stays, free)
                for reading in (cut, full)
            )
            differs |= by_all > subject.tolerance
            if by_held > subject.tolerance:
                raise Fault(f"in turn {call}, layer {layer}, head {head}, the best do not stay")
    assert differs, "the check could not have failed"


def _scores(
    subject: Subject, reading: Reading, layer: int, head: int, present: Ints, new: Ints
) -> Floats:
    """Return the scores of the tokens present for a KV head, from a reading (S,)."""
    assert subject.scores is not None
    queries, keys = reading.queries[layer], reading.keys[layer, head, present]
    group = len(queries) // reading.keys.shape[1]
    return subject.scores(queries[head * group : (head + 1) * group, new], keys)


def _behind(scores: Floats, stays: Bools, free: Bools) -> float:
    """Return the best evicted score minus the worst kept one, relative to the largest."""
    evicted = scores[~stays & free].max(initial=-np.inf)
    return float((evicted - scores[stays & free].min()) / np.abs(scores).max())


def _tokens(held: Ints) -> set[int]:
    return {int(token) for token in held if token >= 0}
