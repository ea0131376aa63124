"""The ledger while somebody else holds it: read beside readers, with the outbox laid over it.

Another process that only reads lets us read too. So a sweep goes on: what it writes goes into the outbox and,
at the same time, into tables in memory that are shown together with the ledger's own; its next question sees
its last answer. Where another process writes, nothing can be read, and only what is written is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import NoReturn
from uuid import UUID

from ..core.errors import LedgerBusy
from ..core.paths import Home
from ..core.types import Selection
from . import ledger_commit
from .ledger import Ledger
from .ledger_commit import Commit
from .ledger_file import LedgerFile
from .ledger_open import attach, in_memory
from .ledger_values import Reopen
from .outbox import Damaged, Outbox, commit_id, load
from .sqlfiles import sql


class ParkedFile(LedgerFile):
    """An in-memory database that shows a ledger held by readers, and the commits that wait for it.

    It stays for as long as the ledger is busy; `opened` attaches the ledger for a moment.
    """

    def __init__(self, home: Home, outbox: Outbox) -> None:
        self._outbox = outbox
        self._seen: set[UUID] = set()
        self._ready = False
        self.readable = False
        self._adopt(home.ledger, in_memory())

    @contextmanager
    def opened(self, timeout: float) -> Iterator[None]:
        """Attach the ledger and lay over it what waits; without, where another process writes to it."""
        with suppress(LedgerBusy):
            attach(self.connection, self.path, timeout)
            self.readable = True
        try:
            if self.readable:
                self._lay_over()
            yield
        finally:
            if self.readable:
                self.readable = False
                self.connection.execute("DETACH base")

    def _lay_over(self) -> None:
        connection = self.connection
        if not self._ready:
            connection.execute(sql("parked.tables"))
            for (statement,) in connection.execute(sql("parked.views_of_base")).fetchall():
                connection.execute(statement)
            self._seen.update(
                uid for (uid,) in connection.execute("SELECT commit_id FROM base.applied").fetchall()
            )
            self._ready = True
        for path in self._outbox.pending():
            if commit_id(path) not in self._seen:
                with suppress(Damaged, FileNotFoundError):
                    self.show(load(path))

    def show(self, commit: Commit) -> int:
        """Write a commit into memory, so that reading sees it."""
        connection = self.connection
        self._seen.add(commit.commit_id)
        touched = commit.tables.get("judged", commit.tables.get("done"))
        connection.execute("SET search_path = 'memory.delta,memory.main'")
        try:
            if touched is not None:
                with self.with_tables(touched=touched):
                    connection.execute(sql("parked.copy_groups"))
            if commit.kind == "start_sweep":
                connection.execute(sql("parked.copy_sweeps"))
            return ledger_commit.apply(self, commit)
        finally:
            connection.execute("SET search_path = 'memory.main'")


class ParkedLedger(Ledger):
    """A ledger as a sweep sees it while somebody else holds it.

    Writing keeps each commit in the outbox. Reading works beside readers, and raises LedgerBusy beside a
    writer.
    """

    def __init__(self, file: ParkedFile, outbox: Outbox, busy: LedgerBusy, timeout: float) -> None:
        super().__init__(file)
        self._parked = file
        self._outbox = outbox
        self._busy = busy
        self._opened = file.opened(timeout)
        self._opened.__enter__()

    def close(self) -> None:
        """Let go of the ledger; what waits stays."""
        if self._opened is not None:
            opened, self._opened = self._opened, None  # type: ignore[assignment]
            opened.__exit__(None, None, None)

    @property
    def _file(self) -> LedgerFile:
        if not self._parked.readable:
            raise self._busy
        return self._parked

    @_file.setter
    def _file(self, file: LedgerFile) -> None:
        pass

    def apply(self, commit: Commit) -> int:
        """Keep a commit until the ledger is free; returns what its kind counts, 0 where nothing is known."""
        if commit.kind == "start_sweep" and not self._parked.readable:
            raise self._busy
        if not self._parked.readable:
            self._outbox.put(commit)
            return 0
        numbered = {**commit.facts, "start": self._parked.rows(sql("commit.numbers"))[0][1]}
        commit = replace(commit, facts=numbered)
        self._outbox.put(commit)
        return self._parked.show(commit)

    def reopen(self, selection: Selection, how: Reopen) -> NoReturn:  # noqa: ARG002
        """Not while it is held: reopening has to be seen by whoever reads next.

        Raises:
            LedgerBusy: always.
        """
        raise self._busy
