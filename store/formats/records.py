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
        reason: one of "not_utf8", "not_json", "no_text", "wrong_type", "columns".
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
    """A field is of another kind than it must be; the message names it."""


def build(
    record: Record, *, number: int, defaults: Mapping[str, Any], file_id: str, made: datetime
) -> Item | Bad:
    """The item that a record stands for: its own fields first, then the caller's, then guesses.

    Args:
        number: the record's place in its file; with `file_id` it stands in for an id.
        defaults: the caller's fields (`--query`, `--group`, ...).
        file_id: `source.content_hash` of the file.
        made: stands in for a missing `created_at`; timezone-aware.
    """
    fields = {**record.guess, **{k: v for k, v in defaults.items() if v is not None}}
    fields |= {k: v for k, v in record.own.items() if v is not None and not (k == "query" and _blank(v))}
    try:
        return item(fields, number=number, file_id=file_id, made=made)
    except WrongType as wrong:
        reason = "no_text" if fields.get("text") is None else "wrong_type"
        raw = record.raw or (as_text(record.own) or "").encode("utf-8", "surrogatepass")
        return Bad(line=record.line, where=record.where, reason=reason, detail=str(wrong), raw=raw)


def item(fields: Mapping[str, Any], *, number: int, file_id: str, made: datetime) -> Item:
    """An item from fields under our names.

    Raises:
        WrongType: `text` is missing, or a field is not what it must be.
    """
    if fields.get("text") is None:
        raise WrongType('there is no "text"')
    text = _text("text", fields["text"])
    words = {name: _text(name, value) for name in TEXTS if (value := fields.get(name)) is not None}
    given = words.pop("id", None)
    namespace = words.get("namespace", "default")
    meta = fields.get("meta")
    if meta is not None and not isinstance(meta, Mapping):
        raise WrongType(f'"meta" is {_kind(meta)}, not an object')
    # Lone surrogates are no characters, and no database takes them: U+FFFD in their place, and a flag.
    (text, words, meta), changed = clean((text, words, plain(meta or {})))
    flags = ("lone_surrogate",) * changed + ("nul",) * ("\0" in text or "\0" in words.get("query", ""))
    return Item(
        item_id=keys.given_item_id(namespace, given if given is not None else f"{file_id}:{number}"),
        text=text,
        created_at=_time("created_at", fields.get("created_at")) or made,
        deadline=_time("deadline", fields.get("deadline")),
        priority=_whole("priority", fields.get("priority")),
        meta=meta,
        flags=flags,
        **words,
    )


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
    if name != "text" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise WrongType(f'"{name}" is {_kind(value)}, not a string')


def _whole(name: str, value: Any) -> int:
    if value is None or value == "":
        return 0
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,9}", value):
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongType(f'"{name}" is {_kind(value)}, not a whole number')
    if abs(value) >= 1 << 31:
        raise WrongType(f'"{name}" is {value}: too large')
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
        raise WrongType(f'"{name}" is {str(value)[:40]!r}, not an ISO 8601 time') from None
    if not isinstance(value, datetime):
        raise WrongType(f'"{name}" is {_kind(value)}, not a time')
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
