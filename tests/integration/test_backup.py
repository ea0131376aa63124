"""A backup while agents record, and what comes back of it: everything once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from afterpass.core.config import StoreConfig
from afterpass.core.errors import InputError, LedgerBusy, StoreError
from afterpass.core.keys import new_id
from afterpass.core.paths import Home
from afterpass.core.types import DueGroup, Item
from afterpass.store import ledger_commit
from afterpass.store.backup import backup, check, restore
from afterpass.store.door import Door
from afterpass.store.ingest import ingest
from afterpass.store.ledger import Ledger
from afterpass.store.outbox import Outbox
from afterpass.store.spool import SegmentWriter, item_record

CONFIG = StoreConfig(busy_timeout="1s")  # type: ignore[arg-type]


@pytest.fixture
def full(stock: Any, item: Callable[..., Item]) -> Any:
    """A home with something everywhere."""
    stock.fill("a", "bb", run="a")
    with Door(stock.home, CONFIG).open() as ledger:
        stock.judge(ledger)
        (group,) = ledger.due_summaries(policies=["default"], sweep_id=new_id())
    stock.record(item("waits", run="b"))
    stock.home.config.write_text("[store]\nsettle = 0\n")
    stock.home.calibrations.mkdir()
    (stock.home.calibrations / "default.json").write_text("{}")
    Outbox(stock.home, most_bytes=2**20).put(_summary(group))
    return stock


def _summary(group: DueGroup) -> ledger_commit.Commit:
    from afterpass.core.types import Summary, SummaryStatus

    return ledger_commit.summaries(new_id(), [(group, [Summary(status=SummaryStatus.DONE, text="said")])])


def said(home: Home) -> tuple[list[str], list[str]]:
    with Door(home, CONFIG).open() as ledger:
        return sorted(row.text or "" for row in ledger.verdicts()), [row.text for row in ledger.summaries()]


def items(home: Home) -> int:
    with Ledger.open(home.ledger, read_only=True) as ledger:
        return int(ledger._file.rows("SELECT count(*) FROM item")[0][0])


def test_a_backup_brings_everything_back_once(full: Any, tmp_path: Path) -> None:
    made = backup(full.home, CONFIG, tmp_path / "saved")
    assert (made.tables["item"], made.segments, made.commits) == (2, 1, 1)
    assert check(tmp_path / "saved")["tables"]["item"]["rows"] == 2
    new = Home(tmp_path / "new")
    done = restore(tmp_path / "saved", new, CONFIG)
    assert (done.tables, done.kept, done.replaced) == (made.tables, (), None)
    assert new.config.read_text() == full.home.config.read_text()
    assert (new.calibrations / "default.json").exists()
    assert ingest(new, CONFIG).rows == 1
    full.ingest()
    assert said(new) == said(full.home) == (["a", "bb"], ["said"])
    assert (items(new), items(full.home)) == (3, 3)
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_what_is_in_the_spool_and_in_the_ledger_counts_once(
    stock: Any, item: Callable[..., Item], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock.record(item("sealed", run="a"))
    writer = SegmentWriter(stock.home)
    writer.write(item_record(item("open then sealed", run="a")))
    writer.sync()

    def meanwhile(name: str) -> None:  # between copying the spool and copying the ledger
        if name == "backup.spool":
            writer.write(item_record(item("later", run="a")))
            writer.seal()
            assert stock.ingest().rows == 3

    from afterpass.core import failpoints

    monkeypatch.setattr(failpoints, "hit", meanwhile)
    made = backup(stock.home, CONFIG, tmp_path / "saved")
    assert (made.tables["item"], made.segments) == (3, 2)
    new = Home(tmp_path / "new")
    restore(tmp_path / "saved", new, CONFIG)
    assert (ingest(new, CONFIG).rows, items(new)) == (0, 3)
    assert list(new.spool.rglob("*.*")) == []


def test_what_was_still_being_written_comes_back_as_far_as_it_was(
    stock: Any, item: Callable[..., Item], tmp_path: Path
) -> None:
    stock.fill("there")
    writer = SegmentWriter(stock.home)
    writer.write(item_record(item("whole")))
    writer.append([b"half a li"], rows=0)
    backup(stock.home, CONFIG, tmp_path / "saved")
    new = Home(tmp_path / "new")
    restore(tmp_path / "saved", new, CONFIG)
    report = ingest(new, CONFIG)
    assert (report.rows, report.quarantined, items(new)) == (1, 0, 2)


RECORD = """
import sys
import afterpass
from afterpass.core.paths import Home
from afterpass.hooks.recorder import Recorder
recorder = Recorder(home=sys.argv[1], segment_age=0.05)
for number in range(100_000):
    item = recorder.record(f"text {number}", query="q", run="loop", wait=number % 50 == 49)
    if number % 50 == 49:
        print(number + 1, flush=True)
