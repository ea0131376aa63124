"""A batch into the ledger: one transaction, which adds what is new and leaves what is known as it is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from .columns import column, table, times, to_json, uuid_bytes, uuids
from .ingest_batch import BadLine, Batch, conflict
from .ledger_file import LedgerFile
from .sqlfiles import sql

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Written:
    """What a batch came to."""

    rows: int
    known: int
    quarantined: int
    requeried: int


def write_batch(file: LedgerFile, batch: Batch) -> Written:
    """Write a batch; call it inside a transaction."""
    return _Writing(file, batch).run()


class _Writing:
    def __init__(self, file: LedgerFile, batch: Batch) -> None:
        self._file = file
        self._batch = batch
        self._known = dict(batch.known)
        self._bad = list(batch.bad)
        self._leaving: list[tuple[int, UUID]] = []

    def run(self) -> Written:
        rows, places = 0, [0]
        if self._batch.rows:
            incoming = self._batch.incoming
            mask = self._is_new(incoming)
            rows, places = sum(mask), _running(mask)
            if self._leaving:
                self._leave()
            if rows:
                start = self._take(rows)
                accepted = incoming if all(mask) else incoming.filter(column(mask, "bool"))
                hashes = {h for h, new in zip(self._batch.columns["text_hash"], mask, strict=True) if new}
                self._insert(
                    accepted.append_column("seq", column(range(start, start + rows), "int64")), hashes
                )
            else:
                start = self._file.rows(sql("ingest.next_item"))[0][0]
        else:
            start = self._file.rows(sql("ingest.next_item"))[0][0]
        if self._batch.closes:
            self._close(start, places)
        quarantined = self._quarantine() if self._bad else 0
        if self._batch.ended:
            self._end_segments()
        return Written(rows, sum(self._known.values()), quarantined, len(self._leaving))

    # --------------------------------------------------------------------------------- known items

    def _is_new(self, incoming: pa.Table) -> list[bool]:
        """For each item whether it goes in: not what is there, nor (quarantined) its id with another text."""
        with self._file.with_tables(incoming=incoming.select(["item_id"])):
            there = {row[0].bytes: row[1:] for row in self._file.rows(sql("ingest.items_there"))}
        mask = [True] * self._batch.rows
        if not there:
            return mask
        columns = self._batch.columns
        for place, item_id in enumerate(columns["item_id"]):
            if (found := there.get(item_id)) is None:
                continue
            text_hash, segment_id, seq, group_id, query_hash = found
            mine = UUID(bytes=columns["segment_id"][place])
            query = self._batch.groups[columns["group_id"][place]][3]
            if text_hash.bytes != columns["text_hash"][place]:
                mask[place] = False
                self._bad.append(self._conflict(place))
            elif query_hash is None and query is not None:
                self._leaving.append((seq, group_id))
            else:
                mask[place] = False
                if segment_id != mine:  # its own rows, from a first half that was committed, are no news
                    self._known[mine] = self._known.get(mine, 0) + 1
        return mask

    def _conflict(self, place: int) -> BadLine:
        """The item at `place`, as the record that it came from."""
        row = {name: values[place] for name, values in self._batch.columns.items()}
        namespace, name, policy, query = self._batch.groups[row["group_id"]]
        segment_id, item_id = UUID(bytes=row["segment_id"]), UUID(bytes=row["item_id"])
        record = {
            "type": "item",
            "item_id": str(item_id),
            "created_at": row["created_at"].isoformat(),
            "deadline": row["deadline"] and row["deadline"].isoformat(),
            "namespace": namespace,
            "group": name,
            "run": row["run_id"],
            "policy": policy,
            "query": query,
            **{name: row[name] for name in ("step", "kind", "agent", "flags")},
            "priority": row["priority"] or None,
            "meta": row["meta"] and json.loads(row["meta"]),
            "text": self._batch.texts.get(row["text_hash"]),
        }
        raw = to_json({name: value for name, value in record.items() if value is not None}).encode()
        source = next((s.name for s in self._batch.ended if s.segment.header.segment_id == segment_id), None)
        return BadLine(segment_id, source, row["line"], "id_conflict", conflict(item_id), raw)

    def _leave(self) -> None:
        leaving = table(
            {
                "seq": column((seq for seq, _ in self._leaving), "int64"),
                "group_id": uuids(group_id for _, group_id in self._leaving),
            }
        )
        with self._file.with_tables(leaving=leaving):
            for step in ("remove_leaving", "leave_groups", "remove_empty_states", "remove_empty_groups"):
                self._file.rows(sql(f"ingest.{step}"))

    # ------------------------------------------------------------------------------------- writing

    def _take(self, rows: int) -> int:
        start: int = self._file.rows(sql("ingest.next_item"))[0][0]
        self._file.rows(sql("ingest.take_items"), {"n": rows})
        return start

    def _insert(self, accepted: pa.Table, hashes: set[bytes]) -> None:
        file = self._file
        with file.with_tables(fresh=table({"text_hash": uuid_bytes(hashes)})):
            hashes = hashes.difference(found.bytes for (found,) in file.rows(sql("ingest.texts_there")))
        if hashes:
            with file.with_tables(fresh=self._batch.texts.some(hashes)):
                file.rows(sql("ingest.insert_texts"))
        with file.with_tables(accepted=accepted, groups=self._batch.groups_table()):
            file.rows(sql("ingest.insert_items"))
            file.rows(sql("ingest.insert_groups"))
            with file.with_tables(arrivals=file.arrow(sql("ingest.arrivals"))):
                file.rows(sql("ingest.reach_groups"))
                file.rows(sql("ingest.open_groups"))

    def _close(self, start: int, places: list[int]) -> None:
        """Close groups, but for those that got an item after the word came."""
        closes = self._batch.closes
        incoming = table(
            {
                "namespace": column((close.namespace for close in closes), "string"),
                "run": column((close.run for close in closes), "string"),
                "group": column((close.group for close in closes), "string"),
                "before": column(
                    (start + places[min(close.place, len(places) - 1)] for close in closes), "int64"
                ),
            }
        )
        with self._file.with_tables(closes=incoming):
            if any(close.group is not None for close in closes):
                self._file.rows(sql("ingest.close_named"))
            if any(close.run is not None for close in closes):
                self._file.rows(sql("ingest.close_runs"))

    def _quarantine(self) -> int:
        """Set them aside; returns how many were not there yet."""
        once = {line.quarantine_id: line for line in self._bad}
        lines = once.values()
        bad = table(
            {
                "quarantine_id": uuids(once),
                "segment_id": uuids(line.segment_id for line in lines),
                "source": column((line.source for line in lines), "string"),
                "line": column((line.line for line in lines), "int64"),
                "reason": column((line.reason for line in lines), "string"),
                "detail": column((line.detail for line in lines), "string"),
                "raw": column((line.raw for line in lines), "binary"),
            }
        )
        with self._file.with_tables(bad=bad):
            return int(self._file.rows(sql("ingest.insert_quarantine"))[0][0])

    def _end_segments(self) -> None:
        ended = self._batch.ended
        headers = [source.segment.header for source in ended]
        counts = [source.segment.counts for source in ended]
        wanted = table({"segment_id": uuids(header.segment_id for header in headers)})
        with self._file.with_tables(wanted=wanted):
            rows = dict(self._file.rows(sql("ingest.rows_of_segments")))
            bad = dict(self._file.rows(sql("ingest.bad_of_segments")))
        told = table(
            {
                "segment_id": uuids(header.segment_id for header in headers),
                "version": column((header.version for header in headers), "int32"),
                "source": column((source.name for source in ended), "string"),
                "rows": column((rows.get(header.segment_id, 0) for header in headers), "int64"),
                "known": column((self._known.get(header.segment_id, 0) for header in headers), "int64"),
                "bad": column((bad.get(header.segment_id, 0) for header in headers), "int64"),
                "overflowed": column((count.overflowed for count in counts), "int64"),
                "refused": column((count.refused for count in counts), "int64"),
                "sealed_at": times(source.arrived for source in ended),
            }
        )
        with self._file.with_tables(ended=told):
            self._file.rows(sql("ingest.insert_segments"))


def _running(mask: list[bool]) -> list[int]:
    """How many were accepted before each place, and before the end."""
    total, sums = 0, [0]
    for accepted in mask:
        total += accepted
        sums.append(total)
    return sums
