"""Reading a file: which container, which shape, and each record as an item or with what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

from ...core.errors import InputError
from ...core.types import Item
from . import chat, inspect_logs, otlp, protobuf, strict_json, swe_agent, tabular
from .mapping import FieldMap
from .records import Bad, Record, Skipped, as_text, build, own_fields
from .source import content_hash, lines, opened, text

Container = Literal["jsonl", "json", "csv", "parquet", "eval", "protobuf", "text"]
Shape = Literal["record", "chat", "swe-agent", "inspect", "otlp"]

FORMATS = ("auto", "jsonl", "json", "csv", "parquet", "text", "chat", "swe-agent", "inspect", "otlp")
"""What a caller may name: a container, or a shape (whose container is then found out)."""

_SUFFIXES: Mapping[str, Container] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".eval": "eval",
    ".pb": "protobuf",
    ".binpb": "protobuf",
    ".txt": "text",
    ".md": "text",
}
_PACKED = (".gz", ".zst", ".zstd")
_SNIFF = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to read a file.

    Attributes:
        format: one of `FORMATS`.
        mapping: where our fields are; without one, documents are told by their shape.
        defaults: fields for records that do not say them (`query`, `group`, `run`, `policy`, `namespace`,
            `kind`, `agent`).
    """

    format: str = "auto"
    mapping: FieldMap | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Document:
    number: int
    where: str
    value: Any
    raw: bytes


def read(path: Path, options: Options = Options()) -> Iterator[Item | Bad | Skipped]:
    """Everything in a file, in order: items, what could not become one, and what is none.

    Raises:
        InputError: the file cannot be read at all, or the format is unknown.
    """
    from ...core.config import nearest

    if options.format not in FORMATS:
        raise InputError(
            f"there is no format {options.format!r}{nearest(options.format, list(FORMATS))}",
            hint=f"--format takes {', '.join(sorted(FORMATS))}; without it the file itself tells",
        )
    if path.is_dir():
        raise InputError(f"{path} is a folder", hint=f"name its files: {path}/*")
    with opened(path):  # says at once what cannot be opened
        pass
    file_id = content_hash(path)
    if options.mapping is not None:
        file_id = f"{file_id}:{options.mapping.reading}"
    made = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    for number, found in enumerate(_records(path, container(path, options.format), options), 1):
        if isinstance(found, Record):
            yield build(found, number=number, defaults=options.defaults, file_id=file_id, made=made)
        else:
            yield found


def read_bytes(data: bytes, options: Options, *, name: str, file_id: str) -> Iterator[Item | Bad | Skipped]:
    """What one JSON document (a line, say) means, read as `read` would.

    Args:
        name: stands in for the file's name.
        file_id: stands in for the file's hash in ids.
    """
    document: _Document | Bad
    try:
        document = _Document(1, "line 1", strict_json.loads(data.decode("utf-8")), data)
    except UnicodeDecodeError as error:
        document = Bad(line=1, where="line 1", reason="not_utf8", detail=str(error), raw=data)
    except strict_json.NotJSON as error:
        document = Bad(line=1, where="line 1", reason="not_json", detail=str(error), raw=data)
    made = datetime.now(UTC)
    for number, found in enumerate(_documents(lambda: iter([document]), options, _stem(Path(name))), 1):
        if isinstance(found, Record):
            yield build(found, number=number, defaults=options.defaults, file_id=file_id, made=made)
        else:
            yield found


def container(path: Path, asked: str = "auto") -> Container:
    """What kind of file it is, by what was asked, its first bytes, its name, its content; in that order."""
    if asked in ("jsonl", "json", "csv", "parquet", "text"):
        return cast(Container, asked)
    with opened(path) as handle:
        head = handle.read(_SNIFF)
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"PK\x03\x04"):
        return "eval"
    name = path.name.lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    if known := _SUFFIXES.get(Path(name).suffix):
        return known
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"[", b'"') and asked == "otlp":
        return "protobuf"
    return _lines_or_document(path)


def _lines_or_document(path: Path) -> Container:
    """JSON lines or one JSON document, where the name does not say: the document wins if it parses whole."""
    found = [line for line, _ in zip(_filled(path), range(2), strict=False)]
    if len(found) == 2 and all(_is_object(line) for line in found):
        return "jsonl"
    try:
        strict_json.loads(text(path).removeprefix("\ufeff"))
    except (strict_json.NotJSON, UnicodeDecodeError):
        # Damaged either way. Any line that is a whole object says that these were lines.
        return "jsonl" if any(_is_object(line) for line in _filled(path)) else "json"
    return "json"


def _filled(path: Path) -> Iterator[str | None]:
    return (line.text for line in lines(path) if line.raw.strip())


def _is_object(line: str | None) -> bool:
    if line is None or not line.lstrip().startswith("{"):
        return False
    try:
        return isinstance(strict_json.loads(line), dict)
    except strict_json.NotJSON:
        return False


# ----------------------------------------------------------------------------- containers to records


