"""How a sweep comes to its ledger: at once, after a wait, or, while somebody else holds it, by the outbox.

door = Door(home, config.store)
door.ingest()
with door.open() as ledger:
    ...
door.held_by    who was in the way the last time, or None
"""

from __future__ import annotations

import time
from contextlib import suppress

from ..core import failpoints
from ..core.config import StoreConfig
from ..core.errors import LedgerBusy
from ..core.paths import Home
from . import ledger_commit
from .columns import table, uuids
from .export import update
from .ingest import IngestReport, ingest
from .ledger import Ledger
from .ledger_file import LedgerFile
from .ledger_parked import ParkedFile, ParkedLedger
from .outbox import Damaged, Outbox, commit_id, load
from .sqlfiles import sql

READ_PATIENCE = 2.0
"""Seconds to wait for a chance to read beside whoever holds the ledger."""


class Door:
    """The way to one home's ledger, for as long as a sweep takes.

    Attributes:
        held_by: who holds the ledger, in words; None when it was free the last time.
        problems: what a person should hear of: files of the outbox that could not be read (their results
            are made again), an export that could not be written.
    """

    def __init__(self, home: Home, config: StoreConfig) -> None:
        self._home = home
        self._config = config
        self._outbox = Outbox(home, most_bytes=config.outbox_bytes)
        self._parked: ParkedFile | None = None
        self.held_by: str | None = None
        self.problems: list[str] = []

    @property
    def parked(self) -> int:
        """Commits that wait in the outbox."""
        return len(self._outbox.pending())

    def open(self) -> Ledger:
        """The ledger, with everything applied that waited for it; while it is held, what stands in for it.

        The first time that it is busy `busy_timeout` is waited, then no more until it was free again.

        Raises:
            StoreError: it cannot be used as it is.
        """
        try:
            file = LedgerFile(self._home.ledger, timeout=self._patience)
        except LedgerBusy as busy:
            self.held_by = busy.message
            if self._parked is None:
                self._parked = ParkedFile(self._home, self._outbox)
            return ParkedLedger(self._parked, self._outbox, busy, READ_PATIENCE)
        self.held_by = None
        if self._parked is not None:
            self._parked.close()
            self._parked = None
        try:
            self._drain(file)
        except BaseException:
            file.close()
            raise
        return Ledger(file, after_writing=lambda: self._export(file))

    def ingest(self) -> IngestReport:
        """Take in what the spool holds; while the ledger is held it stays there, and the report says so."""
        began = time.perf_counter()
        try:
            report = ingest(self._home, self._config, timeout=self._patience)
        except LedgerBusy as busy:
            self.held_by = busy.message
            return IngestReport(seconds=time.perf_counter() - began, waiting=(busy.message,))
        return report

    def _export(self, file: LedgerFile) -> None:
        """Show readers what was written. A failure here takes nothing back: the next time makes up for it."""
        if not self._config.export:
            return
        try:
            update(self._home, file)
        except OSError as error:
            problem = f"the export in {self._home.exports} is behind: {error}"
            if problem not in self.problems:
                self.problems.append(problem)

    @property
    def _patience(self) -> float:
        return self._config.busy_timeout.total_seconds() if self.held_by is None else 0.0

    def _drain(self, file: LedgerFile) -> None:
        """Apply what waits, each in a transaction that notes it, and throw its file away after."""
        pending = self._outbox.pending()
        if not pending:
            return
        applied = {uid for (uid,) in file.rows(sql("parked.applied"))}
        for path in pending:
            uid = commit_id(path)
            if uid not in applied:
                try:
                    commit = load(path)
                except Damaged as error:
                    self.problems.append(f"{error}: moved to {self._outbox.set_aside(path)}")
                    continue

                def work(commit: ledger_commit.Commit = commit) -> None:
                    ledger_commit.apply(file, commit)
                    file.rows(sql("parked.note_applied"), {"commit": commit.commit_id})

                failpoints.hit("outbox.apply")
                file.transact(work)
                failpoints.hit("outbox.applied")
            self._outbox.done(path)
        waiting = table({"commit_id": uuids(commit_id(path) for path in self._outbox.pending())})
        with file.with_tables(waiting=waiting), suppress(Exception):
            file.transact(lambda: file.rows(sql("parked.forget_applied")))
