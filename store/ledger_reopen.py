"""Making judged groups due again."""

from __future__ import annotations

from ..core.types import Selection
from .ledger_file import LedgerFile
from .ledger_plan import selected
from .ledger_values import Reopen
from .sqlfiles import sql


def reopen(file: LedgerFile, selection: Selection, how: Reopen) -> int:
    """Reopen the judged groups of a selection; see `Ledger.reopen`."""

    def work() -> int:
        with selected(file, selection) as parameters:
            if how == "retry_errors":
                failed = file.arrow(sql("commit.failed_groups"), parameters)
                with file.with_tables(failed=failed):
                    return _changed(file.rows(sql("commit.reopen_failed")))
            return _changed(file.rows(sql(f"commit.reopen_{how}"), parameters))

    return file.transact(work)


def _changed(result: list[tuple[int, ...]]) -> int:
    return result[0][0] if result else 0