"""


@pytest.mark.timeout(120)
def test_the_books_of_backups_taken_while_a_process_records(stock: Any, tmp_path: Path) -> None:
    """Each backup has all that was acknowledged before it began, in order, and nothing twice."""
    stock.fill("first", run="other")
    process = subprocess.Popen(
        [sys.executable, "-c", RECORD, str(stock.home.root)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        acknowledged = []
        for number in range(3):
            for _ in range(3):
                line = process.stdout.readline()
            acknowledged.append(int(line))
            backup(stock.home, CONFIG, tmp_path / f"saved-{number}")
            stock.ingest()
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    for number, at_least in enumerate(acknowledged):
        new = Home(tmp_path / f"new-{number}")
        restore(tmp_path / f"saved-{number}", new, CONFIG)
        assert ingest(new, CONFIG).quarantined == 0
        assert ingest(new, CONFIG).segments == 0
        with Ledger.open(new.ledger, read_only=True) as ledger:
            found = ledger._file.rows(
                "SELECT CAST(text[6:] AS INTEGER) AS n, count(*) FROM item JOIN text USING (text_hash) "
                "WHERE run_id = 'loop' GROUP BY n ORDER BY n"
            )
        assert len(found) >= at_least
        assert found == [(n, 1) for n in range(len(found))]


def test_it_never_overwrites_unasked(full: Any, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    backup(full.home, CONFIG, saved)
    with pytest.raises(InputError, match="there already"):
        backup(full.home, CONFIG, saved)
    with pytest.raises(InputError, match="in the home"):
        backup(full.home, CONFIG, full.home.root / "saved")
    full.fill("since then", run="c")
    full.record(Item(item_id=new_id(), text="unread", created_at=_now(), query="q", run="d"))
    before = full.home.ledger.read_bytes()
    with pytest.raises(StoreError, match="there is a ledger"):
        restore(saved, full.home, CONFIG)
    assert full.home.ledger.read_bytes() == before
    full.home.config.write_text("# changed\n")
    done = restore(saved, full.home, CONFIG, replace=True)
    assert done.kept == ("config.toml",)
    assert done.replaced is not None
    assert (done.replaced / "ledger.duckdb").read_bytes() == before
    assert items(full.home) == 2
    assert ingest(full.home, CONFIG).rows == 2  # what waited, there and here, is not lost


def _now() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)


def test_a_damaged_ledger_is_replaced(full: Any, tmp_path: Path) -> None:
    backup(full.home, CONFIG, tmp_path / "saved")
    full.home.ledger.write_bytes(b"nothing of use")
    wal = full.home.ledger.with_name("ledger.duckdb.wal")
    wal.write_bytes(b"of another ledger")
    restore(tmp_path / "saved", full.home, CONFIG, replace=True)
    assert not wal.exists()
    assert said(full.home) == (["a", "bb"], ["said"])


def test_a_damaged_backup_is_refused(full: Any, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    backup(full.home, CONFIG, saved)
    with pytest.raises(InputError, match="no backup"):
        restore(tmp_path, Home(tmp_path / "new"), CONFIG)
    ledger = saved / "ledger.duckdb"
    content = bytearray(ledger.read_bytes())
    content[len(content) // 2] ^= 1
    ledger.write_bytes(content)
    with pytest.raises(StoreError, match="damaged: ledger"):
        restore(saved, Home(tmp_path / "new"), CONFIG)
    manifest = json.loads((saved / "manifest.json").read_text())
    (saved / "manifest.json").write_text(json.dumps({**manifest, "version": 99}))
    with pytest.raises(InputError, match="newer"):
        restore(saved, Home(tmp_path / "new"), CONFIG)
    assert not (tmp_path / "new").exists()


def test_no_room_is_told_and_leaves_nothing(
    full: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage(NamedTuple):
        free: int

    saved = tmp_path / "saved"
    backup(full.home, CONFIG, saved)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1000))
    with pytest.raises(StoreError, match="MiB free"):
        backup(full.home, CONFIG, tmp_path / "more")
    with pytest.raises(StoreError, match="MiB free"):
        restore(saved, Home(tmp_path / "new"), CONFIG)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "new", "saved"]
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize("point", ["restore.copied", "restore.renamed"])
def test_killed_while_restoring_the_ledger_is_the_old_or_the_new_one(
    full: Any, tmp_path: Path, point: str
) -> None:
    backup(full.home, CONFIG, tmp_path / "saved")
    full.fill("since then", run="c")
    script = (
        "import sys; from pathlib import Path; from afterpass.core.config import StoreConfig\n"
        "from afterpass.core.paths import Home; from afterpass.store.backup import restore\n"
        "restore(Path(sys.argv[1]), Home.at(sys.argv[2]), StoreConfig(), replace=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "saved"), str(full.home.root)],
        env={**os.environ, "AFTERPASS_FAILPOINT": f"{point}=kill"},
        check=False,
    )
    assert done.returncode == -9
    assert items(full.home) == (4 if point == "restore.copied" else 2)
    restore(tmp_path / "saved", full.home, CONFIG, replace=True)
    full.ingest()
    assert items(full.home) == 3
    assert said(full.home) == (["a", "bb"], ["said"])


def test_beside_a_reader_it_is_busy(full: Any, tmp_path: Path) -> None:
    hold = (
        "import sys, time, duckdb\nc = duckdb.connect(sys.argv[1], read_only=True)\n"
        "print(1, flush=True)\ntime.sleep(99)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", hold, str(full.home.ledger)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(LedgerBusy, match=str(process.pid)):
            backup(full.home, CONFIG, tmp_path / "saved")
    finally:
        process.kill()
        process.wait()
    assert not (tmp_path / "saved").exists()
