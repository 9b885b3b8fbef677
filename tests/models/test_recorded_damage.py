"""A recorded reading is what the model says, and what is shown of it comes from the recording."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import escape, unescape
from typing import Any

import numpy as np
import pytest

from benchmarks.smollm2 import (
    BUDGET,
    DIALOG,
    POLICIES,
    attention_received,
    damage_json,
    record_damage,
)
from fdkvc.conversations.formats import EXAMPLES, read_file, read_transcripts
from fdkvc.core.words import rate
from fdkvc.models.damage import (
    SHIPPED,
    Damage,
    RecordedDamage,
    Text,
    dialog_text,
    read_damage,
    read_recorded,
    shipped_damage,
)
from fdkvc.models.numpy.language_model import (
    LanguageModel,
    load_language_model,
    shared_language_model,
)
from fdkvc.models.numpy.text_cache import read
from fdkvc.models.report.damage import attended_columns, damage_html, damage_sentences
from fdkvc.policies import policy_named, read_policy
from tests.hostile import HOSTILE, hostile_dialogs
from tests.language_models import write_model

PREFIX = 6
"""Passages that the real model reads again."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return load_language_model(write_model(tmp_path_factory.mktemp("recorded"), seed=3))


@pytest.fixture(scope="module")
def recorded(model: LanguageModel) -> RecordedDamage:
    (dialog,) = read_transcripts(hostile_dialogs(), "hostile.json")
    began: list[str] = []
    policies = [policy_named("fifo"), policy_named("sink")]
    damage = record_damage(model, dialog, policies, 40, began.append)
    assert began == ["fifo", "sink"]
    return damage


def same(one: Damage, other: Damage) -> None:
    assert one.text == other.text
    assert [hurt.word for hurt in one.hurt] == [hurt.word for hurt in other.hurt]
    for name in ("full_nats", "nats", "kl"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-4)


def test_a_recording_is_read_as_it_was_written(
    model: LanguageModel, recorded: RecordedDamage
) -> None:
    again = read_recorded(damage_json(recorded))

    for name in ("model", "parameters", "dialog", "budget", "text"):
        assert getattr(again, name) == getattr(recorded, name)
    assert list(again.damages) == ["fifo", "sink"]
    for name, damage in recorded.damages.items():
        same(damage, again.damages[name])
        assert damage.hurt
        for hurt, other in zip(damage.hurt, again.damages[name].hurt, strict=True):
            assert other == hurt
    full = model.full()
    read([full], recorded.text.ids)
    expected = attention_received(full).mean(axis=1)
    np.testing.assert_allclose(again.received, expected, atol=6e-4)
    assert damage_json(again) == damage_json(read_recorded(damage_json(again)))


def test_hostile_words_stay_words_in_what_is_shown(recorded: RecordedDamage) -> None:
    damage = recorded.damages["fifo"]
    shown = damage_html(damage, HOSTILE)

    assert "<img" not in shown
    assert "onerror" in shown
    tags = re.findall(r"<(\w+)", shown)
    known = "div span mark i b small details summary table thead tbody tr th td"
    assert {*tags} <= {*known.split()}
    words = unescape(re.sub(r"<[^>]*>", " ", shown.replace(escape(HOSTILE), "")))
    for word in damage.text.words:
        assert word.text in words


def test_what_is_said_of_damage_is_counted_again(recorded: RecordedDamage) -> None:
    damage = recorded.damages["fifo"]
    said, counted, healed = damage_sentences(damage, "FIFO")

    mean = np.mean(damage.kl[1:])
    assert f"{100 * (1 - np.exp(-mean)):.0f} % less likely" in said
    assert f"KL of {mean:.3f} nats per token" in said
    falling = sorted(damage.of_words, reverse=True)
    half = next(n for n in range(len(falling)) if sum(falling[:n]) >= sum(falling) / 2)
    assert f"Half of this KL is in {half:,} of {len(falling):,} words" in healed
    before = sum(damage.of_words[at] for at in damage.restored)
    after = sum(hurt.restored or 0 for hurt in damage.hurt)
    assert f"changes their KL from {before:,.1f} to {after:,.1f} nats." in healed
    assert damage.changed is not None
    assert rate(float(np.mean(damage.changed[1:]))) in counted
    assert len(damage_sentences(replace(damage, hurt=(), changed=None), "FIFO")) == 1


