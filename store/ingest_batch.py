"""Records into a batch: columns ready for the ledger, bounded in bytes. No database here."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ..core import keys
from ..core.types import Item
from .columns import column, table, times, to_json, uuids
from .spool import Bad, Segment, item_of
from .spool_items import clean

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 32 * 2**20
"""Text that a transaction takes; one item may be larger and then stands alone."""
BATCH_ROWS = 100_000

_ITEM_COLUMNS: Mapping[str, str] = {
    "item_id": "uuid", "namespace": "string", "group_id": "uuid", "text_hash": "uuid", "chars": "int32",
    "blank": "bool", "run_id": "string", "step": "string", "kind": "string", "agent": "string",
    "meta": "string", "flags": "strings", "created_at": "time", "priority": "int32", "deadline": "time",
    "segment_id": "uuid", "line": "int64", "arrived": "time", "settled": "bool",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Close:
    """A control record: no more will come for a run or a group. `place` items of the batch came before it."""

    namespace: str
    run: str | None
    group: str | None
    place: int


@dataclass(frozen=True, slots=True)
class BadLine:
    """What could not become an item, with its bytes."""

    segment_id: UUID
    source: str | None
    line: int
    reason: str
    detail: str | None
    raw: bytes
    imported: bool = False

    @property
    def quarantine_id(self) -> UUID:
        """The same line of the same segment is the same entry, however often it is read.

        Of an import, the same bytes at the same place of the same file: importing it again adds nothing.
        """
        if self.imported:
            content = hashlib.sha256(self.raw).hexdigest()
            return keys.given_item_id("quarantine", f"{self.source}:{self.line}:{self.detail}:{content}")
        return keys.given_item_id("quarantine", f"{self.segment_id}:{self.line}:{self.reason}")


@dataclass(frozen=True, slots=True)
class Source:
    """A segment that is being read."""

    path: Path
    segment: Segment
    arrived: datetime
    bytes: int

    @property
    def name(self) -> str | None:
        """Where it says that it comes from: an import's file."""
        told = self.segment.header.about.get("source")
        return told if isinstance(told, str) else None


