"""How a ledger's file is opened: with patience, created whole, and with what goes wrong told by name.

Whoever holds the file is waited for with back-off and then named.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..core import failpoints
from ..core.errors import LedgerBusy, LedgerMissing, LedgerNewer, NotALedger, StoreError
from ..core.keys import new_id
from .ledger_schema import migrate

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")

MEMORY = "500MB"
"""What DuckDB may hold in memory; beyond it, it spills into a folder beside the ledger."""
CHECKPOINT = "128MB"
"""How large the write-ahead log grows while the ledger is open. Each checkpoint compresses the last row group
of a table (up to 122,880 rows) anew: with DuckDB's 16 MB, ingest spends most of its time so."""

_HOLDER = re.compile(r"\(PID (\d+)\)")


def is_disk_trouble(error: BaseException) -> bool:
    """Whether an error is the disk's or the file's own, and not the statement's."""
    import duckdb

    told = (
        duckdb.IOException,
        duckdb.FatalException,
        duckdb.InternalException,
        duckdb.OutOfMemoryException,
        duckdb.SerializationException,
    )
    # A checksum that does not hold has no class of its own.
    return isinstance(error, told) or (isinstance(error, duckdb.Error) and "Corrupt" in str(error))


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Say of a disk that is full or a file that is damaged which one it is."""
    try:
        yield
    except Exception as error:
        if not is_disk_trouble(error):
            raise
        raise StoreError(
            f"{path} cannot be used: {error}",
            hint="see to the room and the health of the disk; `afterpass restore` brings a backup back",
        ) from error


def connect(path: Path, read_only: bool) -> duckdb.DuckDBPyConnection:
    """A connection, set as all of ours are. Raises whatever DuckDB raises."""
    import duckdb

    connection = duckdb.connect(
        str(path),
        read_only=read_only,
        config={
            "threads": str(min(4, os.cpu_count() or 1)),
            "memory_limit": MEMORY,
            "checkpoint_threshold": CHECKPOINT,
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        },
    )
    prepare(connection)
    return connection


def in_memory() -> duckdb.DuckDBPyConnection:
    """A database of its own, set as the ledger's connections are."""
    return connect(Path(":memory:"), False)


def attach(connection: duckdb.DuckDBPyConnection, path: Path, timeout: float) -> None:
    """Attach the ledger at `path` as `base`, for reading.

    Raises:
        LedgerBusy: a process that writes holds it. StoreError: as when it is opened.
    """
    quoted = str(path).replace("'", "''")
    patiently(lambda: connection.execute(f"ATTACH '{quoted}' AS base (READ_ONLY)"), path, timeout)


def prepare(connection: duckdb.DuckDBPyConnection) -> None:
    """Settings that a connection, and each cursor of it, has of its own."""
    for setting in ("TimeZone = 'UTC'", "enable_progress_bar = false", "arrow_lossless_conversion = true"):
        connection.execute(f"SET {setting}")


def create(path: Path) -> None:
    """Write an empty ledger aside and link it into place, so that nobody ever meets half a one."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{new_id().hex[-8:]}.new")
    failpoints.hit("ledger.create")
    try:
        with named(path):
            connection = connect(aside, False)
            try:
                migrate(connection, aside, False)
            finally:
                connection.close()
        failpoints.hit("ledger.created")
        with suppress(FileExistsError):  # somebody else was quicker: theirs is as good
            os.link(aside, path)
        failpoints.hit("ledger.linked")
    finally:
        for left in (aside, aside.with_name(aside.name + ".wal")):
            left.unlink(missing_ok=True)


def patiently(attempt: Callable[[], T], path: Path, timeout: float) -> T:
    """Call `attempt` until it succeeds, backing off from 10 ms to 1 s while somebody else holds the file."""
    import duckdb

    give_up = time.monotonic() + timeout
    pause = 0.01
    while True:
        try:
            return attempt()
        except duckdb.ConnectionException as error:
            # This very process has it open the other way (reading, writing).
            busy: StoreError | LedgerBusy = LedgerBusy(
                f"{path} is open in this process already (PID {os.getpid()}), read-only or not",
                hint="close that one first",
            )
            cause: Exception = error
        except duckdb.Error as error:
            if "Could not set lock" not in str(error):
                raise _unusable(path, str(error)) from error
            busy, cause = _busy(path, str(error)), error
        if time.monotonic() >= give_up:
            raise busy from cause
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(1.0, pause * 2)


def _unusable(path: Path, message: str) -> StoreError:
    try:
        with path.open("rb") as file:
            magic = file.read(12)[8:]
    except FileNotFoundError:
        return LedgerMissing(
            f"there is no ledger at {path}",
            hint="it comes with the first `afterpass sweep` or `afterpass import`",
        )
    except OSError as error:
        return StoreError(f"{path} cannot be read: {error.strerror}", hint="see to its owner and permissions")
    if magic != b"DUCK":
        return NotALedger(
            f"{path} is not a DuckDB database", hint="move that file away, or name another home"
        )
    if "version" in message.lower():
        return LedgerNewer(
            f"{path} was written by another DuckDB: {message}", hint="upgrade duckdb in this environment"
        )
    return StoreError(f"{path} cannot be opened: {message}", hint="see `afterpass doctor`")


def _busy(path: Path, message: str) -> LedgerBusy:
    held = _HOLDER.search(message)
    who = f"process {held[1]}{_command_of(held[1])}" if held else "another process"
    return LedgerBusy(
        f"{path} is held by {who}",
        hint="wait for it or close it; `afterpass verdicts` reads the export meanwhile",
    )


def _command_of(pid: str) -> str:
    """What that process runs, where the system says so."""
    try:
        words = (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").split()
        )
    except OSError:
        return ""
    return f" ({' '.join(words)[:60]})"
