"""Why a model wrote a word, what was evicted of that, and what restoring it does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdkvc.core.attention import Bools
from fdkvc.models.answer_causes import (
    bare,
    changed_words,
    evicted_words,
    grade_call,
    is_readable,
    restore_spans,
    turns_of,
    why_table,
    words_in,
    words_of,
)
from fdkvc.models.numpy.chat import Chat, generate
from fdkvc.models.numpy.language_model import LanguageModel, load_language_model
from fdkvc.models.numpy.model_text import Passage, Writer
from fdkvc.models.numpy.text_cache import EvictingCache, TextCache, read
from fdkvc.models.numpy.tokens import Tokens
from fdkvc.policies import policy_named
from tests.language_models import write_model

SAID = ("a train to Trieste — über Ljubljana, please", "for two people", "and now?")
BUDGET = 20


def full_answer(model: LanguageModel, cache: TextCache) -> tuple[Writer, tuple[int, ...]]:
    """Return what a full cache writes after the text of a cache, with its mark."""
    full = model.full()
    mark = model.tokens.marks["system"]
    logits = read([full], [*cache.ids, *mark], last=1)[:, 0]
    for _ in generate(model.tokens, [full], logits, stop_loops=True):
        pass
    return "system", tuple(full.ids[cache.count :])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return load_language_model(write_model(tmp_path_factory.mktemp("told"), seed=3))


@pytest.fixture(scope="module")
def context(model: LanguageModel) -> Chat:
    """A chat that is about to answer."""
    fifo = EvictingCache(model.decoder, policy_named("fifo"), BUDGET)
    chat = Chat(model, {"full": TextCache(model.decoder), "fifo": fifo})
    for text in SAID:
        chat.add_message(text)
    return chat


@pytest.fixture(scope="module")
def answered(context: Chat) -> Chat:
    chat = context.fork()
    for _ in chat.answer(most=12):
        pass
    return chat


def test_the_words_of_a_text_know_their_tokens(context: Chat, model: LanguageModel) -> None:
    cache, passages = context.caches["full"], context.passages["full"]
    words = words_of(model.tokens, cache.ids, passages)

    assert [word.text for word in words] == " ".join(SAID).split()
    for word in words:
        _, first, end = passages[word.passage]
        assert first < word.first < word.end < end
        assert model.tokens.text(cache.ids[word.tokens]).strip() == word.text
    ends = [word.end for word in words]
    assert all(one.first >= end for one, end in zip(words[1:], ends, strict=False))


def test_a_call_and_its_words_are_one_turn() -> None:
    writers: Any = ("user", "call", "call", "system", "user", "system")

    assert turns_of([(writer, 0, 1) for writer in writers]) == [0, 1, 1, 1, 2, 3]


def test_a_word_was_written_from_what_the_memory_attended_to(answered: Chat) -> None:
    cache, passages = answered.caches["fifo"], answered.passages["fifo"]
    words = words_of(answered.model.tokens, cache.ids, passages)
    word = next(candidate for candidate in words if candidate.passage >= len(SAID))
    table = why_table(answered, "fifo", word)

    assert table.word.tolist() == [earlier.text for earlier in words if earlier.first < word.first]
    first = words[0]
    looked = [cache.attention(at) for at in range(word.first - 1, word.end - 1)]
    mean = np.mean([attention[..., first.tokens].sum(axis=-1).mean() for attention in looked])
    assert table.attended[0] == pytest.approx(mean, abs=1e-6)

    gone = table[table.evicted > 0]
    assert len(gone)
    assert set(gone["rule"]) == {"budget"}
    assert (gone.evicted == gone.heads).any()
    whole = gone[gone.evicted == gone.heads]
    kept_of_it = [cache.evicted_in[:, :, low:high] for low, high in whole[["first", "end"]].values]
    entirely = [bool((evicted_in >= 0).all()) for evicted_in in kept_of_it]
    assert whole.attended[entirely].max() == 0  # FIFO's are gone from every head
    assert (whole.all_there > 0).all()
    assert (gone.first_evicted_in >= gone.turn).all()
    assert gone.last_evicted_in.max() < turns_of(passages)[word.passage] + 1


def test_every_word_that_was_lost_is_tried_by_itself_and_with_all(
    model: LanguageModel, context: Chat
) -> None:
    cache, passages = context.caches["fifo"], context.passages["fifo"]
    before = cache.ids[:], cache.evicted_in.copy()
    answer = full_answer(model, cache)
    restoration = restore_spans(model, cache, passages, answer, max_spans=100)

    assert cache.ids == before[0]
    np.testing.assert_array_equal(cache.evicted_in, before[1])
    *singles, together = restoration.attempts
    spans = [attempt.spans[0] for attempt in singles]
    assert together.spans == tuple(spans)
    lost: Bools = np.any(cache.evicted_in >= 0, axis=(0, 1))
    words = [
        word for word in words_of(model.tokens, cache.ids, passages) if lost[word.tokens].any()
    ]
    covered = {token for span in spans for token in range(span.first, span.end)}
    assert covered >= {token for word in words for token in range(word.first, word.end)}
    assert sum(span.end - span.first for span in spans) == len(covered)
    assert len(restore_spans(model, cache, passages, answer, max_spans=2).attempts) == 3


def test_what_is_brought_back_is_attended_to_when_the_model_answers(
    model: LanguageModel, context: Chat
) -> None:
    cache, passages = context.caches["fifo"], context.passages["fifo"]
    restoration = restore_spans(model, cache, passages, full_answer(model, cache), max_spans=1)
    (span,) = restoration.attempts[0].spans
    mark = model.tokens.marks[restoration.writer]

    there = cache.before_turn(len(cache.ends), range(span.first, span.end))
    logits = read([there], mark, last=1)[:, 0]
    written = [step[0] for step in generate(model.tokens, [there], logits, stop_loops=True)]
    assert restoration.attempts[0].written == model.tokens.text(written).strip()
    assert there.attended is not None
    for held in there.attended.reshape(-1, there.attended.shape[2]):
        assert {*range(span.first, span.end)} <= {*held.tolist()}


def test_words_are_tried_in_the_order_of_attention_where_a_word_is_lost(
    model: LanguageModel, context: Chat
) -> None:
    """Function words and marks come after all that can be read."""
    cache, passages = context.caches["fifo"], context.passages["fifo"]
    shares: list[float] = []
    answer = full_answer(model, cache)
    restoration = restore_spans(model, cache, passages, answer, 100, shares.append)

    *singles, together = restoration.attempts
    spans = [attempt.spans[0] for attempt in singles]
    readable = [is_readable(span.text) for span in spans]
    assert readable == sorted(readable, reverse=True)
    assert {*readable} == {True, False}
    full = model.full()
    mark = model.tokens.marks[restoration.writer]
    read([full], [*cache.ids, *answer[1]])
    start = cache.count + len(mark)
    places = [*words_in(model.tokens, full.ids[start:])]
    changed = changed_words(restoration.full.split(), restoration.lost.split())
    lost = [word for word, differs in zip(places, changed, strict=True) if differs]
    gone = evicted_words(words_of(model.tokens, cache.ids, passages), cache)
    said = [word for word in lost if bare(word[0]) in gone and is_readable(word[0])]
    text, first, end = (said or [word for word in lost if is_readable(word[0])])[0]
    assert text == restoration.word
    looked = [full.attention(start + place - 1).mean(axis=(0, 1)) for place in range(first, end)]
    for span in spans:
        if " " not in span.text:
            weight = np.sum(looked, axis=0)[span.tokens].sum()
            assert span.weight == pytest.approx(weight, abs=1e-5)
        evicted = (cache.evicted_in[:, :, span.tokens] >= 0).any(axis=-1)
        assert span.evicted == (evicted.sum(), evicted.size)
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert together.spans == tuple(spans)


def test_the_lost_word_is_one_of_the_answer_that_is_given(
    model: LanguageModel, context: Chat
) -> None:
    """In a chat of one's own the full cache has read other answers than the policy's cache."""
    cache, passages = context.caches["fifo"], context.passages["fifo"]
    mark = model.tokens.marks["system"]
    said = model.tokens.encode("Glad to say Trieste")[0]
    restoration = restore_spans(model, cache, passages, ("system", (*mark, *said)), max_spans=1)

    assert restoration.full == "Glad to say Trieste"
    assert restoration.word == "Trieste", "it had been said, and left"


def test_the_lost_word_is_one_that_the_other_answer_has_nowhere(
    model: LanguageModel, context: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To say that it lacks no word, as it has the first that stands elsewhere, would be false."""
    tokens = model.tokens

    def write(_: Tokens, caches: list[TextCache], writer: Writer, **options: Any) -> list[str]:
        read(caches, [*tokens.marks[writer], *tokens.encode("Trieste or Ljubljana")[0]])
        return ["Trieste or Ljubljana"] * len(caches)

    monkeypatch.setattr("fdkvc.models.answer_causes.generate_passages", write)
    cache, passages = context.caches["fifo"], context.passages["fifo"]
    words = tokens.encode("Ljubljana or Trieste then seven")[0]
    answer: tuple[Writer, Any] = "system", (*tokens.marks["system"], *words)
    restoration = restore_spans(model, cache, passages, answer, max_spans=1)

    assert restoration.word == "seven"
    assert not restoration.undone(restoration.lost, restoration.full)