@dataclass(slots=True)
class Batch:
    """Columns of items, and what else came: groups, texts, closes, bad lines, segments that ended."""

    columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _ITEM_COLUMNS})
    texts: dict[UUID, bytes] = field(default_factory=dict)
    chars: dict[UUID, int] = field(default_factory=dict)
    groups: dict[tuple[str, UUID], tuple[str | None, str, str | None]] = field(default_factory=dict)
    """(namespace, group_id) -> (name, policy, query)."""
    closes: list[Close] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)
    ended: list[Source] = field(default_factory=list)
    size: int = 0
    """Bytes of what it holds, about."""
    _ids: dict[tuple[str | None, str | None, str, str | None], tuple[UUID, str | None]] = field(
        default_factory=dict
    )
    _seen: dict[UUID, UUID] = field(default_factory=dict)
    known: dict[UUID, int] = field(default_factory=dict)
    """By segment: items that this very batch held already."""

    @property
    def rows(self) -> int:
        """Items in it."""
        return len(self.columns["item_id"])

    @property
    def is_full(self) -> bool:
        """Whether it should be written before more is read."""
        return self.size >= BATCH_BYTES or self.rows >= BATCH_ROWS

    def add(self, source: Source, line: int, record: Mapping[str, Any] | Bad) -> None:
        """Take one line of a segment, whatever it is."""
        if isinstance(record, Bad):
            self._quarantine(source, line, record.reason, None, record.raw)
            return
        kind = record.get("type")
        try:
            if kind == "item":
                self._add_item(source, line, record)
            elif kind == "close":
                self._add_close(record)
            elif kind == "bad":
                self._add_bad(source, line, record)
            else:
                raise ValueError(f"unknown_type: {str(kind)[:40]}")
        except (ValueError, OverflowError, RecursionError) as error:
            reason, _, detail = str(error).partition(": ")
            known = isinstance(error, ValueError) and reason.replace("_", "").isalnum()
            raw = to_json(record).encode("utf-8", "backslashreplace")
            if known:
                self._quarantine(source, line, reason, detail or None, raw)
            else:
                self._quarantine(source, line, "unstorable", str(error), raw)

    def _add_item(self, source: Source, line: int, record: Mapping[str, Any]) -> None:
        try:
            row, text = _row(item_of(record))
        except UnicodeEncodeError:  # lone surrogates that a writer let through
            cleaned, _ = clean(record)
            flags = [*cleaned.get("flags", ()), "lone_surrogate"]
            row, text = _row(item_of({**cleaned, "flags": flags}))
        name, policy, query = row.pop("group")
        namespace, item_id = row["namespace"], row["item_id"]
        digest = UUID(bytes=hashlib.sha256(text).digest()[:16])
        segment_id = source.segment.header.segment_id
        before = self._seen.get(item_id)
        if before == digest:
            self.known[segment_id] = self.known.get(segment_id, 0) + 1
            return
        if before is not None:
            self._quarantine(source, line, "id_conflict", _conflict(item_id), to_json(record).encode())
            return
        self._seen[item_id] = digest
        place = (namespace, name, policy, query)
        if place not in self._ids:
            self._ids[place] = (keys.group_id(namespace, name, query, policy), query)
            self.groups[namespace, self._ids[place][0]] = (name, policy, query)
        row["group_id"] = self._ids[place][0]
        row["text_hash"] = digest
        row["segment_id"] = segment_id
        row["line"] = line
        row["arrived"] = source.arrived
        row["settled"] = source.segment.header.settled
        for column_name, values in self.columns.items():
            values.append(row[column_name])
        if digest not in self.texts:
            self.texts[digest] = text
            self.chars[digest] = row["chars"]
        self.size += len(text) + 512

    def _add_close(self, record: Mapping[str, Any]) -> None:
        namespace, run, group = record.get("namespace", "default"), record.get("run"), record.get("group")
        if not isinstance(namespace, str) or not isinstance(run or group, str):
            raise ValueError("wrong_type: close")
        self.closes.append(Close(namespace, run, group, self.rows))

    def _add_bad(self, source: Source, line: int, record: Mapping[str, Any]) -> None:
        try:
            raw = base64.b64decode(record.get("raw", ""))
        except (binascii.Error, TypeError):
            raw = b""
        where = record.get("line")
        detail = ": ".join(str(part) for part in (record.get("where"), record.get("detail")) if part)
        number = where if isinstance(where, int) else line
        reason = str(record.get("reason", "bad"))
        self._quarantine(source, number, reason, detail or None, raw, imported=True)

    def _quarantine(
        self,
        source: Source,
        line: int,
        reason: str,
        detail: str | None,
        raw: bytes,
        *,
        imported: bool = False,
    ) -> None:
        segment_id = source.segment.header.segment_id
        self.bad.append(BadLine(segment_id, source.name, line, reason, detail, raw, imported))
        self.size += len(raw) + 256

    # ------------------------------------------------------------------------------------- columns

    def items_table(self) -> pa.Table:
        """`incoming`: every item, in order."""
        made = {"uuid": uuids, "time": times}
        return table(
            {
                name: made[kind](self.columns[name]) if kind in made else column(self.columns[name], kind)
                for name, kind in _ITEM_COLUMNS.items()
            }
        )

    def groups_table(self) -> pa.Table:
        """`groups`: each group once."""
        keys_ = list(self.groups)
        values = list(self.groups.values())
        return table(
            {
                "namespace": column((namespace for namespace, _ in keys_), "string"),
                "group_id": uuids(group_id for _, group_id in keys_),
                "name": column((name for name, _, _ in values), "string"),
                "policy": column((policy for _, policy, _ in values), "string"),
                "query": column((query for _, _, query in values), "string"),
                "query_hash": uuids(None if q is None else keys.content_hash(q) for _, _, q in values),
                "query_chars": column((None if q is None else len(q) for _, _, q in values), "int32"),
            }
        )

    def texts_table(self, wanted: set[UUID]) -> pa.Table:
        """`fresh`: each of these texts once, in order of arrival."""
        import pyarrow as pa

        hashes = [digest for digest in self.texts if digest in wanted]
        return table(
            {
                "text_hash": uuids(hashes),
                "text": pa.array((self.texts[digest] for digest in hashes), pa.binary()).cast(pa.string()),
                "chars": column((self.chars[digest] for digest in hashes), "int32"),
            }
        )


def _row(item: Item) -> tuple[dict[str, Any], bytes]:
    """An item's columns and its text's UTF-8.

    Raises:
        UnicodeEncodeError: a lone surrogate in one of its texts.
        OverflowError: a time that no calendar of ours has.
    """
    text = item.text.encode()
    query = item.query if item.query is not None and item.query.strip() else None
    meta = to_json(item.meta) if item.meta else None
    for other in (query, meta, item.group_name, item.run, item.step, item.agent, item.kind, item.namespace):
        if other is not None and not other.isascii():
            other.encode()
    return {
        "item_id": item.item_id,
        "namespace": item.namespace,
        "chars": len(item.text),
        "blank": not item.text or item.text.isspace(),
        "run_id": item.run,
        "step": item.step,
        "kind": item.kind,
        "agent": item.agent,
        "meta": meta,
        "flags": list(item.flags) or None,
        "created_at": item.created_at.astimezone(UTC),
        "priority": item.priority,
        "deadline": None if item.deadline is None else item.deadline.astimezone(UTC),
        "group": (item.group_name, item.policy, query),
    }, text


def _conflict(item_id: UUID) -> str:
    return f"{item_id} is there with another text"


def batches(sources: Iterator[Source]) -> Iterator[Batch]:
    """Read segments one after another and hand over what a transaction should take."""
    batch = Batch()
    for source in sources:
        with source.segment:
            for line, record in source.segment:
                batch.add(source, line, record)
                if batch.is_full:
                    yield batch
                    batch = Batch()
        batch.ended.append(source)
        if len(batch.ended) >= 1000:
            yield batch
            batch = Batch()
    if batch.rows or batch.bad or batch.closes or batch.ended:
        yield batch
