"""A stream of records into one segment after another, which keeps what a failing disk did not take."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ..core.paths import Home
from .spool_format import Counts, dump, line
from .spool_writer import SegmentWriter


class RollingWriter:
    """Opens a segment when there is something to write, and seals it by size or age. Not thread-safe.

    Args:
        home: whose spool to write.
        settled: what the segments' headers say (imports: their groups need not be waited for).
        segment_bytes: a segment is sealed once it has as many.
        segment_age: seconds after which an open segment is due to be sealed (see `age_left`).

    A call that raises (OSError, SpoolNotWritable) has taken nothing of what it was given. What earlier
    calls took is kept here until the disk confirmed it: after a failed fsync, which may have dropped it
    for good, the next call writes it again into another segment. So an item can arrive twice; its id
    makes it one.
    """

    def __init__(
        self,
        home: Home,
        *,
        settled: bool = False,
        about: Mapping[str, Any] | None = None,
        segment_bytes: int = 8 * 2**20,
        segment_age: float = 5.0,
    ) -> None:
        self.home = home
        self.sealed: list[Path] = []
        """Sealed since the caller last emptied this list."""
        self._settled = settled
        self._about = about
        self._bytes = segment_bytes
        self._age = segment_age
        self._segment: SegmentWriter | None = None
        self._opened = 0.0
        self._unconfirmed: list[tuple[Sequence[bytes], int]] = []
        self._again: list[tuple[Sequence[bytes], int]] = []
        # Running totals of what was refused: told by segments that are done, and by the open one so far.
        self._told = Counts()
        self._telling = Counts()

    @property
    def dirty(self) -> bool:
        """Something was taken and is not yet confirmed by the disk."""
        return bool(self._unconfirmed or self._again)

    @property
    def is_open(self) -> bool:
        """A segment is open, or has to be opened for what must be written again."""
        return self._segment is not None or bool(self._again)

    @property
    def full(self) -> bool:
        """The open segment has all the bytes that it should."""
        return self._segment is not None and self._segment.size >= self._bytes

    def age_left(self) -> float | None:
        """Seconds until the open segment is due to be sealed; None where none is open."""
        return self._opened + self._age - time.monotonic() if self.is_open else None

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record and seal the segment if that filled it."""
        self.append((line(dump(record)),), rows=int(record.get("type") == "item"))
        if self.full:
            self.seal()

    def append(self, lines: Sequence[bytes], *, rows: int) -> None:
        """Append lines, `rows` of which are items. Does not seal: look at `full`."""
        self._ready().append(lines, rows=rows)
        self._unconfirmed.append((lines, rows))

    def note(self, totals: Counts) -> None:
        """Write down what was refused so far (see `SegmentWriter.note`).

        Args:
            totals: over the whole life of this writer; each segment tells what came since the last one.
        """
        self._ready().note(totals.since(self._told))
        self._telling = totals

    def sync(self) -> None:
        """Make all that was taken outlive a power cut."""
        if not self.dirty:
            return
        segment = self._ready()
        try:
            segment.sync()
        except OSError:
            self._start_again()
            raise
        self._unconfirmed.clear()

    def seal(self, totals: Counts | None = None) -> None:
        """Seal the open segment, if there is one or there is something refused to tell of (see `note`)."""
        totals = totals or self._telling
        untold = totals.since(self._told)
        if not self.is_open and not (untold.overflowed or untold.refused):
            return
        segment = self._ready()
        try:
            self.sealed.append(segment.seal(untold))
        except OSError:
            if segment.complete:
                self._telling = totals
            self._start_again()
            raise
        if segment.complete:
            self._telling = totals
        self._unconfirmed.clear()
        self._end()

    def abandon(self) -> None:
        """Close the open segment's descriptor, which makes it an orphan, and forget what is unconfirmed."""
        if self._segment is not None:
            self._segment.abandon()
        self._end()
        self._unconfirmed, self._again = [], []

    def __enter__(self) -> RollingWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.seal()
        elif self._segment is not None:
            self._segment.discard()
            self._segment = None

    def _ready(self) -> SegmentWriter:
        """The open segment, with what has to be written again written."""
        if self._segment is None:
            self._segment = SegmentWriter(self.home, settled=self._settled, about=self._about)
            self._opened = time.monotonic()
        while self._again:
            lines, rows = self._again[0]
            self._segment.append(lines, rows=rows)
            self._unconfirmed.append(self._again.pop(0))
        return self._segment

    def _start_again(self) -> None:
        if self._segment is not None:
            self._segment.abandon()
        self._end()
        self._again = self._unconfirmed + self._again
        self._unconfirmed = []

    def _end(self) -> None:
        self._segment = None
        self._told = self._telling
