"""From what a file says to an item: field names, their kinds, and what is wrong with a record."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from ...core import keys
from ...core.types import Item
from ..spool_items import clean

TEXTS = ("query", "group", "run", "step", "kind", "agent", "policy", "namespace", "id")
"""Fields that are text; a whole number is taken as its digits."""

FIELDS = ("text", *TEXTS, "created_at", "priority", "deadline", "meta")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a file, on its way to an item.

    Attributes:
        line: the line, or the document's number where lines mean nothing.
        where: where in the file, for people ("line 12", "samples/3.json message 4").
        own: what the record says of itself, under our names.
        guess: what its surroundings suggest (the first user message as query, the file as run): counts
            where neither the record nor the caller says otherwise.
        raw: the record as it stood, for the quarantine; `own` stands in where it is empty.
    """

    line: int
    where: str
    own: Mapping[str, Any]
    guess: Mapping[str, Any] = field(default_factory=dict)
    raw: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    """A record that cannot become an item.

    Attributes:
        line: the line, or the document's number where lines mean nothing.
        reason: one of "not_utf8", "not_json", "not_protobuf", "damaged", "no_text", "wrong_type", "columns".
        detail: what exactly.
        raw: the bytes, whole.
    """

    line: int
    where: str
    reason: str
    detail: str
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A part of a file that is no intermediate result (a user's message, a span without text): counted."""

    where: str
    reason: str


class WrongType(ValueError):
    """A field is missing or of another kind than it must be; the message names it."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def build(
    record: Record, *, number: int, defaults: Mapping[str, Any], file_id: str, made: datetime
) -> Item | Bad:
    """The item that a record stands for.

    Args:
        number: the record's place in its file; with `file_id` it stands in for an id.
        defaults: the caller's fields (`--query`, `--group`, ...), see `arguments`.
        file_id: `source.content_hash` of the file.
        made: stands in for a missing `created_at`; timezone-aware.
    """
    try:
        fields = arguments(record, defaults=defaults)
    except WrongType as wrong:
        raw = record.raw or (as_text(record.own) or "").encode("utf-8", "surrogatepass")
        return Bad(line=record.line, where=record.where, reason=wrong.reason, detail=str(wrong), raw=raw)
    # Lone surrogates are no characters, and no database takes them: U+FFFD in their place, and a flag.
    fields, changed = clean(fields)
    nul = "\0" in fields["text"] or "\0" in fields.get("query", "")
    given = fields.pop("id", f"{file_id}:{number}")
    return Item(
        item_id=keys.given_item_id(fields.get("namespace", "default"), given),
        created_at=fields.pop("created_at", made),
        flags=("lone_surrogate",) * changed + ("nul",) * nul,
        **fields,
    )


def arguments(record: Record, *, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """A record's fields, each of its right kind: its own first, then the caller's, then guesses.

    Raises:
        WrongType: there is no text, or a field is not what it must be.
    """
    fields = {**record.guess, **{k: v for k, v in defaults.items() if v is not None}}
    fields |= {k: v for k, v in record.own.items() if v is not None and not (k == "query" and _blank(v))}
    if fields.get("text") is None:
        raise WrongType("no_text", 'there is no "text"')
    found: dict[str, Any] = {"text": _text("text", fields["text"])}
    found |= {name: _text(name, value) for name in TEXTS if (value := fields.get(name)) is not None}
    for name in ("created_at", "deadline"):
        if (moment := _time(name, fields.get(name))) is not None:
            found[name] = moment
    meta = fields.get("meta")
    if meta is not None and not isinstance(meta, Mapping):
        raise WrongType("wrong_type", f'"meta" is {_kind(meta)}, not an object')
    return {**found, "priority": _whole("priority", fields.get("priority")), "meta": plain(meta or {})}


def own_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """A record in our own names; what it carries besides goes into `meta`, so that nothing is lost."""
    fields = {name: document[name] for name in FIELDS if name in document}
    for name, other in (("id", "item_id"), ("run", "run_id"), ("meta", "metadata")):
        if name not in fields and other in document:
            fields[name] = document[other]
    rest = {
        k: v for k, v in document.items() if k not in FIELDS and k not in ("item_id", "run_id", "metadata")
    }
    if rest and isinstance(fields.get("meta", {}), Mapping):
        fields["meta"] = {**rest, **(fields.get("meta") or {})}
    return fields


def plain(value: Any) -> Any:
    """`value` in JSON's kinds only: times and bytes as text, NaN and infinities as null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value)


def as_text(value: Any) -> str | None:
    """A value as the text that an agent got: text as it is, anything structured as compact JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))


def _blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if name not in ("text", "query") and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise WrongType("wrong_type", f'"{name}" is {_kind(value)}, not a string')


def _whole(name: str, value: Any) -> int:
    if value is None or value == "":
        return 0
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,9}", value):
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongType("wrong_type", f'"{name}" is {_kind(value)}, not a whole number')
    if abs(value) >= 1 << 31:
        raise WrongType("wrong_type", f'"{name}" is {value}: too large')
    return value


def _time(name: str, value: Any) -> datetime | None:
    """ISO 8601, or seconds or milliseconds since 1970; without a timezone it is taken as UTC."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        elif isinstance(value, int | float) and not isinstance(value, bool):
            value = datetime.fromtimestamp(value / 1000 if abs(value) > 1e11 else value, UTC)
    except (ValueError, OverflowError, OSError):
        raise WrongType("wrong_type", f'"{name}" is {str(value)[:40]!r}, not an ISO 8601 time') from None
    if not isinstance(value, datetime):
        raise WrongType("wrong_type", f'"{name}" is {_kind(value)}, not a time')
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list | tuple) else f"a {type(value).__name__}"
