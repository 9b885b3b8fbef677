"""Ways to fit in models: beside a list of messages that is cut by hand, in every engine."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdkvc.conversations.formats import read_transcripts
from fdkvc.core.transcripts import Transcript
from fdkvc.models.answers import Answers, run_answers
from fdkvc.models.numpy.head_recordings import encode_dialog
from fdkvc.models.numpy.language_model import AnyModel, LanguageModel, load_language_model
from fdkvc.models.numpy.reread_cache import RereadCache
from fdkvc.models.numpy.text_cache import EvictingCache, ModelCache, read
from fdkvc.models.numpy.tokens import EncodedPassage
from fdkvc.policies import Policy, read_policy
from tests.models.numpy.test_speakers import write_chat_model


def budget_of(model: AnyModel) -> int:
    """Return how many tokens fit: two fifths of the conversation."""
    return sum(len(passage.ids) for passage in encode_dialog(model, agent_dialog())) * 2 // 5


def agent_dialog() -> Transcript:
    """Return a short conversation with four uses of two tools."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Two seats to Piran, please."},
    ]
    for number, tool in enumerate(("find", "book", "find", "pay")):
        call = {"function": {"name": tool, "arguments": {"seats": number}}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "content": f"seat {number} is free at noon " * 2})
        messages.append({"role": "assistant", "content": f"Number {number} is done."})
    (dialog,) = read_transcripts(json.dumps({"messages": messages}).encode())
    return dialog


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chat_model(tmp_path_factory.mktemp("chat"), max_position_embeddings=4096)


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return load_language_model(folder)


@dataclass
class Message:
    """A message in tokens, with what the template writes around it."""

    passage: EncodedPassage
    before: list[int]
    words: list[int]
    after: list[int]
    placed: bool = False

    @property
    def ids(self) -> list[int]:
        return [*self.before, *self.words, *self.after]


def message_of(passage: EncodedPassage) -> Message:
    ids, start, stop = [*passage.ids], passage.start, passage.stop
    return Message(passage, ids[:start], ids[start:stop], ids[stop:])


def length(text: Sequence[Message]) -> int:
    return sum(len(message.ids) for message in text if not message.placed) + sum(
        len(message.before) + len(message.after) for message in text if message.placed
    )


def drop_oldest(text: list[Message], budget: int) -> list[Message]:
    prompt = [message for message in text if message.passage.passage.kind == "system"]
    rest = [message for message in text if message not in prompt]
    while length([*prompt, *rest]) > budget:
        rest = rest[1:]
    return [*prompt, *rest]


def clear(text: list[Message], budget: int, placeholder: list[int], keep: int = 1) -> list[Message]:
    if length(text) <= budget:
        return text
    results = [message for message in text if message.passage.passage.kind == "result"]
    for message in results[: len(results) - keep]:
        message.words, message.placed = placeholder, True
    return drop_oldest(text, budget)


Cut = Callable[[list[Message], int], list[Message]]


def cut_by_hand(model: AnyModel, cut: Cut) -> Iterator[tuple[EncodedPassage, list[int]]]:
    """Yield each passage, and the text that is held after it."""
    text: list[Message] = []
    for passage in encode_dialog(model, agent_dialog()):
        text = cut([*text, message_of(passage)], budget_of(model))
        yield passage, [token for message in text for token in message.ids]


def logits_after(cache: ModelCache, ids: Sequence[int]) -> Any:
    logits = read([cache], ids)[0]
    cache.end_turn()
    return logits


def cuts(model: AnyModel) -> dict[str, Cut]:
    """Return some ways with what they do by hand."""
    placeholder = [*model.tokens.encode("[cleared]")[0]]
    return {
        "messages(fifo)": drop_oldest,
        "clear-results keep=1": lambda text, budget: clear(text, budget, placeholder),
    }


def check_reread(model: AnyModel, name: str, near: Any) -> None:
    """Hold each turn under a way that reads again against a fresh run on the shortened text."""
    policy, held, prompt = read_policy(f"reread({name})"), list[int](), list[int]()
    changed = reread = 0
    cache = RereadCache(model, policy, budget_of(model))
    for passage, text in cut_by_hand(model, cuts(model)[name]):
        fresh = model.full()
        if held:
            logits_after(fresh, held)
        expected = logits_after(fresh, passage.ids)
        cache.turn_kind = passage.passage.kind
        near(logits_after(cache, passage.ids), expected)
        assert cache.ids == text
        if text != [*held, *passage.ids]:
            changed += 1
            reread += len(text) - len(prompt)  # only what is before all that goes is not read again
        prompt = prompt or text
        held = text
    assert changed >= 2
    assert 0 < cache.tokens_reread <= reread
    if name == "messages(fifo)":
        assert cache.tokens_reread == reread


