"""Writing one segment, which passes through three places:

spool/.ID-N.new  created, locked, header written   (not to be seen yet; N: which attempt)
spool/ID.open  takes lines; its lock says that the writer lives
spool/inbox/ID.segment  sealed: footer written, all of it fsynced
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID

from .. import __version__
from ..core import failpoints, keys
from ..core.errors import SpoolNotWritable
from ..core.paths import Home
from .spool_format import Counts, Header, counts_line, dump, header_line, line

NEW, OPEN, SEALED = ".new", ".open", ".segment"
_ATTEMPTS = 5


class SegmentWriter:
    """One segment, from its first line to its seal. Not thread-safe; one owner writes.

    Leaving it as a context manager seals it, or discards it when an exception goes through.

    Raises:
        SpoolNotWritable: it cannot be created (read-only, full, no permission). Everything else raises
            OSError and leaves the segment as it was before the call.
    """

    def __init__(self, home: Home, *, settled: bool = False, about: Mapping[str, Any] | None = None) -> None:
        self.header = Header(
            segment_id=UUID(keys.new_id_text()),  # counts on within a millisecond: segments sort as made
            host=socket.gethostname(),
            pid=os.getpid(),
            created=datetime.now(UTC),
            writer=__version__,
            settled=settled,
            about=about or {},
        )
        self._home = home
        self.rows = 0
        """Items written."""
        self.size = 0
        """Bytes written."""
        self.complete = False
        """The footer is written."""
        self._torn = False
        self._entry_durable = False
        self._fd: int | None = None
        try:
            self.path = self._create()
        except OSError as error:
            raise SpoolNotWritable(
                f"no segment can be created in {home.spool}: {error.strerror or error}",
                hint="check the folder's owner, its permissions and the free space; "
                "AFTERPASS_HOME names another home",
            ) from error

    # ------------------------------------------------------------------------------------ the life

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record, an item's or a control record's (see `spool_items`)."""
        self.append((line(dump(record)),), rows=int(record.get("type") == "item"))

    def append(self, lines: Iterable[bytes], *, rows: int) -> None:
        """Append lines as `spool_format.line` makes them, `rows` of which are items: all of them or none."""
        data = b"".join(lines)
        if self._torn:  # a failed write that could not be cut off: let it cost its own line only
            data = b"\n" + data
        failpoints.hit("spool.append")
        self._write(data)
        self._torn = False
        self.rows += rows
        failpoints.hit("spool.appended")

    def sync(self) -> None:
        """Make what was appended outlive a power cut."""
        failpoints.hit("spool.sync")
        os.fdatasync(self._descriptor)
        if not self._entry_durable:  # the file must be found again, too
            sync_folder(self._home.spool)
            self._entry_durable = True
        failpoints.hit("spool.synced")

    def note(self, counts: Counts) -> None:
        """Write down what was refused so far, should no footer ever follow."""
        self.append((counts_line(counts, last=False),), rows=0)

    def seal(self, counts: Counts | None = None) -> Path:
        """Write the footer, make all of it durable and hand it over.

        Args:
            counts: what was refused; `rows` is filled in here.

        Returns:
            The sealed file. On a full disk the footer is left out (`complete` is False). After an OSError
            nothing is known of what was not synced before: write it again, to another segment.
        """
        counts = counts or Counts()
        footer = Counts(self.rows, counts.overflowed, counts.refused, counts.reasons)
        failpoints.hit("spool.seal")
        if not self.complete:
            try:
                self.append((counts_line(footer, last=True),), rows=0)
                self.complete = True
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise  # a full disk has no room for a footer, and the rows do not need one
        os.fsync(self._descriptor)
        failpoints.hit("spool.seal.synced")
        sealed = hand_over(self._home, self.path)
        self.abandon()
        return sealed

    def abandon(self) -> None:
        """Close the descriptor and nothing more: the file is then an orphan, to be adopted as it is."""
        with _descriptors_lock:
            descriptor, self._fd = self._fd, None
            if descriptor is not None:
                _descriptors.pop(descriptor, None)
                with contextlib.suppress(OSError):
                    os.close(descriptor)

    def discard(self) -> None:
        """Throw the open segment away."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        self.abandon()

    def __enter__(self) -> SegmentWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd is None:
            return
        if kind is None:
            self.seal()
        else:
            self.discard()

    # ----------------------------------------------------------------------------------- the depths

    @property
    def _descriptor(self) -> int:
        if self._fd is None:
            raise ValueError(f"the segment {self.header.segment_id} is not open in this process (any more)")
        return self._fd

    def _create(self) -> Path:
        for folder in (self._home.spool, self._home.inbox):
            private_folder(folder)
        attempt = 1
        while True:
            try:
                return self._create_as(f".{self.header.segment_id}-{attempt}{NEW}")
            except (BlockingIOError, FileNotFoundError):
                if attempt == _ATTEMPTS:
                    raise
                attempt += 1

    def _create_as(self, name: str) -> Path:
        """Under a hidden name first, so that nobody sees a segment without its first line.

        Raises:
            BlockingIOError, FileNotFoundError: between the file's making and its lock an adopter took it for
                a dead writer's, and removed it.
        """
        hidden, seen = self._home.spool / name, self._home.spool / f"{self.header.segment_id}{OPEN}"
        self.size = 0
        failpoints.hit("spool.create")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        with _descriptors_lock:
            self._fd = os.open(hidden, flags, 0o600)
            _descriptors[self._fd] = self
        try:
            failpoints.hit("spool.made")
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            failpoints.hit("spool.created")
            self._write(header_line(self.header))
            failpoints.hit("spool.headed")
            os.rename(hidden, seen)
            failpoints.hit("spool.opened")
        except OSError:
            self.abandon()
            with contextlib.suppress(OSError):
                os.unlink(hidden)
            raise
        return seen

    def _write(self, data: bytes) -> None:
        """All of `data`, or the file as it was."""
        descriptor = self._descriptor
        view = memoryview(data)
        try:
            while view:
                failpoints.hit("spool.write")
                view = view[os.write(descriptor, view) :]
        except OSError:
            if len(view) < len(data):
                try:
                    os.ftruncate(descriptor, self.size)
                except OSError:
                    self._torn = True
                    self.size = os.fstat(descriptor).st_size
            raise
        self.size += len(data)


def hand_over(home: Home, path: Path) -> Path:
    """Move a synced segment into the inbox, durably."""
    sealed = home.inbox / (path.stem + SEALED)
    os.rename(path, sealed)
    failpoints.hit("spool.seal.renamed")
    # First where it is now, then where it no longer is: it may be in two places, never in none.
    sync_folder(home.inbox)
    failpoints.hit("spool.seal.inbox_synced")
    sync_folder(home.spool)
    failpoints.hit("spool.sealed")
    return sealed


def sync_folder(path: Path) -> None:
    """fsync a folder: names in it outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private_folder(path: Path) -> None:
    """Make a folder and what is missing above it, for its owner alone (0700); one that is there stays."""
    if path.is_dir():
        return
    if not path.parent.is_dir():
        private_folder(path.parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    sync_folder(path.parent)


# A fork copies the descriptors, and with them the locks: a child that kept one would make its dead parent's
# segment look alive. The child closes its copies; that leaves the parent's lock alone, unlocking would not.
# The lock is held for an instant only: a fork never waits for a disk.
_descriptors: dict[int, SegmentWriter] = {}
_descriptors_lock = threading.RLock()


def _before_fork() -> None:
    _descriptors_lock.acquire()


def _after_fork_in_parent() -> None:
    _descriptors_lock.release()


def _after_fork_in_child() -> None:
    global _descriptors_lock
    _descriptors_lock = threading.RLock()
    for descriptor, writer in _descriptors.items():
        writer._fd = None
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _descriptors.clear()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
