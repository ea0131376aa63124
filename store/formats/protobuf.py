"""OTLP's protobuf form as the same mappings as its JSON form, read without generated code.

Only what is used is named: of opentelemetry-proto's trace service, messages down to attributes. The wire
format is protobuf's own (https://protobuf.dev/programming-guides/encoding/); unknown fields are passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = "Literal['text', 'bytes', 'bool', 'int', 'double', 'fixed64'] | Message"


class Message:
    """A message's fields: number -> (our name, kind, whether it repeats)."""

    def __init__(self) -> None:
        self.fields: dict[int, tuple[str, Kind, bool]] = {}

    def has(self, number: int, name: str, kind: Kind, *, repeated: bool = False) -> None:
        """Declare a field."""
        self.fields[number] = (name, kind, repeated)


class NotProtobuf(ValueError):
    """The bytes are no such message."""


def _schema() -> Message:
    value, array, pairs, pair = Message(), Message(), Message(), Message()
    for number, name, kind in (
        (1, "stringValue", "text"),
        (2, "boolValue", "bool"),
        (3, "intValue", "int"),
        (4, "doubleValue", "double"),
        (7, "bytesValue", "bytes"),
    ):
        value.has(number, name, kind)  # type: ignore[arg-type]
    value.has(5, "arrayValue", array)
    value.has(6, "kvlistValue", pairs)
    array.has(1, "values", value, repeated=True)
    pairs.has(1, "values", pair, repeated=True)
    pair.has(1, "key", "text")
    pair.has(2, "value", value)
    event, span, scope, resource, request = Message(), Message(), Message(), Message(), Message()
    event.has(2, "name", "text")
    event.has(3, "attributes", pair, repeated=True)
    for number, name in ((1, "traceId"), (2, "spanId"), (4, "parentSpanId")):
        span.has(number, name, "bytes")
    span.has(5, "name", "text")
    span.has(7, "startTimeUnixNano", "fixed64")
    span.has(9, "attributes", pair, repeated=True)
    span.has(11, "events", event, repeated=True)
    scope.has(2, "spans", span, repeated=True)
    resource.has(2, "scopeSpans", scope, repeated=True)
    request.has(1, "resourceSpans", resource, repeated=True)
    return request


_REQUEST = _schema()


def export_requests(data: bytes) -> Sequence[Mapping[str, Any]]:
    """The trace export requests in a dump: one alone, or many, each after its length as a varint.

    Raises:
        NotProtobuf: neither.
    """
    try:
        if found := _message(data, _REQUEST).get("resourceSpans"):
            return [{"resourceSpans": found}]
    except (NotProtobuf, UnicodeDecodeError):
        pass
    requests, position = [], 0
    while position < len(data):
        length, position = _varint(data, position)
        if not length or position + length > len(data):
            raise NotProtobuf(f"no export request at byte {position}")
        request = _message(data[position : position + length], _REQUEST)
        if not request.get("resourceSpans"):
            raise NotProtobuf(f"no spans in the message at byte {position}")
        requests.append(request)
        position += length
    return requests


def _message(data: bytes, message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _fields(data):
        if number not in message.fields:
            continue
        name, kind, repeated = message.fields[number]
        read = _read(value, kind)
        if repeated:
            found.setdefault(name, []).append(read)
        else:
            found[name] = read
    return found


def _read(value: int | bytes, kind: Kind) -> Any:
    if isinstance(kind, Message) or kind in ("text", "bytes"):
        if not isinstance(value, bytes):
            raise NotProtobuf("a field of another wire type than declared")
        if isinstance(kind, Message):
            return _message(value, kind)
        return value.decode("utf-8") if kind == "text" else value
    if kind in ("double", "fixed64"):
        if not isinstance(value, bytes) or len(value) != 8:
            raise NotProtobuf("a field of another wire type than declared")
        return struct.unpack("<d" if kind == "double" else "<Q", value)[0]
    if not isinstance(value, int):
        raise NotProtobuf("a field of another wire type than declared")
    return bool(value) if kind == "bool" else value - (1 << 64) if value >> 63 else value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            whole, position = _varint(data, position)
            yield number, whole
            continue
        if wire == 2:
            length, position = _varint(data, position)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise NotProtobuf(f"wire type {wire}")
        if not number or position + length > len(data):
            raise NotProtobuf("a field runs past the end")
        yield number, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise NotProtobuf("a number runs past the end")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