def near(actual: Any, expected: Any) -> None:
    # Within single precision's rounding of the largest logit, which kernels share differently.
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["messages(fifo)", "clear-results keep=1"])
def test_read_again_is_a_fresh_run_on_the_shortened_text(model: LanguageModel, name: str) -> None:
    check_reread(model, name, near)


@pytest.mark.parametrize("name", ["messages(fifo)", "clear-results keep=1"])
def test_it_is_so_in_transformers(folder: Path, name: str) -> None:
    loop = pytest.importorskip("fdkvc.models.transformers.loop")
    check_reread(loop.load_live(folder), name, near)


@pytest.mark.long
@pytest.mark.parametrize("name", ["messages(fifo)", "clear-results keep=1"])
def test_it_is_so_in_llama(name: str) -> None:
    llama = pytest.importorskip("fdkvc.models.llama_cpp.model")
    options = {"n_ctx": 1024, "n_batch": 128, "n_threads": 1, "n_threads_batch": 1}
    # The same numbers in other batches are rounded otherwise there.
    check_reread(llama.load_llama("smollm2", **options), name, partially_near)


def partially_near(actual: Any, expected: Any) -> None:
    assert (actual.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.9


@pytest.mark.parametrize("name", ["messages(fifo)", "clear-results keep=1"])
def test_kept_is_what_a_list_cut_by_hand_keeps(model: LanguageModel, name: str) -> None:
    cache = EvictingCache(model.decoder, read_policy(name), budget_of(model))
    cut = cuts(model)[name] if "clear" not in name else lambda text, budget: clear(text, budget, [])
    for passage, text in cut_by_hand(model, cut):
        cache.turn_kind = passage.passage.kind
        logits_after(cache, passage.ids)
        held = np.arange(cache.count) if cache.attended is None else cache.attended[0, 0]
        assert [cache.ids[place] for place in np.sort(held[held >= 0])] == text
        assert cache.attended is None or (cache.attended == cache.attended[0, 0]).all()


def test_a_cache_that_keeps_entries_refuses_to_read_again(model: LanguageModel) -> None:
    with pytest.raises(ValueError, match="reads its text again"):
        model.evicting(read_policy("reread(fifo)"), 8)


def test_answers_measure_kept_beside_read_again(model: LanguageModel) -> None:
    names = ["clear-results keep=1", "reread(clear-results keep=1)", "messages(fifo)"]
    policies: tuple[Policy, ...] = tuple(map(read_policy, names))
    table = run_answers(Answers(policies, (budget_of(model),)), model, [agent_dialog()], workers=1)

    kl = table[table.metric == "kl"].set_index("policy").value
    assert {*kl.index} == {"full", *names}
    assert kl["full"] == 0 < kl[names].min()
    assert kl[names].nunique() == len(names)


def test_a_fork_goes_on_alone(model: LanguageModel) -> None:
    passages = encode_dialog(model, agent_dialog())
    cache = RereadCache(model, read_policy("reread(messages(fifo))"), budget_of(model))
    for passage in passages[:6]:
        logits_after(cache, passage.ids)
    fork = cache.fork()
    ours = [logits_after(cache, passage.ids) for passage in passages[6:8]]
    theirs = [logits_after(fork, passage.ids) for passage in passages[6:8]]
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
    assert fork.ids == cache.ids


def test_a_text_that_is_read_again_begins_as_any_text_of_its_model(model: LanguageModel) -> None:
    begins = replace(model, tokens=replace(model.tokens, first=(5, 6)))
    for turns, left in (([[5, 6, 7, 8], [9, 10]], [5, 6, 8, 9, 10]), ([[7, 6, 8, 9]], [6, 8, 9])):
        cache = RereadCache(begins, read_policy("reread(fifo)"), 3)
        for turn in turns:
            read([cache], turn)
            cache.end_turn()
        assert cache.ids == left
