"""Texts in llama.cpp pass the checks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest

from fdkvc.core.attention import Floats, Ints
from fdkvc.engine.sinks import sinks_of
from fdkvc.models.llama_cpp.chat import LlamaText
from fdkvc.models.llama_cpp.model import LlamaModel, load_llama
from fdkvc.models.numpy.decoder import ModelSizes
from fdkvc.models.numpy.language_model import load_language_model
from fdkvc.policies import read_policy
from tests.language_models import gguf_bytes, gguf_parts, write_model
from tests.models.conformance.checks import Fault, checks
from tests.models.conformance.decoder_adapter import DecoderModel
from tests.models.conformance.subject import Subject, TurnCache

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


class LlamaTurns(TurnCache):
    """A text in llama.cpp, which refuses several."""

    def __init__(self, text: LlamaText, shape: ModelSizes) -> None:
        def read(tokens: Ints) -> Floats:
            if len(tokens) > 1:
                raise ValueError("a context of llama.cpp has one text at a time")
            return text.read(tokens[0].tolist(), last=None)[None]

        def held() -> Ints:
            return np.broadcast_to(text.held, (1, shape.layers, shape.kv_heads, len(text.held)))

        self.fork = lambda: LlamaTurns(text.fork(), shape)
        super().__init__(read, held, text.end_turn, EVERY)


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
        return LlamaTurns(new, model.decoder.shape)

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


class LeavesHalf(LlamaText):
    """The tokens read before a failure stay in the context."""

    def _decode(self, ids: Any, skipped: int) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(llama_cpp, "llama_memory_seq_rm", lambda *_: True)
            return super()._decode(ids, skipped)


def test_half_of_a_failed_turn_is_found(model: LlamaModel, full: DecoderModel) -> None:
    wrong = subject(model, full, "sink", text=LeavesHalf)
    (check,) = (check for check in checks(wrong) if "failed" in check.__name__)
    with pytest.raises(Fault, match=r"cannot read on: llama\.cpp could not read"):
        check(wrong)