def _records(path: Path, kind: Container, options: Options) -> Iterator[Record | Bad | Skipped]:
    run = _stem(path)
    match kind:
        case "eval":
            yield from inspect_logs.archive(path, run=run)
        case "text":
            yield from _plain_text(path, run)
        case "csv" | "parquet":
            rows = tabular.csv_rows(path) if kind == "csv" else tabular.parquet_rows(path)
            for number, row in rows:
                if isinstance(row, Bad):
                    yield row
                else:
                    where = f"{'line' if kind == 'csv' else 'row'} {number}"
                    yield from _row(_Document(number, where, row, b""), options)
        case _:
            reader = {"jsonl": _json_lines, "json": _json_document, "protobuf": _protobuf}[kind]
            yield from _documents(lambda: reader(path), options, run)


def _documents(
    documents: Callable[[], Iterator[_Document | Bad]], options: Options, run: str
) -> Iterator[Record | Bad | Skipped]:
    family: otlp.Family | None = None
    for document in documents():
        if isinstance(document, Bad):
            yield document
            continue
        if options.mapping is not None:
            yield from _row(document, options)
            continue
        shape = _shape(document.value, options.format)
        line, where = document.number, document.where
        name = run if where == "document" else f"{run}/{line}"
        match shape:
            case "otlp":
                if family is None:
                    family = otlp.Family.of(d.value for d in documents() if isinstance(d, _Document))
                yield from otlp.records(document.value, family, line=line, where=where)
            case "chat":
                yield from chat.records(document.value, line=line, where=where, run=name)
            case "swe-agent":
                yield from swe_agent.records(document.value, line=line, where=where, run=name)
            case "inspect":
                yield from inspect_logs.records(document.value, line=line, where=where, run=name)
            case _:
                yield from _own(document)


def _shape(value: Any, asked: str) -> Shape:
    if asked in ("chat", "swe-agent", "inspect", "otlp"):
        return cast(Shape, asked)
    if isinstance(value, Mapping) and isinstance(value.get("text"), str):
        return "record"
    if otlp.matches(value):
        return "otlp"
    if swe_agent.matches(value):
        return "swe-agent"
    if inspect_logs.matches(value):
        return "inspect"
    return "chat" if chat.messages_of(value) is not None else "record"


def _own(document: _Document) -> Iterator[Record | Bad]:
    if isinstance(document.value, Mapping):
        yield Record(
            line=document.number, where=document.where, own=own_fields(document.value), raw=document.raw
        )
    else:
        detail = "a record is an object with a text; --map text=@ takes the value itself"
        raw = document.raw or (as_text(document.value) or "null").encode("utf-8", "surrogatepass")
        yield Bad(line=document.number, where=document.where, reason="no_text", detail=detail, raw=raw)


def _row(document: _Document, options: Options) -> Iterator[Record | Bad | Skipped]:
    if options.mapping is None:
        yield from _own(document)
        return
    for place, found in enumerate(options.mapping.apply(document.value)):
        if options.mapping.children and found.fields.get("text") is None:
            yield Skipped(where=f"{document.where} node {found.place}", reason="node without text")
            continue
        yield Record(
            line=document.number,
            where=document.where if place == 0 else f"{document.where} record {found.place}",
            own=found.fields,
        )


def _json_lines(path: Path) -> Iterator[_Document | Bad]:
    for line in lines(path):
        if not line.raw.strip():
            continue
        where = f"line {line.number}"
        if line.text is None:
            yield Bad(line=line.number, where=where, reason="not_utf8", detail="not UTF-8", raw=line.raw)
            continue
        try:
            yield _Document(line.number, where, strict_json.loads(line.text), line.raw)
        except strict_json.NotJSON as error:
            yield Bad(line=line.number, where=where, reason="not_json", detail=str(error), raw=line.raw)


def _json_document(path: Path) -> Iterator[_Document | Bad]:
    """One document; a list's elements each count as one, unless the list is itself a conversation."""
    try:
        value = strict_json.loads(text(path).removeprefix("\ufeff"))
    except (strict_json.NotJSON, UnicodeDecodeError) as error:
        with opened(path) as handle:
            raw = handle.read()
        reason = "not_utf8" if isinstance(error, UnicodeDecodeError) else "not_json"
        yield Bad(line=1, where="document", reason=reason, detail=str(error), raw=raw)
        return
    if isinstance(value, list) and chat.messages_of(value) is None:
        for number, element in enumerate(value, 1):
            yield _Document(number, f"element {number}", element, b"")
    else:
        yield _Document(1, "document", value, b"")


def _protobuf(path: Path) -> Iterator[_Document | Bad]:
    with opened(path) as handle:
        data = handle.read()
    try:
        requests: Sequence[Mapping[str, Any]] = protobuf.export_requests(data)
    except (protobuf.NotProtobuf, UnicodeDecodeError) as error:
        yield Bad(line=1, where="document", reason="not_protobuf", detail=str(error), raw=data)
        return
    for number, request in enumerate(requests, 1):
        yield _Document(number, f"request {number}", request, b"")


def _plain_text(path: Path, run: str) -> Iterator[Record | Bad]:
    try:
        content = text(path)
    except UnicodeDecodeError as error:
        with opened(path) as handle:
            raw = handle.read()
        yield Bad(line=1, where="file", reason="not_utf8", detail=str(error), raw=raw)
        return
    own = {"text": content.removeprefix("\ufeff"), "kind": "document", "step": path.name}
    yield Record(line=1, where="file", own=own, guess={"run": run})


def _stem(path: Path) -> str:
    name = path.name
    for packed in _PACKED:
        name = name.removesuffix(packed)
    return Path(name).stem


__all__ = ["FORMATS", "Options", "container", "read"]
