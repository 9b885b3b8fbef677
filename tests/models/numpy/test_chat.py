"""A chat with a model reads and writes the same under several caches as under each alone."""

from itertools import islice
from pathlib import Path

import pytest

from fdkvc.core.limits import MAX_WRITTEN_TOKENS
from fdkvc.models.numpy import BUNDLED
from fdkvc.models.numpy.chat import Chat, generate, is_looping
from fdkvc.models.numpy.language_model import LanguageModel, load_language_model
from fdkvc.models.numpy.model_text import Passage
from fdkvc.models.numpy.text_cache import EvictingCache, TextCache, read
from fdkvc.policies import policy_named
from tests.language_models import write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return load_language_model(write_model(tmp_path_factory.mktemp("model"), seed=3))


def chat(model: LanguageModel) -> Chat:
    return Chat(
        model,
        {
            "full": TextCache(model.decoder),
            "fifo": EvictingCache(model.decoder, policy_named("fifo"), 8),
        },
    )


def test_a_passage_in_tokens_knows_its_characters(model: LanguageModel) -> None:
    text = "A <end> or 12 — more"
    laid_out = model.tokens.encode_passage(Passage("call", text, 0))

    assert laid_out.ids[0] == 3
    assert laid_out.ids[-1] == model.tokens.end == 4
    assert 4 not in laid_out.ids[1:-1]  # words are no marks
    assert model.tokens.text(laid_out.ids) == text
    places = laid_out.tokens_of(text.index("12"), text.index("12") + 2)
    assert model.tokens.text([laid_out.ids[at] for at in places]).strip() == "12"
    assert laid_out.tokens_of(0, 0) == ()


def test_a_model_without_marks_gets_lines(tmp_path: Path) -> None:
    tokens = load_language_model(write_model(tmp_path, marks=("<pad>",))).tokens

    ids = tokens.encode_passage(Passage("user", "hello", 0)).ids

    assert tokens.text(ids) == "User:hello\n"


def test_what_is_written_is_the_likeliest_each_time(model: LanguageModel) -> None:
    heard = model.tokens.encode_passage(Passage("user", "hello there", 0)).ids
    cache = TextCache(model.decoder)
    logits = read([cache], [*heard, 2], last=1)[:, 0]

    written = [step[0] for step in generate(model.tokens, [cache], logits, most=20)]

    again = read([TextCache(model.decoder)], [*heard, 2, *written])[0]
    assert again[len(heard) : -1].argmax(axis=-1).tolist() == written
    assert len(written) == 20 or written[-1] == model.tokens.end
    assert cache.ids == [*heard, 2, *(token for token in written if token != model.tokens.end)]


def test_policies_may_evict_while_the_model_writes(model: LanguageModel) -> None:
    cache = EvictingCache(model.decoder, policy_named("fifo"), 5)
    logits = read([cache], [1, 50, 60, 70, 4, 2], last=1)[:, 0]
    cache.end_turn()

    steps = list(generate(model.tokens, [cache], logits, most=9, every=3))

    assert cache.ends == [6, 9, 12, 15][: 1 + len(steps) // 3]
    assert cache.attended is not None
    assert cache.attended.shape[2] == 5


def test_each_memory_answers_by_itself_as_it_would_alone(model: LanguageModel) -> None:
    together = chat(model)
    alone = Chat(model, {"fifo": EvictingCache(model.decoder, policy_named("fifo"), 8)})
    for words in ("hello", "a train to Trieste, please", "thank you"):
        streamed: dict[str, int] = {}
        for conversation in (together, alone):
            conversation.add_message(words)
            for step in conversation.answer(most=12):
                for name in step:
                    streamed[name] = streamed.get(name, 0) + 1
        assert set(streamed) == {"full", "fifo"}

    assert together.passages["fifo"] == alone.passages["fifo"]
    assert together.caches["fifo"].ids == alone.caches["fifo"].ids
    for name, cache in together.caches.items():
        passages = together.passages[name]
        assert [first for _, first, _ in passages][1:] == [end for *_, end in passages][:-1]
        assert [writer for writer, *_ in passages if writer != "call"] == ["user", "system"] * 3
        assert cache.count == passages[-1][2]
        assert cache.ends == [end for *_, end in passages[:-1]]  # the last answer can go on
        for writer, first, _ in passages:
            assert cache.ids[first] == model.tokens.marks[writer][0]
        assert all(cache.ids[end - 1] == model.tokens.end for *_, end in passages[:-1])
    assert together.text("full", 0) == "hello"


def test_an_answer_that_is_stopped_ends_there_and_the_talk_goes_on(model: LanguageModel) -> None:
    stopped = chat(model)
    stopped.add_message("hello")
    answer = stopped.answer()
    seen = [next(answer), next(answer)]
    answer.close()

    for name, cache in stopped.caches.items():
        tokens = [step[name] for step in seen if name in step]
        _, first, end = stopped.passages[name][-1]
        assert cache.ids[first + 1 : end] == [token for token in tokens if token != 4]
    assert stopped.steps == 2
    stopped.add_message("and now?")
    assert stopped.steps == 0
    for name, cache in stopped.caches.items():
        assert stopped.passages[name][-1][0] == "user"
        assert cache.ids[stopped.passages[name][-2][2] - 1] == model.tokens.end


def test_an_answer_goes_on_where_it_was_cut(model: LanguageModel) -> None:
    whole, cut = chat(model), chat(model)
    for conversation in (whole, cut):
        conversation.add_message("hello")
    steps = sum(1 for _ in whole.answer(most=40))
    for _ in islice(cut.answer(most=40), 3):
        pass
    before = cut.fork()
    assert cut.unfinished()
    for _ in range(2):
        for _ in cut.answer(most=(steps - 3) // 2 + 1):
            pass

    assert cut.passages == whole.passages
    assert {name: cache.ids for name, cache in cut.caches.items()} == {
        name: cache.ids for name, cache in whole.caches.items()
    }
    assert before.steps == 3  # and it can go on by itself
    for _ in before.answer(most=40):
        pass
    assert before.text("fifo") == whole.text("fifo")


def test_calls_come_before_the_words_and_end_at_some_time(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = chat(model)
    monkeypatch.setattr("fdkvc.models.numpy.chat.first_writer", lambda *_: "call")
    caller.add_message("hello")
    for _ in caller.answer(most=3):
        pass

    assert [writer for writer, *_ in caller.passages["full"]] == ["user", "call", "call", "system"]


def test_a_chat_stops_a_passage_that_repeats_itself_and_measured_answers_go_on() -> None:
    model = load_language_model(BUNDLED)
    talk = Chat(model, {"full": TextCache(model.decoder)})
    talk.add_message("a" * 22)
    mark = model.tokens.marks["system"]
    written = []
    for stop in (False, True):
        cache = talk.caches["full"].fork()
        logits = read([cache], mark, last=1)[:, 0]
        steps = generate(model.tokens, [cache], logits, stop_loops=stop)
        written.append([step[0] for step in steps])
    whole, stopped = written

    first = next(n for n in range(len(whole)) if is_looping(whole[:n]))
    assert stopped == whole[:first]
    assert len(whole) == MAX_WRITTEN_TOKENS
    for _ in talk.answer():
        pass
    assert talk.text("full") == model.tokens.text(stopped).strip()
    talk.add_message("hello")  # and it goes on
