"""One dialog, model and policy through `fdkvc.models.numpy` and through *transformers*: the same
cache.

*transformers* has a `PolicyCache`, its own tokenizer and its own rendering of the chat template, as
a user of that library has them.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, cycle
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from fdkvc.models.numpy.chat import Chat
from fdkvc.models.numpy.gguf_file import find_model
from fdkvc.models.numpy.language_model import (
    LanguageModel,
    load_language_model,
    shared_language_model,
)
from fdkvc.models.numpy.model_text import Passage
from fdkvc.models.numpy.text_cache import read
from fdkvc.models.transformers.cache import PolicyCache
from fdkvc.policies import read_policy
from fdkvc.verdict.card import Way
from fdkvc.verdict.settings import settings_of
from tests.examples import dialogs_of
from tests.language_models import write_model
from tests.library import CACHE
from tests.models.numpy.test_chat_template import CHATML, MARKS
from tests.models.numpy.test_smollm2 import NO_ACCELERATE
from tests.worlds import STREAMING_POLICIES

BY_TEXT = (
    "fifo",
    "sink",
    "surprisal",
    "sinks(surprisal)",
    "learned",
    "whitelist(fifo, first=0, speaker=user)",
    "whitelist(sink, first=0, words=hello)",
)
"""Policies that see no attention; `surprisal` compares hidden states with a threshold."""

BY_BITS = "random"
"""It draws by the bits of keys, which are rounded otherwise."""

OTHERS = (
    *(key for key in STREAMING_POLICIES if key not in (*BY_TEXT, BY_BITS, "full")),
    *("sinks(fd-kvc tau=0.9)", "pyramid(h2o)", "pyramid(fd-kvc, last=0.2)"),
)
CLOSE = 1e-3
"""Nats of KL between the two predictions of a token."""


@dataclass(frozen=True)
class Pair:
    """A model of `fdkvc.models.numpy`, the same in *transformers*, and its tokenizer there."""

    lm: LanguageModel
    model: Any
    tokenizer: Any

    def read(self, cache: Any, ids: Any) -> Any:
        """Read the next tokens in *transformers*, and return the logits after each (n, V)."""
        return self.model(torch.tensor([ids]), **{CACHE: cache}).logits[0].numpy()

    def template(self, chat: list[dict[str, str]], **how: Any) -> list[int]:
        """Return the tokens of a chat by its template."""
        ids = self.tokenizer.apply_chat_template(chat, tokenize=True, return_dict=True, **how)
        return list(ids["input_ids"])

    def turns(self, count: int) -> Iterator[list[int]]:
        """Yield the tokens that each message of a dialog adds, by the template."""
        chat: list[dict[str, str]] = []
        seen = 0
        for turn in dialogs_of("chat")[0].turns[:count]:
            role = "user" if turn.speaker == "user" else "assistant"
            chat.append({"role": role, "content": turn.text})
            ids = self.template(chat)
            yield ids[seen:]
            seen = len(ids)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("chat")
    write_model(folder, seed=3, marks=MARKS, max_position_embeddings=4096)
    # The library's clean-up of spaces before punctuation is no part of what a token says.
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": True}
    about |= {"chat_template": CHATML, "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return Pair(
        load_language_model(folder),
        transformers.AutoModelForCausalLM.from_pretrained(folder).eval(),
        transformers.AutoTokenizer.from_pretrained(folder),
    )


def assert_agree(pair: Pair, policy: str, turns: int, decides: str = "head") -> None:
    """Assert that tokens are predicted alike, and heads keep the same entries in any order."""
    known, budget = read_policy(policy), 48
    ours: Any = pair.lm.evicting(known, budget, decides)
    how: dict[str, Any] = {"tokenizer": pair.tokenizer, "decides": decides}
    theirs = PolicyCache(known, budget, pair.model, **how)
    worst, different, heads = 0.0, 0, 0
    for ids in pair.turns(turns):
        predicted = read([ours], ids)[0]
        ours.end_turn()  # that of a prompt ends by itself in the library
        worst = max(worst, kl(predicted, pair.read(theirs, ids)))
        held = np.sort(theirs.held)
        assert ours.attended.shape == held.shape
        different += int((np.sort(ours.attended) != held).any(axis=-1).sum())
        heads += held[..., 0].size
    assert theirs.ends == ours.ends
    assert (held >= 0).sum() <= budget * held[..., 0].size
    assert budget < ours.count
    assert worst < CLOSE
    assert different <= (0.01 * heads if policy in OTHERS else 0)


def kl(first: Any, second: Any) -> float:
    """Return the largest KL of two predictions (n, V) by their logits, in nats."""
    one, other = (
        logits.astype(float) - np.logaddexp.reduce(logits.astype(float), axis=-1, keepdims=True)
        for logits in (first, second)
    )
    return float((np.exp(one) * (one - other)).sum(axis=-1).max())


def test_a_message_is_the_same_tokens_by_the_template(tiny: Pair) -> None:
    encoded = tiny.lm.tokens.encode_dialog(dialogs_of("chat")[0])[:9]
    assert [tuple(ids) for ids in tiny.turns(9)] == [passage.ids for passage in encoded]


@pytest.fixture(scope="module")
def smollm2() -> Pair:
    pytest.importorskip("accelerate", reason=NO_ACCELERATE)
    path = find_model("smollm2")
    folder, how = str(path.parent), {"gguf_file": path.name}
    return Pair(
        shared_language_model("smollm2"),
        transformers.AutoModelForCausalLM.from_pretrained(
            folder, **how, dtype=torch.float32
        ).eval(),
        transformers.AutoTokenizer.from_pretrained(folder, **how),
    )


@pytest.mark.smollm2
@pytest.mark.parametrize(
    "policy", ["fifo", "sink", "h2o", "surprisal", "whitelist(surprisal, first=1)", "fd-kvc"]
)
def test_smollm2_holds_the_same_entries(smollm2: Pair, policy: str) -> None:
    assert_agree(smollm2, policy, 5)


@pytest.mark.parametrize(
    ("policy", "decides"),
    [*zip([*BY_TEXT, *OTHERS], cycle(("head", "layer", "model")), strict=False)],
)
def test_the_same_entries_stay(tiny: Pair, policy: str, decides: str) -> None:
    assert_agree(tiny, policy, 6, decides)


@pytest.mark.skipif(CACHE != "cache", reason="transformers before 5.24 names the cache otherwise")
@pytest.mark.parametrize("policy", ["sinks(weighted-recency)", "sinks(learned)", "sink"])
def test_the_lines_that_a_card_prints_run(tiny: Pair, policy: str) -> None:
    snippet = settings_of(Way(policy, 9, 0.95, 9, 9), 100, "SmolLM2", estimated=False)[
        "transformers"
    ]
    ids = torch.tensor([[*chain.from_iterable(tiny.turns(3))]])
    turn = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    names = {"model": tiny.model, "tokenizer": tiny.tokenizer, "turn": turn}
    exec(snippet, names)
    cache: Any = names["cache"]
    assert isinstance(cache, PolicyCache)
    cache.end_turn()
    assert cache.held.shape[-1] == 9 < ids.shape[1]


def test_the_tokenizer_of_either_says_the_same_of_a_token(tiny: Pair) -> None:
    known, looks_at = read_policy("learned"), ("surprisal", "words", "traits")
    tokens = PolicyCache(known, 9, tiny.model, tokenizer=tiny.tokenizer)._tokens
    assert tokens is not None
    speakers = []
    for ids in tiny.turns(9):
        ours = tiny.lm.tokens.features(ids, looks_at)
        for name, column in tokens.features(ids, looks_at).items():
            np.testing.assert_array_equal(column, ours[name], name)
        # The passage that `generate` wrote is closed with the next prompt.
        after = tokens.features([*tokens.closing, *ids], looks_at)["speakers"]
        speakers.append(after[-1])
        assert {*after} == {*ours["speakers"]}
    assert speakers == [0, 1, 0, 1, 0, 1, 0, 1, 0]


def test_a_chat_whose_turns_end_as_ours_holds_the_same(tiny: Pair) -> None:
    known, tokens = read_policy("whitelist(surprisal, first=1)"), tiny.lm.tokens
    ours = Chat(tiny.lm, {"it": tiny.lm.evicting(known, 48)})
    cache = PolicyCache(known, 48, tiny.model, tokenizer=tiny.tokenizer, by_itself=False)
    ids: list[int] = []
    how: Any = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    for words in ("A train to Trieste, please.", "On Friday.", "Two seats, by the window."):
        ours.add_message(words)
        assert len([*ours.answer(most=5)]) == 5
        ids += tokens.encode_passage(
            Passage("user", words, 0), earlier_roles=() if not ids else ("user", "assistant")
        ).ids
        tiny.read(cache, ids[cache.seen :])
        cache.end_turn()
        prompt = torch.tensor([[*ids, *tokens.marks["system"]]])
        given = {"attention_mask": torch.ones_like(prompt), CACHE: cache}
        ids = [*tiny.model.generate(prompt, **given, **how)[0].tolist(), *tokens.closing]
        tiny.read(cache, ids[cache.seen :])
        cache.end_turn()
        closed = ours.fork()  # the next message ends the answer
        closed.add_message(words)
        mine: Any = closed.caches["it"]
        assert ids == mine.ids[: len(ids)]
        assert cache.ends == mine.ends[:-1]
        np.testing.assert_array_equal(np.sort(cache.held), np.sort(mine.attended_by_turn[-2]))
