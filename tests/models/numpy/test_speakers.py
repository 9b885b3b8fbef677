"""Who says each token that a model reads: the system prompt is known there, and can be pinned."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdkvc.core.attention import SPEAKERS
from fdkvc.core.transcripts import Transcript, Turn
from fdkvc.explain.notes import pinned_notes
from fdkvc.models.answers import Answers, run_answers
from fdkvc.models.numpy import BUNDLED
from fdkvc.models.numpy.chat import Chat
from fdkvc.models.numpy.head_eviction import deciding
from fdkvc.models.numpy.language_model import LanguageModel, load_language_model
from fdkvc.models.numpy.text_cache import read
from fdkvc.policies import policy_named, read_policy, with_pinned_prompts
from fdkvc.policies.base import Available
from tests.language_models import write_model

PINNED = read_policy("whitelist(fifo, first=0, speaker=prompt, most=1)")
USER, SYSTEM, PROMPT = range(len(SPEAKERS))
MARKS = ("<|im_start|>", "<|im_end|>", "<pad>")
CHATML = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe brief.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TALK = (
    Turn("system", "Never book a seat near the door of the ship.", kind="system"),
    Turn("user", "Two seats to Piran, please, and one for a dog."),
    Turn("assistant", "Of course: at noon or in the evening?"),
    Turn("user", "In the evening, when it is cool, if there are some left by then."),
    Turn("assistant", "Booked."),
)
DIALOG = Transcript("ship", TALK)


def write_chat_model(folder: Path, **config: Any) -> Path:
    """Write a model with the chat template of these tests."""
    write_model(folder, marks=MARKS, **config)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, LanguageModel]:
    """Return models with marks of their own, with a chat template, and that read lines."""
    folder = write_model(tmp_path_factory.mktemp("chat"), marks=MARKS, max_position_embeddings=4096)
    lines = load_language_model(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    chatml = load_language_model(folder)
    assert chatml.tokens.calls_as_json
    assert not lines.tokens.calls_as_json
    return {"own marks": load_language_model(BUNDLED), "template": chatml, "lines": lines}


KINDS = ("own marks", "template", "lines")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decides", ["head", "model"])
def test_a_pinned_system_prompt_stays_in_a_model(
    models: Mapping[str, LanguageModel], kind: str, decides: str
) -> None:
    model = models[kind]
    passages = model.tokens.encode_dialog(DIALOG)
    size = len(model.tokens.first) + len(passages[0].ids)
    cache = model.evicting(PINNED, size + 9, decides)
    if model.tokens.first:
        read([cache], model.tokens.first, last=0)
    for at, passage in enumerate(passages):
        cache.turn_kind = passage.passage.kind
        read([cache], passage.ids, last=0)
        cache.end_turn()
        assert cache.attended is not None
        held = cache.attended.reshape(-1, cache.attended.shape[-1])
        for row in held:
            assert {*range(size)} <= {*row.tolist()}
        assert (held >= size).any() == bool(at)
    assert cache.count > 2 * size


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_answers_measure_another_cache_where_a_prompt_is_pinned(
    models: Mapping[str, LanguageModel], kind: str
) -> None:
    model = models[kind]
    policies = policy_named("fifo"), PINNED, read_policy("sinks(fifo)")
    for every in (None, 3):
        asked = Answers(policies, (40,), every=every)
        table = run_answers(asked, model, [DIALOG], workers=1)
        kl = table[table.metric == "kl"].set_index("policy")["value"]
        assert kl[PINNED.name] != kl["fifo"]
    without = replace(DIALOG, turns=TALK[1:])
    table = run_answers(asked, model, [without], workers=1)
    kl = table[table.metric == "kl"].set_index("policy")["value"]
    assert (kl[PINNED.name] == kl["fifo"]) == (kind != "template"), "which has its own prompt"


def test_a_chat_knows_its_prompt(models: Mapping[str, LanguageModel]) -> None:
    for model in models.values():
        cache = model.evicting(PINNED, 120)
        chat = Chat(model, {"pinned": cache})
        chat.add_message(TALK[0].text, "system", "system")
        size = cache.count
        for _ in range(3):
            chat.add_message(TALK[1].text * 2)
            for _ in chat.answer(most=8):
                pass
        chat.add_message(TALK[3].text)
        assert cache.attended is not None
        assert (np.sort(cache.attended)[..., :size] == np.arange(size)).all()


def test_each_message_of_a_text_has_its_speaker(models: Mapping[str, LanguageModel]) -> None:
    tokens = models["template"].tokens
    assert tokens.speakers == SPEAKERS
    assert models["lines"].tokens.speakers == models["own marks"].tokens.speakers == SPEAKERS[:2]
    passages = tokens.encode_dialog(DIALOG)
    joined = [token for passage in passages for token in passage.ids]
    expected = [
        speaker
        for passage, speaker in zip(passages, (PROMPT, USER, SYSTEM, USER, SYSTEM), strict=True)
        for _ in passage.ids
    ]
    assert tokens.features(joined, {"speakers"})["speakers"].tolist() == expected
    apart = [tokens.features(part.ids, {"speakers"}, part.passage.kind) for part in passages]
    assert np.concatenate([part["speakers"] for part in apart]).tolist() == expected
    # A text that begins with spaces may share a token with the end of the mark before it.
    spaced = tokens.encode_passage(passages[1].passage).ids[:-2]
    tokens.tokenizer.encode_special_tokens = False
    whole = tokens.tokenizer.encode("<|im_start|>user\n\n  Two").ids
    tokens.tokenizer.encode_special_tokens = True
    for ids in (spaced, whole):
        assert {*tokens.features(ids, {"speakers"})["speakers"].tolist()} == {USER}
    middle = tokens.features(tokens.encode("in the middle")[0], {"speakers"})["speakers"]
    assert {*middle.tolist()} == {-1}, "as the turn before"


def test_what_is_pinned_in_vain_is_said(models: Mapping[str, LanguageModel]) -> None:
    pinned = with_pinned_prompts([policy_named("fifo")])
    without = replace(DIALOG, turns=TALK[1:])
    nothing = ["No dialog has a system prompt, so pinning it changes nothing."]
    for kind in ("own marks", "lines"):
        assert pinned_notes([without], pinned, [40], models[kind].tokens.prompt_size) == nothing
    tokens = models["template"].tokens
    own, given = len(tokens.prompt), len(tokens.encode_dialog(DIALOG)[0].ids)
    for dialog, size in ((without, own), (DIALOG, given)):
        assert pinned_notes([dialog], pinned, [2 * size], tokens.prompt_size) == []
        assert pinned_notes([dialog], pinned, [8], tokens.prompt_size) == [
            "At 8 entries, only the first words of the pinned prompt stay: the longest has "
            f"{size} tokens."
        ]


@pytest.mark.parametrize("wrapper", ["ada-heads", "pyramid"])
@pytest.mark.parametrize("decides", ["head", "layer", "model"])
def test_what_is_said_to_change_nothing_changes_nothing(
    models: Mapping[str, LanguageModel], wrapper: str, decides: str
) -> None:
    model, shape = models["own marks"], models["own marks"].decoder.shape
    policy = read_policy(f"{wrapper}(h2o)")
    counted: Any = deciding(decides, shape.kv_heads, shape.layers)
    told = policy.without_effect(Available(**counted))
    held: list[Any] = []
    for one in (policy, read_policy("h2o")):
        cache = model.evicting(one, 24, decides)
        for passage in model.tokens.encode_dialog(DIALOG):
            read([cache], passage.ids, last=0)
            cache.end_turn()
        held.append(cache.attended)
    assert np.array_equal(held[0], held[1]) == bool(told)
