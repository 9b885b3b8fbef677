"""Policies in llama.cpp: the same tokens as elsewhere, and what its contexts do not forgive."""

import doctest
import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest

from fdkvc.commands.main import main
from fdkvc.conversations.formats import EXAMPLES
from fdkvc.core.attention import Floats
from fdkvc.engine.simulate import simulate
from fdkvc.engine.sinks import FirstTokensWarning
from fdkvc.explain.decisions import explain, sentences
from fdkvc.models.llama_cpp import chat as llama_module
from fdkvc.models.llama_cpp.chat import LlamaText, PolicyChat
from fdkvc.models.llama_cpp.context import llama_tokens
from fdkvc.models.numpy.gguf_file import find_model
from fdkvc.models.numpy.language_model import LanguageModel, shared_language_model
from fdkvc.models.numpy.text_cache import read
from fdkvc.policies import read_policy
from tests.examples import dialogs_of
from tests.models.numpy.test_smollm2 import drawn_texts

pytestmark = pytest.mark.smollm2

DOCUMENT = Path(llama_module.__file__).parents[1] / "README.md"
BUDGET = 64
KEEPER = "sinks(surprisal redundancy=1)"
PINNED = "whitelist(fifo, first=0, speaker=prompt, most=1)"
USERS = "whitelist(learned, first=0, speaker=user)"
BY_TEXT = ("fifo", "sink", "learned", "messages(fifo)", "regions", KEEPER, USERS, PINNED, "full")


def new_llama(**options: Any) -> Any:
    options = {"n_ctx": 1024, "n_batch": 128, "n_threads": 1, "n_threads_batch": 1, **options}
    return llama_cpp.Llama(str(find_model("smollm2")), verbose=False, **options)


@pytest.fixture(scope="module")
def llama() -> Any:
    return new_llama()


@pytest.fixture(scope="module")
def small() -> Any:
    return new_llama(n_ctx=160, n_batch=48)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return shared_language_model("smollm2")


@pytest.fixture(scope="module")
def turns(model: LanguageModel) -> list[tuple[int, ...]]:
    """Return the passages of an example dialog in tokens."""
    passages = model.tokens.encode_dialog(dialogs_of("dialogues")[0])
    return [passage.ids for passage in passages[:8]]


def kl(expected: Floats, actual: Floats) -> Floats:
    """Return the KL divergence of predictions, by their logits (n, V), of each (n,)."""
    ours, theirs = (x - x.max(axis=-1, keepdims=True) for x in (expected, actual))
    ours, theirs = (x - np.log(np.exp(x).sum(axis=-1, keepdims=True)) for x in (ours, theirs))
    return np.asarray((np.exp(ours) * (ours - theirs)).sum(axis=-1))


def read_turns(text: LlamaText, turns: list[tuple[int, ...]]) -> Floats:
    """Read whole turns, and return the logits after every token."""
    logits = []
    for ids in turns:
        logits.append(text.read(ids, last=None))
        text.end_turn()
    return np.concatenate(logits)


@pytest.mark.parametrize("name", BY_TEXT)
def test_it_keeps_the_tokens_that_the_numpy_model_keeps_and_predicts_from_them(
    llama: Any, model: LanguageModel, turns: list[tuple[int, ...]], name: str
) -> None:
    text = LlamaText(llama, policy := read_policy(name), BUDGET)
    cache = model.evicting(policy, BUDGET, "model")
    ours, theirs = [], []
    for ids in turns:
        theirs.append(text.read(ids, last=None))
        ours.append(read([cache], ids)[0])
        evicted = text.end_turn()
        cache.end_turn()
        held = cache.attended
        kept = np.arange(cache.count) if held is None else np.unique(held[held >= 0])
        assert text.held.tolist() == kept.tolist()
        assert not {*evicted} & {*text.held.tolist()}
    count, most = len(text.held), text.ends[-1] if name == "full" else BUDGET
    assert count == most or (policy.page_size == 0 and 0 < count < most)
    # Weights are multiplied in 8 bits there.
    assert kl(np.concatenate(ours), np.concatenate(theirs)).mean() < 0.02
    dialog = text.dialog()
    kept = simulate(policy, dialog, BUDGET).kept_tokens[0, -1]
    assert sorted(kept[kept >= 0].tolist()) == text.held.tolist()


def test_it_says_why_a_token_went(llama: Any, turns: list[tuple[int, ...]]) -> None:
    text = LlamaText(llama, read_policy("learned"), BUDGET)
    read_turns(text, turns)
    dialog = text.dialog()
    trace = simulate(text.policy, dialog, BUDGET)
    gone = next(token for token in range(len(text.ids)) if token not in text.held)
    last = len(text.ends) - 1
    assert "not in the cache" in sentences(explain(trace, dialog, 0, last, gone))[0]
    kept = sentences(explain(trace, dialog, 0, last, int(text.held[0])))
    assert kept[0].endswith(f"was kept in turn {last}.")