def test_every_tint_is_on_one_scale_and_the_explained_words_open(recorded: RecordedDamage) -> None:
    damage = recorded.damages["fifo"]
    shown = damage_html(damage, "FIFO").partition('<div class="hurt" ')[2]

    tinted = re.findall(r'style="--share:([\d.]+)"', shown)
    expected = [f"{min(kl / 4, 1):.2f}" for kl in damage.of_words if kl >= 0.05]
    assert tinted == expected
    opened = re.findall(r'<details name="hurt"><summary [^>]*>(.*?)</summary>', shown)
    by_place = sorted(damage.hurt, key=lambda hurt: hurt.word)
    assert [unescape(re.sub("<.*?>", "", text)) for text in opened] == [
        damage.text.words[hurt.word].text for hurt in by_place
    ]
    for hurt in damage.hurt:
        if hurt.restored is not None:
            assert f"<b>{hurt.restored:.2f}</b> if the turn is read again" in shown
        for cause in hurt.causes:
            assert f"in layer {cause.layer}, head {cause.head}</td>" in shown


# ------------------------------------------------------------------------------- what is shipped


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(SHIPPED.read_text("utf-8"))
    return content


def test_the_shipped_recording_is_of_the_example_and_small(stored: dict[str, Any]) -> None:
    (dialog,) = read_file(EXAMPLES / DIALOG)
    recorded = shipped_damage()

    assert SHIPPED.stat().st_size < 1_000_000
    assert recorded.dialog == dialog.name
    assert recorded.budget == BUDGET
    assert list(recorded.damages) == [read_policy(name).name for name in POLICIES]
    assert recorded.received.shape == (30, len(stored["ids"]))
    said = " ".join(word.text for word in recorded.text.words)
    assert all(word in said for text in dialog.texts for word in text.split())
    for damage in recorded.damages.values():
        assert damage.kl.min() >= 0
        falling = [damage.of_words[hurt.word] for hurt in damage.hurt]
        assert falling == sorted(falling, reverse=True)
        assert falling[0] == damage.of_words.max()


def test_its_first_token_is_a_sink_that_heals_what_fifo_loses(stored: dict[str, Any]) -> None:
    mean = np.mean(stored["received"], axis=0)
    kl = {name: np.mean(of["kl"][1:]) for name, of in stored["damages"].items()}

    assert mean.argmax() == 0
    assert mean[0] > 4 * np.sort(mean)[-2]
    assert kl["sink"] < 0.6 * kl["fifo"]
    columns = attended_columns(shipped_damage())
    assert columns["token"][0] == "0"
    assert columns["of the word"][0] == "<|im_start|>"
    assert columns["attention"][0] == f"{100 * mean[0]:.1f} %"


@pytest.mark.smollm2
def test_the_model_says_what_is_recorded(stored: dict[str, Any]) -> None:
    model = shared_language_model("smollm2")
    (dialog,) = read_file(EXAMPLES / DIALOG)
    whole = dialog_text(model.tokens, dialog)
    recorded = shipped_damage()
    assert whole == recorded.text

    end = whole.parts[PREFIX].first
    words = tuple(word for word in whole.words if word.end <= end)
    text = Text(whole.ids[:end], whole.parts[:PREFIX], words)
    for name in ("sink", "fd-kvc"):
        again = read_damage(model, model.evicting(policy_named(name), BUDGET), text)
        damage = recorded.damages[name]
        assert again.kl.max() > 0.1
        np.testing.assert_allclose(again.kl, damage.kl[:end], atol=2e-3)
        np.testing.assert_allclose(again.nats, damage.nats[:end], atol=5e-3)
        np.testing.assert_allclose(again.full_nats, damage.full_nats[:end], atol=5e-3)
        explained = {hurt.word: hurt.causes for hurt in again.hurt}
        for hurt in damage.hurt:
            if hurt.word < len(words):
                causes = explained[hurt.word]
                assert [cause.word for cause in causes] == [cause.word for cause in hurt.causes]
                if hurt.restored is not None:
                    restored = again.restored[hurt.word]
                    assert restored == pytest.approx(hurt.restored, abs=0.02)
