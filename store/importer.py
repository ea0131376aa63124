"""Files of others into the ledger: written as sealed segments, then ingested. A busy ledger loses nothing."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.config import StoreConfig
from ..core.errors import LedgerBusy
from ..core.paths import Home
from ..core.types import Item
from .formats import Bad, Skipped
from .ingest import IngestReport, ingest
from .spool import SegmentWriter, item_record

SEGMENT_BYTES = 64 * 2**20

Found = Item | Bad | Skipped


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import came to.

    Attributes:
        items: read and on their way; `no_query` of them lack a query.
        groups: how many groups they form.
        bad: records that could not become an item, by reason: quarantined.
        skipped: parts that are no intermediate result, by reason.
        segments: files written to the spool.
        ingested: what the ledger made of the spool, or None where it was busy; `busy` then says who holds it
            and the next sweep takes the segments in.
    """

    items: int = 0
    no_query: int = 0
    groups: int = 0
    bad: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    segments: int = 0
    ingested: IngestReport | None = None
    busy: str | None = None


def import_records(
    home: Home,
    config: StoreConfig,
    records: Iterable[Found],
    *,
    source: str | None = None,
    timeout: float | None = None,
) -> ImportReport:
    """Import the records of one file; see `import_files`."""
    return import_files(home, config, [(source, records)], timeout=timeout)


def import_files(
    home: Home,
    config: StoreConfig,
    files: Iterable[tuple[str | None, Iterable[Found]]],
    *,
    timeout: float | None = None,
) -> ImportReport:
    """Import files: (name, its records as `formats.read` gives them) each.

    The groups count as settled. An item that is there already is left alone, so that importing a file again
    adds nothing; one that came without a query and now has one moves to its new group.

    Args:
        timeout: seconds to wait for whoever holds the ledger; `busy_timeout` where not given.

    Raises:
        SpoolNotWritable: the spool's folder refuses us.
        StoreError: the ledger cannot be used; the segments wait in the spool.
    """
    spooling = _Spooling(home)
    for source, records in files:
        spooling.take(source, records)
    ingested, busy = None, None
    try:
        ingested = ingest(home, config, timeout=timeout)
    except LedgerBusy as error:
        busy = error.message
    return ImportReport(
        items=spooling.items,
        no_query=spooling.no_query,
        groups=len(spooling.groups),
        bad=dict(spooling.bad),
        skipped=dict(spooling.skipped),
        segments=spooling.segments,
        ingested=ingested,
        busy=busy,
    )


class _Spooling:
    def __init__(self, home: Home) -> None:
        self._home = home
        self.items = self.no_query = self.segments = 0
        self.groups: set[tuple[str, bytes]] = set()
        self.bad: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()

    def take(self, source: str | None, records: Iterable[Found]) -> None:
        """Write one file's records; a failure in its middle throws its open segment away."""
        about = {} if source is None else {"source": source}
        writer: SegmentWriter | None = None
        try:
            for found in records:
                if isinstance(found, Skipped):
                    self.skipped[found.reason] += 1
                    continue
                if writer is None:
                    writer = SegmentWriter(self._home, settled=True, about=about)
                writer.write(self._record(found))
                if writer.size >= SEGMENT_BYTES:
                    self._seal(writer)
                    writer = None
        except BaseException:
            if writer is not None:
                writer.discard()
            raise
        if writer is not None:
            self._seal(writer)

    def _record(self, found: Item | Bad) -> Mapping[str, Any]:
        if isinstance(found, Bad):
            self.bad[found.reason] += 1
            return bad_record(found)
        self.items += 1
        self.no_query += found.query is None or not found.query.strip()
        self.groups.add((found.namespace, found.group_id.bytes))
        return item_record(found)

    def _seal(self, writer: SegmentWriter) -> None:
        writer.seal()
        self.segments += 1


def bad_record(bad: Bad) -> dict[str, Any]:
    """The control record that carries what could not be read, bytes and all, into the quarantine."""
    return {
        "type": "bad",
        "line": bad.line,
        "where": bad.where,
        "reason": bad.reason,
        "detail": bad.detail,
        "raw": base64.b64encode(bad.raw).decode(),
    }
