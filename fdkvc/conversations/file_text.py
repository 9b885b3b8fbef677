"""The text of a file of dialogs: unpacked within a limit, and decoded.

A file may be compressed by gzip, bzip2 or xz, or be a ZIP archive of one file. Text is UTF-8,
UTF-16 or UTF-32. Anything else is refused in a sentence that says what it is.
"""

import bz2
import gzip
import io
import json
import lzma
import re
import zipfile
from contextlib import AbstractContextManager

from fdkvc.core.limits import (
    MAX_DIALOG_FILE_BYTES,
    MAX_PACKED_PARTS,
    MAX_SAMPLED_BYTES,
    MAX_XZ_MEMORY_BYTES,
)
from fdkvc.core.parameters import check_most
from fdkvc.core.transcripts import clean_name
from fdkvc.core.words import as_value_error, first_three

PACKED_ENDINGS = ("gz", "bz2", "xz", "zip")
"""Endings of compressed files that are read."""

_KINDS = {
    "gzip": rb"\x1f\x8b\x08",
    "bzip2": rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)",
    "xz": rb"\xfd7zXZ\0",
    "a ZIP archive": rb"PK(?:\x03\x04|\x05\x06|\x07\x08)",
    "Zstandard": rb"\x28\xb5\x2f\xfd",
    "LZ4": rb"\x04\x22\x4d\x18",
    "compress": rb"\x1f\x9d",
    "LZMA": rb"\x5d\0\0",
    "a 7z archive": rb"7z\xbc\xaf\x27\x1c",
    "a RAR archive": rb"Rar!\x1a\x07",
    "a tar archive": rb"(?s).{257}ustar",
    "a Parquet table": rb"PAR1\x15",
    "a PDF": rb"%PDF-",
    "an SQLite database": rb"SQLite format 3\0",
    "an old Office document": rb"\xd0\xcf\x11\xe0",
}
"""How files of these kinds begin, as regular expressions."""

# Methods of ZIP that unpack in bounded memory; LZMA does not.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)


def unpacked(content: bytes, name: str) -> tuple[bytes, str]:
    """Return a file's content and name, unpacked if it is compressed.

    Raises a ValueError that says what cannot be read, and why.
    """
    kind = _kind(content)
    inner = name
    if kind == "a ZIP archive":
        content, inner = _unzipped(content, kind)
    elif kind in ("gzip", "bzip2", "xz"):
        # A file may be of many parts, each of which takes time to begin.
        parts = len(re.findall(_KINDS[kind], content))
        check_most("the file has", parts, "compressed parts", MAX_PACKED_PARTS)
        with _unpacking(kind):
            content = _decompressed(content, kind)
        inner = re.sub(r"\.(gz|bz2|xz)$", "", name, flags=re.IGNORECASE)
    elif kind:
        raise ValueError(f"the file is {_named(kind)}, which is not read: {_ADVICE}")
    else:
        return content, name
    if len(content) > MAX_DIALOG_FILE_BYTES:
        most = f"{MAX_DIALOG_FILE_BYTES:,} bytes"
        raise ValueError(f"the file unpacks to more than {most}, the most that is allowed")
    kind_within = _kind(content)
    if kind_within:
        raise ValueError(f"the file holds another that is {_named(kind_within)}: {_ADVICE}")
    return content, inner


_ADVICE = "give a file of text, which may be compressed once with gzip, bzip2, xz or ZIP"


def _kind(content: bytes) -> str:
    """Return the kind of a compressed or binary file, "" for text."""
    return next((kind for kind, begins in _KINDS.items() if re.match(begins, content)), "")


def _named(kind: str) -> str:
    return kind if kind.startswith(("a ", "an ")) else f"compressed with {kind}"


def _unpacking(kind: str) -> AbstractContextManager[None]:
    return as_value_error(f"the file is {_named(kind)}, but broken")