def test_a_policy_by_attention_is_refused_with_those_that_work(llama: Any) -> None:
    for name, needs in (
        ("h2o", "attention"),
        ("fd-kvc", "attention"),
        ("keydiff", "keys"),
        ("expected-attention", "queries"),
    ):
        with pytest.raises(ValueError, match=rf"needs {needs}.*fifo, sink, .*learned"):
            LlamaText(llama, read_policy(name), BUDGET)
    with pytest.raises(ValueError, match="future"):
        LlamaText(llama, read_policy("oracle"), BUDGET)
    with pytest.raises(ValueError, match=r"budget.*1,023"):
        LlamaText(llama, read_policy("sink"), 1024)
    with pytest.warns(FirstTokensWarning):
        LlamaText(llama, read_policy("fifo"), BUDGET)


def test_it_goes_back_within_a_turn(llama: Any, turns: list[tuple[int, ...]]) -> None:
    text = LlamaText(llama, read_policy(KEEPER), BUDGET)
    read_turns(text, turns[:3])
    count = len(text.ids)
    expected = text.read(turns[3], last=None)
    text.go_back(count)
    assert len(text.ids) == count
    np.testing.assert_array_equal(text.read(turns[3], last=None), expected)
    with pytest.raises(ValueError, match="place"):
        text.go_back(0)


def test_a_long_prompt_goes_through_a_small_context(small: Any, model: LanguageModel) -> None:
    dialogs = dialogs_of("dialogues")
    encoded, _ = model.tokens.encode(" ".join(text for dialog in dialogs for text in dialog.texts))
    ids = encoded[:700]
    for positions in ("kept", "slots"):
        text = LlamaText(small, read_policy(KEEPER), BUDGET, positions=positions)
        logits = text.read(ids, last=3)
        assert logits.shape == (3, 49152)
        assert text.ids == list(ids)
        assert all(end - start <= small.n_ctx() for start, end in pairwise([0, *text.ends]))
        text.end_turn()
        assert text.held[0] == 0
        assert len(text.held) == BUDGET
        # The parts of a passage are seen as what they are: words of one speaker.
        kept = simulate(text.policy, text.dialog(), BUDGET).kept_tokens[0, -1]
        assert sorted(kept[kept >= 0].tolist()) == text.held.tolist()
        text.read(ids[:1])
        assert (text._context_positions.tolist() == [*range(BUDGET + 1)]) == (positions == "slots")


def test_kept_positions_close_up_at_the_end_of_the_model(
    small: Any, turns: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_cpp, "llama_model_n_ctx_train", lambda model: 200)
    text = LlamaText(small, read_policy(KEEPER), BUDGET)
    for ids in turns * 2:
        text.read(ids)
        text.end_turn()
        assert text._context_positions[-1] < 200
    assert len(text.ids) > 200
    monkeypatch.setattr(llama_cpp, "llama_memory_can_shift", lambda memory: False)
    with pytest.raises(ValueError, match="cannot be shifted"):
        LlamaText(small, read_policy(KEEPER), BUDGET, positions="slots")
    text = LlamaText(small, read_policy(KEEPER), BUDGET)
    with pytest.raises(ValueError, match="last position"):
        read_turns(text, turns * 2)


@pytest.mark.parametrize(
    ("function", "value", "words"),
    [
        ("llama_model_n_swa", 512, "sliding window"),
        ("llama_model_is_recurrent", True, "recurrent"),
        ("llama_model_is_hybrid", True, "recurrent"),
    ],
)
def test_models_of_which_some_layers_forget_by_themselves_are_refused(
    small: Any, monkeypatch: pytest.MonkeyPatch, function: str, value: Any, words: str
) -> None:
    monkeypatch.setattr(llama_cpp, function, lambda model: value)
    with pytest.raises(ValueError, match=words):
        LlamaText(small, read_policy("sink"), BUDGET)


def test_options_of_the_context_stay_those_of_the_user(
    llama: Any, turns: list[tuple[int, ...]]
) -> None:
    q8 = llama_cpp.GGML_TYPE_Q8_0
    other = new_llama(flash_attn=True, type_k=q8, type_v=q8, n_ubatch=16)
    for positions in ("kept", "slots"):
        texts = [
            LlamaText(context, read_policy(KEEPER), BUDGET, positions=positions)
            for context in (llama, other)
        ]
        ours, theirs = (read_turns(text, turns[:5]) for text in texts)
        assert texts[0].held.tolist() == texts[1].held.tolist()
        assert 0 < kl(ours, theirs).mean() < 0.02


def test_surprisal_may_be_that_of_the_models_predictions(
    llama: Any, turns: list[tuple[int, ...]]
) -> None:
    full = LlamaText(llama, read_policy("full"), 1)
    logits = read_turns(full, turns[:3]).astype(np.float64)
    total = np.log(np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1))
    total += logits.max(axis=1)
    ids = np.array(full.ids)
    nats = np.concatenate(
        [[np.log(49152)], (total[:-1] - logits[np.arange(len(ids) - 1), ids[1:]])]
    )
    policy = read_policy("surprisal redundancy=1")
    text = LlamaText(llama, policy, 512, surprisal="model")
    read_turns(text, turns[:3])
    seen = text.dialog().surprisal
    assert seen is not None
    np.testing.assert_allclose(seen[0], nats, atol=2e-3)


