"""Records into a batch: columns ready for the ledger, bounded in bytes. No database here."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ..core import keys
from .columns import column, table, times, to_json, uuid_bytes, uuids
from .ingest_rows import Place, Row, exact_row, plain_row
from .ingest_texts import Texts
from .spool import Bad, Segment

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
            content = sha256(self.raw).hexdigest()
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


@dataclass
class Batch:
    """Items, and what else came: groups, texts, closes, bad lines, segments that ended.

    Ids and hashes are their 16 bytes here: this is the innermost loop of ingest, and Arrow takes them so.

    Attributes:
        items: a row each, in the order of `_ITEM_COLUMNS`.
        texts: of the items, each once.
        groups: (namespace, name, policy, query) by group id.
        known: by segment, items that this very batch held already.
        size: bytes of what it holds, about.
    """

    items: list[tuple[Any, ...]] = field(default_factory=list)
    texts: Texts = field(default_factory=Texts)
    groups: dict[bytes, Place] = field(default_factory=dict)
    closes: list[Close] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)
    ended: list[Source] = field(default_factory=list)
    known: Counter[UUID] = field(default_factory=Counter)
    size: int = 0
    _group_ids: dict[Place, bytes] = field(default_factory=dict)
    _seen: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Items in it."""
        return len(self.items)

    @property
    def is_full(self) -> bool:
        """Whether it should be written before more is read."""
        return self.size >= BATCH_BYTES or len(self.items) >= BATCH_ROWS

    @cached_property
    def columns(self) -> dict[str, tuple[Any, ...]]:
        """The items by column; call it when all are in."""
        turned = zip(*self.items, strict=True) if self.items else ((),) * len(_ITEM_COLUMNS)
        return dict(zip(_ITEM_COLUMNS, turned, strict=True))

    def add(self, source: Source, line: int, payload: bytes | Bad) -> None:
        """Take one line of a segment, whatever it is."""
        if not isinstance(payload, Bad) and (row := plain_row(payload)) is not None:
            self._add_item(source, line, row, payload)
        else:
            self._add_any(source, line, payload)

    def _add_any(self, source: Source, line: int, payload: bytes | Bad) -> None:
        """Take a line that is no plain item: another record, or one with something wrong."""
        record = source.segment.said(payload)
        if record is None:
            return
        if isinstance(record, Bad):
            self._quarantine(source, line, record.reason, None, record.raw)
            return
        kind = record.get("type")
        try:
            if kind == "item":
                self._add_item(source, line, exact_row(record), payload)
            elif kind == "close":
                self._add_close(record)
            elif kind == "bad":
                self._add_bad(source, line, record)
            else:
                raise ValueError(f"unknown_type: {str(kind)[:40]}")
        except (ValueError, OverflowError, RecursionError) as error:
            reason, _, detail = str(error).partition(": ")
            if not (isinstance(error, ValueError) and reason.replace("_", "").isalnum()):
                reason, detail = "unstorable", str(error)
            self._quarantine(source, line, reason, detail or None, _bytes_of(record))

    def _add_item(self, source: Source, line: int, row: Row, payload: bytes | Bad) -> None:
        digest = sha256(row.text).digest()[:16]
        header = source.segment.header
        before = self._seen.setdefault(row.item_id, digest)
        if before is not digest:
            if before == digest:
                self.known[header.segment_id] += 1
            else:
                detail = conflict(UUID(bytes=row.item_id))
                raw = _bytes_of(source.segment.said(payload))
                self._quarantine(source, line, "id_conflict", detail, raw)
            return
        namespace, name, policy, query = place = row.place
        group_id = self._group_ids.get(place)
        if group_id is None:
            group_id = self._group_ids[place] = keys.group_id(namespace, name, query, policy).bytes
            self.groups[group_id] = place
        self.items.append(
            (row.item_id, namespace, group_id, digest, row.chars, row.blank, *row.rest,
             header.segment_id.bytes, line, source.arrived, header.settled)
        )  # fmt: skip
        self.texts.add(digest, row.text, row.chars)
        self.size += len(row.text) + 512

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

    def ready(self) -> Batch:
        """Itself, with its large tables made: whoever reads batches does that while another is written."""
        if self.rows:
            _ = self.incoming, self.texts.table
        return self

    @cached_property
    def incoming(self) -> pa.Table:
        """Every item, in order; call it when all are in."""
        made = {"uuid": uuid_bytes, "time": times}
        return table(
            {
                name: made[kind](self.columns[name]) if kind in made else column(self.columns[name], kind)
                for name, kind in _ITEM_COLUMNS.items()
            }
        )

    def groups_table(self) -> pa.Table:
        """`groups`: each group once."""
        places = list(self.groups.values())
        return table(
            {
                "namespace": column((namespace for namespace, _, _, _ in places), "string"),
                "group_id": uuid_bytes(self.groups),
                "name": column((name for _, name, _, _ in places), "string"),
                "policy": column((policy for _, _, policy, _ in places), "string"),
                "query": column((query for _, _, _, query in places), "string"),
                "query_hash": uuids(None if q is None else keys.content_hash(q) for _, _, _, q in places),
                "query_chars": column((None if q is None else len(q) for _, _, _, q in places), "int32"),
            }
        )


def _bytes_of(record: object) -> bytes:
    """A record as JSON that can be read again."""
    return to_json(record).encode("utf-8", "backslashreplace")


def conflict(item_id: UUID) -> str:
    """What is wrong where an id comes with another text."""
    return f"{item_id} is there with another text"


def batches(sources: Iterator[Source]) -> Iterator[Batch]:
    """Read segments one after another and hand over what a transaction should take."""
    batch = Batch()
    for source in sources:
        with source.segment:
            for line, payload in source.segment.payloads():
                batch.add(source, line, payload)
                if batch.is_full:
                    yield batch.ready()
                    batch = Batch()
        batch.ended.append(source)
        if len(batch.ended) >= 1000:
            yield batch.ready()
            batch = Batch()
    if batch.rows or batch.bad or batch.closes or batch.ended:
        yield batch.ready()
