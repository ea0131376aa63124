"""The DuckDB file: opened with patience, migrated, written in transactions that are known to have ended.

DuckDB lets one process write and, meanwhile, no other read: `ledger_open` waits for it. Three things would
corrupt or mislead silently and are refused by name instead: using a connection that was inherited through
fork, writing to a file that was replaced underneath, and taking a file of another program for ours.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from ..core import failpoints
from ..core.errors import StoreError
from ..core.keys import new_id
from .ledger_open import connect, create, is_disk_trouble, named, patiently, prepare
from .ledger_schema import migrate

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

T = TypeVar("T")

_open: weakref.WeakSet[LedgerFile] = weakref.WeakSet()
_inherited: set[Path] = set()


def _note_inherited() -> None:
    _inherited.update(file.path for file in _open)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_inherited)


class LedgerFile:
    """A connection to the ledger's file.

    Args:
        path: the DuckDB file; created (with its folder) unless `read_only`.
        read_only: several processes may hold it so at once; nothing is created or migrated.
        timeout: seconds to wait for another process that holds it.

    Raises:
        LedgerBusy: held by another process; the message names its PID.
        LedgerMissing: not there, and `read_only`.
        LedgerNewer: written by a newer version of Afterpass.
        NotALedger: some other file.
        StoreError: this process was forked from one that had the ledger open.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, read_only: bool = False, timeout: float = 30.0
    ) -> None:
        self.path = Path(path).expanduser().absolute()
        self.read_only = read_only
        self.timeout = timeout
        self._pid = os.getpid()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._depth = 0
        if self.path in _inherited:
            raise StoreError(
                f"{self.path} was open when this process was forked; a database cannot be shared so",
                hint="start the process with the spawn method, or close the ledger before forking",
            )
        if not read_only:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                create(self.path)
        self._connect()

    # ------------------------------------------------------------------------------ open and close

    def _connect(self) -> None:
        failpoints.hit("ledger.open")
        while True:
            self._inode = _inode(self.path)
            opened = patiently(lambda: connect(self.path, self.read_only), self.path, self.timeout)
            if _inode(self.path) == self._inode:
                break
            opened.close()  # replaced after it was found and before it was locked: this is the old one
        self._connection = opened
        _open.add(self)
        failpoints.hit("ledger.opened")
        try:
            with named(self.path):
                migrate(opened, self.path, self.read_only)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others have it. Safe to call twice; in a forked child it does nothing to the parent's."""
        connection, self._connection = self._connection, None
        _open.discard(self)
        if connection is not None and os.getpid() == self._pid:
            failpoints.hit("ledger.close")
            connection.close()
            failpoints.hit("ledger.closed")

    def _adopt(self, path: Path, connection: duckdb.DuckDBPyConnection) -> None:
        """Be a file of its own kind on a connection that is open already."""
        self.path = path
        self.read_only = True
        self.timeout = 0.0
        self._pid = os.getpid()
        self._connection = connection
        self._depth = 0

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection, if it may be used here.

        Raises:
            StoreError: closed, or inherited through fork.
        """
        return self._usable()

    def _usable(self) -> duckdb.DuckDBPyConnection:
        if os.getpid() != self._pid:
            raise StoreError(
                f"{self.path} was opened by process {self._pid}, and this is a fork of it ({os.getpid()})",
                hint="open the ledger anew in a process started with the spawn method",
            )
        if self._connection is None:
            raise StoreError(f"{self.path} is closed", hint="open it again with Ledger.open(path)")
        return self._connection

    # -------------------------------------------------------------------------------- read and write

    def rows(self, query: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """All rows of a small result."""
        with self._reading():
            return self.connection.execute(query, dict(parameters or {})).fetchall()

    def named_rows(
        self, query: str, parameters: Mapping[str, Any]
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names, and all rows of a small result."""
        with self._reading():
            result = self.connection.execute(query, dict(parameters))
            return [column[0] for column in result.description or ()], result.fetchall()

    @contextmanager
    def own_cursor(self, tables: Mapping[str, pa.Table]) -> Iterator[duckdb.DuckDBPyConnection]:
        """A second connection to the same file, for a result that is read while others are asked for."""
        cursor = self.connection.cursor()
        try:
            prepare(cursor)
            for name, table in tables.items():
                cursor.register(name, table)
            with named(self.path):
                yield cursor
        finally:
            cursor.close()

    def arrow(self, query: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """A result as an Arrow table; UUIDs as `arrow.uuid` columns."""
        with self._reading():
            return self.connection.sql(query, params=dict(parameters or {})).to_arrow_table()

    def _reading(self) -> AbstractContextManager[None]:
        """What goes wrong within a transaction is told by `transact`, else here."""
        return nullcontext() if self._depth else named(self.path)

    def stream(
        self, query: str, parameters: Mapping[str, Any] | None = None, *, rows: int = 10_000
    ) -> pa.RecordBatchReader:
        """A result in batches, for what may not fit into memory. Do not write until it is read to its end."""
        return self.connection.sql(query, params=dict(parameters or {})).to_arrow_reader(rows)

    @contextmanager
    def with_tables(self, **tables: pa.Table | duckdb.DuckDBPyRelation) -> Iterator[None]:
        """Make Arrow tables, or relations of this connection, visible to SQL under their names."""
        connection = self.connection
        for name, table in tables.items():
            connection.register(name, table)
        try:
            yield
        finally:
            for name in tables:
                with suppress(Exception):
                    connection.unregister(name)

    def transact(self, work: Callable[[], T]) -> T:
        """Run `work` in one transaction, and know how it ended.

        A COMMIT that raises may have committed (DuckDB says so when the checkpoint after it fails). Each
        transaction leaves a mark; after a raising COMMIT the file is opened anew and the mark looked for: if
        it is there the work counts as done, if not the error is raised. Nested calls join the outer one.
        """
        if self.read_only:
            raise StoreError(f"{self.path} is open for reading only", hint="open it without read_only=True")
        if self._depth:
            return work()
        self._check_in_place()
        connection = self.connection
        mark = new_id()
        connection.execute("BEGIN TRANSACTION")
        self._depth += 1
        try:
            failpoints.hit("ledger.begun")
            result = work()
            connection.execute("UPDATE counter SET last_commit = $mark::UUID", {"mark": mark})
        except BaseException as error:
            with suppress(Exception):
                connection.execute("ROLLBACK")
            if is_disk_trouble(error):
                raise self._failed(error) from error
            raise
        finally:
            self._depth -= 1
        self._check_in_place(connection)
        try:
            failpoints.hit("ledger.commit")
            connection.execute("COMMIT")
            failpoints.hit("ledger.committed")
        except Exception as error:
            if not self._did_commit(mark):
                raise self._failed(error) from error
        return result

    def _failed(self, error: BaseException) -> StoreError:
        return StoreError(
            f"writing to {self.path} failed: {error}",
            hint="see that there is room on the disk; nothing of this batch was kept",
        )

    def _did_commit(self, mark: UUID) -> bool:
        self.close()
        self._connect()
        return self.rows("SELECT last_commit FROM counter") == [(mark,)]

    def _check_in_place(self, open_transaction: duckdb.DuckDBPyConnection | None = None) -> None:
        if _inode(self.path) == self._inode:
            return
        if open_transaction is not None:
            with suppress(Exception):
                open_transaction.execute("ROLLBACK")
        raise StoreError(
            f"{self.path} was replaced or removed while it was open; nothing was written",
            hint="close this ledger and open it again",
        )


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