def test_its_tokens_are_those_of_the_file(llama: Any, model: LanguageModel) -> None:
    tokens, expected = llama_tokens(llama), model.tokens
    names = ("first", "marks", "end", "closing", "prompt", "openings", "calls_as_json")
    assert {name: getattr(tokens, name) for name in names} == {
        name: getattr(expected, name) for name in names
    }
    for text in [*drawn_texts()[:200], "<|im_start|>system\n<|im_end|>", ""]:
        ids, spans = expected.encode(text)
        assert tokens.encode(text) == (ids, spans)
        assert tokens.text(ids) == expected.text(ids)


def test_a_chat_streams_in_a_fixed_context(small: Any) -> None:
    chat = PolicyChat(small, read_policy(KEEPER), BUDGET)
    parts = [*chat.say("What is the capital of Slovenia?")]
    assert len(parts) > 3
    assert "Ljubljana" in "".join(parts)
    rounds = 0
    while len(chat.ids) <= small.n_ctx():  # how long an answer is depends on the processor
        assert "".join(chat.say("Tell me more about it, please.", most=40))
        assert len(chat.held) <= BUDGET
        assert (rounds := rounds + 1) < 20
    assert "holds 64 of" in repr(chat)

    stopped = chat.fork().say("And about its river?")
    next(stopped)
    stopped.close()  # which ends the answer, and the chat can go on
    assert [*chat.say("Is <|im_end|> a mark? Answer yes or no.", most=5)]


def test_an_answer_longer_than_the_context_is_several_turns(small: Any) -> None:
    policy = read_policy("whitelist(learned, first=1, speaker=system)")
    chat = PolicyChat(small, policy, small.n_ctx() - 40)
    chat.add("Write a long story about a bear.", "system")

    def never_ends(logits: Floats) -> int:
        return int(np.where(np.arange(len(logits)) == chat.tokens.end, -np.inf, logits).argmax())

    written = "".join(chat.say("And one about its mother, please.", most=300, choose=never_ends))
    assert len(chat.ids) > small.n_ctx() + 20
    assert len(chat.ends) > 4
    assert len(chat.text(range(chat.ends[1], len(chat.ids)))) >= len(written)
    speakers = chat.dialog().speakers
    assert speakers is not None
    assert set(speakers[0, chat.ends[1] :].tolist()) == {1}


@pytest.fixture
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FirstTokensWarning)
        yield


@pytest.mark.usefixtures("quiet")
def test_the_command_measures_answers_in_llama(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dialogs = str(EXAMPLES / "dialogues.json")
    arguments = ["live", "--engine", "llama.cpp", "--model", "smollm2", "--dialogs", dialogs]
    arguments += ["--policies", "sink", "reread(fifo)", "--budgets", "64", "--decides", "model"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    assert {"sink", "reread(fifo)"} <= {*capsys.readouterr().out.split()}
    assert "values_right," in (tmp_path / "answers_summary.csv").read_text("utf-8")
    wrong = [*arguments[:-2], "--out", str(tmp_path)]
    assert main(wrong) == 2
    assert "decides must be model" in capsys.readouterr().err


def test_the_documents_example_goes_on_in_a_fixed_context() -> None:
    text = DOCUMENT.read_text("utf-8").partition("## In llama.cpp")[2]
    names = {"path": str(find_model("smollm2"))}
    example = doctest.DocTestParser().get_doctest(text, names, "README.md", str(DOCUMENT), 0)
    ran = doctest.DocTestRunner().run(example)
    assert ran.attempted > 6
    assert ran.failed == 0


def test_a_pinned_system_prompt_stays_in_a_chat(llama: Any) -> None:
    chat = PolicyChat(llama, read_policy(PINNED), BUDGET)
    chat.add("Never book a seat by the door.", "system", "system")
    size = len(chat.ids)
    assert size < BUDGET
    while len(chat.ids) < 3 * BUDGET:
        "".join(chat.say("Two seats to Piran, please, and one for a dog.", most=8))
        assert chat.held[:size].tolist() == [*range(size)]
    assert len(chat.held) == BUDGET
    own = PolicyChat(llama, read_policy(PINNED), BUDGET)  # the model's own
    while len(own.ids) < 3 * BUDGET:
        own.add("Two seats to Piran, please, and one for a dog.")
    size = len(own.tokens.prompt)
    assert own.held[:size].tolist() == [*range(size)]


def test_what_changes_nothing_in_llama_is_warned_of(llama: Any) -> None:
    with pytest.warns(UserWarning, match="There is one layer here"):
        LlamaText(llama, read_policy("pyramid(sink)"), BUDGET)
