"""The recorder: a bounded queue, and a thread that writes it to the spool.

The caller's thread checks an item and puts it on the queue; it never waits for a disk and never sees an
exception. The thread encodes, redacts and appends in small bites, so that it never holds the interpreter
for long either.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import weakref
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from ..core.paths import Home
from ..store.spool_items import clean, close_record
from ..store.spool_rolling import RollingWriter
from .drain import Drain
from .queue import Closing, Queue, RecorderCounts, Ticket
from .settings import Durability, load
from .values import Entry, Redact, Refused, check

log = logging.getLogger("afterpass")

_EXIT_PATIENCE = 10.0
"""Seconds that the end of the process waits for a disk."""
_WAIT = 30.0
"""Seconds of `record(wait=True)`."""


class Recorder:
    """Records items into a home's spool. Safe to use from any thread; a fork's child starts afresh.

    Args:
        home: a `Home`, a path, or None for the default (`AFTERPASS_HOME`, else the platform's data folder).
        redact: called in the recorder's thread with each item's fields before anything is written. It gives
            the fields to write, or None to refuse the item. If it raises, the item is refused: it is never
            written as it was. Names given to `close()` do not pass through it.
        durability: "segment" or "record", see `hooks.settings.Settings`, as for the rest.
        block: seconds that `record()` may wait for room when the queue is full; None refuses at once.

    Raises:
        ConfigError: an argument is out of its range.
    """

    def __init__(
        self,
        home: Home | str | os.PathLike[str] | None = None,
        *,
        redact: Redact | None = None,
        durability: Durability | None = None,
        queue_rows: int | None = None,
        queue_bytes: int | None = None,
        segment_bytes: int | None = None,
        segment_age: float | None = None,
        block: float | None = None,
    ) -> None:
        self.home = home if isinstance(home, Home) else Home.at(home)
        self.settings = load(
            self.home,
            durability=durability,
            queue_rows=queue_rows,
            queue_bytes=queue_bytes,
            segment_bytes=segment_bytes,
            segment_age=segment_age,
        )
        self._redact = redact
        self._block = block
        self._closed = False
        self._logged: set[str] = set()
        self._begin()
        _recorders.add(self)

    def _begin(self) -> None:
        """The state of a recorder that has seen nothing: at first, and again in a fork's child."""
        self._queue = Queue(self.settings)
        self._drain = Drain(
            self._queue,
            RollingWriter(
                self.home, segment_bytes=self.settings.segment_bytes, segment_age=self.settings.segment_age
            ),
            redact=self._redact,
            sync_always=self.settings.durability == "record",
            refused=self._refused,
            warn=self._warn_once,
        )
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()

    # ------------------------------------------------------------------------- the caller's thread

    def record(
        self,
        text: str,
        *,
        query: str | None = None,
        group: str | None = None,
        run: str | UUID | None = None,
        step: str | int | None = None,
        kind: str = "result",
        agent: str | None = None,
        policy: str = "default",
        namespace: str = "default",
        id: str | int | UUID | None = None,
        created_at: datetime | None = None,
        priority: int = 0,
        deadline: datetime | None = None,
        meta: Mapping[str, Any] | None = None,
        wait: bool | float = False,
    ) -> str | None:
        """Record one intermediate result. Never raises, and returns at once unless asked to wait.

        Args:
            text: the result. Lone surrogates become U+FFFD; the item is flagged then.
            query: what it is to be judged against. Without one it is kept, but not judged.
            group: a name for the items that compete, over runs and agents; the run's name where not given.
            run, step, agent, kind: where it comes from. Numbers and UUIDs are taken as their text.
            policy: by which rules to judge it.
            id: your own id. The same (namespace, id) is the same item, however often it is recorded.
            created_at: now, where not given. A time without a zone is taken as local time and flagged.
            priority: higher is judged first.
            deadline: when the verdict is of no more use.
            meta: anything JSON can say, NaN excluded.
            wait: wait until the item is on disk (fsync), for at most so many seconds (True: 30).

        Returns:
            The item's id (a UUID, as text), or None: it was refused (counted, and logged once for each
            reason), or with `wait` it is not known to be on disk; it may still get there.
        """
        try:
            entry = check(
                text, query, group, run, step, kind, agent, policy, namespace,
                id, created_at, priority, deadline, meta,
            )  # fmt: skip
            ticket = Ticket() if wait else None
            number = self._add(entry, ticket)
            if number and ticket is not None:
                there = self._queue.await_synced(number, _WAIT if wait is True else float(wait))
                number = number if there and not ticket.refused else 0
            return entry.item_id if number else None
        except Refused as refusal:
            self._refused(str(refusal))
        except Exception as error:
            self._refused(f"failed: {type(error).__name__}")
        return None

    def close(
        self,
        *,
        run: str | UUID | None = None,
        group: str | None = None,
        namespace: str = "default",
    ) -> None:
        """Say that a run or a group is complete: it is due without waiting for quiet. Never raises."""
        try:
            if (run is None) == (group is None):
                raise Refused("wrong_type: close() wants run= or group=")
            names = {"namespace": namespace, "run": run, "group": group}
            for name, value in names.items():
                if isinstance(value, UUID | int) and not isinstance(value, bool):
                    names[name] = str(value)
                elif not isinstance(value, str | None):
                    raise Refused(f"wrong_type: {name}")
            record, _ = clean(close_record(**names))  # type: ignore[arg-type]
            if self._add(Closing(record), None):
                self._queue.ask_flush()
        except Refused as refusal:
            self._refused(str(refusal))
        except Exception as error:
            self._refused(f"failed: {type(error).__name__}")

    def flush(self, timeout: float | None = 30.0) -> bool:
        """Wait until all that was recorded before is on disk and in the inbox, for the next sweep to find.

        Returns:
            Whether it is: then every item so far is acknowledged. False after `timeout` seconds (a full
            disk, say); the recorder goes on trying. Blocks: in a coroutine, `await asyncio.to_thread(flush)`.
        """
        try:
            if _exiting:
                return self._drain.finish()
            if self._thread is None and not self._queue.anything:
                return True
            self._ensure_thread()
            return self._queue.flush(timeout)
        except Exception as error:
            self._warn_once("flush", f"flush() failed: {error!r}")
            return False

    def shutdown(self, timeout: float | None = _EXIT_PATIENCE) -> bool:
        """Write what is queued, seal the segment and end the thread. What comes later is refused.

        Returns:
            Whether all was written. Safe to call twice; called for you when the process ends.
        """
        self._closed = True
        return self._finish(timeout)

    @property
    def counts(self) -> RecorderCounts:
        """What became of the items so far."""
        return self._queue.counts()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()

    # ----------------------------------------------------------------------------------- the depths

    def _add(self, entry: Entry | Closing, ticket: Ticket | None) -> int:
        """Its number on the queue, 0 if there was no room."""
        if self._closed:
            raise Refused("shut_down")
        number = self._queue.add(entry, ticket, self._block)
        if self._thread is None:
            self._ensure_thread()
        if not number:
            self._warn_once(
                "overflow",
                f"the queue is full ({self.settings.queue_rows} items or {self.settings.queue_bytes} bytes): "
                "the newest items are refused and counted; raise [store] queue_rows and queue_bytes, or use "
                "Recorder(block=SECONDS)",
            )
        return number

    def _refused(self, reason: str) -> None:
        self._queue.refuse(reason)
        if self._thread is None and not self._closed:
            self._ensure_thread()
        self._warn_once(reason, f"an item was refused ({reason}); more of the kind are only counted")

    def _warn_once(self, what: str, message: str) -> None:
        if what in self._logged or len(self._logged) > 100:
            return
        self._logged.add(what)
        try:
            log.warning("%s", message)
        except Exception:  # a handler of somebody else's: not the agent's trouble
            return

    def _ensure_thread(self) -> None:
        with self._starting:
            if self._thread is not None:
                return
            if not _exiting:
                thread = threading.Thread(target=self._drain.run, name="afterpass-recorder", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the interpreter is going down
                    pass
                else:
                    self._thread = thread
                    _alive.add(self)
                    _at_the_end_of_a_child()
                    return
            self._drain.finish()  # after the end there is nobody else to do it

    def _finish(self, timeout: float | None) -> bool:
        """Have the thread write all there is and end; without one, do it here."""
        with self._starting:
            thread, self._thread = self._thread, None
            _alive.discard(self)
        if thread is None:
            return self._drain.finish() if self._queue.anything else True
        with self._queue.lock:
            self._queue.stop = True
            self._queue.wake()
        thread.join(timeout)
        return not thread.is_alive() and not self._queue.lost

    def _forked(self) -> None:
        """In a fork's child: what was queued is the parent's to write."""
        self._queue.entries.clear()
        self._queue.stop = True
        self._begin()


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()
_alive: set[Recorder] = set()
"""Recorders with a thread: they stay until they are shut down, or the process ends."""
_exiting = False
_child: int | None = None


def _at_exit() -> None:
    """The end of the process: all recorders write what they have. What still comes is written at once."""
    global _exiting
    _exiting = True
    for recorder in list(_alive):
        recorder._finish(_EXIT_PATIENCE)


def _at_the_end_of_a_child() -> None:
    """multiprocessing's children end without atexit, and forget at their start what was registered before."""
    global _child
    util = sys.modules.get("multiprocessing.util")
    process = sys.modules.get("multiprocessing.process")
    if util is None or process is None or process.parent_process() is None or _child == os.getpid():
        return
    _child = os.getpid()
    util.Finalize(None, _at_exit, exitpriority=-100)  # after everybody else's, who may still record


def _after_fork() -> None:
    global _exiting
    _exiting = False
    _alive.clear()
    for recorder in list(_recorders):
        recorder._forked()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
