"""Parquet beside the ledger: what changed, merged now and then, caught up after a crash."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import duckdb
import pytest

from afterpass.core.config import StoreConfig
from afterpass.core.errors import LedgerBusy
from afterpass.core.keys import new_id
from afterpass.core.types import Item, Point, Selection, Summary, SummaryStatus
from afterpass.store import export
from afterpass.store.door import Door
from afterpass.store.export_read import ExportReader, open_reader
from afterpass.store.ledger import Ledger


@pytest.fixture
def door(stock: Any) -> Door:
    return Door(stock.home, StoreConfig())


def exported(stock: Any) -> ExportReader:
    return ExportReader(stock.home, export.read_manifest(stock.home))


def same(stock: Any) -> bool:
    """Whether the export says what the ledger says (but for the texts of what was dropped)."""
    with Ledger.open(stock.home.ledger, read_only=True) as ledger:
        kept, dropped = ledger.verdicts(keep=True).to_list(), ledger.verdicts(keep=False).to_list()
        summaries = sorted(ledger.summaries().to_list(), key=lambda row: row.group_id)
    reader = exported(stock)
    return (
        reader.verdicts(keep=True).to_list() == kept
        and [row.item_id for row in reader.verdicts(keep=False)] == [row.item_id for row in dropped]
        and sorted(reader.summaries().to_list(), key=lambda row: row.group_id) == summaries
    )


def summarise(ledger: Ledger, text: str) -> None:
    groups = ledger.due_summaries(policies=["default"], sweep_id=new_id())
    point = Point(text=text, items=(new_id(),), support=1.0)
    said = Summary(status=SummaryStatus.DONE, text=text, points=(point,))
    ledger.write_summaries(new_id(), [(group, [said]) for group in groups])


def test_each_opening_that_wrote_adds_what_changed(stock: Any, door: Door, item: Callable[..., Item]) -> None:
    for n in range(4):
        stock.record(*(item("x" * (k + 1), run=f"run-{n}") for k in range(3)))
        stock.ingest()
        with door.open() as ledger:
            stock.judge(ledger)
        assert same(stock)
    with door.open() as ledger:
        summarise(ledger, "said")
    stock.fill("a later one", run="run-1")
    with door.open() as ledger:
        stock.judge(ledger, keep=2)  # its summary is stale now, and the export says so
    assert same(stock)
    assert [row.stale for row in exported(stock).summaries(group="run-1")] == [True]
    assert {row.group for row in exported(stock).summaries(run="run-2")} == {"run-2"}
    assert [row.text for row in exported(stock).verdicts(run="run-1", keep=True)] == ["a later one", "xxx"]


def test_reading_or_writing_scores_alone_adds_no_file(stock: Any, door: Door) -> None:
    stock.fill("a")
    with door.open() as ledger:
        stock.judge(ledger)
    before = sorted(path.name for path in stock.home.exports.iterdir())
    with door.open() as ledger:
        ledger.verdicts().to_list()
    with door.open() as ledger:
        ledger.write_scores(new_id(), "other", [])
    assert sorted(path.name for path in stock.home.exports.iterdir()) == before


def test_many_small_files_are_merged_and_the_old_ones_stay_for_a_while(
    stock: Any, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(export.MOST_FILES * 2):
        stock.fill(f"text {n}", run=f"run-{n % 5}")
        with door.open() as ledger:
            stock.judge(ledger)
        assert len(export.read_manifest(stock.home).verdicts) <= export.MOST_FILES
    assert same(stock)
    manifest = export.read_manifest(stock.home)
    assert all((stock.home.exports / name).exists() for name in manifest.retired)
    monkeypatch.setattr(export, "GRACE_SECONDS", -1.0)
    stock.fill("last")
    with door.open() as ledger:
        stock.judge(ledger)
    manifest = export.read_manifest(stock.home)
    live = {one.name for one in (*manifest.verdicts, *manifest.summaries)}
    assert {path.name for path in stock.home.exports.iterdir()} == live | {"manifest.json"}
    assert same(stock)


KILLED = """
import sys
from afterpass.core.paths import Home
from afterpass.core.config import StoreConfig
from afterpass.store.door import Door
from afterpass.store.export import update
home = Home.at(sys.argv[1])
with Door(home, StoreConfig()).open() as ledger:
    update(home, ledger._file)
