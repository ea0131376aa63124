"""Opening the ledger: created whole, held by others, forked, replaced, newer, or somebody else's file."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from afterpass.core.errors import LedgerBusy, LedgerMissing, LedgerNewer, NotALedger, StoreError
from afterpass.core.keys import new_id
from afterpass.core.paths import Home
from afterpass.core.types import Decision, Verdict
from afterpass.store import sqlfiles
from afterpass.store.ledger import Ledger
from afterpass.store.ledger_file import LedgerFile

HOLD = """
import sys, time
import duckdb
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "True")
print("held", flush=True)
time.sleep(float(sys.argv[3]))
"""


def hold(path: Path, *, read_only: bool, seconds: float = 60) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), str(read_only), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_opening_creates_a_ledger_with_its_folder_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ledger.duckdb"
    with Ledger.open(path):
        pass
    assert [entry.name for entry in path.parent.iterdir()] == ["ledger.duckdb"]


def test_reading_where_there_is_no_ledger_says_so_and_creates_none(tmp_path: Path) -> None:
    with pytest.raises(LedgerMissing, match="no ledger"):
        Ledger.open(tmp_path / "ledger.duckdb", read_only=True)
    assert not list(tmp_path.iterdir())


def test_a_process_that_holds_the_ledger_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.duckdb"
    Ledger.open(path).close()
    holder = hold(path, read_only=False)
    try:
        for read_only in (True, False):
            with pytest.raises(LedgerBusy, match=rf"process {holder.pid} \(") as caught:
                Ledger.open(path, read_only=read_only, timeout=0.2)
            assert caught.value.exit_code == 75
    finally:
        holder.kill()
        holder.wait()


def test_readers_share_the_ledger_and_a_writer_waits_for_them(tmp_path: Path) -> None:
    path = tmp_path / "ledger.duckdb"
    Ledger.open(path).close()
    holder = hold(path, read_only=True)
    try:
        Ledger.open(path, read_only=True, timeout=1.0).close()
        with pytest.raises(LedgerBusy):
            Ledger.open(path, timeout=0.2)
    finally:
        holder.kill()
        holder.wait()


def test_a_ledger_that_comes_free_in_time_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "ledger.duckdb"
    Ledger.open(path).close()
    holder = hold(path, read_only=False, seconds=0.7)
    try:
        Ledger.open(path, timeout=30.0).close()
    finally:
        holder.wait()


def test_the_same_process_cannot_hold_it_both_ways_and_is_told_at_whom_to_look(tmp_path: Path) -> None:
    path = tmp_path / "ledger.duckdb"
    with Ledger.open(path), pytest.raises(LedgerBusy, match=f"this process already.*PID {os.getpid()}"):
        Ledger.open(path, read_only=True, timeout=0.1)


@pytest.mark.parametrize("content", [b"", b"x", b"hello world" * 5000, b"SQLite format 3\0" + bytes(8192)])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.duckdb"
    path.write_bytes(content)
    with pytest.raises(NotALedger, match="not a DuckDB database"):
        Ledger.open(path)
    assert path.read_bytes() == content


def test_a_database_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE theirs (x INTEGER)")
    with pytest.raises(NotALedger, match="no Afterpass ledger"):
        Ledger.open(path)


def test_a_newer_ledger_is_refused_for_reading_and_writing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.duckdb"
    with Ledger.open(path) as ledger:
        ledger._file.connection.execute("INSERT INTO schema_version VALUES (999, 'tomorrow', now())")
    for read_only in (True, False):
        with pytest.raises(LedgerNewer, match=r"version 999\b"):
            Ledger.open(path, read_only=read_only)


def test_every_earlier_version_with_data_is_upgraded_step_by_step(tmp_path: Path) -> None:
    steps = sqlfiles.migrations()
    for version in range(1, len(steps) + 1):
        path = tmp_path / f"from-{version}.duckdb"
        _at_version(path, version)
        with Ledger.open(path) as ledger:
            kept = ledger._file.rows("SELECT count(*) FROM item WHERE kind = 'from before'")
            versions = ledger._file.rows("SELECT version FROM schema_version ORDER BY version")
        assert kept == [(1,)]
        assert versions == [(number,) for number, _, _ in steps]


def test_a_ledger_of_the_first_version_is_read_and_swept_for_ever(tmp_path: Path) -> None:
    """The file was written by that version: thirteen items judged, one in quarantine, one not judged yet."""
    home = Home(tmp_path)
    packed = (Path(__file__).parents[1] / "data" / "ledger-v1.duckdb.gz").read_bytes()
    home.ledger.write_bytes(gzip.decompress(packed))
    with Ledger.open(home.ledger) as ledger:
        rows = ledger.verdicts(run="night").to_list()
        assert len(rows) == 12
        assert {row.meta["n"] for row in rows} == set(range(6))
        assert {row.group for row in ledger.summaries()} == {"rivers", "hills", "odd"}
        status = ledger.status(_now())
        assert (status["items"]["total"], status["quarantined"]) == (14, 1)
        (group,) = ledger.due_groups(policies=["default"], now=_now(), settle=None, sweep_id=new_id())
        assert group.name == "rivers"
        candidates = ledger.candidates([group], "lexical")[group.key]
        sweep = new_id()
        ledger.start_sweep(sweep, config={}, started=_now())
        verdicts = [Verdict(one.seq, Decision.DROP, "below_top_k") for one in candidates]
        assert ledger.write_verdicts(sweep, "lexical", [(group, verdicts)], policy_hash={}) == 1
        assert len(ledger.verdicts(group="rivers").to_list()) == 7
        assert [row.number for row in ledger.history()] == [2, 1]


def _at_version(path: Path, version: int) -> None:
    """A ledger as version `version` made it, with an item in it."""
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE schema_version (version INTEGER, name VARCHAR, applied_at TIMESTAMPTZ)"
        )
        for number, name, script in sqlfiles.migrations()[:version]:
            connection.execute(script)
            connection.execute("INSERT INTO schema_version VALUES (?, ?, now())", [number, name])
        connection.execute(
            """INSERT INTO item BY NAME SELECT 1 AS seq, uuid() AS item_id, 'default' AS namespace,
            uuid() AS group_id, uuid() AS text_hash, 3 AS chars, false AS blank, 'from before' AS kind,
            now() AS created_at, 0 AS priority, uuid() AS segment_id"""
        )


def test_a_migration_that_fails_leaves_the_ledger_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.duckdb"
    Ledger.open(path).close()
    good = sqlfiles.migrations()
    bad = (*good, (len(good) + 1, "broken", "CREATE TABLE half (x INTEGER); SELECT no_such_function();"))
    monkeypatch.setattr("afterpass.store.sqlfiles.migrations", lambda: bad)
    with pytest.raises(duckdb.Error):
        Ledger.open(path)
    monkeypatch.undo()
    with Ledger.open(path) as ledger:
        tables = ledger._file.rows("SELECT table_name FROM duckdb_tables() WHERE table_name = 'half'")
    assert tables == []


def test_an_older_ledger_is_not_upgraded_by_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.duckdb"
    Ledger.open(path).close()
    more = (*sqlfiles.migrations(), (len(sqlfiles.migrations()) + 1, "next", "CREATE TABLE more (x INTEGER)"))
    monkeypatch.setattr("afterpass.store.sqlfiles.migrations", lambda: more)
    with pytest.raises(StoreError, match=rf"version {len(more) - 1}, and this"):
        Ledger.open(path, read_only=True).close()
    Ledger.open(path).close()
    Ledger.open(path, read_only=True).close()


def _use_inherited(ledger: Ledger, queue: Any) -> None:
    try:
        ledger.history()
    except StoreError as error:
        queue.put(str(error))


def _open_again(path: Path, queue: Any) -> None:
    try:
        Ledger.open(path, timeout=0.1)
    except StoreError as error:
        queue.put(str(error))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_of_a_process_with_an_open_ledger_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "ledger.duckdb"
    forking = multiprocessing.get_context("fork")
    queue = forking.Queue()
    with Ledger.open(path) as ledger:
        for target, argument in ((_use_inherited, ledger), (_open_again, path)):
            child = forking.Process(target=target, args=(argument, queue))
            child.start()
            assert "fork" in queue.get(timeout=20)
            child.join()
        ledger.start_sweep(new_id(), config={}, started=_now())  # the parent's is as good as before
    child = forking.Process(target=_open_again, args=(path, queue))
    child.start()
    child.join(20)
    assert child.exitcode == 0  # forked after it was closed: a fork like any other process
    assert queue.empty()


def _now() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)


@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_a_file_that_is_replaced_underneath_is_not_written_to(tmp_path: Path, how: str) -> None:
    path, other = tmp_path / "ledger.duckdb", tmp_path / "other.duckdb"
    Ledger.open(other).close()
    with Ledger.open(path) as ledger:
        if how == "replaced":
            os.replace(other, path)
        else:
            path.unlink()
        with pytest.raises(StoreError, match="replaced or removed"):
            ledger.start_sweep(new_id(), config={}, started=_now())
    if how == "replaced":
        with Ledger.open(path) as ledger:
            assert ledger.history() == []


def test_a_closed_ledger_says_that_it_is_closed(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.duckdb")
    ledger.close()
    ledger.close()
    with pytest.raises(StoreError, match="is closed"):
        ledger.history()


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "ledger.duckdb").close()
    with (
        Ledger.open(tmp_path / "ledger.duckdb", read_only=True) as ledger,
        pytest.raises(StoreError, match="reading only"),
    ):
        ledger.start_sweep(new_id(), config={}, started=_now())


def test_what_a_failing_transaction_wrote_is_gone(tmp_path: Path) -> None:
    file = LedgerFile(tmp_path / "ledger.duckdb")

    def work() -> None:
        file.rows("UPDATE counter SET next_item = 99")
        raise ValueError("half-way")

    with pytest.raises(ValueError, match="half-way"):
        file.transact(work)
    assert file.rows("SELECT next_item FROM counter") == [(1,)]
    file.transact(lambda: file.rows("UPDATE counter SET next_item = 5"))
    assert file.rows("SELECT next_item FROM counter") == [(5,)]
    file.close()


class RaisingCommit:
    """A connection whose next COMMIT raises, before or after it was done."""

    def __init__(self, connection: Any, *, after: bool) -> None:
        self._connection = connection
        self._after = after

    def execute(self, query: str, *rest: Any) -> Any:
        if query == "COMMIT":
            if self._after:
                self._connection.execute(query)
            raise duckdb.FatalException("COMMIT succeeded and is durable, but the autocheckpoint failed")
        return self._connection.execute(query, *rest)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.mark.parametrize("after", [True, False])
def test_after_a_raising_commit_the_ledger_is_opened_anew_and_looked_at(tmp_path: Path, after: bool) -> None:
    file = LedgerFile(tmp_path / "ledger.duckdb")
    file._connection = RaisingCommit(file._connection, after=after)  # type: ignore[assignment]

    def work() -> str:
        file.rows("UPDATE counter SET next_item = next_item + 1")
        return "done"

    if after:
        assert file.transact(work) == "done"
    else:
        with pytest.raises(StoreError, match="failed") as caught:
            file.transact(work)
        assert "nothing of this batch was kept" in caught.value.hint
    assert file.rows("SELECT next_item FROM counter") == [(2 if after else 1,)]
    assert file.transact(work) == "done"  # and it can be written again
    file.close()


def test_two_processes_creating_the_ledger_at_once_get_one(tmp_path: Path) -> None:
    path = tmp_path / "ledger.duckdb"
    script = textwrap.dedent(
        """
        import sys
        from afterpass.store.ledger import Ledger
        with Ledger.open(sys.argv[1], timeout=60.0) as ledger:
            ledger._file.transact(lambda: ledger._file.rows("UPDATE counter SET next_item = next_item + 1"))
        """
    )
    started = time.monotonic()
    processes = [subprocess.Popen([sys.executable, "-c", script, str(path)]) for _ in range(3)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0, 0], time.monotonic() - started
    with Ledger.open(path) as ledger:
        assert ledger._file.rows("SELECT next_item FROM counter") == [(4,)]
    assert [entry.name for entry in tmp_path.iterdir()] == ["ledger.duckdb"]
