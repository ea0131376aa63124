"""What callers and the writing thread share: the bounded queue, its books, and what is asked of the disk."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..store.spool_format import Counts
from .settings import Settings
from .values import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderCounts:
    """What became of the items given to a recorder, in this process.

    Attributes:
        accepted: taken onto the queue.
        written: of these, appended to a segment.
        overflowed: refused, since the queue was full.
        refused: refused, since a value was wrong or the redaction said so (then they were accepted
            before); by reason in `reasons`.
        lost: accepted, and given up at the end of the process because the disk took nothing.
    """

    accepted: int = 0
    written: int = 0
    overflowed: int = 0
    refused: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    lost: int = 0


class Closing:
    """A control record on its way to the writer."""

    __slots__ = ("record",)
    size = 512

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record


class Ticket:
    """Somebody waits for an item, and wants to know whether it was refused on its way."""

    __slots__ = ("refused",)

    def __init__(self) -> None:
        self.refused = False


class Queue:
    """The queue and the books of one recorder in one process. All of it under `lock`.

    Entries are counted through in their order: `put` on the queue, `appended` to a segment, `synced`. A
    flush takes a number (`flush_asked`), says how far it wants to have things (`flush_goal`), and waits for
    `flush_done` to reach its number.
    """

    def __init__(self, settings: Settings) -> None:
        # Reentrant: a signal handler or a finaliser may record while its own thread is in here.
        self.lock = threading.RLock()
        self.work = threading.Condition(self.lock)
        """The writer waits here for something to do."""
        self.news = threading.Condition(self.lock)
        """Callers wait here for room or for the disk."""
        self.entries: deque[tuple[Entry | Closing, Ticket | None, int]] = deque()
        self.bytes = 0
        """Memory of what is queued or being written."""
        self.idle = False
        """The writer waits for work and has to be woken."""
        self.stop = False
        """Write all there is and end."""
        self.put = self.appended = self.synced = 0
        self.want_synced = 0
        self.flush_asked = self.flush_goal = self.flush_done = 0
        self.accepted = self.written = self.overflowed = self.lost = 0
        self.reasons: Counter[str] = Counter()
        self.refusals = 0
        """Overflowed and refused, together."""
        self._rows = settings.queue_rows
        self._bytes = settings.queue_bytes

    def add(self, entry: Entry | Closing, ticket: Ticket | None, block: float | None) -> int:
        """Put an entry on the queue if there is room, or comes to be within `block` seconds.

        Returns:
            Its number, for `await_synced`; 0 if there was no room.
        """
        size = entry.size
        with self.lock:
            if not self._room(size) and not (block and self._await(lambda: self._room(size), block)):
                if isinstance(entry, Entry):
                    self.overflowed += 1
                    self.refusals += 1
                return 0
            self.entries.append((entry, ticket, size))
            self.bytes += size
            self.put += 1
            self.accepted += isinstance(entry, Entry)
            if ticket is not None:
                self.want_synced = self.put
                self.wake()
            elif self.idle:
                self.wake()
            return self.put

    def refuse(self, reason: str) -> None:
        """Count an item as refused."""
        with self.lock:
            self.reasons[reason] += 1
            self.refusals += 1
            if self.idle:
                self.wake()

    @property
    def anything(self) -> bool:
        """Something was put or refused in this process."""
        return bool(self.put or self.refusals)

    @property
    def waited_for(self) -> bool:
        """Somebody waits for the disk."""
        return self.flush_asked > self.flush_done or self.want_synced > self.synced

    def ask_flush(self) -> int:
        """Ask for all that was put to be sealed; the number to wait for."""
        with self.lock:
            self.flush_asked += 1
            self.flush_goal = self.put
            self.wake()
            return self.flush_asked

    def flush(self, timeout: float | None) -> bool:
        """Ask for all that was put to be sealed, and wait for it."""
        with self.lock:
            number = self.ask_flush()
            return self._await(lambda: self.flush_done >= number, timeout)

    def await_synced(self, number: int, timeout: float) -> bool:
        """Wait until the entry of that number, added with a ticket, is on disk."""
        with self.lock:
            return self._await(lambda: self.synced >= number, timeout)

    def wake(self) -> None:
        """Have the writer look up. Under `lock`."""
        self.idle = False
        self.work.notify_all()

    def totals(self) -> Counts:
        """What was refused so far, as segments tell it."""
        with self.lock:
            return Counts(0, self.overflowed, self.reasons.total(), dict(self.reasons))

    def counts(self) -> RecorderCounts:
        """The books, for the caller."""
        with self.lock:
            return RecorderCounts(
                accepted=self.accepted,
                written=self.written,
                overflowed=self.overflowed,
                refused=self.reasons.total(),
                reasons=dict(self.reasons),
                lost=self.lost,
            )

    def _room(self, size: int) -> bool:
        if not self.entries:
            return True  # by itself, an item may be larger than the queue
        return len(self.entries) < self._rows and self.bytes + size <= self._bytes

    def _await(self, true: Callable[[], bool], timeout: float | None) -> bool:
        self.wake()
        return self.news.wait_for(true, timeout)