"""


@pytest.mark.parametrize(
    "point", ["export.written", "export.renamed", "export.renamed@2", "export.manifest", "export.done"]
)
def test_a_crash_in_between_is_caught_up(stock: Any, door: Door, point: str) -> None:
    stock.fill("a", "bb")
    with door.open() as ledger:
        stock.judge(ledger)
    quiet = Door(stock.home, StoreConfig(export=False))
    stock.fill("ccc")
    with quiet.open() as ledger:
        stock.judge(ledger)
        summarise(ledger, "said")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(stock.home.root)],
        env={**os.environ, "AFTERPASS_FAILPOINT": f"{point}=kill"},
        check=False,
    )
    assert done.returncode == -9
    exported(stock).verdicts().to_list()  # whatever is live can be read
    with door.open() as ledger:
        export.update(stock.home, ledger._file)
    assert same(stock)


def test_a_reader_finds_the_export_when_the_ledger_is_held(stock: Any, door: Door) -> None:
    stock.fill("a", "bb")
    hold = (
        "import sys, time, duckdb; c = duckdb.connect(sys.argv[1]); print('held', flush=True); time.sleep(99)"
    )

    def hold_it() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", hold, str(stock.home.ledger)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    holder = hold_it()
    try:
        with pytest.raises(LedgerBusy):
            open_reader(stock.home, timeout=0.1)
    finally:
        holder.kill()
        holder.wait()
    with door.open() as ledger:
        stock.judge(ledger)
    holder = hold_it()
    try:
        with open_reader(stock.home, timeout=0.1) as reader:
            assert isinstance(reader, ExportReader)
            assert reader.as_of is not None
            (row,) = reader.verdicts(keep=True).to_list()
            assert (row.text, row.excerpt) == ("bb", "bb")
            assert reader.verdicts(item=row.item_ref).to_list() == [row]
            assert reader.verdicts(group=row.group_ref).arrow().num_rows == 2
    finally:
        holder.kill()
        holder.wait()
    assert isinstance(open_reader(stock.home), Ledger)


def test_plain_sql_reads_it_by_the_manifest(stock: Any, door: Door) -> None:
    stock.fill("a", "bb")
    with door.open() as ledger:
        stock.judge(ledger)
    manifest, folder = stock.home.exports / "manifest.json", stock.home.exports
    with duckdb.connect() as plain:
        plain.execute(
            f"""SET VARIABLE live = (
                SELECT ['{folder}/' || v.name for v in verdicts] FROM read_json('{manifest}'))"""
        )
        found = plain.execute(
            """SELECT decision, count(*) FROM read_parquet(getvariable('live'))
            GROUP BY decision ORDER BY decision"""
        ).fetchall()
    assert found == [("drop", 1), ("keep", 1)]


def test_rebuilding_leaves_nothing_of_what_was(stock: Any, door: Door) -> None:
    stock.fill("a secret", "bb")
    with door.open() as ledger:
        stock.judge(ledger, keep=2)
    with door.open() as ledger:
        file = ledger._file
        file.transact(lambda: file.rows("DELETE FROM verdict WHERE seq = 1"))
        export.rebuild(stock.home, file)
    assert [row.text for row in exported(stock).verdicts()] == ["bb"]
    assert not any(b"a secret" in path.read_bytes() for path in stock.home.exports.iterdir())


def test_groups_that_left_the_ledger_leave_the_export_whatever_happens_in_between(
    stock: Any, door: Door
) -> None:
    stock.fill("a", run="old")
    stock.fill("bb", run="new")
    with door.open() as ledger:
        stock.judge(ledger)
    export.mark_stale(stock.home)
    with door.open() as ledger:
        file = ledger._file
        gone = "group_id <> (SELECT group_id FROM item WHERE run_id = 'new')"
        for table in ("verdict", "group_state"):
            file.rows(f"DELETE FROM {table} WHERE {gone}")
        assert [row.text for row in exported(stock).verdicts()] == ["a", "bb"]  # readers have it meanwhile
        export.update(stock.home, file)
    assert [row.text for row in exported(stock).verdicts()] == ["bb"]
    assert same(stock)
    before = export.read_manifest(stock.home)
    with door.open() as ledger:
        assert export.update(stock.home, ledger._file) == before


def test_an_older_ledger_put_in_its_place_is_exported_anew(stock: Any, door: Door) -> None:
    stock.fill("a")
    with door.open() as ledger:
        stock.judge(ledger)
    kept = stock.home.ledger.read_bytes()
    for text in ("bb", "ccc"):
        stock.fill(text)
        with door.open() as ledger:
            stock.judge(ledger)
    stock.home.ledger.write_bytes(kept)
    with door.open() as ledger:
        ledger.reopen(Selection(), "redecide")
        export.update(stock.home, ledger._file)
    assert same(stock)
