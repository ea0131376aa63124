"""From segments to rows: nothing lost, nothing doubled, whatever a segment holds and whenever it stops."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID
from zlib import crc32

import pytest

from afterpass.core.config import StoreConfig
from afterpass.core.errors import LedgerBusy
from afterpass.core.keys import given_item_id, new_id
from afterpass.core.types import Item
from afterpass.store import ingest as ingesting
from afterpass.store import ingest_batch
from afterpass.store.formats import Bad, Skipped
from afterpass.store.importer import import_files, import_records
from afterpass.store.spool import Counts, SegmentWriter, item_record, sealed_segments
from afterpass.store.spool_format import line


def rows(stock: Any, query: str) -> list[tuple[Any, ...]]:
    with stock.open() as ledger:
        return list(ledger._file.rows(query))


def test_what_was_recorded_is_in_and_its_files_are_gone(stock: Any, item: Callable[..., Item]) -> None:
    first = item(
        "one \0 é 😀",
        step="2",
        kind="tool",
        agent="a",
        meta={"n": [1, None, 2.5]},
        priority=3,
        flags=("nul",),
    )
    stock.record(first, item("two"))
    report = stock.ingest()
    assert (report.segments, report.rows, report.known, report.quarantined) == (1, 2, 0, 0)
    assert sealed_segments(stock.home) == []
    (row,) = rows(stock, "SELECT * EXCLUDE (group_id, text_hash, segment_id) FROM item WHERE priority = 3")
    assert row[:4] == (1, first.item_id, "default", 9)
    with stock.open() as ledger:
        stock.judge(ledger)
        told = next(iter(ledger.verdicts(item=f"i_{first.item_id.hex[-12:]}")))
    assert (told.text, told.meta, told.flags) == ("one \0 é 😀", {"n": [1, None, 2.5]}, ("nul",))
    assert (told.step, told.kind, told.agent, told.created_at) == ("2", "tool", "a", first.created_at)


def test_a_segment_that_comes_twice_is_taken_once(stock: Any, item: Callable[..., Item]) -> None:
    stock.record(item("one"), item("two"))
    (path,) = sealed_segments(stock.home)
    content = path.read_bytes()
    stock.ingest()
    path.write_bytes(content)
    again = stock.ingest()
    assert (again.segments, again.rows, again.known) == (0, 0, 0)
    assert sealed_segments(stock.home) == []
    assert rows(stock, "SELECT count(*) FROM item") == [(2,)]


def test_an_item_that_comes_twice_is_known_and_a_text_is_stored_once(
    stock: Any, item: Callable[..., Item]
) -> None:
    twice = item("same")
    stock.record(twice, twice, item("same"))
    stock.record(twice)
    report = stock.ingest()
    assert (report.rows, report.known) == (2, 2)
    report = (stock.record(twice), stock.ingest())[1]
    assert (report.rows, report.known) == (0, 1)
    assert rows(stock, "SELECT count(*) FROM text") == [(1,)]
    assert rows(stock, "SELECT items, chars, last_seq FROM group_state") == [(2, 8, 2)]


def test_the_same_id_with_another_text_is_quarantined_and_its_neighbours_live(
    stock: Any, item: Callable[..., Item]
) -> None:
    uid = given_item_id("default", "mine")
    stock.record(item("first", item_id=uid), item("within one segment", item_id=uid), item("neighbour"))
    assert stock.ingest().quarantined == 1
    stock.record(item("across segments", item_id=uid, meta={"a": 1}), item("another neighbour"))
    report = stock.ingest()
    assert (report.rows, report.quarantined) == (1, 1)
    found = rows(stock, "SELECT reason, detail, raw FROM quarantine ORDER BY quarantined_at")
    assert [reason for reason, _, _ in found] == ["id_conflict", "id_conflict"]
    record = json.loads(found[1][2])
    assert (record["item_id"], record["text"]) == (str(uid), "across segments")
    assert sorted(rows(stock, "SELECT text FROM text")) == [
        ("another neighbour",),
        ("first",),
        ("neighbour",),
    ]


BAD_RECORDS: list[tuple[dict[str, Any], str]] = [
    ({"type": "item", "item_id": str(UUID(int=1)), "created_at": "2026-01-01T00:00:00+00:00"}, "no_text"),
    ({"type": "item", "text": "x", "created_at": "2026-01-01T00:00:00+00:00"}, "no_item_id"),
    ({"type": "item", "text": 5, "item_id": str(UUID(int=1))}, "wrong_type"),
    ({"type": "item", "text": "x", "item_id": str(UUID(int=1)), "created_at": "yesterday"}, "wrong_type"),
    ({"type": "item", "text": "x", "item_id": str(UUID(int=1))}, "no_created_at"),
    ({"type": "surprise"}, "unknown_type"),
    ({"no": "type"}, "unknown_type"),
    ({"type": "close", "run": 5}, "wrong_type"),
]


@pytest.mark.parametrize(("record", "reason"), BAD_RECORDS)
def test_a_record_that_is_no_item_is_set_aside_with_its_reason(
    stock: Any, item: Callable[..., Item], record: dict[str, Any], reason: str
) -> None:
    with SegmentWriter(stock.home) as writer:
        writer.write(item_record(item("before")))
        writer.write(record)
        writer.write(item_record(item("after")))
    report = stock.ingest()
    assert (report.rows, report.quarantined) == (2, 1)
    ((found, number, raw),) = rows(stock, "SELECT reason, line, raw FROM quarantine")
    assert (found, number, json.loads(raw)) == (reason, 3, record)


def test_flipped_bytes_and_a_torn_end_cost_their_lines(stock: Any, item: Callable[..., Item]) -> None:
    stock.record(*(item(f"text {n}") for n in range(5)))
    (path,) = sealed_segments(stock.home)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"text 1", b"texT 1")
    path.write_bytes(b"".join(lines[:5]) + lines[5][:20])
    report = stock.ingest()
    assert (report.rows, report.quarantined) == (3, 2)
    found = rows(stock, "SELECT line, reason, raw FROM quarantine ORDER BY line")
    assert [(number, reason) for number, reason, _ in found] == [(3, "checksum"), (6, "torn")]
    assert found[1][2] == lines[5][:20]


def test_lone_surrogates_in_a_segment_are_mended_and_flagged(stock: Any) -> None:
    stock.record()
    with SegmentWriter(stock.home) as writer:
        payload = (
            f'{{"type":"item","item_id":"{UUID(int=5)}","created_at":"2026-01-01T00:00:00+00:00",'
            '"run":"r","query":"q","text":"broken \\ud800 here","meta":{"k":"\\udfff"}}'
        )
        writer.append([line(payload.encode())], rows=1)
    assert stock.ingest().rows == 1
    assert rows(stock, "SELECT t.text, i.flags FROM item i JOIN text t USING (text_hash)") == [
        ("broken \ufffd here", ["lone_surrogate"])
    ]


def test_odd_metadata_is_kept(stock: Any, item: Callable[..., Item]) -> None:
    odd = {"big": 10**40, "deep": json.loads("[" * 200 + "]" * 200), "": "", "nul\0": "\0", "é": True}
    stock.record(item("x", meta=odd))
    assert stock.ingest().rows == 1
    ((meta,),) = rows(stock, "SELECT meta::VARCHAR FROM item")
    assert json.loads(meta) == odd


def test_a_segment_larger_than_a_batch_is_taken_in_several_transactions(
    stock: Any, item: Callable[..., Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_batch, "BATCH_ROWS", 10)
    stock.record(*(item(f"text {n}", run=f"run-{n % 3}") for n in range(35)))
    report = stock.ingest()
    assert (report.segments, report.rows) == (1, 35)
    assert rows(stock, "SELECT rows, known, bad FROM segment") == [(35, 0, 0)]
    assert rows(stock, "SELECT sum(items), min(first_seq), max(last_seq) FROM group_state") == [(35, 1, 35)]


def test_one_that_stopped_half_way_is_read_again_and_nothing_is_doubled(
    stock: Any, item: Callable[..., Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_batch, "BATCH_ROWS", 10)
    with SegmentWriter(stock.home) as writer:
        for n in range(25):
            writer.write(item_record(item(f"text {n}")))
            if n % 10 == 0:
                writer.write({"type": "surprise", "n": n})
    write_batch, calls = ingesting.write_batch, []

    def stop_at_the_third(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise OSError("power cut")
        return write_batch(*arguments)

    monkeypatch.setattr(ingesting, "write_batch", stop_at_the_third)
    with pytest.raises(OSError, match="power cut"):
        stock.ingest()
    assert rows(stock, "SELECT count(*) FROM item") == [(20,)]
    assert len(sealed_segments(stock.home)) == 1
    report = stock.ingest()
    assert (report.rows, report.known) == (5, 0)
    assert rows(stock, "SELECT rows, known, bad FROM segment") == [(25, 0, 3)]
    assert rows(stock, "SELECT count(*), count(DISTINCT item_id) FROM item") == [(25, 25)]
    assert rows(stock, "SELECT count(*) FROM quarantine") == [(3,)]


def test_the_footers_counts_are_kept(stock: Any, item: Callable[..., Item]) -> None:
    writer = SegmentWriter(stock.home)
    writer.write(item_record(item("x")))
    writer.seal(Counts(overflowed=7, refused=2, reasons={"no_text": 2}))
    report = stock.ingest()
    assert (report.overflowed, report.refused) == (7, 2)
    with stock.open() as ledger:
        status = ledger.status(datetime.now(UTC))
    assert (status["overflowed"], status["refused"], status["ingested"]) == (7, 2, 1)


def test_a_busy_ledger_leaves_the_segments_where_they_are(stock: Any, item: Callable[..., Item]) -> None:
    stock.record(item("x"))
    with stock.open(), pytest.raises(LedgerBusy):
        _ingest_elsewhere(stock)
    assert len(sealed_segments(stock.home)) == 1
    assert stock.ingest().rows == 1


def _ingest_elsewhere(stock: Any) -> None:
    """In another process: one process may open its own ledger twice."""
    import subprocess
    import sys

    script = (
        "import sys; from afterpass.core.paths import Home; from afterpass.core.config import StoreConfig\n"
        "from afterpass.core.errors import LedgerBusy\n"
        "from afterpass.store.ingest import ingest\n"
        "try: ingest(Home.at(sys.argv[1]), StoreConfig(), timeout=0.2)\n"
        "except LedgerBusy as error: print(error); sys.exit(75)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(stock.home.root)], capture_output=True, text=True, check=False
    )
    if done.returncode == 75:
        raise LedgerBusy(done.stdout)


def test_a_segment_that_cannot_be_read_waits_and_is_told(stock: Any, item: Callable[..., Item]) -> None:
    stock.record(item("fine"))
    newer = stock.home.inbox / f"{new_id()}.segment"
    start, payload = b"afterpass segment 99 ", f'{{"segment":"{new_id()}"}}'.encode()
    newer.write_bytes(b"%b%08x %b\n" % (start, crc32(start + payload), payload))
    report = stock.ingest()
    assert report.rows == 1
    assert "99" in report.waiting[0]
    assert newer.exists()


def test_a_clock_that_was_ahead_does_not_hold_its_groups_back(stock: Any, item: Callable[..., Item]) -> None:
    stock.record(item("x"))
    (path,) = sealed_segments(stock.home)
    os.utime(path, (time.time() + 10**6, time.time() + 10**6))
    stock.ingest()
    ((due_at,),) = rows(stock, "SELECT due_at FROM group_state")
    assert due_at <= datetime.now(UTC)


# ------------------------------------------------------------------------------------------ imports


def test_an_import_counts_what_it_found_and_a_second_adds_nothing(
    stock: Any, item: Callable[..., Item]
) -> None:
    found = [
        item("one", item_id=given_item_id("default", "1")),
        item("two", item_id=given_item_id("default", "2"), query=None),
        Bad(line=3, where="line 3", reason="not_json", detail="at column 5", raw=b'{"a\xff'),
        Skipped(where="line 4", reason="user_message"),
    ]
    for expected in ((2, 1), (0, 0)):
        report = import_records(stock.home, StoreConfig(), iter(found), source="trace.jsonl")
        assert (report.items, report.no_query, report.groups) == (2, 1, 2)
        assert (report.bad, report.skipped) == ({"not_json": 1}, {"user_message": 1})
        assert report.ingested is not None
        assert (report.ingested.rows, report.ingested.quarantined) == expected
    assert rows(stock, "SELECT source, line, reason, detail, raw FROM quarantine") == [
        ("trace.jsonl", 3, "not_json", "line 3: at column 5", b'{"a\xff')
    ]


def test_an_item_that_came_without_a_query_moves_when_it_comes_with_one(
    stock: Any, item: Callable[..., Item]
) -> None:
    ids = [given_item_id("default", str(n)) for n in range(3)]
    mute = [item(f"text {n}", item_id=uid, query=None) for n, uid in enumerate(ids)]
    stock.record(*mute)
    stock.ingest()
    asked = [item(f"text {n}", item_id=uid, query="which?") for n, uid in enumerate(ids)]
    report = import_records(stock.home, StoreConfig(), asked[:2])
    assert report.ingested is not None
    assert (report.ingested.rows, report.ingested.requeried) == (2, 2)
    with stock.open() as ledger:
        assert sorted((g.query, g.items) for g in stock.due(ledger)) == [("which?", 2)]
        waiting = ledger.waiting(policies=["default"], now=datetime.now(UTC), settle=None)
        assert waiting["no_query"] == 1
    import_records(stock.home, StoreConfig(), asked)
    assert rows(stock, "SELECT query, items FROM item_group JOIN group_state USING (group_id)") == [
        ("which?", 3)
    ]
    assert rows(stock, "SELECT count(*), count(DISTINCT item_id) FROM item") == [(3, 3)]


def test_a_reader_that_fails_in_the_middle_of_a_file_leaves_nothing_of_its_open_segment(
    stock: Any, item: Callable[..., Item]
) -> None:
    def broken() -> Any:
        yield item("one")
        raise ValueError("the file ends here")

    with pytest.raises(ValueError, match="ends here"):
        import_files(stock.home, StoreConfig(), [("good", [item("fine")]), ("bad", broken())])
    assert stock.ingest().rows == 1
    assert [path for path in Path(stock.home.spool).rglob("*") if path.is_file()] == []
