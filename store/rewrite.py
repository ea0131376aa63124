"""The ledger written anew: how its space comes back, and how what was erased is gone from the file.

DuckDB gives the space of deleted rows to later ones but never back to the disk, and their bytes stay in the
file. So what has to go is left out of a copy, which is read back, made durable and renamed over the ledger:
a kill at any moment leaves the old ledger or the new one, whole. A backup is the same copy with nothing gone.

    with closing(LedgerFile(home.ledger)) as file:
        nothing_gone(file)
        file.rows("INSERT INTO gone_text ...")
        replace_ledger(file)
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..core import failpoints
from ..core.errors import StoreError
from ..core.keys import new_id
from .ledger_file import LedgerFile
from .spool_writer import sync_folder
from .sqlfiles import sql

MARGIN = 64 * 2**20
"""Bytes that must stay free beside a copy."""

Checks = Mapping[str, tuple[int, int]]
"""Of each table its rows and a checksum of them."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The ledger's size in bytes before and after, and its rows by table."""

    before: int
    after: int
    rows: Mapping[str, int]


def nothing_gone(file: LedgerFile) -> None:
    """Make the temporary tables that say what a copy leaves out, empty."""
    file.connection.execute(sql("rewrite.nothing_gone"))


def room_needed(file: LedgerFile) -> int:
    """Bytes that a copy may take at most, with the margin that must stay free."""
    used: int = file.rows(sql("rewrite.bytes_in_use"))[0][0]
    return used + MARGIN


def check_room(folder: Path, needed: int, what: str) -> None:
    """See that there is room on the disk of `folder`.

    Raises:
        StoreError: there is not; says how much is missing.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise StoreError(
            f"{what} needs {needed / 2**20:,.0f} MiB free in {folder}, and there are {free / 2**20:,.0f}; "
            "nothing was changed",
            hint="make room there: the ledger is copied beside itself, and the old one goes at the end",
        )


def replace_ledger(file: LedgerFile, *, change: Callable[[LedgerFile], None] | None = None) -> Rewritten:
    """Put a copy without what is gone in the ledger's place, and close `file`.

    Args:
        file: open for writing, so that nobody else reads or writes meanwhile.
        change: what to change in the copy (`fresh`) before it counts.

    Raises:
        StoreError: no room, or the copy is not what it should be. The ledger is as it was.
    """
    path = file.path
    remove_leftovers(path)
    file.connection.execute("CHECKPOINT")
    check_room(path.parent, room_needed(file), "writing the ledger anew")
    # Its size by name alone: closing any descriptor of a file gives away the locks that DuckDB has on it.
    before = path.stat()
    aside = path.with_name(f".{path.name}.{new_id().hex[-12:]}.copy")
    try:
        checks = copy_ledger(file, aside, change=change)
        _own_as(aside, before)
        after = aside.stat().st_size
        failpoints.hit("rewrite.copied")
        if path.with_name(path.name + ".wal").exists():
            raise StoreError(f"{path} was written to while it was copied", hint="try again; nothing is lost")
        os.rename(aside, path)
        failpoints.hit("rewrite.renamed")
        sync_folder(path.parent)
    except OSError as error:
        raise _failed(path, error) from error
    finally:
        _remove(aside)
        file.close()
    return Rewritten(before.st_size, after, {name: rows for name, (rows, _) in checks.items()})


def copy_ledger(
    file: LedgerFile, target: Path, *, change: Callable[[LedgerFile], None] | None = None
) -> Checks:
    """Write the ledger to `target`, without what is gone; read it back; make it durable.

    One thread writes: rows keep their order, by which reading prunes, and no block is written twice.

    Raises:
        StoreError: it cannot be written, or does not read back as what it should be.
    """
    import duckdb

    LedgerFile(target).close()  # an empty ledger of this version
    connection = file.connection
    quoted = str(target).replace("'", "''")
    try:
        threads = connection.execute("SELECT current_setting('threads')").fetchall()[0][0]
        connection.execute("SET threads = 1")
        connection.execute(f"ATTACH '{quoted}' AS fresh")
        try:
            connection.execute(sql("rewrite.copy"))
            failpoints.hit("rewrite.filled")
            connection.execute("CHECKPOINT fresh")
            connection.execute("SET threads = $1", [threads])
            checks = _read_back(file, target)
            if change is not None:
                change(file)
                connection.execute("CHECKPOINT fresh")
        finally:
            connection.execute("DETACH fresh")
    except (duckdb.Error, OSError) as error:
        _remove(target)
        raise _failed(target, error) from error
    with target.open("rb+") as written:
        os.fsync(written.fileno())
    return checks


def _read_back(file: LedgerFile, target: Path) -> Checks:
    expected = {name: (rows, check or 0) for name, rows, check in file.rows(sql("rewrite.expected"))}
    copied = {name: (rows, check or 0) for name, rows, check in file.rows(sql("rewrite.copied"))}
    there = {name for (name,) in file.rows(sql("rewrite.tables_of_fresh"))}
    wrong = sorted(there ^ set(copied)) or [name for name in expected if copied[name] != expected[name]]
    if wrong:
        raise StoreError(
            f"the copy {target} differs from {file.path} in {', '.join(wrong)}; the ledger is as it was",
            hint="see to the disk with its own tools, and report it if the disk is well",
        )
    return copied


def remove_leftovers(path: Path) -> None:
    """Delete copies of the ledger at `path` that a kill left behind, and what DuckDB spilled."""
    for left in path.parent.glob(f".*{path.name}.*"):
        if left.name.endswith((".copy", ".copy.wal", ".new", ".new.wal")):
            left.unlink(missing_ok=True)
    shutil.rmtree(path.with_name(path.name + ".tmp"), ignore_errors=True)


def _remove(path: Path) -> None:
    for left in (path, path.with_name(path.name + ".wal")):
        left.unlink(missing_ok=True)


def _own_as(path: Path, model: os.stat_result) -> None:
    """The same permissions, and the same owner where we may."""
    os.chmod(path, model.st_mode & 0o7777)
    with suppress(OSError):
        os.chown(path, model.st_uid, model.st_gid)


def _failed(path: Path, error: Exception) -> StoreError:
    return StoreError(
        f"{path} could not be written: {error}",
        hint="see to the free space and the permissions there; the ledger is as it was",
    )
