"""Records of the spool <-> values: items and control records as the mappings that stand in a segment.

An item's record has the names of `core.types.Item`'s fields; what has its default is left out. Times are
ISO 8601 with an offset. A control record says that no more will come:
`{"type": "close", "namespace": ..., "run": ... | "group": ..., "at": ...}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from ..core.types import Item

_NAMES = ("group", "run", "query", "step", "agent")
_DEFAULTS = {"namespace": "default", "policy": "default", "kind": "result"}


def item_record(item: Item) -> dict[str, Any]:
    """The record of an item; text and names cleaned (see `clean`), flags extended by what was found."""
    record: dict[str, Any] = {
        "type": "item",
        "item_id": str(item.item_id),
        "created_at": item.created_at.isoformat(),
    }
    for name in _NAMES:
        if (value := getattr(item, name)) is not None:
            record[name] = value
    for name, default in _DEFAULTS.items():
        if (value := getattr(item, name)) != default:
            record[name] = value
    if item.priority:
        record["priority"] = item.priority
    if item.deadline is not None:
        record["deadline"] = item.deadline.isoformat()
    if item.meta:
        record["meta"] = dict(item.meta)
    record["text"] = item.text
    return flagged(record, item.flags)


def close_record(
    *, namespace: str = "default", run: str | None = None, group: str | None = None
) -> dict[str, Any]:
    """The control record that closes a run's or a group's groups."""
    record = {"type": "close", "namespace": namespace, "at": datetime.now(UTC).isoformat()}
    if run is not None:
        record["run"] = run
    if group is not None:
        record["group"] = group
    return record


def item_of(record: Mapping[str, Any]) -> Item:
    """The item that a record says.

    Raises:
        ValueError: it says none; the message is the reason, one word or "wrong_type: FIELD".
    """
    text = record.get("text")
    if not isinstance(text, str):
        raise ValueError("no_text" if text is None else "wrong_type: text")
    created = record.get("created_at")
    if created is None:
        raise ValueError("no_created_at")
    for name in (*_NAMES, *_DEFAULTS):
        if not isinstance(record.get(name, ""), str):
            raise ValueError(f"wrong_type: {name}")
    priority = record.get("priority", 0)
    if not isinstance(priority, int) or isinstance(priority, bool) or not -(2**31) <= priority < 2**31:
        raise ValueError("wrong_type: priority")
    meta = record.get("meta", {})
    if not isinstance(meta, Mapping):
        raise ValueError("wrong_type: meta")
    flags = record.get("flags", ())
    if not isinstance(flags, list | tuple) or not all(isinstance(flag, str) for flag in flags):
        raise ValueError("wrong_type: flags")
    try:
        item_id = UUID(record["item_id"])
    except (KeyError, ValueError, TypeError, AttributeError):
        raise ValueError("no_item_id" if "item_id" not in record else "wrong_type: item_id") from None
    deadline = record.get("deadline")
    return Item(
        item_id=item_id,
        text=text,
        created_at=_time("created_at", created),
        namespace=record.get("namespace", "default"),
        group=record.get("group"),
        run=record.get("run"),
        query=record.get("query"),
        policy=record.get("policy", "default"),
        step=record.get("step"),
        kind=record.get("kind", "result"),
        agent=record.get("agent"),
        priority=priority,
        deadline=None if deadline is None else _time("deadline", deadline),
        meta=meta,
        flags=tuple(flags),
    )


def flagged(record: dict[str, Any], flags: tuple[str, ...] = ()) -> dict[str, Any]:
    """The record, cleaned, with `flags` and what was noticed ("nul", "lone_surrogate") in its "flags"."""
    found = list(flags)
    cleaned: dict[str, Any]
    cleaned, changed = clean(record)
    if changed and "lone_surrogate" not in found:
        found.append("lone_surrogate")
    if "nul" not in found and ("\0" in cleaned["text"] or "\0" in cleaned.get("query", "")):
        found.append("nul")
    if found:
        cleaned["flags"] = found
    return cleaned


def clean(value: Any) -> tuple[Any, bool]:
    """Replace each lone surrogate, wherever it stands in a JSON value, by U+FFFD; whether any was.

    A surrogate pair that came apart (two code points that belong together) becomes the one it meant.
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            joined = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            return joined, True
        return value, False
    if isinstance(value, Mapping):
        pairs = [(clean(key), clean(item)) for key, item in value.items()]
        return {key: item for (key, _), (item, _) in pairs}, any(k or v for (_, k), (_, v) in pairs)
    if isinstance(value, list | tuple):
        parts = [clean(part) for part in value]
        return [part for part, _ in parts], any(changed for _, changed in parts)
    return value, False


def moment(told: str) -> datetime:
    """An aware time out of ISO 8601; UTC where it names no offset.

    Raises:
        ValueError: it says none.
    """
    time = datetime.fromisoformat(told)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _time(name: str, value: object) -> datetime:
    try:
        return moment(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f"wrong_type: {name}") from None
