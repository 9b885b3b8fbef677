"""Texts in llama.cpp pass the checks, and what goes wrong around its contexts is found by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp
import pytest

from fdkvc.engine.sinks import sinks_of
from fdkvc.models.llama_cpp import chat as llama_module
from fdkvc.models.llama_cpp.chat import LlamaText
from fdkvc.models.llama_cpp.model import LlamaModel, load_llama
from fdkvc.models.numpy.language_model import load_language_model
from fdkvc.policies import read_policy
from tests.language_models import gguf_bytes, gguf_parts, write_model
from tests.models.conformance.checks import Fault, checks
from tests.models.conformance.decoder_adapter import DecoderModel
from tests.models.conformance.llama_adapter import LlamaTurns
from tests.models.conformance.subject import Subject

BUDGET = 12
EVERY = 3
NEWEST_GO = "sinks(surprisal window=0 redundancy=1)"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_model(tmp_path_factory.mktemp("model"))
    (path := folder / "model.gguf").write_bytes(gguf_bytes(*gguf_parts(folder)))
    return path


@pytest.fixture(scope="module")
def model(file: Path) -> LlamaModel:
    single = {"type_k": llama_cpp.GGML_TYPE_F32, "type_v": llama_cpp.GGML_TYPE_F32}
    return load_llama(file, n_ctx=512, n_batch=8, n_threads=1, n_threads_batch=1, **single)


@pytest.fixture(scope="module")
def full(file: Path) -> DecoderModel:
    return DecoderModel(load_language_model(file).decoder)


@contextmanager
def failing() -> Iterator[None]:
    """Let llama.cpp read the first part of a turn, and no other."""
    decode, calls = llama_cpp.llama_decode, []

    def decode_once(context: Any, batch: Any) -> int:
        calls.append(batch)
        return int(decode(context, batch)) if len(calls) == 1 else 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llama_cpp, "llama_decode", decode_once)
        yield


def subject(
    model: LlamaModel,
    full: DecoderModel,
    key: str,
    positions: str = "kept",
    text: Callable[..., LlamaText] = LlamaText,
) -> Subject:
    policy = read_policy(key)

    def begin(samples: int) -> LlamaTurns:
        new = text(model.decoder.llama, policy, BUDGET, positions=positions)
        return LlamaTurns(new, model.decoder.shape, EVERY)

    return Subject(
        begin,
        full,
        BUDGET,
        every=EVERY,
        sinks=sinks_of(policy, BUDGET),
        positions="slots" if positions == "slots" else "last",
        forks=True,
        failing=failing,
    )


@pytest.mark.filterwarnings("ignore::fdkvc.engine.sinks.FirstTokensWarning")
@pytest.mark.parametrize("positions", ["kept", "slots"])
@pytest.mark.parametrize(
    "key", ["sink", "shift keep=4", "surprisal", "sinks(surprisal)", "learned", NEWEST_GO]
)
def test_a_text_in_llama_passes(
    model: LlamaModel, full: DecoderModel, key: str, positions: str
) -> None:
    right = subject(model, full, key, positions)
    assert len(checks(right)) >= 8
    for check in checks(right):
        check(right)


class AfterAll(LlamaText):
    """The next token follows all that were read, though llama.cpp takes only the next position."""

    @property
    def _next(self) -> int:
        return len(self.ids)


class SharesCells(LlamaText):
    """Its fork has the same cells of the context, as after `llama_memory_seq_cp`."""

    def fork(self, count: int | None = None) -> Any:
        fork: Any = super().fork(count)
        llama_module._IN_CONTEXT[self.llama] = lambda: fork
        fork._bring = lambda: None
        return fork


class ShiftsTooEarly(LlamaText):
    """It asks for a shift at the end of a turn, and stores its state before that is done."""

    def end_turn(self) -> list[int]:
        evicted = super().end_turn()
        self._close_gaps()
        return evicted


class LeavesHalf(LlamaText):
    """The tokens read before a failure stay in the context."""

    def _decode(self, ids: Any, skipped: int) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(llama_cpp, "llama_memory_seq_rm", lambda *_: True)
            return super()._decode(ids, skipped)


class NeverAsks(LlamaText):
    """It shifts the positions of a model that cannot do so."""

    def _close_gaps(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(llama_cpp, "llama_memory_seq_add", lambda *_: None)
            super()._close_gaps()


WRONG = {
    AfterAll: ("counts_other_positions", NEWEST_GO, "kept", "cannot read on: llama.cpp could not"),
    SharesCells: ("changes_with_its_fork", "sink", "slots", "fork"),
    ShiftsTooEarly: ("changes_with_its_fork", "sink", "slots", "after its fork has read, its out"),
    LeavesHalf: ("keeps_half_of_a_failed_turn", "sink", "kept", "cannot read on: llama.cpp could"),
    NeverAsks: ("counts_other_positions", "sink", "slots", "cannot read on: llama.cpp could not"),
}
"""A text around each trap of llama.cpp, and the check that finds it."""


@pytest.mark.parametrize("text", WRONG)
def test_a_trap_of_llama_is_found(
    model: LlamaModel, full: DecoderModel, text: type[LlamaText]
) -> None:
    name, key, positions, sentence = WRONG[text]
    wrong = subject(model, full, key, positions, text)
    (check,) = (check for check in checks(wrong) if check.__name__ == name)
    with pytest.raises(Fault, match=sentence):
        check(wrong)


def test_a_model_that_cannot_shift_is_refused(
    model: LlamaModel, full: DecoderModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_cpp, "llama_memory_can_shift", lambda memory: False)
    with pytest.raises(ValueError, match="cannot be shifted"):
        subject(model, full, "sink", "slots").begin(1)
