"""The ledger's schema: whose a database is, of which version, and the numbered steps to this code's."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..core import failpoints
from ..core.errors import LedgerNewer, NotALedger, StoreError
from . import sqlfiles

if TYPE_CHECKING:
    import duckdb


def migrate(connection: duckdb.DuckDBPyConnection, path: Path, read_only: bool) -> None:
    """Bring the schema to this code's version, one transaction for each step.

    Raises:
        NotALedger: a DuckDB database with tables, and none of them ours.
        LedgerNewer: its version is beyond ours.
        StoreError: older than ours, and `read_only`.
    """
    version = _version(connection, path)
    if version > sqlfiles.schema_version():
        raise LedgerNewer(
            f"{path} has schema version {version}, and this Afterpass knows {sqlfiles.schema_version()}",
            hint="upgrade Afterpass; a ledger is never taken back to an older version",
        )
    if version < sqlfiles.schema_version() and read_only:
        raise StoreError(
            f"{path} has schema version {version}, and this Afterpass reads {sqlfiles.schema_version()}",
            hint="run `afterpass sweep` once: opening for writing upgrades it",
        )
    for number, name, script in sqlfiles.migrations()[version:]:
        connection.execute("BEGIN TRANSACTION")
        try:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS schema_version "
                "(version INTEGER, name VARCHAR, applied_at TIMESTAMPTZ)"
            )
            connection.execute(script)
            connection.execute("INSERT INTO schema_version VALUES ($1, $2, now())", [number, name])
            failpoints.hit("ledger.migrate")
            connection.execute("COMMIT")
            failpoints.hit("ledger.migrated")
        except BaseException:
            with suppress(Exception):
                connection.execute("ROLLBACK")
            raise


def _version(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """The database's version; 0 where it is empty. Asked at each opening, so without listing its tables."""
    # Nothing in reach may be called as the table is: DuckDB would take a Python variable for it.
    import duckdb

    try:
        (found,) = connection.execute("SELECT max(version) FROM schema_version").fetchall()
    except duckdb.CatalogException:
        if connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            raise NotALedger(
                f"{path} is a DuckDB database, but no Afterpass ledger",
                hint="name another home or move that file away",
            ) from None
        return 0
    return int(found[0] or 0)
