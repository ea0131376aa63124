"""From the queue to the spool: the work of a recorder's thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..core.errors import SpoolNotWritable
from ..store.spool_format import dump, line
from ..store.spool_rolling import RollingWriter
from .queue import Closing, Queue, Ticket
from .values import Entry, Redact, Refused, encode, redacted

_LINGER = 0.02
"""Seconds in which items gather: waking the thread for each would cost its caller more than the item."""
_BITE_ROWS, _BITE_BYTES = 8, 64 * 1024
"""What is encoded between two writes. Writing lets other threads run, so no bite may take long."""
_RETRY_FIRST, _RETRY_MOST = 0.1, 5.0
"""Seconds between attempts at a disk that refuses."""
_LAST_PAUSES = (0.05, 0.2)
"""Seconds between the last attempts, at the end of the process."""
_TELL_EVERY = 1.0
"""Seconds between notes of what was refused."""

_DiskTrouble = (OSError, SpoolNotWritable)


class _Bite(NamedTuple):
    """Encoded lines, and the entries of the queue that they come from (some may have been refused)."""

    lines: Sequence[bytes]
    rows: int
    entries: int
    size: int


class Drain:
    """Takes entries off a queue, encodes and redacts them, and appends them to the spool's segments.

    One thread at a time works it: the recorder's own, or at the very end of a process whoever comes.

    Args:
        refused: called with an item's reason; counts it and logs it once.
        warn: called with (what, message); logs it once for each `what`.
    """

    def __init__(
        self,
        queue: Queue,
        writer: RollingWriter,
        *,
        redact: Redact | None,
        sync_always: bool,
        refused: Callable[[str], None],
        warn: Callable[[str, str], None],
    ) -> None:
        self._queue = queue
        self._writer = writer
        self._redact = redact
        self._sync_always = sync_always
        self._refused = refused
        self._warn = warn
        self._working = threading.RLock()
        self._bite: _Bite | None = None  # taken from the queue, not yet taken by the disk
        self._retry_after = _RETRY_FIRST
        self._retry_at = 0.0
        self._told = 0
        self._tell_at = 0.0

    def run(self) -> None:
        """The thread: works until it is stopped and all is written, or the disk refuses to the end."""
        while self._await_work():
            with self._working:
                if self._attempt(last=False):
                    self._retry_after, self._retry_at = _RETRY_FIRST, 0.0
                else:
                    self._retry_at = time.monotonic() + self._retry_after
                    self._retry_after = min(2 * self._retry_after, _RETRY_MOST)
        self.finish()

    def finish(self) -> bool:
        """Write all that is queued and seal it, now or never: what the disk does not take is lost."""
        with self._working:
            for pause in _LAST_PAUSES:
                if self._attempt(last=True):
                    return True
                time.sleep(pause)
            if self._attempt(last=True):
                return True
            queue, bite = self._queue, self._bite
            with queue.lock:
                lost = sum(isinstance(entry, Entry) for entry, _, _ in queue.entries)
                lost += bite.rows if bite is not None else 0
                queue.lost += lost
                queue.entries.clear()
                queue.bytes = 0
                queue.news.notify_all()
            self._bite = None
            self._writer.abandon()
            if lost:
                self._warn("lost", f"the disk took nothing to the end: {lost} recorded items are lost")
            return False

    # ------------------------------------------------------------------------------------- waiting

    def _await_work(self) -> bool:
        """Wait for something to do; False when it is time to end."""
        queue = self._queue
        lingered = False
        with queue.lock:
            while not queue.stop:
                now = time.monotonic()
                wait: float | None = None
                if (left := self._retry_at - now) > 0:
                    wait = left
                elif self._bite is not None or queue.waited_for:
                    return True
                elif queue.entries:
                    if lingered or self._sync_always or len(queue.entries) >= 4 * _BITE_ROWS:
                        return True
                    lingered, wait = True, _LINGER
                else:
                    lefts = [self._writer.age_left()]
                    if queue.refusals > self._told:
                        lefts.append(self._tell_at - now)
                    wait = min((left for left in lefts if left is not None), default=None)
                    if wait is not None and wait <= 0:
                        return True
                    queue.idle = True
                queue.work.wait(wait)
                queue.idle = False
            return False

    # ------------------------------------------------------------------------------------- working

    def _attempt(self, *, last: bool) -> bool:
        """Write what there is and do what is asked or due; whether the disk took it all."""
        try:
            while (bite := self._bite or self._next_bite()) is not None:
                self._bite = bite
                self._append(bite)
                self._settle_up()
            self._settle_up()
            if last:
                self._seal()
        except _DiskTrouble as error:
            self._warn(
                "disk",
                f"nothing can be written to {self._writer.home.spool} ({error}); items wait in memory, up to "
                "the queue's bounds, and writing is tried again",
            )
            return False
        except Exception as error:  # a bug of ours costs what is in hand, not the agent and not the rest
            self._warn(
                "bug", f"recording failed, {self._bite.rows if self._bite else 0} items lost: {error!r}"
            )
            self._drop_bite(f"failed: {type(error).__name__}")
            return False
        return True

    def _drop_bite(self, reason: str) -> None:
        bite, self._bite = self._bite, None
        if bite is not None:
            for _ in range(bite.rows):
                self._refused(reason)
            with self._queue.lock:
                self._queue.appended += bite.entries
                self._queue.bytes -= bite.size

    def _append(self, bite: _Bite) -> None:
        queue = self._queue
        if bite.lines:
            self._writer.append(bite.lines, rows=bite.rows)
        self._bite = None
        with queue.lock:
            queue.appended += bite.entries
            queue.written += bite.rows
            queue.bytes -= bite.size
            queue.news.notify_all()

    def _settle_up(self) -> None:
        """Do what is asked or due, after each bite: callers do not wait for the queue to be empty."""
        queue, writer = self._queue, self._writer
        if queue.refusals > self._told and time.monotonic() >= self._tell_at:
            refusals = queue.refusals
            writer.note(queue.totals())
            self._told, self._tell_at = refusals, time.monotonic() + _TELL_EVERY
        flush = queue.flush_asked > queue.flush_done and queue.appended >= queue.flush_goal
        if flush or writer.full or ((age := writer.age_left()) is not None and age <= 0):
            self._seal()
        elif queue.appended > queue.synced and (self._sync_always or queue.want_synced > queue.synced):
            appended = queue.appended  # nobody else moves it
            writer.sync()
            with queue.lock:
                queue.synced = appended
                queue.news.notify_all()

    def _next_bite(self) -> _Bite | None:
        queue = self._queue
        taken: list[tuple[Entry | Closing, Ticket | None, int]] = []
        size = 0
        with queue.lock:
            while queue.entries and len(taken) < _BITE_ROWS and size < _BITE_BYTES:
                taken.append(queue.entries.popleft())
                size += taken[-1][2]
        if not taken:
            return None
        lines = []
        rows = 0
        for entry, ticket, _ in taken:
            try:
                if isinstance(entry, Entry):
                    lines.append(self._line(entry))
                    rows += 1
                else:
                    lines.append(line(dump(entry.record)))
            except Refused as refusal:
                if ticket is not None:
                    ticket.refused = True
                self._refused(str(refusal))
        return _Bite(lines, rows, len(taken), size)

    def _line(self, entry: Entry) -> bytes:
        if self._redact is not None:
            try:
                entry = redacted(entry, self._redact)
            except Refused:
                raise
            except Exception as error:
                raise Refused(f"redaction_failed: {type(error).__name__}") from error
        try:
            return encode(entry)
        except Refused:
            raise
        except Exception as error:
            raise Refused(f"failed: {type(error).__name__}") from error

    def _seal(self) -> None:
        queue = self._queue
        with queue.lock:
            appended, refusals, asked = queue.appended, queue.refusals, queue.flush_asked
            flushed = appended >= queue.flush_goal
        self._writer.seal(queue.totals())
        self._writer.sealed.clear()
        self._told = refusals
        with queue.lock:
            queue.synced = appended
            if flushed:
                queue.flush_done = asked
            queue.news.notify_all()
