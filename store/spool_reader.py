"""Reading a segment, line by line and whatever was done to it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal
from uuid import UUID

from ..core.errors import SegmentNewer
from .spool_format import MAGIC, MAX_LINE, VERSION, Counts, Header, check, parse_counts, parse_header

_START = 64 * 1024
_BUFFER = 128 * 1024
# One decoder for all, and no guess at the encoding: this is ingest's innermost loop.
_decode = json.JSONDecoder().decode
_LINE_START = re.compile(rb'[0-9a-f]{8} \{"')

BadReason = Literal["header", "checksum", "torn", "not_json", "not_object", "too_long"]


@dataclass(frozen=True, slots=True)
class Bad:
    """A line, or a part of one, that could not be read.

    Attributes:
        reason: "header" (the first line is damaged), "checksum", "torn" (the last line has no end),
            "not_json", "not_object", or "too_long" (`raw` is then its first 64 KB).
        raw: the line's bytes, as they stand in the file.
    """

    reason: BadReason
    raw: bytes


class Segment:
    """An opened segment: iterate it once, then look at its counts.

    Iterating gives `(line number, record or Bad)`; the header is line 1, and only given where it is
    `Bad`. Counts and footers are taken out and not given. One line is in memory at a time. Closed at the
    end of the iteration, or as a context manager.

    Attributes:
        header: its first line.
        counts: the footer's numbers, or of an adopted segment the last that were written down. Right
            after the last line was read.
        complete: the footer was there. Right after the last line was read.
    """

    def __init__(self, path: Path, file: BinaryIO, header: Header, damaged: Sequence[bytes]) -> None:
        self.path = path
        self.header = header
        self.counts = Counts()
        self.complete = False
        self._file = file
        self._damaged = damaged

    def __iter__(self) -> Iterator[tuple[int, Mapping[str, Any] | Bad]]:
        for number, payload in self.payloads():
            if (record := self.said(payload)) is not None:
                yield number, record

    def payloads(self) -> Iterator[tuple[int, bytes | Bad]]:
        """As iterating gives them, but unparsed: the JSON of each line, for `said`."""
        with self._file as file:
            number = 1
            for part in self._damaged:
                yield 1, _checked(part, "header")
            while raw := file.readline(MAX_LINE):
                number += 1
                if not raw.endswith(b"\n") and len(raw) == MAX_LINE:
                    _skip_line(file)
                    yield number, Bad("too_long", raw[:_START])
                    continue
                content = raw.removesuffix(b"\n")
                if (payload := check(content)) is not None:
                    yield number, payload
                elif content:  # an empty line is what a repaired write leaves: nothing is lost
                    reason: BadReason = "checksum" if raw.endswith(b"\n") else "torn"
                    for part in _parts(content):
                        yield number, _checked(part, reason)

    def said(self, payload: bytes | Bad) -> Mapping[str, Any] | Bad | None:
        """What a line says; counts and footers are taken in, and None."""
        record = payload if isinstance(payload, Bad) else _parse(payload)
        if isinstance(record, Bad):
            return record
        if (kind := record.get("type")) == "footer" or kind == "counts":
            self.counts, self.complete = parse_counts(record), kind == "footer"
            return None
        return record

    def close(self) -> None:
        """Close the file; safe at any time."""
        self._file.close()

    def __enter__(self) -> Segment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_segment(path: str | os.PathLike[str]) -> Segment:
    """Open a segment of any released version.

    Raises:
        SegmentNewer: a newer version wrote it; it has to stay where it is.
        OSError: it cannot be opened.
    """
    path = Path(path)
    file = path.open("rb", _BUFFER)
    try:
        raw = file.readline(MAX_LINE)
        if len(raw) == MAX_LINE and not raw.endswith(b"\n"):
            _skip_line(file)
            raw = raw[:_START]
        header = parse_header(raw.removesuffix(b"\n"))
        damaged: Sequence[bytes] = ()
        if header is None:
            header, damaged = _rescued(raw)
            header = header or Header(segment_id=_id_of(path), damaged=True)
        if header.version > VERSION:
            raise SegmentNewer(
                f"{path.name} is a segment of version {header.version}, by afterpass {header.writer}; "
                f"this afterpass reads up to version {VERSION}",
                hint="upgrade afterpass where the sweep runs; the segment waits meanwhile",
            )
        return Segment(path, file, header, damaged)
    except BaseException:
        file.close()
        raise


def _rescued(raw: bytes) -> tuple[Header | None, Sequence[bytes]]:
    """What of a damaged first line is a header after all, and the other parts of that line."""
    parts = list(_parts(raw.removesuffix(b"\n")))
    for at, part in enumerate(parts[:2]):
        for end in (len(part), -1):  # with its newline damaged, a byte too many
            if (header := parse_header(b"%b%d %b" % (MAGIC, VERSION, part[:end]))) is not None:
                return header, parts[at + 1 :]
    return None, parts or [raw]


def _checked(content: bytes, reason: BadReason) -> bytes | Bad:
    """The JSON of a part of a line, if its checksum holds."""
    payload = check(content)
    return Bad(reason, content) if payload is None else payload


def _parse(payload: bytes) -> Mapping[str, Any] | Bad:
    try:
        record = _decode(payload.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return Bad("not_json", payload)
    return record if isinstance(record, dict) else Bad("not_object", payload)


def _parts(content: bytes) -> Iterator[bytes]:
    """A damaged line, cut where another starts inside it: its own newline may be what was damaged.

    Nothing that an agent wrote can be taken for a start: inside JSON a quote is escaped.
    """
    cuts = [0, *(match.start() for match in islice(_LINE_START.finditer(content, 1), 64)), len(content)]
    for start, end in pairwise(cuts):
        part = content[start:end]
        # The damaged newline is still there, as the byte that it became.
        yield part if check(part) is not None or check(part[:-1]) is None else part[:-1]


def _skip_line(file: BinaryIO) -> None:
    while (more := file.readline(MAX_LINE)) and not more.endswith(b"\n"):
        pass


def _id_of(path: Path) -> UUID:
    """The segment's id from its file's name, else from its content: the same file, the same id."""
    try:
        return UUID(path.name.lstrip(".").partition(".")[0])
    except ValueError:
        with path.open("rb") as file:
            return UUID(bytes=hashlib.file_digest(file, "sha256").digest()[:16])
