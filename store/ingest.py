"""From the spool's segments into the ledger: at least once by file, exactly once by row.

Segments are read in the order of their names, many to a transaction or one over several, so that memory
stays bounded whatever a segment's size. A file is deleted only after the transaction with its end was
committed; should the process die in between, its id says that it is in. One that was half in is read again,
and what is there already is left alone.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ..core import failpoints
from ..core.config import StoreConfig
from ..core.errors import SegmentNewer
from ..core.paths import Home
from .columns import table, uuids
from .ingest_batch import Batch, Source, batches
from .ingest_write import write_batch
from .ledger_file import LedgerFile
from .spool import adopt_orphans, read_segment, sealed_segments
from .sqlfiles import sql


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What an ingest did.

    Attributes:
        segments: files read to their end.
        rows: items added; `known`: items that were there already, word for word.
        quarantined: lines that could not become an item, or bring another text under a known id.
        overflowed: items that hooks refused for want of room; `refused`: for want of sense.
        requeried: of `rows`, items that had come without a query and now came with one.
        waiting: segments left where they are, and why (a newer version wrote them, no permission).
        bytes: of the segments; `seconds`: wall time.
    """

    segments: int = 0
    rows: int = 0
    known: int = 0
    quarantined: int = 0
    overflowed: int = 0
    refused: int = 0
    requeried: int = 0
    bytes: int = 0
    seconds: float = 0.0
    waiting: tuple[str, ...] = ()


@dataclass(slots=True)
class _Tally:
    counts: dict[str, int] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)

    def add(self, **counts: int) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count


def ingest(home: Home, config: StoreConfig, *, timeout: float | None = None) -> IngestReport:
    """Take what the spool holds into the ledger; segments of dead writers first are adopted.

    Args:
        timeout: seconds to wait for whoever holds the ledger; `busy_timeout` where not given.

    Raises:
        LedgerBusy: another process holds the ledger; the segments wait.
        StoreError: the ledger cannot be written. What was committed is in, the rest waits.
    """
    began = time.perf_counter()
    adopt_orphans(home)
    paths = sealed_segments(home)
    if not paths:
        return IngestReport(seconds=time.perf_counter() - began)
    tally = _Tally()
    wait = config.busy_timeout.total_seconds() if timeout is None else timeout
    file = LedgerFile(home.ledger, timeout=wait)
    try:
        with _Reader(_fresh(file, paths, tally)) as read:
            for batch in read:
                _write(file, batch, tally)
    finally:
        file.close()
    return IngestReport(**tally.counts, seconds=time.perf_counter() - began, waiting=tuple(tally.waiting))


def _write(file: LedgerFile, batch: Batch, tally: _Tally) -> None:
    failpoints.hit("ingest.batch")
    written = file.transact(lambda: write_batch(file, batch))
    failpoints.hit("ingest.committed")
    tally.add(
        rows=written.rows,
        known=written.known,
        quarantined=written.quarantined,
        requeried=written.requeried,
    )
    for source in batch.ended:
        failpoints.hit("ingest.unlink")
        source.path.unlink(missing_ok=True)
        failpoints.hit("ingest.unlinked")
        counts = source.segment.counts
        tally.add(segments=1, bytes=source.bytes, overflowed=counts.overflowed, refused=counts.refused)


def _fresh(file: LedgerFile, paths: list[Path], tally: _Tally) -> Iterator[Source]:
    """Open the segments that are not in the ledger; those that are lose their file."""
    found: list[tuple[Path, Source]] = []
    now = datetime.now(UTC)
    for path in paths:
        try:
            segment = read_segment(path)
            segment.close()
            status = path.stat()
        except FileNotFoundError:
            continue
        except (OSError, SegmentNewer) as error:
            tally.waiting.append(f"{path.name}: {getattr(error, 'message', None) or error}")
            continue
        # When its last line was written; a clock that was ahead then must not hold its groups back.
        arrived = min(now, datetime.fromtimestamp(status.st_mtime, UTC))
        found.append((path, Source(path, segment, arrived, status.st_size)))
    wanted = table({"segment_id": uuids(source.segment.header.segment_id for _, source in found)})
    with file.with_tables(wanted=wanted):
        there = {segment_id for (segment_id,) in file.rows(sql("ingest.segments_there"))}
    fresh: list[Source] = []
    for path, source in found:
        if source.segment.header.segment_id in there:
            path.unlink(missing_ok=True)
            failpoints.hit("ingest.known_unlinked")
        else:
            fresh.append(source)
    return _reopened(fresh, tally)


def _reopened(sources: list[Source], tally: _Tally) -> Iterator[Source]:
    for source in sources:
        try:
            segment = read_segment(source.path)
        except FileNotFoundError:
            continue
        except (OSError, SegmentNewer) as error:
            tally.waiting.append(f"{source.path.name}: {error}")
            continue
        yield Source(source.path, segment, source.arrived, source.bytes)


class _Reader:
    """Reads the next batch in a thread while DuckDB, which lets go of the interpreter, writes this one."""

    def __init__(self, sources: Iterator[Source]) -> None:
        self._sources = sources
        # A checkpoint takes as long as reading some batches.
        self._queue: queue.Queue[Batch | BaseException | None] = queue.Queue(maxsize=3)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, name="afterpass-ingest", daemon=True)

    def _read(self) -> None:
        end: BaseException | None = None
        try:
            for batch in batches(self._sources):
                if not self._put(batch):
                    return
        except BaseException as error:
            end = error
        self._put(end)

    def _put(self, value: Batch | BaseException | None) -> bool:
        while not self._stop.is_set():
            with suppress(queue.Full):
                self._queue.put(value, timeout=0.2)
                return True
        return False

    def __iter__(self) -> Iterator[Batch]:
        while (got := self._queue.get()) is not None:
            if isinstance(got, BaseException):
                raise got
            yield got

    def __enter__(self) -> _Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
