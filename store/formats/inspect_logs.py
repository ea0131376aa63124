"""Inspect AI's evaluation logs, `.json` and `.eval`: tool results of each sample, judged against its input.

Long texts stand apart in a sample's `attachments` and are put back where a message says `attachment://ID`.
"""

from __future__ import annotations

import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...core.errors import InputError
from . import chat, strict_json
from .records import Bad, Record, Skipped, as_text

_MARK = "attachment://"
_ZSTD_IN_ZIP = 93
_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, EOFError, ValueError,
    RuntimeError,  # locked by a password; packed in a way that this Python cannot unpack
)  # fmt: skip


def matches(document: Any) -> bool:
    """Whether this is a whole log, or one sample of an `.eval` file."""
    return (
        isinstance(document, Mapping) and "eval" in document and ("samples" in document or "plan" in document)
    )


def records(
    document: Mapping[str, Any], *, line: int, where: str, run: str
) -> Iterator[Record | Skipped | Bad]:
    """The samples of a whole log."""
    for index, sample in enumerate(document.get("samples") or ()):
        place = f"{where} sample {index + 1}"
        yield from _sample(sample, document["eval"], line=line, where=place, run=run)


def archive(path: Path, *, run: str) -> Iterator[Record | Skipped | Bad]:
    """The samples of an `.eval` file (a zip with one JSON file a sample); a damaged one costs itself alone.

    Raises:
        InputError: no such zip, or its header cannot be unpacked.
    """
    try:
        with zipfile.ZipFile(path) as packed:
            names = packed.namelist()
            head = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
            header = strict_json.loads(_member(packed, head).decode("utf-8")) if head else {}
            samples = sorted(n for n in names if n.startswith("samples/") and n.endswith(".json"))
            for number, name in enumerate(samples, 1):
                try:
                    raw = _member(packed, name)
                except _UNREADABLE as error:
                    stored = _stored(packed, packed.getinfo(name))
                    yield Bad(line=number, where=name, reason="damaged", detail=str(error), raw=stored)
                    continue
                try:
                    sample = strict_json.loads(raw.decode("utf-8"))
                except (ValueError, UnicodeDecodeError) as error:
                    yield Bad(line=number, where=name, reason="not_json", detail=str(error), raw=raw)
                else:
                    yield from _sample(sample, header.get("eval") or {}, line=number, where=name, run=run)
    except _UNREADABLE as error:
        raise InputError(
            f"{path} cannot be read as an Inspect log: {error}",
            hint="`inspect log convert --to json` writes it in the other format",
        ) from error


def _member(packed: zipfile.ZipFile, name: str) -> bytes:
    """One file of a zip. Inspect packs with zstd, which Python's own zipfile does not unpack before 3.14.

    Raises:
        One of `_UNREADABLE`.
    """
    entry = packed.getinfo(name)
    if entry.compress_type != _ZSTD_IN_ZIP:
        return packed.read(name)
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(_stored(packed, entry)), "zstd") as stream:
        content: bytes = stream.read()
    if zlib.crc32(content) != entry.CRC:
        raise zipfile.BadZipFile(f"{name} is damaged")
    return content


def _stored(packed: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """The bytes of a member as they lie in the zip."""
    assert packed.fp is not None
    packed.fp.seek(entry.header_offset)
    *_, name_length, extra_length = struct.unpack("<4s5H3L2H", packed.fp.read(30))
    packed.fp.seek(name_length + extra_length, os.SEEK_CUR)
    return packed.fp.read(entry.compress_size)


def _sample(
    sample: Any, about: Mapping[str, Any], *, line: int, where: str, run: str
) -> Iterator[Record | Skipped | Bad]:
    if not isinstance(sample, Mapping):
        raw = (as_text(sample) or "").encode("utf-8", "surrogatepass")
        yield Bad(line=line, where=where, reason="wrong_type", detail="the sample is no object", raw=raw)
        return
    whole = _attached(
        {"messages": sample.get("messages") or [], "input": sample.get("input")},
        sample.get("attachments") or {},
    )
    question = whole["input"]
    query = question if isinstance(question, str) else chat.first_question(question or ())
    name = f"{about.get('run_id') or run}/{sample.get('id')}/{sample.get('epoch', 1)}"
    if not whole["messages"]:
        yield Skipped(where=where, reason="sample without messages")
        return
    for record in chat.records(whole["messages"], line=line, where=where, run=name):
        if isinstance(record, Record):
            guess = {**record.guess, "query": query or record.guess.get("query")}
            extra = {
                "task": about.get("task"),
                "model": about.get("model"),
                "sample": as_text(sample.get("id")),
            }
            meta = {**{k: v for k, v in extra.items() if v is not None}, **record.own.get("meta", {})}
            record = replace(record, own={**record.own, "meta": meta}, guess=guess)
        yield record


def _attached(value: Any, attachments: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return attachments.get(value.removeprefix(_MARK), value) if value.startswith(_MARK) else value
    if isinstance(value, Mapping):
        return {key: _attached(inner, attachments) for key, inner in value.items()}
    if isinstance(value, list):
        return [_attached(inner, attachments) for inner in value]
    return value