def test_an_answer_is_restored_within_the_length_of_the_model(tmp_path: Path) -> None:
    """In a chat of one's own a policy's text may be longer than that of the full cache."""
    room = 3
    text = "a train to Trieste " * 20
    whole = load_language_model(write_model(tmp_path / "whole", seed=3))
    size = len(whole.tokens.encode_passage(Passage("user", text, 0)).ids) + 1 + room
    model = load_language_model(
        write_model(tmp_path / "short", seed=3, max_position_embeddings=size)
    )
    chat = Chat(model, {"fifo": EvictingCache(model.decoder, policy_named("fifo"), BUDGET)})
    chat.add_message(text)
    mark = model.tokens.marks["system"]
    answer: tuple[Writer, Any] = "system", (*mark, *model.tokens.encode("a long answer")[0])
    restoration = restore_spans(model, chat.caches["fifo"], chat.passages["fifo"], answer, 1)

    assert "a long answer".startswith(restoration.full)


def test_a_word_is_evicted_once_most_heads_have_no_place_where_it_was_said(
    model: LanguageModel, context: Chat
) -> None:
    cache, passages = context.caches["fifo"], context.passages["fifo"]
    words = words_of(model.tokens, cache.ids, passages)
    gone = evicted_words(words, cache)
    newest = {bare(word.text) for word in words if word.first >= cache.count - 8}
    assert gone
    assert not gone & newest
    for text in gone:
        for word in words:
            if bare(word.text) == text:
                heads = (cache.evicted_in[:, :, word.tokens] >= 0).mean(axis=(0, 1))
                assert heads.max() > 0.5
    whole = context.caches["full"]
    assert not evicted_words(words_of(model.tokens, whole.ids, context.passages["full"]), whole)


def test_a_memory_that_lost_nothing_has_nothing_to_bring_back(
    model: LanguageModel, context: Chat
) -> None:
    cache, passages = context.caches["full"], context.passages["full"]
    restoration = restore_spans(model, cache, passages, full_answer(model, cache))

    assert restoration.attempts == ()
    assert restoration.lost == restoration.full
    assert restoration.word == ""


def test_a_call_is_right_when_its_method_and_every_argument_are() -> None:
    wanted = "GetWeather ; city = Trieste ; date = today"

    assert grade_call("GetWeather ; date = today ; city = Trieste", wanted).as_expected
    assert not grade_call("FindWeather ; city = Trieste ; date = today", wanted).as_expected
    more = grade_call(f"{wanted} ; unit = kelvin", wanted)
    *_, unit = more.arguments
    assert (unit.slot, unit.as_expected) == ("unit", False)
    assert not more.as_expected
