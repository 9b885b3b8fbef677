"""The bytes of a file: compressed and in other encodings, read within limits or refused by name."""

import bz2
import gzip
import io
import lzma
import re
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.conversations import file_text
from fdkvc.conversations.formats import read_dialogs
from fdkvc.conversations.page.files import read_dialog_file
from tests.refusals import assert_read_or_refused, refused

TALK = '[{"role": "user", "content": "Ein Zelt für 3, 请"}]\n[{"role": "user", "content": "hi"}]'


def zipped(*names: str, method: int = zipfile.ZIP_DEFLATED, content: bytes = b"") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name in names:
            archive.writestr(name, content or TALK.encode())
    return file.getvalue()


def tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.json"))
    return file.getvalue()


READ: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("a.jsonl.gz", gzip.compress),
    "gzip in two parts": ("a.gz", lambda text: gzip.compress(text[:9]) + gzip.compress(text[9:])),
    "gzip by another name": ("a.jsonl", gzip.compress),
    "bzip2": ("A.JSONL.BZ2", bz2.compress),
    "xz": ("a.xz", lzma.compress),
    "ZIP": ("a.zip", lambda text: zipped("folder/", "folder/a.jsonl", content=text)),
    "ZIP from beside": ("a.zip", lambda text: zipped("../a.jsonl", content=text)),
    "ZIP of Windows": ("a.zip", lambda text: zipped("..\\a.jsonl", content=text)),
    "ZIP of a Mac": ("a.zip", lambda _: zipped("./a.jsonl", "__MACOSX/._a.jsonl", ".DS_Store")),
    "stored": ("a.zip", lambda _: zipped("a.jsonl", method=zipfile.ZIP_STORED)),
    "big-endian mark": ("a.jsonl", lambda text: ("\ufeff" + text.decode()).encode("utf-16-be")),
    "UTF-16 in xz": ("a.xz", lambda text: lzma.compress(text.decode().encode("utf-16"))),
}


def in_encoding(encoding: str) -> Callable[[bytes], bytes]:
    return lambda text: text.decode().encode(encoding)


ENCODINGS = ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
READ |= {encoding: ("a.jsonl", in_encoding(encoding)) for encoding in ENCODINGS}


@pytest.mark.parametrize("case", READ)
def test_the_same_dialogs_are_read_however_they_are_written(case: str) -> None:
    name, pack = READ[case]
    expected, _ = read_dialogs(TALK.encode(), "a.jsonl")
    assert read_dialogs(pack(TALK.encode()), name)[0] == expected
    assert read_dialog_file(pack(TALK.encode()), name).transcripts == expected


@pytest.mark.parametrize("pack", [gzip.compress, lambda text: zipped("log.txt", content=text)])
def test_the_name_within_decides_on_the_format(pack: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ValueError, match="line 1 has no speaker"):
        read_dialogs(pack(b"[10:03] hello"), "log.txt.gz")
    with pytest.raises(ValueError, match="line 1 is not JSON"):
        read_dialogs(gzip.compress(b"[10:03] hello"), "log.json.gz")
    with pytest.raises(ValueError, match="begin each turn with a heading, such as '## User'"):
        read_dialogs(b"# Notes\n\nThe gate uses port 8443.", "notes.md")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_known_by_its_bytes_where_no_mark_and_no_english_begins_it(encoding: str) -> None:
    text = "甲: 一张去广州的票\n乙: 好的, 一共4元\n" * 3
    expected, _ = read_dialogs(text.encode(), "a.txt")
    assert read_dialogs(text.encode(encoding), "a.txt")[0] == expected


def encrypted() -> bytes:
    content = bytearray(zipped("a.json"))
    for magic, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.index(magic) + flags] |= 1
    return bytes(content)


REFUSED: dict[str, tuple[bytes, str]] = {
    "several": (zipped("a.json", "b.txt"), "has 2 files (a.json, b.txt), but must have one"),
    "none": (zipped("a/"), "the archive has no file, but must have one"),
    "encrypted": (encrypted(), "the archive is encrypted"),
    "method": (zipped("a.json", method=zipfile.ZIP_LZMA), "compressed by method 14, but only"),
    "nested": (gzip.compress(gzip.compress(b"{}")), "holds another that is compressed with gzip"),
    "tar": (tar(), "the file is a tar archive, which is not read"),
    "tar.gz": (gzip.compress(tar()), "the file holds another that is a tar archive"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\0", "the file is compressed with Zstandard, which is not"),
    "Parquet": (b"PAR1\x15\4", "the file is a Parquet table"),
    "cut": (gzip.compress(TALK.encode())[:-9], "is compressed with gzip, but broken"),
    "cut xz": (lzma.compress(TALK.encode())[:-9], "compressed with xz, but broken: it ends too"),
    "cut ZIP": (zipped("a.json")[:-9], "the file is a ZIP archive, but broken"),
    "two xz": (lzma.compress(b"{") + lzma.compress(b"}"), "broken: it goes on after its end"),
    "parts": (gzip.compress(b"") * 10_001, "10,001 compressed parts, but at most 10,000"),
    "members": (zipped("a") + b"PK\1\2" * 10_000, "10,001 files, but at most 10,000"),
    "cut UTF-16": (TALK.encode("utf-16")[:-1], "begins as UTF-16 text, but goes on otherwise"),
    "Western": ("Kai: für".encode("cp1252"), "line 1 of the file is not UTF-8 text: save it"),
    "picture": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "the file is not text: give a file of text"),
    "ISO-2022-JP": ("Kai: 宿を".encode("iso2022_jp"), "the file is ISO-2022-JP text"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_read_is_named(case: str) -> None:
    content, sentence = REFUSED[case]
    with refused(re.escape(sentence)):
        read_dialogs(content, "a.json")


@pytest.mark.parametrize(
    "pack",
    [
        gzip.compress,
        partial(bz2.compress, compresslevel=1),
        partial(lzma.compress, preset=0),
        lambda content: zipped("a.json", content=content),
    ],
)
def test_a_bomb_is_not_unpacked_beyond_the_limit(
    pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_text, "MAX_DIALOG_FILE_BYTES", 100_000)
    content = pack(bytes(8_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="unpacks to more than 100,000 bytes"):
            read_dialogs(content, "a.json")
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_memory_to_unpack_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_text, "MAX_XZ_MEMORY_BYTES", 2**20)
    with pytest.raises(ValueError, match="xz, but broken: Memory usage limit"):
        read_dialogs(lzma.compress(b"{}"), "a.xz")


@given(st.sampled_from([*READ]), st.integers(0, 300), st.binary(max_size=4), st.integers(0, 4))
def test_a_changed_file_is_read_or_refused(case: str, at: int, new: bytes, cut: int) -> None:
    name, pack = READ[case]
    content = pack(TALK.encode())
    assert_read_or_refused(lambda: read_dialogs(content[:at] + new + content[at + cut :], name)[0])