def _decompressed(content: bytes, kind: str) -> bytes:
    """Return a file's content, cut after one byte more than is allowed: then it is too long."""
    most = MAX_DIALOG_FILE_BYTES + 1
    if kind != "xz":
        opened = gzip.open if kind == "gzip" else bz2.open
        with opened(io.BytesIO(content)) as file:
            return bytes(file.read(most))
    # `lzma.open` sets no limit to memory: the file names the size of its dictionary.
    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, MAX_XZ_MEMORY_BYTES)
    data = decoder.decompress(content, most)
    if len(data) < most and not decoder.eof:
        raise EOFError("it ends too early")
    # Zeros may pad the end.
    if decoder.unused_data.strip(b"\0"):
        raise ValueError("it goes on after its end")
    return data


def _unzipped(content: bytes, kind: str) -> tuple[bytes, str]:
    """Return content and name of the one file of an archive, cut as by `_decompressed`."""
    # Entries of its directory, before the library makes an object of each.
    check_most("the archive has", content.count(b"PK\1\2"), "files", MAX_PACKED_PARTS)
    with _unpacking(kind):
        archive = zipfile.ZipFile(io.BytesIO(content))
    # macOS adds files of its own; those with a dot are hidden.
    hidden = re.compile(r"(^|/)(__MACOSX/|\.(?!\.?/))")
    files = (member for member in archive.infolist() if not member.is_dir())
    members = [row for row in files if not hidden.search(row.filename.replace("\\", "/"))]
    if len(members) != 1:
        names = first_three([clean_name(member.filename) for member in members])
        files_words = f"{len(members):,} files ({names})" if members else "no file"
        raise ValueError(
            f"the archive has {files_words}, but must have one: give a file of it"
        )
    (member,) = members
    if member.flag_bits & 1:
        raise ValueError("the archive is encrypted: give the file that is in it")
    if member.compress_type not in _METHODS:
        raise ValueError(
            f"the archive is compressed by method {member.compress_type}, but only 0, 8 and 12 are "
            "read: give the file that is in it"
        )
    with _unpacking(kind), archive.open(member) as file:
        return file.read(MAX_DIALOG_FILE_BYTES + 1), member.filename


def decoded(content: bytes) -> str:
    """Return the text of a file. Raises a ValueError with the line that cannot be decoded."""
    encoding = _unicode_of(content)
    try:
        text = content.decode("utf-8-sig" if encoding.startswith("utf-8") else encoding)
    except UnicodeDecodeError as error:
        if not encoding.startswith("utf-8"):
            begun = f"the file begins as {encoding.upper()} text"
            raise ValueError(f"{begun}, but goes on otherwise") from None
        if b"\0" in content:
            raise ValueError(f"the file is not text: {_ADVICE}") from None
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"line {line} of the file is not UTF-8 text: save it as UTF-8"
        ) from None
    # This encoding has bytes of ASCII alone, so it decodes as UTF-8, to nonsense.
    if re.match(r"[^\x1b]*\x1b\$[@B]", text):
        raise ValueError("the file is ISO-2022-JP text, which is not read: save it as UTF-8")
    return text


def _unicode_of(content: bytes) -> str:
    """Return which encoding of Unicode a file has, also without a byte order mark."""
    encoding = json.detect_encoding(content)  # by its first four bytes
    # Text that begins with other letters than ASCII may still be UTF-16: half of the bytes of its
    # spaces, line ends and punctuation are 0, at odd places if it is little-endian.
    sample = content[:MAX_SAMPLED_BYTES]
    zeros = [place % 2 for place, byte in enumerate(sample) if not byte]
    if encoding != "utf-8" or len(content) % 2 or len(zeros) * 50 < len(sample):
        return encoding
    odd = sum(zeros) / max(len(zeros), 1)
    if odd > 0.75:
        return "utf-16-le"
    return "utf-16-be" if odd < 0.25 and zeros else "utf-8"
