"""A file as bytes and as text: decompressed, its encoding found out, split on line feeds and nothing else."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from ...core.errors import InputError

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file, without its line feed.

    Attributes:
        number: counted from 1.
        text: None where the bytes are not in the file's encoding.
        raw: the bytes as they stand in the (decompressed) file.
    """

    number: int
    text: str | None
    raw: bytes


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes; gzip and zstd are told by their first bytes, not by the name.

    Raises:
        InputError: not there, a folder, refused, or its compressed stream breaks off.
    """
    try:
        raw = path.open("rb")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", hint="name a readable file") from error
    with raw:
        magic = raw.read(4)
        raw.seek(0)
        try:
            if magic.startswith(_GZIP):
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield cast(BinaryIO, unpacked)
            elif magic == _ZSTD:
                import pyarrow as pa

                with pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd") as stream:
                    yield cast(BinaryIO, io.BufferedReader(_Readable(stream), _BLOCK))
            else:
                yield raw
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(
                f"{path} breaks off or is damaged: {error}", hint="unpack it by hand, or fetch it again"
            ) from error


def content_hash(path: Path) -> str:
    """32 hex digits of the SHA-256 of the file as it lies on disk: part of its records' ids."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()[:32]


def encoding(head: bytes) -> str:
    """UTF-8, or UTF-16 by its mark or by where the zeros are; from the first bytes of a file."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if len(head) >= 4 and head[:2] != b"\0\0" and head[2:4] != b"\0\0":
        if head[0] == 0 and head[2] == 0:
            return "utf-16-be"
        if head[1] == 0 and head[3] == 0:
            return "utf-16-le"
    return "utf-8"


def lines(path: Path) -> Iterator[Line]:
    """The file's lines. Only `\\n` ends one: U+2028 and its like stand inside text. A `\\r` before it goes.

    Raises:
        InputError: the file cannot be read, or its compressed stream is broken (after the lines before).
    """
    with opened(path) as handle:
        code = encoding(cast(io.BufferedReader, handle).peek(4)[:4])
        if code.startswith("utf-16"):
            yield from _utf16_lines(handle, code)
        else:
            yield from _utf8_lines(handle, code)


def text(path: Path) -> str:
    """The whole file as text. Lone surrogates pass; they are dealt with where items are made.

    Raises:
        InputError: the file cannot be read or its compressed stream is broken.
        UnicodeDecodeError: its bytes are in no encoding that is known here.
    """
    with opened(path) as handle:
        content = handle.read()
    code = encoding(content[:4])
    return content.decode(code, "surrogatepass" if code.startswith("utf-16") else "strict")


def _utf8_lines(handle: BinaryIO, code: str) -> Iterator[Line]:
    for number, raw in enumerate(handle, 1):
        body = raw.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1 and code == "utf-8-sig":
            body = body.removeprefix(codecs.BOM_UTF8)
        try:
            decoded: str | None = body.decode("utf-8")
        except UnicodeDecodeError:
            decoded = None
        yield Line(number, decoded, body)


def _utf16_lines(handle: BinaryIO, code: str) -> Iterator[Line]:
    decoder = codecs.getincrementaldecoder(code)("surrogatepass")
    number, rest = 1, ""
    while block := handle.read(_BLOCK):
        *whole, rest = (rest + decoder.decode(block)).split("\n")
        for decoded in whole:
            yield _utf16_line(number, decoded)
            number += 1
    try:
        rest += decoder.decode(b"", final=True)
    except UnicodeDecodeError:  # an odd byte at the end: the last line is torn
        yield Line(number, None, rest.encode("utf-16", "surrogatepass"))
        return
    if rest:
        yield _utf16_line(number, rest)


def _utf16_line(number: int, decoded: str) -> Line:
    body = decoded.removesuffix("\r").removeprefix("\ufeff" if number == 1 else "")
    return Line(number, body, body.encode("utf-8", "surrogatepass"))


class _Readable(io.RawIOBase):
    """Arrow's decompressing stream as a raw Python file, so that lines can be read from it."""

    def __init__(self, stream: object) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data: bytes = self._stream.read(len(view))  # type: ignore[attr-defined]
        view[: len(data)] = data
        return len(data)
